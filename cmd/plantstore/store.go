package main

import (
	"context"
	"fmt"
	"strings"

	"plantstore"
	"plantstore/internal/sqlite"
)

// storeFlags say which store a command opens itself.
type storeFlags struct {
	DB string `name:"db" default:"plantstore.db" placeholder:"FILE" help:"The store: the path of a file (${default})."`
}

// openedStore is a store with its work in the background, which Run does.
type openedStore interface {
	plantstore.Store
	Run(ctx context.Context) error
	Check(ctx context.Context) (problems []string, err error)
	Backup(ctx context.Context, file string) error
}

func (f storeFlags) open(mode sqlite.Mode) (openedStore, error) {
	if scheme, _, isURL := strings.Cut(f.DB, "://"); isURL {
		return nil, usage("--db: a %s store is not known: give the path of a file", scheme)
	}
	store, err := sqlite.Open(f.DB, mode)
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: %w", err)
	}
	return store, nil
}
