package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"plantstore"
	"plantstore/internal/postgres"
	"plantstore/internal/sqlite"
)

type configFlags struct {
	Config string `env:"PLANTSTORE_CONFIG" placeholder:"FILE" help:"A TOML file of settings, named as the flags of serve; flags and environment variables override it."`
}

// storeFlags say which store a command opens.
type storeFlags struct {
	configFlags
	DB string `name:"db" default:"plantstore.db" env:"PLANTSTORE_DB" placeholder:"FILE|URL" help:"The store: the path of a file (${default}), or postgres://user:password@host:5432/database."`
}

// openedStore is a store with background work, which Run does. KeepLog, called before
// Run, limits how much of the log of changes is kept.
type openedStore interface {
	plantstore.Store
	KeepLog(age time.Duration, bytes int64)
	Run(ctx context.Context) error
}

// isPostgres reports whether the store is a PostgreSQL database and not a file.
func (f storeFlags) isPostgres() bool {
	return strings.HasPrefix(f.DB, "postgres://") || strings.HasPrefix(f.DB, "postgresql://")
}

// check refuses an empty name and a URL of an unknown kind.
func (f storeFlags) check() error {
	if f.DB == "" {
		return usage("--db must not be empty: use the path of a file, or a URL that begins with postgres://")
	}
	if scheme, _, isURL := strings.Cut(f.DB, "://"); isURL && !f.isPostgres() {
		return usage("--db: unknown scheme %s://: use the path of a file, or a URL that begins with postgres://", scheme)
	}
	return nil
}

// open opens a store. Of the options, only Log is for a file too.
func (f storeFlags) open(mode sqlite.Mode, opts postgres.Options) (openedStore, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if f.isPostgres() {
		opts.Existing = mode == sqlite.Existing
		store, err := postgres.Open(f.DB, opts)
		if err != nil {
			return nil, usage("--db: %w", err)
		}
		return store, nil
	}
	store, err := sqlite.Open(f.DB, mode)
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: %w", err)
	}
	store.Log = opts.Log
	return store, nil
}

// openAlongside opens the store for a command that may run alongside a server.
func (f storeFlags) openAlongside(mode sqlite.Mode) (openedStore, error) {
	return f.open(mode, postgres.Options{StoreTimeout: callTimeout, Alongside: true})
}

// look opens the store for a command that only reads it, which changes nothing in a file.
func (f storeFlags) look(ctx context.Context, std streams) (openedStore, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if f.isPostgres() {
		return f.openAlongside(sqlite.Existing)
	}
	return lookAt(ctx, f.DB, std)
}

func lookAt(ctx context.Context, path string, std streams) (*sqlite.Store, error) {
	store, err := sqlite.Look(ctx, path, std.say)
	return store, wrap("cannot open the store", err)
}

func (s streams) say(sentence string) { fmt.Fprintln(s.err, sentence) }

// name returns the store as it may be logged: without a password.
func (f storeFlags) name(store openedStore) string {
	if shared, ok := store.(fmt.Stringer); ok {
		return shared.String()
	}
	return f.DB
}
