package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

// How the log is trimmed: about maxTrim events in a transaction, as many transactions as
// it takes, every trimInterval. Whole rows are removed.
const (
	maxTrim      = 10_000
	trimInterval = 10 * time.Second
)

// rowOverhead is the approximate size of a row of the log in addition to its arrays, in
// bytes, with its entry in the index. sampleSize is how many events its size is
// estimated from, at most.
const (
	rowOverhead = 70
	sampleSize  = 1000
)

// The statements of the trimmer. It writes to log_state last, and does not wait for
// the disk or for standbys to commit: writers need that row, and a trim that is lost
// is repeated.
const (
	lockTrimmer = `SELECT id FROM plantstore_schema WHERE id = 1 FOR UPDATE SKIP LOCKED`
	commitAsync = `SELECT set_config('synchronous_commit', 'off', true)
		WHERE current_setting('synchronous_commit', true) IS NOT NULL`
	// selectTrimLimit has how far tags are folded, and the last event of the row with $1:
	// what is not folded yet is still needed.
	selectTrimLimit = `SELECT folded, (SELECT min(first) - 1 FROM log WHERE first > $1) FROM tags_state WHERE id = 1`
	selectFirstKept = `SELECT first FROM log WHERE first > $1 AND first <= $2 AND time >= ` + now + ` - $3 ORDER BY first LIMIT 1`
	// selectRowStart has the number of the first event of the row with $1.
	selectRowStart = `SELECT first FROM log WHERE first <= $1 ORDER BY first DESC LIMIT 1`
	// selectSample has, for every $3rd event, the size of its row divided by the events in
	// it. It is null if the row was trimmed in the meantime. A join might read the whole
	// log.
	selectSample = `SELECT n, (
			SELECT ($4 + pg_column_size("by") + pg_column_size(type) + pg_column_size(id) + pg_column_size(name) + pg_column_size(tag)
				+ coalesce(pg_column_size(tag_key) + pg_column_size(tag_text) + pg_column_size(tag_plants), 0)) / cardinality(id)
			FROM log WHERE first <= n ORDER BY first DESC LIMIT 1
		)::bigint FROM generate_series($1::bigint, $2::bigint, $3::bigint) AS n`
	deleteLog   = `DELETE FROM log WHERE first > $1 AND first <= $2`
	selectStats = `SELECT seq, trimmed, plants, (SELECT time FROM log WHERE first > trimmed ORDER BY first LIMIT 1) FROM log_state WHERE id = 1`
	setTrimmed  = `UPDATE log_state SET trimmed = $1, trimmed_time = $2 WHERE id = 1`
)

// KeepLog sets how long, and up to how many bytes, the log of changes is kept,
// whichever is less; 0 means no limit. The size is an estimate. Run trims the log.
// KeepLog must be called before it.
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
		}
	}
}

// trimAndReport trims once, logs when that starts to fail and when it works again, and
// reports whether there may be more to trim.
func (s *Store) trimAndReport(ctx context.Context) (more bool) {
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
	if err := s.fold(ctx); err != nil {
		return false, err
	}
	err = s.withConn(ctx, s.write, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
		// Most of the time there is nothing to trim, and then nothing is locked.
		state, to, err := s.trimTarget(ctx, c)
		if err != nil || to <= state.trimmed {
			return err
		}
		return pgx.BeginTxFunc(ctx, c, readCommitted, func(tx pgx.Tx) (err error) {
			more, err = s.trimLocked(ctx, tx)
			return err
		})
	})
	return more && err == nil, err
}

func (s *Store) trimLocked(ctx context.Context, tx pgx.Tx) (more bool, err error) {
	var id int
	if err := tx.QueryRow(ctx, lockTrimmer).Scan(&id); errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	state, to, err := s.trimTarget(ctx, tx)
	if err != nil || to <= state.trimmed {
		return false, err
	}
	last, err := state.logRange(ctx, tx).At(to)
	if err != nil {
		return false, err
	}
	var b pgx.Batch
	b.Queue(commitAsync)
	b.Queue(deleteLog, state.trimmed, to)
	b.Queue(setTrimmed, to, last.Time)
	return to >= state.trimmed+s.trimSize, tx.SendBatch(ctx, &b).Close()
}

// trimTarget returns the last event that the next transaction removes, which is the last
// of its row.
func (s *Store) trimTarget(ctx context.Context, q querier) (state logState, to int64, err error) {
	if state, err = readLogState(ctx, q); err != nil || state.seq == state.trimmed {
		return state, state.trimmed, err
	}
	var folded int64
	var limit *int64
	if err := q.QueryRow(ctx, selectTrimLimit, state.trimmed+s.trimSize).Scan(&folded, &limit); err != nil {
		return state, state.trimmed, err
	}
	end := min(folded, state.seq)
	if limit != nil {
		end = min(end, *limit)
	}
	to = state.trimmed
	if s.logAge > 0 {
		var kept int64
		err := q.QueryRow(ctx, selectFirstKept, state.trimmed, end, s.logAge.Microseconds()).Scan(&kept)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			to = end
		case err != nil:
			return state, to, err
		default:
			to = kept - 1
		}
	}
	if s.logBytes > 0 {
		byBytes, err := s.trimToBytes(ctx, q, state)
		if err != nil {
			return state, to, err
		}
		to = max(to, byBytes)
	}
	return state, min(to, end), nil
}

// trimToBytes returns the last event to remove so that the log has about logBytes.
func (s *Store) trimToBytes(ctx context.Context, q querier, state logState) (to int64, err error) {
	sample, err := sampleLog(ctx, q, state.trimmed, state.seq)
	if err != nil {
		return state.trimmed, err
	}
	to = plantstore.TrimTo(sample, state.seq, s.logBytes)
	if to <= state.trimmed || to >= state.seq {
		return min(to, state.seq), nil
	}
	err = q.QueryRow(ctx, selectRowStart, to+1).Scan(&to)
	if errors.Is(err, pgx.ErrNoRows) { // another server has trimmed it in the meantime
		return state.trimmed, nil
	}
	return to - 1, err
}

// sampleLog returns a sample of the events after trimmed up to last. Consecutive samples
// have the same events where they can: a limit must not be applied to estimates that
// vary, since each would trim down to the lowest. So they are the multiples of a
// power, and of three, because events tend to alternate.
func sampleLog(ctx context.Context, q querier, trimmed, last int64) (sample []plantstore.LogSample, err error) {
	step := int64(1)
	for (last-trimmed)/step > sampleSize {
		step *= 3
	}
	rows, err := q.Query(ctx, selectSample, (trimmed/step+1)*step, last, step, rowOverhead)
	if err != nil {
		return nil, err
	}
	var seq int64
	var size *int64
	_, err = pgx.ForEachRow(rows, []any{&seq, &size}, func() error {
		if size != nil {
			sample = append(sample, plantstore.LogSample{Seq: seq, Bytes: *size})
		}
		return nil
	})
	return sample, err
}

// eventSize is an estimate of the average size of an event in the log.
type eventSize struct {
	at    time.Time
	bytes int64
}

// estimateInterval is how long an estimate is used.
const estimateInterval = 10 * time.Second

// estimateBytes returns the approximate size of the events after trimmed up to last.
func (s *Store) estimateBytes(ctx context.Context, q querier, trimmed, last int64) (int64, error) {
	events, size := last-trimmed, s.eventSize.Load()
	if events == 0 {
		return 0, nil
	}
	if size == nil || time.Since(size.at) >= estimateInterval {
		sample, err := sampleLog(ctx, q, trimmed, last)
		if err != nil {
			return 0, err
		}
		size = &eventSize{time.Now(), plantstore.LogBytes(sample, last) / events}
		s.eventSize.Store(size)
	}
	return events * size.bytes, nil
}

// Stats describes the store. The size of the log is an estimate for which it reads a sample, at
// most every 10 s, and otherwise it reads two rows.
func (s *Store) Stats(ctx context.Context) (stats plantstore.Stats, err error) {
	var trimmed int64
	var oldest *int64
	err = s.withConn(ctx, s.read, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
		err := c.QueryRow(ctx, selectStats).Scan(&stats.LastSeq, &trimmed, &stats.Plants, &oldest)
		if err == nil {
			stats.Bytes, err = s.estimateBytes(ctx, c, trimmed, stats.LastSeq)
		}
		return err
	})
	stats.Events = stats.LastSeq - trimmed
	if oldest != nil {
		stats.Oldest = time.UnixMicro(*oldest).UTC()
	}
	return stats, err
}
