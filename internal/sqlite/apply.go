package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
)

// The statements that return a plant.
const (
	selectStored = "SELECT id, name, tag FROM stored WHERE id = ?"
	selectLogged = "SELECT id, name, tag, type FROM log WHERE seq = ?"
)

// writer is the one connection that writes, with its statements. The store's mutex
// guards it.
type writer struct {
	conn                    *sqlite.Conn
	begin, commit, rollback *sqlite.Stmt
	storedRange, logged     *sqlite.Stmt
	appendOne, appendGroup  *sqlite.Stmt
	storeRun, storeOne      *sqlite.Stmt // of the flush
	remove                  *sqlite.Stmt
	tagOne, tagGroup, untag *sqlite.Stmt
	addTag, subtractTag     *sqlite.Stmt
	removeTag, setTagMark   *sqlite.Stmt
	setFlushed              *sqlite.Stmt
	trim, setTrimmed        *sqlite.Stmt
	logSizes                *sqlite.Stmt

	seq       int64 // of the last row of the log
	time      int64 // of that row
	plants    int64 // as of that row
	flushed   int64 // the table has everything up to this row
	trimmed   int64 // the last row that was trimmed
	size      logSize
	serves    bool     // it holds the lock, and so keeps the fields above
	progress  progress // of the flush
	ahead     readAhead
	flushDebt int   // rows to flush, too few for a group so far
	textDebt  int64 // bytes that were added in the meantime
	// What the last transaction added to the active generation, in bytes: text that its
	// rows have in the log, and tags in memory.
	textGrowth, tagGrowth int64

	found map[plantstore.ID]*plantstore.Plant // of lookUp

	// tx has the uncommitted values of the fields above, and the rows to append.
	tx transaction
}

// transaction is what a transaction changes in memory once it is committed.
type transaction struct {
	seq, time int64
	plants    int64
	size      logSize
	entries   []entry
	rows      []logRow
	tagged    []tagChange
	progress  progress
	trimmed   int64
	flushed   bool  // the frozen generation, completely
	text      int64 // that it flushes, in bytes
	pages     int   // approximately how many it writes
}

// logRow is a row of the log.
type logRow struct {
	kind  int64
	by    string
	plant plantstore.Plant
	was   plantstore.Tag // before a replacement
}

// The kinds of a row.
const (
	rowCreated int64 = 1 + iota
	rowReplaced
	rowDeleted
	rowTokenCreated // the plant's name is the token, as JSON
	rowTokenRevoked
)

func (w *writer) prepare() error {
	const orReplace = " ON CONFLICT (id) DO UPDATE SET name = excluded.name, tag = excluded.tag"
	var errs []error
	for query, stmt := range map[string]**sqlite.Stmt{
		"BEGIN IMMEDIATE": &w.begin,
		"COMMIT":          &w.commit,
		"ROLLBACK":        &w.rollback,
		"SELECT id, name, tag FROM stored WHERE id BETWEEN ? AND ?": &w.storedRange,
		selectLogged:         &w.logged,
		insertLog(1):         &w.appendOne,
		insertLog(groupSize): &w.appendGroup,
		"INSERT INTO stored (id, name, tag) SELECT id, name, tag FROM log WHERE seq BETWEEN ? AND ?" +
			orReplace: &w.storeRun,
		"INSERT INTO stored (id, name, tag) VALUES (?, ?, ?)" + orReplace:                                    &w.storeOne,
		"DELETE FROM stored WHERE id = ?":                                                                    &w.remove,
		insertTagged + "(?1, ?2)" + unlessIncluded:                                                           &w.tagOne,
		insertTagged + taggedGroup() + unlessIncluded:                                                        &w.tagGroup,
		"DELETE FROM stored_by_tag WHERE tag = ? AND id = ?":                                                 &w.untag,
		"INSERT INTO stored_tags VALUES (?, ?) ON CONFLICT DO UPDATE SET plants = plants + excluded.plants":  &w.addTag,
		"UPDATE stored_tags SET plants = plants + ?2 WHERE tag = ?1 AND plants + ?2 >= 0":                    &w.subtractTag,
		"DELETE FROM stored_tags WHERE tag = ? AND plants = 0":                                               &w.removeTag,
		"UPDATE log_state SET tags_seq = ?, tags_next = ?":                                                   &w.setTagMark,
		"UPDATE log_state SET flushed = ?, plants = ?, bytes = ?, tags_seq = 0, tags_next = ''":              &w.setFlushed,
		"DELETE FROM log WHERE seq <= ?":                                                                     &w.trim,
		"SELECT seq, " + rowSize + " FROM log WHERE seq > ? AND seq <= ? ORDER BY seq":                       &w.logSizes,
		"UPDATE log_state SET trimmed = ?1, trimmed_time = (SELECT time FROM log WHERE seq = ?1), bytes = ?": &w.setTrimmed,
	} {
		var err error
		*stmt, err = w.conn.Prepare(query)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// insertLog returns a statement that appends n rows. It binds the seq of the first one, and
// the time of all. SQLite numbers the others itself: it knows where the table ends, but
// would search it for a number that it is given.
func insertLog(n int) string {
	return `INSERT INTO log (seq, time, "by", type, id, name, tag, was) VALUES (?1, ?2, ?, ?, ?, ?, ?, ?)` +
		strings.Repeat(", (NULL, ?2, ?, ?, ?, ?, ?, ?)", n-1)
}

// Apply applies the batch in one transaction, which is on disk when it returns. It
// appends a row to the log for every write that changes something, and flushes part of
// the frozen generation. Whatever the ids are, the writes themselves touch no page of
// the table.
func (s *Store) Apply(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	if s.lock == nil {
		return nil, fmt.Errorf("%s is not open for serving: only a server can write plants", s.path)
	}
	s.applying.Add(1)
	defer s.applying.Add(-1)
	results := make([]plantstore.Result, len(batch))
	err := s.withWriter(ctx, func(w *writer) error {
		if err := s.flush(s.flushDue(batch)); err != nil {
			return err
		}
		if err := w.apply(batch, results, s.unflushed.Load()); err != nil {
			return err
		}
		return s.trim(trimFactor*len(batch), w.tx.size.total-w.size.total)
	})
	s.lastWrite.Store(time.Now().UnixNano())
	if err != nil {
		return nil, err
	}
	return results, nil
}

// withWriter runs f in a transaction and commits it.
func (s *Store) withWriter(ctx context.Context, f func(*writer) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.transact(ctx, f)
}

// withUnsyncedWriter is like withWriter, but its commit does not wait for the disk. It
// survives a crash of the process, and is durable once a later commit of withWriter is.
func (s *Store) withUnsyncedWriter(ctx context.Context, f func(*writer) error) (err error) {
	if err := s.checkWritable(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The setting is the connection's, and the mutex keeps every other write away from
	// it. SQLite refuses to change it inside a transaction.
	defer func() {
		if failed := pragma(s.write.conn, syncFull); failed != nil {
			failed = fmt.Errorf("%s: %w: restore "+syncFull+": %w", s.path, plantstore.ErrUntrusted, failed)
			s.markUntrusted(failed)
			err = errors.Join(err, failed)
		}
	}()
	if err := pragma(s.write.conn, syncNormal); err != nil {
		return s.classify(err)
	}
	return s.transact(ctx, f)
}

// transact runs f in a transaction and commits it. The caller holds the mutex.
func (s *Store) transact(ctx context.Context, f func(*writer) error) error {
	if err := s.checkWritable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.transaction(f)
	if sqlite.ErrCode(err) == sqlite.ResultConstraintPrimaryKey {
		// Another process has taken the next number in the log, for a token.
		err = s.transaction(func(w *writer) error {
			if err := w.catchUp(); err != nil {
				return err
			}
			return f(w)
		})
	}
	err = s.classify(err)
	if errors.Is(err, plantstore.ErrUntrusted) {
		s.markUntrusted(err)
	}
	return err
}

// transaction runs f in a transaction. The entries of its rows are in the active
// generation before it is committed, so that there is no moment in which a snapshot
// has a row and memory does not; readers of older snapshots do not see them.
func (s *Store) transaction(f func(*writer) error) (err error) {
	w := s.write
	if err := run(w.begin); err != nil {
		return err
	}
	// Some errors end the transaction by themselves. A panic in f does not.
	defer func() {
		if !w.conn.AutocommitEnabled() {
			err = errors.Join(err, run(w.rollback))
		}
	}()
	clear(w.tx.rows)
	w.tx = transaction{
		seq: w.seq, time: w.time, plants: w.plants, size: w.size, entries: w.tx.entries[:0], rows: w.tx.rows[:0], tagged: w.tx.tagged[:0],
		progress: w.progress, trimmed: w.trimmed,
	}
	defer func() { clear(w.tx.tagged) }() // or their text would stay in memory
	active := s.unflushed.Load().active
	if err := f(w); err != nil {
		return err
	}
	text, tags := active.text(), active.tagBytes()
	active.add(w.tx.entries, w.tx.tagged, w.tx.seq)
	w.textGrowth, w.tagGrowth = active.text()-text, active.tagBytes()-tags
	if err := run(w.commit); err != nil {
		active.remove(w.tx.entries, w.tx.tagged)
		return err
	}
	s.committed(w)
	return nil
}

// committed takes over what a transaction did.
func (s *Store) committed(w *writer) {
	if w.seq != w.tx.seq {
		s.lastSeq.Store(w.tx.seq)
		s.plants.Store(w.tx.plants)
		s.changes.Notify()
	}
	s.logSize.Store(w.tx.size.total)
	w.plants, w.size = w.tx.plants, w.tx.size
	w.seq, w.time, w.trimmed, w.progress = w.tx.seq, w.tx.time, w.tx.trimmed, w.tx.progress
	mem := s.unflushed.Load()
	if w.tx.flushed {
		w.flushed, w.ahead = mem.frozen.final.Load(), readAhead{}
		mem = &unflushed{active: mem.active}
		s.unflushed.Store(mem)
	}
	if mem.frozen == nil && s.isFull(mem.active) {
		s.freeze()
	}
	s.countPages(w.tx.pages)
}

// apply decides the writes in their order. It holds few of the plants that exist in
// memory at once: they may be large.
func (w *writer) apply(batch []plantstore.Write, results []plantstore.Result, mem *unflushed) error {
	defer clear(w.found)
	written := make(map[plantstore.ID]*plantstore.Plant, len(batch)) // by the batch itself; nil if it was deleted
	for start := 0; start < len(batch); start += groupSize {
		end := min(start+groupSize, len(batch))
		found, err := w.lookUp(batch[start:end], written, mem)
		if err != nil {
			return err
		}
		for i := start; i < end; i++ {
			was, ok := written[batch[i].Plant.ID]
			if !ok {
				was = found[batch[i].Plant.ID]
			}
			results[i] = batch[i].Decide(was)
			w.record(&batch[i], results[i], was, written)
		}
		if err := w.appendRows(groupSize); err != nil {
			return err
		}
	}
	return w.appendRows(1)
}

// record records what a write does.
func (w *writer) record(write *plantstore.Write, result plantstore.Result, was *plantstore.Plant, written map[plantstore.ID]*plantstore.Plant) {
	if result.Err != nil {
		return
	}
	switch result.Outcome {
	case plantstore.Created:
		w.addRow(rowCreated, write, write.Plant, plantstore.Tag{})
		written[write.Plant.ID] = &write.Plant
	case plantstore.Replaced:
		w.addRow(rowReplaced, write, write.Plant, was.Tag)
		written[write.Plant.ID] = &write.Plant
	case plantstore.Deleted:
		w.addRow(rowDeleted, write, *was, plantstore.Tag{})
		written[write.Plant.ID] = nil
	}
}

// addRow adds a row to those that the transaction appends.
func (w *writer) addRow(kind int64, write *plantstore.Write, plant plantstore.Plant, was plantstore.Tag) {
	w.tx.rows = append(w.tx.rows, logRow{kind, write.By, plant, was})
	w.tx.tagged = changeTags(w.tx.tagged, kind, plant, was)
	w.tx.plants += moreWith(kind)
	text, _ := was.Text()
	e := entry{id: plant.ID, seq: w.tx.seq + int64(len(w.tx.rows)), tag: tombstone, size: uint32(plant.TextSize() + len(text))}
	if kind != rowDeleted {
		e.tag = hashTag(plant.Tag)
	}
	w.tx.entries = append(w.tx.entries, e)
}

// appendRows appends the transaction's rows to the log while there are at least that
// many.
func (w *writer) appendRows(least int) error {
	rows := w.tx.rows
	if len(rows) < least {
		return nil
	}
	// The clock may have been set back. Time in the log never goes back.
	w.tx.time = max(w.tx.time, time.Now().UnixMicro())
	size := 0
	for len(rows) >= least {
		stmt, n := w.appendOne, 1
		if len(rows) >= groupSize {
			stmt, n = w.appendGroup, groupSize
		}
		stmt.BindInt64(1, w.tx.seq+1)
		stmt.BindInt64(2, w.tx.time)
		for i := range rows[:n] {
			size += bindRow(stmt, i, &rows[i])
		}
		if err := run(stmt); err != nil {
			return fmt.Errorf("append to the log: %w", err)
		}
		w.tx.seq += int64(n)
		if last := w.conn.LastInsertRowID(); last != w.tx.seq {
			return inconsistent("the log's last row is %d, want %d", last, w.tx.seq)
		}
		rows = rows[n:]
	}
	w.tx.size.total += int64(size)
	w.tx.pages += 1 + size/pageSize
	left := copy(w.tx.rows, rows)
	clear(w.tx.rows[left:]) // or their text would stay in memory
	w.tx.rows = w.tx.rows[:left]
	return nil
}

// bindRow binds the n-th row of a statement, and returns its size, which is rowSize.
func bindRow(stmt *sqlite.Stmt, n int, row *logRow) int {
	at := 3 + 6*n // after the number and the time
	stmt.BindText(at, row.by)
	stmt.BindInt64(at+1, row.kind)
	stmt.BindInt64(at+2, int64(row.plant.ID))
	stmt.BindText(at+3, row.plant.Name)
	tags := bindTag(stmt, at+4, row.plant.Tag) + bindTag(stmt, at+5, row.was)
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

// lookUp returns the plants that have an id of these writes, but for ids that the batch
// itself has written before.
func (w *writer) lookUp(writes []plantstore.Write, written map[plantstore.ID]*plantstore.Plant, mem *unflushed) (map[plantstore.ID]*plantstore.Plant, error) {
	found := w.found
	clear(found)
	var buf [groupSize]plantstore.ID
	stored := buf[:0] // ids to look up in the table
	for i := range writes {
		id := writes[i].Plant.ID
		if _, ok := written[id]; ok {
			continue
		}
		e, logged := mem.find(id, math.MaxInt64)
		if !logged {
			stored = append(stored, id)
			continue
		}
		if e.tag == tombstone || found[id] != nil {
			continue
		}
		plant, err := entryPlant(w.logged, e)
		if err != nil {
			return nil, err
		}
		found[id] = plant
	}
	return found, w.lookUpStored(stored, found)
}

// density is how many ids a range may have for each that is looked up in it.
const density = 8

// lookUpStored adds those of the plants with these ids that are in the table. It reads
// ids that are close together as a range.
func (w *writer) lookUpStored(ids []plantstore.ID, into map[plantstore.ID]*plantstore.Plant) error {
	slices.Sort(ids)
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && uint64(ids[n]-ids[0]) < uint64(density*(n+1)) {
			n++
		}
		w.storedRange.BindInt64(1, int64(ids[0]))
		w.storedRange.BindInt64(2, int64(ids[n-1]))
		err := eachRow(w.storedRange, func() {
			if _, ok := slices.BinarySearch(ids[:n], plantstore.ID(w.storedRange.ColumnInt64(0))); ok {
				plant := rowPlant(w.storedRange)
				into[plant.ID] = &plant
			}
		})
		if err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// eachRow calls f for every row of a statement.
func eachRow(stmt *sqlite.Stmt, f func()) error {
	return eachRowWhile(stmt, func() bool { f(); return true })
}

// eachRowWhile calls f for every row of a statement until it returns false.
func eachRowWhile(stmt *sqlite.Stmt, f func() bool) error {
	for {
		found, err := stmt.Step()
		if err != nil {
			stmt.Reset() // repeats the error
			return err
		}
		if !found || !f() {
			return stmt.Reset()
		}
	}
}

// run steps a statement that returns no row.
func run(stmt *sqlite.Stmt) error {
	if _, err := stmt.Step(); err != nil {
		stmt.Reset() // repeats the error
		return err
	}
	return stmt.Reset()
}

// plantByKey returns the plant that the statement finds by its only parameter, or nil
// if there is none.
func plantByKey(stmt *sqlite.Stmt, key int64) (*plantstore.Plant, error) {
	stmt.BindInt64(1, key)
	found, err := stmt.Step()
	if err != nil || !found {
		stmt.Reset()
		return nil, err
	}
	p := rowPlant(stmt)
	return &p, stmt.Reset()
}

// loggedPlant returns the plant in an entry's row. If it is nil, other reports whether
// the row has something else.
func loggedPlant(stmt *sqlite.Stmt, e entry) (plant *plantstore.Plant, other bool, err error) {
	stmt.BindInt64(1, e.seq)
	found, err := stmt.Step()
	if err != nil || !found {
		stmt.Reset()
		return nil, false, err
	}
	if stmt.ColumnInt64(0) != int64(e.id) || stmt.ColumnInt64(3) > rowDeleted {
		return nil, true, stmt.Reset()
	}
	p := rowPlant(stmt)
	return &p, false, stmt.Reset()
}

// entryPlant returns the plant in an entry's row, which must be there.
func entryPlant(stmt *sqlite.Stmt, e entry) (*plantstore.Plant, error) {
	plant, _, err := loggedPlant(stmt, e)
	if err == nil && plant == nil {
		err = inconsistent("the log has no row %d for plant %d", e.seq, e.id)
	}
	return plant, err
}

// rowPlant reads the columns id, name and tag.
func rowPlant(row *sqlite.Stmt) plantstore.Plant {
	return plantstore.Plant{ID: plantstore.ID(row.ColumnInt64(0)), Name: row.ColumnText(1), Tag: columnTag(row, 2)}
}

func columnTag(row *sqlite.Stmt, column int) plantstore.Tag {
	if row.ColumnIsNull(column) {
		return plantstore.Tag{}
	}
	return plantstore.NewTag(row.ColumnText(column))
}

// exec runs a statement that is not worth keeping.
func exec(c *sqlite.Conn, query string, args ...any) error {
	return sqlitex.Execute(c, query, &sqlitex.ExecOptions{Args: args})
}
