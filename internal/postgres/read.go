package postgres

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/match"
	"plantstore/internal/storage"
)

const (
	// searchBudget is how many plants one List examines in a search for a name. They
	// take about a fifth of a second to read.
	searchBudget = 100_000
	// fetchSize is how many plants are fetched at once.
	fetchSize = 1000
	// maxDrain is how much text of an abandoned fetch is read to its end, in bytes.
	// Beyond that a new connection is cheaper.
	maxDrain = 4 << 20
	// tagPrefix is how many characters of a tag are in the index.
	tagPrefix = 100
)

const (
	selectPlant = `SELECT id, name, tag FROM stored_plants WHERE id = $1`
	selectPage  = `SELECT id, name, tag FROM stored_plants WHERE id >= $1 ORDER BY id LIMIT $2`
	// selectTagged expresses = by >= and <=, so that only the index on tags provides
	// the requested order. Otherwise the planner may go through all plants in the hope
	// of finding enough with the tag early, and a rare tag takes it to the end.
	selectTagged = `SELECT id, name, tag FROM stored_plants
		WHERE tag IS NOT NULL
			AND ((left(tag, 100) COLLATE "C"), id) >= ($3, $1)
			AND (left(tag, 100) COLLATE "C") <= $3
		ORDER BY (left(tag, 100) COLLATE "C"), id LIMIT $2`
)

// orderSettings has rows come in the order of an index: collecting and sorting them, which
// looks cheap to a planner that expects few, is unbounded work. Nothing is compiled: a sort
// that cannot be avoided then seems so expensive to the planner that it would compile the
// statement for a second each time.
const orderSettings = `SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true), set_config('jit', 'off', true)`

// queryInOrder is a query with the [orderSettings], in one round trip. The rows must be
// closed.
func queryInOrder(ctx context.Context, c *pgx.Conn, sql string, args ...any) (pgx.Rows, error) {
	var b pgx.Batch
	b.Queue(orderSettings)
	b.Queue(sql, args...)
	results := c.SendBatch(ctx, &b)
	_, err := results.Exec()
	rows, failed := results.Query()
	if err = cmp.Or(err, failed); err != nil {
		results.Close()
		return nil, err
	}
	return lastRows{rows, results}, nil
}

// lastRows are the rows of a batch's last statement, which close the batch.
type lastRows struct {
	pgx.Rows
	results pgx.BatchResults
}

func (r lastRows) Close() {
	r.Rows.Close()
	r.results.Close() // Err has what was wrong with the rows
}

// List returns one page.
func (s *Store) List(ctx context.Context, q plantstore.Query) (plantstore.Page, error) {
	fetch := fetchSize
	if q.Contains == "" {
		fetch = min(q.Limit, fetchSize-1) + 1
	}
	var b *storage.PageBuilder
	err := s.retryCall(ctx, s.list, func(ctx context.Context, c *pgx.Conn) error {
		b = storage.NewPageBuilder(q, searchBudget)
		return each(ctx, c, q, fetch, nil, b.Add)
	})
	if err != nil {
		return plantstore.Page{}, err
	}
	return b.Page(), nil
}

// Scan yields all plants from one snapshot. A scan takes as long as its consumer
// does, so their number is limited: short reads must not wait for them.
func (s *Store) Scan(ctx context.Context, q plantstore.Query, at *plantstore.Cursor) iter.Seq2[plantstore.Plant, error] {
	return func(yield func(plantstore.Plant, error) bool) {
		if err := s.runScan(ctx, q, at, func(p plantstore.Plant) bool { return yield(p, nil) }); err != nil {
			yield(plantstore.Plant{}, err)
		}
	}
}

func (s *Store) runScan(ctx context.Context, q plantstore.Query, at *plantstore.Cursor, yield func(plantstore.Plant) bool) error {
	select {
	case s.scans <- struct{}{}:
		defer func() { <-s.scans }()
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", s.name, ctx.Err())
	}
	q.Limit = 0 // a scan has no limit
	matches := match.Filter(q)
	yielded, stopped := false, false
	var broken error
	err := s.retry(ctx, func() error {
		err := s.withConn(ctx, s.list, 0, func(ctx context.Context, c *pgx.Conn) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			// Only the wait for the server is limited, not the consumer's time.
			timeout := time.AfterFunc(s.callTimeout, cancel)
			defer timeout.Stop()
			return each(ctx, c, q, fetchSize, at, func(p plantstore.Plant) bool {
				timeout.Stop()
				if matches(p) {
					yielded = true
					stopped = !yield(p)
				}
				timeout.Reset(s.callTimeout)
				return !stopped
			})
		})
		if yielded { // plants that have been yielded cannot be taken back
			broken = err
			return nil
		}
		return err
	})
	if stopped {
		return nil
	}
	return cmp.Or(broken, err)
}

// each calls f with the plants whose tag starts like the query's and whose id is
// greater than its After, in order of id, until f returns false. It fetches that
// many at a time, all from one snapshot.
func each(ctx context.Context, c *pgx.Conn, q plantstore.Query, fetch int, at *plantstore.Cursor, f func(plantstore.Plant) bool) error {
	cur, ok := newCursor(q, fetch)
	if !ok && at == nil {
		return nil
	}
	if isOneFetch(q, fetch) { // a statement is a snapshot
		_, err := cur.fetch(ctx, c, f)
		return err
	}
	return inSnapshot(ctx, c, func() error {
		if at != nil {
			state, err := readLogState(ctx, c)
			if err != nil {
				return err
			}
			*at = state.end().Cursor()
		}
		for more := ok; more; {
			var err error
			if more, err = cur.fetch(ctx, c, f); err != nil {
				return err
			}
		}
		return nil
	})
}

// inSnapshot runs f, all of whose statements see the same state. f may close the connection.
func inSnapshot(ctx context.Context, c *pgx.Conn, f func() error) error {
	if _, err := c.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
		return err
	}
	if err := f(); err != nil || c.IsClosed() {
		return err
	}
	_, err := c.Exec(ctx, "COMMIT")
	return err
}

// isOneFetch reports whether one fetch is enough for a page of the query: every
// plant in it matches, and it has more than the limit.
func isOneFetch(q plantstore.Query, fetch int) bool {
	tag, _ := q.Tag.Text()
	return q.Contains == "" && 0 < q.Limit && q.Limit < fetch && utf8.RuneCountInString(escape(tag)) < tagPrefix
}

// cursor is a position among the plants that a query selects.
type cursor struct {
	query string
	args  []any // the first id, how many to fetch, and the start of the tag
	limit int
}

// newCursor returns a cursor, or false if no id is greater than the query's After.
func newCursor(q plantstore.Query, fetch int) (*cursor, bool) {
	first := int64(math.MinInt64)
	if q.After != nil {
		if *q.After == math.MaxInt64 {
			return nil, false
		}
		first = int64(*q.After) + 1
	}
	cur := &cursor{selectPage, []any{first, fetch}, fetch}
	if text, ok := q.Tag.Text(); ok {
		cur.query, cur.args = selectTagged, append(cur.args, prefix(escape(text), tagPrefix))
	}
	return cur, true
}

// fetch calls f with the plants that it fetches, until f returns false. It reports
// whether f wants more and there may be more. If f stops early and the plants are so
// large that the rest would be much to read, it closes the connection.
func (cur *cursor) fetch(ctx context.Context, c *pgx.Conn, f func(plantstore.Plant) bool) (more bool, err error) {
	rows, err := queryInOrder(ctx, c, cur.query, cur.args...)
	if err != nil {
		return false, err
	}
	fetched, text, dropped := 0, 0, false
	var last plantstore.ID
	err = eachPlant(rows, func(p plantstore.Plant) bool {
		fetched++
		text += p.TextSize()
		last = p.ID
		more = f(p)
		if !more {
			dropped = closeUnlessShort(ctx, c, text, fetched, cur.limit-fetched)
		}
		return more
	})
	if dropped {
		return false, nil
	}
	cur.args[0] = int64(last) + 1
	return more && fetched == cur.limit && last < math.MaxInt64, err
}

// closeUnlessShort closes the connection of an abandoned fetch if its rest would be
// much to read, judging by the text of the rows fetched, and reports whether it has.
func closeUnlessShort(ctx context.Context, c *pgx.Conn, text, fetched, rest int) bool {
	if text/fetched*rest <= maxDrain {
		return false
	}
	c.Close(ctx)
	return true
}

// prefix returns the first n characters of a text, or all of it.
func prefix(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// eachPlant calls f with the plants in rows of id, name and tag, until f returns
// false, and closes the rows.
func eachPlant(rows pgx.Rows, f func(plantstore.Plant) bool) error {
	defer rows.Close()
	for rows.Next() {
		var id int64
		var name string
		var tag *string
		if err := rows.Scan(&id, &name, &tag); err != nil {
			return err
		}
		if !f(plantOf(id, name, tag)) {
			break
		}
	}
	rows.Close()
	return rows.Err()
}

// plantOf returns the plant that the database stores as these columns.
func plantOf(id int64, name string, tag *string) plantstore.Plant {
	p := plantstore.Plant{ID: plantstore.ID(id), Name: unescape(name)}
	if tag != nil {
		p.Tag = plantstore.NewTag(unescape(*tag))
	}
	return p
}
