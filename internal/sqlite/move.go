package sqlite

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"zombiezen.com/go/sqlite"

	"plantstore"
)

const (
	// groupSize is how many plants one statement takes.
	groupSize = 32
	// recentTarget is about how many plants wait to be moved while creates come
	// without end. The more, the fewer pages a move touches for each, and the longer
	// it takes to read them when a server starts.
	recentTarget = 1 << 18
	// lookback is how many batches ago the edge was the largest id.
	lookback = 16
)

// moving is the row of the table of that name: how far the moves have come.
type moving struct {
	version, pass     int64
	nextID            plantstore.ID
	firstSeq, deadSeq int64
	// seq is the next number in the table recent, and trimmed the first that may be
	// there. Both follow from the tables.
	seq, trimmed int64
}

const firstID = plantstore.ID(math.MinInt64)

// passOf is the pass that will move a plant that comes now.
func (m *moving) passOf(id plantstore.ID) int64 {
	if id < m.nextID {
		return m.pass + 1
	}
	return m.pass
}

// rows is about how many rows the table recent has: those that wait, and those that
// have been moved or changed and not been removed.
func (m *moving) rows() int64 { return m.seq - m.trimmed }

// endPass ends a pass, after which so many plants are left. What came before it began
// has been moved. deadSeq is never beyond firstSeq: the next plant is numbered from
// there after a restart, if the table is empty then.
func (m *moving) endPass(left int) {
	m.pass, m.nextID = m.pass+1, firstID
	m.deadSeq, m.firstSeq = m.firstSeq, m.seq
	if left == 0 {
		m.deadSeq = m.seq
	}
}

// readMoving reads the row.
func readMoving(c *sqlite.Conn) (m moving, err error) {
	row := c.Prep("SELECT version, pass, next_id, first_seq, dead_seq FROM moving")
	defer row.Reset()
	if found, err := row.Step(); err != nil || !found {
		return m, cmp.Or(err, errNoMoving)
	}
	m.version, m.pass, m.nextID = row.ColumnInt64(0), row.ColumnInt64(1), plantstore.ID(row.ColumnInt64(2))
	m.firstSeq, m.deadSeq = row.ColumnInt64(3), row.ColumnInt64(4)
	return m, nil
}

func errMissing(id plantstore.ID) error {
	return fmt.Errorf("%w: plant %d is not where it waits", plantstore.ErrUntrusted, id)
}

var errNoMoving = fmt.Errorf("%w: the table moving is empty", plantstore.ErrUntrusted)

// load reads what waits to be moved. The connection is in a transaction.
func load(c *sqlite.Conn) (*recent, moving, error) {
	m, err := readMoving(c)
	if err != nil {
		return nil, m, err
	}
	m.seq, m.trimmed = m.firstSeq, m.firstSeq
	var waiting []entry
	rows := c.Prep("SELECT seq, pass, id, tag FROM recent ORDER BY seq")
	defer rows.Reset()
	for first := true; ; first = false {
		found, err := rows.Step()
		if err != nil {
			return nil, m, err
		}
		if !found {
			break
		}
		seq, pass := rows.ColumnInt64(0), rows.ColumnInt64(1)
		if first {
			m.trimmed = seq
		}
		m.seq = max(m.seq, seq+1)
		if id := plantstore.ID(rows.ColumnInt64(2)); pass > m.pass || pass == m.pass && id >= m.nextID {
			waiting = append(waiting, entry{id, seq, hashTag(columnTag(rows, 3))})
		}
	}
	slices.SortFunc(waiting, func(a, b entry) int { return cmp.Compare(a.id, b.id) })
	read := new(recent).next(m.version, waiting, nil)
	read.rows = m.rows()
	return read, m, nil
}

// start prepares the statements. What waits to be moved is read by the first
// transaction.
func (w *writer) start() error {
	w.target = recentTarget
	w.recent.Store(&recent{version: unread})
	for i := range w.largest {
		w.largest[i] = math.MaxInt64
	}
	return w.prepare()
}

// unread is the version of a recent that nobody has read yet.
const unread = -1

// refresh makes sure that what is in memory is what the file has, where another
// process has changed it. The writer is in a transaction.
func (w *writer) refresh() error {
	m, err := readMoving(w.conn)
	if err != nil || m.version == w.recent.Load().version {
		return err
	}
	read, m, err := load(w.conn)
	if err != nil {
		return err
	}
	w.recent.Store(read)
	w.moving = m
	return nil
}

// keep writes down how far the moves have come, if the transaction changed that.
func (w *writer) keep() error {
	if !w.changed {
		return nil
	}
	m := &w.next
	m.version++
	for i, n := range []int64{m.version, m.pass, int64(m.nextID), m.firstSeq, m.deadSeq} {
		w.setMoving.BindInt64(i+1, n)
	}
	return run(w.setMoving)
}

// publish shows readers what the transaction did, now that it is committed.
func (w *writer) publish() {
	if w.changed {
		next := w.change.apply(w.recent.Load(), w.next.version)
		next.rows = w.next.rows()
		w.recent.Store(next)
		w.moving = w.next
	}
	w.appended = len(w.change.added)
}

// appendGroup adds a group of new plants to those that wait.
func (w *writer) appendGroup(group []plantstore.Write) error {
	for i := range group {
		const columns = 5
		p := group[i].Plant
		w.insertRecent.BindInt64(columns*i+1, w.next.seq)
		w.insertRecent.BindInt64(columns*i+2, w.next.passOf(p.ID))
		bindPlant(w.insertRecent, columns*i+2, p)
		w.change.added[p.ID] = entry{p.ID, w.next.seq, hashTag(p.Tag)}
		w.next.seq++
	}
	w.changed = true
	return run(w.insertRecent)
}

// forget removes a plant from those that wait.
func (w *writer) forget(e entry) error {
	w.changed = true
	w.change.forget(e.id)
	w.delRecent.BindInt64(1, e.seq)
	return run(w.delRecent)
}

// due is how many plants to move in a transaction: as many as come when recentTarget
// wait, and fewer or more in proportion.
func (w *writer) due() int {
	return int(float64(w.appended) * float64(w.recent.Load().size) / float64(w.target))
}

// move moves the next n plants of the pass, or what is left of it. It must come before
// all else in a transaction: a plant that comes later belongs to the pass that is
// then under way.
func (w *writer) move(n int) error {
	waiting := w.recent.Load()
	if n == 0 || waiting.rows == 0 {
		return nil
	}
	w.changed = true
	if waiting.size == 0 {
		w.next.endPass(0)
		return w.trim(2 * n)
	}
	batch := w.batch[:0]
	for e := range waiting.from(w.next.nextID) {
		if len(batch) == n {
			break
		}
		batch = append(batch, e)
		w.change.gone[e.id] = true
	}
	w.batch = batch
	for group := range slices.Chunk(batch, groupSize) {
		if err := w.moveGroup(group); err != nil {
			return fmt.Errorf("move plants: %w", err)
		}
	}
	if last := len(batch) - 1; last+1 < n || batch[last].id == math.MaxInt64 {
		w.next.endPass(waiting.size - len(batch))
	} else {
		w.next.nextID = batch[last].id + 1
	}
	return w.trim(2 * n)
}

// moveGroup moves at most groupSize plants.
func (w *writer) moveGroup(group []entry) error {
	for i := range groupSize {
		// A smaller group names its last one again.
		w.moveRecent.BindInt64(i+1, group[min(i, len(group)-1)].seq)
	}
	err := run(w.moveRecent)
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultConstraint {
		return fmt.Errorf("%w: a plant waits that is at its place already: %w", plantstore.ErrUntrusted, err)
	}
	if n := w.conn.Changes(); err == nil && n != len(group) {
		return fmt.Errorf("%w: %d of %d plants are where they wait", plantstore.ErrUntrusted, n, len(group))
	}
	return err
}

// trim removes about n rows that are not needed any more, the oldest first.
func (w *writer) trim(n int) error {
	end := min(w.next.deadSeq, w.next.trimmed+int64(n))
	if end <= w.next.trimmed {
		return nil
	}
	w.trimRecent.BindInt64(1, end)
	w.next.trimmed = end
	return run(w.trimRecent)
}
