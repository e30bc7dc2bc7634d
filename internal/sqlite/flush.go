package sqlite

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"plantstore"
	"plantstore/internal/memtable"
)

// generationSize is how many rows of the log a generation has when it is frozen. The more it
// has, the fewer pages its flush touches per row, and the longer a server takes to read the log
// when it starts.
const generationSize = 1 << 19

// generationShare is the share of the log at which a generation is frozen: it has the log's
// limit, in bytes or in time, divided by this. Until it is flushed, its rows cannot be trimmed.
const generationShare = 16

// flushText is how many bytes of text a transaction may flush, at least.
const flushText = 4 << 20

// mergingFill is how full the active generation is when a transaction that merges segments of the
// index of names flushes, too. Before, it does one of them, which takes less time. The flush is
// three times as fast as the log grows, so it ends in time.
const mergingFill = 1.0 / 3

// progress is how much of the frozen generation has been flushed: all plants first, with their
// names in the index, and then which of them have which tag.
type progress struct {
	next    plantstore.ID   // plants before this one have been
	stored  bool            // all plants have been
	nextTag string          // the tags before this one have been, except for ids
	tag     string          // the one before nextTag
	ids     []plantstore.ID // the plants that have got or lost tag and are left
	has     []bool          // whether they have it in the end
	left    int             // approximate number of rows to write for the rest
	plants  int64           // how many there are as of the generation's last row
	bytes   int64           // the size of its rows in the log
}

// freeze makes the active generation the frozen one, to be flushed. There must be
// none. The caller holds the mutex.
func (s *Store) freeze() {
	mem := s.unflushed.Load()
	w := s.write
	w.since = w.time
	w.progress = progress{next: memtable.FirstID, left: s.flushRows(mem.Active), plants: w.plants, bytes: w.unflushedBytes}
	// A reader that has the old pointer learns from this that it does not cover what
	// is committed from now on.
	mem.Active.Freeze(w.seq)
	s.unflushed.Store(&memtable.Unflushed{Active: memtable.New(w.seq), Frozen: mem.Active})
}

// freezeRest makes sure that there is a frozen generation, however small, and reports
// false if there is nothing to flush.
func (s *Store) freezeRest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	mem := s.unflushed.Load()
	if mem.Frozen == nil && s.write.seq > s.write.flushed { // all of them may be rows of tokens
		s.freeze()
	}
	return s.unflushed.Load().Frozen != nil
}

// flushRows returns approximately how many rows the flush of a generation writes.
func (s *Store) flushRows(g *memtable.Generation) int {
	size := g.Size()
	return size.Rows*s.write.names.rows() + size.TagChanges
}

// fill returns how full the active generation is: it is 1 when one of the limits is reached.
func (s *Store) fill() float64 {
	w, size, limit := s.write, s.unflushed.Load().Active.Size(), s.GenerationLimit
	fill := max(float64(size.Rows)/float64(limit.Rows), float64(size.Text)/float64(limit.Text), float64(size.TagBytes)/float64(limit.TagBytes))
	if s.logBytes > 0 {
		fill = max(fill, generationShare*float64(w.unflushedBytes-w.progress.bytes)/float64(s.logBytes))
	}
	if s.logAge > 0 {
		age := time.Duration(w.time-w.since) * time.Microsecond
		fill = max(fill, generationShare*float64(age)/float64(s.logAge))
	}
	return fill
}

// flushAndTrim brings the table closer to the log, and the log closer to its limits, by as
// much as is due along with that many writes.
func (s *Store) flushAndTrim(writes int) error {
	w := s.write
	appended := w.tx.bytes - w.bytes
	merging := w.tx.names.merge > 0
	if merging {
		if err := w.mergeNames(); err != nil {
			return err
		}
	}
	if !merging || s.fill() > mergingFill {
		if err := s.flush(s.flushDue(), max(flushText, 3*appended)); err != nil {
			return err
		}
	}
	return s.trim(trimFactor*writes, appended)
}

// flushDue returns how many rows to flush along with a batch, so that the frozen generation
// is flushed, and its memory free, by the time the active one is half full. Small batches
// flush a whole group now and then, unless it has too much text.
func (s *Store) flushDue() int {
	frozen := s.unflushed.Load().Frozen
	if frozen == nil {
		return 0
	}
	all, left, group := s.flushRows(frozen), s.write.progress.left, groupSize
	if s.write.names.state != indexOff && !s.write.progress.stored {
		group = indexGroup * s.write.names.rows()
	}
	if left <= 0 { // the estimate was too low, or nothing is left, which the last flush finds
		return min(group, 1+all/64)
	}
	due := left - int(max(0, 1-2*s.fill())*float64(all))
	if due < min(group, 1+all/64, left) {
		return 0
	}
	return max(1, due)
}

// flush brings the tables up to date with the frozen generation, by about n rows with up to
// that many bytes of text: first the plants and the index of their names, in order of id, then
// which of them have which tag (invariant 6).
func (s *Store) flush(n int, text int64) error {
	frozen := s.unflushed.Load().Frozen
	if n == 0 || frozen == nil {
		return nil
	}
	w := s.write
	if !w.tx.progress.stored {
		flushed, size, err := w.flushPlants(frozen, n, text)
		if err != nil {
			return fmt.Errorf("flush: %w", err)
		}
		n, text = n-flushed, text-size
		if !w.tx.progress.stored || n <= 0 {
			return nil
		}
	}
	last, err := w.flushTags(frozen, n, text)
	if err != nil {
		return fmt.Errorf("flush tags: %w", err)
	}
	if !last {
		return nil
	}
	plants := w.tx.progress.plants
	w.tx.unflushedBytes -= w.tx.progress.bytes
	w.tx.flushed, w.tx.progress = frozen.Final(), progress{}
	err = exec(w.conn, "UPDATE log_state SET flushed = ?, plants = ?, bytes = ?", w.tx.flushed, plants, w.tx.bytes-w.tx.unflushedBytes)
	if err == nil && w.conn.Changes() != 1 {
		err = errNoState
	}
	return err
}

// flushPlants flushes the next plants, by about n rows with up to that many bytes of text, and returns
// how many rows and how much text it was.
func (w *writer) flushPlants(frozen *memtable.Generation, n int, text int64) (flushed int, size int64, err error) {
	p, rows := &w.tx.progress, w.tx.names.rows()
	if w.tx.names.state != indexOff {
		text = max(indexText, 3*(w.tx.bytes-w.bytes))
		n = max(1, min(n/rows, int(text/rowOverhead)))
	}
	chunk := frozen.From(p.next, math.MaxInt64, make([]memtable.Entry, 0, n))
	last := len(chunk) < n || chunk[n-1].ID == math.MaxInt64
	for i, e := range chunk {
		if size += int64(e.Size); size > text && i > 0 {
			chunk, last = chunk[:i], false
			break
		}
	}
	all := len(chunk)
	var before []plantstore.Plant
	if w.tx.names.state != indexOff {
		if before, chunk, err = w.indexedNames(chunk, flushText); err != nil {
			return 0, 0, err
		}
	}
	p.stored = last && len(chunk) == all
	if !p.stored {
		p.next = chunk[len(chunk)-1].ID + 1
	}
	flushed = len(chunk) * rows
	p.left -= flushed
	w.tx.text += size
	if err := w.store(frozen, chunk); err != nil || w.tx.names.state == indexOff {
		return flushed, size, err
	}
	return flushed, size, w.reindex(frozen, chunk, before)
}

// store brings the table up to date with entries in order of id.
func (w *writer) store(frozen *memtable.Generation, entries []memtable.Entry) error {
	for len(entries) > 0 {
		deleted := 0
		for deleted < len(entries) && entries[deleted].Deleted() {
			deleted++
		}
		if deleted > 0 {
			stmt, n := w.fromStored.first(deleted)
			for i, e := range entries[:n] {
				stmt.BindInt64(i+1, int64(e.ID))
			}
			if err := run(stmt, 0); err != nil {
				return err
			}
			entries = entries[n:]
			continue
		}
		stmt, n := w.intoStored.first(len(entries))
		for n > 1 && !isDense(entries[:n]) {
			stmt, n = w.intoStored.first(n / 2)
		}
		text := 0
		for i, e := range entries[:n] {
			plant := frozen.Plant(e)
			text += plant.TextSize()
			stmt.BindInt64(6*i+1, int64(plant.ID))
			stmt.BindText(6*i+2, plant.Name)
			bindTag(stmt, 6*i+3, plant.Tag)
			stmt.BindInt64(6*i+4, plant.Version.N)
			stmt.BindInt64(6*i+5, plant.Version.Time)
			if plant.Created == plant.Version.Time {
				stmt.BindNull(6*i + 6)
			} else {
				stmt.BindInt64(6*i+6, plant.Created)
			}
		}
		if err := run(stmt, text); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// isDense reports whether one statement should store these entries. If they are far apart that
// is slower: SQLite keeps a copy of each page that the statement changes.
func isDense(entries []memtable.Entry) bool {
	spread := uint64(entries[len(entries)-1].ID - entries[0].ID)
	return spread < uint64(density*len(entries)) && !slices.ContainsFunc(entries, memtable.Entry.Deleted)
}

// insertStored returns a statement that stores n plants.
func insertStored(n int) string {
	return "INSERT INTO stored (" + storedColumns + ") VALUES (?, ?, ?, ?, ?, ?)" + strings.Repeat(", (?, ?, ?, ?, ?, ?)", n-1) +
		" ON CONFLICT (id) DO UPDATE SET name = excluded.name, tag = excluded.tag, seq = excluded.seq, updated = excluded.updated, created = excluded.created"
}

// deleteStored returns a statement that deletes n plants.
func deleteStored(n int) string {
	return "DELETE FROM stored WHERE id IN (?" + strings.Repeat(", ?", n-1) + ")"
}
