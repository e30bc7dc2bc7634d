package sqlite

import (
	"fmt"
	"math"

	"plantstore"
)

// generationSize is how many rows of the log a generation has when it is frozen. The
// more, the fewer pages its flush touches for each row, and the longer it takes to
// read the log when a server starts.
const generationSize = 1 << 19

const firstID = plantstore.ID(math.MinInt64)

// freeze makes the active generation the frozen one, to be flushed. There must be
// none. The caller holds the mutex.
func (s *Store) freeze() {
	mem := s.unflushed.Load()
	s.write.next, s.write.left = firstID, mem.active.len()
	// A reader that has the old pointer learns from this that it does not cover what
	// is committed from now on.
	mem.active.final.Store(s.write.seq)
	s.unflushed.Store(&unflushed{active: newGeneration(), frozen: mem.active})
}

// freezeRest makes sure that there is a frozen generation, however small, and reports
// false if there is nothing to flush.
func (s *Store) freezeRest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	mem := s.unflushed.Load()
	if mem.frozen == nil && mem.active.len() > 0 {
		s.freeze()
	}
	return s.unflushed.Load().frozen != nil
}

// flushDue returns how many rows to flush along with a batch of this size, so that the
// frozen generation is flushed by the time the active one is full. Small batches flush
// a whole group now and then.
func (s *Store) flushDue(batch int) int {
	mem, w := s.unflushed.Load(), s.write
	if mem.frozen == nil {
		return 0
	}
	// An eighth of the active generation is spare.
	room := max(1, s.generationSize-s.generationSize/8-mem.active.len())
	w.owed += 1 + w.left*batch/room
	if w.owed < groupSize {
		return 0
	}
	due := w.owed
	w.owed = 0
	return due
}

// flush brings the table up to date with the next n plants of the frozen generation,
// in order of id. It writes final states: repeated after a crash it does no harm.
func (s *Store) flush(n int) error {
	frozen := s.unflushed.Load().frozen
	if n == 0 || frozen == nil {
		return nil
	}
	w := s.write
	chunk := frozen.from(w.next, math.MaxInt64, make([]entry, 0, n))
	var group []entry
	for _, e := range chunk {
		if e.tag == tombstone {
			w.remove.BindInt64(1, int64(e.id))
			if err := run(w.remove); err != nil {
				return fmt.Errorf("flush: %w", err)
			}
			continue
		}
		if group = append(group, e); len(group) == groupSize {
			if err := w.storeGroup(group); err != nil {
				return fmt.Errorf("flush: %w", err)
			}
			group = group[:0]
		}
	}
	if err := w.storeGroup(group); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	w.tx.pages += 2 * len(chunk)
	w.tx.left -= len(chunk)
	if len(chunk) == n && chunk[n-1].id < math.MaxInt64 {
		w.tx.next = chunk[n-1].id + 1
		return nil
	}
	w.tx.flushed = true
	w.setFlushed.BindInt64(1, frozen.final.Load())
	if err := run(w.setFlushed); err != nil || w.conn.Changes() == 1 {
		return err
	}
	return errNoState
}

// storeGroup copies rows of the log to the table.
func (w *writer) storeGroup(group []entry) error {
	if len(group) == 0 {
		return nil
	}
	for i := range groupSize {
		// In a smaller group, the last row is repeated.
		w.store.BindInt64(i+1, group[min(i, len(group)-1)].seq)
	}
	if err := run(w.store); err != nil {
		return err
	}
	if n := w.conn.Changes(); n != len(group) {
		return inconsistent("the log has %d of %d rows", n, len(group))
	}
	return nil
}
