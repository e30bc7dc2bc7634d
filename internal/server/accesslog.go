package server

import (
	"log/slog"
	"net/http"
	"time"
)

// logAccess writes the line of a request to the access log, if there is one. It has no
// path, which has ids of plants, and no secret.
//
// It calls the handler itself: a [slog.Logger] would look up the source line, which the
// access log does not show.
func (s *Server) logAccess(rec *recorder, r *http.Request, id string, start time.Time, took time.Duration) {
	if s.accessLog == nil {
		return
	}
	token := ""
	if rec.caller != nil {
		token = rec.caller.Public
	}
	line := slog.NewRecord(start.Add(took), slog.LevelInfo, "access", 0)
	line.AddAttrs(slog.String("request", id), slog.String("token", token), slog.String("operation", rec.operation),
		slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes), slog.String("took", took.String()), slog.String("from", s.guard.From(r)))
	_ = s.accessLog.Handle(r.Context(), line) // there is nowhere to report it
}
