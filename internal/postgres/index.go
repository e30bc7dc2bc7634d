package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/backoff"
	"plantstore/internal/rules"
)

// The index of names, plants_by_name, is PostgreSQL's: what there is of it is in the catalog. It is valid once it has all
// plants. One that is not is being built or dropped, or that was interrupted.

const (
	// indexInterval is how often Run looks whether the index should be built or dropped.
	indexInterval = time.Second
	// foldSize is how many plants a step examines that folds names of release 0.2.0.
	foldSize = 5000
	// Names that batches add wait in a list of the index, until they are merged into it, mergeText bytes of them or
	// after mergeDelay. Of one byte become about twenty there. A batch merges them itself if the list
	// has 4 MiB, which takes about a tenth of a second: that is if nobody else does.
	mergeText     = 64 << 10
	mergeInterval = 100 * time.Millisecond
	mergeDelay    = time.Second
)

// indexDelays are those after a failure. What fails may have taken minutes.
var indexDelays = backoff.Exponential{Min: time.Second, Max: 5 * time.Minute}

const (
	// selectIndex has the state of the index. Only one server may build it at a time: a second one would wait for
	// the first with a snapshot, for which the first waits in the end. A build has a lock on the table, also while
	// it goes on although its server has died; so does a vacuum, for which a build would wait.
	selectIndex = `SELECT plants, found IS NOT NULL, coalesce(indisvalid, false), EXISTS (
			SELECT FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
				AND relation = 'stored_plants'::regclass AND mode = 'ShareUpdateExclusiveLock'
		)
		FROM log_end(), to_regclass('plants_by_name') AS found LEFT JOIN pg_index ON indexrelid = found`
	// selectTrigrams has the schema of the extension pg_trgm, quoted.
	selectTrigrams  = `SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'pg_trgm'`
	createTrigrams  = `CREATE EXTENSION IF NOT EXISTS pg_trgm`
	countTrigrams   = `SELECT cardinality(%s.show_trgm('жук'))`
	dropIndex       = `DROP INDEX CONCURRENTLY IF EXISTS plants_by_name`
	mergePending    = `SELECT gin_clean_pending_list(to_regclass('plants_by_name'))`
	withoutTimeouts = `SELECT set_config(name, '0', false) FROM unnest('{statement_timeout,lock_timeout,transaction_timeout}'::text[]) AS name
		WHERE current_setting(name, true) IS NOT NULL`

	// selectUnfolded has the last id of $2 plants from $1 on, and those of them that release 0.2.0 left and whose names may have to be
	// folded.
	selectUnfolded = `SELECT max(id), count(*), array_agg(id ORDER BY id) FILTER (WHERE unfolded), array_agg(name ORDER BY id) FILTER (WHERE unfolded) FROM (
			SELECT id, name, updated = 0 AND folded IS NULL AND octet_length(name) < $3 AND octet_length(name) <> char_length(name) AS unfolded
			FROM stored_plants WHERE id >= $1 ORDER BY id LIMIT $2
		) AS part`
	// setFolded leaves a plant alone that has changed meanwhile: its name has been folded.
	setFolded = `UPDATE stored_plants SET folded = new.folded FROM unnest($1::bigint[], $2::text[]) AS new (id, folded)
		WHERE stored_plants.id = new.id AND updated = 0`
)

// createIndex has the schema of pg_trgm as its argument.
var createIndex = `CREATE INDEX CONCURRENTLY plants_by_name ON stored_plants USING gin (` + indexedText + ` %s.gin_trgm_ops) WITH (gin_pending_list_limit = 4096)`

// errNoTrigrams says why the database cannot have an index of names.
var errNoTrigrams = errors.New("the database cannot have an index of names")

// IndexNames says when there is an index of names, which searches use. It must be called before
// Run. Servers that share a database should agree.
func (s *Store) IndexNames(when rules.IndexMode) { s.indexNames = when }

// keepIndex builds or drops the index of names, until ctx ends or it turns out that the database cannot
// have one.
func (s *Store) keepIndex(ctx context.Context) {
	failing := false
	delays := indexDelays
	for {
		err := s.stepIndex(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errNoTrigrams):
			s.opts.Log.Warn("searches examine all plants, until the server is started again", "db", s.name, "err", err)
			return
		case err != nil:
			if !failing {
				s.opts.Log.Warn("cannot build or drop the index of names, retrying", "db", s.name, "err", err)
			}
			failing = true
			delays.Wait(ctx)
			continue
		}
		failing, delays = false, indexDelays
		select {
		case <-ctx.Done():
			return
		case <-time.After(indexInterval - rand.N(indexInterval/2)): // not all servers at the same time
		}
	}
}

// stepIndex looks at the index, and builds or drops it if it should.
func (s *Store) stepIndex(ctx context.Context) error {
	var plants int64
	var exists, valid, busy bool
	err := s.withConn(ctx, s.lookups, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, selectIndex).Scan(&plants, &exists, &valid, &busy)
	})
	if err != nil {
		return err
	}
	s.indexed.Store(exists)
	wanted := s.indexNames.Wants(plants, exists)
	switch {
	case busy, exists && valid && wanted, !exists && !wanted:
		return nil
	case exists: // and is not wanted, or was left by somebody who could not finish it
		return s.alterIndex(ctx, dropIndex)
	}
	return s.buildIndex(ctx)
}

// buildIndex builds the index, from names that are all folded.
func (s *Store) buildIndex(ctx context.Context) error {
	schema, err := s.trigrams(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	s.opts.Log.Info("building the index of names", "db", s.name)
	s.building.Store(true)
	defer s.building.Store(false)
	if err := s.foldNames(ctx); err != nil {
		return err
	}
	s.indexed.Store(true) // batches add to it before it is valid
	if err := s.alterIndex(ctx, fmt.Sprintf(createIndex, schema)); err != nil {
		return err
	}
	s.opts.Log.Info("built the index of names", "db", s.name, "took", time.Since(start))
	return nil
}

// trigrams returns the schema of pg_trgm, which it creates in the database, or errNoTrigrams.
func (s *Store) trigrams(ctx context.Context) (schema string, err error) {
	reason := "" // why it cannot be used
	err = s.withConn(ctx, s.lookups, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
		err := c.QueryRow(ctx, selectTrigrams).Scan(&schema)
		if errors.Is(err, pgx.ErrNoRows) {
			_, err = c.Exec(ctx, createTrigrams)
			switch {
			case err == nil, sqlState(err) == uniqueViolation: // another server has just created it
				err = c.QueryRow(ctx, selectTrigrams).Scan(&schema)
			case sqlState(err) != "" && !isTransient(err):
				reason = fmt.Sprintf("the extension pg_trgm cannot be created: %v", err)
				return nil
			}
		}
		if err != nil {
			return err
		}
		var found int
		switch err = c.QueryRow(ctx, fmt.Sprintf(countTrigrams, schema)).Scan(&found); {
		case sqlState(err) != "" && !isTransient(err):
			reason = fmt.Sprintf("pg_trgm does not work: %v", err)
		case err != nil:
			return err
		case found == 0:
			reason = "its LC_CTYPE has no letters beyond ASCII, as C and POSIX; create one with, for example, LC_CTYPE 'C.UTF-8'"
		}
		return nil
	})
	if err == nil && reason != "" {
		err = fmt.Errorf("%w: %s", errNoTrigrams, reason)
	}
	return schema, err
}

// isTransient reports whether another attempt may succeed.
func isTransient(err error) bool {
	switch code := sqlState(err); code[:2] {
	case "08", "25", "40", "53", "55", "57", "58":
		return code != "58P01" // a file is missing
	}
	return false
}

// foldNames folds the names that release 0.2.0 has left, in bounded steps. If it is interrupted, the next time it skips
// those that it has written.
func (s *Store) foldNames(ctx context.Context) error {
	var f folder
	var all plantstore.Query
	for first, more := all.First(); more; {
		var last, plants *int64
		var ids []int64
		var names []string
		err := s.withConn(ctx, s.list, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, selectUnfolded, int64(first), foldSize, maxIndexedName).Scan(&last, &plants, &ids, &names)
		})
		if err != nil || last == nil {
			return err
		}
		folded := columns{}
		for i, name := range names {
			if text := f.folded(name, unescape(name)); text != nil {
				folded.ids, folded.names = append(folded.ids, ids[i]), append(folded.names, *text)
			}
		}
		if err := s.setFolded(ctx, folded); err != nil {
			return err
		}
		if first, more = all.Following(plantstore.ID(*last)); *plants < foldSize {
			more = false
		}
	}
	return nil
}

// setFolded stores folded names. If it is lost in a crash, so is an index that was built later.
func (s *Store) setFolded(ctx context.Context, folded columns) error {
	if len(folded.ids) == 0 {
		return nil
	}
	return s.withConn(ctx, s.write, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
		return inTransaction(ctx, c, func() error {
			if _, err := c.Exec(ctx, lockPlants, folded.ids); err != nil { // in the order of others
				return err
			}
			_, err := c.Exec(ctx, setFolded, folded.ids, folded.names)
			return err
		}, commitAsync)
	})
}

// alterIndex builds or drops the index, which waits for every transaction that began before. A role's timeouts
// do not apply, except behind a pooler, where settings may meet another connection. It uses a connection of the exports.
func (s *Store) alterIndex(ctx context.Context, statement string) error {
	return s.withConn(ctx, s.export, 0, func(ctx context.Context, c *pgx.Conn) error {
		if c.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
			if _, err := c.Exec(ctx, withoutTimeouts); err != nil {
				return err
			}
			defer c.Exec(ctx, "RESET ALL")
		}
		_, err := c.Exec(ctx, statement)
		return err
	})
}

// noteNames takes note of the names that a batch is about to add to the index.
func (s *Store) noteNames(batch []plantstore.Write) {
	if !s.indexed.Load() {
		return
	}
	text := 0
	for i := range batch {
		text += min(len(batch[i].Plant.Name), maxIndexedName)
	}
	s.unmerged.Add(int64(text))
}

// keepMerged merges what batches have added to the index, so that no batch has to. It uses a connection of
// the lists: a merge takes about as long as a search.
func (s *Store) keepMerged(ctx context.Context) {
	last := time.Now()
	eachTick(ctx, mergeInterval, func() {
		for text := s.unmerged.Load(); text >= mergeText || text > 0 && time.Since(last) >= mergeDelay; text = s.unmerged.Load() {
			last = time.Now()
			// If it fails, batches do it.
			_ = s.withConn(ctx, s.list, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
				_, err := c.Exec(ctx, mergePending)
				return err
			})
			s.unmerged.Add(-text)
		}
	})
}
