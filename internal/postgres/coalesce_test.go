package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
)

// storeWithReadsBlocked returns a store with some plants whose reads of single
// plants cannot start until release is called.
func storeWithReadsBlocked(t *testing.T) (s *Store, release func()) {
	t.Helper()
	s = openStore(t, pgtest.Fresh(t))
	for i := range 10 {
		apply(t, s, create(plant(plantstore.ID(i), fmt.Sprint("fern ", i))))
	}
	for range maxReadsInFlight {
		s.reads.inFlight <- struct{}{}
	}
	return s, func() {
		for range maxReadsInFlight {
			<-s.reads.inFlight
		}
	}
}

// TestConcurrentReadsAreCoalesced reads plants while no read can start. They become
// one query, which finds the plants of some callers and not those of others.
func TestConcurrentReadsAreCoalesced(t *testing.T) {
	s, release := storeWithReadsBlocked(t)
	var callers sync.WaitGroup
	const reads = 20 // every other one of a plant that exists
	for i := range reads {
		callers.Go(func() {
			id := plantstore.ID(i / 2)
			if i%2 == 1 {
				id += 1000
			}
			got, err := s.Plant(t.Context(), id)
			switch {
			case i%2 == 0 && (err != nil || got.Plant != plant(id, fmt.Sprint("fern ", id))):
				t.Errorf("plant %d: %+v, %v", id, got, err)
			case i%2 == 1 && !errors.Is(err, plantstore.ErrNoPlant):
				t.Errorf("plant %d: %+v, %v, want ErrNoPlant", id, got, err)
			}
		})
	}
	testenv.WaitFor(t, "all reads to be queued", func() bool { return queuedReads(s) == reads })
	release()
	callers.Wait()
	if n := queuedReads(s); n != 0 {
		t.Errorf("%d reads are queued after all callers have returned", n)
	}
}

// TestCoalescedReadsAreBounded reads more plants than one query may return.
func TestCoalescedReadsAreBounded(t *testing.T) {
	s, release := storeWithReadsBlocked(t)
	var callers sync.WaitGroup
	for i := range 3*maxReadIDs + 1 {
		callers.Go(func() {
			id := plantstore.ID(i % 10)
			if got, err := s.Plant(t.Context(), id); err != nil || got.Plant != plant(id, fmt.Sprint("fern ", id)) {
				t.Errorf("plant %d: %+v, %v", id, got, err)
			}
		})
		want := i%maxReadIDs + 1
		testenv.WaitFor(t, "the read to be queued", func() bool { return queuedReads(s) == want })
	}
	release()
	callers.Wait()
}

// TestCoalescedReadSurvivesItsFirstCaller cancels the caller that would run the query
// for all of them.
func TestCoalescedReadSurvivesItsFirstCaller(t *testing.T) {
	s, release := storeWithReadsBlocked(t)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	callers.Go(func() {
		if _, err := s.Plant(ctx, 1); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled caller: %v", err)
		}
	})
	testenv.WaitFor(t, "the first read to be queued", func() bool { return queuedReads(s) == 1 })
	callers.Go(func() {
		if got, err := s.Plant(t.Context(), 2); err != nil || got.Plant != plant(2, "fern 2") {
			t.Errorf("the other caller: %+v, %v", got, err)
		}
	})
	testenv.WaitFor(t, "the second read to be queued", func() bool { return queuedReads(s) == 2 })
	cancel()
	release()
	callers.Wait()
}

// TestCoalescedReadThatPanics makes the query of two callers panic. One of them runs it
// and panics; the other gets an error, and not that there is no such plant.
func TestCoalescedReadThatPanics(t *testing.T) {
	s, release := storeWithReadsBlocked(t)
	pool := s.lookups
	s.lookups = nil // which no query survives
	var callers sync.WaitGroup
	callers.Go(func() {
		defer func() {
			if recover() == nil {
				t.Error("the caller that runs the query does not report the panic")
			}
		}()
		s.Plant(t.Context(), 1)
	})
	testenv.WaitFor(t, "the first read to be queued", func() bool { return queuedReads(s) == 1 })
	callers.Go(func() {
		if got, err := s.Plant(t.Context(), 2); !errors.Is(err, errPanicked) {
			t.Errorf("the other caller: %+v, %v, want %v", got, err, errPanicked)
		}
	})
	testenv.WaitFor(t, "the second read to be queued", func() bool { return queuedReads(s) == 2 })
	release()
	callers.Wait()
	s.lookups = pool
	if got, err := s.Plant(t.Context(), 2); err != nil || got.Plant != plant(2, "fern 2") {
		t.Errorf("the next read: %+v, %v", got, err)
	}
}

// queuedReads returns how many ids the next read has collected.
func queuedReads(s *Store) int {
	s.reads.mu.Lock()
	defer s.reads.mu.Unlock()
	if s.reads.next == nil {
		return 0
	}
	return len(s.reads.next.ids)
}

// A read that does not get its turn, because a server hangs, waits no longer than others do.
func TestCoalescedReadWaitsForTheStoreTimeout(t *testing.T) {
	s, release := storeWithReadsBlocked(t)
	defer release()
	s.opts.StoreTimeout = time.Millisecond
	failed := make(chan error, 1)
	go func() {
		_, err := s.Plant(t.Context(), 1)
		failed <- err
	}()
	select {
	case err := <-failed:
		if !errors.Is(err, plantstore.ErrUnavailable) {
			t.Errorf("got %v, want %v", err, plantstore.ErrUnavailable)
		}
	case <-time.After(testenv.Timeout):
		t.Fatal("the read still waits")
	}
	if n := queuedReads(s); n != 0 {
		t.Errorf("%d reads are queued after their caller has returned", n)
	}
}
