package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

// createPlants is a function, which PostgreSQL plans once for each connection even if the
// statement has no name: to plan it takes longer than to create a plant.
var createPlants = fmt.Sprintf(`SELECT create_plants($1, $2, $3, $4, $5, $6, %d)`, newest)

// segmentSize is approximately how many bytes of text a row of the log has at most: a reader of
// one event reads its row.
const segmentSize = 4 << 20

// Apply applies the batch in one transaction, which is on disk when it returns,
// and on the synchronous standbys if there are any.
//
// A batch of creates of different plants without conditions takes one statement, unless an id is
// taken. It can be applied again as it is after ErrRetry, with the exception that
// [plantstore.Store] allows: ruling that out would make every create more expensive.
//
// Any other batch cannot be repeated: a delete would find nothing the second time. It stores that
// it was applied in the database, in the same transaction (plan.go). If the outcome of that
// transaction is unknown, Apply queries it until ctx ends. Only then does it return ErrRetry with
// the outcome unknown.
func (s *Store) Apply(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	if err := ctx.Err(); err != nil || len(batch) == 0 {
		return nil, err
	}
	defer s.changes.Notify()
	s.noteNames(batch)
	onlyCreates := isOneInsert(batch)
	// If the last batch of creates had an id that was taken, this one is likely to have one,
	// too, and the work would be in vain.
	if onlyCreates && !s.idsTaken.Load() {
		results, err := s.create(ctx, batch)
		if results != nil || err != nil {
			return results, orRetry(err, ctx.Err() != nil)
		}
	}
	p := newPlan(batch[:min(len(batch), s.planSize())], s.lastTime.Load()+1)
	for delays := fastDelays; ; {
		err := s.withConn(ctx, s.write, s.callTimeout, p.transact)
		if err == nil {
			s.sawTime(p.time)
			s.foundText.Store(p.foundText)
			if onlyCreates {
				s.idsTaken.Store(slices.ContainsFunc(p.results, func(r plantstore.Result) bool { return r.EventType() == "" }))
			}
			return p.results, nil
		}
		if !p.maybeCommitted() || !errors.Is(err, plantstore.ErrRetry) || !delays.Wait(ctx) {
			return nil, orRetry(err, p.maybeCommitted() || ctx.Err() != nil)
		}
	}
}

// planSize returns how many writes a plan may have: it reads the plants that they find, which may
// be large. Those that the last plan found say how large they are.
func (s *Store) planSize() int {
	const least = 64
	return max(least, int(2*segmentSize/max(1, s.foundText.Load())))
}

// orRetry makes an error ErrRetry if the outcome of the batch is unknown.
func orRetry(err error, unknown bool) error {
	if err == nil || !unknown || errors.Is(err, plantstore.ErrRetry) || errors.Is(err, ErrNewerSchema) {
		return err
	}
	return fmt.Errorf("%w: %w: %w", plantstore.ErrRetry, plantstore.ErrUnavailable, err)
}

// isOneInsert reports whether all writes are creates without a condition, of different plants,
// that fit into one row of the log.
func isOneInsert(batch []plantstore.Write) bool {
	size, ids := 0, make(map[plantstore.ID]bool, len(batch))
	for i := range batch {
		id := batch[i].Plant.ID
		if !isCreate(&batch[i]) || ids[id] {
			return false
		}
		ids[id] = true
		size += batch[i].Plant.TextSize()
	}
	return size <= segmentSize
}

// isCreate reports whether a write is a create without a condition.
func isCreate(w *plantstore.Write) bool { return w.Op == plantstore.Create && w.If == nil }

// create applies the creates of a batch that is one insert in a transaction of one statement, which
// appends them to the log in the order of the batch. If an id is taken, it changes
// nothing and returns no results.
func (s *Store) create(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	plants, by := newColumns(len(batch)), make([]string, len(batch))
	for i := range batch {
		plants.add(&batch[i].Plant)
		by[i] = batch[i].By
	}
	var at *int64
	err := s.withConn(ctx, s.write, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
		err := c.QueryRow(ctx, createPlants, plants.ids, plants.names, plants.tags, plants.folded, by, s.lastTime.Load()+1).Scan(&at)
		if sqlState(err) == uniqueViolation {
			return nil
		}
		return err
	})
	if err != nil || at == nil {
		return nil, err
	}
	s.sawTime(*at)
	results := make([]plantstore.Result, len(batch))
	for i := range results {
		results[i] = plantstore.Result{Outcome: plantstore.Created, Version: plantstore.Version{Time: *at, N: int64(i)}}
	}
	return results, nil
}

// sawTime takes note of the time of an event, so that the next batch has a later one from the
// start, also if the database's clock was set back.
func (s *Store) sawTime(at int64) {
	for {
		last := s.lastTime.Load()
		if at <= last || s.lastTime.CompareAndSwap(last, at) {
			return
		}
	}
}

// columns are plants as the database stores them.
type columns struct {
	ids    []int64
	names  []string
	tags   []*string
	folded []*string // nil if none is different from its name: most names are ASCII
	folder folder
}

func newColumns(n int) columns {
	return columns{ids: make([]int64, 0, n), names: make([]string, 0, n), tags: make([]*string, 0, n)}
}

func (c *columns) add(p *plantstore.Plant) {
	name, tag := text(p)
	folded := c.folder.folded(name, p.Name)
	if folded != nil && c.folded == nil {
		c.folded = make([]*string, len(c.ids), cap(c.ids))
	}
	if c.folded != nil {
		c.folded = append(c.folded, folded)
	}
	c.ids, c.names, c.tags = append(c.ids, int64(p.ID)), append(c.names, name), append(c.tags, tag)
}

// text returns the plant's name and tag as the database stores them.
func text(p *plantstore.Plant) (name string, tag *string) {
	if text, ok := p.Tag.Text(); ok {
		text = escape(text)
		tag = &text
	}
	return escape(p.Name), tag
}
