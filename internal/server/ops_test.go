package server_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"plantstore"
	"plantstore/internal/servertest"
)

func TestContractIsServedWithTheBaseURL(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "/", "/v1", "/my%20shop/", "https://plants.example", "https://plants.example:8443/a/b"} {
		s := start(t, servertest.Options{BaseURL: base})
		inYAML, inJSON := s.send(t, "GET", "/openapi.yaml", ""), s.send(t, "GET", "/openapi.json", "")
		inYAML.wantHeader(t, "Content-Type", "application/yaml")
		inJSON.wantHeader(t, "Content-Type", "application/json")
		if err := loadContract(t, inJSON.body).Validate(t.Context()); err != nil {
			t.Error(err)
		}
		// JSON is YAML too, so one parser reads both.
		fromYAML, fromJSON, source := readYAML(t, inYAML.body), readYAML(t, inJSON.body), readYAML(t, plantstore.OpenAPI)
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
	s := start(t, servertest.Options{BaseURL: "/v1"})
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ready"} {
		got := s.send(t, "GET", path, "")
		if got.status != 200 || !equalJSON(got.body, map[string]any{"status": want}) {
			t.Errorf("%s: got %d %s", path, got.status, got.body)
		}
	}
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
// docs/operations.md.
func TestMetricsAreNamedByConvention(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	s.create(t, `{"id":1,"name":"Fern"}`).wantPlant(t, fern(1))
	text := s.send(t, "GET", "/metrics", "", "Authorization: Bearer "+s.Token).body
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	docs, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	served := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (plantstore_\w+) `).FindAllSubmatch(text, -1) {
		served[string(m[1])] = true
		if !bytes.Contains(docs, append([]byte("| `"), m[1]...)) {
			t.Errorf("%s is not documented", m[1])
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(plantstore_\\w+)").FindAllSubmatch(docs, -1) {
		// Webhooks have metrics only if there are any.
		if name := string(m[1]); !served[name] && !strings.HasPrefix(name, "plantstore_webhook_") {
			t.Errorf("%s is documented, but not served", name)
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
	text := string(s.send(t, "GET", "/metrics", "", "Authorization: Bearer "+s.Token).body)
	for _, line := range []string{
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
		`plantstore_log_events 2`,
		`plantstore_http_requests_in_flight 1`,
		`plantstore_import_lines_total{result="created"} 1`,
		`plantstore_import_lines_total{result="unchanged"} 1`,
		`plantstore_import_lines_total{result="failed"} 1`,
		`plantstore_export_plants_total 2`,
		`plantstore_build_info{version="test"} 1`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("the metrics do not say %s:\n%s", line, text)
		}
	}
}
