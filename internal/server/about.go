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
func (s *Server) getAbout(c *call) error {
	about := s.about
	about.Limits.RateLimit = c.caller.RateLimit()
	if c.caller.Allows(plantstore.ScopeRead) {
		stats, err := s.store.Stats(c.r.Context())
		if err != nil {
			return err
		}
		about.Plants = &stats.Plants
	}
	c.Header()["Cache-Control"] = headerNoStore
	return writeJSON(c, http.StatusOK, append(wire.EncodeAbout(about), '\n'))
}
