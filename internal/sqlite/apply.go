package sqlite

import (
	"context"
	"errors"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
)

// groupSize is how many creates one statement takes.
const groupSize = 32

// writer is the one connection that writes, with its statements. The store's
// mutex guards it.
type writer struct {
	conn                    *sqlite.Conn
	begin, commit, rollback *sqlite.Stmt
	insert, insertGroup     *sqlite.Stmt
	sel, update, del        *sqlite.Stmt
}

func (w *writer) prepare() error {
	var errs []error
	for query, stmt := range map[string]**sqlite.Stmt{
		"BEGIN IMMEDIATE": &w.begin,
		"COMMIT":          &w.commit,
		"ROLLBACK":        &w.rollback,
		"INSERT INTO plants (id, name, tag) VALUES (?, ?, ?) ON CONFLICT DO NOTHING":                       &w.insert,
		"INSERT INTO plants (id, name, tag) VALUES (?, ?, ?)" + strings.Repeat(", (?, ?, ?)", groupSize-1): &w.insertGroup,
		"SELECT id, name, tag FROM plants WHERE id = ?":                                                    &w.sel,
		"UPDATE plants SET name = ?2, tag = ?3 WHERE id = ?1":                                              &w.update,
		"DELETE FROM plants WHERE id = ?":                                                                  &w.del,
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
	err := s.writing(ctx, pages(batch), func(w *writer) error { return w.applyAll(batch, results) })
	if err != nil {
		return nil, err
	}
	return results, nil
}

// writing runs f, which writes about so many pages, in a transaction and commits
// it.
func (s *Store) writing(ctx context.Context, pages int, f func(*writer) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.trusted(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := explain(s.path, s.write.transaction(f))
	if errors.Is(err, plantstore.ErrUntrusted) {
		s.untrusted(err)
	}
	s.wrote(pages)
	return err
}

func (w *writer) transaction(f func(*writer) error) error {
	if err := run(w.begin); err != nil {
		return err
	}
	err := f(w)
	if err == nil {
		err = run(w.commit)
	}
	// Some errors end the transaction by themselves.
	if err != nil && !w.conn.AutocommitEnabled() {
		return errors.Join(err, run(w.rollback))
	}
	return err
}

// applyAll applies the writes in their order. Creates that stand together go in
// groups of one statement, which is cheaper than one each. Where an id of a group is
// taken, the statement changes nothing, and its writes are applied one by one.
func (w *writer) applyAll(batch []plantstore.Write, results []plantstore.Result) error {
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
	return nil
}

func areCreates(writes []plantstore.Write) bool {
	for i := range writes {
		if writes[i].Op != plantstore.Create || writes[i].If != nil {
			return false
		}
	}
	return true
}

// createGroup creates all plants of a group, or none if one of the ids is taken.
func (w *writer) createGroup(group []plantstore.Write) (bool, error) {
	for i := range group {
		bindPlant(w.insertGroup, 3*i, group[i].Plant)
	}
	err := run(w.insertGroup)
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultConstraint {
		return false, nil
	}
	return err == nil, err
}

func (w *writer) apply(write *plantstore.Write) (plantstore.Result, error) {
	if write.Op == plantstore.Create && write.If == nil {
		bindPlant(w.insert, 0, write.Plant)
		if err := run(w.insert); err != nil {
			return plantstore.Result{}, err
		}
		if w.conn.Changes() == 1 {
			return plantstore.Result{Outcome: plantstore.Created}, nil
		}
	}
	current, err := plantByID(w.sel, write.Plant.ID)
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

// bindPlant binds the three parameters after the first so many.
func bindPlant(stmt *sqlite.Stmt, after int, p plantstore.Plant) {
	stmt.BindInt64(after+1, int64(p.ID))
	stmt.BindText(after+2, p.Name)
	if text, ok := p.Tag.Text(); ok {
		stmt.BindText(after+3, text)
	} else {
		stmt.BindNull(after + 3)
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

// plantByID returns the plant, or nil if there is none.
func plantByID(stmt *sqlite.Stmt, id plantstore.ID) (*plantstore.Plant, error) {
	stmt.BindInt64(1, int64(id))
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
	p := plantstore.Plant{ID: plantstore.ID(row.ColumnInt64(0)), Name: row.ColumnText(1)}
	if !row.ColumnIsNull(2) {
		p.Tag = plantstore.NewTag(row.ColumnText(2))
	}
	return p
}

// exec runs a statement that is not worth keeping.
func exec(c *sqlite.Conn, query string, args ...any) error {
	return sqlitex.Execute(c, query, &sqlitex.ExecOptions{Args: args})
}
