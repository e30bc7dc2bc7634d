package app

import (
	"io"
	"log/slog"
)

// NewLogger returns the log of a server, as text or as JSON.
func NewLogger(out io.Writer, text bool, level slog.Leveler) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: readableDurations}
	if text {
		return slog.New(slog.NewTextHandler(out, opts))
	}
	return slog.New(slog.NewJSONHandler(out, opts))
}

// readableDurations writes durations as 1.5s, where JSON would have nanoseconds.
func readableDurations(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
