package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
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
	network, addr := app.LocalAddr(c.Addr)
	// The connection is to this machine, so the certificate need not be verified.
	config := &tls.Config{InsecureSkipVerify: true}
	scheme := "http"
	if c.tlsFlags.enabled() {
		scheme = "https"
	}
	if len(c.ACMEDomain) > 0 {
		config.ServerName = c.ACMEDomain[0]
	}
	web := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: config,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://localhost/readyz", nil)
	if err != nil {
		return err
	}
	response, err := web.Do(r)
	if err != nil {
		return fmt.Errorf("the server does not respond: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return fmt.Errorf("the server is not ready: %s", strings.TrimSpace(string(text)))
	}
	return nil
}
