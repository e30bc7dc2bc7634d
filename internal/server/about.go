package server

import (
	"net/http"

	"plantstore"
	"plantstore/internal/wire"
)

// newAbout completes what the options say about the server.
func newAbout(opts Options) plantstore.About {
	about := opts.About
	about.Interface = plantstore.InterfaceVersion
	about.Limits.MaxBody, about.Limits.MaxHeader = opts.MaxBody, opts.MaxHeader
	about.Limits.MaxPageSize = maxLimit
	about.Limits.MaxTokenName, about.Limits.MaxTokens = plantstore.MaxTokenName, plantstore.MaxTokens
	about.Limits.MaxWebhooks = plantstore.MaxWebhooks
	return about
}

// getAbout responds with what the server is, and the caller's limits.
func (s *Server) getAbout(w http.ResponseWriter, r *http.Request) error {
	caller := w.(*recorder).caller
	about := s.about
	about.Limits.RateLimit = caller.RateLimit()
	if caller.Allows(plantstore.ScopeRead) {
		stats, err := s.store.Stats(r.Context())
		if err != nil {
			return err
		}
		about.Plants = &stats.Plants
	}
	w.Header()["Cache-Control"] = headerNoStore
	return writeJSON(w, http.StatusOK, append(wire.EncodeAbout(about), '\n'))
}
