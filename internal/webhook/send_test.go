package webhook

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"plantstore"
)

// respondRaw responds to every request with these bytes, and then waits for the other side
// to close.
func respondRaw(t *testing.T, response string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
					return
				}
				_, _ = io.WriteString(c, response)
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// Whatever an endpoint does, the attempt says so: in full, in valid UTF-8, and without
// the URL, which may have a secret in it.
func TestAttemptSaysWhatCameBack(t *testing.T) {
	quiet := httptest.NewUnstartedServer(http.NotFoundHandler())
	quiet.Config.ErrorLog = discardLog
	quiet.StartTLS()
	t.Cleanup(quiet.Close)
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, tt := range []struct {
		name, url, response string
		status              int
		err, start          string
	}{
		{name: "success", response: ok + "Content-Length: 2\r\n\r\nhi", status: 200, start: "hi"},
		{name: "no content", response: "HTTP/1.1 204 No Content\r\n\r\n", status: 204},
		{name: "a large body", response: ok + "\r\n" + strings.Repeat("x", 1<<20), status: 200, start: strings.Repeat("x", maxExcerpt)},
		{name: "a body that stops", response: ok + "Content-Length: 1000\r\n\r\nhalf", status: 200, start: "half"},
		{name: "not UTF-8", response: ok + "Content-Length: 4\r\n\r\ncaf\xe9", status: 200, start: "caf"},
		{name: "a rune cut in half", response: ok + "\r\n" + strings.Repeat("é", maxExcerpt), status: 200, start: strings.Repeat("é", maxExcerpt/2)},
		{name: "a redirect without a place", response: "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", status: 302},
		{name: "not HTTP", response: "SSH-2.0-OpenSSH_9.6 \xff\r\n\r\n", err: "malformed HTTP"},
		{name: "a malformed header", response: ok + "caf\xe9\r\n\r\n", err: "malformed MIME header"},
		{name: "a header that never ends", response: ok + "X: " + strings.Repeat("x", 1<<20), err: "exceeded"},
		{name: "a redirect to nonsense", response: "HTTP/1.1 302 Found\r\nLocation: http://[\xff" + strings.Repeat("x", 5000) + "\r\n\r\n", err: "Location"},
		{name: "no response", response: "", err: "no response within"},
		{name: "an unknown certificate", url: quiet.URL, err: "tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		{name: "an address that is refused", url: "https://10.255.255.1", err: "10.255.255.1 is not a public address; --webhook-allow can allow it"},
		{name: "nobody listens", url: "http://127.0.0.1:1", err: "connection refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := New(nil, Options{Allow: loopback})
			defer m.client.CloseIdleConnections()
			url := tt.url
			if url == "" {
				url = respondRaw(t, tt.response)
			}
			var got plantstore.Delivery
			ok := false
			for _, timeout := range []time.Duration{3 * time.Second, 30 * time.Second} { // a slow machine may take longer than the first
				m.client.Timeout = timeout
				got = Send(t.Context(), m.client, url+"/hook?key=confidential", []string{plantstore.NewWebhookSecret()}, "evt_1", TestType, []byte("{}"))
				ok = got.Status == tt.status && got.Response == tt.start && (got.Error == "") == (tt.err == "") && strings.Contains(got.Error, tt.err)
				if ok {
					break
				}
			}
			if !ok {
				t.Errorf("got %d %.200q %q, want %d %.200q %q", got.Status, got.Response, got.Error, tt.status, tt.start, tt.err)
			}
			if len(got.Error) > maxError || !utf8.ValidString(got.Error) || strings.Contains(got.Error, "confidential") {
				t.Errorf("got the error %q", got.Error)
			}
		})
	}
}

func TestHTTP2Endpoint(t *testing.T) {
	s := run(t, newStore(t))
	e := &endpoint{t: t, respond: func(w http.ResponseWriter, r *http.Request, _ message) {
		if r.ProtoMajor != 2 {
			t.Errorf("got %s", r.Proto)
		}
	}}
	e.Server = httptest.NewUnstartedServer(e)
	e.EnableHTTP2 = true
	e.StartTLS()
	defer e.Close()
	pool := x509.NewCertPool()
	pool.AddCert(e.Certificate())
	s.client.Transport.(schemeTransport).TLSClientConfig = &tls.Config{RootCAs: pool}
	s.create(e)
	s.write(plantstore.Create, ferns(1, 100)...)
	wantPlants(t, e.awaitMessages(100), ferns(1, 100)...)
	s.stop()
}

// A webhook waits for what another is reading already, and reads it if that one is
// stopped.
func TestWebhooksShareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(nil, Options{})
		reading, stop := context.WithCancel(t.Context())
		reads := 0
		go share(reading, m, "key", func() (string, error) {
			reads++
			<-reading.Done()
			return "", errors.New("interrupted")
		})
		synctest.Wait()
		got := make(chan string, 2)
		for range cap(got) {
			go func() {
				text, err := share(t.Context(), m, "key", func() (string, error) {
					reads++
					return "a page", nil
				})
				got <- fmt.Sprint(text, err)
			}()
		}
		synctest.Wait()
		if reads != 1 {
			t.Errorf("%d webhooks read the same, want 1", reads)
		}
		stop()
		for range cap(got) {
			if text := <-got; text != "a page<nil>" {
				t.Errorf("got %s", text)
			}
		}
	})
}

// A secret that cannot be read is the result of a test, and not a failure of the server.
func TestTestSaysThatTheSecretIsSealed(t *testing.T) {
	store := newStore(t)
	e := newEndpoint(t, nil)
	sealed := run(t, store, func(o *Options) { o.Key = []byte("a key") })
	w := sealed.create(e)
	sealed.stop()
	a, err := New(store, Options{}).Test(t.Context(), w.ID)
	if err != nil || a.Attempt != 1 || a.Type != TestType || !strings.Contains(a.Error, "--secret-key-file") {
		t.Errorf("got %+v, %v", a, err)
	}
	if n := len(e.messages()); n > 0 {
		t.Errorf("%d messages were sent", n)
	}
}
