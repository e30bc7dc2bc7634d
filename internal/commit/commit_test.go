package commit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"plantstore"
	"plantstore/internal/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// applier is a store made of one function.
type applier func(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error)

func (f applier) Apply(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	return f(ctx, batch)
}

// gate is a store that blocks every batch until the test replies to it.
type gate struct {
	calls chan *call
	over  chan struct{} // closed when the test ends
	open  func()        // closes over
}

// call is one batch at the gate.
type call struct {
	batch []plantstore.Write
	reply chan error
}

func newGate(t *testing.T) *gate {
	g := &gate{calls: make(chan *call), over: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.over) })
	t.Cleanup(g.open)
	return g
}

func (g *gate) Apply(_ context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	c := &call{batch: slices.Clone(batch), reply: make(chan error)}
	select {
	case g.calls <- c:
	case <-g.over:
		return nil, errors.New("the test is over")
	}
	select {
	case err := <-c.reply:
		return make([]plantstore.Result, len(batch)), err
	case <-g.over:
		return nil, errors.New("the test is over")
	}
}

// next waits for the next batch and fails unless it has these writes.
func (g *gate) next(t *testing.T, want ...plantstore.Write) *call {
	t.Helper()
	c := <-g.calls
	if !slices.Equal(c.batch, want) {
		t.Fatalf("a batch of %v, want %v", ids(c.batch), ids(want))
	}
	return c
}

// idle fails if a batch is at the gate.
func (g *gate) idle(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case c := <-g.calls:
		t.Fatalf("an unexpected batch of %v", ids(c.batch))
	default:
	}
}

func (c *call) succeed()       { c.reply <- nil }
func (c *call) fail(err error) { c.reply <- err }

// run runs a writer until the test ends or stop is called, which returns Run's
// error.
func run(t *testing.T, store Applier, opts Options) (w *Writer, stop func() error) {
	t.Helper()
	w = New(store, opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if g, ok := store.(*gate); ok {
			g.open() // or a batch without a reply would block Run
		}
		stop()
	})
	return w, stop
}

// pending is a call of the writer in a goroutine of its own.
type pending struct {
	done    chan struct{}
	result  plantstore.Result
	results []plantstore.Result
	err     error
}

// begin starts a write, and returns once it blocks or is done.
func begin(w *Writer, write plantstore.Write) *pending {
	p := &pending{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.result, p.err = w.Write(context.Background(), write)
	}()
	synctest.Wait()
	return p
}

// beginAll starts an import, and returns once it blocks or is done.
func beginAll(ctx context.Context, w *Writer, writes []plantstore.Write) *pending {
	p := &pending{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.results, p.err = w.Import(ctx, writes)
	}()
	synctest.Wait()
	return p
}

func (p *pending) isDone() bool {
	synctest.Wait()
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// want waits for the call to return, and fails unless it returns the error, or nil.
func (p *pending) want(t *testing.T, target error) {
	t.Helper()
	<-p.done
	if !errors.Is(p.err, target) {
		t.Fatalf("the write returned %v, want %v", p.err, target)
	}
}

func create(id plantstore.ID) plantstore.Write {
	return plantstore.Write{Op: plantstore.Create, Plant: plantstore.Plant{ID: id, Name: "fern"}}
}

func creates(from, to plantstore.ID) []plantstore.Write {
	var writes []plantstore.Write
	for id := from; id < to; id++ {
		writes = append(writes, create(id))
	}
	return writes
}

func ids(batch []plantstore.Write) string {
	var list []plantstore.ID
	for _, w := range batch {
		list = append(list, w.Plant.ID)
	}
	if len(list) > 6 {
		return fmt.Sprintf("%d writes %d…%d", len(list), list[:3], list[len(list)-3:])
	}
	return fmt.Sprint(list)
}

func TestLoneWriteTakesOneApplyAndNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		model := storetest.NewModel()
		w, stop := run(t, applier(func(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
			sizes = append(sizes, len(batch))
			return model.Apply(ctx, batch)
		}), Options{})
		start := time.Now()
		for id := range plantstore.ID(3) {
			if result, err := w.Write(context.Background(), create(id)); err != nil || result.Outcome != plantstore.Created {
				t.Fatalf("Write: %v, %v", result, err)
			}
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("the writes waited %s for a timer", waited)
		}
		if want := []int{1, 1, 1}; !slices.Equal(sizes, want) {
			t.Errorf("batches of %d, want %d", sizes, want)
		}
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestWritesThatArriveDuringAnApplyShareABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, _ := run(t, g, Options{})
		first := begin(w, create(1))
		inFlight := g.next(t, create(1))
		var waiting []*pending
		for id := plantstore.ID(2); id <= 6; id++ {
			waiting = append(waiting, begin(w, create(id)))
		}
		inFlight.succeed()
		first.want(t, nil)
		together := g.next(t, creates(2, 7)...)
		for i, p := range waiting {
			if p.isDone() {
				t.Errorf("write %d returned before its batch was applied", i+2)
			}
		}
		together.succeed()
		for _, p := range waiting {
			p.want(t, nil)
		}
		g.idle(t)
	})
}

func TestBatchEndsByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, _ := run(t, g, Options{QueueBytes: 32 << 20})
		first := begin(w, create(1))
		inFlight := g.next(t, create(1))
		var writes []plantstore.Write
		var waiting []*pending
		for id := range plantstore.ID(20) {
			large := create(10 + id)
			large.Plant.Name = strings.Repeat("x", 1<<20)
			writes = append(writes, large)
			waiting = append(waiting, begin(w, large))
		}
		inFlight.succeed()
		first.want(t, nil)
		for batch := range slices.Chunk(writes, maxBatchText>>20) {
			g.next(t, batch...).succeed()
		}
		for _, p := range waiting {
			p.want(t, nil)
		}

		imported := beginAll(t.Context(), w, writes)
		for batch := range slices.Chunk(writes, maxBatchText>>20) {
			g.next(t, batch...).succeed()
		}
		imported.want(t, nil)
		g.idle(t)
		if n := w.Depth(); n != 0 {
			t.Errorf("%d writes are left in the queue", n)
		}
	})
}

func TestFullQueueRefusesImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, _ := run(t, g, Options{Queue: 3})
		first := begin(w, create(1))
		inFlight := g.next(t, create(1))
		second, third := begin(w, create(2)), begin(w, create(3))

		refused := begin(w, create(4))
		if !refused.isDone() {
			t.Fatal("a write beyond the limit waits")
		}
		refused.want(t, plantstore.ErrUnavailable)

		inFlight.succeed()
		first.want(t, nil)
		together := g.next(t, create(2), create(3))
		fifth := begin(w, create(5))
		together.succeed()
		second.want(t, nil)
		third.want(t, nil)
		g.next(t, create(5)).succeed()
		fifth.want(t, nil)
	})
}

func TestQueueIsLimitedByBytesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, _ := run(t, g, Options{QueueBytes: 100})
		long := func(id plantstore.ID, name, tag int) plantstore.Write {
			p := plantstore.Plant{ID: id, Name: strings.Repeat("x", name), Tag: plantstore.NewTag(strings.Repeat("y", tag))}
			return plantstore.Write{Op: plantstore.Create, Plant: p}
		}
		// No write is too long for an empty queue.
		first := begin(w, long(1, 1000, 0))
		inFlight := g.next(t, long(1, 1000, 0))
		begin(w, create(2)).want(t, plantstore.ErrUnavailable)
		inFlight.succeed()
		first.want(t, nil)

		second := begin(w, long(2, 50, 49))
		inFlight = g.next(t, long(2, 50, 49))
		third := begin(w, create(3))
		begin(w, create(4)).want(t, plantstore.ErrUnavailable)
		inFlight.fail(errors.New("disk full"))
		second.want(t, plantstore.ErrUnavailable)
		g.next(t, create(3)).succeed()
		third.want(t, nil)
		fifth := begin(w, long(5, 0, 99))
		g.next(t, long(5, 0, 99)).succeed()
		fifth.want(t, nil)
	})
}

// A few clients with large plants must not keep all others out.
func TestLargeWritesLeaveRoomForSmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, _ := run(t, g, Options{QueueBytes: 4 << 20})
		large := func(id plantstore.ID) plantstore.Write {
			return plantstore.Write{Op: plantstore.Create, Plant: plantstore.Plant{ID: id, Name: strings.Repeat("x", 1<<20)}}
		}
		first := begin(w, large(1))
		inFlight := g.next(t, large(1))
		second, third := begin(w, large(2)), begin(w, large(3))
		begin(w, large(4)).want(t, plantstore.ErrUnavailable)
		small := begin(w, create(5))
		inFlight.succeed()
		first.want(t, nil)
		g.next(t, large(2), large(3), create(5)).succeed()
		second.want(t, nil)
		third.want(t, nil)
		small.want(t, nil)
	})
}

// No more writes than fit are in the queue at any time, so none is refused.
func TestWriteThatReturnsHasLeftTheQueue(t *testing.T) {
	const writers = 4
	w, stop := run(t, storetest.NewModel(), Options{Queue: writers})
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for id := range plantstore.ID(5000) {
				if _, err := w.Write(context.Background(), create(id)); err != nil {
					t.Errorf("write %d, after all before it returned: %v", id, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRefusedWriteIsRefusedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := storetest.NewModel()
		hold := make(chan struct{})
		var sizes []int
		w, _ := run(t, applier(func(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
			sizes = append(sizes, len(batch))
			<-hold
			return model.Apply(ctx, batch)
		}), Options{})
		other := plantstore.Plant{ID: 1, Name: "moss"}
		writes := []struct {
			write   plantstore.Write
			outcome plantstore.Outcome
			err     error
		}{
			{create(1), plantstore.Created, nil},
			{plantstore.Write{Op: plantstore.Create, Plant: other}, 0, plantstore.ErrIDTaken},
			{plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: 7}}, 0, plantstore.ErrNoPlant},
			{create(1), plantstore.Unchanged, nil},
			{plantstore.Write{Op: plantstore.Replace, Plant: other}, plantstore.Replaced, nil},
			{create(2), plantstore.Created, nil},
		}
		var calls []*pending
		for _, tt := range writes {
			calls = append(calls, begin(w, tt.write))
		}
		close(hold)
		for i, tt := range writes {
			<-calls[i].done
			if calls[i].result.Outcome != tt.outcome || calls[i].err != tt.err {
				t.Errorf("write %d: got %v, %v, want %v, %v", i, calls[i].result.Outcome, calls[i].err, tt.outcome, tt.err)
			}
		}
		if want := []int{1, 5}; !slices.Equal(sizes, want) {
			t.Errorf("batches of %d, want %d", sizes, want)
		}
	})
}

func TestRetryAppliesTheSameBatchUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, _ := run(t, g, Options{})
		first := begin(w, create(1))
		g.next(t, create(1)).fail(fmt.Errorf("connection lost: %w", plantstore.ErrRetry))
		late := begin(w, create(2)) // must not join a batch whose outcome is unknown
		for range 20 {
			before := time.Now()
			again := g.next(t, create(1))
			if pause := time.Since(before); pause <= 0 || pause > time.Second {
				t.Fatalf("the batch was retried after %s", pause)
			}
			if first.isDone() {
				t.Fatal("the write returned while its outcome was unknown")
			}
			again.fail(plantstore.ErrRetry)
		}
		g.next(t, create(1)).succeed()
		first.want(t, nil)
		g.next(t, create(2)).succeed()
		late.want(t, nil)
	})
}

func TestRetryGivesUpAfterTheStoreTimeout(t *testing.T) {
	retry := func(context.Context, []plantstore.Write) ([]plantstore.Result, error) {
		return nil, plantstore.ErrRetry
	}
	hang := func(ctx context.Context, _ []plantstore.Write) ([]plantstore.Result, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, tt := range []struct {
		name  string
		apply applier
		opts  Options
		want  time.Duration
	}{
		{"retry", retry, Options{}, 30 * time.Second},
		{"retry with a short timeout", retry, Options{StoreTimeout: 100 * time.Millisecond}, 100 * time.Millisecond},
		{"hang", hang, Options{StoreTimeout: 5 * time.Second}, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				model := storetest.NewModel()
				reachable := false
				w, stop := run(t, applier(func(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
					if reachable {
						return model.Apply(ctx, batch)
					}
					return tt.apply(ctx, batch)
				}), tt.opts)
				start := time.Now()
				if _, err := w.Write(context.Background(), create(1)); !errors.Is(err, plantstore.ErrUnavailable) {
					t.Errorf("Write: %v, want ErrUnavailable", err)
				}
				if waited := time.Since(start); waited != tt.want {
					t.Errorf("the write failed after %s, want %s", waited, tt.want)
				}
				reachable = true
				if _, err := w.Write(context.Background(), create(1)); err != nil {
					t.Errorf("Write when the store is back: %v", err)
				}
				if err := stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

// The plants that patches leave may be large, however small the patches are.
func TestBatchIsBoundedByWhatItsPatchesMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model, hold := storetest.NewModel(), make(chan struct{})
		var sizes []int
		w, _ := run(t, applier(func(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
			sizes = append(sizes, len(batch))
			<-hold
			return model.Apply(ctx, batch)
		}), Options{})
		calls := []*pending{begin(w, create(1))}
		tag := plantstore.NewTag("wild")
		for i := range 19 {
			patch := plantstore.PlantPatch{Tag: &tag}.Write(1)
			patch.MaxText = maxBatchText / 8
			if i >= 16 {
				patch.MaxText = 2 * maxBatchText
			}
			calls = append(calls, begin(w, patch))
		}
		close(hold)
		for i, c := range calls {
			<-c.done
			if c.err != nil || i > 0 && *c.result.Patched != (plantstore.Plant{ID: 1, Name: create(1).Plant.Name, Tag: tag}) {
				t.Errorf("write %d: got %v, %v", i, c.result, c.err)
			}
		}
		if want := []int{1, 8, 8, 1, 1, 1}; !slices.Equal(sizes, want) {
			t.Errorf("the batches have %v writes, want %v", sizes, want)
		}
	})
}

func TestStoreTimeoutIncludesTimeInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := run(t, applier(func(context.Context, []plantstore.Write) ([]plantstore.Result, error) {
			return nil, plantstore.ErrRetry
		}), Options{StoreTimeout: 30 * time.Second})
		var writers sync.WaitGroup
		// When the first fails, the second has waited for 29 s, and the third shares
		// its batch: both have 5 s more. The fourth arrives during those, and has 30 s
		// in all.
		for id, call := range []struct{ at, want time.Duration }{{0, 30}, {1, 34}, {28, 7}, {33, 30}} {
			writers.Go(func() {
				time.Sleep(call.at * time.Second)
				start := time.Now()
				if _, err := w.Write(context.Background(), create(plantstore.ID(id))); !errors.Is(err, plantstore.ErrUnavailable) {
					t.Errorf("Write: %v, want ErrUnavailable", err)
				}
				if waited := time.Since(start); waited != call.want*time.Second {
					t.Errorf("the write that arrived after %d s failed after %s, want %d s", call.at, waited, call.want)
				}
			})
		}
		writers.Wait()
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestWritesNeedNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w := New(g, Options{})
		first := begin(w, create(1))
		inFlight := g.next(t, create(1))
		second, third := begin(w, create(2)), begin(w, create(3))
		inFlight.succeed()
		first.want(t, nil)
		inFlight = g.next(t, create(2), create(3))
		all := beginAll(t.Context(), w, creates(10, 20))
		inFlight.succeed()
		second.want(t, nil)
		third.want(t, nil)
		g.next(t, creates(10, 20)...).fail(errFsync)
		all.want(t, plantstore.ErrUnavailable)
		begin(w, create(4)).want(t, plantstore.ErrUnavailable)
		if err := w.Run(t.Context()); !errors.Is(err, plantstore.ErrUntrusted) {
			t.Errorf("Run: %v, want ErrUntrusted", err)
		}
	})
}

func TestOtherErrorFailsItsBatchOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, stop := run(t, g, Options{})
		first := begin(w, create(1))
		inFlight := g.next(t, create(1))
		second, third := begin(w, create(2)), begin(w, create(3))
		inFlight.succeed()
		first.want(t, nil)

		full := errors.New("disk full")
		failing := g.next(t, create(2), create(3))
		fourth := begin(w, create(4))
		failing.fail(full)
		for _, p := range []*pending{second, third} {
			p.want(t, plantstore.ErrUnavailable)
			p.want(t, full)
		}
		g.next(t, create(4)).succeed()
		fourth.want(t, nil)
		g.idle(t)
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

var errFsync = fmt.Errorf("fsync: input/output error: %w", plantstore.ErrUntrusted)

// A store may apply the first writes of a batch only. Each caller gets its own result, and an
// error is that of the writes that were not applied.
func TestStoreMayApplyABatchInParts(t *testing.T) {
	full := errors.New("disk full")
	for _, failure := range []error{nil, full} {
		synctest.Test(t, func(t *testing.T) {
			var parts []string
			w, stop := run(t, applier(func(_ context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
				parts = append(parts, ids(batch))
				if len(parts) == 3 && failure != nil {
					return nil, failure
				}
				if len(parts) == 1 { // what follows waits and is the next batch
					time.Sleep(time.Second)
				}
				return slices.Repeat([]plantstore.Result{{Outcome: plantstore.Created}}, min(2, len(batch))), nil
			}), Options{})
			all := []*pending{begin(w, create(0))}
			synctest.Wait()
			for id := range plantstore.ID(5) {
				all = append(all, begin(w, create(id+1)))
				synctest.Wait()
			}
			time.Sleep(2 * time.Second)
			for i, p := range all {
				if i > 2 {
					p.want(t, failure)
				} else {
					p.want(t, nil)
				}
			}
			if want := []string{ids(creates(0, 1)), ids(creates(1, 6)), ids(creates(3, 6)), ids(creates(5, 6))}; failure == nil && !slices.Equal(parts, want) {
				t.Errorf("the store got %q, want %q", parts, want)
			}
			if err := stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

func TestUntrustedStoreStopsTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w := New(g, Options{})
		ended := make(chan error, 1)
		go func() { ended <- w.Run(context.Background()) }()
		inFlight := []*pending{begin(w, create(1))}
		failing := g.next(t, create(1))
		waiting := append(inFlight, begin(w, create(2)), begin(w, create(3)))
		all := beginAll(t.Context(), w, creates(10, 20))

		failing.fail(errFsync)
		if err := <-ended; !errors.Is(err, plantstore.ErrUntrusted) {
			t.Errorf("Run: %v, want ErrUntrusted", err)
		}
		for _, p := range append(waiting, all) {
			p.want(t, plantstore.ErrUnavailable)
		}
		begin(w, create(4)).want(t, plantstore.ErrUnavailable)
		beginAll(t.Context(), w, creates(20, 30)).want(t, plantstore.ErrUnavailable)
		g.idle(t)
		if depth := w.Depth(); depth != 0 {
			t.Errorf("Depth is %d after all writes have returned", depth)
		}
	})
}

func TestUntrustedStoreStopsAnImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w := New(g, Options{})
		ended := make(chan error, 1)
		go func() { ended <- w.Run(context.Background()) }()
		writes := creates(0, 4*minImport)
		all := beginAll(t.Context(), w, writes)
		g.next(t, writes[:minImport]...).succeed()
		(<-g.calls).fail(errFsync)
		if err := <-ended; !errors.Is(err, plantstore.ErrUntrusted) {
			t.Errorf("Run: %v, want ErrUntrusted", err)
		}
		all.want(t, plantstore.ErrUnavailable)
		if len(all.results) != minImport {
			t.Errorf("%d results, want those of the first batch", len(all.results))
		}
	})
}

// A store that breaks its promises stops the writer: whatever holds the token or
// waits for it fails, and nothing hangs.
func TestBrokenStoreStopsTheWriter(t *testing.T) {
	for _, tt := range []struct {
		name    string
		apply   applier
		observe func(int, time.Duration)
		want    []string // parts of Run's error
	}{
		{
			name:  "panic",
			apply: func(context.Context, []plantstore.Write) ([]plantstore.Result, error) { panic("index out of range") },
			want:  []string{"index out of range", "commit_test.go"},
		},
		{
			name:    "panic in Observe",
			apply:   storetest.NewModel().Apply,
			observe: func(int, time.Duration) { panic("no such metric") },
			want:    []string{"no such metric", "commit_test.go"},
		},
		{
			name: "goexit",
			apply: func(context.Context, []plantstore.Write) ([]plantstore.Result, error) {
				runtime.Goexit()
				return nil, nil
			},
			want: []string{"commit_test.go"},
		},
		{
			name:  "too few results",
			apply: func(context.Context, []plantstore.Write) ([]plantstore.Result, error) { return nil, nil },
			want:  []string{"0 results for"},
		},
	} {
		for _, first := range []string{"write", "import"} {
			t.Run(tt.name+" during "+first, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					applies := 0
					hold := make(chan struct{})
					w := New(applier(func(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
						applies++
						<-hold
						return tt.apply(ctx, batch)
					}), Options{Observe: tt.observe})
					ended := make(chan error, 1)
					go func() { ended <- w.Run(context.Background()) }()
					var inFlight *pending
					if first == "write" {
						inFlight = begin(w, create(1))
					} else {
						inFlight = beginAll(t.Context(), w, creates(100, 110))
					}
					waiting := []*pending{
						begin(w, create(2)), begin(w, create(3)), begin(w, create(4)),
						beginAll(t.Context(), w, creates(10, 20)), beginAll(t.Context(), w, creates(20, 30)),
					}
					close(hold)
					synctest.Wait()
					select {
					case err := <-ended:
						if !errors.Is(err, plantstore.ErrUntrusted) {
							t.Errorf("Run: %v, want ErrUntrusted", err)
						}
						for _, want := range tt.want {
							if !strings.Contains(err.Error(), want) {
								t.Errorf("Run: %v, want %q in it", err, want)
							}
						}
					default:
						t.Fatal("Run does not return")
					}
					if tt.name != "goexit" { // which ends the caller too
						inFlight.want(t, plantstore.ErrUnavailable)
					}
					for _, p := range waiting {
						p.want(t, plantstore.ErrUnavailable)
					}
					begin(w, create(5)).want(t, plantstore.ErrUnavailable)
					beginAll(t.Context(), w, creates(30, 40)).want(t, plantstore.ErrUnavailable)
					if applies != 1 {
						t.Errorf("Apply was called %d times, want once", applies)
					}
					if depth := w.Depth(); depth != 0 {
						t.Errorf("Depth is %d after all writes have returned", depth)
					}
				})
			})
		}
	}
}

// The batch that waits fails too. The test runs often, because a wrong order may turn
// out right by chance.
func TestUntrustedStoreStartsNoOtherBatch(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t)
			w := New(g, Options{})
			ended := make(chan error, 1)
			go func() { ended <- w.Run(context.Background()) }()
			first := begin(w, create(1))
			failing := g.next(t, create(1))
			second := begin(w, create(2))

			failing.fail(errFsync)
			first.want(t, plantstore.ErrUnavailable)
			g.idle(t)
			second.want(t, plantstore.ErrUnavailable)
			if err := <-ended; !errors.Is(err, plantstore.ErrUntrusted) {
				t.Errorf("Run: %v, want ErrUntrusted", err)
			}
		})
	}
}

func TestUntrustedStoreIsReportedDuringShutdown(t *testing.T) {
	for _, waiting := range []int{0, 1} {
		t.Run(fmt.Sprintf("%d waiting", waiting), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t)
				w := New(g, Options{})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- w.Run(ctx) }()
				writes := []*pending{begin(w, create(1))}
				failing := g.next(t, create(1))
				for range waiting {
					writes = append(writes, begin(w, create(2)))
				}
				cancel()
				failing.fail(errFsync)
				g.idle(t)
				for _, p := range writes {
					p.want(t, plantstore.ErrUnavailable)
				}
				if err := <-ended; !errors.Is(err, plantstore.ErrUntrusted) {
					t.Errorf("Run: %v, want ErrUntrusted", err)
				}
			})
		})
	}
}

func TestShutdownDrainsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, stop := run(t, g, Options{})
		writes := []*pending{begin(w, create(1))}
		inFlight := g.next(t, create(1))
		for id := plantstore.ID(10); id < 14; id++ {
			writes = append(writes, begin(w, create(id)))
		}
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		g.idle(t)
		inFlight.succeed()
		g.next(t, creates(10, 14)...).succeed()
		for _, p := range writes {
			p.want(t, nil)
		}
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		begin(w, create(20)).want(t, plantstore.ErrUnavailable)
	})
}

// A write that arrives while the last ones are applied is refused or applied, and
// never lost.
func TestShutdownRespondsToLateWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, stop := run(t, g, Options{})
		begin(w, create(1))
		inFlight := g.next(t, create(1))
		begin(w, create(2))
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		synctest.Wait()
		applied := map[plantstore.ID]bool{}
		late := map[plantstore.ID]*pending{3: begin(w, create(3))}
		inFlight.succeed()
		for id := plantstore.ID(4); ; id++ {
			select {
			case c := <-g.calls:
				late[id] = begin(w, create(id))
				for _, write := range c.batch {
					applied[write.Plant.ID] = true
				}
				c.succeed()
				continue
			case err := <-ended:
				if err != nil {
					t.Errorf("Run: %v", err)
				}
			}
			break
		}
		for id, p := range late {
			if applied[id] {
				p.want(t, nil)
			} else {
				p.want(t, plantstore.ErrUnavailable)
			}
		}
	})
}

func TestShutdownOfAnIdleWriterAppliesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := run(t, applier(func(context.Context, []plantstore.Write) ([]plantstore.Result, error) {
			t.Error("Apply was called")
			return nil, nil
		}), Options{})
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if _, err := w.Write(context.Background(), create(1)); !errors.Is(err, plantstore.ErrUnavailable) {
			t.Errorf("Write after Run: %v, want ErrUnavailable", err)
		}
		results, err := w.Import(t.Context(), creates(1, 3))
		if !errors.Is(err, plantstore.ErrUnavailable) || len(results) != 0 {
			t.Errorf("Import after Run: %d results, %v, want ErrUnavailable", len(results), err)
		}
	})
}

// A batch has a leader before it waits for the token, and Run must not take that
// away.
func TestShutdownWaitsForALeaderWithoutTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := run(t, storetest.NewModel(), Options{})
		b, _, err := w.join(context.Background(), false, create(1))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		synctest.Wait()
		w.lead(b)
		if b.err != nil {
			t.Errorf("the write returned %v", b.err)
		}
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestShutdownStartsNoImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, stop := run(t, g, Options{})
		single := begin(w, create(1))
		inFlight := g.next(t, create(1))
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		synctest.Wait()
		for range 20 { // the token must not be granted by chance
			all := beginAll(t.Context(), w, creates(10, 20))
			g.idle(t)
			all.want(t, plantstore.ErrUnavailable)
		}
		inFlight.succeed()
		single.want(t, nil)
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// The store is closed after Run, and nothing may be called then.
func TestNothingIsAppliedAfterRun(t *testing.T) {
	for range 200 {
		var closed atomic.Bool
		w, stop := run(t, applier(func(_ context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
			runtime.Gosched()
			if closed.Load() {
				t.Error("Apply was called after Run returned")
			}
			return make([]plantstore.Result, len(batch)), nil
		}), Options{})
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for err := error(nil); err == nil; {
					_, err = w.Write(context.Background(), create(1))
				}
			})
			callers.Go(func() {
				for err := error(nil); err == nil; {
					_, err = w.Import(t.Context(), creates(1, 3))
				}
			})
		}
		runtime.Gosched()
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		closed.Store(true)
		callers.Wait()
	}
}

// A single write that arrives during a batch of an import is in the next batch: it
// waits neither for the rest of the import nor for another one.
func TestImportLetsSingleWritesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, _ := run(t, g, Options{})
		for range 2 {
			beginAll(t.Context(), w, creates(0, 20*minImport))
		}
		inFlight := <-g.calls
		for id := plantstore.ID(-1); id > -15; id-- {
			single := begin(w, create(id))
			time.Sleep(2 * importTarget) // a slow store keeps the batches of imports small
			inFlight.succeed()
			next := <-g.calls
			if !slices.Contains(next.batch, create(id)) {
				t.Fatalf("single write %d waits for %s", -id, ids(next.batch))
			}
			next.succeed()
			single.want(t, nil)
			inFlight = <-g.calls
		}
	})
}

// However many single writes arrive, an import waits for one batch of them only.
func TestSingleWritesLetAnImportThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, _ := run(t, g, Options{})
		singles := plantstore.ID(0)
		beginSingle := func() {
			singles--
			begin(w, create(singles))
		}
		beginSingle()
		inFlight := <-g.calls
		for round := range plantstore.ID(15) {
			all := beginAll(t.Context(), w, []plantstore.Write{create(round)})
			for waited := 0; !slices.Contains(inFlight.batch, create(round)); waited++ {
				if waited > 1 {
					t.Fatalf("import %d waits for a second batch, %s", round, ids(inFlight.batch))
				}
				beginSingle()
				inFlight.succeed()
				inFlight = <-g.calls
			}
			beginSingle()
			inFlight.succeed()
			all.want(t, nil)
			inFlight = <-g.calls
		}
		inFlight.succeed()
	})
}

// The parts into which a store splits a batch of an import are batches of their own: single writes
// come between them, and each has the whole store timeout.
func TestImportsWaitBetweenParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *Writer
		var single *pending
		var order []string
		parts := 0
		w, stop := run(t, applier(func(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
			order = append(order, ids(batch))
			if len(batch) == 1 && batch[0].Plant.ID == 9 {
				return make([]plantstore.Result, 1), nil
			}
			if parts++; parts == 1 {
				single = begin(w, create(9))
			}
			time.Sleep(20 * time.Second) // on the bubble's clock
			return make([]plantstore.Result, min(2, len(batch))), ctx.Err()
		}), Options{StoreTimeout: 30 * time.Second})
		results, err := w.Import(t.Context(), []plantstore.Write{create(1), create(2), create(3), create(4), create(5)})
		if err != nil || len(results) != 5 {
			t.Errorf("%d results, %v", len(results), err)
		}
		single.want(t, nil)
		if len(order) != 4 || order[1] != ids([]plantstore.Write{create(9)}) {
			t.Errorf("the batches were %v", order)
		}
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// sized is a store that takes a given time for every batch, and records its size.
type sized struct {
	takes time.Duration
	sizes []int
}

func (s *sized) Apply(_ context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	s.sizes = append(s.sizes, len(batch))
	time.Sleep(s.takes) // on the bubble's clock
	return make([]plantstore.Result, len(batch)), nil
}

func TestImportAdaptsToTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &sized{}
		w, _ := run(t, store, Options{})
		var growing, shrinking []int
		for size := minImport; size < maxImport; size *= 2 {
			growing = append(growing, size)
			shrinking = append([]int{2 * size}, shrinking...)
		}
		for _, step := range []struct {
			name  string
			takes time.Duration
			want  []int
		}{
			{"fast", time.Millisecond, append(growing, maxImport, maxImport, maxImport)},
			{"on target", importTarget * 3 / 4, []int{maxImport, maxImport, maxImport, 7}},
			{"slow", 10 * importTarget, append(shrinking, minImport, minImport, 7)},
			{"slow still", importTarget + 1, []int{minImport, minImport, 7}},
			{"fast again", 0, []int{minImport, 2 * minImport, 4 * minImport, 7}},
		} {
			store.takes, store.sizes = step.takes, nil
			writes := 0
			for _, size := range step.want {
				writes += size
			}
			results, err := w.Import(t.Context(), make([]plantstore.Write, writes))
			if err != nil || len(results) != writes {
				t.Fatalf("%s: %d results, %v", step.name, len(results), err)
			}
			if !slices.Equal(store.sizes, step.want) {
				t.Errorf("%s: batches of %d, want %d", step.name, store.sizes, step.want)
			}
		}
	})
}

func TestImportReturnsResultsInOrder(t *testing.T) {
	var writes []plantstore.Write
	for i := range plantstore.ID(5 * minImport) {
		p := plantstore.Plant{ID: i % 700, Name: fmt.Sprint(i % 3)}
		writes = append(writes, plantstore.Write{Op: plantstore.Op(i % 7 % 3), Plant: p})
	}
	want, err := storetest.NewModel().Apply(t.Context(), writes)
	if err != nil {
		t.Fatal(err)
	}
	w, stop := run(t, storetest.NewModel(), Options{})
	got, err := w.Import(t.Context(), writes)
	if err != nil {
		t.Fatal(err)
	}
	same := func(a, b plantstore.Result) bool { return a.Outcome == b.Outcome && a.Err == b.Err }
	if !slices.EqualFunc(got, want, same) {
		t.Error("the results differ from those of one batch")
	}
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestImportOfNothing(t *testing.T) {
	w := New(storetest.NewModel(), Options{})
	if results, err := w.Import(t.Context(), nil); err != nil || len(results) != 0 {
		t.Errorf("Import of nothing: %v, %v", results, err)
	}
}

func TestImportReturnsWhatWasAppliedBeforeAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, _ := run(t, g, Options{})
		writes := creates(0, 4*minImport)
		all := beginAll(t.Context(), w, writes)
		g.next(t, writes[:minImport]...).succeed()
		full := errors.New("disk full")
		(<-g.calls).fail(full)
		all.want(t, full)
		all.want(t, plantstore.ErrUnavailable)
		if len(all.results) != minImport {
			t.Errorf("%d results, want those of the first batch", len(all.results))
		}
		g.idle(t)
	})
}

func TestImportEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, _ := run(t, g, Options{})
		single := begin(w, create(-1))
		inFlight := g.next(t, create(-1))
		ctx, cancel := context.WithCancel(t.Context())
		all := beginAll(ctx, w, creates(0, 4*minImport))
		if all.isDone() {
			t.Fatal("the import does not wait for the token")
		}
		cancel()
		if !all.isDone() {
			t.Fatal("the import still waits after its context ended")
		}
		all.want(t, context.Canceled)
		inFlight.succeed()
		single.want(t, nil)
		g.idle(t)
	})
}

// A batch in flight cannot be cancelled: its results are returned with the error.
func TestImportCancelledDuringABatchWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, stop := run(t, g, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		writes := creates(0, 4*minImport)
		all := beginAll(ctx, w, writes)
		inFlight := g.next(t, writes[:minImport]...)
		cancel()
		if all.isDone() {
			t.Fatal("the import returned while its batch was in flight")
		}
		applied := minImport
		inFlight.succeed()
		for !all.isDone() {
			c := <-g.calls
			applied += len(c.batch)
			c.succeed()
		}
		if applied < len(writes) {
			all.want(t, context.Canceled)
		}
		if len(all.results) != applied {
			t.Errorf("%d results, and %d writes were applied", len(all.results), applied)
		}
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestImportEndsWhenTheWriterStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &sized{takes: 50 * time.Millisecond}
		w, stop := run(t, store, Options{})
		all := beginAll(t.Context(), w, creates(0, 100_000))
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if !all.isDone() {
			t.Fatal("the import waits for a stopped writer")
		}
		all.want(t, plantstore.ErrUnavailable)
		applied := 0
		for _, size := range store.sizes {
			applied += size
		}
		if len(all.results) != applied {
			t.Errorf("%d results, and %d writes were applied", len(all.results), applied)
		}
	})
}

func TestObserveIsCalledForEveryAppliedBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type batch struct {
			size int
			took time.Duration
		}
		var observed []batch
		var fail error
		model := storetest.NewModel()
		w, _ := run(t, applier(func(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
			time.Sleep(7 * time.Millisecond) // on the bubble's clock
			if fail != nil {
				return nil, fail
			}
			return model.Apply(ctx, batch)
		}), Options{Observe: func(size int, took time.Duration) { observed = append(observed, batch{size, took}) }})

		if _, err := w.Write(context.Background(), create(1)); err != nil {
			t.Fatal(err)
		}
		fail = errors.New("disk full")
		if _, err := w.Write(context.Background(), create(2)); err == nil {
			t.Fatal("a write succeeded that the store failed")
		}
		fail = nil
		if _, err := w.Import(t.Context(), creates(3, 13)); err != nil {
			t.Fatal(err)
		}
		want := []batch{{1, 7 * time.Millisecond}, {10, 7 * time.Millisecond}}
		if !slices.Equal(observed, want) {
			t.Errorf("observed %v, want %v", observed, want)
		}
	})
}

func TestDepthCountsSingleWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		w, _ := run(t, g, Options{})
		wantDepth := func(want int) {
			t.Helper()
			synctest.Wait()
			if got := w.Depth(); got != want {
				t.Errorf("Depth: got %d, want %d", got, want)
			}
		}
		wantDepth(0)
		begin(w, create(1))
		inFlight := g.next(t, create(1))
		wantDepth(1)
		begin(w, create(2))
		begin(w, create(3))
		wantDepth(3)
		inFlight.succeed()
		last := g.next(t, create(2), create(3))
		wantDepth(2)
		last.fail(errors.New("disk full"))
		wantDepth(0)

		all := beginAll(t.Context(), w, creates(10, 20))
		inFlight = g.next(t, creates(10, 20)...)
		wantDepth(0)
		inFlight.succeed()
		all.want(t, nil)
	})
}

// Every id is created by several callers at once, each with a plant of its own,
// while an import creates them too: one wins, and each gets its own result.
func TestEveryCallerGetsItsOwnResult(t *testing.T) {
	const callers, plants = 16, 400
	model := storetest.NewModel()
	w, stop := run(t, model, Options{})
	own := func(caller int, id plantstore.ID) plantstore.Write {
		return plantstore.Write{Op: plantstore.Create, Plant: plantstore.Plant{ID: id, Name: fmt.Sprint(caller)}}
	}
	var won [callers + 1][plants]bool
	var wg sync.WaitGroup
	record := func(caller int, id plantstore.ID, err error) {
		if err != nil && !errors.Is(err, plantstore.ErrIDTaken) {
			t.Errorf("caller %d, id %d: %v", caller, id, err)
		}
		won[caller][id] = err == nil
	}
	for caller := range callers {
		wg.Go(func() {
			for i := range plantstore.ID(plants) {
				id := (i*7 + plantstore.ID(caller)*13) % plants
				_, err := w.Write(context.Background(), own(caller, id))
				record(caller, id, err)
			}
		})
	}
	wg.Go(func() {
		var writes []plantstore.Write
		for id := range plantstore.ID(plants) {
			writes = append(writes, own(callers, plants-1-id))
		}
		results, err := w.Import(t.Context(), writes)
		if err != nil {
			t.Errorf("Import: %v", err)
		}
		for i, r := range results {
			record(callers, writes[i].Plant.ID, r.Err)
		}
	})
	wg.Wait()
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	for id := range plantstore.ID(plants) {
		p, err := model.Plant(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for caller := range won {
			if won[caller][id] != (p.Name == fmt.Sprint(caller)) {
				t.Errorf("id %d belongs to %s, and caller %d got %t", id, p.Name, caller, won[caller][id])
			}
		}
	}
}

// traceKey is the key of a request's number in its context.
type traceKey struct{}

// traces is a tracer of requests whose context has a number.
type traces struct {
	mu      sync.Mutex // guards what follows
	commits [][]any    // the numbers of the requests in each commit
	ended   []error
	queued  []any
}

func (*traces) Traced(ctx context.Context) bool { return ctx.Value(traceKey{}) != nil }

func (tr *traces) Commit(requests []context.Context, size int) (context.Context, func(error)) {
	var numbers []any
	for _, r := range requests {
		numbers = append(numbers, r.Value(traceKey{}))
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.commits = append(tr.commits, numbers)
	ctx := context.WithValue(context.Background(), traceKey{}, size)
	return ctx, func(err error) {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.ended = append(tr.ended, err)
	}
}

func (tr *traces) Queued(request, commit context.Context, from, to time.Time) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.queued = append(tr.queued, [3]any{request.Value(traceKey{}), commit.Value(traceKey{}), to.Sub(from)})
}

// tracedStore checks that a commit has the context of its trace.
type tracedStore struct {
	Applier
	got []any
	err error
}

func (s *tracedStore) Apply(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	s.got = append(s.got, ctx.Value(traceKey{}))
	time.Sleep(time.Second)
	if s.err != nil {
		return nil, s.err
	}
	return s.Applier.Apply(ctx, batch)
}

func numbered(n int) context.Context {
	return context.WithValue(context.Background(), traceKey{}, n)
}

func TestTracedWritesAreTracedThroughTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := new(traces)
		store := &tracedStore{Applier: storetest.NewModel()}
		w, _ := run(t, store, Options{Tracer: tr})
		var writes sync.WaitGroup
		write := func(ctx context.Context, id plantstore.ID) {
			writes.Go(func() { _, _ = w.Write(ctx, create(id)) })
			synctest.Wait()
		}
		write(context.Background(), 1) // in a batch of its own
		write(context.Background(), 2) // leads the next
		write(numbered(3), 3)
		write(numbered(4), 4)
		writes.Wait()
		if !slices.EqualFunc(tr.commits, [][]any{{3, 4}}, slices.Equal) {
			t.Errorf("got the commits %v, want one that serves 3 and 4", tr.commits)
		}
		if !slices.Equal(store.got, []any{nil, 3}) {
			t.Errorf("the store got the commits of %v requests, want none and 3", store.got)
		}
		want := map[any]bool{[3]any{3, 3, time.Second}: true, [3]any{4, 3, time.Second}: true}
		if len(tr.queued) != 2 || !want[tr.queued[0]] || !want[tr.queued[1]] || tr.queued[0] == tr.queued[1] {
			t.Errorf("got %v, want that 3 and 4 waited for a second for a commit of 3 writes", tr.queued)
		}

		if _, err := w.Import(numbered(5), []plantstore.Write{create(5), create(6)}); err != nil {
			t.Fatal(err)
		}
		if last := tr.commits[len(tr.commits)-1]; !slices.Equal(last, []any{5}) || tr.queued[2] != [3]any{5, 2, time.Duration(0)} {
			t.Errorf("an import: got %v and %v", last, tr.queued[2])
		}
		store.err = errors.New("broken")
		if _, err := w.Write(numbered(7), create(7)); err == nil {
			t.Fatal("the write succeeded")
		}
		if len(tr.ended) != 3 || tr.ended[0] != nil || tr.ended[1] != nil || !errors.Is(tr.ended[2], store.err) {
			t.Errorf("the commits ended with %v, want only the last to fail", tr.ended)
		}
	})
}

func TestTracedRequestsOfABatchAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := new(traces)
		w, _ := run(t, &tracedStore{Applier: storetest.NewModel()}, Options{Tracer: tr})
		var writes sync.WaitGroup
		for id := range maxTraced + 10 {
			writes.Go(func() { _, _ = w.Write(numbered(id), create(plantstore.ID(id))) })
			synctest.Wait()
		}
		writes.Wait()
		if len(tr.commits) != 2 || len(tr.commits[1]) != maxTraced || len(tr.queued) != maxTraced+10 {
			t.Errorf("got %d commits, %d waits, and %d requests in the second commit", len(tr.commits), len(tr.queued), len(tr.commits[1]))
		}
	})
}
