package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
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
	response
	s      *Server
	r      *http.Request
	route  *route       // noRoute until one matches
	caller *auth.Caller // nil until a token is valid
	err    error
	ended  func() // called by finish, if not nil

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
	c := &call{response: response{ResponseWriter: w}, s: s, r: r, route: &noRoute, start: time.Now(), id: [1]string{s.requestID(r)}}
	s.Metrics.inFlight.Inc()
	defer s.Metrics.inFlight.Dec()
	w.Header()["X-Request-Id"] = c.id[:]
	if hasAmbiguousFraming(r) {
		w.Header()["Connection"] = headerClose
	}
	if s.Trace != nil {
		traced, end := s.Trace(r)
		c.r, r = traced, traced
		defer func() { end(c.route.name, c.status, c.id[0]) }()
	}
	header := headerSize(r)
	busy := s.inFlight.enter(c, header)
	defer s.inFlight.leave(c)
	defer func() { s.finish(c, recover()) }()
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
		s.mux.ServeHTTP(c, r)
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

type routeHandler struct {
	*Server
	route  *route
	series atomic.Pointer[requestSeries]
}

// ServeHTTP checks the token, if the route needs one, and calls the route's handler.
func (h *routeHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := w.(*call)
	c.route, c.series = h.route, &h.series
	if h.hsts && h.route.scope == "" && h.route != &noRoute { // what a browser opens needs no token
		c.Header().Set("Strict-Transport-Security", "max-age=31536000")
	}
	if h.route.traits&zipped != 0 {
		c.Header().Add("Vary", "Accept-Encoding")
		if acceptsGzip(r) {
			c.zippers = h.zippers
		}
	}
	if h.route.scope != "" {
		c.caller, c.err = h.Guard.Admit(r, h.route.scope, c.start)
		h.Metrics.tokenChecked(c.caller != nil, c.err)
		if c.caller != nil {
			c.caller.SetHeaders(c.Header(), c.start, &c.rateLimit)
		}
		if c.err != nil {
			return
		}
	}
	c.err = h.route.handle(h.Server, c)
}

// finish responds if the handler left an error or there was no route, and accounts
// for the request. If the response has already started, an error aborts it, so that
// the client does not mistake a part for the whole; the request then counts with the
// status of the error. The only panic that leaves finish is [http.ErrAbortHandler].
func (s *Server) finish(c *call, panicked any) {
	if c.ended != nil {
		c.ended()
	}
	abort := panicked == http.ErrAbortHandler
	switch {
	case abort, errors.Is(c.err, context.Canceled) && c.r.Context().Err() != nil:
		c.err = plantstore.Errorf(plantstore.ErrTimeout, "the client disconnected")
	case panicked != nil:
		c.err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
	}
	abort = abort || c.err != nil && c.status != 0
	if err := c.endGzip(!abort); err != nil {
		abort, c.err = true, plantstore.Errorf(plantstore.ErrTimeout, "the client disconnected")
	}
	if abort {
		c.status, _ = statusOf(c.err)
	} else if c.err != nil {
		writeError(c, c.r, c.err)
	} else if c.status == 0 {
		c.status = http.StatusOK // of an empty response
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
		discardBody(c, c.r)
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
	noRoute   = route{name: "none", handle: (*Server).refuse}
	preflight = route{name: "preflight"}
)

// refuse says that there is nothing at the path, or nothing with the method.
func (s *Server) refuse(c *call) error {
	var allowed []string
	for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut} {
		handler, _ := s.mux.Handler(&http.Request{Method: method, URL: c.r.URL})
		if h, ok := handler.(*routeHandler); ok && h.route.path != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return noPath(c.r)
	}
	c.Header().Set("Allow", strings.Join(allowed, ", "))
	return plantstore.Errorf(plantstore.ErrMethod, "%s is not allowed on %s; allowed: %s", c.r.Method, c.r.URL.Path, c.Header().Get("Allow"))
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
	case c.status < 500 && aborted && !errors.Is(c.err, plantstore.ErrTimeout):
		level = slog.LevelWarn
	case c.status < 500:
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
		slog.Int("status", c.status), slog.Duration("took", took), slog.String("from", s.Guard.From(c.r)),
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
