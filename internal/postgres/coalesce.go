package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

const (
	// maxReadsInFlight is how many coalesced reads may be in flight at once.
	maxReadsInFlight = 2
	// maxReadIDs is how many plants one read returns. They are all in memory at once,
	// and may be large.
	maxReadIDs = 64
)

// coalescer combines concurrent reads of single plants into one query, as group
// commit does for writes: the ids that arrive while other reads are in flight go
// together. There is no timer, so a lone caller never waits.
type coalescer struct {
	inFlight chan struct{}  // holds a token for each read in flight
	mu       sync.Mutex     // guards next
	next     *coalescedRead // collects ids until it is closed or full; nil if there is none
}

// coalescedRead is one query for several plants. The caller that adds the first id
// runs it. plants and err are set before done is closed, and err is not nil unless the
// query has returned the plants.
type coalescedRead struct {
	ids    []int64
	done   chan struct{}
	plants []plantstore.StoredPlant
	err    error
}

var errPanicked = errors.New("the query that this read shares panicked")

// Plant returns the plant with that id.
func (s *Store) Plant(ctx context.Context, id plantstore.ID) (plantstore.StoredPlant, error) {
	r, first := s.reads.join(id)
	if first {
		// The other callers must get their plants even if this one disconnects.
		s.runRead(context.WithoutCancel(ctx), r)
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return plantstore.StoredPlant{}, ctx.Err()
	}
	if r.err != nil {
		return plantstore.StoredPlant{}, r.err
	}
	i := slices.IndexFunc(r.plants, func(p plantstore.StoredPlant) bool { return p.ID == id })
	if i < 0 {
		return plantstore.StoredPlant{}, plantstore.ErrNoPlant
	}
	return r.plants[i], nil
}

// join adds an id to the next read, and reports whether it is the first one.
func (c *coalescer) join(id plantstore.ID) (*coalescedRead, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil || len(c.next.ids) == maxReadIDs {
		c.next = &coalescedRead{done: make(chan struct{}), err: errPanicked}
	}
	c.next.ids = append(c.next.ids, int64(id))
	return c.next, len(c.next.ids) == 1
}

// runRead waits for its turn, then closes the read, so that callers that arrive later join
// another one, and runs it. The wait counts for the store timeout: while a server hangs, many
// reads may be in line.
func (s *Store) runRead(ctx context.Context, r *coalescedRead) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.StoreTimeout)
	defer cancel()
	select {
	case s.reads.inFlight <- struct{}{}:
		defer func() { <-s.reads.inFlight }()
	case <-ctx.Done(): // the query fails at once
	}
	s.reads.mu.Lock()
	if s.reads.next == r {
		s.reads.next = nil
	}
	s.reads.mu.Unlock()
	defer close(r.done)
	r.err = s.retryCall(ctx, s.lookups, func(ctx context.Context, c *pgx.Conn) (err error) {
		rows, _ := c.Query(ctx, selectPlants, r.ids) // CollectRows returns the error
		r.plants, err = pgx.CollectRows(rows, rowStored)
		return err
	})
	if r.err != nil && ctx.Err() != nil {
		r.err = fmt.Errorf("%w: %w", plantstore.ErrUnavailable, r.err)
	}
}
