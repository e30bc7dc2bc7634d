package httpd

import (
	"bufio"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// certificate has a name and a lifetime that no client checks.
var certificate = sync.OnceValue(func() tls.Certificate {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

func serverTLS(protocols ...string) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{certificate()}, NextProtos: protocols}
}

// clientTLS sends what is written at once as one record.
func clientTLS(protocols ...string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: protocols, DynamicRecordSizingDisabled: true}
}

// secure adds TLS to the client's end of a connection.
func (c *client) secure(config *tls.Config) *client {
	secured := tls.Client(c.Conn, config)
	return &client{secured, bufio.NewReader(secured), c.t}
}

// kind responds with how a request was served.
func kind(w http.ResponseWriter, r *http.Request) {
	_, fast := w.(*response)
	protocol := "none"
	if r.TLS != nil {
		protocol = fmt.Sprintf("%q", r.TLS.NegotiatedProtocol)
	}
	fmt.Fprintf(w, "%s, fast path %t, TLS %s", r.Proto, fast, protocol)
}

func TestProtocolsOfTLS(t *testing.T) {
	web := &http.Server{Handler: http.HandlerFunc(kind), TLSConfig: serverTLS("h2", "http/1.1")}
	s := New(web, always)
	url := "https://" + serveTCP(t, s)
	for name, x := range map[string]struct {
		protocols []string
		http2     bool
		method    string
		want      string
	}{
		"HTTP/2":            {nil, true, "GET", `HTTP/2.0, fast path false, TLS "h2"`},
		"HTTP/1.1":          {[]string{"http/1.1"}, false, "GET", `HTTP/1.1, fast path true, TLS "http/1.1"`},
		"fallback":          {[]string{"http/1.1"}, false, "OPTIONS", `HTTP/1.1, fast path false, TLS "http/1.1"`},
		"nothing but TLS":   {nil, false, "GET", `HTTP/1.1, fast path true, TLS ""`},
		"TLS, and fallback": {nil, false, "OPTIONS", `HTTP/1.1, fast path false, TLS ""`},
	} {
		transport := &http.Transport{TLSClientConfig: clientTLS(x.protocols...), ForceAttemptHTTP2: x.http2}
		if !x.http2 {
			transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		}
		r, _ := http.NewRequestWithContext(t.Context(), x.method, url, nil)
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if body, err := io.ReadAll(response.Body); string(body) != x.want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", name, body, err, x.want)
		}
		if n := s.Connections(); n != 1 {
			t.Errorf("%s: %d connections are counted, want 1", name, n)
		}
		for s.Connections() > 0 {
			transport.CloseIdleConnections()
			time.Sleep(time.Millisecond)
		}
	}
}

// logged is what a server logs.
type logged struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func TestHandshakesThatFail(t *testing.T) {
	const timeout = 5 * time.Second
	for name, x := range map[string]struct {
		send   string
		want   string
		after  time.Duration
		logged string
	}{
		"plain HTTP": {fastRequest, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n", 0, "client sent an HTTP request to an HTTPS server"},
		"nothing":    {"", "", timeout, "timeout"},
		"half":       {"\x16\x03\x01\x02\x00\x01", "", timeout, "timeout"},
		"nonsense":   {"\x16\x03\x01\x00\x04\x68\x00\x00\x00", "\x15\x03\x01\x00\x02\x02\x0a", 0, "unexpected message"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				errors := new(logged)
				r := runFast(t, &http.Server{TLSConfig: serverTLS("h2", "http/1.1"), ReadHeaderTimeout: timeout, ErrorLog: log.New(errors, "", 0)})
				c := r.dial(t)
				start := time.Now()
				c.send(x.send)
				got, err := io.ReadAll(c.in)
				if took := time.Since(start); string(got) != x.want || err != nil || took < x.after || took > x.after+sweepInterval {
					t.Errorf("got %q and %v after %v, want %q", got, err, took, x.want)
				}
				synctest.Wait()
				if text := errors.text.String(); !strings.HasPrefix(text, "http: TLS handshake error from pipe: ") || !strings.Contains(text, x.logged) {
					t.Errorf("logged %q, want %q", text, x.logged)
				}
				if n := r.server.Connections(); n != 0 {
					t.Errorf("%d connections are open", n)
				}
			})
		})
	}
}

func TestPanicInAHandshakeEndsOnlyItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := serverTLS("http/1.1")
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if hello.ServerName == "panic.example" {
				panic("a bug")
			}
			return nil, nil
		}
		errors := new(logged)
		s := New(&http.Server{Handler: http.HandlerFunc(echo), TLSConfig: config, ErrorLog: log.New(errors, "", 0)}, always)
		s.MaxConnections = 1
		r := run(t, s)
		bad := clientTLS("http/1.1")
		bad.ServerName = "panic.example"
		wantPanic := func() {
			t.Helper()
			if err := r.dial(t).secure(bad).Conn.(*tls.Conn).Handshake(); err != io.EOF {
				t.Errorf("got %v, want the end", err)
			}
			synctest.Wait() // the connection is closed before it is no longer counted
		}
		wantPanic()
		r.dial(t).secure(clientTLS("http/1.1")).exchange(fastRequest)
		wantPanic() // this one is beyond the limit
		if n := strings.Count(errors.text.String(), "http: panic serving pipe: a bug\n"); n != 2 || s.Connections() != 1 {
			t.Errorf("%d connections are open, and %d panics were logged", s.Connections(), n)
		}
	})
}

// Handshakes that do not proceed take the place of others only until their timeout.
func TestHalfOpenHandshakesBeyondTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100
		s := New(&http.Server{
			Handler: http.HandlerFunc(echo), TLSConfig: serverTLS("h2", "http/1.1"), ReadHeaderTimeout: 5 * time.Second,
			IdleTimeout: time.Hour, ErrorLog: log.New(io.Discard, "", 0),
		}, always)
		s.MaxConnections = limit
		s.OnRefuse(`{"error":1}`, func(_, path string) bool { return path == "/healthz" }, func() {})
		r := run(t, s)
		first := r.dial(t).secure(clientTLS("http/1.1"))
		first.exchange(fastRequest)
		for range 3 * limit {
			r.dial(t)
		}
		synctest.Wait()
		if n := s.Connections(); n != limit+maxExtra {
			t.Errorf("%d connections are open, want %d", n, limit+maxExtra)
		}
		start := time.Now()
		first.exchange(fastRequest)
		if took := time.Since(start); took != 0 {
			t.Errorf("another connection waited for %v", took)
		}
		time.Sleep(probeTimeout)
		synctest.Wait()
		refused, probe := r.dial(t).secure(clientTLS("h2", "http/1.1")), r.dial(t).secure(clientTLS("h2", "http/1.1"))
		refused.wantRefused()
		if got := refused.Conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "http/1.1" {
			t.Errorf("a client that has chosen %q gets a response of HTTP/1.1", got)
		}
		probe.send(probeRequest)
		if got := probe.read(); got.Status != "200 OK" || !got.Close {
			t.Errorf("the probe got %+v", got)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := s.Connections(); n != 1 {
			t.Errorf("%d connections are open, want 1", n)
		}
		first.exchange(fastRequest)
		r.dial(t).secure(clientTLS("http/1.1")).exchange(fastRequest)
	})
}

// counting counts the bytes that are read.
type counting struct {
	net.Conn
	read int
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read += n
	return n, err
}

// A client could not tell an end without it from one that an attacker made.
func TestTLSEndsWithAnAlert(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *running[*Server]){
		"timeout":  func(*testing.T, *running[*Server]) { time.Sleep(time.Minute) },
		"shutdown": func(t *testing.T, r *running[*Server]) { r.shutdown(t) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := runFast(t, &http.Server{TLSConfig: serverTLS("http/1.1"), IdleTimeout: time.Minute})
				c := r.dial(t)
				wire := &counting{Conn: c.Conn}
				c.Conn = wire
				c = c.secure(clientTLS("http/1.1"))
				c.exchange(fastRequest)
				before := wire.read
				go end(t, r)
				c.wantClosed()
				if n := wire.read - before; n != 24 {
					t.Errorf("got %d bytes at the end, want an alert of 24", n)
				}
			})
		})
	}
}

// A client that does not read holds up the message with which TLS ends, and nothing else.
func TestClientThatDoesNotReadDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = 10 * time.Second
		r := runFast(t, &http.Server{TLSConfig: serverTLS("http/1.1"), IdleTimeout: idle})
		for range 3 {
			r.dial(t).secure(clientTLS("http/1.1")).exchange(fastRequest)
		}
		start := time.Now()
		for time.Since(start) < 2*idle {
			before := time.Now()
			c := r.dial(t).secure(clientTLS("http/1.1"))
			c.exchange(fastRequest)
			if took := time.Since(before); took != 0 {
				t.Fatalf("a request took %v", took)
			}
			c.Close()
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// A certificate may take minutes to obtain.
func TestShutdownDoesNotWaitForHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obtained := make(chan struct{})
		config := serverTLS("http/1.1")
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			<-obtained
			pair := certificate()
			return &pair, nil
		}
		config.Certificates = nil
		r := runFast(t, &http.Server{TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0)})
		c := r.dial(t).secure(clientTLS("http/1.1"))
		go c.send(fastRequest)
		r.dial(t) // it sends nothing
		synctest.Wait()
		start := time.Now()
		if err := r.shutdown(t); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if took := time.Since(start); took > 2*sweepInterval {
			t.Errorf("it took %v", took)
		}
		close(obtained)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := r.server.Connections(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
	})
}

func TestRequestIsCancelledWhenItsClientEndsTLS(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			t.Parallel()
			entered, done := make(chan struct{}), make(chan struct{})
			s := New(&http.Server{TLSConfig: serverTLS("http/1.1"), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				close(entered)
				<-r.Context().Done()
				close(done)
			})}, always)
			config := clientTLS("http/1.1")
			config.MaxVersion = version
			c := dialTCP(t, serveTCP(t, s)).secure(config)
			c.send(fastRequest)
			<-entered
			c.Conn.(*tls.Conn).CloseWrite() // the socket stays open
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Fatal("the request was not cancelled")
			}
		})
	}
}
