package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof"
	runtime "runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// healthz says that the process serves requests, whatever the state of the store.
func (s *Server) healthz(c *call) error {
	return writeJSON(c, http.StatusOK, []byte("{\"status\":\"ok\"}\n"))
}

// readyz says whether a load balancer should send requests here.
func (s *Server) readyz(c *call) error {
	if s.stopped.Err() != nil {
		return plantstore.Errorf(plantstore.ErrUnavailable, "the server is shutting down")
	}
	if err := s.readiness.check(s.Store); err != nil {
		return fmt.Errorf("%w: %w", plantstore.ErrUnavailable, err)
	}
	return writeJSON(c, http.StatusOK, []byte("{\"status\":\"ready\"}\n"))
}

// readyFor is how long a result of a check is used again.
const readyFor = 200 * time.Millisecond

// readiness remembers whether the store is ready. Concurrent checks share a result, so that a
// flood of them costs the store nothing.
type readiness struct {
	mu    sync.Mutex // guards what follows, and is held during a check
	at    time.Time  // of the last check
	state error
}

func (r *readiness) check(store plantstore.Store) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || time.Since(r.at) >= readyFor {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		r.state = store.Ready(ctx)
		r.at = time.Now()
	}
	return r.state
}

// Connections are the connections of the HTTP server: how many are open, and what
// happens to those beyond the limit.
type Connections interface {
	Connections() int
	OnRefuse(body string, probe func(method, path string) bool, refused func())
}

// WatchConnections reports the connections in the metrics, and sets the response to requests on
// those beyond the limit. Health checks are served even there. It is called once, before the
// first request.
func (s *Server) WatchConnections(c Connections) {
	body := wire.EncodeError(&plantstore.Error{Code: plantstore.ErrUnavailable, Message: "too many connections: try again later"})
	s.open = c.Connections
	var warned atomic.Int64 // the minute of the last warning
	c.OnRefuse(string(body)+"\n", isProbe, func() {
		s.Metrics.refused.Inc()
		if minute := time.Now().Unix() / 60; warned.Swap(minute) != minute {
			s.Log.Warn("connections are refused: too many are open", "open", c.Connections())
		}
	})
}

// isProbe reports whether a request is a health check, which no limit applies to.
func isProbe(method, path string) bool {
	return method == http.MethodGet && (path == "/healthz" || path == "/readyz")
}

// profile serves a runtime profile, or the page that lists them. There is no
// cmdline: the command line may contain the database's password.
func (s *Server) profile(c *call) error {
	name := strings.TrimPrefix(c.r.URL.Path, "/debug/pprof/")
	if name != "" && runtime.Lookup(name) == nil {
		return noPath(c.r)
	}
	pprof.Index(&c.w, c.r)
	return nil
}
