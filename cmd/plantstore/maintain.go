package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"plantstore"
	"plantstore/internal/sqlite"
)

type checkCommand struct {
	storeFlags
	JSON bool `name:"json" help:"Print JSON: whether the store is intact, and its problems."`
}

// Help is the long part of the help page.
func (checkCommand) Help() string {
	return `Reads the whole store, even while a server is using it. Exits with 0 if the store is intact; otherwise prints the problems and exits with 1.`
}

func (c *checkCommand) Run(ctx context.Context, std streams) error {
	if c.isPostgres() {
		return usage("check a PostgreSQL store with PostgreSQL's own pg_amcheck")
	}
	problems, err := c.check(ctx)
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

func (c *checkCommand) check(ctx context.Context) (problems []string, err error) {
	store, err := openFile(c.DB, sqlite.Existing)
	if errors.Is(err, plantstore.ErrDamaged) {
		return []string{err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if problems, err = store.Check(ctx); err != nil {
		return nil, fmt.Errorf("cannot check the store: %w", err)
	}
	return problems, nil
}
