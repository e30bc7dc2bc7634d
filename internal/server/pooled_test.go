package server_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"plantstore"
	"plantstore/e2e/harness"
	"plantstore/internal/postgres"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/servertest"
	"plantstore/internal/testenv"
)

// startPooled starts two servers, each the real binary, on one database behind a pooler. Requests
// go to them in turn.
func startPooled(t testing.TB) *service {
	t.Helper()
	db := pgtest.Fresh(t)
	store, err := postgres.Open(db, postgres.Options{StoreTimeout: testenv.Timeout})
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
	s.URL, s.Addr = balancer.URL, balancer.Listener.Addr().String()
	if s.BaseURL, err = url.Parse(s.URL); err != nil {
		t.Fatal(err)
	}
	for i := range servers {
		servers[i] = harness.New(t, db, "--base-url", s.URL, "--auth-failures", "off", "--store-timeout", testenv.Timeout.String())
		servers[i].Run()
		t.Cleanup(func() {
			if s.HasSecret([]byte(servers[i].Log())) {
				t.Error("the secret of a token is in the log of a server")
			}
		})
	}
	return newService(t, s)
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
