package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/e2e/harness"
	"plantstore/internal/postgres"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/servertest"
	"plantstore/internal/testenv"
)

// startTwo starts two servers, each the real binary, on one database. Requests go to them in turn.
// The database is behind a pooler if [testenv.Pooled]. Otherwise the servers have no more
// connections than they need, and both must be ready throughout the test.
func startTwo(t testing.TB) *service {
	t.Helper()
	const least = 4
	db, own, args := "", "", []string{"--auth-failures", "off", "--store-timeout", testenv.Timeout.String()}
	if testenv.Pooled() {
		db = pgtest.Fresh(t)
		own = db
	} else {
		db, own = pgtest.Limited(t, 2*least)
		args = append(args, "--db-connections", strconv.Itoa(least))
	}
	store, err := postgres.Open(own, postgres.Options{StoreTimeout: testenv.Timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	s := &servertest.Server{Store: store, Log: new(servertest.Log)}
	t.Cleanup(s.Stop)
	s.Token = s.NewToken(plantstore.AllScopes()...) // so the servers add no first token

	var servers [2]*harness.Server
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
	if s.BaseURL, err = url.Parse(s.URL); err != nil {
		t.Fatal(err)
	}
	for i := range servers {
		servers[i] = harness.New(t, db, append(args, "--base-url", s.URL)...)
		servers[i].Run()
		t.Cleanup(func() {
			if s.HasSecret([]byte(servers[i].Log())) {
				t.Error("the secret of a token is in the log of a server")
			}
		})
	}
	if !testenv.Pooled() {
		for _, one := range servers {
			staysReady(t, "http://"+one.Addr+"/readyz")
		}
	}
	return newService(t, s)
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
