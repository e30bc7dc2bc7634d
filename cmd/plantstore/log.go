package main

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

func newLogger(out io.Writer, format, levelName string) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(levelName)); err != nil {
		panic("parse a level that the flag allows: " + err.Error())
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: readableDurations}
	if format == "text" || format == "auto" && isTerminal(out) {
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

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
