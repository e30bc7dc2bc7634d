package observe_test

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
)

// collector receives spans over OTLP/HTTP.
type collector struct {
	URL string

	mu       sync.Mutex // guards what follows
	requests int
	raw      bytes.Buffer // everything that was received, decompressed
	services []string     // service.name of each request
	spans    []*tracepb.Span
}

func newCollector(t *testing.T) *collector {
	c := new(collector)
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := c.receive(r); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *collector) receive(r *http.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(body); err != nil {
			return err
		}
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	c.raw.Write(text)
	export := new(collectpb.ExportTraceServiceRequest)
	if err := proto.Unmarshal(text, export); err != nil {
		return err
	}
	for _, res := range export.ResourceSpans {
		c.services = append(c.services, attribute(res.Resource.Attributes, "service.name"))
		for _, scope := range res.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return nil
}

// received returns the spans that have arrived and match.
func (c *collector) received(matches func(*tracepb.Span) bool) []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*tracepb.Span
	for _, s := range c.spans {
		if matches(s) {
			found = append(found, s)
		}
	}
	return found
}

// await waits until that many spans match.
func (c *collector) await(t *testing.T, want int, what string, matches func(*tracepb.Span) bool) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if got := len(c.received(matches)); got < want {
			return fmt.Errorf("there are the spans of %d %s, want %d", got, what, want)
		}
		return nil
	})
}

// one waits for the only span that matches.
func (c *collector) one(t *testing.T, what string, matches func(*tracepb.Span) bool) (span *tracepb.Span) {
	t.Helper()
	testenv.Eventually(t, func() error {
		found := c.received(matches)
		if len(found) != 1 {
			return fmt.Errorf("%s: %d spans, want 1; there are %s", what, len(found), c.names())
		}
		span = found[0]
		return nil
	})
	return span
}

func (c *collector) names() (names []string) {
	for _, s := range c.received(func(*tracepb.Span) bool { return true }) {
		names = append(names, s.Name)
	}
	return names
}

func attribute(all []*commonpb.KeyValue, key string) string {
	for _, a := range all {
		if a.Key == key {
			if n, ok := a.Value.Value.(*commonpb.AnyValue_IntValue); ok {
				return fmt.Sprint(n.IntValue)
			}
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// named matches a span by its name and the span that it is part of.
func named(name string, parent []byte) func(*tracepb.Span) bool {
	return func(s *tracepb.Span) bool { return s.Name == name && bytes.Equal(s.ParentSpanId, parent) }
}

// startTraced runs a server that sends its spans at once.
func startTraced(t *testing.T, db string, c *collector, env ...string) *harness.Server {
	t.Helper()
	s := harness.New(t, db)
	s.Env = append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_BSP_SCHEDULE_DELAY=20"}, env...)
	s.Run()
	s.AwaitToken()
	return s
}

func eachStore(t *testing.T, test func(t *testing.T, db string)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, filepath.Join(t.TempDir(), "plants.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, pgtest.Fresh(t))
	})
}

const (
	callerTrace = "0af7651916cd43dd8448eb211c80319c"
	callerSpan  = "b7ad6b7169203331"
)

func unhex(text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return b
}

func TestARequestIsTracedFromItsCallerToTheCommit(t *testing.T) {
	eachStore(t, func(t *testing.T, db string) {
		c := newCollector(t)
		s := startTraced(t, db, c, "OTEL_SERVICE_NAME=nursery")
		status, body := s.Call(harness.Token, "POST", "/plants", `{"id":7654321,"name":"tradescantia"}`,
			"Traceparent", "00-"+callerTrace+"-"+callerSpan+"-01", "X-Request-Id", "req-1")
		if status != http.StatusOK {
			t.Fatal(status, body)
		}
		request := c.one(t, "the request", named("createPlant", unhex(callerSpan)))
		if got := hex.EncodeToString(request.TraceId); got != callerTrace || request.Kind != tracepb.Span_SPAN_KIND_SERVER {
			t.Errorf("got trace %s and kind %v, want the caller's trace and a server span", got, request.Kind)
		}
		for key, want := range map[string]string{
			"http.request.method": "POST", "http.route": "/plants", "http.response.status_code": "200", "plantstore.request_id": "req-1",
		} {
			if got := attribute(request.Attributes, key); got != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
		queue := c.one(t, "the queue", named("queue", request.SpanId))
		commit := c.one(t, "the commit", named("commit", request.SpanId))
		if attribute(commit.Attributes, "plantstore.commit.size") != "1" || len(commit.Links) != 0 {
			t.Errorf("got %v, want a commit of one request", commit)
		}
		if len(queue.Links) != 1 || !bytes.Equal(queue.Links[0].SpanId, commit.SpanId) {
			t.Errorf("got %v, want a link to the commit", queue)
		}
		if queue.StartTimeUnixNano < request.StartTimeUnixNano || queue.EndTimeUnixNano > commit.EndTimeUnixNano || commit.EndTimeUnixNano > request.EndTimeUnixNano {
			t.Errorf("the times do not nest: request %v, queue %v, commit %v", request, queue, commit)
		}

		if status, _ := s.Call(harness.Token, "GET", "/plants?tag=sempervivum", ""); status != http.StatusOK {
			t.Errorf("list: %d", status)
		}
		if status, _ := s.Call(harness.Token, "GET", "/plants/7654321", ""); status != http.StatusOK {
			t.Errorf("get: %d", status)
		}
		get := c.one(t, "the get", named("getPlant", nil))
		c.one(t, "the list", named("listPlants", nil))
		if len(get.ParentSpanId) > 0 || bytes.Equal(get.TraceId, request.TraceId) {
			t.Errorf("got %v, want a new trace: the request before it on the connection had another", get)
		}
		if strings.HasPrefix(db, "postgres") {
			statement := c.one(t, "the statement of the commit", named("postgresql SELECT", commit.SpanId))
			if text := attribute(statement.Attributes, "db.query.text"); !strings.Contains(text, "create_plant") || statement.Kind != tracepb.Span_SPAN_KIND_CLIENT {
				t.Errorf("got %v, want the text of the statement", statement)
			}
			// A request can also be the one that reads its token again.
			c.one(t, "the statement of the get", func(s *tracepb.Span) bool {
				return named("postgresql SELECT", get.SpanId)(s) && strings.Contains(attribute(s.Attributes, "db.query.text"), "FROM stored_plants")
			})
			if len(c.received(named("postgresql acquire", get.SpanId))) == 0 {
				t.Errorf("no wait for a connection in %s", c.names())
			}
		}
		s.Stop()
		// What runs in the background is not traced, and what callers send is not recorded.
		for _, span := range c.received(func(s *tracepb.Span) bool { return len(s.ParentSpanId) == 0 }) {
			if span.Kind != tracepb.Span_SPAN_KIND_SERVER {
				t.Errorf("%s is not part of a request", span.Name)
			}
		}
		for _, secret := range []string{"tradescantia", "7654321", "sempervivum", harness.Token} {
			if bytes.Contains(c.raw.Bytes(), []byte(secret)) {
				t.Errorf("%q is in a span", secret)
			}
		}
		if i := slices.IndexFunc(c.services, func(name string) bool { return name != "nursery" }); i >= 0 {
			t.Errorf("the service is %q, want nursery", c.services[i])
		}
	})
}

// One commit serves many requests, each of which must be found from it, and it from them.
func TestACommitIsLinkedToItsRequests(t *testing.T) {
	eachStore(t, func(t *testing.T, db string) {
		c := newCollector(t)
		s := startTraced(t, db, c)
		id := 0
		testenv.Eventually(t, func() error {
			var bodies []string
			for range 64 {
				id++
				bodies = append(bodies, fmt.Sprintf(`{"id":%d,"name":"fern"}`, id))
			}
			harness.Parallel(t, len(bodies), func(i int) error {
				if status, body := s.Call(harness.Token, "POST", "/plants", bodies[i]); status != http.StatusOK {
					return fmt.Errorf("create: %d %s", status, body)
				}
				return nil
			})
			// What is not sent when the server stops may be lost, if the machine is busy.
			c.await(t, id, "writes", func(s *tracepb.Span) bool { return s.Name == "queue" })
			c.await(t, id, "requests", func(s *tracepb.Span) bool { return s.Name == "createPlant" })
			if len(c.received(func(s *tracepb.Span) bool { return s.Name == "commit" && len(s.Links) > 1 })) == 0 {
				return errors.New("no commit has served several requests")
			}
			return nil
		})
		s.Stop()
		commits := map[string]*tracepb.Span{}
		writes := 0
		for _, commit := range c.received(func(s *tracepb.Span) bool { return s.Name == "commit" }) {
			commits[string(commit.SpanId)] = commit
			if size := attribute(commit.Attributes, "plantstore.commit.size"); size != fmt.Sprint(1+len(commit.Links)) {
				t.Errorf("a commit of %s writes has %d links", size, len(commit.Links))
			}
			writes += 1 + len(commit.Links)
		}
		queues := c.received(func(s *tracepb.Span) bool { return s.Name == "queue" })
		if len(queues) != id || writes != id {
			t.Errorf("%d writes, %d of them in commits and %d in the queue", id, writes, len(queues))
		}
		for _, queue := range queues {
			commit := commits[string(queue.Links[0].SpanId)]
			if commit == nil {
				t.Fatalf("there is no commit for %v", queue)
			}
			served := bytes.Equal(commit.ParentSpanId, queue.ParentSpanId) || slices.ContainsFunc(commit.Links, func(l *tracepb.Span_Link) bool {
				return bytes.Equal(l.SpanId, queue.ParentSpanId) && bytes.Equal(l.TraceId, queue.TraceId)
			})
			if !served {
				t.Errorf("the commit of %v is not linked to its request", queue)
			}
		}
	})
}

// An import is committed in batches, all in its trace. net/http serves it.
func TestAnImportIsTraced(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	s := startTraced(t, filepath.Join(t.TempDir(), "plants.db"), c)
	s.Import(`{"id":1,"name":"fern"}` + "\n" + `{"id":2,"name":"moss"}` + "\n")
	request := c.one(t, "the import", func(s *tracepb.Span) bool { return s.Name == "importPlants" })
	commit := c.one(t, "its commit", named("commit", request.SpanId))
	if size := attribute(commit.Attributes, "plantstore.commit.size"); size != "2" {
		t.Errorf("the commit has %s writes, want 2", size)
	}
	c.one(t, "its wait", named("queue", request.SpanId))
}

func TestCallerDecidesWhatIsSampled(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	s := startTraced(t, filepath.Join(t.TempDir(), "plants.db"), c)
	create := func(id, flags string) {
		if status, body := s.Call(harness.Token, "POST", "/plants", `{"id":`+id+`,"name":"fern"}`,
			"Traceparent", "00-"+callerTrace+"-"+callerSpan+"-"+flags, "X-Request-Id", "req-"+id); status != http.StatusOK {
			t.Fatal(status, body)
		}
	}
	create("1", "00")
	create("2", "01")
	c.await(t, 3, "parts of one create", func(*tracepb.Span) bool { return true })
	s.Stop()
	for _, span := range c.received(func(s *tracepb.Span) bool { return s.Name == "createPlant" }) {
		if id := attribute(span.Attributes, "plantstore.request_id"); id != "req-2" {
			t.Errorf("%s is traced", id)
		}
	}
	if n := len(c.names()); n != 3 {
		t.Errorf("got the spans %s, want those of one create", c.names())
	}
}

func TestNothingIsTracedUnlessWanted(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	for _, env := range []string{"OTEL_SDK_DISABLED=true", "OTEL_TRACES_EXPORTER=none", "OTEL_TRACES_SAMPLER=always_off", "OTEL_EXPORTER_OTLP_ENDPOINT="} {
		s := startTraced(t, filepath.Join(t.TempDir(), "plants.db"), c, env)
		if status, body := s.Call(harness.Token, "POST", "/plants", `{"id":1,"name":"fern"}`, "Traceparent", "00-"+callerTrace+"-"+callerSpan+"-01"); status != http.StatusOK {
			t.Fatal(status, body)
		}
		s.Stop()
		if c.requests > 0 {
			t.Fatalf("with %s the collector got %s", env, c.names())
		}
	}
}

// The last spans are sent at shutdown, however seldom spans are sent. A server that cannot
// send them in time says so, and on a busy machine another one may.
func TestShutdownSendsTheLastSpans(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	for range 10 {
		s := startTraced(t, filepath.Join(t.TempDir(), "plants.db"), c, "OTEL_BSP_SCHEDULE_DELAY=3600000")
		if status, body := s.Call(harness.Token, "POST", "/plants", `{"id":1,"name":"fern"}`); status != http.StatusOK {
			t.Fatal(status, body)
		}
		s.Stop()
		if !strings.Contains(s.Log(), "traces cannot be sent") {
			break
		}
	}
	if names := c.names(); !slices.Contains(names, "createPlant") {
		t.Errorf("got %q, want the spans of a create", names)
	}
}

// Without a collector that answers, the server works, and stops by itself.
func TestACollectorThatFailsDoesNoHarm(t *testing.T) {
	t.Parallel()
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // accepts nothing
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Close()
	for _, addr := range []string{"127.0.0.1:9", hanging.Addr().String()} { // nobody listens on the first
		began := time.Now()
		s := startTraced(t, filepath.Join(t.TempDir(), "plants.db"), &collector{URL: "http://" + addr}, "OTEL_BSP_MAX_QUEUE_SIZE=512")
		harness.Parallel(t, 8, func(i int) error {
			for n := range 200 {
				id := i*1000 + n
				if status, body := s.Call(harness.Token, "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"fern"}`, id)); status != http.StatusOK {
					return fmt.Errorf("create: %d %s", status, body)
				}
			}
			return nil
		})
		s.Stop()
		if n, most := strings.Count(s.Log(), "traces cannot be sent"), 1+int(time.Since(began)/time.Minute); n < 1 || n > most {
			t.Errorf("%d warnings, want one a minute, at most %d:\n%s", n, most, s.Log())
		}
	}
}
