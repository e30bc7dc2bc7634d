package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/server"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
	"plantstore/internal/testenv"
)

func rate(t *testing.T, text string) plantstore.Rate {
	t.Helper()
	r, err := plantstore.ParseRate(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// onBothPaths calls a test with a request that is served on the fast path, and with one
// that net/http serves. Both need the scope to read.
func onBothPaths(t *testing.T, test func(t *testing.T, path string)) {
	t.Helper()
	for name, path := range map[string]string{"fast path": "/1", "net/http": "?limit=1"} {
		t.Run(name, func(t *testing.T) { test(t, path) })
	}
}

// wantOK fails unless the status is 200.
func (r reply) wantOK(t *testing.T) {
	t.Helper()
	if r.status != 200 {
		t.Errorf("got %d %s, want 200", r.status, r.body)
	}
}

// wantRemaining fails unless the answer says that so many requests remain, and that all do
// again after so many seconds, less the time since began.
func (r reply) wantRemaining(t *testing.T, began time.Time, requests, seconds int) {
	t.Helper()
	var gotRequests, gotSeconds int
	got := r.header.Get("RateLimit")
	if _, err := fmt.Sscanf(got, `"token";r=%d;t=%d`, &gotRequests, &gotSeconds); err != nil || gotRequests != requests {
		t.Errorf("RateLimit is %q, want r=%d: %v", got, requests, err)
	}
	wantSeconds(t, began, got, gotSeconds, seconds)
}

// wantSeconds fails unless got is want, less the time since began.
func wantSeconds(t *testing.T, began time.Time, header string, got, want int) {
	t.Helper()
	if least := want - int(math.Ceil(time.Since(began).Seconds())); got > want || got < least {
		t.Errorf("%s has %d seconds, want %d to %d", header, got, least, want)
	}
}

// wantRetryAfter fails unless the response has a Retry-After of want, less the time since began.
func (r reply) wantRetryAfter(t *testing.T, began time.Time, want int) {
	t.Helper()
	seconds, err := strconv.Atoi(r.header.Get("Retry-After"))
	if err != nil {
		t.Errorf("Retry-After: %v", err)
	}
	wantSeconds(t, began, "Retry-After", seconds, want)
}

func TestRateLimitOverHTTP(t *testing.T) {
	onBothPaths(t, func(t *testing.T, path string) {
		s := start(t, servertest.Options{RateLimit: rate(t, "3/h")})
		s.Fill(t, fern(1))
		began := time.Now()
		for i := range 3 {
			got := s.call(t, "GET", path, "")
			got.wantOK(t)
			got.wantHeader(t, "RateLimit-Policy", `"token";q=3;w=3600`)
			got.wantRemaining(t, began, 2-i, 1200*(i+1))
		}
		got := s.call(t, "GET", path, "")
		got.wantError(t, plantstore.ErrRate, "too many requests with this token, the limit is 3/h")
		got.wantRemaining(t, began, 0, 3600)
		got.wantRetryAfter(t, began, 1200)
		// Another token has a limit of its own, and errors have the headers too.
		writer := s.NewToken(plantstore.ScopeWrite)
		got = s.call(t, "GET", path, "", "Authorization: Bearer "+writer)
		got.wantError(t, plantstore.ErrScope)
		got.wantRemaining(t, began, 2, 1200)
		// There are none without a token.
		got = s.call(t, "GET", path, "", "Authorization: Bearer wrong")
		got.wantError(t, plantstore.ErrBadToken)
		got.wantHeader(t, "RateLimit-Policy")
		s.send(t, "GET", "/healthz", "").wantOK(t)
		s.awaitReady(t)
	})
}

func TestTokenHasItsOwnRate(t *testing.T) {
	for _, server := range []string{"off", "3/h", "1000/h"} {
		s := start(t, servertest.Options{RateLimit: rate(t, server)})
		s.Fill(t, fern(1))
		own := "Authorization: Bearer " + s.AddToken(plantstore.Token{Scopes: plantstore.AllScopes(), Rate: rate(t, "20/h,burst=2")})
		began := time.Now()
		for i := range 2 {
			got := s.call(t, "GET", "/1", "", own)
			got.wantOK(t)
			got.wantHeader(t, "RateLimit-Policy", `"token";q=2;w=360`)
			got.wantRemaining(t, began, 1-i, 180*(i+1))
		}
		s.call(t, "GET", "/1", "", own).wantError(t, plantstore.ErrRate, "the limit is 20/h,burst=2")
	}
}

// A caller of an identity provider has the server's default, and grants no more.
func TestCallerOfAnIdentityProviderGivesAwayNoHigherRate(t *testing.T) {
	issuer := startIssuer(t)
	opts := oidcOptions(t, issuer)
	opts.RateLimit = rate(t, "500/s")
	s := start(t, opts)
	caller := issuer.Sign(nil, claims{"scope": "tokens:write plants:read"})
	ask := func(rate string) reply {
		return s.as(t, caller, "POST", "/tokens", `{"name":"x","scopes":["plants:read"],"rate":"`+rate+`"}`, "Content-Type: application/json")
	}
	eventually(t, 201, func() reply { return ask("500/s") }).wantHeader(t, "Cache-Control", "no-store")
	ask("501/s").wantError(t, plantstore.ErrPrivilege, "your own limit is 500/s")
}

// A table of what a caller may grant with a rate of their own, or with the server's
// default.
func TestNobodyGivesAwayAHigherRate(t *testing.T) {
	s := start(t, servertest.Options{RateLimit: rate(t, "500/s")})
	for own, asked := range map[string]map[string]string{ // asked: granted, empty for the server's, or refused
		"": {"": "", `null`: "", `"500/s"`: "500/s", `"30/m"`: "30/m", `"501/s"`: "refused", `"1/s,burst=501"`: "refused"},
		"100/s,burst=200": {
			"": "100/s,burst=200", `null`: "100/s,burst=200", `"100/s,burst=200"`: "100/s,burst=200", `"100/s"`: "100/s",
			`"6000/m,burst=200"`: "6000/m,burst=200", `"1/h"`: "1/h",
			`"101/s"`: "refused", `"1/s,burst=201"`: "refused", `"6001/m,burst=1"`: "refused", `"360001/h,burst=1"`: "refused",
		},
	} {
		token := plantstore.Token{Scopes: plantstore.AllScopes()}
		if own != "" {
			token.Rate = rate(t, own)
		}
		caller := s.AddToken(token)
		for text, want := range asked {
			member := ""
			if text != "" {
				member = `,"rate":` + text
			}
			got := s.as(t, caller, "POST", "/tokens", `{"name":"x","scopes":["plants:read"]`+member+`}`, "Content-Type: application/json")
			if want == "refused" {
				got.wantError(t, plantstore.ErrPrivilege, "you cannot grant the rate", own)
				continue
			}
			var created struct{ ID, Rate string }
			if err := json.Unmarshal(got.body, &created); err != nil || got.status != 201 || created.Rate != want {
				t.Errorf("%q asked for %s: %d %s, want %q", own, text, got.status, got.body, want)
			}
			if got := s.as(t, s.Token, "GET", "/tokens/"+created.ID, ""); strings.Contains(string(got.body), `"rate":"`+want+`"`) != (want != "") {
				t.Errorf("%q asked for %s: the token is %s", own, text, got.body)
			}
		}
	}
	for _, bad := range []string{`"off"`, `""`, `"0/s"`, `"fast"`, `"1/s,burst=0"`} {
		s.as(t, s.Token, "POST", "/tokens", `{"name":"x","scopes":["plants:read"],"rate":`+bad+`}`, "Content-Type: application/json").
			wantError(t, plantstore.ErrParameter, `"rate"`)
	}
	s.as(t, s.Token, "POST", "/tokens", `{"name":"x","scopes":["plants:read"],"rate":5}`, "Content-Type: application/json").
		wantError(t, plantstore.ErrType, `"rate" must be a string such as 200/s,burst=400 or null, got a number`)
}

func TestNoRateLimitHeadersWithoutALimit(t *testing.T) {
	onBothPaths(t, func(t *testing.T, path string) {
		s := start(t, servertest.Options{})
		s.Fill(t, fern(1))
		got := s.call(t, "GET", path, "")
		got.wantOK(t)
		got.wantHeader(t, "RateLimit-Policy")
		got.wantHeader(t, "RateLimit")
	})
}

func TestFailuresAreLimitedOverHTTP(t *testing.T) {
	onBothPaths(t, func(t *testing.T, path string) {
		s := start(t, servertest.Options{
			AuthFailures: rate(t, "3/h"), TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		})
		s.Fill(t, fern(1))
		wrong := func(client string, header ...string) reply {
			return s.call(t, "GET", path, "", append(header, "X-Forwarded-For: "+client)...)
		}
		wrong("192.0.2.1").wantOK(t) // from then on the token is cached
		began := time.Now()
		wrong("192.0.2.1", "Authorization:").wantError(t, plantstore.ErrNoToken)
		wrong("192.0.2.1", "Authorization: Bearer wrong").wantError(t, plantstore.ErrBadToken)
		wrong("192.0.2.1", "Authorization: Bearer "+plantstore.NewSecret()).wantError(t, plantstore.ErrBadToken)
		for _, authorization := range []string{"Authorization:", "Authorization: Bearer " + plantstore.NewSecret()} {
			got := wrong("192.0.2.1", authorization)
			got.wantError(t, plantstore.ErrRate, "too many requests without a valid token from this address")
			got.wantRetryAfter(t, began, 1200)
		}
		wrong("192.0.2.1").wantOK(t) // its token is valid
		wrong("192.0.2.2", "Authorization:").wantError(t, plantstore.ErrNoToken)
		s.send(t, "GET", "/healthz", "", "X-Forwarded-For: 192.0.2.1").wantOK(t)
		s.awaitReady(t, "X-Forwarded-For: 192.0.2.1")
		if log := s.Log.String(); !strings.Contains(log, `"from":"192.0.2.2"`) {
			t.Errorf("the log does not have the client's address: %s", log)
		}
	})
}

// exchange sends a request on a new connection and returns all that comes back. If a
// machine is too slow for a connection over the limit, which lasts two seconds, nothing does, and
// it tries again.
func (s *service) exchange(t *testing.T, request string) (text string) {
	t.Helper()
	testenv.WaitFor(t, "a response", func() bool {
		c := s.dial(t)
		defer c.Close()
		c.send(t, request+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "+s.Token+"\r\n\r\n")
		received, _ := io.ReadAll(c.in)
		text = string(received)
		return text != ""
	})
	return text
}

// On a connection over the limit only health checks are served.
func TestTooManyConnections(t *testing.T) {
	s := start(t, servertest.Options{MaxConnections: 3})
	var held []*connection
	for range 3 {
		held = append(held, s.dialCreate(t))
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := s.exchange(t, "GET "+path); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Errorf("%s: %s", path, got)
		}
	}
	for _, request := range []string{"GET /metrics", "GET /plants/1", "POST /healthz"} {
		got := s.exchange(t, request)
		if !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "\r\nRetry-After: 1\r\n") ||
			!strings.HasSuffix(got, "\r\n\r\n{\"error\":50301,\"message\":\"too many connections: try again later\"}\n") {
			t.Errorf("%s: %s", request, got)
		}
	}
	if !strings.Contains(s.Log.String(), "connections are refused") {
		t.Error("the refusals are not in the log")
	}
	held[0].Close()
	page := s.exchange(t, "GET /metrics")
	for !strings.HasPrefix(page, "HTTP/1.1 200 ") { // until the server has noticed
		page = s.exchange(t, "GET /metrics")
	}
	if !regexp.MustCompile(`\nplantstore_connections 3\n`).MatchString(page) || !regexp.MustCompile(`\nplantstore_connections_refused_total [1-9]`).MatchString(page) {
		t.Errorf("the metrics have %q", regexp.MustCompile(`plantstore_connections.*`).FindAllString(page, -1))
	}
}

// BenchmarkGet shows what limits and the access log add to a request: everything in the
// handler, without a connection and a disk.
func BenchmarkGet(b *testing.B) {
	for _, bm := range []struct {
		name, limit string
		accessLog   bool
	}{{"bare", "off", false}, {"rate limit", "1000000/s", false}, {"access log", "off", true}, {"both", "1000000/s", true}} {
		b.Run(bm.name, func(b *testing.B) {
			limit, err := plantstore.ParseRate(bm.limit)
			if err != nil {
				b.Fatal(err)
			}
			opts := servertest.Options{Log: slog.New(slog.DiscardHandler), Store: storetest.NewModel(), RateLimit: limit}
			if bm.accessLog {
				opts.AccessLog = server.NewAccessLog(io.Discard, false)
			}
			s := servertest.Start(b, opts)
			s.Fill(b, fern(1))
			r := httptest.NewRequest("GET", "/plants/1", nil)
			r.Header.Set("Authorization", "Bearer "+s.Token)
			w := &discardResponse{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				s.Handler.ServeHTTP(w, r)
			}
			if w.status != 200 {
				b.Fatal(w.status)
			}
		})
	}
}

// discardResponse keeps only the status of a response.
type discardResponse struct {
	header http.Header
	status int
}

func (w *discardResponse) Header() http.Header         { return w.header }
func (w *discardResponse) WriteHeader(status int)      { w.status = status }
func (w *discardResponse) Write(b []byte) (int, error) { return len(b), nil }
