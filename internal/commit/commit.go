// Package commit is group commit: it applies concurrent writes to a store in one
// transaction.
//
// There is no timer. A batch is whatever arrived while the previous one was committed, so
// an idle server adds no delay, and a loaded one commits larger batches. One batch is
// applied at a time: two would be smaller, and the log of changes orders them anyway. Only
// if the network takes much of a batch's time are several in flight, so that the store
// always has one to apply. The caller with the first write of a batch leads it: it waits
// for its turn, closes the batch, and applies it on behalf of all.
package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"plantstore"
	"plantstore/internal/backoff"
)

// Applier is the part of a store that a [Writer] needs. [plantstore.Plants] says
// what Apply promises.
type Applier interface {
	Apply(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error)
}

// A distant store is reached over a network. RoundTrip returns how long a message to the
// store and its response take, without any work, and MaxInFlight how many batches the store
// can apply at once.
type distant interface {
	RoundTrip() time.Duration
	MaxInFlight() int
}

// Options adjust a [Writer]. The zero value of a field stands for its default.
type Options struct {
	// Queue limits queued and in-flight single writes. Default: 8192.
	Queue int
	// QueueBytes limits the text of these writes. Default: 16 MiB.
	QueueBytes int
	// StoreTimeout limits how long a batch is retried when the store returns
	// ErrRetry. Time in the queue counts, but every batch gets at least a sixth of
	// it. Default: 30 s.
	StoreTimeout time.Duration
	// Observe, if set, is called after every batch that was applied.
	Observe func(size int, took time.Duration)
	// Tracer, if set, traces the writes of traced requests.
	Tracer Tracer
}

// Tracer traces writes. Its methods must not block.
type Tracer interface {
	// Traced reports whether the request with this context is traced.
	Traced(ctx context.Context) bool
	// Commit is called before a batch of that size is applied, which serves these traced
	// requests, and maybe others. The store gets the returned context; end is called when
	// it is done.
	Commit(requests []context.Context, size int) (ctx context.Context, end func(error))
	// Queued is called for a traced request that waited between the two times for its
	// commit. commit is the context that Commit returned.
	Queued(request, commit context.Context, from, to time.Time)
}

// maxTraced is the number of traced requests of a batch that are passed to the tracer.
const maxTraced = 128

// The size of an import's batches varies between these limits, so that each takes about
// importTarget, the longest that a single write waits for an import.
const (
	minImport    = 1 << 10
	maxImport    = 32 << 10
	importTarget = 30 * time.Millisecond
)

// maxBatchText is the amount of text that ends a batch, in bytes: what its writes have, and what
// its patches may leave. The store holds all of it at once.
const maxBatchText = 8 << 20

// Writer applies writes to a store, in batches. All methods are safe for concurrent
// use. Writes need no [Writer.Run]: it only stops the writer gracefully, and reports a
// store that can no longer be trusted.
type Writer struct {
	store Applier
	opts  Options

	roundTrip  func() time.Duration // nil if the store is on this machine
	inFlight   chan struct{}        // holds a token for each batch in flight, and the withheld ones
	importGate chan struct{}        // holds a token while a batch of an import is in flight or next in line
	importSize atomic.Int64         // writes in an import's next batch
	leaders    sync.WaitGroup       // counts the callers that lead a batch

	broken   context.Context // ends when the store can no longer be trusted, with its error as the cause
	fail     context.CancelCauseFunc
	stopping context.Context // ends with broken, or when no more writes are accepted
	stop     context.CancelFunc

	mu       sync.Mutex    // guards the following fields
	next     *batch        // accepts writes until it is large or its leader closes it; nil if there is none
	lastSize int           // writes in the last batch that was closed
	queued   int           // single writes that wait or are in flight
	bytes    int           // length of their text
	withheld int           // tokens that no batch can get: the fewer, the more batches are in flight
	took     time.Duration // recent average of a batch of single writes
}

// batch is a number of writes that are applied together. A caller that adds a write keeps
// its index and waits for done; results and err are set before that is closed. After an
// error, results holds those of the writes that were applied.
type batch struct {
	since   time.Time // when the first write arrived
	writes  []plantstore.Write
	partial bool // is done when the store has applied its first part
	bytes   int  // length of their text
	patched int  // how much text their patches may leave
	done    chan struct{}
	results []plantstore.Result
	err     error

	traced  []context.Context // of requests, at most maxTraced
	ctx     context.Context   // of the commit
	started time.Time         // zero if no commit was traced
}

func newBatch(writes []plantstore.Write) *batch {
	return &batch{since: time.Now(), writes: writes, done: make(chan struct{}), ctx: context.Background()}
}

// New returns a writer for the store.
func New(store Applier, opts Options) *Writer {
	opts.Queue = cmp.Or(opts.Queue, 8192)
	opts.QueueBytes = cmp.Or(opts.QueueBytes, 16<<20)
	opts.StoreTimeout = cmp.Or(opts.StoreTimeout, 30*time.Second)
	w := &Writer{
		store:      store,
		opts:       opts,
		inFlight:   make(chan struct{}, 1),
		importGate: make(chan struct{}, 1),
	}
	if store, ok := store.(distant); ok {
		w.roundTrip, w.inFlight, w.withheld = store.RoundTrip, make(chan struct{}, store.MaxInFlight()), store.MaxInFlight()-1
		for range w.withheld {
			w.inFlight <- struct{}{}
		}
	}
	w.broken, w.fail = context.WithCancelCause(context.Background())
	w.stopping, w.stop = context.WithCancel(w.broken)
	w.importSize.Store(minImport)
	return w
}

// Write applies one write and returns its result once that is durable. It fails
// with ErrUnavailable immediately if the queue is full, or later if the store cannot be
// reached. The context is for the tracer only: a client that disconnects does not
// cancel its write.
func (w *Writer) Write(ctx context.Context, write plantstore.Write) (plantstore.Result, error) {
	traced := w.opts.Tracer != nil && w.opts.Tracer.Traced(ctx)
	var since time.Time
	if traced {
		since = time.Now()
	}
	b, i, err := w.join(ctx, traced, write)
	if err != nil {
		return plantstore.Result{}, err
	}
	if i == 0 {
		w.lead(b)
	}
	<-b.done
	if traced {
		w.traceQueue(ctx, b, since)
	}
	if i >= len(b.results) {
		return plantstore.Result{}, b.err
	}
	return b.results[i], b.results[i].Err
}

// ErrFull is the error of a write for which the queue has no room. It is an
// ErrUnavailable.
var ErrFull = plantstore.Errorf(plantstore.ErrUnavailable, "too many writes are waiting: try again later")

// largeWrite is the text of a write from which on it must leave room in the queue for
// smaller ones: a few clients with large plants would keep all others out.
const largeWrite = 64 << 10

var errStopping = plantstore.Errorf(plantstore.ErrUnavailable, "the server is shutting down: try again")

// join adds a write to the next batch and returns its index there. The caller with
// index 0 must lead the batch.
func (w *Writer) join(ctx context.Context, traced bool, write plantstore.Write) (b *batch, i int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping.Err() != nil {
		return nil, 0, errStopping
	}
	size := write.Plant.TextSize()
	limit := w.opts.QueueBytes
	if size > largeWrite {
		limit -= limit / 4 // the rest is for small writes
	}
	if w.queued >= w.opts.Queue || w.bytes >= limit {
		return nil, 0, ErrFull
	}
	if w.next == nil || w.next.bytes+w.next.patched >= maxBatchText {
		w.next = newBatch(make([]plantstore.Write, 0, w.lastSize)) // it will likely hold as many again
		w.leaders.Add(1)
	}
	b, i = w.next, len(w.next.writes)
	b.writes = append(b.writes, write)
	b.bytes += size
	b.patched += int(write.MaxText)
	if traced && len(b.traced) < maxTraced {
		b.traced = append(b.traced, ctx)
	}
	w.queued++
	w.bytes += size
	return b, i, nil
}

// lead commits a batch of single writes when it is its turn.
func (w *Writer) lead(b *batch) {
	defer w.leaders.Done()
	w.inFlight <- struct{}{}
	defer w.release()
	defer w.finish(b)
	w.mu.Lock() // close the batch
	if w.next == b {
		w.next = nil
	}
	w.lastSize = len(b.writes)
	w.mu.Unlock()
	took := w.commit(b)
	if w.roundTrip != nil && b.err == nil {
		w.mu.Lock()
		w.took = cmp.Or(w.took, took)
		w.took += (took - w.took) / 8
		w.mu.Unlock()
	}
}

// release returns the token of a batch, so that the next one is sent. It also withholds
// that token, or returns a withheld one, until as many batches are in flight as the store
// needs.
func (w *Writer) release() {
	if w.roundTrip == nil {
		<-w.inFlight
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping.Err() == nil {
		now := cap(w.inFlight) - w.withheld
		switch needed := min(inFlight(w.took, w.roundTrip(), now), cap(w.inFlight)); {
		case needed < now:
			w.withheld++
			return
		case needed > now:
			w.withheld--
			<-w.inFlight
		}
	}
	<-w.inFlight
}

// inFlight returns how many batches should be in flight to a distant store, where there are now so
// many: three times as many as it can work on during the time of one, because writes do not arrive
// evenly, and because a batch that waits for those before it seems to take more work. If the network
// takes a third of the time or less, more than one would only make them smaller. While there is one,
// none waits for others, and half of the time is enough.
func inFlight(took, roundTrip time.Duration, now int) int {
	if took >= 3*roundTrip || now == 1 && took >= 2*roundTrip {
		return 1
	}
	work := max(took-roundTrip, 1)
	return int(max(1, took*3/work))
}

// finish removes the batch's writes from the queue and wakes their callers.
func (w *Writer) finish(b *batch) {
	w.mu.Lock()
	w.queued -= len(b.writes)
	w.bytes -= b.bytes
	w.mu.Unlock()
	close(b.done)
}

// commit applies a batch, sets its results or error, and returns how long that
// took. The caller holds the token. A panic leaves the state of the store unknown, so
// the store can no longer be trusted.
func (w *Writer) commit(b *batch) (took time.Duration) {
	if b.err = context.Cause(w.broken); b.err != nil {
		return 0
	}
	if len(b.traced) > 0 {
		b.started = time.Now()
		var end func(error)
		b.ctx, end = w.opts.Tracer.Commit(b.traced, len(b.writes))
		defer func() { end(b.err) }()
	}
	returned := false
	defer func() {
		if !returned { // after a panic or runtime.Goexit
			b.err = fmt.Errorf("%w: panic: %v\n%s", plantstore.ErrUntrusted, recover(), debug.Stack())
		}
		if b.err != nil && !errors.Is(b.err, plantstore.ErrUnavailable) {
			b.err = fmt.Errorf("%w: %w", plantstore.ErrUnavailable, b.err)
		}
		if errors.Is(b.err, plantstore.ErrUntrusted) {
			b.results = nil
			w.fail(b.err)
		}
	}()
	start := time.Now()
	b.err = w.apply(b)
	took = time.Since(start)
	if b.err == nil && len(b.results) != len(b.writes) && !(b.partial && 0 < len(b.results) && len(b.results) < len(b.writes)) {
		b.err = fmt.Errorf("%w: %d results for %d writes", plantstore.ErrUntrusted, len(b.results), len(b.writes))
	}
	if b.err == nil && w.opts.Observe != nil {
		w.opts.Observe(len(b.writes), took)
	}
	returned = true
	return took
}

// traceQueue traces how long a write waited for its batch to be applied.
func (w *Writer) traceQueue(ctx context.Context, b *batch, since time.Time) {
	if !b.started.IsZero() {
		w.opts.Tracer.Queued(ctx, b.ctx, since, b.started)
	}
}

// apply applies the batch, in as many parts as the store splits it into. While the store
// returns ErrRetry, it retries with backoff until the store timeout.
func (w *Writer) apply(b *batch) error {
	left := max(w.opts.StoreTimeout-time.Since(b.since), w.opts.StoreTimeout/6)
	ctx, cancel := context.WithTimeout(b.ctx, left)
	defer cancel()
	delays := backoff.Exponential{Min: 20 * time.Millisecond, Max: time.Second}
	for {
		results, err := w.store.Apply(ctx, b.writes[len(b.results):])
		if err != nil {
			if errors.Is(err, plantstore.ErrRetry) && delays.Wait(ctx) {
				continue
			}
			return err
		}
		if b.results == nil { // usually there is one part
			b.results = results
		} else {
			b.results = append(b.results, results...)
		}
		if b.partial || len(results) == 0 || len(b.results) >= len(b.writes) {
			return nil
		}
	}
}

// Import applies the writes of an import, in order, in as many batches as it
// takes to let single writes through between them, also between the parts into which the store
// splits a batch, and returns a result for each once all are durable. After an error, results holds those of the writes that
// were applied. The writes must not be changed in the meantime.
func (w *Writer) Import(ctx context.Context, writes []plantstore.Write) (results []plantstore.Result, err error) {
	for len(writes) > 0 {
		n := importBatch(writes, int(w.importSize.Load()))
		b := newBatch(writes[:n])
		b.partial = true
		if w.opts.Tracer != nil && w.opts.Tracer.Traced(ctx) {
			b.traced = []context.Context{ctx}
		}
		err := w.commitImport(ctx, b)
		w.traceQueue(ctx, b, b.since)
		results = append(results, b.results...)
		if err != nil {
			return results, err
		}
		writes = writes[len(b.results):]
	}
	return results, nil
}

// importBatch returns how many of the writes make the next batch: at most size.
func importBatch(writes []plantstore.Write, size int) int {
	n, text := 0, 0
	for n < min(len(writes), size) && text < maxBatchText {
		text += writes[n].Plant.TextSize()
		n++
	}
	return n
}

// commitImport commits a batch of an import when it is its turn, and adapts the
// size of the next one to the store's speed.
//
// The token is granted in the order of the requests for it. One import at a time waits
// for it, so a single write waits for one batch of an import at most.
func (w *Writer) commitImport(ctx context.Context, b *batch) error {
	if err := w.acquire(ctx, w.importGate); err != nil {
		return err
	}
	defer func() { <-w.importGate }()
	if err := w.acquire(ctx, w.inFlight); err != nil {
		return err
	}
	defer w.release()
	took := w.commit(b)
	size := w.importSize.Load()
	switch {
	case took > importTarget:
		w.importSize.Store(max(minImport, size/2))
	case took < importTarget/2 && len(b.writes) == int(size):
		w.importSize.Store(min(maxImport, size*2))
	}
	return b.err
}

// acquire adds a token to the channel, unless the writer stops or ctx ends first.
func (w *Writer) acquire(ctx context.Context, tokens chan<- struct{}) error {
	if w.stopping.Err() != nil {
		return errStopping
	}
	select {
	case tokens <- struct{}{}:
		return nil
	case <-w.stopping.Done():
		return errStopping
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Depth returns how many single writes wait or are in flight.
func (w *Writer) Depth() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queued
}

// Run blocks until ctx ends, then accepts no more writes, waits until those in the
// queue are committed, and returns nil. If the store can no longer be trusted, it
// returns the store's error once all writes in the queue have failed: the process
// must then stop. Run may be called once.
func (w *Writer) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-w.broken.Done():
	}
	w.mu.Lock() // a write either counts its leader before the Wait below, or is refused
	w.stop()
	w.mu.Unlock()
	w.leaders.Wait()
	for range cap(w.inFlight) - w.withheld { // withheld no longer changes
		w.inFlight <- struct{}{} // and never release it, so that no import starts another batch
	}
	return context.Cause(w.broken)
}
