package server

import (
	"cmp"
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

// call is a request, its response, and who sent it: what a handler gets.
//
// A handler that fails returns an error, which finish writes as the response. If the
// response has started, finish aborts it.
type call struct {
	s      *Server
	r      *http.Request
	w      response
	route  *route       // noRoute until one matches
	target string       // the {id} in the path
	caller *auth.Caller // nil until a token is valid
	err    error
	body   int64 // bytes of the lane of memory that the request's body takes

	start     time.Time
	id        [1]string // the header X-Request-Id
	rateLimit [1]string // the header RateLimit

	fromAddress *atomic.Int64 // the counter of inFlight for the address
	weight      int64         // how many requests it counts as
	series      *atomic.Pointer[requestSeries]
}

// ServeHTTP serves one request: it assigns the request id, checks the limits, runs the
// route, and lets finish respond to errors and log.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{s: s, r: r, w: response{ResponseWriter: w}, route: &noRoute, start: time.Now(), id: [1]string{s.requestID(r)}}
	s.Metrics.inFlight.Inc()
	defer s.Metrics.inFlight.Dec()
	w.Header()["X-Request-Id"] = c.id[:]
	if hasAmbiguousFraming(r) {
		w.Header()["Connection"] = headerClose
	}
	if s.Trace != nil {
		traced, end := s.Trace(r)
		c.r, r = traced, traced
		defer func() { end(c.route.name, c.w.status, c.id[0]) }()
	}
	header := headerSize(r)
	busy := s.inFlight.enter(c, header)
	defer s.inFlight.leave(c)
	defer func() { s.finish(c, recover()) }()
	defer c.releaseBody()
	crossOrigin := s.cors.allow(w.Header(), r)
	switch {
	case busy != nil:
		c.err = busy
	case header > s.MaxHeader:
		c.err = plantstore.Errorf(plantstore.ErrHeaders, "the header is larger than the limit of %d bytes", s.MaxHeader)
	case r.RequestURI == "*", r.URL.Path != "/" && path.Clean(r.URL.Path) != strings.TrimSuffix(r.URL.Path, "/"):
		c.err = noPath(r)
	case crossOrigin && isPreflight(r):
		c.route = &preflight
		writePreflight(c)
	default:
		c.err = s.serve(c)
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

// mounted is a route of a server.
type mounted struct {
	route *route
	// target is the number of the segment {id} of the path, 0 if there is none.
	target int
	series atomic.Pointer[requestSeries]
}

// mount adds a route with a pattern. The mux only says which pattern matches a request.
func (s *Server) mount(pattern string, rt *route) {
	m := &mounted{route: rt}
	if before, _, ok := strings.Cut(pattern, "{id}"); ok {
		m.target = strings.Count(before, "/")
	}
	s.mounted[pattern] = m
	s.mux.Handle(pattern, http.NotFoundHandler())
}

// serve finds the route, checks the token, if the route needs one, and calls the handler.
func (s *Server) serve(c *call) error {
	_, pattern := s.mux.Handler(c.r)
	m := cmp.Or(s.mounted[pattern], s.mounted["/"])
	c.r.Pattern, c.route, c.series = pattern, m.route, &m.series
	if m.target > 0 {
		c.target = segment(c.r.URL.EscapedPath(), m.target)
	}
	if s.hsts && c.route.traits&open != 0 && c.route != &noRoute { // a browser may open it
		c.w.Header().Set("Strict-Transport-Security", "max-age=31536000")
	}
	if c.route.traits&zipped != 0 {
		c.w.Header().Add("Vary", "Accept-Encoding")
		if acceptsGzip(c.r) {
			c.w.zippers = s.zippers
		}
	}
	if c.route.traits&open == 0 {
		var err error
		c.caller, err = s.Guard.Admit(c.r, c.route.scopes, c.start)
		s.Metrics.tokenChecked(c.caller != nil, err)
		if c.caller != nil {
			c.caller.SetHeaders(c.w.Header(), c.start, &c.rateLimit)
		}
		if err != nil {
			return err
		}
	}
	return c.route.handle(s, c)
}

// segment returns the n-th segment of an escaped path, unescaped. The first is 1.
func segment(path string, n int) string {
	for range n {
		_, path, _ = strings.Cut(path, "/")
	}
	text, _, _ := strings.Cut(path, "/")
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

// finish responds if the handler left an error or there was no route, and accounts
// for the request. If the response has already started, an error aborts it, so that
// the client does not mistake a part for the whole; the request then counts with the
// status of the error. The only panic that leaves finish is [http.ErrAbortHandler].
func (s *Server) finish(c *call, panicked any) {
	abort := panicked == http.ErrAbortHandler
	switch {
	case abort, errors.Is(c.err, context.Canceled) && c.r.Context().Err() != nil:
		c.err = plantstore.Errorf(plantstore.ErrTimeout, "the client disconnected")
	case panicked != nil:
		c.err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
	}
	abort = abort || c.err != nil && c.w.status != 0
	if err := c.w.endGzip(!abort); err != nil {
		abort, c.err = true, plantstore.Errorf(plantstore.ErrTimeout, "the client disconnected")
	}
	if abort {
		c.w.status, _ = statusOf(c.err)
	} else if c.err != nil {
		writeError(c, c.err)
	} else if c.w.status == 0 {
		c.w.status = http.StatusOK // of an empty response
	}
	took := time.Since(c.start)
	s.Metrics.observe(c, took)
	if c.err != nil {
		s.countLimit(c)
	}
	s.logRequest(c, took, abort)
	s.logAccess(c, took)
	if abort {
		panic(http.ErrAbortHandler)
	}
	if c.err != nil && c.caller != nil && c.r.ProtoMajor > 1 { // only callers may make the server read a body
		discardBody(c)
	}
}

// countLimit counts a request that was refused because of a limit.
func (s *Server) countLimit(c *call) {
	_, rate := errors.AsType[*auth.RateError](c.err)
	switch {
	case rate && c.caller != nil:
		s.Metrics.limitHits.WithLabelValues(limitRate).Inc()
	case rate:
		s.Metrics.limitHits.WithLabelValues(limitAuthFailures).Inc()
	case errors.Is(c.err, commit.ErrFull):
		s.Metrics.limitHits.WithLabelValues(limitQueue).Inc()
	case c.err == errBusy, c.err == errBusyAddress:
		s.Metrics.limitHits.WithLabelValues(limitRequests).Inc()
	}
	for _, l := range s.lanes {
		if errors.Is(c.err, l.full) {
			s.Metrics.limitHits.WithLabelValues(l.name).Inc()
		}
	}
}

// noRoute is for requests that match no other route, and preflight for those of browsers
// that ask for permission.
var (
	noRoute   = route{name: "none", traits: open, handle: (*Server).refuse}
	preflight = route{name: "preflight"}
)

// refuse says that there is nothing at the path, or nothing with the method.
func (s *Server) refuse(c *call) error {
	var allowed []string
	for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost, http.MethodPut} {
		_, pattern := s.mux.Handler(&http.Request{Method: method, URL: c.r.URL})
		if m := s.mounted[pattern]; m != nil && m.route.path != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return noPath(c.r)
	}
	c.w.Header().Set("Allow", strings.Join(allowed, ", "))
	return plantstore.Errorf(plantstore.ErrMethod, "%s is not allowed on %s; allowed: %s", c.r.Method, c.r.URL.Path, c.w.Header().Get("Allow"))
}

func noPath(r *http.Request) error {
	return plantstore.Errorf(plantstore.ErrNoPath, "there is nothing at %s: /openapi.yaml lists the paths", r.URL.Path)
}

// logRequest logs a failure of the server, and every other request at the debug
// level only: a line for each would cost more than the request. An aborted response is a
// failure, unless the client ended it. While the store is
// unavailable it logs one line per second, so that the log does not fill the disk.
func (s *Server) logRequest(c *call, took time.Duration, aborted bool) {
	level := slog.LevelDebug
	switch now := c.start.Unix(); {
	case c.w.status < 500 && aborted && !errors.Is(c.err, plantstore.ErrTimeout):
		level = slog.LevelWarn
	case c.w.status < 500:
	case errors.Is(c.err, plantstore.ErrUnavailable):
		if s.warned.Swap(now) != now {
			level = slog.LevelWarn
		}
	default:
		level = slog.LevelError
	}
	if !s.Log.Enabled(c.r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request", c.id[0]), slog.String("method", c.r.Method), slog.String("path", c.r.URL.Path),
		slog.Int("status", c.w.status), slog.Duration("took", took), slog.String("from", s.Guard.From(c.r)),
	}
	if c.caller != nil {
		attrs = append(attrs, slog.String("token", c.caller.Public))
	}
	if c.err != nil {
		attrs = append(attrs, slog.Any("err", c.err))
	}
	s.Log.LogAttrs(c.r.Context(), level, "request", attrs...)
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
