// Package server speaks the Plant Store interface over HTTP.
//
// routes.go is the whole API as one table. A handler decodes, makes one call and
// encodes; wire.go owns all three, and the table from errors to statuses.
package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
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
)

// Options say what a [Server] is made of.
type Options struct {
	Store   plantstore.Store
	Writer  *commit.Writer
	Guard   *auth.Guard
	Metrics *Metrics
	Log     *slog.Logger
	// BaseURL is where callers find the API. Its path is where it is mounted.
	BaseURL *url.URL
	// MaxBody is the largest body, MaxHeader the largest header that is taken, in
	// bytes.
	MaxBody, MaxHeader int64
	// StreamTimeout is how long a part of an import or export may take.
	StreamTimeout time.Duration
	// Pages returns the web page at a path, or nil if there is none. A server
	// without Pages has none at all.
	Pages func(path string) http.Handler
	// Origins are those whose web pages may call the API, beside its own.
	Origins []string
}

// Server is the HTTP handler of the service.
type Server struct {
	store     plantstore.Store
	writer    *commit.Writer
	guard     *auth.Guard
	metrics   *Metrics
	log       *slog.Logger
	baseURL   string
	maxBody   int64
	maxHeader int64
	mux       *http.ServeMux
	document  document
	pages     func(path string) http.Handler
	foreign   foreignPages

	streamTimeout time.Duration
	largeBodies   chan struct{} // holds a token for each that is on its way

	draining atomic.Bool
	warned   atomic.Int64 // the second of the last line about a failure
	idPrefix string
	idCount  atomic.Uint64
}

// New returns a server.
func New(opts Options) (*Server, error) {
	doc, err := newDocument(opts.BaseURL)
	if err != nil {
		return nil, err
	}
	s := &Server{
		store:     opts.Store,
		writer:    opts.Writer,
		guard:     opts.Guard,
		metrics:   opts.Metrics,
		log:       opts.Log,
		baseURL:   strings.TrimRight(opts.BaseURL.String(), "/"),
		maxBody:   opts.MaxBody,
		maxHeader: opts.MaxHeader,
		mux:       http.NewServeMux(),
		document:  doc,
		pages:     opts.Pages,
		idPrefix:  newIDPrefix(),

		streamTimeout: opts.StreamTimeout,
		largeBodies:   make(chan struct{}, max(1, bodiesAtOnce/opts.MaxBody)),
	}
	base := strings.TrimRight(opts.BaseURL.EscapedPath(), "/")
	s.foreign = foreignPages{opts.Origins, strings.TrimRight(opts.BaseURL.Path, "/") + "/plants"}
	for _, r := range routes {
		pattern := r.method + " " + strings.Replace(r.path, "{base}", base, 1)
		s.mux.Handle(pattern, s.serve(r))
	}
	return s, nil
}

// Drain makes the server say that it is not ready, so that no new callers are
// sent to it. It goes on serving those who come.
func (s *Server) Drain() { s.draining.Store(true) }

// answer is the response of one request on its way out. Until a route has taken
// the request over, what is written to it are the mux's own answers, which are
// not ours: it keeps their status and drops the rest.
type answer struct {
	http.ResponseWriter
	route  *routeMetrics // nil while no route has the request
	token  *plantstore.Token
	status int
	err    error
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	if a.route != nil {
		a.ResponseWriter.WriteHeader(status)
	}
}

func (a *answer) Write(b []byte) (int, error) {
	if a.route == nil {
		return len(b), nil
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// ServeHTTP answers one request: its id, its limits, its route, its log line.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	id := s.requestID(r)
	w.Header()["X-Request-Id"] = []string{id}
	if hasDoubtfulEnd(r) {
		w.Header()["Connection"] = headerClose
	}
	a := &answer{ResponseWriter: w}
	defer func() { s.finish(a, r, id, start, recover()) }()
	foreign := s.foreign.allow(w.Header(), r)
	switch {
	case s.maxHeader > 0 && headerSize(r) > s.maxHeader:
		a.err = refuse(plantstore.ErrHeaders, "the header is larger than the %d bytes that are allowed", s.maxHeader)
	case r.URL.Path != "/" && path.Clean(r.URL.Path) != strings.TrimSuffix(r.URL.Path, "/"):
		a.err = noPath(r)
	case foreign && isPreflight(r):
		a.route = s.metrics.route("preflight")
		answerPreflight(a)
	default:
		s.mux.ServeHTTP(a, r)
	}
}

// hasDoubtfulEnd reports whether a proxy may differ about where the request ends, so
// that nothing behind it may be taken for another one. net/http hides a length that
// comes with chunks, and chunks that come with HTTP/1.0.
func hasDoubtfulEnd(r *http.Request) bool {
	return r.ContentLength < 0 || r.ContentLength > 0 && !r.ProtoAtLeast(1, 1)
}

// serve returns the handler of a route: who is calling, then the call.
func (s *Server) serve(rt route) http.Handler {
	metrics := s.metrics.route(rt.name)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := w.(*answer)
		a.route = metrics
		if rt.scope != "" {
			a.token, a.err = s.guard.Check(r.Context(), r.Header["Authorization"], rt.scope)
			if a.err != nil {
				return
			}
		}
		a.err = rt.handle(s, a, r)
	})
}

// finish writes the answer where the route left an error or there was no route,
// and accounts for the request.
func (s *Server) finish(a *answer, r *http.Request, id string, start time.Time, panicked any) {
	if panicked == http.ErrAbortHandler {
		defer panic(panicked)
	} else if panicked != nil {
		a.err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
	}
	if errors.Is(a.err, context.Canceled) && r.Context().Err() != nil {
		a.err = refuse(plantstore.ErrTimeout, "the caller went away")
	}
	if a.route == nil {
		a.route = s.metrics.route("none")
		if a.err == nil {
			a.err = noRoute(a, r)
		}
		a.status = 0
	}
	if a.err != nil && a.status == 0 {
		writeError(a, a.err)
	}
	a.route.observe(a.status, time.Since(start))
	s.logRequest(a, r, id, start)
}

// noRoute puts the mux's answer into our words.
func noRoute(a *answer, r *http.Request) error {
	if a.status == http.StatusMethodNotAllowed {
		return refuse(plantstore.ErrMethod, "%s does not know the method %s: it knows %s",
			r.URL.Path, r.Method, a.Header().Get("Allow"))
	}
	a.Header().Del("Location")
	return noPath(r)
}

func noPath(r *http.Request) error {
	return refuse(plantstore.ErrNoPath, "there is nothing at %s: see /openapi.yaml for what there is", r.URL.Path)
}

// logRequest writes one line for a failure of ours, at most one a second, and for
// every other request only when somebody looks: a line for each would cost more
// than the request, and a store that is down would fill the disk with them.
func (s *Server) logRequest(a *answer, r *http.Request, id string, start time.Time) {
	level := slog.LevelDebug
	switch now := start.Unix(); {
	case a.status < 500:
	case errors.Is(a.err, plantstore.ErrUnavailable):
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
		slog.String("request", id), slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", a.status), slog.Duration("took", time.Since(start)), slog.String("from", r.RemoteAddr),
	}
	if a.token != nil {
		attrs = append(attrs, slog.String("token", a.token.Hash.ID()))
	}
	if a.err != nil {
		attrs = append(attrs, slog.Any("err", a.err))
	}
	s.log.LogAttrs(r.Context(), level, "request", attrs...)
}

// requestID returns the id that the caller or a proxy gave the request, if it can
// stand in a log, or a new one.
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

func newIDPrefix() string {
	var b [5]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:]) + "-"
}

// headerSize is about what the request's line and header took on the wire.
func headerSize(r *http.Request) int64 {
	n := len(r.Method) + len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return int64(n)
}
