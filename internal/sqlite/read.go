package sqlite

import (
	"context"
	"fmt"
	"iter"
	"math"

	"zombiezen.com/go/sqlite"

	"plantstore"
	"plantstore/internal/match"
	"plantstore/internal/memtable"
	"plantstore/internal/storage"
)

// searchBudget is how many plants one List examines in a search for a name. They take
// about a fifth of a second to read.
const searchBudget = 200_000

// Plant returns the plant with that id.
func (s *Store) Plant(ctx context.Context, id plantstore.ID) (plantstore.Plant, error) {
	if s.lock == nil {
		return s.plantFromView(ctx, id)
	}
	var found *plantstore.Plant
	err := s.withReader(ctx, s.read, func(r *reader) (err error) {
		found, err = s.find(r, id)
		return err
	})
	if err != nil {
		return plantstore.Plant{}, err
	}
	if found == nil {
		return plantstore.Plant{}, plantstore.ErrNoPlant
	}
	return *found, nil
}

// find returns the plant with that id, or nil if there is none.
func (s *Store) find(r *reader, id plantstore.ID) (*plantstore.Plant, error) {
	mem := s.unflushed.Load()
	for seq := int64(math.MaxInt64); ; {
		e, logged := mem.Find(id, seq)
		if !logged {
			return plantByKey(r.stored, int64(id))
		}
		last := s.lastSeq.Load() // before the read, which sees at least that much
		found, other, err := loggedPlant(r.logged, e)
		switch {
		case err != nil:
			return nil, err
		case other:
			// Its transaction failed, and the row is another's now.
			mem, seq = s.unflushed.Load(), math.MaxInt64
		case found == nil && e.Seq > last:
			// It was not committed yet, so the version before it counts.
			seq = e.Seq - 1
		case e.Deleted():
			return nil, nil
		case found == nil:
			// It has been flushed and trimmed.
			return plantByKey(r.stored, int64(id))
		default:
			return found, nil
		}
	}
}

// plantFromView is Plant for a store that is not open for serving: it does not have
// the server's index.
func (s *Store) plantFromView(ctx context.Context, id plantstore.ID) (found plantstore.Plant, err error) {
	err = s.withConn(ctx, s.lists, func(c *sqlite.Conn) error {
		stmt, err := c.Prepare("SELECT id, name, tag FROM plants WHERE id = ?")
		if err != nil {
			return err
		}
		plant, err := plantByKey(stmt, int64(id))
		if err == nil && plant == nil {
			return plantstore.ErrNoPlant
		}
		if err == nil {
			found = *plant
		}
		return err
	})
	return found, err
}

// List returns one page.
func (s *Store) List(ctx context.Context, q plantstore.Query) (plantstore.Page, error) {
	page := storage.NewPageBuilder(q, searchBudget)
	var err error
	if q.Filtered() {
		err = s.withConn(ctx, s.search, func(c *sqlite.Conn) error { return s.each(c, q, nil, page.Add) })
	} else {
		err = s.withReader(ctx, s.lists, func(r *reader) error { return s.each(r.conn, q, nil, page.Add) })
	}
	if err != nil {
		return plantstore.Page{}, err
	}
	return page.Page(), nil
}

// Scan yields all plants from one snapshot, on a connection of its own: it lasts as
// long as its consumer, and must not keep short reads waiting.
func (s *Store) Scan(ctx context.Context, q plantstore.Query, at *plantstore.Cursor) iter.Seq2[plantstore.Plant, error] {
	return func(yield func(plantstore.Plant, error) bool) {
		if err := s.runScan(ctx, q, at, func(p plantstore.Plant) bool { return yield(p, nil) }); err != nil {
			yield(plantstore.Plant{}, err)
		}
	}
}

func (s *Store) runScan(ctx context.Context, q plantstore.Query, at *plantstore.Cursor, yield func(plantstore.Plant) bool) error {
	if err := s.checkTrusted(); err != nil {
		return err
	}
	select {
	case s.scans <- struct{}{}:
		defer func() { <-s.scans }()
	case <-ctx.Done():
		return fmt.Errorf("scan %s: %w", s.path, ctx.Err())
	}
	c, err := s.connect()
	if err != nil {
		return s.classify(err)
	}
	defer c.Close()
	c.SetInterrupt(ctx.Done())
	matches := match.Filter(q)
	stopped := false
	err = s.each(c, q, at, func(p plantstore.Plant) bool {
		if matches(p) {
			stopped = !yield(p)
		}
		return !stopped
	})
	if stopped {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("scan %s: %w", s.path, ctx.Err())
	}
	return s.classify(err)
}

// each calls f with the plants that have the query's tag and come after its After, in
// order of id, until f returns false. All are of one snapshot.
func (s *Store) each(c *sqlite.Conn, q plantstore.Query, at *plantstore.Cursor, f func(plantstore.Plant) bool) error {
	snap, err := s.snapshot(c)
	if err != nil {
		return err
	}
	defer snap.end()
	if at != nil {
		position, err := snap.logRange(c).At(snap.seq)
		if err != nil {
			return err
		}
		*at = position.Cursor()
	}
	first := memtable.FirstID
	if q.After != nil {
		if *q.After == math.MaxInt64 {
			return nil
		}
		first = *q.After + 1
	}
	m, err := newMerge(c, snap, q.Tag, first)
	if err != nil {
		return err
	}
	defer m.stored.Reset()
	for {
		p, ok, err := m.next()
		if err != nil || !ok || !f(p) {
			return err
		}
	}
}

// merge iterates over the plants of a snapshot in order of id: those of the table that
// have no entry in memory, and those of the entries.
type merge struct {
	snap    *snapshot
	entries memtable.Merge
	stored  *sqlite.Stmt
	logged  *sqlite.Stmt

	row     bool // stored has one
	entry   memtable.Entry
	matches bool // the entry's plant exists and has the tag
	pending bool // entry is one
}

func newMerge(c *sqlite.Conn, snap *snapshot, tag plantstore.Tag, first plantstore.ID) (*merge, error) {
	m := &merge{snap: snap, entries: snap.mem.From(first, snap.seq, tag)}
	query := "SELECT id, name, tag FROM stored WHERE id >= ? ORDER BY id"
	text, tagged := tag.Text()
	if tagged {
		// The CROSS makes SQLite begin with the table of tagged plants.
		query = `SELECT stored.id, name, stored.tag FROM stored_by_tag AS t CROSS JOIN stored ON stored.id = t.id AND stored.tag = t.tag
			WHERE t.id >= ? AND t.tag = ? ORDER BY t.id`
	}
	var err error
	if m.stored, err = c.Prepare(query); err != nil {
		return nil, err
	}
	if m.logged, err = c.Prepare(selectLogged); err != nil {
		return nil, err
	}
	m.stored.BindInt64(1, int64(first))
	if tagged {
		m.stored.BindText(2, text)
	}
	m.nextEntry()
	return m, m.step()
}

func (m *merge) step() (err error) {
	m.row, err = m.stored.Step()
	return err
}

// nextEntry moves on to the next entry that the table does not have.
func (m *merge) nextEntry() {
	for {
		m.entry, m.matches, m.pending = m.entries.Next()
		if !m.pending || m.entry.Seq > m.snap.flushed {
			return
		}
	}
}

// next returns the next plant, or false after the last.
func (m *merge) next() (plantstore.Plant, bool, error) {
	for m.row || m.pending {
		if m.row && (!m.pending || m.stored.ColumnInt64(0) < int64(m.entry.ID)) {
			p := rowPlant(m.stored)
			return p, true, m.step()
		}
		e, matches := m.entry, m.matches
		if m.row && m.stored.ColumnInt64(0) == int64(e.ID) {
			if err := m.step(); err != nil {
				return plantstore.Plant{}, false, err
			}
		}
		m.nextEntry()
		if !matches {
			continue
		}
		p, err := entryPlant(m.logged, e)
		if err != nil {
			return plantstore.Plant{}, false, err
		}
		return *p, true, nil
	}
	return plantstore.Plant{}, false, nil
}

// snapshot is a consistent view of the store: a read transaction, and what it does not
// find in the table.
type snapshot struct {
	*readTx
	mem *memtable.Unflushed
}

// snapshot begins a read transaction, which the caller must end (invariant 4).
func (s *Store) snapshot(c *sqlite.Conn) (*snapshot, error) {
	for {
		mem := s.unflushed.Load()
		tx, err := beginRead(c)
		if err != nil {
			return nil, err
		}
		if s.lock == nil {
			// The server's index is in another process, so load it from the log.
			mem = &memtable.Unflushed{Active: memtable.New()}
			if _, _, err := loadRows(c, tx.flushed, tx.seq, mem.Active); err != nil {
				tx.end()
				return nil, err
			}
			return &snapshot{tx, mem}, nil
		}
		if mem.Active.Covers(tx.seq) {
			return &snapshot{tx, mem}, nil
		}
		tx.end()
	}
}
