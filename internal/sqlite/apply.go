package sqlite

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
)

// The statements that return a plant.
const (
	selectPlant  = "SELECT id, name, tag FROM plants WHERE id = ?"
	selectStaged = "SELECT id, name, tag FROM recent WHERE seq = ?"
)

// writer is the only connection that writes, with its statements. The store's mutex
// guards it, except for staging.
type writer struct {
	conn                      *sqlite.Conn
	begin, commit, rollback   *sqlite.Stmt
	insert, insertGroup       *sqlite.Stmt
	sel, update, del          *sqlite.Stmt
	taken, setState           *sqlite.Stmt
	insertStaged, selStaged   *sqlite.Stmt
	deleteStaged, flushStaged *sqlite.Stmt
	trimStaged                *sqlite.Stmt

	staging  atomic.Pointer[staging] // the staged plants; any goroutine may read it
	state    flushState
	target   int     // how many plants to keep staged
	appended int     // how many plants the last batch staged
	batch    []entry // scratch space for flush

	// What the current transaction changes in staging and state, and whether it does.
	delta     delta
	nextState flushState
	changed   bool

	// largest has the largest id of each of the last batches, in a ring. If all ids
	// are above the oldest of them, the high-water mark, they likely come in order.
	largest [lookback]plantstore.ID
	batches int
}

func (w *writer) prepare() error {
	const three, five = "(?, ?, ?)", "(?, ?, ?, ?, ?)"
	var errs []error
	for query, stmt := range map[string]**sqlite.Stmt{
		"BEGIN IMMEDIATE": &w.begin,
		"COMMIT":          &w.commit,
		"ROLLBACK":        &w.rollback,
		"INSERT INTO plants (id, name, tag) VALUES " + three + " ON CONFLICT DO NOTHING":               &w.insert,
		"INSERT INTO plants (id, name, tag) VALUES " + three + strings.Repeat(", "+three, groupSize-1): &w.insertGroup,
		selectPlant: &w.sel,
		"UPDATE plants SET name = ?2, tag = ?3 WHERE id = ?1":                                                   &w.update,
		"DELETE FROM plants WHERE id = ?":                                                                       &w.del,
		"SELECT 1 FROM plants WHERE id IN (?" + strings.Repeat(", ?", groupSize-1) + ") LIMIT 1":                &w.taken,
		"UPDATE moving SET version = ?, pass = ?, next_id = ?, first_seq = ?, dead_seq = ?":                     &w.setState,
		"INSERT INTO recent (seq, pass, id, name, tag) VALUES " + five + strings.Repeat(", "+five, groupSize-1): &w.insertStaged,
		selectStaged: &w.selStaged,
		"INSERT INTO plants (id, name, tag) SELECT id, name, tag FROM recent WHERE seq IN (?" + strings.Repeat(", ?", groupSize-1) + ")": &w.flushStaged,
		"DELETE FROM recent WHERE seq = ?": &w.deleteStaged,
		"DELETE FROM recent WHERE seq < ?": &w.trimStaged,
	} {
		var err error
		*stmt, err = w.conn.Prepare(query)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Apply applies the batch in one transaction, which is on disk when it returns.
func (s *Store) Apply(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	results := make([]plantstore.Result, len(batch))
	err := s.withWriter(ctx, pages(batch), func(w *writer) error { return w.applyAll(batch, results) })
	if err != nil {
		return nil, err
	}
	return results, nil
}

// withWriter runs f, which writes about that many pages, in a transaction and commits
// it.
func (s *Store) withWriter(ctx context.Context, pages int, f func(*writer) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkWritable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.classify(s.write.transaction(f))
	if errors.Is(err, plantstore.ErrUntrusted) {
		s.markUntrusted(err)
	}
	s.countPages(pages)
	s.writes.Add(1)
	return err
}

func (w *writer) transaction(f func(*writer) error) error {
	if err := run(w.begin); err != nil {
		return err
	}
	err := w.refresh()
	w.delta, w.nextState, w.changed = newDelta(), w.state, false
	if err == nil {
		err = f(w)
	}
	if err == nil {
		err = w.saveState()
	}
	if err == nil {
		err = run(w.commit)
	}
	if err == nil {
		w.publish()
	}
	// Some errors roll the transaction back by themselves.
	if err != nil && !w.conn.AutocommitEnabled() {
		return errors.Join(err, run(w.rollback))
	}
	return err
}

// applyAll applies the writes in their order. Consecutive creates are applied in
// groups, which is cheaper than one by one. If an id of a group is taken, its writes
// are applied one by one.
func (w *writer) applyAll(batch []plantstore.Write, results []plantstore.Result) error {
	if err := w.flush(w.flushSize()); err != nil {
		return err
	}
	for i := 0; i < len(batch); {
		end := i + 1
		if rest := batch[i:]; len(rest) >= groupSize && areCreates(rest[:groupSize]) {
			end = i + groupSize
			created, err := w.createGroup(batch[i:end])
			if err != nil {
				return err
			}
			if created {
				i = end // the zero Result is Created
				continue
			}
		}
		for ; i < end; i++ {
			var err error
			if results[i], err = w.apply(&batch[i]); err != nil {
				return err
			}
		}
	}
	largest := firstID
	for i := range batch {
		largest = max(largest, batch[i].Plant.ID)
	}
	w.batches++
	w.largest[w.batches%lookback] = largest
	return nil
}

// highWaterMark is the largest id of the batch that is lookback batches old.
func (w *writer) highWaterMark() plantstore.ID { return w.largest[(w.batches+1)%lookback] }

func areCreates(writes []plantstore.Write) bool {
	for i := range writes {
		if writes[i].Op != plantstore.Create || writes[i].If != nil {
			return false
		}
	}
	return true
}

// createGroup creates all plants of a group, or none if one of the ids is taken.
//
// Ids that come in order fall on few pages, and large plants fill whole pages: both
// are inserted into the table plants at once. Others are staged, to be flushed
// together with many more.
func (w *writer) createGroup(group []plantstore.Write) (bool, error) {
	staged, mark := w.staging.Load(), w.highWaterMark()
	inOrder := true
	for i := range group {
		id := group[i].Plant.ID
		if _, found := w.delta.find(staged, id); found {
			return false, nil
		}
		inOrder = inOrder && id > mark
	}
	if inOrder || pages(group) > len(group) {
		err := w.insertNew(group)
		if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultConstraint {
			return false, nil
		}
		return err == nil, err
	}
	free, err := w.areFree(group)
	if !free || err != nil {
		return false, err
	}
	return true, w.stageGroup(group)
}

// insertNew adds a group to the table plants, or nothing of it if an id is taken.
func (w *writer) insertNew(group []plantstore.Write) error {
	for i := range group {
		bindPlant(w.insertGroup, 3*i, group[i].Plant)
	}
	return run(w.insertGroup)
}

// areFree reports whether all ids of a group differ and none is in the table plants.
func (w *writer) areFree(group []plantstore.Write) (bool, error) {
	for i := range group {
		id := group[i].Plant.ID
		for j := range i {
			if group[j].Plant.ID == id {
				return false, nil
			}
		}
		w.taken.BindInt64(i+1, int64(id))
	}
	found, err := w.taken.Step()
	if err != nil {
		w.taken.Reset() // repeats the error
		return false, err
	}
	return !found, w.taken.Reset()
}

func (w *writer) apply(write *plantstore.Write) (plantstore.Result, error) {
	if staged, found := w.delta.find(w.staging.Load(), write.Plant.ID); found {
		return w.applyStaged(write, staged)
	}
	if write.Op == plantstore.Create && write.If == nil {
		bindPlant(w.insert, 0, write.Plant)
		if err := run(w.insert); err != nil {
			return plantstore.Result{}, err
		}
		if w.conn.Changes() == 1 {
			return plantstore.Result{Outcome: plantstore.Created}, nil
		}
	}
	current, err := plantByKey(w.sel, int64(write.Plant.ID))
	if err != nil {
		return plantstore.Result{}, err
	}
	result := write.Decide(current)
	if result.Err != nil {
		return result, nil
	}
	switch result.Outcome {
	case plantstore.Created:
		bindPlant(w.insert, 0, write.Plant)
		err = run(w.insert)
	case plantstore.Replaced:
		bindPlant(w.update, 0, write.Plant)
		err = run(w.update)
	case plantstore.Deleted:
		w.del.BindInt64(1, int64(write.Plant.ID))
		err = run(w.del)
	}
	return result, err
}

// applyStaged applies a write to a staged plant. A plant that changes is no longer
// staged.
func (w *writer) applyStaged(write *plantstore.Write, staged entry) (plantstore.Result, error) {
	current, err := plantByKey(w.selStaged, staged.seq)
	if err != nil || current == nil {
		return plantstore.Result{}, cmp.Or(err, errMissing(staged.id))
	}
	result := write.Decide(current)
	if result.Err != nil || result.Outcome != plantstore.Replaced && result.Outcome != plantstore.Deleted {
		return result, nil
	}
	if err := w.unstage(staged); err != nil || result.Outcome == plantstore.Deleted {
		return result, err
	}
	bindPlant(w.insert, 0, write.Plant)
	return result, run(w.insert)
}

// bindPlant binds the three parameters after the first ones.
func bindPlant(stmt *sqlite.Stmt, after int, p plantstore.Plant) {
	stmt.BindInt64(after+1, int64(p.ID))
	stmt.BindText(after+2, p.Name)
	if text, ok := p.Tag.Text(); ok {
		stmt.BindText(after+3, text)
	} else {
		stmt.BindNull(after + 3)
	}
}

// run runs a statement that returns no rows.
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

// exec runs a statement that has no field of its own.
func exec(c *sqlite.Conn, query string, args ...any) error {
	return sqlitex.Execute(c, query, &sqlitex.ExecOptions{Args: args})
}
