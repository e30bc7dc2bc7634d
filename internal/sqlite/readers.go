package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"zombiezen.com/go/sqlite"
)

const (
	// maxReaders is the number of connections that read single plants.
	maxReaders = 8
	// maxTokenReaders is the number of connections that read tokens and webhooks. The
	// auth.Guard needs two: it looks up one token at a time while it reloads all of them.
	maxTokenReaders = 3
	// maxScans is the number of connections for scans, which last as long as their consumers.
	maxScans = 8
)

// maxSearches is the number of connections that read pages with a filter. A search keeps
// a processor busy for as long as it runs: one processor is left for everything else.
// GOMAXPROCS may be more than there are.
func maxSearches() int {
	return min(max(1, min(runtime.NumCPU(), runtime.GOMAXPROCS(0))-1), maxReaders)
}

// maxLists is the number of connections that read pages without a filter. They are brief.
func maxLists() int { return min(runtime.GOMAXPROCS(0), maxReaders) }

// readers is a pool of connections that read, which are opened when they are needed. The
// one released last is acquired first: its cache is the warmest, and a quiet server never
// opens more than it needs.
type readers struct {
	store *Store
	brief bool          // its reads are too short to interrupt
	inUse chan struct{} // holds a token for each connection in use
	mu    sync.Mutex    // guards idle
	idle  []*sqlite.Conn
}

// read returns what f reads with a connection of the pool.
func read[T any](ctx context.Context, pool *readers, f func(*sqlite.Conn) (T, error)) (found T, err error) {
	s := pool.store
	if err := s.checkTrusted(); err != nil {
		return found, err
	}
	c, err := pool.acquire(ctx)
	if err == nil {
		defer pool.release(c)
		if found, err = f(c); err == nil {
			return found, nil
		}
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("read %s: %w", s.path, ctx.Err())
	}
	return *new(T), s.classify(err)
}

// acquire returns a connection, which the caller must release. If reads are not brief, it is
// interrupted when ctx ends.
func (r *readers) acquire(ctx context.Context) (*sqlite.Conn, error) {
	select {
	case r.inUse <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var c *sqlite.Conn
	r.mu.Lock()
	if last := len(r.idle) - 1; last >= 0 {
		c, r.idle = r.idle[last], r.idle[:last]
	}
	r.mu.Unlock()
	if c == nil {
		var err error
		if c, err = r.open(); err != nil {
			<-r.inUse
			return nil, err
		}
	}
	if !r.brief {
		c.SetInterrupt(ctx.Done())
	}
	return c, nil
}

func (r *readers) open() (*sqlite.Conn, error) {
	if err := r.store.checkPlaces(); err != nil {
		return nil, err // it would read another store, or by another log
	}
	c, err := r.store.connect()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(pragma(c, "query_only=1"), setCache(c, readerCache)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (r *readers) release(c *sqlite.Conn) {
	if !r.brief {
		c.SetInterrupt(nil) // this also ends a statement that a panic in a consumer has left
	}
	r.mu.Lock()
	r.idle = append(r.idle, c)
	r.mu.Unlock()
	<-r.inUse
}

// Close closes all connections. None may be in use.
func (r *readers) Close() error {
	var errs []error
	for _, c := range r.idle {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
