package httpd

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const probeRequest = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

// runLimited runs a server with a limit, and counts the refusals.
func runLimited(t testing.TB, limit int) (*running[*Server], *atomic.Int64) {
	t.Helper()
	s := New(&http.Server{Handler: http.HandlerFunc(echo), IdleTimeout: time.Hour}, always)
	refused := new(atomic.Int64)
	s.MaxConnections = limit
	s.OnRefuse(`{"error":1}`, func(method, path string) bool { return method == "GET" && path == "/healthz" }, func() { refused.Add(1) })
	return run(t, s), refused
}

// wantRefused checks that a request on the connection gets a 503 and nothing more.
func (c *client) wantRefused() {
	c.t.Helper()
	c.send(fastRequest)
	b, err := io.ReadAll(c.in)
	if got := string(b); err != nil || !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.HasSuffix(got, "\r\nRetry-After: 1\r\nContent-Length: 11\r\n\r\n{\"error\":1}") {
		c.t.Errorf("got %q and %v, want a 503", got, err)
	}
}

func TestConnectionBeyondTheLimitIsRefused(t *testing.T) {
	for path, request := range eachPath {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, refused := runLimited(t, 2)
				first, second := r.dial(t), r.dial(t)
				first.exchange(request)
				second.exchange(request)
				r.dial(t).wantRefused()
				first.exchange(request) // the others go on
				if n := refused.Load(); n != 1 {
					t.Errorf("%d refusals were counted, want 1", n)
				}
				second.Close()
				synctest.Wait()
				if n := r.server.Connections(); n != 1 {
					t.Errorf("%d connections are open, want 1", n)
				}
				third := r.dial(t)
				third.exchange(request)
				r.dial(t).wantRefused()
			})
		})
	}
}

func TestProbeBeyondTheLimitIsServedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, refused := runLimited(t, 1)
		r.dial(t).exchange(fastRequest)
		for _, after := range []string{"", fastRequest, probeRequest} {
			c := r.dial(t)
			start := time.Now()
			go c.send(probeRequest + after)
			if got := c.read(); got.Status != "200 OK" || !strings.Contains(got.Body, "GET /healthz") {
				t.Errorf("the probe got %+v", got)
			}
			c.wantClosed()
			if took := time.Since(start); took > probeTimeout {
				t.Errorf("the connection was open for %v", took)
			}
		}
		synctest.Wait()
		if n := r.server.Connections(); n != 1 || refused.Load() != 0 {
			t.Errorf("%d connections are open and %d were refused", n, refused.Load())
		}
	})
}

// Connections that send nothing do not block those after them.
func TestSilentConnectionsBeyondTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, refused := runLimited(t, 1)
		r.dial(t).exchange(fastRequest)
		var silent []*client
		for range maxExtra {
			silent = append(silent, r.dial(t))
		}
		start := time.Now()
		r.dial(t).wantClosed()
		if took := time.Since(start); took != 0 {
			t.Errorf("one more was closed after %v", took)
		}
		time.Sleep(probeTimeout)
		synctest.Wait()
		for _, c := range silent {
			c.Close()
		}
		if n := r.server.Connections(); n != 1 || refused.Load() != maxExtra+1 {
			t.Errorf("%d connections are open and %d were refused, want 1 and %d", n, refused.Load(), maxExtra+1)
		}
		r.dial(t).wantRefused()
	})
}
