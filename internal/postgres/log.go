package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/rules"
	"plantstore/internal/wire"
)

// rowOverhead is the approximate size of a row of the log in addition to its arrays, in
// bytes, with its entry in the index.
const rowOverhead = 70

// rowSize is an expression for the size of a row of the log, before PostgreSQL compresses it.
var rowSize = strconv.Itoa(rowOverhead) +
	` + pg_column_size("by") + pg_column_size(type) + pg_column_size(id) + pg_column_size(name) + pg_column_size(tag) + coalesce(pg_column_size(prev), 0)`

// The statements of the log. A transaction that appends locks the row of log_state after
// everything else that can block. The lock on that row lasts until the commit is
// visible, so no transaction with a larger seq commits before one with a smaller.
const (
	now = `(date_part('epoch', clock_timestamp()) * 1000000)::bigint`

	appendLog = `SELECT append_log($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

	selectLogState = `SELECT store, seq, time, trimmed, trimmed_time, plants, bytes FROM log_end()`
	selectLogTime  = `SELECT time FROM log WHERE first <= $1 ORDER BY first DESC LIMIT 1`
	// selectLog has the rows with the $2 events from $1 on, and selectNewest those from $1
	// backwards, but not before $3. No statement looks at what comes before the start of the log:
	// while a transaction stays open, the index still has all that was trimmed.
	selectLog = `SELECT first, time, "by", type, id, name, tag FROM log
		WHERE first >= (SELECT max(first) FROM log WHERE first <= $1::bigint) AND first < $1::bigint + $2::bigint ORDER BY first`
	selectNewest = `SELECT first, time, "by", type, id, name, tag FROM log
		WHERE first <= $1::bigint AND first >= coalesce((SELECT max(first) FROM log WHERE first <= $1::bigint - $2::bigint + 1 AND first >= $3::bigint), $3) ORDER BY first DESC`
	// selectBounds has the last event before each of the times $1, which are in order: low is
	// that of the times i to j. A step of the search divides the events after low up to high
	// at the one in the middle, and the times between the two halves. width_bucket has how many
	// of the times are not after that event. If no row begins between, it has the time of low.
	selectBounds = `WITH RECURSIVE search (low, high, i, j) AS (
			SELECT trimmed, seq, 1, cardinality($1::bigint[]) FROM log_end()
			UNION ALL
			SELECT half.* FROM search
				CROSS JOIN LATERAL (SELECT low + (high - low + 1) / 2 AS middle) AS divided
				LEFT JOIN LATERAL (
					SELECT first, width_bucket(time, $1) AS n FROM log WHERE first > low AND first <= middle ORDER BY first DESC LIMIT 1
				) AS found ON true
				CROSS JOIN LATERAL (
					SELECT low, first - 1, i, least(j, n) WHERE i <= n
					UNION ALL
					SELECT middle, high, greatest(i, n + 1), j WHERE n IS NULL OR n < j
				) AS half (low, high, i, j)
			WHERE search.low < search.high
		)
		SELECT low, i, j, trimmed, trimmed_time FROM search, log_end() WHERE low = high`
)

// logState is what the store and its log are at a moment.
type logState struct {
	rules.LogRange
	time, plants, bytes int64
}

var errNoState = errors.New("the table log_state or log_start has no row")

// readLogState reads it. The times of events are those of the same transaction.
func readLogState(ctx context.Context, c *pgx.Conn) (s logState, err error) {
	err = c.QueryRow(ctx, selectLogState).Scan(&s.Store, &s.Last, &s.time, &s.Trimmed, &s.TrimmedTime, &s.plants, &s.bytes)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoState
	}
	s.TimeOf = func(seq int64) (at int64, err error) {
		if seq == s.Last {
			return s.time, nil
		}
		err = c.QueryRow(ctx, selectLogTime, seq).Scan(&at)
		return at, err
	}
	return s, err
}

// eventBudget is how many events one call of Events examines.
const eventBudget = 20_000

// Events returns a page of the log.
func (s *Store) Events(ctx context.Context, q plantstore.EventQuery) (plantstore.EventPage, error) {
	return read(ctx, s, s.list, func(ctx context.Context, c *pgx.Conn) (page plantstore.EventPage, err error) {
		err = inSnapshot(ctx, c, func() error {
			state, err := readLogState(ctx, c)
			if err != nil {
				return err
			}
			start, first, err := state.Start(q)
			if err != nil {
				return err
			}
			fetch := int64(fetchSize)
			if !q.Filtered() { // one fetch has the page and the event after it
				fetch = int64(min(q.Limit, eventBudget) + 1)
			}
			b := rules.NewEventPageBuilder(q, start.Cursor(), eventBudget)
			if q.ID != nil {
				found, err := state.AddEventsOf(&plantEvents{ctx, c, &state, *q.ID}, &q, first, eventBudget, b)
				if page = b.Page(); err != nil || found {
					return err
				}
			}
			err = state.eachEvent(ctx, c, first, fetch, q.Newest, b.Add)
			page = b.Page()
			return err
		})
		return page, err
	})
}

// Histogram has the database find the bounds of the buckets. A statement is a snapshot.
func (s *Store) Histogram(ctx context.Context, q plantstore.HistogramQuery) ([]plantstore.Bucket, error) {
	return read(ctx, s, s.list, func(ctx context.Context, c *pgx.Conn) ([]plantstore.Bucket, error) {
		bounds := q.Bounds()
		rows, _ := c.Query(ctx, selectBounds, bounds) // ForEachRow returns the error
		var log rules.LogRange
		var seq int64
		var from, to int
		last := make([]int64, len(bounds))
		found, err := pgx.ForEachRow(rows, []any{&seq, &from, &to, &log.Trimmed, &log.TrimmedTime}, func() error {
			for i := from - 1; i < to; i++ {
				last[i] = seq
			}
			return nil
		})
		if err == nil && found.RowsAffected() == 0 {
			err = errNoState
		}
		return log.Buckets(bounds, last), err
	})
}

// eachEvent calls f with the events from one on, or from it backwards, until f returns false.
// It fetches about that many at a time.
func (s *logState) eachEvent(ctx context.Context, c *pgx.Conn, next, fetch int64, newest bool, f func(plantstore.Event) bool) error {
	query, step, end := selectLog, int64(1), s.Last+1
	args := []any{next, fetch}
	if newest {
		query, step, end = selectNewest, -1, s.Trimmed
		args = append(args, s.Trimmed+1)
	}
	for next != end {
		first := next
		args[0] = first
		for r, err := range inOrder(ctx, c, rowSegment, query, args...) {
			if err != nil {
				return err
			}
			size, i := int64(len(r.ids)), next-r.first
			if i < 0 || i >= size {
				return fmt.Errorf("a row of the log has the events from %d on, %d of them, where %d is next", r.first, size, next)
			}
			for ; 0 <= i && i < size; i += step {
				e, err := s.event(r, int(i))
				if err != nil || !f(e) {
					return err
				}
				next += step
			}
		}
		if next == first {
			return fmt.Errorf("the log has no event %d", first)
		}
	}
	return nil
}

// segment is a row of the log: the events of a batch.
type segment struct {
	first, time int64
	skipped     int64 // of the row's events, before first
	by          []string
	types       []int16
	ids         []int64
	names       []string
	tags        []*string
}

func rowSegment(row pgx.CollectableRow) (r segment, err error) {
	err = row.Scan(&r.first, &r.time, &r.by, &r.types, &r.ids, &r.names, &r.tags)
	if n := len(r.ids); err == nil && (len(r.by) != n || len(r.types) != n || len(r.names) != n || len(r.tags) != n) {
		err = fmt.Errorf("the row %d of the log has columns of different lengths", r.first)
	}
	return r, err
}

// event returns an event of a row.
func (s *logState) event(r segment, i int) (e plantstore.Event, err error) {
	e.Cursor = plantstore.Position{Store: s.Store, Seq: r.first + int64(i), Time: r.time}.Cursor()
	e.Time, e.Type, e.By = time.UnixMicro(r.time).UTC(), plantstore.EventTypeOf(int64(r.types[i])), r.by[i]
	if e.Type == "" {
		return e, fmt.Errorf("event %d of the log has the type %d", r.first+int64(i), r.types[i])
	}
	if !e.Type.OfPlant() {
		token, _, err := wire.DecodeToken([]byte(r.names[i]))
		if err != nil {
			return e, fmt.Errorf("event %d of the log: %w", r.first+int64(i), err)
		}
		e.Token = &token
		return e, nil
	}
	e.Plant, e.Version = plantOf(r.ids[i], r.names[i], r.tags[i]), plantstore.Version{Time: r.time, N: r.skipped + int64(i)}
	return e, nil
}

// Changed returns a channel that is closed when events may have been added: by this
// server immediately, by others when Run notices.
func (s *Store) Changed() <-chan struct{} { return s.changes.Changed() }

// pollInterval is how often the end of the log is polled while a client waits for
// changes that other servers make.
const pollInterval = 200 * time.Millisecond

// poll notifies those that wait for changes when the log has grown, until ctx ends.
func (s *Store) poll(ctx context.Context) {
	last := int64(-1)
	eachTick(ctx, pollInterval, func() {
		if !s.changes.HasWaiters() {
			last = -1
			return
		}
		var state logState
		err := s.withConn(ctx, s.lookups, s.callTimeout, func(ctx context.Context, c *pgx.Conn) (err error) {
			state, err = readLogState(ctx, c)
			return err
		})
		if err == nil && state.Last != last {
			last = state.Last
			s.changes.Notify()
		}
	})
}
