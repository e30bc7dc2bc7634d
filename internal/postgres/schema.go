package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"plantstore"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// steps are the files of schema/ in order. The first makes the schema base in an empty database,
// and each of the others the next schema.
var steps, _ = fs.Glob(schemaFiles, "schema/*.sql") // the pattern is valid

// base is the schema of release 0.2.0, the first.
const base = 9

// newest is the newest schema that this release supports.
var newest = base + len(steps) - 1

// Schema returns the newest schema that this release supports.
func Schema() int { return newest }

var (
	// ErrNewerSchema says that a newer Plantstore wrote the store.
	ErrNewerSchema = errors.New("a newer Plantstore wrote this store")
	// ErrOlderSchema says that the store has not been migrated to this release's schema, or
	// cannot be.
	ErrOlderSchema = errors.New("an older Plantstore wrote this store")
)

// otherSchema is one of these errors and, for clients, ErrUnavailable with the same message.
type otherSchema struct{ is, error error }

func (e otherSchema) Error() string        { return e.error.Error() }
func (e otherSchema) Is(target error) bool { return target == e.is }
func (e otherSchema) Unwrap() error        { return e.error }

// schemaError returns an error for a schema that cannot be used, with what it supports and what to do.
func schemaError(is error, version int, advice string) error {
	return otherSchema{is, plantstore.Errorf(plantstore.ErrUnavailable, "%v: its schema is version %d, this release %s", is, version, advice)}
}

// No release writes to a schema that it may not write to (decision 0017): every transaction that
// changes something MUST begin with fence, or call create_plants. From then on it has a lock on the
// table log_state, which a migration waits for. If the migration was first, the statement waits,
// sees the new oldest_writer, sets it to NULL, and fails.
//
// fence changes nothing, and locks no row. Whether it is prepared or not, it locks the table
// stored_plants first, as create_plants does, and so does a migration: they do not deadlock.
var fence = fmt.Sprintf(`WITH plants AS (SELECT FROM stored_plants LIMIT 0),
		fence AS (UPDATE log_state SET oldest_writer = NULL WHERE id = 1 AND oldest_writer > %d)
	SELECT FROM plants`, newest)

// writeSettings are the settings of a transaction that writes. Its commit must be on disk when
// it returns, even if the server, the database or the role has synchronous_commit=off. Statements
// with many ids look so expensive that PostgreSQL would compile them, which takes longer than to
// execute them.
const writeSettings = `SELECT CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, set_config('jit', 'off', true)`

// beginWrite begins a transaction whose statements see what was committed while they waited
// for a lock.
const beginWrite = `BEGIN ISOLATION LEVEL READ COMMITTED`

// queueBegin queues the begin of a transaction that writes, with these statements at its start.
func queueBegin(b *pgx.Batch, first ...string) {
	b.Queue(beginWrite)
	b.Queue(fence)
	b.Queue(writeSettings)
	for _, statement := range first {
		b.Queue(statement)
	}
}

// inTransaction runs f in a transaction that writes, with these statements at its start, and
// commits it unless f fails.
func inTransaction(ctx context.Context, c *pgx.Conn, f func() error, first ...string) error {
	var b pgx.Batch
	queueBegin(&b, first...)
	if err := c.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	_, err := c.Exec(ctx, "COMMIT")
	return err
}

// meetsOtherSchema reports whether a statement failed because the schema was migrated: the
// release may not write to it, or something has another name.
func meetsOtherSchema(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == notNullViolation && pg.TableName == "log_state" && pg.ColumnName == "oldest_writer" || strings.HasPrefix(pg.Code, "42"))
}

// checkSchema looks at the schema again after a statement failed, and returns ErrNewerSchema,
// which it logs once, if that is why.
func (s *Store) checkSchema(ctx context.Context, failed error) error {
	first := s.migrated.CompareAndSwap(true, false)
	err := s.migrate(ctx)
	if err == nil {
		return failed
	}
	if first && errors.Is(err, ErrNewerSchema) {
		s.opts.Log.Error("this server refuses everything from now on", "db", s.name, "err", err)
	}
	return err
}

// lockVersion locks the only row of plantstore_schema until the end of the transaction, so
// that those of several servers take turns. PostgreSQL logs the lock, so that the commit waits
// for the standbys even if the transaction changes nothing.
const lockVersion = "SELECT version FROM plantstore_schema WHERE id = 1 FOR UPDATE"

// migrate brings the database's schema to the newest version that this release supports,
// unless that has been done, or a newer release has brought it to one that this release may
// write to. One call at a time does so. A migration may take until its ctx ends; everything
// else has the usual timeout. Once the store has met a schema that it may not write to, it
// refuses everything until it is opened again.
func (s *Store) migrate(ctx context.Context) error {
	if s.migrated.Load() {
		return nil
	}
	if newer := s.newer.Load(); newer != nil {
		return *newer
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
	var version int
	err := s.withPooledConn(limited, s.write, func(ctx context.Context, c *pgx.Conn) (err error) {
		version, err = schemaVersion(ctx, c, s.opts.Existing)
		switch {
		case err == nil && version > newest:
			err = checkWriter(ctx, c, version)
		case err == nil && 0 < version && version < base:
			err = schemaError(ErrOlderSchema, version,
				fmt.Sprintf("supports schemas from %d on; export the plants with the release that wrote it, and import them into a new store with this one", base))
		case err == nil && s.opts.Alongside && 0 < version && version < newest:
			err = schemaError(ErrOlderSchema, version,
				fmt.Sprintf("uses schema %d; start a server of this release first, which migrates it", newest))
		}
		return err
	})
	if err == nil && version < newest {
		err = s.migrateSchema(ctx)
	}
	if errors.Is(err, ErrNewerSchema) {
		s.newer.Store(&err)
	}
	if err == nil {
		s.used.Store(true)
		s.migrated.Store(true)
	}
	return err
}

// checkWriter returns ErrNewerSchema if this release may not write to the schema, which has
// that version.
func checkWriter(ctx context.Context, c *pgx.Conn, version int) error {
	oldest, err := oldestWriter(ctx, c)
	if err == nil && oldest > newest {
		return schemaError(ErrNewerSchema, version, fmt.Sprintf("supports schemas up to %d; start the newer one", newest))
	}
	return err
}

// oldestWriter returns the oldest schema whose release may still write.
func oldestWriter(ctx context.Context, c *pgx.Conn) (int, error) {
	return queryOne(ctx, c, pgx.RowTo[int], errNoState, "SELECT oldest_writer FROM log_state WHERE id = 1")
}

// The settings of a migration. Transactions of other servers that wait for the migration
// while it waits for them cannot go on either. So it gives up soon and tries again later,
// but not before PostgreSQL has resolved a deadlock or interrupted an automatic vacuum, which
// it does after deadlock_timeout, 1 s by default. What follows may take any time.
const migrationSettings = `SELECT set_config(name, value, true)
	FROM (VALUES ('lock_timeout', '3s'), ('statement_timeout', '0'), ('transaction_timeout', '0')) AS settings (name, value)
	WHERE current_setting(name, true) IS NOT NULL`

// selectTables has the store's tables, in the order in which a migration locks them.
const selectTables = `SELECT string_agg(oid::regclass::text, ', ' ORDER BY relname <> 'stored_plants', relname) FROM pg_class
	WHERE relkind = 'r' AND oid <> 'plantstore_schema'::regclass AND pg_has_role(relowner, 'USAGE')
		AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'plantstore_schema'::regclass)`

// migrateSchema migrates the schema, as soon as transactions of other servers allow it.
func (s *Store) migrateSchema(ctx context.Context) error {
	for delays := slowDelays; ; {
		err := s.withPooledConn(ctx, s.write, s.applySteps)
		if code := sqlState(err); code != lockNotAvailable && code != deadlockDetected {
			return err
		}
		s.opts.Log.Warn("the migration waits for transactions of others to end, retrying", "db", s.name, "err", err)
		if !delays.Wait(ctx) {
			return err
		}
	}
}

// applySteps applies the missing steps in one transaction that locks the row of
// plantstore_schema: of several replicas that start at once, one does it. It then locks all
// tables, which waits for every transaction that has written to them, and no other can until
// the end.
func (s *Store) applySteps(ctx context.Context, c *pgx.Conn) error {
	start := time.Now()
	if _, err := c.Exec(ctx, beginWrite); err != nil {
		return err
	}
	if _, err := c.Exec(ctx, "INSERT INTO plantstore_schema (id, version) VALUES (1, 0) ON CONFLICT (id) DO NOTHING"); err != nil {
		return err
	}
	var version int
	if err := c.QueryRow(ctx, lockVersion).Scan(&version); err != nil {
		return err
	}
	if version >= newest {
		return checkWriter(ctx, c, version)
	}
	if err := lockTables(ctx, c); err != nil {
		return err
	}
	first := max(version+1, base)
	for i, step := range steps[first-base:] {
		began := time.Now()
		if version > 0 {
			s.opts.Log.Info("migrating the store: this may take a minute if its log of changes is large", "db", s.name, "schema", first+i)
		}
		if err := applyStep(ctx, c, step); err != nil {
			return fmt.Errorf("migrate to schema %d: %w", first+i, err)
		}
		if version > 0 {
			s.opts.Log.Info("applied a step of the migration", "db", s.name, "schema", first+i,
				"step", path.Base(step), "took", time.Since(began))
		}
	}
	if _, err := c.Exec(ctx, "UPDATE plantstore_schema SET version = $1 WHERE id = 1", newest); err != nil {
		return err
	}
	oldest, err := oldestWriter(ctx, c)
	if err != nil {
		return err
	}
	if _, err := c.Exec(ctx, "COMMIT"); err != nil || version == 0 {
		return err
	}
	message := "migrated the store"
	if oldest > version {
		message += ": servers of earlier releases can no longer write"
	}
	s.opts.Log.Info(message, "db", s.name, "from", version, "to", newest, "took", time.Since(start))
	return nil
}

// lockTables locks the tables of the store, if it has any, for the rest of the transaction.
func lockTables(ctx context.Context, c *pgx.Conn) error {
	if _, err := c.Exec(ctx, migrationSettings); err != nil {
		return err
	}
	var tables *string
	if err := c.QueryRow(ctx, selectTables).Scan(&tables); err != nil || tables == nil {
		return err
	}
	_, err := c.Exec(ctx, "LOCK TABLE "+*tables+" IN ACCESS EXCLUSIVE MODE")
	return err
}

func applyStep(ctx context.Context, c *pgx.Conn, step string) error {
	script, err := schemaFiles.ReadFile(step)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, string(script))
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
