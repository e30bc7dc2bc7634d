package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"plantstore"
	"plantstore/internal/servertest"
	"plantstore/internal/testenv"
)

// checkSamples checks the code in an OpenAPI document, and removes it: only openapi.json has any.
func checkSamples(t *testing.T, document map[string]any, base *url.URL) {
	t.Helper()
	post := at(document, "paths", "/plants", "post")
	code := fmt.Sprint(post["x-codeSamples"])
	if !strings.Contains(code, "url="+strings.TrimRight(base.String(), "/")+"\n") {
		t.Errorf("with the base URL %s, the code is %.300s", base, code)
	}
	for _, methods := range at(document, "paths") {
		for _, operation := range methods.(map[string]any) {
			if o, ok := operation.(map[string]any); ok {
				delete(o, "x-codeSamples")
			}
		}
	}
}

// TestTheContractIsValidOpenAPI validates it.
func TestContractIsServedWithTheBaseURL(t *testing.T) {
	t.Parallel()
	source := readYAML(t, plantstore.OpenAPI)
	for _, base := range []string{"", "/my%20shop/", "https://plants.example:8443/a/b"} {
		s := start(t, servertest.Options{BaseURL: servertest.URL(base)})
		inYAML, inJSON := s.send(t, "GET", "/openapi.yaml", ""), s.send(t, "GET", "/openapi.json", "")
		inYAML.wantHeader(t, "Content-Type", "application/yaml")
		inJSON.wantHeader(t, "Content-Type", "application/json")
		fromYAML := readYAML(t, inYAML.body)
		var fromJSON map[string]any
		decodeJSON(t, inJSON.body, &fromJSON)
		checkSamples(t, fromJSON, s.BaseURL)
		if d := differences("", fromYAML, fromJSON); len(d) > 0 {
			t.Errorf("openapi.yaml and openapi.json differ: %q", d)
		}
		at(source, "servers", "0")["url"] = s.BaseURL.String()
		if d := differences("", fromYAML, source); len(d) > 0 {
			t.Errorf("with the base URL %s, the served contract differs from openapi.yaml: %q", s.BaseURL, d)
		}
	}
}

func TestHealthNeedsNoToken(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{BaseURL: servertest.URL("/v1")})
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ready"} {
		got := eventually(t, 200, func() reply { return s.send(t, "GET", path, "") })
		if got.status != 200 || !equalJSON(got.body, map[string]any{"status": want}) {
			t.Errorf("%s: got %d %s", path, got.status, got.body)
		}
	}
}

// awaitReady waits until the server is ready. While its store is slow, it is not.
func (s *service) awaitReady(t *testing.T, header ...string) {
	t.Helper()
	eventually(t, 200, func() reply { return s.send(t, "GET", "/readyz", "", header...) }).wantOK(t)
}

func TestDrainingServerIsNotReadyButServes(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	s.Handler.Drain()
	got := s.send(t, "GET", "/readyz", "")
	got.wantError(t, plantstore.ErrUnavailable, "shutting down")
	got.wantHeader(t, "Retry-After", "1")
	if got := s.send(t, "GET", "/healthz", ""); got.status != 200 {
		t.Errorf("/healthz: got %d", got.status)
	}
	s.create(t, `{"id":1,"name":"Fern"}`).wantPlant(t, fern(1))
}

func TestMetricsAndProfilesNeedTheirScope(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	operator := s.NewToken(plantstore.ScopeOps)
	editor := s.NewToken(plantstore.ScopeWrite, plantstore.ScopeRead)
	for _, path := range []string{
		"/metrics", "/debug/pprof/", "/debug/pprof/heap?debug=1", "/debug/pprof/goroutine?debug=1", "/debug/pprof/symbol",
	} {
		got := s.send(t, "GET", path, "")
		got.wantError(t, plantstore.ErrNoToken)
		got.wantHeader(t, "WWW-Authenticate", challenge)
		got = s.send(t, "GET", path, "", "Authorization: Bearer "+editor)
		got.wantError(t, plantstore.ErrScope, "ops:read")
		got.wantHeader(t, "WWW-Authenticate", insufficientScope)
		if got := s.send(t, "GET", path, "", "Authorization: Bearer "+operator); got.status != 200 {
			t.Errorf("%s: got %d %s", path, got.status, got.body)
		}
	}
}

func TestOnlyRuntimeProfilesAreServed(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	// The command line may contain the database's password.
	for _, name := range []string{"cmdline", "cmdline/", "nonsense", "heap/", "heap/x", "Heap", "%00"} {
		got := s.send(t, "GET", "/debug/pprof/"+name, "", "Authorization: Bearer "+s.Token)
		got.wantError(t, plantstore.ErrNoPath, "/openapi.yaml")
	}
}

// Every metric follows Prometheus's conventions, and is in the table of
// docs/operations/monitoring.md.
func TestMetricsAreNamedByConvention(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/operations/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	served := make(map[string]bool)
	withTLS := servertest.Options{Certificates: servertest.Certificate()}
	for _, s := range []*service{start(t, withTLS), start(t, servertest.Options{Store: servertest.Postgres(t)})} {
		s.create(t, `{"id":1,"name":"Fern"}`).wantPlant(t, fern(1))
		text := s.allMetrics(t)
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (plantstore_\w+) `).FindAllStringSubmatch(text, -1) {
			served[m[1]] = true
			if !bytes.Contains(docs, []byte("| `"+m[1])) {
				t.Errorf("%s is not documented", m[1])
			}
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(plantstore_\\w+)").FindAllSubmatch(docs, -1) {
		if name := string(m[1]); !served[name] {
			t.Errorf("%s is documented, but not served", name)
		}
	}
}

// Labels are for kinds of things, never for one thing: each of their values is a series
// that Prometheus keeps, and a reader of metrics need not know tokens, webhooks or plants.
func TestNoLabelHasAnIDANameOrAToken(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{WebhookAllow: loopback, RateLimit: rate(t, "1000000/s"), AuthFailures: rate(t, "1/h,burst=1")})
	s.create(t, `{"id":7654321,"name":"Secretive fern","tag":"hidden"}`).wantOK(t)
	endpoint := newReceiver(t)
	endpoint.status.Store(http.StatusGone)
	hook := s.webhook(t, http.StatusCreated, "POST", "", `{"url":"`+endpoint.URL+`"}`)
	var token struct{ ID, Token string }
	made := s.as(t, s.Token, "POST", "/tokens", `{"name":"visitor","scopes":["plants:read"]}`, "Content-Type: application/json")
	if err := json.Unmarshal(made.body, &token); err != nil || made.status != http.StatusCreated {
		t.Fatalf("got %d %s", made.status, made.body)
	}
	s.call(t, "GET", "/7654321", "", "Authorization: Bearer "+token.Token).wantOK(t)
	for range 2 {
		s.call(t, "GET", "/7654321", "", "Authorization: Bearer "+plantstore.NewSecret())
	}
	s.create(t, `{"id":7654322,"name":"Secretive fern"}`).wantOK(t)
	s.awaitMetric(t, "plantstore_webhooks_disabled", func(n float64) bool { return n == 1 })
	text := s.metrics(t)
	for _, private := range []string{hook.ID, endpoint.URL, token.ID, token.Token, "visitor", "7654321", "Secretive fern", "hidden", "127.0.0.1"} {
		if strings.Contains(text, private) {
			t.Errorf("the metrics have %q", private)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^(plantstore_\w+)\{(.*)\} `).FindAllStringSubmatch(text, -1) {
		for _, label := range regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`).FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains([]string{"operation", "status", "result", "limit", "le", "pool", "version", "clock", "health", "state"}, label[1]) {
				t.Errorf("%s has the label %s: is it one of few kinds?", m[1], label[1])
			}
		}
	}
}

func TestMetricsCountRequestsByOperationAndStatus(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	s.create(t, `{"id":1,"name":"Fern"}`).wantPlant(t, fern(1))
	s.create(t, `{"id":1,"name":"Fern"}`).wantPlant(t, fern(1))
	s.create(t, `{"id":1,"name":"Oak"}`).wantError(t, plantstore.ErrIDTaken)
	s.create(t, `{`).wantError(t, plantstore.ErrNotJSON)
	s.create(t, ``, "Authorization:").wantError(t, plantstore.ErrNoToken)
	s.send(t, "GET", "/nothing", "").wantError(t, plantstore.ErrNoPath)
	s.send(t, "PATCH", s.plantsPath(), "").wantError(t, plantstore.ErrMethod)
	s.send(t, "POST", s.plantsPath()+"/import", `{"id":1,"name":"Fern"}`+"\n"+`{"id":2,"name":"Oak"}`+"\n{\n", "Content-Type: application/x-ndjson", "Authorization: Bearer "+s.Token)
	s.send(t, "GET", s.plantsPath(), "", "Accept: application/x-ndjson", "Authorization: Bearer "+s.Token)
	s.wantMetrics(t,
		`plantstore_http_requests_total{operation="createPlant",status="200"} 2`,
		`plantstore_http_requests_total{operation="createPlant",status="400"} 2`,
		`plantstore_http_requests_total{operation="createPlant",status="401"} 1`,
		`plantstore_http_requests_total{operation="none",status="404"} 1`,
		`plantstore_http_requests_total{operation="none",status="405"} 1`,
		`plantstore_http_request_duration_seconds_count{operation="createPlant"} 5`,
		`plantstore_commit_batch_size_sum 5`,
		`plantstore_commit_batch_size_count 4`,
		`plantstore_commit_duration_seconds_count 4`,
		`plantstore_queue_depth 0`,
		`plantstore_store_plants 2`,
		`plantstore_log_events 3`,
		`plantstore_http_requests_in_flight 1`,
		`plantstore_import_lines_total{result="created"} 1`,
		`plantstore_import_lines_total{result="unchanged"} 1`,
		`plantstore_import_lines_total{result="failed"} 1`,
		`plantstore_export_plants_total 2`,
		`plantstore_build_info{version="test"} 1`,
	)
}

// metrics returns the metrics of a service. Those of the store are missing while that is
// slow.
func (s *service) metrics(t *testing.T) string {
	t.Helper()
	return string(s.send(t, "GET", "/metrics", "", "Authorization: Bearer "+s.Token).body)
}

// allMetrics returns the metrics once those of the store are among them.
func (s *service) allMetrics(t *testing.T) (text string) {
	t.Helper()
	testenv.WaitFor(t, "the metrics of the store", func() bool {
		text = s.metrics(t)
		return hasStoreMetrics(text)
	})
	return text
}

func hasStoreMetrics(text string) bool { return strings.Contains(text, "\nplantstore_store_plants ") }

// metric returns the value of a metric, whose labels follow its name.
func (s *service) metric(t *testing.T, name string) (value float64) {
	t.Helper()
	text := s.allMetrics(t)
	_, rest, found := strings.Cut(text, "\n"+name+" ")
	if _, err := fmt.Sscan(rest, &value); !found || err != nil {
		t.Fatalf("the metrics do not say %s: %v\n%s", name, err, text)
	}
	return value
}

func (s *service) wantMetrics(t *testing.T, lines ...string) {
	t.Helper()
	text := s.metrics(t)
	lacks := func(line string) bool { return !strings.Contains(text, "\n"+line+"\n") }
	if !hasStoreMetrics(text) && slices.ContainsFunc(lines, lacks) {
		text = s.allMetrics(t)
	}
	for _, line := range lines {
		if lacks(line) {
			t.Errorf("the metrics do not say %s:\n%s", line, text)
		}
	}
}

// awaitMetric waits until the value of a metric is as wanted.
func (s *service) awaitMetric(t *testing.T, name string, wanted func(float64) bool) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if value := s.metric(t, name); !wanted(value) {
			return fmt.Errorf("%s stays at %v", name, value)
		}
		return nil
	})
}

func TestMetricsCountTokenChecks(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{RateLimit: rate(t, "1/h,burst=20"), AuthFailures: rate(t, "1/h,burst=4")})
	expired := s.AddToken(plantstore.Token{Scopes: []plantstore.Scope{plantstore.ScopeRead}, Expires: time.Now().Add(-time.Hour)})
	reader := s.NewToken(plantstore.ScopeRead)
	s.listAs(t, "", reader).wantOK(t)
	s.create(t, `{"id":1,"name":"Fern"}`, "Authorization: Bearer "+reader).wantError(t, plantstore.ErrScope)
	for range 18 {
		s.listAs(t, "", reader).wantOK(t)
	}
	s.listAs(t, "", reader).wantError(t, plantstore.ErrRate)
	s.listAs(t, "", expired).wantError(t, plantstore.ErrTokenExpired)
	s.listAs(t, "", plantstore.NewSecret()).wantError(t, plantstore.ErrBadToken)
	s.create(t, ``, "Authorization:").wantError(t, plantstore.ErrNoToken)
	s.create(t, ``, "Authorization:").wantError(t, plantstore.ErrNoToken)
	s.create(t, ``, "Authorization:").wantError(t, plantstore.ErrRate)
	s.wantMetrics(t,
		`plantstore_token_checks_total{result="valid"} 21`, // with this scrape
		`plantstore_token_checks_total{result="forbidden"} 1`,
		`plantstore_token_checks_total{result="missing"} 2`,
		`plantstore_token_checks_total{result="expired"} 1`,
		`plantstore_token_checks_total{result="invalid"} 1`,
		`plantstore_token_checks_total{result="limited"} 1`,
		`plantstore_token_checks_total{result="unavailable"} 0`,
		`plantstore_limit_hits_total{limit="rate"} 1`,
		`plantstore_limit_hits_total{limit="auth_failures"} 1`,
	)
}

func TestMetricsKnowTheNextTokenToExpire(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	if next := s.metric(t, "plantstore_token_next_expiry_seconds"); !math.IsInf(next, 1) {
		t.Errorf("no token expires, and the next does in %v s", next)
	}
	const day = 24 * time.Hour
	now := time.Now()
	add := func(lifetime, left time.Duration) (secret string) {
		scopes := []plantstore.Scope{plantstore.ScopeRead}
		return s.AddToken(plantstore.Token{Scopes: scopes, Created: now.Add(left - lifetime), Expires: now.Add(left)})
	}
	add(30*day, 3*day)
	add(7*day+time.Second, 2*day)
	add(30*day, -time.Hour)
	revoked := add(30*day, time.Hour)
	if err := s.Store.RevokeToken(t.Context(), plantstore.HashSecret(revoked), time.Now(), plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Fatal(err)
	}
	// Nobody renews a token that was made for a few days.
	add(7*day, day)
	add(time.Hour, time.Hour)
	s.awaitMetric(t, "plantstore_token_next_expiry_seconds", func(seconds float64) bool {
		return seconds <= (2*day).Seconds() && seconds > (2*day-time.Minute).Seconds()
	})
}

func TestJumpOfTheClockIsLoggedAndCounted(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	s := start(t, servertest.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	s.wantMetrics(t, `plantstore_clock_jumps_total{clock="server"} 0`)
	ahead.Store(int64(10 * 24 * time.Hour))
	s.awaitMetric(t, `plantstore_clock_jumps_total{clock="server"}`, func(jumps float64) bool { return jumps == 1 })
	ahead.Store(0)
	s.awaitMetric(t, `plantstore_clock_jumps_total{clock="server"}`, func(jumps float64) bool { return jumps == 2 })
	if n := strings.Count(s.Log.String(), "the clock has jumped"); n != 2 {
		t.Errorf("%d jumps were logged, want 2", n)
	}
}

func TestMetricsOfTheStore(t *testing.T) {
	servertest.OnEveryStore(t, func(t *testing.T, one *servertest.Server) {
		s := newService(t, one)
		// SQLite's file grows when enough has been written for a checkpoint.
		var lines strings.Builder
		for id := range 4000 {
			fmt.Fprintf(&lines, `{"id":%d,"name":"%s"}`+"\n", id, strings.Repeat("Fern", 500))
		}
		moving := []string{"plantstore_store_plants", "plantstore_log_bytes"}
		if strings.Contains(s.metrics(t), "plantstore_postgres_pool_max") {
			moving = append(moving, `plantstore_postgres_pool_in_use{pool="export"}`)
			s.wantMetrics(t, `plantstore_clock_jumps_total{clock="database"} 0`, `plantstore_postgres_pool_max{pool="write"} 7`, `plantstore_postgres_pool_max{pool="read"} 4`,
				`plantstore_postgres_pool_max{pool="list"} 4`, `plantstore_postgres_pool_max{pool="export"} 4`,
				`plantstore_postgres_pool_waits_total{pool="list"} 0`, `plantstore_postgres_pool_wait_seconds_total{pool="list"} 0`,
				`plantstore_postgres_oldest_snapshot_transactions{holder="slot"} 0`, `plantstore_postgres_wal_kept_bytes{holder="archiver"} 0`)
			for _, name := range []string{"plantstore_postgres_oldest_transaction_seconds", `plantstore_postgres_dead_rows{table="stored_plants"}`} {
				if value := s.metric(t, name); value < 0 {
					t.Errorf("%s is %v", name, value)
				}
			}
			if open := s.metric(t, "plantstore_postgres_connections"); open < 1 || open > 19 {
				t.Errorf("%v connections are open, want 1 to 19", open)
			}
		} else {
			moving = append(moving, "plantstore_store_bytes", "plantstore_wal_bytes", "plantstore_disk_free_bytes", "plantstore_checkpoints_total")
		}
		before := map[string]float64{}
		for _, name := range moving {
			before[name] = s.metric(t, name)
		}
		s.send(t, "POST", s.plantsPath()+"/import", lines.String(), "Content-Type: application/x-ndjson", "Authorization: Bearer "+s.Token)
		exporting, stop := context.WithCancel(t.Context())
		var exports sync.WaitGroup
		exports.Go(func() {
			for exporting.Err() == nil {
				s.listAs(t, "", s.Token, "Accept: application/x-ndjson").wantOK(t)
			}
		})
		defer exports.Wait()
		defer stop()
		for _, name := range moving {
			s.awaitMetric(t, name, func(value float64) bool { return value != before[name] })
		}
	})
}
