// Command eager serves a store as plantstore serve does, with options that make rare states
// frequent: it flushes after a few plants, and repeats a delivery that failed at once. Tests
// that kill it at random meet every step of both. It has an index of names, however few plants there are.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"plantstore"
	"plantstore/internal/app"
	"plantstore/internal/postgres"
	"plantstore/internal/rules"
	"plantstore/internal/sqlite"
	"plantstore/internal/webhook"
)

func main() {
	flags := flag.NewFlagSet("eager serve", flag.ExitOnError)
	addr, db := flags.String("addr", "", "where to listen"), flags.String("db", "", "the store")
	flags.String("log-format", "json", "it knows no other")
	opts := app.Options{
		Version: "eager", OwnsProcess: true, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
		StoreTimeout: 30 * time.Second, MaxQueue: 8192, LogKeep: 7 * 24 * time.Hour, LogMaxBytes: 1 << 30, SearchIndex: rules.IndexOn, MaxBody: 1 << 20, MaxHeader: 32 << 10,
		ReadHeaderTimeout: time.Minute, ReadTimeout: 30 * time.Second, WriteTimeout: 90 * time.Second, IdleTimeout: 2 * time.Minute,
		ExportTimeout: time.Hour, ShutdownTimeout: time.Minute,
		WebhookDelays: webhook.Delays{Attempt: 2 * time.Second, First: 200 * time.Millisecond, Max: time.Second},
	}
	flags.Func("webhook-allow", "a network", func(text string) error {
		network, err := netip.ParsePrefix(text)
		opts.WebhookAllow = []netip.Prefix{network}
		return err
	})
	_ = flags.Parse(os.Args[2:]) // exits on an error
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *addr, *db, opts); err != nil {
		fmt.Fprintln(os.Stderr, "eager:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, addr, db string, opts app.Options) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	store, err := open(db, opts.Log)
	if err != nil {
		return err
	}
	first := plantstore.Token{Name: "first", Scopes: plantstore.AllScopes(), Created: time.Now(), Hash: plantstore.HashSecret(os.Getenv("PLANTSTORE_BOOTSTRAP_TOKEN"))}
	for err = plantstore.ErrRetry; errors.Is(err, plantstore.ErrRetry) && ctx.Err() == nil; {
		_, err = store.CreateFirstToken(ctx, first)
	}
	if err != nil && !errors.Is(err, plantstore.ErrDamaged) { // a damaged store is served, and says so
		return errors.Join(err, store.Close())
	}
	opts.Listener, opts.Store, opts.BaseURL = listener, store, &url.URL{Scheme: "http", Host: listener.Addr().String()}
	server, err := app.New(opts)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	opts.Log.Info("serving", "url", opts.BaseURL.String(), "addr", opts.BaseURL.Host)
	err = server.Run(ctx)
	if file, ok := store.(*sqlite.Store); ok && err == nil {
		err = file.Damaged()
	}
	return err
}

func open(db string, log *slog.Logger) (plantstore.Store, error) {
	if strings.HasPrefix(db, "postgres") {
		return postgres.Open(db, postgres.Options{Log: log})
	}
	store, err := sqlite.Open(db, sqlite.Serve)
	if err != nil {
		return nil, err
	}
	store.Log = log
	store.GenerationLimit.Rows = 20
	return store, nil
}
