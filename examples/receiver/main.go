// Command receiver prints the webhooks that it receives, after it has verified them.
// Copy it to begin a receiver of your own.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"plantstore/client"
)

func main() {
	secret := os.Getenv("PLANTSTORE_WEBHOOK_SECRET")
	http.HandleFunc("POST /hook", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<20))
		if err == nil {
			err = client.VerifyWebhook(r.Header, body, secret)
		}
		if err != nil {
			log.Print(err)
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		fmt.Printf("verified %s: %s\n", r.Header.Get("webhook-id"), body)
		w.WriteHeader(http.StatusNoContent)
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:3000", nil))
}
