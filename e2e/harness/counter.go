package harness

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/testenv"
)

// Count has workers increment a counter, the name of a plant, on the condition of the version that
// they have read, while faults happen, each after so many increments. It must then be the number
// of increments that succeeded, and one more at most for each without a response. The clients make
// no retries.
func Count(t testing.TB, clients []*client.Client, workers, faults int, fault func()) {
	t.Helper()
	const id, between = 1, 40
	ctx := context.Background()
	if err := clients[0].Create(ctx, plantstore.Plant{ID: id, Name: "0"}); err != nil {
		t.Fatal(err)
	}
	var done, unknown, refused atomic.Int64
	stop := make(chan struct{})
	var running sync.WaitGroup
	for i := range workers {
		c := clients[i%len(clients)]
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				switch err := increment(ctx, c, id); {
				case err == nil:
					done.Add(1)
				case errors.Is(err, plantstore.ErrPrecondition):
					refused.Add(1)
				default:
					if _, ok := errors.AsType[*client.OutcomeError](err); ok {
						unknown.Add(1)
					}
					time.Sleep(10 * time.Millisecond) // until the server is back
				}
			}
		})
	}
	for n := range int64(faults) {
		testenv.WaitFor(t, "increments before a fault", func() bool { return done.Load() >= (n+1)*between })
		fault()
	}
	testenv.WaitFor(t, "increments after the last fault", func() bool { return done.Load() >= int64(faults+1)*between })
	close(stop)
	running.Wait()
	last, err := clients[0].Get(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	count, err := strconv.ParseInt(last.Name, 10, 64)
	if least, most := done.Load(), done.Load()+unknown.Load(); err != nil || count < least || count > most {
		t.Errorf("the counter is %q, want %d to %d", last.Name, least, most)
	}
	Report(t, "%d increments, %d that came too late, %d of unknown outcome, %d faults: the counter is %d", done.Load(), refused.Load(), unknown.Load(), faults, count)
}

func increment(ctx context.Context, c *client.Client, id plantstore.ID) error {
	read, err := c.Get(ctx, id)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(read.Name)
	if err != nil {
		return err
	}
	next := plantstore.Plant{ID: id, Name: strconv.Itoa(n + 1)}
	return c.Replace(ctx, next, &plantstore.Condition{Match: []plantstore.ETag{read.ETag()}})
}
