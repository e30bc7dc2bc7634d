package sqlite

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"zombiezen.com/go/sqlite"

	"plantstore"
)

// groupSize is how many plants one statement takes.
const groupSize = 32

// stagingTarget is about how many plants are staged while creates keep coming. The
// more, the fewer pages a flush touches per plant, and the longer a server takes to
// load them when it starts.
const stagingTarget = 1 << 18

// lookback is how many batches ago the high-water mark was the largest id.
const lookback = 16

// flushState is the row of the table moving: how far plants have been flushed. They
// are flushed in sweeps over all ids.
type flushState struct {
	version, sweep    int64
	nextID            plantstore.ID
	firstSeq, deadSeq int64
	// seq is the next number in the table recent, and trimmed the first that may
	// still be in it. Both follow from the tables.
	seq, trimmed int64
}

const firstID = plantstore.ID(math.MinInt64)

// sweepOf is the sweep that will flush a plant staged now.
func (f *flushState) sweepOf(id plantstore.ID) int64 {
	if id < f.nextID {
		return f.sweep + 1
	}
	return f.sweep
}

// rows is about how many rows the table recent has: staged plants, and those that
// have been flushed or changed and not yet been deleted.
func (f *flushState) rows() int64 { return f.seq - f.trimmed }

// endSweep ends a sweep, after which that many plants are staged. Those staged before
// it began have been flushed. deadSeq is never beyond firstSeq: if the table is empty
// after a restart, the next plant is numbered from there.
func (f *flushState) endSweep(staged int) {
	f.sweep, f.nextID = f.sweep+1, firstID
	f.deadSeq, f.firstSeq = f.firstSeq, f.seq
	if staged == 0 {
		f.deadSeq = f.seq
	}
}

// readFlushState reads the row.
func readFlushState(c *sqlite.Conn) (f flushState, err error) {
	row, err := c.Prepare("SELECT version, pass, next_id, first_seq, dead_seq FROM moving")
	if err != nil {
		return f, err
	}
	defer row.Reset()
	if found, err := row.Step(); err != nil || !found {
		return f, cmp.Or(err, errNoFlushState)
	}
	f.version, f.sweep, f.nextID = row.ColumnInt64(0), row.ColumnInt64(1), plantstore.ID(row.ColumnInt64(2))
	f.firstSeq, f.deadSeq = row.ColumnInt64(3), row.ColumnInt64(4)
	return f, nil
}

func errMissing(id plantstore.ID) error {
	return fmt.Errorf("%w: staged plant %d is missing from the table recent", plantstore.ErrUntrusted, id)
}

var errNoFlushState = fmt.Errorf("%w: the table moving is empty", plantstore.ErrUntrusted)

// loadStaging reads the staged plants. The connection is in a transaction.
func loadStaging(c *sqlite.Conn) (*staging, flushState, error) {
	f, err := readFlushState(c)
	if err != nil {
		return nil, f, err
	}
	f.seq, f.trimmed = f.firstSeq, f.firstSeq
	var staged []entry
	rows, err := c.Prepare("SELECT seq, pass, id, tag FROM recent ORDER BY seq")
	if err != nil {
		return nil, f, err
	}
	defer rows.Reset()
	for first := true; ; first = false {
		found, err := rows.Step()
		if err != nil {
			return nil, f, err
		}
		if !found {
			break
		}
		seq, sweep := rows.ColumnInt64(0), rows.ColumnInt64(1)
		if first {
			f.trimmed = seq
		}
		f.seq = max(f.seq, seq+1)
		if id := plantstore.ID(rows.ColumnInt64(2)); sweep > f.sweep || sweep == f.sweep && id >= f.nextID {
			staged = append(staged, entry{id, seq, hashTag(columnTag(rows, 3))})
		}
	}
	slices.SortFunc(staged, func(a, b entry) int { return cmp.Compare(a.id, b.id) })
	loaded := new(staging).next(f.version, staged, nil)
	loaded.rows = f.rows()
	return loaded, f, nil
}

// start prepares the statements. The first transaction loads the staged plants.
func (w *writer) start() error {
	w.target = stagingTarget
	w.staging.Store(&staging{version: notLoaded})
	for i := range w.largest {
		w.largest[i] = math.MaxInt64
	}
	return w.prepare()
}

// notLoaded is the version of a staging that has not been loaded.
const notLoaded = -1

// refresh reloads the staged plants if another process has changed them. The writer
// is in a transaction.
func (w *writer) refresh() error {
	f, err := readFlushState(w.conn)
	if err != nil || f.version == w.staging.Load().version {
		return err
	}
	loaded, f, err := loadStaging(w.conn)
	if err != nil {
		return err
	}
	w.staging.Store(loaded)
	w.state = f
	return nil
}

// saveState writes the flush state, if the transaction changed it.
func (w *writer) saveState() error {
	if !w.changed {
		return nil
	}
	f := &w.nextState
	f.version++
	for i, n := range []int64{f.version, f.sweep, int64(f.nextID), f.firstSeq, f.deadSeq} {
		w.setState.BindInt64(i+1, n)
	}
	return run(w.setState)
}

// publish makes the transaction's changes visible to readers after its commit.
func (w *writer) publish() {
	if w.changed {
		next := w.delta.apply(w.staging.Load(), w.nextState.version)
		next.rows = w.nextState.rows()
		w.staging.Store(next)
		w.state = w.nextState
	}
	w.appended = len(w.delta.added)
}

// stageGroup stages a group of new plants.
func (w *writer) stageGroup(group []plantstore.Write) error {
	for i := range group {
		const columns = 5
		p := group[i].Plant
		w.insertStaged.BindInt64(columns*i+1, w.nextState.seq)
		w.insertStaged.BindInt64(columns*i+2, w.nextState.sweepOf(p.ID))
		bindPlant(w.insertStaged, columns*i+2, p)
		w.delta.added[p.ID] = entry{p.ID, w.nextState.seq, hashTag(p.Tag)}
		w.nextState.seq++
	}
	w.changed = true
	return run(w.insertStaged)
}

// unstage removes a staged plant.
func (w *writer) unstage(e entry) error {
	w.changed = true
	w.delta.remove(e.id)
	w.deleteStaged.BindInt64(1, e.seq)
	return run(w.deleteStaged)
}

// flushSize is how many plants to flush in a transaction: as many as the last one
// staged if stagingTarget are staged, and fewer or more in proportion.
func (w *writer) flushSize() int {
	return int(float64(w.appended) * float64(w.staging.Load().size) / float64(w.target))
}

// flush flushes the next n plants of the sweep, or those that are left of it. It must
// come first in a transaction: a plant staged later belongs to the sweep that is then
// in progress.
func (w *writer) flush(n int) error {
	staged := w.staging.Load()
	if n == 0 || staged.rows == 0 {
		return nil
	}
	w.changed = true
	if staged.size == 0 {
		w.nextState.endSweep(0)
		return w.trim(2 * n)
	}
	batch := w.batch[:0]
	for e := range staged.from(w.nextState.nextID) {
		if len(batch) == n {
			break
		}
		batch = append(batch, e)
		w.delta.removed[e.id] = true
	}
	w.batch = batch
	for group := range slices.Chunk(batch, groupSize) {
		if err := w.flushGroup(group); err != nil {
			return fmt.Errorf("flush staged plants: %w", err)
		}
	}
	if last := len(batch) - 1; last+1 < n || batch[last].id == math.MaxInt64 {
		w.nextState.endSweep(staged.size - len(batch))
	} else {
		w.nextState.nextID = batch[last].id + 1
	}
	return w.trim(2 * n)
}

// flushGroup flushes at most groupSize plants.
func (w *writer) flushGroup(group []entry) error {
	for i := range groupSize {
		// A smaller group repeats its last one.
		w.flushStaged.BindInt64(i+1, group[min(i, len(group)-1)].seq)
	}
	err := run(w.flushStaged)
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultConstraint {
		return fmt.Errorf("%w: a staged plant is already in the table plants: %w", plantstore.ErrUntrusted, err)
	}
	if n := w.conn.Changes(); err == nil && n != len(group) {
		return fmt.Errorf("%w: the table recent has %d of %d staged plants", plantstore.ErrUntrusted, n, len(group))
	}
	return err
}

// trim deletes about n rows that are no longer needed, the oldest first.
func (w *writer) trim(n int) error {
	end := min(w.nextState.deadSeq, w.nextState.trimmed+int64(n))
	if end <= w.nextState.trimmed {
		return nil
	}
	w.trimStaged.BindInt64(1, end)
	w.nextState.trimmed = end
	return run(w.trimStaged)
}
