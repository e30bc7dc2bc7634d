package sqlite

import (
	"context"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore"
	"plantstore/internal/memtable"
	"plantstore/internal/rules"
	"plantstore/internal/wire"
)

// loadRows adds the rows after one up to another to a generation, and returns how many more
// plants there are with them, and the size of the rows.
func loadRows(c *sqlite.Conn, after, to int64, into *memtable.Generation) (plants, size int64, err error) {
	changes := make([]memtable.Change, 0, loadSize)
	add := func() {
		into.Load(changes)
		changes = changes[:0]
	}
	found := int64(0)
	err = query(c, func(row *sqlite.Stmt) error {
		found++
		size += row.ColumnInt64(6)
		kind := plantstore.EventTypeOf(row.ColumnInt64(5))
		if !kind.OfPlant() {
			return nil
		}
		plants += rules.PlantsAdded(kind)
		logged := logRow{kind: kind, plant: rowPlant(row), was: columnTag(row, 3), created: row.ColumnInt64(8)}
		changes = append(changes, changeOf(&logged, plantstore.Version{Time: row.ColumnInt64(7), N: row.ColumnInt64(4)}))
		if len(changes) == cap(changes) {
			add()
		}
		return nil
	}, "SELECT id, name, tag, was, seq, type, "+rowSize+", time, created FROM log WHERE seq > ? AND seq <= ? ORDER BY seq", after, to)
	add()
	if err == nil && found != to-after {
		err = inconsistent("the log has %d of the rows from %d to %d", found, after+1, to)
	}
	return plants, size, err
}

// loadSize is how many rows loadRows adds at once.
const loadSize = 1 << 14

// load reads what the table does not have yet, after a start.
func (s *Store) load() error {
	return s.transaction(func(w *writer) error {
		snap, err := beginSnapshot(w.conn)
		if err != nil {
			return err
		}
		defer snap.end()
		last, err := snap.At(snap.Last)
		if err != nil {
			return err
		}
		mem := &memtable.Unflushed{Active: memtable.New(snap.flushed)}
		plants, size, err := loadRows(w.conn, snap.flushed, snap.Last, mem.Active)
		if err != nil {
			return err
		}
		w.tx.state = state{
			seq: snap.Last, time: last.Time, plants: snap.plants + plants, since: time.Now().UnixMicro(), flushed: snap.flushed, trimmed: snap.Trimmed,
			bytes: snap.bytes + size, unflushedBytes: size,
		}
		s.unflushed.Store(mem)
		return w.loadIndex(snap)
	})
}

// eventBudget is how many events one call of Events examines.
const eventBudget = 100_000

// Events returns a page of the log.
func (s *Store) Events(ctx context.Context, q plantstore.EventQuery) (plantstore.EventPage, error) {
	return readSnapshot(ctx, s.search, func(snap *snapshot) (plantstore.EventPage, error) {
		start, first, err := snap.Start(q)
		if err != nil {
			return plantstore.EventPage{}, err
		}
		page := rules.NewEventPageBuilder(q, start.Cursor(), eventBudget)
		if q.ID != nil {
			found, err := snap.AddEventsOf(&plantEvents{snap, *q.ID}, &q, first, eventBudget, page)
			if err != nil || found {
				return page.Page(), err
			}
		}
		err = snap.eachEvent(first, q.Newest, page.Add)
		return page.Page(), err
	})
}

// Histogram finds the bounds of the buckets in the log by binary search.
func (s *Store) Histogram(ctx context.Context, q plantstore.HistogramQuery) ([]plantstore.Bucket, error) {
	return readSnapshot(ctx, s.lists, func(snap *snapshot) ([]plantstore.Bucket, error) { return snap.Histogram(q) })
}

// Changed returns a channel that is closed when rows have been added to the log.
func (s *Store) Changed() <-chan struct{} { return s.changes.Changed() }

const (
	eventColumns = `id, name, tag, seq, time, "by", type`
	selectEvents = "SELECT " + eventColumns + " FROM log WHERE seq >= ? ORDER BY seq"
	selectNewest = "SELECT " + eventColumns + " FROM log WHERE seq <= ? ORDER BY seq DESC"
)

// eachEvent calls f with the events from a row on, or from it backwards to the oldest one, until f
// returns false.
func (snap *snapshot) eachEvent(next int64, newest bool, f func(plantstore.Event) bool) error {
	text, step := selectEvents, int64(1)
	if newest {
		text, step = selectNewest, -1
	}
	return query(snap.conn, func(row *sqlite.Stmt) error {
		if seq := row.ColumnInt64(3); seq != next {
			return inconsistent("the log has row %d where row %d is next", seq, next)
		}
		next += step
		e, err := snap.event(row)
		if err == nil && !f(e) {
			err = errStop
		}
		return err
	}, text, next)
}

// event reads the eventColumns.
func (snap *snapshot) event(row *sqlite.Stmt) (plantstore.Event, error) {
	at := plantstore.Position{Store: snap.Store, Seq: row.ColumnInt64(3), Time: row.ColumnInt64(4)}
	e := plantstore.Event{Cursor: at.Cursor(), Time: time.UnixMicro(at.Time).UTC(), Type: plantstore.EventTypeOf(row.ColumnInt64(6)), By: row.ColumnText(5)}
	if e.Type.OfPlant() {
		e.Plant, e.Version = rowPlant(row), plantstore.Version{Time: at.Time, N: at.Seq}
		return e, nil
	}
	token, _, err := wire.DecodeToken([]byte(row.ColumnText(1)))
	if err != nil {
		return e, inconsistent("row %d of the log: %w", at.Seq, err)
	}
	e.Token = &token
	return e, nil
}
