package postgres

import (
	"context"
	"fmt"
	"iter"
	"math"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

const (
	// searchBudget is how many plants one List looks at in search of a name: what
	// is read in about a fifth of a second.
	searchBudget = 100_000
	// fetchSize is how many plants are asked for at once.
	fetchSize = 1000
	// tagStart is how many characters of a tag the index holds.
	tagStart = 100
)

const (
	selectPlant = `SELECT id, name, tag FROM plants WHERE id = $1`
	selectPage  = `SELECT id, name, tag FROM plants WHERE id >= $1 ORDER BY id LIMIT $2`
	// selectTagged says = by way of >= and <=, so that only the index on tags has
	// the order it asks for. Else the planner may hope to meet enough plants with
	// the tag on its way through all of them, and a rare tag takes it to the end.
	selectTagged = `SELECT id, name, tag FROM plants
		WHERE tag IS NOT NULL
			AND ((left(tag, 100) COLLATE "C"), id) >= ($3, $1)
			AND (left(tag, 100) COLLATE "C") <= $3
		ORDER BY (left(tag, 100) COLLATE "C"), id LIMIT $2`
)

// List returns one page.
func (s *Store) List(ctx context.Context, q plantstore.Query) (plantstore.Page, error) {
	fetch := fetchSize
	if q.Contains == "" {
		fetch = min(q.Limit, fetchSize-1) + 1
	}
	var page plantstore.Page
	err := s.reading(ctx, func(ctx context.Context, c *pgx.Conn) error {
		page = plantstore.Page{}
		match := matcher(q)
		seen := 0
		var last plantstore.ID
		return each(ctx, c, q, fetch, func(p plantstore.Plant) bool {
			if len(page.Plants) == q.Limit || seen == searchBudget {
				page.Next = &last
				return false
			}
			seen++
			last = p.ID
			if match(p) {
				page.Plants = append(page.Plants, p)
			}
			return true
		})
	})
	if err != nil {
		return plantstore.Page{}, err
	}
	return page, nil
}

// Scan yields all plants from one snapshot. It lasts as long as its reader, so
// only so many may run at once: short reads must not wait for them.
func (s *Store) Scan(ctx context.Context, q plantstore.Query) iter.Seq2[plantstore.Plant, error] {
	return func(yield func(plantstore.Plant, error) bool) {
		if err := s.scanning(ctx, q, func(p plantstore.Plant) bool { return yield(p, nil) }); err != nil {
			yield(plantstore.Plant{}, err)
		}
	}
}

func (s *Store) scanning(ctx context.Context, q plantstore.Query, yield func(plantstore.Plant) bool) error {
	select {
	case s.scan <- struct{}{}:
		defer func() { <-s.scan }()
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", s.name, ctx.Err())
	}
	q.Limit = 0 // it does not count
	match := matcher(q)
	begun, stopped := false, false
	var broken error
	err := s.persist(ctx, func() error {
		err := s.using(ctx, s.read, 0, func(ctx context.Context, c *pgx.Conn) error {
			return each(ctx, c, q, fetchSize, func(p plantstore.Plant) bool {
				if match(p) {
					begun = true
					stopped = !yield(p)
				}
				return !stopped
			})
		})
		if begun { // what has been yielded cannot be taken back
			broken = err
			return nil
		}
		return err
	})
	if stopped {
		return nil
	}
	if broken != nil {
		return broken
	}
	return err
}

// matcher returns a function that reports whether a plant that [each] found is
// one that the query asks for.
func matcher(q plantstore.Query) func(plantstore.Plant) bool {
	_, tagged := q.Tag.Text()
	name := plantstore.NewMatcher(q.Contains)
	return func(p plantstore.Plant) bool {
		return (!tagged || p.Tag == q.Tag) && name.Match(p.Name)
	}
}

// each calls f with the plants whose tag begins like the query's and that come
// after its After, in order of id, until f returns false. It fetches so many at a
// time, all from one snapshot.
func each(ctx context.Context, c *pgx.Conn, q plantstore.Query, fetch int, f func(plantstore.Plant) bool) error {
	at, ok := newCursor(q, fetch)
	if !ok {
		return nil
	}
	if isOneFetch(q, fetch) { // a statement is a snapshot
		_, err := at.fetch(ctx, c, f)
		return err
	}
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, c, snapshot, func(tx pgx.Tx) error {
		for {
			more, err := at.fetch(ctx, tx, f)
			if err != nil || !more {
				return err
			}
		}
	})
}

// isOneFetch reports whether one fetch holds a page of the query and what comes
// after it: all of it counts, and it is more than the limit.
func isOneFetch(q plantstore.Query, fetch int) bool {
	tag, _ := q.Tag.Text()
	return q.Contains == "" && 0 < q.Limit && q.Limit < fetch && utf8.RuneCountInString(escape(tag)) < tagStart
}

// cursor is how far a reader has come through the plants that a query asks for.
type cursor struct {
	query string
	args  []any // the first id, how many to fetch, and what tags begin with
	limit int
}

// newCursor returns a cursor, or false if nothing can come after the query's After.
func newCursor(q plantstore.Query, fetch int) (*cursor, bool) {
	first := int64(math.MinInt64)
	if q.After != nil {
		if *q.After == math.MaxInt64 {
			return nil, false
		}
		first = int64(*q.After) + 1
	}
	at := &cursor{selectPage, []any{first, fetch}, fetch}
	if text, ok := q.Tag.Text(); ok {
		at.query, at.args = selectTagged, append(at.args, start(escape(text), tagStart))
	}
	return at, true
}

// fetch calls f with what it fetches, until f returns false, and reports whether
// there may be more that f wants.
func (at *cursor) fetch(ctx context.Context, from interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, f func(plantstore.Plant) bool,
) (more bool, err error) {
	rows, err := from.Query(ctx, at.query, at.args...)
	if err != nil {
		return false, err
	}
	fetched := 0
	var last plantstore.ID
	err = eachPlant(rows, func(p plantstore.Plant) bool {
		fetched++
		last = p.ID
		more = f(p)
		return more
	})
	at.args[0] = int64(last) + 1
	return more && fetched == at.limit && last < math.MaxInt64, err
}

// start returns the first n characters of a text, or all of it.
func start(text string, n int) string {
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
	for rows.Next() {
		var id int64
		var name string
		var tag *string
		if err := rows.Scan(&id, &name, &tag); err != nil {
			return err
		}
		p := plantstore.Plant{ID: plantstore.ID(id), Name: unescape(name)}
		if tag != nil {
			p.Tag = plantstore.NewTag(unescape(*tag))
		}
		if !f(p) {
			break
		}
	}
	rows.Close()
	return rows.Err()
}
