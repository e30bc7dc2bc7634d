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

// searchBudget is how many plants one List looks at in search of a name: what is
// read in about a fifth of a second.
const searchBudget = 200_000

// Plant returns the plant with that id.
func (s *Store) Plant(ctx context.Context, id plantstore.ID) (plantstore.Plant, error) {
	if err := s.refresh(ctx); err != nil {
		return plantstore.Plant{}, err
	}
	waiting, waits := s.write.recent.Load().find(id)
	var found *plantstore.Plant
	err := s.readingBriefly(ctx, func(r *reader) (err error) {
		if waits {
			found, err = plantByKey(r.recent, waiting.seq)
		}
		if found == nil && err == nil {
			// It does not wait, or was moved or replaced just now.
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
	var page plantstore.Page
	err := s.reading(ctx, func(c *sqlite.Conn) error {
		matcher := plantstore.NewMatcher(q.Contains)
		seen := 0
		var last plantstore.ID
		return s.each(c, q, func(p plantstore.Plant) bool {
			if len(page.Plants) == q.Limit || seen == searchBudget {
				page.Next = &last
				return false
			}
			seen++
			last = p.ID
			if matcher.Match(p.Name) {
				page.Plants = append(page.Plants, p)
			}
			return true
		})
	})
	if err != nil {
		return plantstore.Page{}, err
	}
	return page, nil
}

// Scan yields all plants from one snapshot, on a connection of its own: it lasts
// as long as its reader, and must not keep short reads waiting.
func (s *Store) Scan(ctx context.Context, q plantstore.Query) iter.Seq2[plantstore.Plant, error] {
	return func(yield func(plantstore.Plant, error) bool) {
		if err := s.scanning(ctx, q, func(p plantstore.Plant) bool { return yield(p, nil) }); err != nil {
			yield(plantstore.Plant{}, err)
		}
	}
}

func (s *Store) scanning(ctx context.Context, q plantstore.Query, yield func(plantstore.Plant) bool) error {
	if err := s.trusted(); err != nil {
		return err
	}
	select {
	case s.scan <- struct{}{}:
		defer func() { <-s.scan }()
	case <-ctx.Done():
		return fmt.Errorf("scan %s: %w", s.path, ctx.Err())
	}
	c, err := open(s.path)
	if err != nil {
		return explain(s.path, err)
	}
	defer c.Close()
	c.SetInterrupt(ctx.Done())
	matcher := plantstore.NewMatcher(q.Contains)
	stopped := false
	err = s.each(c, q, func(p plantstore.Plant) bool {
		if matcher.Match(p.Name) {
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
	return explain(s.path, err)
}

// refresh makes sure that what waits to be moved is known, also where a server works
// on the file beside this store. The server itself knows, and a snapshot looks itself.
func (s *Store) refresh(ctx context.Context) error {
	if s.lock != nil {
		return nil
	}
	return s.writing(ctx, 0, func(*writer) error { return nil })
}

// each calls f with the plants that have the query's tag and come after its
// After, in order of id, until f returns false. All are of one snapshot.
func (s *Store) each(c *sqlite.Conn, q plantstore.Query, f func(plantstore.Plant) bool) error {
	first := firstID
	if q.After != nil {
		if *q.After == math.MaxInt64 {
			return nil
		}
		first = *q.After + 1
	}
	waiting, err := s.snapshot(c)
	defer endSnapshot(c)
	if err != nil {
		return err
	}
	stmt := c.Prep("SELECT id, name, tag FROM plants WHERE id >= ? ORDER BY id")
	if text, ok := q.Tag.Text(); ok {
		stmt = c.Prep("SELECT id, name, tag FROM plants WHERE id >= ? AND tag = ? ORDER BY id")
		stmt.BindText(2, text)
	}
	stmt.BindInt64(1, int64(first))
	defer stmt.Reset()
	row, err := stmt.Step()
	if err != nil {
		return err
	}
	_, tagged := q.Tag.Text()
	tag := hashTag(q.Tag)
	recent := c.Prep(selectRecent)
	for e := range waiting.from(first) {
		if tagged && e.tag != tag {
			continue
		}
		p, err := plantByKey(recent, e.seq)
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

// catchUp is how long a snapshot waits for what is in memory to be that of the file.
// A commit is seen in the file a moment earlier.
const catchUp = time.Second

// snapshot begins a transaction that reads, and returns what waited to be moved at
// its moment. endSnapshot must follow, also after an error.
func (s *Store) snapshot(c *sqlite.Conn) (*recent, error) {
	for began := time.Now(); ; time.Sleep(20 * time.Microsecond) {
		waiting := s.write.recent.Load()
		if err := run(c.Prep("BEGIN")); err != nil {
			return nil, err
		}
		m, err := readMoving(c)
		if err != nil || m.version == waiting.version {
			return waiting, err
		}
		if s.lock == nil || time.Since(began) > catchUp {
			// Another process works on the file.
			waiting, _, err := load(c)
			return waiting, err
		}
		endSnapshot(c)
	}
}

// endSnapshot ends the transaction, also where the reader has been interrupted.
func endSnapshot(c *sqlite.Conn) {
	interrupt := c.SetInterrupt(nil)
	defer c.SetInterrupt(interrupt)
	if !c.AutocommitEnabled() {
		_ = run(c.Prep("ROLLBACK"))
	}
}
