package postgres

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/rules"
)

// How the log is trimmed: about maxTrim events in a transaction, as many transactions as
// it takes, every trimInterval. Whole rows are removed.
const (
	maxTrim      = 10_000
	trimInterval = time.Second
)

// The statements of the trimmer. $1 is from what time on the log is kept, and $2 up to how many bytes.
// It does not wait for the disk or for standbys to commit: a trim that is lost is repeated.
var (
	// lockTrimmer finds no row if there is nothing to trim, or while another server trims.
	lockTrimmer = `SELECT FROM plantstore_schema WHERE id = 1 AND EXISTS (
			SELECT FROM log_end()
			WHERE bytes > $2 OR (SELECT time FROM log WHERE first > trimmed ORDER BY first LIMIT 1) < $1
		) FOR UPDATE SKIP LOCKED`
	commitAsync = `SET LOCAL synchronous_commit = off`
	// byIndex has each event that is forgotten looked up: nobody knows how many there are, and to read
	// all of a table instead is unbounded work.
	byIndex = `SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('enable_seqscan', 'off', true)`
	// trimOldest deletes rows with about $3 events, and returns how many events they had. It
	// frees a little more than it must, because the log goes on growing until the next time.
	trimOldest = `WITH state AS MATERIALIZED (
			SELECT trimmed, $1::bigint AS kept, bytes - $2::bigint AS excess FROM log_end()
		), oldest AS (
			SELECT first, time, sum(bytes) OVER (ORDER BY first) - bytes AS freed
			FROM log, state WHERE first > trimmed AND first <= trimmed + $3
		), gone AS (
			DELETE FROM log USING state WHERE first > trimmed AND first <= (
				SELECT max(first) FROM oldest WHERE time < kept OR excess > 0 AND freed < excess + $2 / 64
			) RETURNING first, time, id, type, cardinality(id) AS events, log.plants, bytes AS size
		), forgotten AS (
			DELETE FROM unlinked_events AS unlinked USING (
				SELECT e.id, first + i - 1 AS seq
				FROM log_state, gone, unnest(gone.id, gone.type) WITH ORDINALITY AS e (id, type, i)
				WHERE e.type = 3 OR first <= linked_after
			) AS e WHERE unlinked.id = e.id AND unlinked.seq = e.seq
		)
		UPDATE log_start SET seq = seq + gone.events, time = gone.time, plants = gone.plants, total_bytes = total_bytes + gone.size
		FROM state, (
			SELECT sum(events) AS events, max(time) AS time, (array_agg(plants ORDER BY first DESC))[1] AS plants, sum(size) AS size FROM gone
		) AS gone
		WHERE seq = trimmed AND gone.events > 0 RETURNING gone.events`
	selectStats = `SELECT seq, seq - trimmed, plants, bytes, (SELECT time FROM log WHERE first > trimmed ORDER BY first LIMIT 1),
		pg_database_size(current_database()), indisvalid,
		(SELECT coalesce(plants * blocks_done / nullif(blocks_total, 0), 0) FROM pg_stat_progress_create_index WHERE index_relid = indexrelid LIMIT 1)
		FROM log_end() LEFT JOIN pg_index ON indexrelid = to_regclass('plants_by_name')`
)

// KeepLog sets how long, and up to how many bytes, the log of changes is kept,
// whichever is less; 0 means no limit. Run trims the log. KeepLog must be called before
// it.
func (s *Store) KeepLog(age time.Duration, bytes int64) {
	s.logAge, s.logBytes = math.MaxInt64, math.MaxInt64
	if age > 0 {
		s.logAge = age
	}
	if bytes > 0 {
		s.logBytes = bytes
	}
}

// observeClock takes note of the time of the database's server.
func (s *Store) observeClock(ctx context.Context, c *pgx.Conn) error {
	now, err := queryOne(ctx, c, pgx.RowTo[time.Time], nil, s.selectTime)
	if err == nil {
		s.clock.Observe(now)
	}
	return err
}

// Clock returns the clock of the database's server, by which events have their times.
func (s *Store) Clock() *rules.Clock { return s.clock }

// trimAndReport trims once, logs when that starts to fail and when it works again, and
// reports whether there may be more to trim.
func (s *Store) trimAndReport(ctx context.Context) (more bool) {
	more, err := s.trim(ctx)
	failing := err != nil
	switch {
	case ctx.Err() != nil || failing == s.trimFails:
	case failing:
		s.opts.Log.Warn("cannot trim the log of changes, retrying", "db", s.name, "err", err)
	default:
		s.opts.Log.Info("the log of changes is trimmed again", "db", s.name)
	}
	s.trimFails = failing
	return more
}

// trim removes about trimSize of the events that are not to be kept, the oldest first,
// and reports whether there may be more. It does nothing while another server trims.
//
// Large rows may take longer than a call may, so every failure halves trimSize. It
// grows again when there is time for twice as many.
func (s *Store) trim(ctx context.Context) (more bool, err error) {
	start := time.Now()
	defer func() {
		switch {
		case err != nil:
			s.trimSize = max(1, s.trimSize/2)
		case more && time.Since(start) < s.callTimeout/4:
			s.trimSize = min(maxTrim, 2*s.trimSize)
		}
	}()
	err = s.withConn(ctx, s.write, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
		return inTransaction(ctx, c, func() error {
			if err := s.observeClock(ctx, c); err != nil {
				return err
			}
			kept := s.clock.Ago(s.logAge).UnixMicro()
			locked, err := c.Exec(ctx, lockTrimmer, kept, s.logBytes)
			if err != nil || locked.RowsAffected() == 0 {
				return err
			}
			events, err := queryOne(ctx, c, pgx.RowTo[int64], nil, trimOldest, kept, s.logBytes, s.trimSize)
			more = events >= s.trimSize
			return err
		}, commitAsync, byIndex)
	})
	return more && err == nil, err
}

// Stats describes the store. It reads a few rows, and the sizes of the database's files.
func (s *Store) Stats(ctx context.Context) (plantstore.Stats, error) {
	return read(ctx, s, s.lookups, func(ctx context.Context, c *pgx.Conn) (plantstore.Stats, error) {
		return queryOne(ctx, c, s.rowStats, errNoState, selectStats)
	})
}

func (s *Store) rowStats(row pgx.CollectableRow) (stats plantstore.Stats, err error) {
	var oldest, indexed *int64
	var valid *bool
	err = row.Scan(&stats.LastSeq, &stats.Events, &stats.Plants, &stats.Bytes, &oldest, &stats.DatabaseBytes, &valid, &indexed)
	if oldest != nil {
		stats.Oldest = time.UnixMicro(*oldest).UTC()
	}
	x := &stats.SearchIndex
	switch {
	case valid != nil && *valid:
		x.State, x.Plants = plantstore.SearchReady, stats.Plants
	case s.building.Load(), indexed != nil:
		x.State = plantstore.SearchBuilding
		if indexed != nil {
			x.Plants = *indexed
		}
	default:
		x.State = plantstore.SearchOff
	}
	return stats, err
}
