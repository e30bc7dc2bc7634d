// Package commit gathers the writes that wait into one transaction: group commit.
//
// There is no timer. A batch is whatever arrived while the previous one was
// committed, so an idle server adds no delay, and a loaded one commits more at
// once instead of later. A write that finds nothing under way is committed by its
// own caller, which spares it the way to another goroutine and back.
package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"plantstore"
)

// Applier is the part of a store that a [Writer] needs. [plantstore.Store] says
// what Apply promises.
type Applier interface {
	Apply(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error)
}

// Options adjust a [Writer]. The zero value of a field stands for its default.
type Options struct {
	// Queue is how many single writes may wait or be under way, 8192, and
	// QueueBytes how much text they may hold: 64 MiB.
	Queue, QueueBytes int
	// Flushers is how many batches may be under way at once: 1.
	Flushers int
	// Patience is how long a write waits while the store asks for its batch to be
	// applied again, before it fails: 30 s. A write that had to wait behind others
	// has what is left of it, and a sixth at least.
	Patience time.Duration
	// Observe, if set, is told of every batch that was applied.
	Observe func(size int, took time.Duration)
}

// The bounds between which the size of an import's batches moves, and how long one
// should take: a single write waits no longer than that for it.
const (
	minBulk    = 1 << 10
	maxBulk    = 32 << 10
	bulkTarget = 30 * time.Millisecond
)

// Writer applies writes to a store, as many at once as wait. [Writer.Run] must
// run for those that wait to be applied.
type Writer struct {
	store Applier
	opts  Options

	mu      sync.Mutex // guards what follows
	next    *batch     // gathers writes until a flusher takes it
	queued  int        // single writes that wait or are under way
	bytes   int        // of text that those hold
	stopped bool       // no further writes are taken

	slots    chan struct{} // holds a token for each batch under way
	broken   chan error    // holds why the store can no longer be trusted
	wake     chan struct{} // holds a token when next may have writes
	imports  chan struct{} // holds a token for each import that has a slot, or is next
	stopping chan struct{} // closed when no further batch of an import begins
	bulkSize atomic.Int64  // writes of an import in one batch
}

// batch is a number of writes with one fate. Whoever adds a write keeps its
// index and waits for done; results and err are set before done is closed.
type batch struct {
	since   time.Time // when the first write was added
	writes  []plantstore.Write
	done    chan struct{}
	results []plantstore.Result
	err     error
}

func newBatch(writes []plantstore.Write) *batch {
	return &batch{since: time.Now(), writes: writes, done: make(chan struct{})}
}

// New returns a writer for the store.
func New(store Applier, opts Options) *Writer {
	if opts.Queue == 0 {
		opts.Queue = 8192
	}
	if opts.QueueBytes == 0 {
		opts.QueueBytes = 64 << 20
	}
	if opts.Flushers == 0 {
		opts.Flushers = 1
	}
	if opts.Patience == 0 {
		opts.Patience = 30 * time.Second
	}
	w := &Writer{
		store:    store,
		opts:     opts,
		next:     newBatch(nil),
		slots:    make(chan struct{}, opts.Flushers),
		broken:   make(chan error, opts.Flushers),
		wake:     make(chan struct{}, 1),
		imports:  make(chan struct{}, opts.Flushers),
		stopping: make(chan struct{}),
	}
	w.bulkSize.Store(minBulk)
	return w
}

// Write applies one write and returns what it did once that is durable. It fails
// with ErrUnavailable at once if too many writes wait, or later if the store
// cannot be reached. A caller that goes away does not cancel its write, so there
// is no context.
func (w *Writer) Write(write plantstore.Write) (plantstore.Outcome, error) {
	b, i, leads, err := w.enqueue(write)
	if err != nil {
		return 0, err
	}
	if leads {
		w.lead(b)
	}
	<-b.done
	if b.err != nil {
		return 0, b.err
	}
	return b.results[i].Outcome, b.results[i].Err
}

// WriteAll applies the writes of an import, in order, in as many batches as it
// takes to let single writes through between them, and returns a result for each
// once all are durable. After an error, results holds those of the batches that
// were applied. The writes must not be changed meanwhile.
func (w *Writer) WriteAll(ctx context.Context, writes []plantstore.Write) (results []plantstore.Result, err error) {
	for len(writes) > 0 {
		n := min(len(writes), int(w.bulkSize.Load()))
		b := newBatch(writes[:n])
		if err := w.commitBulk(ctx, b); err != nil {
			return results, err
		}
		results = append(results, b.results...)
		writes = writes[n:]
	}
	return results, nil
}

// Depth returns how many single writes wait or are under way.
func (w *Writer) Depth() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queued
}

var (
	errStopping = &plantstore.Error{Code: plantstore.ErrUnavailable, Message: "the server is shutting down: try again"}
	errFull     = &plantstore.Error{Code: plantstore.ErrUnavailable, Message: "too many writes are waiting: try again later"}
)

// enqueue adds a write to the next batch and returns where it is there. If leads is
// true the batch has left the queue, and the caller must lead it.
func (w *Writer) enqueue(write plantstore.Write) (b *batch, i int, leads bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return nil, 0, false, errStopping
	}
	if w.queued >= w.opts.Queue || w.bytes >= w.opts.QueueBytes {
		return nil, 0, false, errFull
	}
	w.queued++
	w.bytes += size(&write)
	b, i = w.next, len(w.next.writes)
	if i == 0 {
		b.since = time.Now()
	}
	b.writes = append(b.writes, write)
	if i == 0 {
		select {
		case w.slots <- struct{}{}:
			return w.takeNext(), i, true, nil
		default:
		}
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return b, i, false, nil
}

// lead commits a batch on behalf of its only caller.
func (w *Writer) lead(b *batch) {
	w.release(w.commitSingles(b))
}

// release ends the turn of who has a slot. With an error the store can no longer be
// trusted, and the slot is kept: Run counts on that.
func (w *Writer) release(err error) {
	if err != nil {
		w.broken <- err
		return
	}
	<-w.slots
}

// Run applies writes until ctx ends, then takes no new ones, applies all that
// wait and returns nil. If the store can no longer be trusted it fails all that
// wait and returns the store's error: the process must then stop.
func (w *Writer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var flushers sync.WaitGroup
	for range w.opts.Flushers {
		flushers.Go(func() { w.flush(ctx) })
	}
	var broken error
	held := 0 // slots that nobody else will have
	select {
	case broken = <-w.broken:
		held++
		cancel()
	case <-ctx.Done():
	}
	close(w.stopping)
	flushers.Wait()
	last := w.stop()
	for ; held < w.opts.Flushers; held++ {
		select {
		case w.slots <- struct{}{}:
		case err := <-w.broken:
			broken = cmp.Or(broken, err)
		}
	}
	if broken != nil {
		last.err = unavailable(broken)
		w.finish(last)
		return broken
	}
	return w.commitSingles(last)
}

// flush applies the writes that wait until ctx ends.
func (w *Writer) flush(ctx context.Context) {
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		var err error
		if b := w.take(); b != nil {
			err = w.commitSingles(b)
		}
		w.release(err)
		if err != nil {
			return
		}
	}
}

// take takes the batch of those who wait, or nil if there are none.
func (w *Writer) take() *batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.next.writes) == 0 {
		return nil
	}
	return w.takeNext()
}

// takeNext takes the next batch off the queue. Who has it must commit it. The
// caller holds the mutex.
func (w *Writer) takeNext() *batch {
	b := w.next
	w.next = newBatch(make([]plantstore.Write, 0, len(b.writes))) // likely as many again
	return b
}

func (w *Writer) stop() *batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	return w.takeNext()
}

// commitSingles applies a batch of single writes. An answered write has left the
// queue.
func (w *Writer) commitSingles(b *batch) error {
	w.commit(b)
	w.finish(b)
	return b.fatal()
}

// finish takes the batch's writes off the queue and tells those who wait for it.
func (w *Writer) finish(b *batch) {
	w.mu.Lock()
	w.queued -= len(b.writes)
	for i := range b.writes {
		w.bytes -= size(&b.writes[i])
	}
	w.mu.Unlock()
	close(b.done)
}

// commitBulk applies a batch of an import, and sets the size of the next one so
// that it takes about bulkTarget, whatever the store's speed.
//
// Who waits for a slot has it in turn. No more imports wait than there are slots,
// so that single writes are kept for one batch at most.
func (w *Writer) commitBulk(ctx context.Context, b *batch) error {
	if err := w.await(ctx, w.imports); err != nil {
		return err
	}
	defer func() { <-w.imports }()
	if err := w.await(ctx, w.slots); err != nil {
		return err
	}
	took := w.commit(b)
	w.release(b.fatal())
	size := w.bulkSize.Load()
	switch {
	case took > bulkTarget:
		w.bulkSize.Store(max(minBulk, size/2))
	case took < bulkTarget/2 && len(b.writes) == int(size):
		w.bulkSize.Store(min(maxBulk, size*2))
	}
	return b.err
}

// await waits for a place in the channel.
func (w *Writer) await(ctx context.Context, places chan<- struct{}) error {
	select {
	case <-w.stopping:
		return errStopping
	default:
	}
	select {
	case places <- struct{}{}:
		return nil
	case <-w.stopping:
		return errStopping
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commit applies a batch, sets its results or error, and returns how long it took.
func (w *Writer) commit(b *batch) time.Duration {
	if len(b.writes) == 0 {
		return 0
	}
	start := time.Now()
	b.results, b.err = w.apply(b)
	took := time.Since(start)
	if b.err == nil && w.opts.Observe != nil {
		w.opts.Observe(len(b.writes), took)
	}
	return took
}

// fatal returns the batch's error if the store can no longer be trusted.
func (b *batch) fatal() error {
	if errors.Is(b.err, plantstore.ErrUntrusted) {
		return b.err
	}
	return nil
}

func size(write *plantstore.Write) int {
	tag, _ := write.Plant.Tag.Text()
	return len(write.Plant.Name) + len(tag)
}

// apply applies the batch, again and again while the store asks for that and
// patience lasts.
func (w *Writer) apply(b *batch) ([]plantstore.Result, error) {
	left := max(w.opts.Patience-time.Since(b.since), w.opts.Patience/6)
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	const first, longest = 20 * time.Millisecond, time.Second
	for pause := time.Duration(first); ; pause = min(2*pause, longest) {
		results, err := w.store.Apply(ctx, b.writes)
		if err == nil {
			return results, nil
		}
		if !errors.Is(err, plantstore.ErrRetry) {
			return nil, unavailable(err)
		}
		select {
		case <-ctx.Done():
			return nil, unavailable(err)
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
	}
}

// unavailable marks an error of the store as one that concerns the store and not
// the write.
func unavailable(err error) error {
	if errors.Is(err, plantstore.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", plantstore.ErrUnavailable, err)
}
