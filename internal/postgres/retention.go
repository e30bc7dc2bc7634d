package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

// How the log is trimmed: about maxTrim events in a transaction, as many transactions as
// it takes, every trimInterval, and when this server has added the log's limit divided by
// trimShare. Whole rows are removed.
const (
	maxTrim      = 10_000
	trimInterval = 2 * time.Second
	trimShare    = 64
)

// The statements of the trimmer. It writes to log_state last, and does not wait for
// the disk or for standbys to commit: writers need that row, and a trim that is lost
// is repeated.
var (
	lockTrimmer = `SELECT id FROM plantstore_schema WHERE id = 1 FOR UPDATE SKIP LOCKED`
	commitAsync = `SET LOCAL synchronous_commit = off`
	// selectRowEnd has the last event of the row with $1, unless that is the last row.
	selectRowEnd    = `SELECT min(first) - 1 FROM log WHERE first > $1`
	selectFirstKept = `SELECT first FROM log WHERE first > $1 AND first <= $2 AND time >= ` + now + ` - $3 ORDER BY first LIMIT 1`
	// selectFirstFitting has the first row after $1 up to $2 before which there are $3 bytes.
	selectFirstFitting = `SELECT first FROM (
			SELECT first, sum(` + storedSize + `) OVER (ORDER BY first) - ` + storedSize + ` AS freed FROM log WHERE first > $1 AND first <= $2
		) AS sized WHERE freed >= $3 ORDER BY first LIMIT 1`
	deleteLog = `WITH trimmed AS (DELETE FROM log WHERE first > $1 AND first <= $2 RETURNING ` + storedSize + ` AS size)
		UPDATE log_state SET ` + asWriter + `, trimmed = $2, trimmed_time = $3, bytes = bytes - (SELECT coalesce(sum(size), 0) FROM trimmed) WHERE id = 1`
	// selectStats has the size of the database if $1 is true.
	selectStats = `SELECT seq, trimmed, plants, bytes, (SELECT time FROM log WHERE first > trimmed ORDER BY first LIMIT 1),
		CASE WHEN $1 THEN pg_database_size(current_database()) END FROM log_state WHERE id = 1`
	// storedSize is the size of a row. Rows of earlier schemas do not have it.
	storedSize = `coalesce(bytes, ` + rowSize(`"by"`, "type", "id", "name", "tag") + `)`
)

// KeepLog sets how long, and up to how many bytes, the log of changes is kept,
// whichever is less; 0 means no limit. Run trims the log. KeepLog must be called before
// it.
func (s *Store) KeepLog(age time.Duration, bytes int64) {
	s.logAge, s.logBytes = age, bytes
}

// trimLog trims the log until ctx ends.
func (s *Store) trimLog(ctx context.Context) {
	if s.logAge <= 0 && s.logBytes <= 0 {
		return
	}
	tick := time.NewTicker(trimInterval)
	defer tick.Stop()
	for {
		if s.trimAndReport(ctx) {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.trimDue:
		}
	}
}

// countAppended counts what a batch may have added to the log.
func (s *Store) countAppended(batch []plantstore.Write) {
	if s.logBytes <= 0 {
		return
	}
	size := 0
	for i := range batch {
		size += batch[i].Plant.TextSize()
	}
	if s.appended.Add(int64(size)) < s.logBytes/trimShare {
		return
	}
	select {
	case s.trimDue <- struct{}{}:
	default: // it has been requested already
	}
}

// trimAndReport trims once, logs when that starts to fail and when it works again, and
// reports whether there may be more to trim.
func (s *Store) trimAndReport(ctx context.Context) (more bool) {
	s.appended.Store(0)
	more, err := s.trim(ctx)
	failing := err != nil
	switch {
	case ctx.Err() != nil || failing == s.trimFails:
	case failing:
		s.log.Warn("cannot trim the log of changes, retrying", "db", s.name, "err", err)
	default:
		s.log.Info("the log of changes is trimmed again", "db", s.name)
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
		// Most of the time there is nothing to trim, and then nothing is locked.
		state, to, err := s.trimTarget(ctx, c)
		if err != nil || to <= state.trimmed {
			return err
		}
		return inTransaction(ctx, c, func() error {
			more, err = s.trimLocked(ctx, c)
			return err
		}, commitAsync)
	})
	return more && err == nil, err
}

func (s *Store) trimLocked(ctx context.Context, c *pgx.Conn) (more bool, err error) {
	var id int
	if err := c.QueryRow(ctx, lockTrimmer).Scan(&id); errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	state, to, err := s.trimTarget(ctx, c)
	if err != nil || to <= state.trimmed {
		return false, err
	}
	last, err := state.logRange(ctx, c).At(to)
	if err != nil {
		return false, err
	}
	_, err = c.Exec(ctx, deleteLog, state.trimmed, to, last.Time)
	return to >= state.trimmed+s.trimSize, err
}

// trimTarget returns the last event that the next transaction removes, which is the last
// of its row.
func (s *Store) trimTarget(ctx context.Context, c *pgx.Conn) (state logState, to int64, err error) {
	if state, err = readLogState(ctx, c); err != nil || state.seq == state.trimmed {
		return state, state.trimmed, err
	}
	var rowEnd *int64
	if err := c.QueryRow(ctx, selectRowEnd, state.trimmed+s.trimSize).Scan(&rowEnd); err != nil {
		return state, state.trimmed, err
	}
	end := state.seq
	if rowEnd != nil {
		end = min(end, *rowEnd)
	}
	to = state.trimmed
	if s.logAge > 0 {
		if to, err = lastBefore(ctx, c, end, selectFirstKept, state.trimmed, end, s.logAge.Microseconds()); err != nil {
			return state, state.trimmed, err
		}
	}
	if s.logBytes > 0 && state.bytes > s.logBytes {
		// A little more, because the log goes on growing until the next time.
		excess := state.bytes - s.logBytes + s.logBytes/trimShare
		fitting, err := lastBefore(ctx, c, end, selectFirstFitting, state.trimmed, end, excess)
		if err != nil {
			return state, state.trimmed, err
		}
		to = max(to, fitting)
	}
	return state, to, nil
}

// lastBefore returns the last event before the row that a query finds, or end if it finds
// none.
func lastBefore(ctx context.Context, c *pgx.Conn, end int64, query string, args ...any) (int64, error) {
	var first int64
	err := c.QueryRow(ctx, query, args...).Scan(&first)
	if errors.Is(err, pgx.ErrNoRows) {
		return end, nil
	}
	return first - 1, err
}

// sizeInterval is how old the size of the database may be: the database adds up those of its
// files.
const sizeInterval = 5 * time.Second

// databaseSize is the size of the database at a time, in bytes.
type databaseSize struct {
	bytes int64
	at    time.Time
}

// Stats describes the store. It reads two rows, and now and then the size of the database.
func (s *Store) Stats(ctx context.Context) (stats plantstore.Stats, err error) {
	var trimmed int64
	var oldest, read *int64
	size := s.size.Load()
	outdated := size == nil || time.Since(size.at) > sizeInterval
	err = s.withConn(ctx, s.read, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, selectStats, outdated).Scan(&stats.LastSeq, &trimmed, &stats.Plants, &stats.Bytes, &oldest, &read)
	})
	if err != nil {
		return plantstore.Stats{}, err
	}
	if read != nil {
		size = &databaseSize{*read, time.Now()}
		s.size.Store(size)
	}
	stats.DatabaseBytes = size.bytes
	stats.Events = stats.LastSeq - trimmed
	if oldest != nil {
		stats.Oldest = time.UnixMicro(*oldest).UTC()
	}
	return stats, nil
}
