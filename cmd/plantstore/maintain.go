package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"plantstore"
	"plantstore/internal/postgres"
	"plantstore/internal/sqlite"
)

type checkCommand struct {
	storeFlags
	JSON bool `name:"json" help:"Print JSON: whether the store is intact, and its problems."`
}

func (checkCommand) Help() string {
	return `Reads the whole store, even while servers are using it, and changes nothing. Exits with 0 if the store is intact; otherwise prints the problems and exits with 1. A PostgreSQL store is read in one snapshot: the plants, their number and the log of changes must agree. For a store with an older schema that has to be migrated first, or that is not supported, it exits with 2. Check PostgreSQL's own files with pg_amcheck.`
}

func (c *checkCommand) Run(ctx context.Context, std streams) error {
	if err := c.check(); err != nil {
		return err
	}
	check := c.checkFile
	if c.isPostgres() {
		check = c.checkPostgres
	}
	problems, err := check(ctx, std)
	if errors.Is(err, sqlite.ErrOlderSchema) || errors.Is(err, postgres.ErrOlderSchema) {
		return usage("%w", err)
	}
	if err != nil {
		return err
	}
	switch {
	case c.JSON:
		err = json.NewEncoder(std.out).Encode(map[string]any{"intact": len(problems) == 0, "problems": append([]string{}, problems...)})
	case len(problems) == 0:
		_, err = fmt.Fprintln(std.out, "ok")
	default:
		_, err = fmt.Fprintln(std.out, strings.Join(problems, "\n"))
	}
	if len(problems) > 0 {
		return errors.New("the store is damaged: restore a backup")
	}
	return err
}

func (c *checkCommand) checkFile(ctx context.Context, std streams) (problems []string, err error) {
	store, err := lookAt(ctx, c.DB, std)
	if errors.Is(err, plantstore.ErrDamaged) {
		return []string{err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	problems, err = store.Check(ctx)
	return problems, wrap("cannot check the store", errors.Join(err, store.Close()))
}

func (c *checkCommand) checkPostgres(ctx context.Context, _ streams) ([]string, error) {
	store, err := c.openPostgres(ctx, postgres.Options{Existing: true, Alongside: true})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	problems, err := store.Check(ctx)
	return problems, wrap("cannot check the store", err)
}
