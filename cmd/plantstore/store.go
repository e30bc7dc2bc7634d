package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

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

// isPostgres reports whether the store is a PostgreSQL database and not a file.
func (f storeFlags) isPostgres() bool {
	return strings.HasPrefix(f.DB, "postgres://") || strings.HasPrefix(f.DB, "postgresql://")
}

// urlForm is the form of the URL of a store.
const urlForm = "postgres://user:password@host:5432/database"

// urlScheme matches the scheme of a URL, which is no secret.
var urlScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// check refuses an empty name, a URL of an unknown kind, and text that is not meant as the
// name of a file, such as the keywords that libpq accepts. It does not repeat them: they may
// contain a password.
func (f storeFlags) check() error {
	switch {
	case f.DB == "":
		return usage("--db must not be empty: use the path of a file, or " + urlForm)
	case f.isPostgres() && strings.Contains(f.DB, "pool_max_conns="):
		return usage("--db must not have pool_max_conns: use --db-connections of serve, which counts all connections to PostgreSQL")
	case f.isPostgres(), strings.HasPrefix(f.DB, "./"), filepath.IsAbs(f.DB):
		return nil
	case urlScheme.MatchString(f.DB):
		return usage("--db: unknown scheme %s: use the path of a file, or "+urlForm, urlScheme.FindString(f.DB))
	case strings.Contains(f.DB, "="), strings.Contains(f.DB, "://"):
		return usage("--db must be the path of a file, which begins with ./ or / if it has = or ://, or a URL: " + urlForm)
	}
	return nil
}

// open opens a store. Of the options, only Log is for a file too.
func (f storeFlags) open(ctx context.Context, mode sqlite.Mode, opts postgres.Options) (plantstore.Store, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if f.isPostgres() {
		opts.Existing = mode == sqlite.Existing
		return f.openPostgres(ctx, opts)
	}
	store, err := sqlite.OpenLogged(f.DB, mode, opts.Log)
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: %w", err)
	}
	return store, nil
}

// openPostgres opens a PostgreSQL store, unless PostgreSQL refuses the user or the database:
// waiting would not help.
func (f storeFlags) openPostgres(ctx context.Context, opts postgres.Options) (*postgres.Store, error) {
	store, err := postgres.Open(f.DB, opts)
	if err != nil {
		return nil, usage("--db: %w", err)
	}
	if err := store.CheckAccess(ctx); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// openAlongside opens the store for a command that may run alongside a server.
func (f storeFlags) openAlongside(ctx context.Context, mode sqlite.Mode) (plantstore.Store, error) {
	return f.open(ctx, mode, postgres.Options{StoreTimeout: callTimeout, Alongside: true})
}

// look opens the store for a command that only reads it, which changes nothing in a file.
func (f storeFlags) look(ctx context.Context, std streams) (plantstore.Store, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if f.isPostgres() {
		return f.openAlongside(ctx, sqlite.Existing)
	}
	return lookAt(ctx, f.DB, std)
}

func lookAt(ctx context.Context, path string, std streams) (*sqlite.Store, error) {
	store, err := sqlite.Look(ctx, path, std.say)
	return store, wrap("cannot open the store", err)
}

func (s streams) say(sentence string) { fmt.Fprintln(s.err, sentence) }

// name returns the store as it may be logged: without a password.
func (f storeFlags) name(store plantstore.Store) string {
	if shared, ok := store.(fmt.Stringer); ok {
		return shared.String()
	}
	return f.DB
}
