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

// lockVersion locks the one row that every store has, and so the store against
// others who lock it.
const lockVersion = "SELECT version FROM plantstore_schema WHERE id = 1 FOR UPDATE"

// readCommitted has a statement see what was committed while it waited for a lock.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// migrate brings the database's schema to the newest one that this binary knows,
// unless that has been done. One call at a time does it, for as long as its ctx
// lasts; the others wait for it, for as long as patience does.
func (s *Store) migrate(ctx, patience context.Context) error {
	if s.migrated.Load() {
		return nil
	}
	select {
	case s.migrating <- struct{}{}:
		defer func() { <-s.migrating }()
	case <-patience.Done():
		return lostError{patience.Err()}
	}
	if s.migrated.Load() {
		return nil
	}
	if err := s.with(ctx, s.write, migrateSchema); err != nil {
		return err
	}
	s.migrated.Store(true)
	return nil
}

// migrateSchema makes the missing steps in one transaction, in which the row of
// plantstore_schema is locked: of several replicas that start at once, one does
// it. The n-th file of schema/ makes version n.
func migrateSchema(ctx context.Context, c *pgx.Conn) error {
	if e := c.PgConn().ParameterStatus("server_encoding"); e != "" && e != "UTF8" {
		return fmt.Errorf("the database has the encoding %s: Plantstore needs one with ENCODING 'UTF8'", e)
	}
	steps, err := fs.Glob(schemaFiles, "schema/*.sql")
	if err != nil {
		return err
	}
	version, err := schemaVersion(ctx, c)
	if err != nil || version == len(steps) {
		return err
	}
	return pgx.BeginTxFunc(ctx, c, readCommitted, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO plantstore_schema (id, version) VALUES (1, 0) ON CONFLICT (id) DO NOTHING"); err != nil {
			return err
		}
		var version int
		if err := tx.QueryRow(ctx, lockVersion).Scan(&version); err != nil {
			return err
		}
		if version > len(steps) {
			return fmt.Errorf("%w: its schema is version %d, this binary knows up to %d; start the newer binary",
				ErrNewerSchema, version, len(steps))
		}
		for i, step := range steps[version:] {
			if err := takeStep(ctx, tx, step); err != nil {
				return fmt.Errorf("migrate to schema %d: %w", version+i+1, err)
			}
		}
		_, err := tx.Exec(ctx, "UPDATE plantstore_schema SET version = $1 WHERE id = 1", len(steps))
		return err
	})
}

func takeStep(ctx context.Context, tx pgx.Tx, step string) error {
	script, err := schemaFiles.ReadFile(step)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, string(script))
	if sqlState(err) == duplicateTable {
		return fmt.Errorf("%w: the database holds another program's tables, give Plantstore one of its own", err)
	}
	return err
}

// schemaVersion returns the version without locking anything, so that a start
// where nothing is to be done needs no right to change the schema. It is 0 for an
// empty database, which then has the table that keeps it.
func schemaVersion(ctx context.Context, c *pgx.Conn) (version int, err error) {
	const look = "SELECT coalesce(max(version), 0) FROM plantstore_schema"
	err = c.QueryRow(ctx, look).Scan(&version)
	if sqlState(err) != undefinedTable {
		return version, err
	}
	_, err = c.Exec(ctx, "CREATE TABLE IF NOT EXISTS plantstore_schema (id integer PRIMARY KEY, version integer NOT NULL)")
	// Where two replicas make the table at once, one of them fails, in spite of IF
	// NOT EXISTS, when the other is done. So what counts is whether it is there.
	if missing := c.QueryRow(ctx, look).Scan(&version); err == nil || missing == nil {
		return version, missing
	}
	return 0, err
}
