package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
)

// occupied returns a store with some plants, all of whose lookups are under way
// until release is called.
func occupied(t *testing.T) (s *Store, release func()) {
	t.Helper()
	s = use(t, pgtest.Fresh(t))
	for i := range 10 {
		apply(t, s, create(plant(plantstore.ID(i), fmt.Sprint("fern ", i))))
	}
	for range lookupsAtOnce {
		s.lookups.slots <- struct{}{}
	}
	return s, func() {
		for range lookupsAtOnce {
			<-s.lookups.slots
		}
	}
}

// TestLookupsGoTogether asks for plants while nothing can be looked up. What was
// asked for meanwhile is one query, in which some find their plant and some do not.
func TestLookupsGoTogether(t *testing.T) {
	s, release := occupied(t)
	var callers sync.WaitGroup
	const asked = 20 // of which each second one is there
	for i := range asked {
		callers.Go(func() {
			id := plantstore.ID(i / 2)
			if i%2 == 1 {
				id += 1000
			}
			got, err := s.Plant(t.Context(), id)
			switch {
			case i%2 == 0 && (err != nil || got != plant(id, fmt.Sprint("fern ", id))):
				t.Errorf("plant %d: %+v, %v", id, got, err)
			case i%2 == 1 && !errors.Is(err, plantstore.ErrNoPlant):
				t.Errorf("plant %d: %+v, %v, want ErrNoPlant", id, got, err)
			}
		})
	}
	until(t, "all have asked", func() bool { return s.gathered() == asked })
	release()
	callers.Wait()
	if left := s.gathered(); left != 0 {
		t.Errorf("%d ids wait when all have been answered", left)
	}
}

// TestLookupOutlivesItsFirstCaller has the caller go away who would run the query
// for all.
func TestLookupOutlivesItsFirstCaller(t *testing.T) {
	s, release := occupied(t)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	callers.Go(func() {
		if _, err := s.Plant(ctx, 1); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("who went away: %v", err)
		}
	})
	until(t, "the first has asked", func() bool { return s.gathered() == 1 })
	callers.Go(func() {
		if got, err := s.Plant(t.Context(), 2); err != nil || got != plant(2, "fern 2") {
			t.Errorf("who stayed: %+v, %v", got, err)
		}
	})
	until(t, "the second has asked", func() bool { return s.gathered() == 2 })
	cancel()
	release()
	callers.Wait()
}

// gathered returns how many ids wait for the next lookup.
func (s *Store) gathered() int {
	s.lookups.mu.Lock()
	defer s.lookups.mu.Unlock()
	return len(s.lookups.next.ids)
}
