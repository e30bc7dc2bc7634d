// Package commit gathers the writes that wait into one transaction: group commit.
//
// There is no timer. A batch is whatever arrived while the previous one was
// committed, so an idle server adds no delay, and a loaded one commits more at
// once instead of later.
package commit

import (
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
// run for them to be applied.
type Writer struct {
	store Applier
	opts  Options

	mu      sync.Mutex // guards what follows
	next    *batch     // gathers writes until a flusher takes it
	queued  int        // single writes that wait or are under way
	bytes   int        // of text that those hold
	stopped bool       // no further writes are taken

	wake     chan struct{} // holds a token when next may have writes
	stopping chan struct{} // closed when no flusher runs any more
	bulk     chan *batch   // hands an import's batch to a flusher
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
		wake:     make(chan struct{}, 1),
		stopping: make(chan struct{}),
		bulk:     make(chan *batch),
	}
	w.bulkSize.Store(minBulk)
	return w
}

// Write applies one write and returns what it did once that is durable. It fails
// with ErrUnavailable at once if too many writes wait, or later if the store
// cannot be reached. A caller that goes away does not cancel its write, so there
// is no context.
func (w *Writer) Write(write plantstore.Write) (plantstore.Outcome, error) {
	b, i, err := w.enqueue(write)
	if err != nil {
		return 0, err
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
		select {
		case w.bulk <- b:
		case <-w.stopping:
			return results, errStopping
		case <-ctx.Done():
			return results, ctx.Err()
		}
		<-b.done
		if b.err != nil {
			return results, b.err
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

func (w *Writer) enqueue(write plantstore.Write) (*batch, int, error) {
	w.mu.Lock()
	if w.stopped {
		w.mu.Unlock()
		return nil, 0, errStopping
	}
	if w.queued >= w.opts.Queue || w.bytes >= w.opts.QueueBytes {
		w.mu.Unlock()
		return nil, 0, errFull
	}
	w.queued++
	w.bytes += size(&write)
	b, i := w.next, len(w.next.writes)
	if i == 0 {
		b.since = time.Now()
	}
	b.writes = append(b.writes, write)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return b, i, nil
}

// Run applies writes until ctx ends, then takes no new ones, applies all that
// wait and returns nil. If the store can no longer be trusted it fails all that
// wait and returns the store's error: the process must then stop.
func (w *Writer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, w.opts.Flushers)
	var flushers sync.WaitGroup
	for range w.opts.Flushers {
		flushers.Go(func() {
			if err := w.flush(ctx); err != nil {
				failed <- err
				cancel()
			}
		})
	}
	flushers.Wait()
	close(w.stopping)
	last := w.stop()
	select {
	case err := <-failed:
		last.err = unavailable(err)
		w.finish(last)
		return err
	default:
		return w.commitSingles(last)
	}
}

// flush applies batches until ctx ends. Single writes and imports take turns where
// both wait, so that neither is kept for longer than one batch of the other.
func (w *Writer) flush(ctx context.Context) error {
	importsTurn := false
	for {
		bulk, ok := w.await(ctx, importsTurn)
		if !ok {
			return nil
		}
		importsTurn = bulk == nil
		var err error
		if bulk != nil {
			err = w.commitBulk(bulk)
		} else {
			err = w.commitSingles(w.take())
		}
		if err != nil {
			return err
		}
	}
}

// await waits until there is something to do: a batch of an import, or single
// writes if it returns nil. It reports false when ctx ends.
func (w *Writer) await(ctx context.Context, importsTurn bool) (*batch, bool) {
	if ctx.Err() != nil {
		return nil, false
	}
	if importsTurn {
		select {
		case bulk := <-w.bulk:
			return bulk, true
		default:
		}
	} else {
		select {
		case <-w.wake:
			return nil, true
		default:
		}
	}
	select {
	case <-ctx.Done():
		return nil, false
	case <-w.wake:
		return nil, true
	case bulk := <-w.bulk:
		return bulk, true
	}
}

func (w *Writer) take() *batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.next
	w.next = newBatch(make([]plantstore.Write, 0, len(b.writes))) // likely as many again
	return b
}

func (w *Writer) stop() *batch {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	return w.take()
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
func (w *Writer) commitBulk(b *batch) error {
	took := w.commit(b)
	size := w.bulkSize.Load()
	switch {
	case took > bulkTarget:
		w.bulkSize.Store(max(minBulk, size/2))
	case took < bulkTarget/2 && len(b.writes) == int(size):
		w.bulkSize.Store(min(maxBulk, size*2))
	}
	close(b.done)
	return b.fatal()
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
