package server

import (
	"net/http"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// newAbout completes what the options say about the server.
func newAbout(opts Options) plantstore.About {
	about := opts.About
	about.Started = time.Now().UTC()
	about.Interface = plantstore.InterfaceVersion
	about.Limits.MaxBody, about.Limits.MaxHeader = opts.MaxBody, opts.MaxHeader
	about.Limits.MaxPageSize = maxLimit
	about.Limits.MaxTokenName, about.Limits.MaxTokens = plantstore.MaxTokenName, plantstore.MaxTokens
	about.Limits.MaxWebhooks = plantstore.MaxWebhooks
	return about
}

func (s *Server) getAbout(c *call) error {
	about := s.About
	about.Limits.RateLimit = c.caller.RateLimit()
	reads, operates := c.caller.Allows(plantstore.ScopeRead), c.caller.Allows(plantstore.ScopeOps)
	var stats plantstore.Stats
	if reads || operates {
		var err error
		if stats, err = s.Store.Stats(c.r.Context()); err != nil {
			return err
		}
	}
	if reads {
		about.Plants = &stats.Plants
	}
	if operates {
		about.Bytes = stats.FileBytes + stats.WALBytes + stats.DatabaseBytes
		about.Log = &plantstore.AboutLog{Events: stats.Events, Bytes: stats.Bytes, Oldest: stats.Oldest}
		about.SearchIndex = &stats.SearchIndex
	} else {
		about.Started = time.Time{}
	}
	return writeNoStore(c, http.StatusOK, wire.EncodeAbout(about))
}
