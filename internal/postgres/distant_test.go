package postgres

import (
	"context"
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
	w := commit.New(s, commit.Options{})
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
		if n := len(s.write.inUse); n < 3 { // one may be that of a check
			return fmt.Errorf("%d connections are in use, want one for each batch in flight", n)
		}
		return nil
	})
}
