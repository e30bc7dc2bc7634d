// Command noop is the upper bound: it reads every body and sends a constant response.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("{\"addr\":%q}\n", listener.Addr())
	response := []byte(`{"name":"Monstera deliciosa","tag":"tropical"}`)
	log.Fatal(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header()["Content-Type"] = []string{"application/json"}
		_, _ = w.Write(response)
	})))
}
