package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/commit"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
)

// counted counts the batches in flight to a store.
type counted struct {
	*Store
	inFlight atomic.Int64
	several  atomic.Bool // at some time
}

func (s *counted) Apply(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	if s.inFlight.Add(1) > 1 {
		s.several.Store(true)
	}
	defer s.inFlight.Add(-1)
	return s.Store.Apply(ctx, batch)
}

func TestDistantStoreHasSeveralBatchesInFlight(t *testing.T) {
	t.Parallel()
	const roundTrip = 20 * time.Millisecond
	s := mustOpen(t, pgtest.Distant(t, pgtest.Fresh(t), roundTrip))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	testenv.Eventually(t, func() error {
		if took := s.RoundTrip(); took < roundTrip {
			return fmt.Errorf("a round trip was measured as %s, want at least %s", took, roundTrip)
		}
		return nil
	})
	store := &counted{Store: s}
	w := commit.New(store, commit.Options{})
	var id atomic.Int64
	for range 16 {
		running.Go(func() {
			for ctx.Err() == nil {
				create := plantstore.Write{Op: plantstore.Create, Plant: plantstore.Plant{ID: plantstore.ID(id.Add(1)), Name: "fern"}}
				if _, err := w.Write(ctx, create); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	testenv.Eventually(t, func() error {
		if !store.several.Load() {
			return errors.New("there never were two batches in flight")
		}
		return nil
	})
}
