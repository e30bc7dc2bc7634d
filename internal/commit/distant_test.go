package commit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plantstore"
)

const maxInFlight = 6

// distantStore is a store at the other end of a network, which works on one batch at a time.
type distantStore struct {
	roundTrip, work time.Duration
	working         chan struct{} // holds a token while it does

	mu             sync.Mutex // guards what follows
	inFlight, most int
	err            error
}

func newDistantStore(roundTrip, work time.Duration) *distantStore {
	return &distantStore{roundTrip: roundTrip, work: work, working: make(chan struct{}, 1)}
}

func (s *distantStore) RoundTrip() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roundTrip
}

func (s *distantStore) MaxInFlight() int { return maxInFlight }

func (s *distantStore) Apply(_ context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	s.mu.Lock()
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	roundTrip, err := s.roundTrip, s.err
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight--
	}()
	time.Sleep(roundTrip / 2)
	s.working <- struct{}{}
	time.Sleep(s.work)
	<-s.working
	time.Sleep(roundTrip / 2)
	return make([]plantstore.Result, len(batch)), err
}

// set changes the network, and starts to count anew how many batches are in flight.
func (s *distantStore) set(roundTrip time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roundTrip, s.err, s.most = roundTrip, err, 0
}

// writeFor returns how many writes a number of clients can make in that time.
func writeFor(w *Writer, clients int, total time.Duration) (n int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for end := time.Now().Add(total); clients > 0; clients-- {
		all.Go(func() {
			for time.Now().Before(end) {
				_, _ = w.Write(context.Background(), create(1))
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return n
}

func TestDistantStoreGetsSeveralBatchesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const roundTrip, work = time.Millisecond, 200 * time.Microsecond
		near, far := newDistantStore(0, roundTrip+work), newDistantStore(roundTrip, work)
		one := writeFor(New(near, Options{}), 16, time.Second)
		several := writeFor(New(far, Options{}), 16, time.Second)
		if near.most != 1 {
			t.Errorf("%d batches in flight to a store that is near, want 1", near.most)
		}
		if several < one*3/2 {
			t.Errorf("16 clients made %d writes with up to %d batches in flight, and %d with one", several, far.most, one)
		}
		// A lone client waits for nothing but its own writes.
		if n, want := writeFor(New(far, Options{}), 1, time.Second), int(time.Second/(roundTrip+work)); n < want {
			t.Errorf("one client made %d writes, want %d", n, want)
		}
	})
}

func TestStoreThatIsBusyGetsOneBatchAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, work := range []time.Duration{300 * time.Microsecond, 120 * time.Microsecond} {
			s := newDistantStore(100*time.Microsecond, work)
			writeFor(New(s, Options{}), 16, time.Second)
			if s.most != 1 {
				t.Errorf("%d batches in flight to a store that works for %v at a distance of 100 µs, want 1", s.most, work)
			}
		}
	})
}

// A failover may lead to a server that is farther away or nearer, and fail what was in flight.
func TestBatchesInFlightFollowTheNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDistantStore(0, 200*time.Microsecond)
		w := New(s, Options{})
		for i := range 3 {
			s.set(time.Millisecond, nil)
			writeFor(w, 16, time.Second)
			if s.most < 2 || s.most > maxInFlight {
				t.Errorf("turn %d: %d batches in flight at 1 ms, want 2 to %d", i, s.most, maxInFlight)
			}
			s.set(time.Millisecond, errors.New("the server is gone"))
			writeFor(w, 16, 100*time.Millisecond)
			s.set(0, nil)
			writeFor(w, 16, 100*time.Millisecond) // until the average has followed
			s.set(0, nil)
			writeFor(w, 16, time.Second)
			if s.most != 1 {
				t.Errorf("turn %d: %d batches in flight without a network, want 1", i, s.most)
			}
		}
	})
}

func TestDistantStoreThatFailsFromTheStartIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDistantStore(time.Millisecond, 0)
		s.set(time.Millisecond, errors.New("the server is not there yet"))
		w := New(s, Options{})
		for range 20 {
			begin(w, create(1)).want(t, plantstore.ErrUnavailable)
			beginAll(context.Background(), w, creates(1, 3)).want(t, plantstore.ErrUnavailable)
		}
		s.set(time.Millisecond, nil)
		begin(w, create(1)).want(t, nil)
	})
}

func TestShutdownWaitsForAllBatchesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDistantStore(time.Millisecond, 200*time.Microsecond)
		w, stop := run(t, s, Options{})
		writeFor(w, 16, time.Second)
		var all []*pending
		for i := range 16 {
			all = append(all, begin(w, create(plantstore.ID(i))))
		}
		importing := beginAll(context.Background(), w, creates(100, 200))
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if s.inFlight != 0 {
			t.Errorf("%d batches in flight after Run", s.inFlight)
		}
		for _, p := range all {
			p.want(t, nil)
		}
		if !importing.isDone() {
			t.Error("an import goes on after Run")
		}
		begin(w, create(1)).want(t, plantstore.ErrUnavailable)
	})
}
