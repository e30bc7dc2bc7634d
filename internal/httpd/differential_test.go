package httpd

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// endOfInput is a piece of a script after which the client sends nothing more.
const endOfInput = "end of input"

// The timeouts under which scripts run. Each wait at the end of a script is longer
// than one of them.
const (
	scriptHeaderTimeout = 10 * time.Second
	scriptIdleTimeout   = time.Minute
)

// observation is what a client and the handler have seen when everything that can
// happen without the client has happened.
type observation struct {
	Received string
	Ended    string // the error that reading has ended with
	Handled  []string
}

// play sends the pieces of a script one after the other, each in a read of its own
// if the server is reading, then waits for the timeouts, and returns an observation
// for each step.
func play(t *testing.T, script []string, config *tls.Config, build func(*http.Server) server) (seen []observation) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards now
		var now observation
		r := run(t, build(&http.Server{
			TLSConfig: config, ReadHeaderTimeout: scriptHeaderTimeout, IdleTimeout: scriptIdleTimeout, MaxHeaderBytes: 16 << 10,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				mu.Lock()
				now.Handled = append(now.Handled, fmt.Sprintf("%s %s %s %v", r.Method, r.URL, body, err))
				mu.Unlock()
				// A long response of unknown length would be chunked by net/http.
				w.Header().Set("Content-Type", "text/plain")
				fmt.Fprintf(w, "%s %.1000s %.500s %t", r.Method, r.URL, body, r.TLS != nil && r.TLS.HandshakeComplete)
			}),
		}))
		ours, pipe := newDuplex()
		defer pipe.Close()
		r.listener.give(t, ours)
		var theirs duplexConn = pipe
		if config != nil {
			theirs = tls.Client(pipe, clientTLS("http/1.1"))
		}
		go func() {
			b := make([]byte, 64<<10)
			for {
				n, err := theirs.Read(b)
				mu.Lock()
				now.Received += string(b[:n])
				if err != nil {
					now.Ended = err.Error()
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		}()
		observe := func() {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, observation{now.Received, now.Ended, slices.Clone(now.Handled)})
		}
		pieces := make(chan string, len(script))
		defer close(pieces)
		go func() {
			for piece := range pieces {
				if piece == endOfInput {
					theirs.CloseWrite()
				} else if piece != "" {
					theirs.Write([]byte(piece))
				}
			}
		}()
		for _, piece := range script {
			pieces <- piece
			observe()
		}
		for _, timeout := range []time.Duration{scriptHeaderTimeout, scriptIdleTimeout} {
			time.Sleep(timeout + 2*time.Second)
			observe()
		}
	})
	return seen
}

// netHTTP is net/http's server, which has TLS if it has a configuration for it.
type netHTTP struct{ *http.Server }

func (s netHTTP) Serve(l net.Listener) error {
	if s.TLSConfig != nil {
		return s.ServeTLS(l, "", "")
	}
	return s.Server.Serve(l)
}

// compare checks that a script has the same effects, step by step, as on an http.Server.
func compare(t *testing.T, script []string, config *tls.Config) {
	t.Helper()
	got := play(t, script, config, func(web *http.Server) server { return New(web, always) })
	want := play(t, script, config, func(web *http.Server) server { return netHTTP{web} })
	for i := range want {
		if !slices.Equal(got[i].Handled, want[i].Handled) || got[i].Received != want[i].Received || got[i].Ended != want[i].Ended {
			t.Errorf("%.4000q: after step %d\n%.4000q\nwith net/http\n%.4000q", script, i+1, fmt.Sprint(got[i]), fmt.Sprint(want[i]))
			return
		}
	}
}

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n" }

func put(path, body string) string {
	return fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// scripts are pieces that a client sends, each after the one before was read.
var scripts = map[string][]string{
	"fast path":            {get("/1") + put("/2", "two") + get("/3"), get("/4"), put("/5", "") + get("/6")},
	"more than the buffer": {strings.Repeat(put("/1", strings.Repeat("a", 1000)), 5)},
	"exactly the buffer":   {put("/1", strings.Repeat("a", bufferSize-len(put("/1", ""))-len("000"))) + get("/2"), get("/3")},
	"HEAD":                 {get("/1") + "HEAD /2 HTTP/1.1\r\nHost: localhost\r\n\r\n" + get("/3"), get("/4")},
	"chunked body": {
		get("/1") + "POST /2 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n" + get("/3"),
	},
	"header in two pieces":   {get("/1") + "GET /2 HT", "TP/1.1\r\nHost: localhost\r\n\r\n" + get("/3"), get("/4")},
	"header in single bytes": strings.Split(get("/1")+get("/2"), ""),
	"body in two pieces": {
		put("/1", "one") + strings.TrimSuffix(put("/2", "two"), "wo"), "wo" + put("/3", "three"), get("/4"),
	},
	"header that leaves a byte of the buffer": {
		partialRequest + "X-Long: " + strings.Repeat("a", bufferSize-1-len(partialRequest+"X-Long: ")), "aa\r\n\r\n", get("/2"),
	},
	"long header": {
		get("/1"), "GET /2 HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("a", 5<<10) + "\r\n\r\n" + get("/3"), get("/4"),
	},
	// net/http shuts down the writing side, which needs CloseWrite, and closes later.
	"header that is too long": {get("/1"), "GET /2 HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("a", 64<<10)},
	"long body":               {get("/1") + put("/2", strings.Repeat("a", 10_000)) + get("/3")},
	"Expect": {
		get("/1") + "PUT /2 HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
		"two" + get("/3"), get("/4"),
	},
	"HTTP/1.0":             {get("/1") + get("/2") + "GET /3 HTTP/1.0\r\n\r\n"},
	"nonsense":             {get("/1") + "nonsense\r\n\r\n" + get("/2")},
	"nonsense first":       {"nonsense\r\n\r\n"},
	"line break first":     {"\r\n" + get("/1")},
	"Connection: close":    {get("/1") + "GET /2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" + get("/3")},
	"nothing":              {},
	"nothing but the end":  {endOfInput},
	"end after a request":  {get("/1"), endOfInput},
	"end with a request":   {get("/1") + get("/2"), endOfInput},
	"end within a header":  {get("/1") + "GET /2 HTTP/1.1\r\n", endOfInput},
	"end within a body":    {strings.TrimSuffix(put("/1", "one"), "ne"), endOfInput},
	"end within the first": {"GET", endOfInput},
}

func TestScriptsHaveTheEffectsOfNetHTTP(t *testing.T) {
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { compare(t, script, nil) })
		t.Run("TLS/"+name, func(t *testing.T) { compare(t, script, serverTLS("http/1.1")) })
	}
}

// net/http waits for four bytes between two requests. After a POST, and after no
// other method, it skips line breaks among them.
func TestLineBreaksBetweenRequests(t *testing.T) {
	requests := map[string]string{
		"GET": get("/1"), "PUT": put("/1", "one"), "DELETE": to("DELETE /1 HTTP/1.1"),
		"POST": post("Content-Length: 3\r\n", "one"), "empty POST": post("", ""),
		"POST after GET": get("/1") + post("", ""), "GET after POST": post("", "") + get("/1"),
		"fallback POST": post("Content-Length: 0\r\nExpect: 100-continue\r\n", ""),
	}
	breaks := []string{
		"\r", "\n", "\r\n", "\n\r", "\n\n\n", "\r\n\r", "\r\n\r\n", "\r\n\r\n\r", "\r\n\r\n\r\n", "\n\n\n\n\n\n\n\n", " \r\n", "\r\n ", "\r\nG",
	}
	next := map[string][]string{
		"nothing": nil, "end": {endOfInput}, "GET": {get("/2")}, "two": {post("", "") + "\r\n" + get("/2")},
		"fallback": {fallbackRequest}, "part": {"GE"}, "part and end": {"GE", endOfInput}, "nonsense": {"nonsense\r\n\r\n"},
	}
	for method, request := range requests {
		for _, lineBreaks := range breaks {
			for following, pieces := range next {
				t.Run(fmt.Sprintf("%s/%q/%s", method, lineBreaks, following), func(t *testing.T) {
					t.Parallel()
					first := ""
					rest := pieces
					if len(pieces) > 0 && pieces[0] != endOfInput {
						first, rest = pieces[0], pieces[1:]
					}
					compare(t, append([]string{request + lineBreaks + first}, rest...), nil)
					compare(t, append([]string{request + lineBreaks}, pieces...), nil)
					compare(t, append([]string{request, lineBreaks + first}, rest...), nil)
					compare(t, append([]string{request, lineBreaks}, pieces...), nil)
					compare(t, slices.Concat([]string{request}, strings.Split(lineBreaks, ""), pieces), nil)
					compare(t, slices.Concat([]string{request}, strings.Split(lineBreaks+first, ""), rest), nil)
				})
			}
		}
	}
}

// FuzzConnectionBytes sends any bytes, cut into two reads anywhere.
func FuzzConnectionBytes(f *testing.F) {
	for _, script := range scripts {
		text := strings.ReplaceAll(strings.Join(script, ""), endOfInput, "")
		f.Add(text, uint16(len(text)), false)
		f.Add(text, uint16(len(text)/2), true)
	}
	for _, lineBreaks := range []string{"\r", "\r\n", "\r\n\r\n", "\n\n\n\n\n"} {
		f.Add(post("", "")+lineBreaks+get("/2"), uint16(len(post("", ""))), true)
		f.Add(get("/1")+lineBreaks+get("/2"), uint16(len(get("/1"))+1), true)
	}
	f.Fuzz(func(t *testing.T, text string, cut uint16, end bool) {
		if len(text) > 16<<10 {
			t.Skip("the limit of a header does not count what net/http has in its buffer")
		}
		at := min(int(cut), len(text))
		script := []string{text[:at], text[at:]}
		if end {
			script = append(script, endOfInput)
		}
		compare(t, script, nil)
	})
}
