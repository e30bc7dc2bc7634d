package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// ErrNewerSchema says that a newer Plantstore wrote the store.
var ErrNewerSchema = errors.New("a newer Plantstore wrote this store")

// lockVersion locks the only row of plantstore_schema, and with it the store against
// others that do the same.
const lockVersion = "SELECT version FROM plantstore_schema WHERE id = 1 FOR UPDATE"

// readCommitted lets a statement see what was committed while it waited for a lock.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// migrate brings the database's schema to the newest version that this release supports,
// unless that has been done. One call at a time does so. A migration may take until
// its ctx ends; everything else has the usual timeout.
func (s *Store) migrate(ctx context.Context) error {
	if s.migrated.Load() {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	select {
	case s.migrating <- struct{}{}:
		defer func() { <-s.migrating }()
	case <-limited.Done():
		return connError{limited.Err()}
	}
	if s.migrated.Load() {
		return nil
	}
	steps, err := fs.Glob(schemaFiles, "schema/*.sql")
	if err != nil {
		return err
	}
	var version int
	err = s.withPooledConn(limited, s.write, func(ctx context.Context, c *pgx.Conn) (err error) {
		version, err = schemaVersion(ctx, c, s.existing)
		return err
	})
	if err == nil && version != len(steps) {
		err = s.withPooledConn(ctx, s.write, func(ctx context.Context, c *pgx.Conn) error {
			return migrateSchema(ctx, c, steps)
		})
	}
	s.migrated.Store(err == nil)
	return err
}

// migrateSchema applies the missing steps in one transaction that locks the row of
// plantstore_schema: of several replicas that start at once, one does it. The n-th
// file of schema/ makes version n.
func migrateSchema(ctx context.Context, c *pgx.Conn, steps []string) error {
	return pgx.BeginTxFunc(ctx, c, readCommitted, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO plantstore_schema (id, version) VALUES (1, 0) ON CONFLICT (id) DO NOTHING"); err != nil {
			return err
		}
		var version int
		if err := tx.QueryRow(ctx, lockVersion).Scan(&version); err != nil {
			return err
		}
		if version > len(steps) {
			return fmt.Errorf("%w: its schema is version %d, this release supports schemas up to %d; start the newer one",
				ErrNewerSchema, version, len(steps))
		}
		for i, step := range steps[version:] {
			if err := applyStep(ctx, tx, step); err != nil {
				return fmt.Errorf("migrate to schema %d: %w", version+i+1, err)
			}
		}
		_, err := tx.Exec(ctx, "UPDATE plantstore_schema SET version = $1 WHERE id = 1", len(steps))
		return err
	})
}

func applyStep(ctx context.Context, tx pgx.Tx, step string) error {
	script, err := schemaFiles.ReadFile(step)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, string(script))
	if sqlState(err) == duplicateTable {
		return fmt.Errorf("%w: the database contains another program's tables; give Plantstore a database of its own", err)
	}
	return err
}

// schemaVersion returns the version without locking anything, so that a start with
// nothing to migrate needs no permission to change the schema. For an empty database
// it creates the table of versions and returns 0, or fails if a store must exist.
func schemaVersion(ctx context.Context, c *pgx.Conn, existing bool) (version int, err error) {
	if e := c.PgConn().ParameterStatus("server_encoding"); e != "" && e != "UTF8" {
		return 0, fmt.Errorf("the database has the encoding %s; Plantstore needs one created with ENCODING 'UTF8'", e)
	}
	const selectVersion = "SELECT coalesce(max(version), 0) FROM plantstore_schema"
	err = c.QueryRow(ctx, selectVersion).Scan(&version)
	noTable := sqlState(err) == undefinedTable
	switch {
	case existing && (noTable || err == nil && version == 0):
		return 0, fmt.Errorf("the database has no store: %w", fs.ErrNotExist)
	case !noTable:
		return version, err
	}
	_, err = c.Exec(ctx, "CREATE TABLE IF NOT EXISTS plantstore_schema (id integer PRIMARY KEY, version integer NOT NULL)")
	// If two replicas create the table at once, one of them fails despite IF NOT
	// EXISTS. What counts is whether the table exists afterwards.
	if missing := c.QueryRow(ctx, selectVersion).Scan(&version); err == nil || missing == nil {
		return version, missing
	}
	return 0, err
}
