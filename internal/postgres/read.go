package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/match"
	"plantstore/internal/rules"
)

const (
	// searchBudget is how many plants one List examines in a search for a name. They
	// take about a fifth of a second to read.
	searchBudget = 100_000
	// fetchSize is how many plants are fetched at once.
	fetchSize = 1000
	// sortedFetchSize is how many are fetched at once for an order by name: the server may be far away, and a
	// million are read.
	sortedFetchSize = 50_000
	// maxDrain is how many bytes of rows that nobody wants are read, so that their connection
	// can be used again. Beyond that a new one is cheaper.
	maxDrain = 4 << 20
	// tagPrefix is how many characters of a tag are in the index.
	tagPrefix = 100
)

const (
	// storedColumns are the columns that rowStored reads.
	storedColumns = `id, name, tag, updated, n, coalesce(created, updated)`

	// In these statements, >>= and <<= compare in the order of the query, and << is its direction.
	selectPage = ` FROM stored_plants WHERE id >>= $1 ORDER BY id << LIMIT $2`
	selectIDs  = ` FROM stored_plants WHERE id >>= $1 AND id = ANY ($3::bigint[]) ORDER BY id << LIMIT $2`
	// whereTagged has up to $2 plants, from $1 on, whose tags have the start %[1]s. It expresses = by >= and <=, so that only the index on tags provides the requested order. Otherwise the
	// planner may go through all plants in the hope of finding enough with the tag early, and a rare
	// tag takes it to the end.
	whereTagged = `FROM stored_plants
		WHERE tag IS NOT NULL
			AND ((left(tag, 100) COLLATE "C"), id) >>= (%[1]s, $1)
			AND (left(tag, 100) COLLATE "C") <<= %[1]s
		ORDER BY (left(tag, 100) COLLATE "C") <<, id << LIMIT $2`
)

var (
	selectTagged = " " + fmt.Sprintf(whereTagged, "left($3, 100)")
	// selectAnyTagged has plants whose tags have one of the starts $3. OFFSET 0 has the planner look up each
	// of the plants found.
	selectAnyTagged = ` FROM (
			SELECT found.id AS next FROM unnest($3::text[]) AS wanted (start), LATERAL (SELECT id ` + fmt.Sprintf(whereTagged, "wanted.start") + `) AS found
			ORDER BY found.id << LIMIT $2
		) AS page, LATERAL (SELECT * FROM stored_plants WHERE id = page.next OFFSET 0) AS plant ORDER BY page.next <<`

	// selectTaggedFrom has the ids of up to $3 plants whose tags have a start from $1 on, and before
	// $2 if that is not NULL.
	selectTaggedFrom = `SELECT id FROM stored_plants
		WHERE tag IS NOT NULL AND (left(tag, 100) COLLATE "C") >= left($1, 100) AND ($2::text IS NULL OR (left(tag, 100) COLLATE "C") < $2)
		ORDER BY (left(tag, 100) COLLATE "C"), id LIMIT $3`

	ascending  = strings.NewReplacer(">>=", ">=", "<<=", "<=", "<<", "")
	descending = strings.NewReplacer(">>=", "<=", "<<=", ">=", "<<", "DESC")
)

// maxTagged is how many plants taggedFrom collects. They take about a twentieth of a second.
const maxTagged = 20_000

// Decide decides the writes from one snapshot.
func (s *Store) Decide(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	return read(ctx, s, s.list, func(ctx context.Context, c *pgx.Conn) ([]plantstore.Result, error) {
		return rules.DecideEach(batch, func(ids []plantstore.ID, found func(plantstore.StoredPlant)) error {
			rows, _ := c.Query(ctx, selectPlants, ids) // Err has what was wrong with it
			defer rows.Close()
			for rows.Next() {
				p, err := rowStored(rows)
				if err != nil {
					return err
				}
				found(p)
			}
			return rows.Err()
		})
	})
}

// List returns one page. Its plants are counted in a snapshot of their own: to stop reading large
// plants may close the connection.
func (s *Store) List(ctx context.Context, q plantstore.Query) (plantstore.Page, error) {
	if q.Order.ByName() {
		return s.listByName(ctx, q)
	}
	page, err := read(ctx, s, s.list, func(ctx context.Context, c *pgx.Conn) (page plantstore.Page, err error) {
		b := rules.NewPageBuilder(q, searchBudget)
		if q.Contains == "" && q.TagPrefix == nil && !q.Untagged && !slices.ContainsFunc(q.ExactTags(), isLongTag) {
			// Every plant matches, so one fetch has the page and the plant after it. A
			// statement is a snapshot.
			err = each(ctx, c, q, min(q.Limit, searchBudget)+1, b.Add)
		} else {
			err = inSnapshot(ctx, c, func() error { return each(ctx, c, q, fetchSize, b.Add) })
		}
		return b.Page(), err
	})
	if err != nil || !q.Count {
		return page, err
	}
	page.Count, err = read(ctx, s, s.list, func(ctx context.Context, c *pgx.Conn) (count *plantstore.Count, err error) {
		err = inSnapshot(ctx, c, func() error {
			count, err = rules.CountPlants(q, page, func(q plantstore.Query, names bool, f func(plantstore.StoredPlant) bool) error {
				if names {
					return each(ctx, c, q, fetchSize, f)
				}
				return eachOf(ctx, c, q, plantstore.MaxCount+1, "id, '', tag", f)
			})
			return err
		})
		return count, err
	})
	return page, err
}

// listByName returns one page of a query by name. It may take longer than another call, but no longer than
// a call waits for a server.
func (s *Store) listByName(ctx context.Context, q plantstore.Query) (page plantstore.Page, err error) {
	limited, cancel := context.WithTimeout(ctx, s.opts.StoreTimeout)
	defer cancel()
	err = s.retry(limited, func() error {
		return s.withProgress(limited, s.list, func(ctx context.Context, c *pgx.Conn, timeout *time.Timer) error {
			return inSnapshot(ctx, c, func() error {
				page, err = s.sortByName(ctx, c, timeout, q)
				return err
			})
		})
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && !errors.Is(err, plantstore.ErrUnavailable) {
		err = fmt.Errorf("%w: the plants to sort could not be read within %s: %w", plantstore.ErrUnavailable, s.opts.StoreTimeout, err)
	}
	return page, err
}

// withProgress is withConn for reads of many plants, which take as long as they come: the timer ends a wait
// for the server. f resets it with each plant.
func (s *Store) withProgress(ctx context.Context, p *pool, f func(ctx context.Context, c *pgx.Conn, timeout *time.Timer) error) error {
	return s.withConn(ctx, p, 0, func(ctx context.Context, c *pgx.Conn) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		timeout := time.AfterFunc(s.callTimeout, cancel)
		defer timeout.Stop()
		return f(ctx, c, timeout)
	})
}

// sortByName returns one page of a query by name, in a snapshot.
func (s *Store) sortByName(ctx context.Context, c *pgx.Conn, timeout *time.Timer, q plantstore.Query) (plantstore.Page, error) {
	b, err := rules.NewNamePageBuilder(q)
	if err != nil {
		return plantstore.Page{}, err
	}
	indexed := patterns(q.Contains) != nil
	if indexed {
		if indexed, err = canSearch(ctx, c); err != nil {
			return plantstore.Page{}, err
		}
	}
	unsorted, all := rules.Unsorted(q, indexed)
	if all {
		state, err := readLogState(ctx, c)
		if err != nil {
			return plantstore.Page{}, err
		}
		if err := rules.CheckSorted(state.plants); err != nil {
			return plantstore.Page{}, err
		}
	}
	add := func(p plantstore.StoredPlant) bool {
		timeout.Reset(s.callTimeout)
		return b.Add(p)
	}
	if err := each(ctx, c, unsorted, sortedFetchSize, add); err != nil {
		return plantstore.Page{}, err
	}
	return b.Page()
}

// Scan yields all plants from one snapshot. A scan takes as long as its consumer
// does, so scans have a pool of their own: nothing else waits for them.
func (s *Store) Scan(ctx context.Context, q plantstore.Query, at *plantstore.Cursor) iter.Seq2[plantstore.StoredPlant, error] {
	return func(yield func(plantstore.StoredPlant, error) bool) {
		if err := s.runScan(ctx, q, at, func(p plantstore.StoredPlant) bool { return yield(p, nil) }); err != nil {
			yield(plantstore.StoredPlant{}, err)
		}
	}
}

func (s *Store) runScan(ctx context.Context, q plantstore.Query, at *plantstore.Cursor, yield func(plantstore.StoredPlant) bool) error {
	matches := match.Filter(q)
	yielded, stopped := false, false
	var err error
	s.retry(ctx, func() error {
		err = s.withProgress(ctx, s.export, func(ctx context.Context, c *pgx.Conn, timeout *time.Timer) error {
			return inSnapshot(ctx, c, func() error {
				if at != nil {
					state, err := readLogState(ctx, c)
					if err != nil {
						return err
					}
					*at = plantstore.Position{Store: state.Store, Seq: state.Last, Time: state.time}.Cursor()
				}
				one := func(p plantstore.StoredPlant) bool {
					timeout.Stop() // the consumer's time is not limited
					if matches(p.Plant) {
						yielded = true
						stopped = !yield(p)
					}
					timeout.Reset(s.callTimeout)
					return !stopped
				}
				if q.Order.ByName() {
					return rules.ScanByName(q, one, func(q plantstore.Query) (plantstore.Page, error) { return s.sortByName(ctx, c, timeout, q) })
				}
				return each(ctx, c, q, fetchSize, one)
			})
		})
		if yielded { // plants that have been yielded cannot be taken back
			return nil
		}
		return err
	})
	if stopped {
		return nil
	}
	return err
}

// isLongTag reports whether the index may have only the start of a tag.
func isLongTag(tag string) bool { return utf8.RuneCountInString(escape(tag)) >= tagPrefix }

// tagStart returns the start of a tag that the index has.
func tagStart(tag string) string {
	tag = escape(tag)
	n := 0
	for i := range tag {
		if n == tagPrefix {
			return tag[:i]
		}
		n++
	}
	return tag
}

// each calls f with the plants that the query may select, by its ids or its tags, in its order
// until f returns false. It fetches that many at a time. With a TagPrefix the connection must be in
// a snapshot.
func each(ctx context.Context, c *pgx.Conn, q plantstore.Query, fetch int, f func(plantstore.StoredPlant) bool) error {
	columns := "id, name, tag"
	if q.Details {
		columns = storedColumns
	}
	return eachOf(ctx, c, q, fetch, columns, f)
}

// eachOf is each with these columns, which are the storedColumns, or those of rowPlant.
func eachOf(ctx context.Context, c *pgx.Conn, q plantstore.Query, fetch int, columns string, f func(plantstore.StoredPlant) bool) error {
	first, more := q.First()
	if !more {
		return nil
	}
	r := &reader{ctx: ctx, conn: c, query: &q, columns: columns, decode: rowStored, order: ascending, fetch: fetch, f: f}
	if columns != storedColumns {
		r.decode = func(row pgx.CollectableRow) (plantstore.StoredPlant, error) {
			p, err := rowPlant(row)
			return plantstore.StoredPlant{Plant: p}, err
		}
	}
	if q.Order.Descending() {
		r.order = descending
	}
	ids := q.IDs
	if ids == nil && q.TagPrefix != nil && !q.Untagged {
		var err error
		most := max(maxTagged, min(q.Limit, plantstore.MaxSorted))
		if ids, err = taggedFrom(ctx, c, &q, first, most); err != nil {
			return err
		}
	}
	if ids != nil {
		_, err := r.readIDs(first, ids)
		return err
	}
	query, args := selectPage, []any{int64(first), fetch}
	if tags := q.ExactTags(); len(tags) > 0 && q.TagPrefix == nil && !q.Untagged {
		for i := range tags {
			tags[i] = tagStart(tags[i])
		}
		if tags = slices.Compact(tags); len(tags) == 1 {
			query, args = selectTagged, append(args, tags[0])
		} else {
			query, args = selectAnyTagged, append(args, tags)
		}
	}
	if words := patterns(q.Contains); words != nil {
		indexed, err := canSearch(ctx, c)
		if err == nil && indexed {
			first, more, err = r.readMatching(query, slices.Clone(args), first, words)
		}
		if err != nil {
			return err
		}
	}
	for more {
		args[0] = int64(first)
		read, wants, err := r.read(query, args...)
		if err != nil || !wants || read < fetch {
			return err
		}
		first, more = q.Following(r.last)
	}
	return nil
}

// reader reads plants for a query, in its order, that many at a time.
type reader struct {
	ctx     context.Context
	conn    *pgx.Conn
	query   *plantstore.Query
	columns string
	decode  pgx.RowToFunc[plantstore.StoredPlant]
	order   *strings.Replacer
	fetch   int
	f       func(plantstore.StoredPlant) bool
	last    plantstore.ID // the plant that was read last
}

// read calls f with the plants of a statement. It returns how many there were, and whether f wants more.
func (r *reader) read(from string, args ...any) (n int, wants bool, err error) {
	for p, err := range inOrder(r.ctx, r.conn, r.decode, "SELECT "+r.columns+r.order.Replace(from), args...) {
		if err != nil || !r.f(p) {
			return n, false, err
		}
		n++
		r.last = p.ID
	}
	return n, true, nil
}

// orderSettings has rows come in the order of an index: collecting and sorting them, which
// looks cheap to a planner that expects few, is unbounded work. Nothing is compiled: a sort
// that cannot be avoided then seems so expensive to the planner that it would compile the
// statement for a second each time.
const orderSettings = `SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true), set_config('jit', 'off', true)`

// inOrder yields the rows of a query with the [orderSettings], in one round trip, up to an
// error. If the consumer stops long before the last row, that closes the connection.
func inOrder[T any](ctx context.Context, c *pgx.Conn, decode pgx.RowToFunc[T], sql string, args ...any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var b pgx.Batch
		b.Queue(orderSettings)
		b.Queue(sql, args...)
		results := c.SendBatch(ctx, &b)
		defer results.Close()
		results.Exec()
		rows, _ := results.Query() // Err has what was wrong with either
		defer func() {
			for drained := 0; rows.Next(); {
				for _, value := range rows.RawValues() {
					drained += len(value)
				}
				if drained > maxDrain {
					c.Close(ctx)
				}
			}
		}()
		for rows.Next() {
			row, err := decode(rows)
			if !yield(row, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(*new(T), err)
		}
	}
}

// readIDs calls f with the plants that have these ids, from one on, and reports whether it wants more.
func (r *reader) readIDs(first plantstore.ID, ids []plantstore.ID) (wants bool, err error) {
	for chunk := range slices.Chunk(ids, r.fetch) {
		if _, wants, err := r.read(selectIDs, int64(first), r.fetch, chunk); err != nil || !wants {
			return false, err
		}
	}
	return true, nil
}

// taggedFrom returns the ids of the plants, from one on, whose tag may be one that the query selects, in
// its order. If there are too many, it returns nil: then it takes no more work to look for them
// among all plants.
func taggedFrom(ctx context.Context, c *pgx.Conn, q *plantstore.Query, first plantstore.ID, most int) ([]plantstore.ID, error) {
	ids, plants := []plantstore.ID{}, 0
	add := func(from string, before *string) error {
		for id, err := range inOrder(ctx, c, pgx.RowTo[int64], selectTaggedFrom, from, before, most+1-plants) {
			if err != nil {
				return err
			}
			plants++
			if id := plantstore.ID(id); q.CompareIDs(id, first) >= 0 {
				ids = append(ids, id)
			}
		}
		return nil
	}
	prefix := tagStart(*q.TagPrefix)
	var before *string
	if end, ok := rules.PrefixEnd(prefix); ok {
		before = &end
	}
	err := add(prefix, before)
	for _, tag := range q.ExactTags() {
		if err == nil && !strings.HasPrefix(tag, *q.TagPrefix) {
			start := tagStart(tag)
			err = add(start, new(start+"\x01")) // the first text after it, see [selectTags]
		}
	}
	if err != nil || plants > most {
		return nil, err
	}
	slices.SortFunc(ids, q.CompareIDs)
	return slices.Compact(ids), nil
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

// rowPlant returns the plant in a row of id, name and tag.
func rowPlant(row pgx.CollectableRow) (plantstore.Plant, error) {
	var id int64
	var name string
	var tag *string
	err := row.Scan(&id, &name, &tag)
	return plantOf(id, name, tag), err
}

// rowStored returns the plant in a row of the storedColumns.
func rowStored(row pgx.CollectableRow) (p plantstore.StoredPlant, err error) {
	var id int64
	var name string
	var tag *string
	err = row.Scan(&id, &name, &tag, &p.Version.Time, &p.Version.N, &p.Created)
	p.Plant = plantOf(id, name, tag)
	return p, err
}

// plantOf returns the plant that the database stores as these columns.
func plantOf(id int64, name string, tag *string) plantstore.Plant {
	p := plantstore.Plant{ID: plantstore.ID(id), Name: unescape(name)}
	if tag != nil {
		p.Tag = plantstore.NewTag(unescape(*tag))
	}
	return p
}
