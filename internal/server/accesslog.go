package server

import (
	"log/slog"
	"net/http"
	"time"
)

// logAccess writes the line of a request to the access log, if there is one. It has no
// path, which has ids of plants, and no secret.
func (s *Server) logAccess(rec *recorder, r *http.Request, id string, took time.Duration) {
	if s.accessLog == nil {
		return
	}
	token := ""
	if rec.caller != nil {
		token = rec.caller.Public
	}
	s.accessLog.LogAttrs(r.Context(), slog.LevelInfo, "access",
		slog.String("request", id), slog.String("token", token), slog.String("operation", rec.operation),
		slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes), slog.Duration("took", took), slog.String("from", s.guard.From(r)))
}
