package main

import (
	"context"
	"time"

	"plantstore/internal/app"
)

// healthcheckCommand has the flags of serve that say where the server listens, so that it
// can run beside the server with the same environment or configuration file.
type healthcheckCommand struct {
	Config string `env:"PLANTSTORE_CONFIG" placeholder:"FILE" help:"The server's configuration file."`
	Addr   string `default:"127.0.0.1:8080" env:"PLANTSTORE_ADDR" placeholder:"HOST:PORT" help:"Where the server listens (${default}), or unix:PATH."`
	tlsFlags
	Timeout time.Duration `default:"5s" placeholder:"TIME" help:"How long to wait (${default})."`
}

func (healthcheckCommand) Help() string {
	return `Exits with 0 if the server on this machine is ready, and with 1 otherwise. It is meant for containers, whose image has no other program.`
}

func (c *healthcheckCommand) Run(ctx context.Context) error {
	if err := app.CheckAddr(c.Addr); err != nil {
		return usage("--addr %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	name := ""
	if len(c.ACMEDomain) > 0 {
		name = c.ACMEDomain[0]
	}
	return app.CheckReady(ctx, c.Addr, c.tlsFlags.enabled(), name)
}
