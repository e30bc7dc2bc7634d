package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof"
	runtime "runtime/pprof"
	"strings"
	"time"

	"plantstore"
)

// healthz says that the process serves requests, whatever the state of the store.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, []byte("{\"status\":\"ok\"}\n"))
}

// readyz says whether a load balancer should send requests here.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	if s.stopped.Err() != nil {
		return plantstore.Errorf(plantstore.ErrUnavailable, "the server is shutting down")
	}
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := s.store.Ready(ctx); err != nil {
		return fmt.Errorf("%w: %w", plantstore.ErrUnavailable, err)
	}
	return writeJSON(w, http.StatusOK, []byte("{\"status\":\"ready\"}\n"))
}

// profile serves a runtime profile, or the page that lists them. There is no
// cmdline: the command line may contain the database's password.
func (s *Server) profile(w http.ResponseWriter, r *http.Request) error {
	name := strings.TrimPrefix(r.URL.Path, "/debug/pprof/")
	if name != "" && runtime.Lookup(name) == nil {
		return noPath(r)
	}
	pprof.Index(w, r)
	return nil
}
