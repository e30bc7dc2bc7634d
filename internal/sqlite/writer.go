package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
	"plantstore/internal/match"
	"plantstore/internal/memtable"
)

// writer is the one connection that writes, with the statements that it runs for many rows.
// The store's mutex guards it.
type writer struct {
	conn                            *sqlite.Conn
	serves                          bool // the store is opened to serve
	intoLog, intoStored, intoTagged batched
	fromStored, fromTagged          batched
	fold                            match.Matcher

	state             // as of the last commit
	tx    transaction // in progress
}

// state is how far the store has come.
type state struct {
	seq            int64 // of the last row of the log
	time           int64 // of that row
	plants         int64 // as of that row
	since          int64 // when the active generation began, in the time of rows
	flushed        int64 // the table has everything up to this row
	trimmed        int64 // the last row that was trimmed
	bytes          int64 // the size of the log: the sum of the sizes of its rows
	unflushedBytes int64 // of the rows after flushed
	progress       progress
	names          nameIndex
	dropped        []string // tables that are to be dropped
}

// transaction is the state once it is committed, the rows to append, and what they change in
// memory.
type transaction struct {
	state
	now     int64 // of its rows
	rows    []logRow
	changes []memtable.Change
	text    int64 // that it flushes, in bytes
}

// logRow is a row of the log.
type logRow struct {
	kind  plantstore.EventType
	by    string
	plant plantstore.Plant // its name is the token, as JSON, if the kind is not of a plant
	was   plantstore.Tag   // before a replacement
	// created is when the plant was created that is replaced, in Unix microseconds, or 0 if that
	// is not known.
	created int64
	prev    int64 // the plant's event before a replacement or a deletion, or 0 if that is not known
}

// batched has the statements that insert or delete 1 row of a table, 2, 4 and so on.
type batched []*sqlite.Stmt

// prepare prepares the statements for up to that many rows.
func (b *batched) prepare(c *sqlite.Conn, most int, text func(rows int) string) error {
	for n := 1; n <= most; n *= 2 {
		stmt, err := c.Prepare(text(n))
		if err != nil {
			return err
		}
		*b = append(*b, stmt)
	}
	return nil
}

// first returns the statement for the first of that many rows, and how many it is for.
func (b batched) first(rows int) (*sqlite.Stmt, int) {
	power := min(bits.Len(uint(rows)), len(b)) - 1
	return b[power], 1 << power
}

// insertLog returns a statement that appends n rows. It binds the seq of the first one, and
// the time of all. SQLite numbers the others itself: it knows where the table ends, but
// would search it for a number that it is given. OR FAIL spares it from keeping what it needs to
// undo the statement alone: an error ends the transaction.
func insertLog(n int) string {
	return `INSERT OR FAIL INTO log (seq, time, "by", type, id, name, tag, was, created, prev) VALUES (?1, ?2, ?, ?, ?, ?, ?, ?, ?, ?)` +
		strings.Repeat(", (NULL, ?2, ?, ?, ?, ?, ?, ?, ?, ?)", n-1)
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

// transaction runs f in a transaction (invariant 3).
func (s *Store) transaction(f func(*writer) error) (err error) {
	w := s.write
	if err := w.begin(); err != nil {
		return err
	}
	// Some errors end the transaction by themselves. A panic in f does not.
	defer func() {
		if !w.conn.AutocommitEnabled() {
			err = errors.Join(err, exec(w.conn, "ROLLBACK"))
		}
	}()
	clear(w.tx.rows)
	// The clock may have been set back. Time in the log never goes back.
	w.tx = transaction{state: w.state, now: max(w.time, s.Clock.Time().UnixMicro()), rows: w.tx.rows[:0], changes: w.tx.changes[:0]}
	defer func() { clear(w.tx.changes) }() // or their text would stay in memory
	active := s.unflushed.Load().Active
	if err := f(w); err != nil {
		return err
	}
	active.Add(w.tx.changes)
	if err := exec(w.conn, "COMMIT"); err != nil {
		active.Remove(w.tx.changes)
		return err
	}
	s.committed(w)
	return nil
}

// begin begins a transaction. While a server imports, it leaves the lock free for moments only. SQLite
// looks for one of them every tenth of a second, which may take longer than busyTimeout, so another process
// looks for it more often.
func (w *writer) begin() error {
	const text = "BEGIN IMMEDIATE"
	if w.serves {
		return exec(w.conn, text)
	}
	w.conn.SetBusyTimeout(time.Millisecond)
	defer w.conn.SetBusyTimeout(busyTimeout)
	for began := time.Now(); ; {
		err := exec(w.conn, text)
		if sqlite.ErrCode(err).ToPrimary() != sqlite.ResultBusy || time.Since(began) > busyTimeout {
			return err
		}
	}
}

// committed takes over what a transaction did.
func (s *Store) committed(w *writer) {
	if w.seq != w.tx.seq {
		s.lastSeq.Store(w.tx.seq)
		s.changes.Notify()
	}
	s.plants.Store(w.tx.plants)
	s.logSize.Store(w.tx.bytes)
	mem := s.unflushed.Load()
	if w.flushed != w.tx.flushed {
		mem = &memtable.Unflushed{Active: mem.Active}
		s.unflushed.Store(mem)
	}
	w.state = w.tx.state
	if mem.Frozen == nil && s.fill() >= 1 {
		s.freeze()
	}
}

// maxKept is how large the values are that a statement keeps until it gets others, in bytes.
const maxKept = 64 << 10

// run steps a statement that returns no row. Its values have about that many bytes.
func run(stmt *sqlite.Stmt, size int) error {
	_, err := stmt.Step()
	err = cmp.Or(err, stmt.Reset()) // after an error, Reset repeats it
	if size > maxKept {
		err = cmp.Or(err, stmt.ClearBindings())
	}
	return err
}

// plantByKey returns the plant that a query finds by its only parameter, or nil if there
// is none.
func plantByKey(c *sqlite.Conn, query string, key int64) (*plantstore.StoredPlant, error) {
	stmt, err := c.Prepare(query)
	if err != nil {
		return nil, err
	}
	stmt.BindInt64(1, key)
	found, err := stmt.Step()
	if err != nil || !found {
		stmt.Reset()
		return nil, err
	}
	p := rowStored(stmt)
	return &p, stmt.Reset()
}

// storedColumns are the columns of the table and the view that rowStored reads.
const storedColumns = "id, name, tag, seq, updated, created"

// rowStored reads the storedColumns. created is NULL if it is the same as updated.
func rowStored(row *sqlite.Stmt) plantstore.StoredPlant {
	p := plantstore.StoredPlant{Plant: rowPlant(row), Version: plantstore.Version{Time: row.ColumnInt64(4), N: row.ColumnInt64(3)}}
	p.Created = p.Version.Time
	if !row.ColumnIsNull(5) {
		p.Created = row.ColumnInt64(5)
	}
	return p
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

// exec runs a statement that the writer does not keep.
func exec(c *sqlite.Conn, text string, args ...any) error { return query(c, nil, text, args...) }

// errStop is what the function of a query returns to end it without an error.
var errStop = errors.New("stop")

// query is exec for a statement that returns rows. It calls f with each of them.
func query(c *sqlite.Conn, f func(row *sqlite.Stmt) error, text string, args ...any) error {
	return withoutStop(sqlitex.Execute(c, text, &sqlitex.ExecOptions{Args: args, ResultFunc: f}))
}

// withoutStop returns the error of a statement, unless that is errStop.
func withoutStop(err error) error {
	if err == errStop {
		return nil
	}
	return err
}

// queryAll returns what f reads from each row that a query returns.
func queryAll[T any](c *sqlite.Conn, f func(row *sqlite.Stmt) (T, error), text string, args ...any) (all []T, err error) {
	err = query(c, func(row *sqlite.Stmt) error {
		found, err := f(row)
		all = append(all, found)
		return err
	}, text, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// queryOne is queryAll for a query that returns one row at most. If there is none, it returns
// the error none.
func queryOne[T any](c *sqlite.Conn, f func(row *sqlite.Stmt) (T, error), none error, text string, args ...any) (T, error) {
	all, err := queryAll(c, f, text, args...)
	if err == nil && len(all) == 0 {
		err = none
	}
	if err != nil {
		return *new(T), err
	}
	return all[0], nil
}

// number returns the number that a query returns.
func number(c *sqlite.Conn, text string, args ...any) (n int64, err error) {
	err = query(c, func(row *sqlite.Stmt) error { n = row.ColumnInt64(0); return nil }, text, args...)
	return n, err
}
