// Package server speaks the Plant Store interface over HTTP.
//
// routes.go is the whole API as one table. A handler decodes, makes one call and
// encodes; body.go and list.go have the helpers for that, and errors.go the table
// from errors to statuses.
package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"plantstore"
	"plantstore/internal/auth"
	"plantstore/internal/commit"
	"plantstore/internal/rules"
	"plantstore/internal/webhook"
)

// Options are the parts and the settings of a [Server].
type Options struct {
	Store    plantstore.Store
	Writer   *commit.Writer
	Guard    *auth.Guard
	Webhooks *webhook.Sender
	Metrics  *Metrics
	Clock    *rules.Clock // of the server
	Log      *slog.Logger
	// AccessLog gets a line for every request. A server without it writes none.
	AccessLog *AccessLog
	// About has the version of the server, the kind of its store and the limits of its log
	// of changes. The server sets the rest.
	About plantstore.About
	// BaseURL is the public URL of the API. Its path is where the API is mounted.
	BaseURL *url.URL
	// MaxRequests is how many requests may be in flight; 0 is no limit.
	MaxRequests int
	// MaxBody and MaxHeader are the largest body and header allowed, in bytes.
	MaxBody, MaxHeader int64
	// StreamTimeout is how long an import or an export may be slower than the minimum
	// speed of streams.
	StreamTimeout time.Duration
	// ExportTimeout is how long a whole export may take. Until it ends, the store has
	// to keep its snapshot.
	ExportTimeout time.Duration
	// Pages returns the web page at a path, or nil if there is none.
	Pages func(path string) http.Handler
	// Origins are the other origins whose web pages may call the API.
	Origins []string
	// Trace traces requests, if set.
	Trace Trace
	// CertificateExpires, if set, returns when the TLS certificate in use expires; the zero time
	// means that there is none.
	CertificateExpires func() time.Time
}

// Trace starts the span of a request. It returns the request with the span's context,
// and a function that ends the span.
type Trace func(r *http.Request) (traced *http.Request, end func(operation string, status int, requestID string))

// Server is the HTTP handler of the service.
type Server struct {
	Options   // as given, with About completed
	baseURL   string
	fast      []fastRoute
	mux       *http.ServeMux
	mounted   map[string]*mounted // by their pattern in mux
	documents documents
	cors      cors
	zippers   gzipPool
	hsts      bool // browsers must use HTTPS
	lanes     []*lane
	exporting int64 // how many units of searches an export takes
	inFlight  *inFlight
	readiness readiness
	followers atomic.Int64 // clients that follow the log
	open      func() int   // connections; nil without WatchConnections

	stopped  context.Context // ends when the server drains
	drain    context.CancelFunc
	warned   atomic.Int64 // the second of the last warning
	idPrefix string
	idCount  atomic.Uint64
}

// New returns a server.
func New(opts Options) *Server {
	s := &Server{
		Options:   opts,
		baseURL:   strings.TrimRight(opts.BaseURL.String(), "/"),
		mux:       http.NewServeMux(),
		mounted:   make(map[string]*mounted),
		documents: newDocuments(opts.BaseURL),
		zippers:   newGzipPool(),
		hsts:      isPublicHTTPS(opts.BaseURL),
		lanes:     newLanes(opts.StreamTimeout),
		exporting: unitsOfExport(opts.Store),
		inFlight:  newInFlight(opts.MaxRequests),
		idPrefix:  newIDPrefix(),
	}
	s.About = newAbout(opts)
	s.stopped, s.drain = context.WithCancel(context.Background())
	base := strings.TrimRight(opts.BaseURL.EscapedPath(), "/")
	s.cors = newCORS(opts.Origins, strings.TrimRight(opts.BaseURL.Path, "/"))
	s.Metrics.registry.MustRegister(figures{s})
	for _, l := range s.lanes {
		s.Metrics.limitHits.WithLabelValues(l.name)
	}
	for i := range routes {
		rt := &routes[i]
		path := strings.Replace(rt.path, "{base}", base, 1)
		s.mount(rt.method+" "+path, rt)
		if other, ok := strings.CutSuffix(path, "/"); ok {
			s.mount(rt.method+" "+other, &noRoute) // instead of a redirect
		}
		if rt.traits&fast != 0 {
			prefix, id := strings.CutSuffix(path, "{id}")
			s.fast = append(s.fast, fastRoute{rt.method, prefix, id})
		}
	}
	s.mount("/", &noRoute)
	return s
}

// Drain makes /readyz fail, so that a load balancer sends no new requests, and ends the
// streams of events. Other requests that still arrive are served.
func (s *Server) Drain() { s.drain() }

// isPublicHTTPS reports whether the URL is HTTPS on a host with a name.
func isPublicHTTPS(u *url.URL) bool {
	_, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" && err != nil && u.Hostname() != "localhost"
}
