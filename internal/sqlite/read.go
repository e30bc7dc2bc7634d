package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
	"plantstore/internal/match"
	"plantstore/internal/memtable"
	"plantstore/internal/rules"
)

// searchBudget is how many plants one List examines in a search for a name. They take
// about a fifth of a second to read.
const searchBudget = 200_000

// Plant returns the plant with that id.
func (s *Store) Plant(ctx context.Context, id plantstore.ID) (plantstore.StoredPlant, error) {
	found, err := read(ctx, s.lookups, func(c *sqlite.Conn) (*plantstore.StoredPlant, error) { return s.find(c, id) })
	if err != nil {
		return plantstore.StoredPlant{}, err
	}
	if found == nil {
		return plantstore.StoredPlant{}, plantstore.ErrNoPlant
	}
	return *found, nil
}

// find returns the plant with that id, or nil if there is none.
func (s *Store) find(c *sqlite.Conn, id plantstore.ID) (*plantstore.StoredPlant, error) {
	if s.lock == nil { // the server's memory is in another process
		return plantByKey(c, "SELECT "+storedColumns+" FROM plants WHERE id = ?", int64(id))
	}
	last := s.lastSeq.Load() // before the entry is found, which is then not one of a transaction that fails
	plant, row := s.unflushed.Load().Find(id, math.MaxInt64)
	if row == 0 {
		return plantByKey(c, storedPlant, int64(id))
	}
	if row <= last {
		return plant, nil
	}
	// Its transaction is in progress. Only a snapshot knows whether it is visible.
	err := s.inSnapshot(c, func(snap *snapshot) (err error) {
		plant, err = snap.plant(snap.mem, id)
		return err
	})
	return plant, err
}

const storedPlant = "SELECT " + storedColumns + " FROM stored WHERE id = ?"

// plant returns the plant with that id, or nil if there is none.
func (snap *snapshot) plant(mem *memtable.Unflushed, id plantstore.ID) (*plantstore.StoredPlant, error) {
	plant, row := mem.Find(id, snap.Last)
	if row == 0 {
		return plantByKey(snap.conn, storedPlant, int64(id))
	}
	return plant, nil
}

// Decide decides the writes from one snapshot.
func (s *Store) Decide(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	return readSnapshot(ctx, s.lists, func(snap *snapshot) ([]plantstore.Result, error) {
		return rules.DecideEach(batch, snap.find)
	})
}

// find calls found with the plants that have these ids.
func (snap *snapshot) find(ids []plantstore.ID, found func(plantstore.StoredPlant)) error {
	mem, err := snap.unflushed()
	if err != nil {
		return err
	}
	stored := ids[:0]
	for _, id := range ids {
		plant, row := mem.Find(id, snap.Last)
		switch {
		case row == 0:
			stored = append(stored, id)
		case plant != nil:
			found(*plant)
		}
	}
	return eachStored(snap.conn, stored, found)
}

// List returns one page.
func (s *Store) List(ctx context.Context, q plantstore.Query) (plantstore.Page, error) {
	pool := s.lists
	if q.Filtered() || q.Order.ByName() {
		pool = s.search
	}
	return readSnapshot(ctx, pool, func(snap *snapshot) (plantstore.Page, error) {
		if q.Order.ByName() {
			return snap.listByName(q)
		}
		b := rules.NewPageBuilder(q, searchBudget)
		late := func() bool { return false }
		if snap.indexed(&q) {
			end := time.Now().Add(s.searchTime)
			late = func() bool { return !time.Now().Before(end) }
		}
		err := snap.each(q, func(p plantstore.StoredPlant) bool {
			more := b.Add(p)
			if late() {
				b.End()
			}
			return more
		})
		if err != nil {
			return plantstore.Page{}, err
		}
		page := b.Page()
		page.Count, err = rules.CountPlants(q, page, func(q plantstore.Query, names bool, f func(plantstore.StoredPlant) bool) error {
			gaveUp := false
			err := snap.eachOf(q, names, func(p plantstore.StoredPlant) bool {
				gaveUp = late()
				return !gaveUp && f(p)
			})
			if gaveUp {
				return rules.ErrGaveUp
			}
			return err
		})
		return page, err
	})
}

// listByName returns one page of a query by name.
func (snap *snapshot) listByName(q plantstore.Query) (plantstore.Page, error) {
	b, err := rules.NewNamePageBuilder(q)
	if err != nil {
		return plantstore.Page{}, err
	}
	unsorted, all := rules.Unsorted(q, snap.indexed(&q))
	if all {
		// The table has at least as many plants as the store, but for one in each row after it.
		if err := rules.CheckSorted(snap.plants - (snap.Last - snap.flushed)); err != nil {
			return plantstore.Page{}, err
		}
	}
	if err := snap.each(unsorted, b.Add); err != nil {
		return plantstore.Page{}, err
	}
	return b.Page()
}

// Scan yields all plants from one snapshot.
func (s *Store) Scan(ctx context.Context, q plantstore.Query, at *plantstore.Cursor) iter.Seq2[plantstore.StoredPlant, error] {
	return func(yield func(plantstore.StoredPlant, error) bool) {
		if err := s.runScan(ctx, q, at, func(p plantstore.StoredPlant) bool { return yield(p, nil) }); err != nil {
			yield(plantstore.StoredPlant{}, err)
		}
	}
}

func (s *Store) runScan(ctx context.Context, q plantstore.Query, at *plantstore.Cursor, yield func(plantstore.StoredPlant) bool) error {
	matches := match.Filter(q)
	stopped, err := readSnapshot(ctx, s.scans, func(snap *snapshot) (stopped bool, err error) {
		if at != nil {
			position, err := snap.At(snap.Last)
			if err != nil {
				return false, err
			}
			*at = position.Cursor()
		}
		if q.Order.ByName() {
			return stopped, rules.ScanByName(q, func(p plantstore.StoredPlant) bool {
				stopped = !yield(p)
				return !stopped
			}, snap.listByName)
		}
		err = snap.each(q, func(p plantstore.StoredPlant) bool {
			if matches(p.Plant) {
				stopped = !yield(p)
			}
			return !stopped
		})
		return stopped, err
	})
	if stopped {
		return nil
	}
	return cmp.Or(err, ctx.Err()) // reads of memory are not interrupted
}

// snapshot is a read transaction. Everything that is read on its connection until it ends
// is of one moment.
type snapshot struct {
	conn  *sqlite.Conn
	state *sqlite.Stmt        // keeps the transaction open: it has not been read to its end
	mem   *memtable.Unflushed // nil if the server is another process

	rules.LogRange // of the rows that are kept
	names          nameIndex
	flushed        int64 // the table has everything up to this row
	plants         int64 // as of the row flushed
	bytes          int64 // the size of the rows that are kept, up to flushed
}

var errNoState = inconsistent("the table log_state is empty")

// beginSnapshot begins a read transaction, or reads in the one that the connection is in. The
// caller must end it. There may be only one at a time on a connection.
func beginSnapshot(c *sqlite.Conn) (*snapshot, error) {
	row, err := c.Prepare("SELECT store, flushed, trimmed, trimmed_time, (SELECT max(seq) FROM log), plants, bytes, search, search_next, search_plants FROM log_state")
	if err != nil {
		return nil, err
	}
	found, err := row.Step()
	if err != nil {
		return nil, err // Step has reset it
	}
	if !found {
		return nil, cmp.Or(row.Reset(), errNoState)
	}
	trimmed := row.ColumnInt64(2)
	return &snapshot{
		conn: c, state: row, flushed: row.ColumnInt64(1), plants: row.ColumnInt64(5), bytes: row.ColumnInt64(6),
		names: nameIndex{state: indexState(row.ColumnInt64(7)), next: plantstore.ID(row.ColumnInt64(8)), plants: row.ColumnInt64(9)},
		LogRange: rules.LogRange{
			Store: row.ColumnText(0), Trimmed: trimmed, TrimmedTime: row.ColumnInt64(3),
			// If all rows have been trimmed, the next one still comes after them.
			Last: max(row.ColumnInt64(4), trimmed),
			TimeOf: func(seq int64) (int64, error) {
				at, err := number(c, "SELECT time FROM log WHERE seq = ?", seq)
				if err == nil && at == 0 {
					err = inconsistent("the log has no row %d", seq)
				}
				return at, err
			},
		},
	}, nil
}

func (snap *snapshot) end() { _ = snap.state.Reset() }

// inSnapshot runs f with a snapshot on a connection (invariant 4).
func (s *Store) inSnapshot(c *sqlite.Conn, f func(*snapshot) error) error {
	for {
		mem := s.unflushed.Load()
		snap, err := beginSnapshot(c)
		if err != nil {
			return err
		}
		if s.lock == nil {
			mem = nil
		}
		if mem == nil || mem.Active.Covers(snap.Last) {
			snap.mem = mem
			defer snap.end()
			return f(snap)
		}
		snap.end()
	}
}

// readSnapshot is read with a snapshot.
func readSnapshot[T any](ctx context.Context, pool *readers, f func(*snapshot) (T, error)) (T, error) {
	return read(ctx, pool, func(c *sqlite.Conn) (found T, err error) {
		err = pool.store.inSnapshot(c, func(snap *snapshot) (err error) {
			found, err = f(snap)
			return err
		})
		return found, err
	})
}

// unflushed returns what the table does not have yet.
func (snap *snapshot) unflushed() (*memtable.Unflushed, error) {
	if snap.mem != nil {
		return snap.mem, nil
	}
	mem := &memtable.Unflushed{Active: memtable.New(snap.flushed)}
	_, _, err := loadRows(snap.conn, snap.flushed, snap.Last, mem.Active)
	return mem, err
}

// each calls f with the plants that the query may select, by its ids or its tags, in its order
// until f returns false.
func (snap *snapshot) each(q plantstore.Query, f func(plantstore.StoredPlant) bool) error {
	return snap.eachOf(q, true, f)
}

// eachOf is each with the names of the plants, or without those that need not be read: it calls f
// with the plants of the table that have no entry in memory, and those of the entries.
func (snap *snapshot) eachOf(q plantstore.Query, names bool, f func(plantstore.StoredPlant) bool) error {
	first, ok := q.First()
	if !ok {
		return nil
	}
	mem, err := snap.unflushed()
	if err != nil {
		return err
	}
	if q.IDs != nil {
		at, _ := slices.BinarySearch(q.IDs, first)
		for _, id := range q.IDs[at:] { // one at a time: they may be large
			if plant, err := snap.plant(mem, id); err != nil || plant != nil && !f(*plant) {
				return err
			}
		}
		return nil
	}
	entries, more := mem.From(first, snap.Last, &q), true
	next, match, pending := entries.Next()
	last, passed := first, false // the entry that was passed last
	// upTo calls f with the plants of the entries up to an id, and reports whether that one
	// has an entry. About such a plant the table of tagged plants may have several rows.
	upTo := func(id plantstore.ID) bool {
		for more && pending && q.CompareIDs(next, id) <= 0 {
			if match != nil {
				more = f(*match)
			}
			last, passed = next, true
			next, match, pending = entries.Next()
		}
		return passed && last == id
	}
	stored := func(row *sqlite.Stmt) plantstore.StoredPlant { return plantstore.StoredPlant{Plant: rowPlant(row)} }
	if q.Details {
		stored = rowStored
	}
	columns := "stored.name, stored.tag"
	switch {
	case !names && !q.ByTag():
		columns = noColumns
	case !names && !q.Untagged && q.TagPrefix == nil:
		columns = taggedColumns
	case q.Details:
		columns += ", seq, updated, created"
	}
	err = snap.eachStored(&q, columns, first, func(row *sqlite.Stmt) error {
		if replaced := upTo(plantstore.ID(row.ColumnInt64(0))); more && !replaced {
			more = f(stored(row))
		}
		if !more {
			return errStop
		}
		return nil
	})
	if err == nil && pending {
		last := plantstore.ID(math.MaxInt64)
		if q.Order.Descending() {
			last = memtable.FirstID
		}
		upTo(last)
	}
	return err
}

// A row of the table has the name before the tag: to read that takes as long as to read both. So
// plants without their names are read without other columns, or with the tag from the table of
// tagged plants.
const (
	noColumns     = "'', NULL"
	taggedColumns = "'', t.tag"
)

// eachStored calls f with the rows of the table, from an id on, that the query may select, in
// its order until f returns errStop. Their first column is the id.
func (snap *snapshot) eachStored(q *plantstore.Query, columns string, first plantstore.ID, f func(row *sqlite.Stmt) error) error {
	if !q.ByTag() || q.Untagged {
		return snap.eachByName(q, columns, first, f)
	}
	if q.TagPrefix != nil {
		ids, few, err := snap.taggedFrom(q, first)
		if err != nil {
			return err
		}
		if !few {
			return snap.eachByName(q, columns, first, f)
		}
		for _, id := range ids {
			stopped := false
			err := query(snap.conn, func(row *sqlite.Stmt) error {
				err := f(row)
				stopped = err == errStop
				return err
			}, "SELECT id, "+columns+" FROM stored WHERE id = ?", int64(id))
			if err != nil || stopped {
				return err
			}
		}
		return nil
	}
	byName, err := snap.betterByName(q)
	if err != nil {
		return err
	}
	if byName {
		return snap.eachByName(q, columns, first, f)
	}
	text, args := taggedQuery(q, columns, first)
	if len(args) == 2 {
		return query(snap.conn, f, text, args...)
	}
	// There are many such statements, and large ones: they are not kept.
	return withoutStop(sqlitex.ExecuteTransient(snap.conn, text, &sqlitex.ExecOptions{Args: args, ResultFunc: f}))
}

// taggedQuery returns the statement that reads the plants of the table, from an id on, that have
// one of the query's tags.
func taggedQuery(q *plantstore.Query, columns string, first plantstore.ID) (text string, args []any) {
	from, order := direction(q)
	// The CROSS makes SQLite begin with the table of tagged plants.
	join := " CROSS JOIN stored ON stored.id = t.id AND stored.tag = t.tag"
	if columns == taggedColumns {
		join = ""
	}
	args = []any{int64(first)}
	var parts []string
	for _, tag := range q.ExactTags() {
		args = append(args, tag)
		parts = append(parts, fmt.Sprintf("SELECT t.id, %s FROM stored_by_tag AS t%s WHERE t.id %s ?1 AND t.tag = ?%d", columns, join, from, len(args)))
	}
	return strings.Join(parts, " UNION ALL ") + " ORDER BY 1" + order, args // it merges the parts, and sorts nothing
}

// direction returns how ids compare that come after another one, and the direction of their order.
func direction(q *plantstore.Query) (from, order string) {
	if q.Order.Descending() {
		return "<=", " DESC"
	}
	return ">=", ""
}

// maxTagged is how many plants taggedFrom collects, and maxTaggedText how many bytes of tags it
// reads for that. They take about a twentieth of a second.
const (
	maxTagged     = 50_000
	maxTaggedText = 32 << 20
)

// taggedFrom returns the ids of the plants of the table, from one on, that have a tag that the query
// selects, or had one before the entries in memory, in the query's order. If there are too many,
// few is false: then it takes no more work to look for them among all plants.
func (snap *snapshot) taggedFrom(q *plantstore.Query, first plantstore.ID) (ids []plantstore.ID, few bool, err error) {
	most, mostText, plants, text := maxTagged, maxTaggedText, 0, 0
	if q.Limit > most {
		most, mostText = min(q.Limit, plantstore.MaxSorted), rules.MaxSortedText
	}
	add := func(row *sqlite.Stmt) error {
		plants++
		text += 1 + row.ColumnInt(1)
		if plants > most || text > mostText {
			return errStop
		}
		if id := plantstore.ID(row.ColumnInt64(0)); q.CompareIDs(id, first) >= 0 {
			ids = append(ids, id)
		}
		return nil
	}
	const selected = "SELECT id, octet_length(tag) FROM stored_by_tag WHERE "
	if end, ok := rules.PrefixEnd(*q.TagPrefix); ok {
		err = query(snap.conn, add, selected+"tag >= ? AND tag < ?", *q.TagPrefix, end)
	} else {
		err = query(snap.conn, add, selected+"tag >= ?", *q.TagPrefix)
	}
	for _, tag := range q.ExactTags() {
		if err == nil && !strings.HasPrefix(tag, *q.TagPrefix) {
			err = query(snap.conn, add, selected+"tag = ?", tag)
		}
	}
	slices.SortFunc(ids, q.CompareIDs)
	return slices.Compact(ids), plants <= most && text <= mostText, err
}
