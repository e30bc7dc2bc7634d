package main

import (
	"context"
	"errors"
	"fmt"

	"plantstore/internal/sqlite"
)

type checkCommand struct {
	storeFlags
}

// Help is the long part of the help page.
func (checkCommand) Help() string {
	return `Reads the whole store, even while a server is using it. Exits with 0 if the store is intact; otherwise prints the problems and exits with 1.`
}

func (c *checkCommand) Run(ctx context.Context, std streams) error {
	if c.isPostgres() {
		return usage("check a PostgreSQL store with PostgreSQL's own pg_amcheck")
	}
	store, err := openFile(c.DB, sqlite.Existing)
	if err != nil {
		return err
	}
	defer store.Close()
	problems, err := store.Check(ctx)
	if err != nil {
		return fmt.Errorf("cannot check the store: %w", err)
	}
	for _, problem := range problems {
		fmt.Fprintln(std.out, problem)
	}
	if len(problems) > 0 {
		return errors.New("the store is damaged: restore a backup")
	}
	_, err = fmt.Fprintln(std.out, "ok")
	return err
}
