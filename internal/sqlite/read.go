package sqlite

import (
	"context"
	"fmt"
	"iter"
	"math"

	"zombiezen.com/go/sqlite"

	"plantstore"
)

// searchBudget is how many plants one List looks at in search of a name: what is
// read in about a fifth of a second.
const searchBudget = 200_000

// Plant returns the plant with that id.
func (s *Store) Plant(ctx context.Context, id plantstore.ID) (plantstore.Plant, error) {
	var found *plantstore.Plant
	err := s.readingBriefly(ctx, func(r *reader) (err error) {
		found, err = plantByID(r.plant, id)
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
		return each(c, q, func(p plantstore.Plant) bool {
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
	err = each(c, q, func(p plantstore.Plant) bool {
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

// each calls f with the plants that have the query's tag and come after its
// After, in order of id, until f returns false. The one statement is one snapshot.
func each(c *sqlite.Conn, q plantstore.Query, f func(plantstore.Plant) bool) (err error) {
	first := int64(math.MinInt64)
	if q.After != nil {
		if *q.After == math.MaxInt64 {
			return nil
		}
		first = int64(*q.After) + 1
	}
	stmt := c.Prep("SELECT id, name, tag FROM plants WHERE id >= ? ORDER BY id")
	if text, ok := q.Tag.Text(); ok {
		stmt = c.Prep("SELECT id, name, tag FROM plants WHERE id >= ? AND tag = ? ORDER BY id")
		stmt.BindText(2, text)
	}
	stmt.BindInt64(1, first)
	defer stmt.Reset()
	for {
		found, err := stmt.Step()
		if err != nil || !found {
			return err
		}
		if !f(rowPlant(stmt)) {
			return nil
		}
	}
}
