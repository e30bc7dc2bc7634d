package sqlite

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"

	"zombiezen.com/go/sqlite"

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
	if q.Filtered() {
		pool = s.search
	}
	return readSnapshot(ctx, pool, func(snap *snapshot) (plantstore.Page, error) {
		page := rules.NewPageBuilder(q, searchBudget)
		err := snap.each(q, page.Add)
		return page.Page(), err
	})
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
	return cmp.Or(err, ctx.Err()) // what is in memory is not interrupted
}

// snapshot is a read transaction. Everything that is read on its connection until it ends
// is of one moment.
type snapshot struct {
	conn  *sqlite.Conn
	state *sqlite.Stmt        // keeps the transaction open: it has not been read to its end
	mem   *memtable.Unflushed // nil if the server is another process

	rules.LogRange       // of the rows that are kept
	flushed        int64 // the table has everything up to this row
	plants         int64 // as of the row flushed
	bytes          int64 // the size of the rows that are kept, up to flushed
}

var errNoState = inconsistent("the table log_state is empty")

// beginSnapshot begins a read transaction, or reads in the one that the connection is in. The
// caller must end it. There may be only one at a time on a connection.
func beginSnapshot(c *sqlite.Conn) (*snapshot, error) {
	row, err := c.Prepare("SELECT store, flushed, trimmed, trimmed_time, (SELECT max(seq) FROM log), plants, bytes FROM log_state")
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

// each calls f with the plants that have one of the query's ids, or else its tag, and come after
// its After, in order of id, until f returns false: those of the table that have no entry in
// memory, and those of the entries.
func (snap *snapshot) each(q plantstore.Query, f func(plantstore.StoredPlant) bool) error {
	first := memtable.FirstID
	if q.After != nil {
		if *q.After == math.MaxInt64 {
			return nil
		}
		first = *q.After + 1
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
	entries, more := mem.From(first, snap.Last, q.Tag), true
	next, match, pending := entries.Next()
	// upTo calls f with the plants of the entries up to an id, and reports whether that one
	// has an entry.
	upTo := func(id plantstore.ID) (found bool) {
		for more && pending && next <= id {
			if match != nil {
				more = f(*match)
			}
			found = next == id
			next, match, pending = entries.Next()
		}
		return found
	}
	columns, stored := "stored.id, name, stored.tag", func(row *sqlite.Stmt) plantstore.StoredPlant {
		return plantstore.StoredPlant{Plant: rowPlant(row)}
	}
	if q.Details {
		columns, stored = columns+", seq, updated, created", rowStored
	}
	text, args := "SELECT "+columns+" FROM stored WHERE id >= ? ORDER BY id", []any{int64(first)}
	if tag, tagged := q.Tag.Text(); tagged {
		// The CROSS makes SQLite begin with the table of tagged plants.
		text = "SELECT " + columns + ` FROM stored_by_tag AS t CROSS JOIN stored ON stored.id = t.id AND stored.tag = t.tag
			WHERE t.id >= ? AND t.tag = ? ORDER BY t.id`
		args = append(args, tag)
	}
	err = query(snap.conn, func(row *sqlite.Stmt) error {
		if replaced := upTo(plantstore.ID(row.ColumnInt64(0))); more && !replaced {
			more = f(stored(row))
		}
		if !more {
			return errStop
		}
		return nil
	}, text, args...)
	if err == nil {
		upTo(math.MaxInt64)
	}
	return err
}
