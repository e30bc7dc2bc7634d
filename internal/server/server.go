// Package server speaks the Plant Store interface over HTTP.
//
// routes.go is the whole API as one table. A handler decodes, makes one call and
// encodes; body.go has the helpers for both, and errors.go the table from errors to
// statuses.
package server

import (
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"plantstore"
	"plantstore/internal/auth"
	"plantstore/internal/commit"
	"plantstore/internal/storage"
	"plantstore/internal/webhook"
)

// Options say what a [Server] is made of.
type Options struct {
	Store    plantstore.Store
	Writer   *commit.Writer
	Guard    *auth.Guard
	Webhooks *webhook.Sender
	Metrics  *Metrics
	Log      *slog.Logger
	// AccessLog gets a line for every request. A server without it writes none.
	AccessLog *AccessLog
	// About has the version of the server, the kind of its store and the limits of its log
	// of changes. The server sets the rest.
	About plantstore.About
	// BaseURL is the public URL of the API. Its path is where the API is mounted.
	BaseURL *url.URL
	// MaxBody and MaxHeader are the largest body and header allowed, in bytes.
	MaxBody, MaxHeader int64
	// StreamTimeout is how long an import or an export may be slower than the minimum
	// speed of streams.
	StreamTimeout time.Duration
	// ExportTimeout is how long a whole export may take. Until it ends, the store has
	// to keep its snapshot.
	ExportTimeout time.Duration
	// Pages returns the web page at a path, or nil if there is none. A server
	// without Pages has none at all.
	Pages func(path string) http.Handler
	// Origins are the other origins whose web pages may call the API.
	Origins []string
	// Trace traces requests, if set.
	Trace Trace
}

// Trace starts the span of a request. It returns the request with the span's context,
// and what ends the span.
type Trace func(r *http.Request) (traced *http.Request, end func(operation string, status int, requestID string))

// Server is the HTTP handler of the service.
type Server struct {
	store     plantstore.Store
	writer    *commit.Writer
	guard     *auth.Guard
	webhooks  *webhook.Sender
	metrics   *Metrics
	log       *slog.Logger
	accessLog *AccessLog
	about     plantstore.About
	baseURL   string
	plants    string // the path of the collection
	maxBody   int64
	maxHeader int64
	mux       *http.ServeMux
	document  document
	pages     func(path string) http.Handler
	cors      cors
	zippers   gzipPool
	hsts      bool // browsers must use HTTPS
	trace     Trace

	streamTimeout time.Duration
	exportTimeout time.Duration
	scans         *lane            // concurrent searches, filtered lists and exports
	lists         *lane            // concurrent lists without a filter
	tags          *lane            // concurrent lists of tags
	access        *lane            // concurrent reads of all tokens or webhooks
	exports       *lane            // those of them that are exports
	largePages    *lane            // bytes of pages being sent
	largePlants   *lane            // bytes of single plants being sent
	imports       *lane            // concurrent ones
	windows       *lane            // bytes of the imports' windows
	largeBodies   *lane            // from when they are received until the response
	followers     *lane            // clients that follow the log
	tests         *lane            // of webhooks, while they wait for a response
	limits        map[string]error // what the limits return, by their names in the metrics

	stopped  context.Context // ends when the server drains
	drain    context.CancelFunc
	warned   atomic.Int64 // the second of the last warning
	idPrefix string
	idCount  atomic.Uint64
}

// New returns a server.
func New(opts Options) *Server {
	s := &Server{
		store:     opts.Store,
		writer:    opts.Writer,
		guard:     opts.Guard,
		webhooks:  opts.Webhooks,
		metrics:   opts.Metrics,
		log:       opts.Log,
		accessLog: opts.AccessLog,
		about:     newAbout(opts),
		baseURL:   strings.TrimRight(opts.BaseURL.String(), "/"),
		maxBody:   opts.MaxBody,
		maxHeader: opts.MaxHeader,
		mux:       http.NewServeMux(),
		document:  newDocument(opts.BaseURL),
		pages:     opts.Pages,
		zippers:   newGzipPool(),
		hsts:      isPublicHTTPS(opts.BaseURL),
		trace:     opts.Trace,
		idPrefix:  newIDPrefix(),

		streamTimeout: opts.StreamTimeout,
		exportTimeout: opts.ExportTimeout,
		scans:         newLane(maxScans, maxScansQueued, maxScanWait, "too many searches and exports are running"),
		lists:         newLane(maxLists, maxListsQueued, maxScanWait, "too many lists are running"),
		tags:          newLane(maxTagLists, maxListsQueued, maxScanWait, "too many lists of tags are running"),
		access:        newLane(maxAccessReads, maxScansQueued, maxScanWait, "too many lists of tokens and webhooks are running"),
		exports:       newLane(maxExports, 0, 0, "too many exports are running"),
		imports:       newLane(maxImports, maxImportsQueued, opts.StreamTimeout, "too many imports are running"),
		windows:       newLane(maxImportBytes, maxImports, opts.StreamTimeout, "too many imports are running"),
		largePages:    newLane(maxLargePages, 0, 0, "too many large pages are being sent"),
		largePlants:   newLane(maxLargePlants, 0, 0, "too many large plants are being sent"),
		largeBodies:   newLane(max(1, maxLargeBodies/opts.MaxBody), 0, 0, "too many large bodies are being processed"),
		followers:     newLane(maxFollowers, 0, 0, "too many clients follow the events"),
		tests:         newLane(maxWebhookTests, 0, 0, "too many webhooks are being tested"),
	}
	s.stopped, s.drain = context.WithCancel(context.Background())
	base := strings.TrimRight(opts.BaseURL.EscapedPath(), "/")
	s.plants = base + "/plants"
	s.cors = newCORS(opts.Origins, strings.TrimRight(opts.BaseURL.Path, "/"))
	s.metrics.watchQueue(opts.Writer.Depth)
	if store, ok := opts.Store.(interface{ Damaged() error }); ok {
		s.metrics.watchDamage(store.Damaged)
	}
	s.metrics.watchFollowers(s.followers.inUse)
	s.metrics.watchAccessLog(s.accessLog)
	s.metrics.watchTokens(s.guard.NextExpiry)
	if store, ok := opts.Store.(interface{ Pools() []storage.PoolStats }); ok {
		s.metrics.registry.MustRegister(poolCollector{store.Pools})
	}
	s.limits = map[string]error{
		"queue": commit.ErrFull, "scans": s.scans.full, "lists": s.lists.full, "tags": s.tags.full, "access": s.access.full, "exports": s.exports.full,
		"imports": s.imports.full, "import_bytes": s.windows.full, "large_pages": s.largePages.full,
		"large_plants": s.largePlants.full, "large_bodies": s.largeBodies.full, "followers": s.followers.full,
		"webhook_tests": s.tests.full,
	}
	for limit := range s.limits {
		s.metrics.limitHits.WithLabelValues(limit)
	}
	s.metrics.registry.MustRegister(storeCollector{s.store})
	s.metrics.registry.MustRegister(webhookCollector{s.webhooks})
	for _, r := range routes {
		pattern := r.method + " " + strings.Replace(r.path, "{base}", base, 1)
		s.mux.Handle(pattern, s.serve(r))
	}
	return s
}

// Drain makes /readyz fail, so that a load balancer sends no new requests, and ends the
// streams of events. Other requests that still arrive are served.
func (s *Server) Drain() { s.drain() }

// Reads of many plants, and of tags, share these limits. Gets, writes, token checks and
// readiness checks never wait for them. Gets of large plants have a limit of their own.
const (
	maxScans       = 8  // concurrent searches, filtered lists and exports
	maxScansQueued = 16 // of one token
	maxScanWait    = 5 * time.Second
	maxLists       = 8    // concurrent lists without a filter
	maxListsQueued = 1024 // of one token
	maxTagLists    = 4    // concurrent lists of tags
	maxAccessReads = 1    // reads of all tokens or webhooks: those that check tokens use the same connections
	maxExports     = 4
	maxLargePages  = 32 << 20 // bytes
	maxLargePlants = 32 << 20 // bytes, of gets
)

// recorder records the outcome of a request. Before a route matches, it keeps only
// the status of the mux's plain-text responses, which finish replaces with an Error.
//
// A handler that fails returns an error. serve stores it in err, and finish writes it
// as the response, or aborts a response that has started.
type recorder struct {
	http.ResponseWriter
	start     time.Time
	id        [1]string // the header X-Request-Id
	rateLimit [1]string // the header RateLimit
	operation string    // "" until a route matches
	series    *atomic.Pointer[requestSeries]
	caller    *auth.Caller // nil until a token is valid
	status    int
	bytes     int64 // of the body, before it is compressed
	err       error

	zippers   gzipPool     // nil if the response must not be compressed
	zip       *gzip.Writer // not nil while the response is compressed
	largeBody bool         // finish releases it
}

func (rec *recorder) WriteHeader(status int) {
	if rec.status == 0 {
		rec.status = status
	}
	if rec.operation != "" {
		rec.ResponseWriter.WriteHeader(status)
	}
}

func (rec *recorder) Write(b []byte) (int, error) {
	if rec.operation == "" {
		return len(b), nil
	}
	if rec.status == 0 {
		rec.status = http.StatusOK
		rec.startGzip(len(b))
	}
	rec.bytes += int64(len(b))
	if rec.zip != nil {
		return rec.zip.Write(b)
	}
	return rec.ResponseWriter.Write(b)
}

// tokenOf returns the token of a request whose route needs a scope.
func tokenOf(w http.ResponseWriter) plantstore.TokenHash { return w.(*recorder).caller.Hash }

// Unwrap is for http.ResponseController.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

// ServeHTTP serves one request: it assigns the request id, checks the limits, runs the
// route, and lets finish respond to errors and log.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := &recorder{ResponseWriter: w, start: time.Now(), id: [1]string{s.requestID(r)}}
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	w.Header()["X-Request-Id"] = rec.id[:]
	if hasAmbiguousFraming(r) {
		w.Header()["Connection"] = headerClose
	}
	if s.trace != nil {
		traced, end := s.trace(r)
		r = traced
		defer func() { end(rec.operation, rec.status, rec.id[0]) }()
	}
	defer func() { s.finish(rec, r, recover()) }()
	crossOrigin := s.cors.allow(w.Header(), r)
	switch {
	case s.maxHeader > 0 && headerSize(r) > s.maxHeader:
		rec.err = plantstore.Errorf(plantstore.ErrHeaders, "the header is larger than the limit of %d bytes", s.maxHeader)
	case r.URL.Path != "/" && path.Clean(r.URL.Path) != strings.TrimSuffix(r.URL.Path, "/"):
		rec.err = noPath(r)
	case crossOrigin && isPreflight(r):
		rec.operation = "preflight"
		writePreflight(rec)
	default:
		s.mux.ServeHTTP(rec, r)
	}
}

// hasAmbiguousFraming reports whether a proxy may disagree about where the request
// ends, so that nothing after it may be taken for another request. net/http hides a
// Content-Length that comes with chunks, and chunks that come with HTTP/1.0.
func hasAmbiguousFraming(r *http.Request) bool {
	if r.ProtoMajor > 1 {
		return false // frames have lengths
	}
	return r.ContentLength < 0 || r.ContentLength > 0 && !r.ProtoAtLeast(1, 1)
}

// serve returns the handler of a route. It checks the token, if the route needs one,
// and calls the route's handler.
func (s *Server) serve(rt route) http.Handler {
	large, series := gzipped[rt.name], new(atomic.Pointer[requestSeries])
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := w.(*recorder)
		rec.operation, rec.series = rt.name, series
		if s.hsts && rt.scope == "" { // what a browser opens needs no token
			w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		}
		if large {
			w.Header().Add("Vary", "Accept-Encoding")
			if acceptsGzip(r) {
				rec.zippers = s.zippers
			}
		}
		if rt.scope != "" {
			rec.caller, rec.err = s.guard.Admit(r, rt.scope, rec.start)
			s.metrics.tokenChecked(rec.caller != nil, rec.err)
			if rec.caller != nil {
				rec.caller.SetHeaders(rec.Header(), rec.start, &rec.rateLimit)
			}
			if rec.err != nil {
				return
			}
		}
		rec.err = rt.handle(s, rec, r)
	})
}

// finish responds if the handler left an error or there was no route, and accounts
// for the request. If the response has already started, an error aborts it, so that
// the client does not mistake a part for the whole; the request then counts with the
// status of the error. The only panic that leaves finish is [http.ErrAbortHandler].
func (s *Server) finish(rec *recorder, r *http.Request, panicked any) {
	if rec.largeBody {
		s.largeBodies.release(rec.caller.Hash, 1)
	}
	abort := panicked == http.ErrAbortHandler
	switch {
	case abort, errors.Is(rec.err, context.Canceled) && r.Context().Err() != nil:
		rec.err = plantstore.Errorf(plantstore.ErrTimeout, "the client disconnected")
	case panicked != nil:
		rec.err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
	}
	if rec.operation == "" {
		rec.operation = "none"
		if rec.err == nil {
			rec.err = noRoute(rec, r)
		}
		rec.status = 0
	}
	abort = abort || rec.err != nil && rec.status != 0
	if err := rec.endGzip(!abort); err != nil {
		abort, rec.err = true, plantstore.Errorf(plantstore.ErrTimeout, "the client disconnected")
	}
	if abort {
		rec.status, _ = statusOf(rec.err)
	} else if rec.err != nil {
		writeError(rec, r, rec.err)
	} else if rec.status == 0 {
		rec.status = http.StatusOK // of an empty response
	}
	took := time.Since(rec.start)
	s.metrics.observe(rec, took)
	if rec.err != nil {
		s.countLimit(rec)
	}
	s.logRequest(rec, r, took, abort)
	s.logAccess(rec, r, took)
	if abort {
		panic(http.ErrAbortHandler)
	}
	if rec.err != nil && rec.caller != nil && r.ProtoMajor > 1 { // only callers may make the server read a body
		discardBody(rec, r)
	}
}

// countLimit counts a request that was refused because of a limit.
func (s *Server) countLimit(rec *recorder) {
	if _, ok := errors.AsType[*auth.RateError](rec.err); ok {
		limit := limitAuthFailures
		if rec.caller != nil {
			limit = limitRate
		}
		s.metrics.limitHits.WithLabelValues(limit).Inc()
		return
	}
	if !errors.Is(rec.err, plantstore.ErrUnavailable) {
		return
	}
	for limit, err := range s.limits {
		if errors.Is(rec.err, err) {
			s.metrics.limitHits.WithLabelValues(limit).Inc()
		}
	}
}

// noRoute turns the mux's response into an error.
func noRoute(rec *recorder, r *http.Request) error {
	if rec.status == http.StatusMethodNotAllowed {
		return plantstore.Errorf(plantstore.ErrMethod, "%s is not allowed on %s; allowed: %s",
			r.Method, r.URL.Path, rec.Header().Get("Allow"))
	}
	rec.Header().Del("Location")
	return noPath(r)
}

func noPath(r *http.Request) error {
	return plantstore.Errorf(plantstore.ErrNoPath, "there is nothing at %s: /openapi.yaml lists the paths", r.URL.Path)
}

// logRequest logs a failure of the server, and every other request at the debug
// level only: a line for each would cost more than the request. An aborted response is a
// failure, unless the client ended it. While the store is
// unavailable it logs one line per second, so that the log does not fill the disk.
func (s *Server) logRequest(rec *recorder, r *http.Request, took time.Duration, aborted bool) {
	level := slog.LevelDebug
	switch now := rec.start.Unix(); {
	case rec.status < 500 && aborted && !errors.Is(rec.err, plantstore.ErrTimeout):
		level = slog.LevelWarn
	case rec.status < 500:
	case errors.Is(rec.err, plantstore.ErrUnavailable):
		if s.warned.Swap(now) != now {
			level = slog.LevelWarn
		}
	default:
		level = slog.LevelError
	}
	if !s.log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request", rec.id[0]), slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", rec.status), slog.Duration("took", took), slog.String("from", s.guard.From(r)),
	}
	if rec.caller != nil {
		attrs = append(attrs, slog.String("token", rec.caller.Public))
	}
	if rec.err != nil {
		attrs = append(attrs, slog.Any("err", rec.err))
	}
	s.log.LogAttrs(r.Context(), level, "request", attrs...)
}

// requestID returns the id that the client or a proxy gave the request, if it is
// safe to log, or a new one.
func (s *Server) requestID(r *http.Request) string {
	if given := r.Header["X-Request-Id"]; len(given) == 1 && isRequestID(given[0]) {
		return given[0]
	}
	b := append(make([]byte, 0, 32), s.idPrefix...)
	return string(strconv.AppendUint(b, s.idCount.Add(1), 36))
}

func isRequestID(id string) bool {
	for _, c := range []byte(id) {
		switch {
		case '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return 0 < len(id) && len(id) <= 64
}

// isPublicHTTPS reports whether the URL is HTTPS on a host with a name.
func isPublicHTTPS(u *url.URL) bool {
	_, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" && err != nil && u.Hostname() != "localhost"
}

func newIDPrefix() string {
	var b [5]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:]) + "-"
}

// headerSize is the approximate size of the request line and header on the wire.
func headerSize(r *http.Request) int64 {
	n := len(r.Method) + len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return int64(n)
}
