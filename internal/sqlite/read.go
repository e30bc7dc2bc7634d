package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore"
)

// searchBudget is how many plants one List examines in a search for a name. They take
// about a fifth of a second to read.
const searchBudget = 200_000

// Plant returns the plant with that id.
func (s *Store) Plant(ctx context.Context, id plantstore.ID) (plantstore.Plant, error) {
	if err := s.refresh(ctx); err != nil {
		return plantstore.Plant{}, err
	}
	staged, isStaged := s.write.staging.Load().find(id)
	var found *plantstore.Plant
	err := s.withReader(ctx, s.read, func(r *reader) (err error) {
		if isStaged {
			found, err = plantByKey(r.staged, staged.seq)
		}
		if found == nil && err == nil {
			// It is not staged, or has just been flushed or replaced.
			found, err = plantByKey(r.plant, int64(id))
		}
		return err
	})
	if err != nil {
		return plantstore.Plant{}, err
	}
	if found == nil {
		return plantstore.Plant{}, plantstore.ErrNoPlant
	}
	return *found, nil
}

// List returns one page.
func (s *Store) List(ctx context.Context, q plantstore.Query) (plantstore.Page, error) {
	b := plantstore.NewPageBuilder(q, searchBudget)
	err := s.withList(ctx, func(c *sqlite.Conn) error { return s.each(c, q, b.Add) })
	if err != nil {
		return plantstore.Page{}, err
	}
	return b.Page(), nil
}

// Scan yields all plants from one snapshot, on a dedicated connection: it takes as
// long as its consumer does, and short reads must not wait for it.
func (s *Store) Scan(ctx context.Context, q plantstore.Query) iter.Seq2[plantstore.Plant, error] {
	return func(yield func(plantstore.Plant, error) bool) {
		if err := s.runScan(ctx, q, func(p plantstore.Plant) bool { return yield(p, nil) }); err != nil {
			yield(plantstore.Plant{}, err)
		}
	}
}

func (s *Store) runScan(ctx context.Context, q plantstore.Query, yield func(plantstore.Plant) bool) error {
	if err := s.checkTrusted(); err != nil {
		return err
	}
	select {
	case s.scans <- struct{}{}:
		defer func() { <-s.scans }()
	case <-ctx.Done():
		return fmt.Errorf("scan %s: %w", s.path, ctx.Err())
	}
	c, err := open(s.path)
	if err != nil {
		return s.classify(err)
	}
	defer c.Close()
	c.SetInterrupt(ctx.Done())
	matches := q.Filter()
	stopped := false
	err = s.each(c, q, func(p plantstore.Plant) bool {
		if matches(p) {
			stopped = !yield(p)
		}
		return !stopped
	})
	if stopped {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("scan %s: %w", s.path, ctx.Err())
	}
	return s.classify(err)
}

// refresh reloads the staged plants if a server has the file open besides this store.
// The server's own are always current, and a snapshot checks by itself.
func (s *Store) refresh(ctx context.Context) error {
	if s.lock != nil {
		return nil
	}
	return s.withWriter(ctx, 0, func(*writer) error { return nil })
}

// each calls f with the plants that have the query's tag and an id greater than its
// After, in order of id, until f returns false. All come from one snapshot.
func (s *Store) each(c *sqlite.Conn, q plantstore.Query, f func(plantstore.Plant) bool) error {
	first := firstID
	if q.After != nil {
		if *q.After == math.MaxInt64 {
			return nil
		}
		first = *q.After + 1
	}
	staged, err := s.snapshot(c)
	defer endSnapshot(c)
	if err != nil {
		return err
	}
	query := "SELECT id, name, tag FROM plants WHERE id >= ? ORDER BY id"
	text, tagged := q.Tag.Text()
	if tagged {
		query = "SELECT id, name, tag FROM plants WHERE id >= ? AND tag = ? ORDER BY id"
	}
	stmt, err := c.Prepare(query)
	if err != nil {
		return err
	}
	stagedByKey, err := c.Prepare(selectStaged)
	if err != nil {
		return err
	}
	stmt.BindInt64(1, int64(first))
	if tagged {
		stmt.BindText(2, text)
	}
	defer stmt.Reset()
	row, err := stmt.Step()
	if err != nil {
		return err
	}
	tag := hashTag(q.Tag)
	for e := range staged.from(first) {
		if tagged && e.tag != tag {
			continue
		}
		p, err := plantByKey(stagedByKey, e.seq)
		if err != nil || p == nil {
			return cmp.Or(err, errMissing(e.id))
		}
		if tagged && p.Tag != q.Tag {
			continue
		}
		for row && stmt.ColumnInt64(0) <= int64(e.id) {
			if !f(rowPlant(stmt)) {
				return nil
			}
			if row, err = stmt.Step(); err != nil {
				return err
			}
		}
		if !f(*p) {
			return nil
		}
	}
	for row {
		if !f(rowPlant(stmt)) {
			return nil
		}
		if row, err = stmt.Step(); err != nil {
			return err
		}
	}
	return nil
}

// catchUpTimeout is how long a snapshot waits for the staging in memory to match the
// file. A commit is visible in the file a moment earlier.
const catchUpTimeout = time.Second

// snapshot begins a read transaction and returns the plants staged in its snapshot.
// endSnapshot must follow, even after an error.
func (s *Store) snapshot(c *sqlite.Conn) (*staging, error) {
	for start := time.Now(); ; time.Sleep(20 * time.Microsecond) {
		staged := s.write.staging.Load()
		if err := exec(c, "BEGIN"); err != nil {
			return nil, err
		}
		f, err := readFlushState(c)
		if err != nil || f.version == staged.version {
			return staged, err
		}
		if s.lock == nil || time.Since(start) > catchUpTimeout {
			// Another process has changed the file.
			staged, _, err := loadStaging(c)
			return staged, err
		}
		endSnapshot(c)
	}
}

// endSnapshot ends the transaction, even if the connection has been interrupted.
func endSnapshot(c *sqlite.Conn) {
	interrupt := c.SetInterrupt(nil)
	defer c.SetInterrupt(interrupt)
	if !c.AutocommitEnabled() {
		_ = exec(c, "ROLLBACK")
	}
}
