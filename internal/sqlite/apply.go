package sqlite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore"
	"plantstore/internal/memtable"
	"plantstore/internal/rules"
)

// groupSize is how many writes are decided, and appended to the log, at a time.
const groupSize = 32

// maxAppended is how many bytes a transaction may append to the log before it leaves the rest
// of its batch to the next one. That is more than a batch has itself: it is for plants that
// come back into memory to be replaced, patched or deleted.
const maxAppended = 16 << 20

// Apply applies the batch in one transaction, which is on disk when it returns. It decides
// each write, and appends a row to the log for each one that changes something. Whatever
// the ids are, that touches no page of the table. The table catches up with earlier batches
// in the same transaction.
func (s *Store) Apply(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	if s.lock == nil {
		return nil, fmt.Errorf("%s is not open for serving: only a server can write plants", s.path)
	}
	s.applying.Add(1)
	defer s.applying.Add(-1)
	var results []plantstore.Result
	err := s.withWriter(ctx, func(w *writer) (err error) {
		if results, err = w.apply(batch, s.unflushed.Load()); err != nil {
			return err
		}
		return s.flushAndTrim(len(results))
	})
	s.lastWrite.Store(time.Now().UnixNano())
	if err != nil {
		return nil, err
	}
	return results, nil
}

// apply decides the writes in their order and appends to the log what they change, until that
// is maxAppended. It holds few of the plants that exist in memory at once: they may be large.
func (w *writer) apply(batch []plantstore.Write, mem *memtable.Unflushed) ([]plantstore.Result, error) {
	results := make([]plantstore.Result, 0, len(batch))
	written := make(map[plantstore.ID]*plantstore.StoredPlant, len(batch)) // by the batch itself; nil if it was deleted
	for group := range slices.Chunk(batch, groupSize) {
		found, err := w.lookUp(group, written, mem)
		if err != nil {
			return nil, err
		}
		for i := range group {
			write := &group[i]
			current, ok := written[write.Plant.ID]
			if !ok {
				current = found[write.Plant.ID]
			}
			change := rules.Decide(write, current, w.nextVersion())
			results = append(results, change.Result)
			if change.EventType() != "" {
				written[write.Plant.ID] = change.After
				w.record(&change, write.By)
			}
		}
		if err := w.appendRows(groupSize); err != nil {
			return nil, err
		}
		if w.tx.bytes-w.bytes >= maxAppended {
			break
		}
	}
	return results, w.appendRows(1)
}

// record adds a change to the rows that the transaction appends.
func (w *writer) record(c *rules.Change, by string) {
	logged, version := c.Logged(), w.nextVersion()
	row := logRow{kind: c.EventType(), by: by, plant: logged.Plant}
	if row.kind == plantstore.PlantReplaced {
		row.was, row.created = c.Before.Tag, logged.Created
	}
	if c.Before != nil {
		row.prev = c.Before.Version.N
	}
	w.tx.rows = append(w.tx.rows, row)
	w.tx.plants += rules.PlantsAdded(row.kind)
	w.tx.changes = append(w.tx.changes, changeOf(&row, version))
}

// nextVersion returns the version that the next change makes.
func (w *writer) nextVersion() plantstore.Version {
	return plantstore.Version{Time: w.tx.now, N: w.tx.seq + int64(len(w.tx.rows)) + 1}
}

// changeOf returns what a row of the log changes.
func changeOf(row *logRow, version plantstore.Version) memtable.Change {
	kind, plant, was := row.kind, &row.plant, row.was
	c := memtable.Change{
		ID: plant.ID, Seq: version.N, Time: version.Time, Created: row.created,
		Size: uint32(plant.TextSize()), Name: plant.Name, Before: was, After: plant.Tag,
	}
	if kind == plantstore.PlantCreated {
		c.Created = c.Time
	}
	if kind == plantstore.PlantDeleted {
		c.Name, c.Before, c.After, c.Deleted = "", plant.Tag, plantstore.Tag{}, true
	}
	return c
}

// appendRows appends the transaction's rows to the log while there are at least that
// many.
func (w *writer) appendRows(least int) error {
	rows := w.tx.rows
	if len(rows) < least {
		return nil
	}
	w.tx.time = w.tx.now
	size := 0
	for len(rows) >= least {
		stmt, n := w.intoLog.first(len(rows))
		stmt.BindInt64(1, w.tx.seq+1)
		stmt.BindInt64(2, w.tx.time)
		added := 0
		for i := range rows[:n] {
			added += bindRow(stmt, i, &rows[i])
		}
		if err := run(stmt, added); err != nil {
			return fmt.Errorf("append to the log: %w", err)
		}
		size += added
		w.tx.seq += int64(n)
		if last := w.conn.LastInsertRowID(); last != w.tx.seq {
			return inconsistent("the log's last row is %d, want %d", last, w.tx.seq)
		}
		rows = rows[n:]
	}
	w.tx.bytes += int64(size)
	w.tx.unflushedBytes += int64(size)
	left := copy(w.tx.rows, rows)
	clear(w.tx.rows[left:]) // or their text would stay in memory
	w.tx.rows = w.tx.rows[:left]
	return nil
}

// bindRow binds the n-th row of a statement, and returns its size, which is rowSize.
func bindRow(stmt *sqlite.Stmt, n int, row *logRow) int {
	at := 3 + 8*n // after the number and the time
	stmt.BindText(at, row.by)
	stmt.BindInt64(at+1, row.kind.Number())
	stmt.BindInt64(at+2, int64(row.plant.ID))
	stmt.BindText(at+3, row.plant.Name)
	tags := bindTag(stmt, at+4, row.plant.Tag) + bindTag(stmt, at+5, row.was)
	if row.kind == plantstore.PlantReplaced {
		stmt.BindInt64(at+6, row.created)
	} else {
		stmt.BindNull(at + 6)
	}
	stmt.BindInt64(at+7, row.prev)
	return rowOverhead + len(row.by) + len(row.plant.Name) + tags
}

// bindTag binds a tag, and returns its size.
func bindTag(stmt *sqlite.Stmt, param int, tag plantstore.Tag) int {
	text, ok := tag.Text()
	if ok {
		stmt.BindText(param, text)
	} else {
		stmt.BindNull(param)
	}
	return len(text)
}

// lookUp returns the plants that have an id of these writes, except ids that the batch
// itself has written before.
func (w *writer) lookUp(writes []plantstore.Write, written map[plantstore.ID]*plantstore.StoredPlant, mem *memtable.Unflushed) (map[plantstore.ID]*plantstore.StoredPlant, error) {
	found := make(map[plantstore.ID]*plantstore.StoredPlant) // as a rule, stays empty
	var buf [groupSize]plantstore.ID
	stored := buf[:0] // ids to look up in the table
	for i := range writes {
		id := writes[i].Plant.ID
		if _, ok := written[id]; ok {
			continue
		}
		if plant, row := mem.Find(id, math.MaxInt64); row > 0 {
			found[id] = plant
		} else {
			stored = append(stored, id)
		}
	}
	return found, eachStored(w.conn, stored, func(p plantstore.StoredPlant) { found[p.ID] = &p })
}

// density is how many ids a range may have for each that is looked up in it.
const density = 8

// eachStored calls found with those of the plants with these ids that are in the table. It
// reads ids that are close together as a range.
func eachStored(c *sqlite.Conn, ids []plantstore.ID, found func(plantstore.StoredPlant)) error {
	slices.Sort(ids)
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && uint64(ids[n]-ids[0]) < uint64(density*(n+1)) {
			n++
		}
		err := query(c, func(row *sqlite.Stmt) error {
			if _, ok := slices.BinarySearch(ids[:n], plantstore.ID(row.ColumnInt64(0))); ok {
				found(rowStored(row))
			}
			return nil
		}, "SELECT "+storedColumns+" FROM stored WHERE id BETWEEN ? AND ?", int64(ids[0]), int64(ids[n-1]))
		if err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}
