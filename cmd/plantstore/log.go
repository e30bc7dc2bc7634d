package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"plantstore/internal/cli"
)

func parseLevel(name string) (level slog.Level) {
	if err := level.UnmarshalText([]byte(name)); err != nil {
		panic("parse a level that the flag allows: " + err.Error())
	}
	return level
}

// changeLevelOnHangup changes the level of the log on SIGHUP, until the returned function is
// called: to that in the configuration file, or if there is none, to debug and back. On a
// terminal SIGHUP means that the terminal is gone, and ends the process.
func (c *serveCommand) changeLevelOnHangup(level *slog.LevelVar, app *kong.Node, log *slog.Logger) (stop func()) {
	hangups, stopped := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer close(stopped)
		for range hangups {
			c.changeLevel(level, app, log)
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
		<-stopped
	}
}

func (c *serveCommand) changeLevel(level *slog.LevelVar, app *kong.Node, log *slog.Logger) {
	settings, err := cli.ReadSettings(c.Config, settingsOf(app))
	next, inFile := settings["log-level"]
	switch {
	case err != nil:
		log.Warn("the configuration cannot be read again, the level stays", "err", err)
		return
	case inFile:
		level.Set(parseLevel(next))
	case level.Level() == slog.LevelDebug:
		level.Set(parseLevel(c.LogLevel))
	default:
		level.Set(slog.LevelDebug)
	}
	// Whatever the level is.
	log.LogAttrs(context.Background(), max(slog.LevelInfo, level.Level()), "the level of the log has changed", slog.String("to", level.Level().String()))
}
