package postgres

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

// lookupsAtOnce is how many lookups may be under way at once.
const lookupsAtOnce = 2

// lookups gathers what callers ask for into one query, as group commit does for
// writes: whatever is asked for while others are under way goes together. There is
// no timer, so that a lone caller waits for nobody.
type lookups struct {
	slots chan struct{} // holds a token for each lookup under way
	mu    sync.Mutex    // guards what follows
	next  *lookup       // gathers ids until it is under way
}

// lookup is one query for a number of plants. Who adds the first id runs it. plants
// and err are set before done is closed.
type lookup struct {
	ids    []int64
	done   chan struct{}
	plants map[plantstore.ID]plantstore.Plant
	err    error
}

func newLookups() lookups {
	return lookups{slots: make(chan struct{}, lookupsAtOnce), next: newLookup()}
}

func newLookup() *lookup { return &lookup{done: make(chan struct{})} }

// Plant returns the plant with that id.
func (s *Store) Plant(ctx context.Context, id plantstore.ID) (plantstore.Plant, error) {
	l, first := s.lookups.join(id)
	if first {
		// The others must not suffer if this caller goes away.
		s.lookUp(context.WithoutCancel(ctx), l)
	}
	select {
	case <-l.done:
	case <-ctx.Done():
		return plantstore.Plant{}, ctx.Err()
	}
	if l.err != nil {
		return plantstore.Plant{}, l.err
	}
	plant, ok := l.plants[id]
	if !ok {
		return plantstore.Plant{}, plantstore.ErrNoPlant
	}
	return plant, nil
}

// join adds an id to the next lookup, and reports whether it is the first.
func (l *lookups) join(id plantstore.ID) (*lookup, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next.ids = append(l.next.ids, int64(id))
	return l.next, len(l.next.ids) == 1
}

// seal has those who come from now on join another lookup.
func (l *lookups) seal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = newLookup()
}

// lookUp runs a lookup when it is its turn.
func (s *Store) lookUp(ctx context.Context, l *lookup) {
	s.lookups.slots <- struct{}{}
	defer func() { <-s.lookups.slots }()
	s.lookups.seal()
	defer close(l.done)
	l.err = s.reading(ctx, func(ctx context.Context, c *pgx.Conn) error {
		l.plants = make(map[plantstore.ID]plantstore.Plant, len(l.ids))
		rows, err := selectAll(ctx, c, l.ids)
		if err != nil {
			return err
		}
		return eachPlant(rows, func(p plantstore.Plant) bool {
			l.plants[p.ID] = p
			return true
		})
	})
}

func selectAll(ctx context.Context, c *pgx.Conn, ids []int64) (pgx.Rows, error) {
	if len(ids) == 1 {
		return c.Query(ctx, selectPlant, ids[0])
	}
	return c.Query(ctx, selectPlants, ids)
}
