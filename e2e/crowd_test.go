package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
)

// crowd is a number of writers that work at once, each on plants of its own, and
// remember what they were told. So everybody knows what the store must hold.
type crowd struct {
	t            testing.TB
	seed         uint64
	writers      []*writer
	acknowledged atomic.Int64 // writes so far, for the test to wait for
	cancel       context.CancelFunc
	wg           sync.WaitGroup
}

// writer is one of a crowd. Its fields belong to its goroutine until the crowd has
// stopped.
type writer struct {
	crowd   *crowd
	client  *client.Client
	rand    *rand.Rand
	creates bool // and nothing else
	first   plantstore.ID
	fates   []fate // of the plants first, first+1, …
	longest time.Duration
	errs    []error
	// acknowledged counts its own. Everybody may read it at any time.
	acknowledged atomic.Int64
}

// fate is what a writer knows of a plant.
type fate struct {
	is *plantstore.Plant // as the last answered write left it, nil if there is none
	// unanswered, if set, was sent and not answered: nobody knows whether it
	// happened. The plant is left alone from then on.
	unanswered *plantstore.Write
}

// gather starts n writers, which go on until stop. Each uses one of the clients.
// Where creates is true, that is all they do; otherwise they replace and delete too.
func gather(t testing.TB, n int, creates bool, seed uint64, clients ...*client.Client) *crowd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{t: t, seed: seed, cancel: cancel}
	for i := range n {
		w := &writer{
			crowd:   c,
			client:  clients[i%len(clients)],
			rand:    rand.New(rand.NewPCG(seed, uint64(i))),
			creates: creates,
			first:   plantstore.ID(i) << 32,
		}
		c.writers = append(c.writers, w)
		c.wg.Go(func() { w.run(ctx) })
	}
	t.Cleanup(c.stop)
	return c
}

// stop ends the writers and waits for them. The calls that they are in come to
// their end. It may be called again.
func (c *crowd) stop() {
	c.cancel()
	c.wg.Wait()
}

// await waits until so many more writes have been acknowledged.
func (c *crowd) await(n int64) {
	c.t.Helper()
	until := c.acknowledged.Load() + n
	deadline := time.Now().Add(2 * time.Minute)
	for c.acknowledged.Load() < until {
		if time.Now().After(deadline) {
			c.t.Fatalf("of %d writes, %d are missing after two minutes", n, until-c.acknowledged.Load())
		}
		time.Sleep(time.Millisecond)
	}
}

func (w *writer) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		// Every write is different, so that an old one cannot pass for a new one.
		write := w.choose(fmt.Sprintf("%x written %d", w.crowd.seed, n))
		at := write.Plant.ID - w.first
		began := time.Now()
		err := w.do(write)
		w.longest = max(w.longest, time.Since(began))
		switch {
		case err != nil:
			w.errs = append(w.errs, fmt.Errorf("write %+v: %w", write, err))
			w.fates[at].unanswered = &write
			continue
		case write.Op == plantstore.Delete:
			w.fates[at].is = nil
		default:
			w.fates[at].is = &write.Plant
		}
		w.acknowledged.Add(1)
		w.crowd.acknowledged.Add(1)
	}
}

// choose returns the next write. Its plant has a fate.
func (w *writer) choose(name string) plantstore.Write {
	plant := plantstore.Plant{Name: name, Tag: plantstore.NewTag(fmt.Sprint("tag ", w.rand.IntN(20)))}
	if !w.creates && len(w.fates) > 0 && w.rand.IntN(2) == 0 {
		at := w.rand.IntN(len(w.fates))
		plant.ID = w.first + plantstore.ID(at)
		switch f := w.fates[at]; {
		case f.unanswered != nil:
		case f.is != nil && w.rand.IntN(2) == 0:
			return plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: plant.ID}}
		default:
			return plantstore.Write{Op: plantstore.Replace, Plant: plant}
		}
	}
	plant.ID = w.first + plantstore.ID(len(w.fates))
	w.fates = append(w.fates, fate{})
	return plantstore.Write{Op: plantstore.Create, Plant: plant}
}

// do performs the write. It does not end with the crowd: a call that is cut off
// would leave nobody the wiser.
func (w *writer) do(write plantstore.Write) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	switch write.Op {
	case plantstore.Create:
		return w.client.Create(ctx, write.Plant)
	case plantstore.Replace:
		return w.client.Replace(ctx, write.Plant, nil)
	}
	return w.client.Delete(ctx, write.Plant.ID, nil)
}

// errors returns what went wrong in calls of a crowd that has stopped.
func (c *crowd) errors() []error {
	var all []error
	for _, w := range c.writers {
		all = append(all, w.errs...)
	}
	return all
}

// longest returns how long the slowest call of a crowd took that has stopped.
func (c *crowd) longest() time.Duration {
	var most time.Duration
	for _, w := range c.writers {
		most = max(most, w.longest)
	}
	return most
}

// verify stops the crowd and compares all that the server has with what the
// writers were told. It returns the number of plants that they know of.
func (c *crowd) verify(from *client.Client) int {
	c.t.Helper()
	c.stop()
	held := make(map[plantstore.ID]plantstore.Plant)
	last := plantstore.ID(-1 << 63)
	for p, err := range from.Export(context.Background(), plantstore.Query{}) {
		if err != nil {
			c.t.Fatalf("export: %v", err)
		}
		if p.ID <= last {
			c.t.Errorf("plant %d comes after plant %d", p.ID, last)
		}
		held[p.ID], last = p, p.ID
	}
	known, wrong := 0, 0
	for _, w := range c.writers {
		for i, f := range w.fates {
			id := w.first + plantstore.ID(i)
			got, there := held[id]
			delete(held, id)
			known++
			if f.allows(got, there) {
				continue
			}
			if wrong++; wrong <= 10 {
				c.t.Errorf("plant %d: the store has %+v (%v), its writer was told %+v, unanswered %+v", id, got, there, f.is, f.unanswered)
			}
		}
	}
	for id := range held {
		if wrong++; wrong <= 10 {
			c.t.Errorf("plant %d was written by nobody", id)
		}
	}
	if wrong > 0 {
		c.t.Errorf("%d of %d plants are not as their writers were told", wrong, known)
	}
	return known
}

// allows reports whether the plant that the store has, if there is one, agrees
// with what the writer was told.
func (f *fate) allows(got plantstore.Plant, there bool) bool {
	if there == (f.is != nil) && (!there || got == *f.is) {
		return true
	}
	if f.unanswered == nil {
		return false
	}
	if f.unanswered.Op == plantstore.Delete {
		return !there
	}
	return there && got == f.unanswered.Plant
}
