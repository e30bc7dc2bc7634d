package servertest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/postgres"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
)

// StartTwo starts two servers on one database, which stop when the test ends. Requests to the one
// that it returns go to them in turn. The database is behind a pooler if [testenv.Pooled].
// Otherwise the servers have no more connections than they need, and both must be ready throughout
// the test.
func StartTwo(t testing.TB) *Server {
	t.Helper()
	const least = 4
	opts := postgres.Options{StoreTimeout: testenv.Timeout}
	db, own := "", ""
	if testenv.Pooled() {
		db = pgtest.Fresh(t)
		own = db
	} else {
		db, own = pgtest.Limited(t, 2*least)
	}
	s := &Server{Store: must(postgres.Open(own, opts)), Log: new(Log)}
	t.Cleanup(func() { s.Store.Close() })
	t.Cleanup(func() { check(t, s.end()) })
	s.Token = s.NewToken(plantstore.AllScopes()...)

	var servers [2]*Server
	var requests atomic.Int64
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	balancer := httptest.NewServer(&httputil.ReverseProxy{
		Transport:     retrying{transport},
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", servers[requests.Add(1)%2].Addr
		},
	})
	t.Cleanup(balancer.Close)
	s.URL, s.Origin, s.Addr = balancer.URL, balancer.URL, balancer.Listener.Addr().String()
	s.BaseURL = URL(s.URL)
	if !testenv.Pooled() {
		opts.Connections = least
	}
	for i := range servers {
		one := launch(Options{Store: must(postgres.Open(db, opts)), StoreTimeout: testenv.Timeout, BaseURL: s.BaseURL}, s.Log)
		t.Cleanup(func() { check(t, one.end()) })
		servers[i] = one
	}
	if !testenv.Pooled() {
		for _, one := range servers {
			staysReady(t, one.Origin+"/readyz")
		}
	}
	return s
}

// staysReady asks a server again and again whether it is ready, until the test ends.
func staysReady(t testing.TB, url string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	t.Cleanup(asking.Wait)
	t.Cleanup(stop)
	web := &http.Client{Transport: &http.Transport{}}
	asking.Go(func() {
		defer web.CloseIdleConnections()
		for pause := time.Tick(50 * time.Millisecond); ctx.Err() == nil; <-pause {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				t.Error(err)
				return
			}
			response, err := web.Do(r)
			switch {
			case ctx.Err() != nil:
			case err != nil:
				t.Error(err)
			case response.StatusCode != http.StatusOK:
				body, _ := io.ReadAll(response.Body)
				t.Errorf("%s: got %d %s", url, response.StatusCode, body)
			}
			if err == nil {
				response.Body.Close()
			}
		}
	})
}

// retrying sends an export again that got 503, because PgBouncer was killed while its first part
// was read. No other request needs that.
type retrying struct{ http.RoundTripper }

func (t retrying) RoundTrip(r *http.Request) (*http.Response, error) {
	const attempts = 10
	isExport := r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "application/x-ndjson")
	for i := 1; ; i++ {
		response, err := t.RoundTripper.RoundTrip(r)
		if err != nil || response.StatusCode != http.StatusServiceUnavailable || !isExport || i == attempts {
			return response, err
		}
		response.Body.Close()
	}
}
