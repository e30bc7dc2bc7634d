// Package tracing sends the spans of requests, commits and statements to an OpenTelemetry
// collector, as the OTEL_ variables of the environment say.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer starts spans and sends them. Its methods may be called concurrently.
//
// A span has the name of a route, a status, the id of the request and the text of SQL
// statements, whose values are placeholders. It never has a path, a query, an error
// message or anything else with the id or the name of a plant, or a secret.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	log      *slog.Logger
	warned   atomic.Int64 // when a failure was last logged, in Unix nanoseconds
}

// New returns a tracer, or nil if the environment does not ask for one. All its errors are
// about the environment. It does not connect; the caller calls [Tracer.Close].
func New(version string, log *slog.Logger) (*Tracer, error) {
	wanted, err := Wanted()
	if err != nil || !wanted {
		return nil, err
	}
	t := &Tracer{log: log}
	otel.SetErrorHandler(t)
	otel.SetLogger(logr.Discard()) // errors also go to the error handler
	exporter, err := otlptracehttp.New(context.Background())
	if err != nil {
		return nil, fmt.Errorf("cannot export traces: %w", err)
	}
	// What the environment says of the service overrides the rest.
	about, err := resource.New(context.Background(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "plantstore"), attribute.String("service.version", version)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	// The sampler and the sizes of the queue are from the environment too.
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	t.tracer = t.provider.Tracer("plantstore")
	return t, nil
}

// Wanted reports whether the environment asks for traces. It refuses settings that would
// otherwise be ignored.
func Wanted() (bool, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	const endpoint, tracesEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	switch exporter := os.Getenv("OTEL_TRACES_EXPORTER"); {
	case exporter == "none", exporter == "" && os.Getenv(endpoint) == "" && os.Getenv(tracesEndpoint) == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER must be otlp or none, got %q", exporter)
	}
	for _, name := range []string{endpoint, tracesEndpoint} {
		u, err := url.Parse(os.Getenv(name))
		if os.Getenv(name) != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return false, fmt.Errorf("%s must be a URL such as http://127.0.0.1:4318", name)
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"} {
		if value := os.Getenv(name); value != "" && value != "http/protobuf" {
			return false, fmt.Errorf("%s must be http/protobuf, got %q", name, value)
		}
	}
	samplers := []string{"", "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"}
	sampler := os.Getenv("OTEL_TRACES_SAMPLER")
	if !slices.Contains(samplers, sampler) {
		return false, fmt.Errorf("OTEL_TRACES_SAMPLER must be one of %s, got %q", strings.Join(samplers[1:], ", "), sampler)
	}
	if arg := os.Getenv("OTEL_TRACES_SAMPLER_ARG"); arg != "" && strings.HasSuffix(sampler, "traceidratio") {
		if ratio, err := strconv.ParseFloat(arg, 64); err != nil || !(0 <= ratio && ratio <= 1) {
			return false, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1, got %q", arg)
		}
	}
	return true, nil
}

// Handle logs a failure to send spans, which are dropped, but only one a minute.
func (t *Tracer) Handle(err error) {
	now := time.Now().UnixNano()
	if last := t.warned.Load(); now-last >= int64(time.Minute) && t.warned.CompareAndSwap(last, now) {
		t.log.Warn("traces cannot be sent", "err", err)
	}
}

// Close sends the last spans, unless that takes too long. A nil tracer has none.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.Handle(err)
	}
}

// Request starts the span of a request. It continues the trace of a traceparent header.
func (t *Tracer) Request(r *http.Request) (traced *http.Request, end func(operation string, status int, requestID string)) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := t.tracer.Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer))
	traced = r.WithContext(ctx)
	return traced, func(operation string, status int, requestID string) {
		if span.IsRecording() {
			span.SetName(operation)
			span.SetAttributes(attribute.String("http.request.method", methodOf(traced)),
				attribute.Int("http.response.status_code", status), attribute.String("plantstore.request_id", requestID))
			if _, route, ok := strings.Cut(traced.Pattern, " "); ok {
				span.SetAttributes(attribute.String("http.route", route))
			}
			if status >= 500 {
				span.SetStatus(codes.Error, "")
			}
		}
		span.End()
	}
}

// methodOf returns the method of a request, if it is a common one: the caller may send
// any text.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "_OTHER"
}

// Traced reports whether the spans of this context are sent.
func (t *Tracer) Traced(ctx context.Context) bool {
	return trace.SpanContextFromContext(ctx).IsSampled()
}

// Commit starts the span of a commit. It is in the trace of the first request, and has
// links to the others.
func (t *Tracer) Commit(requests []context.Context, size int) (context.Context, func(error)) {
	links := make([]trace.Link, len(requests)-1)
	for i, request := range requests[1:] {
		links[i].SpanContext = trace.SpanContextFromContext(request)
	}
	// Not the context of the request: a client that disconnects does not cancel a commit.
	ctx := trace.ContextWithSpan(context.Background(), trace.SpanFromContext(requests[0]))
	ctx, span := t.tracer.Start(ctx, "commit", trace.WithLinks(links...),
		trace.WithAttributes(attribute.Int("plantstore.commit.size", size)))
	return ctx, func(err error) { endSpan(span, err) }
}

// Queued records the span of a write that waited in the queue. It has a link to the
// commit.
func (t *Tracer) Queued(request, commit context.Context, from, to time.Time) {
	_, span := t.tracer.Start(request, "queue", trace.WithTimestamp(from),
		trace.WithLinks(trace.Link{SpanContext: trace.SpanContextFromContext(commit)}))
	span.End(trace.WithTimestamp(to))
}

// Statement starts the span of an operation of PostgreSQL in a traced request. What runs
// in the background has none.
func (t *Tracer) Statement(ctx context.Context, name, sql string) (context.Context, func(error)) {
	if !t.Traced(ctx) {
		return ctx, nil
	}
	attributes := []attribute.KeyValue{attribute.String("db.system.name", "postgresql"), attribute.String("db.operation.name", name)}
	if sql != "" {
		attributes = append(attributes, attribute.String("db.query.text", sql))
	}
	ctx, span := t.tracer.Start(ctx, "postgresql "+name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	return ctx, func(err error) { endSpan(span, err) }
}

// endSpan ends a span, without the text of the error.
func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
