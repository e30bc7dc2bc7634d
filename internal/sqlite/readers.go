package sqlite

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"zombiezen.com/go/sqlite"
)

const (
	// maxReaders is the number of connections that read single plants.
	maxReaders = 8
	// maxTokenReaders is the number of connections that read tokens and webhooks. The
	// guard needs two: it looks up one token at a time while it reloads all of them.
	maxTokenReaders = 3
)

// maxSearches is the number of connections that read pages with a filter. A search keeps
// a processor busy for as long as it runs: one processor is left for everything else.
// GOMAXPROCS may be more than there are.
func maxSearches() int {
	return min(max(1, min(runtime.NumCPU(), runtime.GOMAXPROCS(0))-1), maxReaders)
}

// maxLists is the number of connections that read pages without a filter. They are brief.
func maxLists() int { return min(runtime.GOMAXPROCS(0), maxReaders) }

// reader is a connection that reads, with the statements that it runs most.
type reader struct {
	conn           *sqlite.Conn
	stored, logged *sqlite.Stmt
}

// readers is a pool of connections, which are opened when they are needed. The one
// released last is acquired first: its cache is the warmest, and a quiet server never
// opens more than it needs.
type readers struct {
	connect func() (*sqlite.Conn, error)
	inUse   chan struct{} // holds a token for each reader in use
	mu      sync.Mutex    // guards idle
	idle    []*reader
}

// newReaders returns a pool of at most that many connections.
func newReaders(connect func() (*sqlite.Conn, error), size int) *readers {
	return &readers{connect: connect, inUse: make(chan struct{}, size)}
}

// acquire returns a reader, which the caller must release.
func (r *readers) acquire(ctx context.Context) (*reader, error) {
	select {
	case r.inUse <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if idle := r.pop(); idle != nil {
		return idle, nil
	}
	opened, err := openReader(r.connect)
	if err != nil {
		<-r.inUse
		return nil, err
	}
	return opened, nil
}

func (r *readers) pop() *reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.idle) == 0 {
		return nil
	}
	last := r.idle[len(r.idle)-1]
	r.idle = r.idle[:len(r.idle)-1]
	return last
}

func (r *readers) release(used *reader) {
	r.mu.Lock()
	r.idle = append(r.idle, used)
	r.mu.Unlock()
	<-r.inUse
}

// Close closes all readers. None may be in use.
func (r *readers) Close() error {
	var errs []error
	for _, idle := range r.idle {
		errs = append(errs, idle.conn.Close())
	}
	return errors.Join(errs...)
}

func openReader(connect func() (*sqlite.Conn, error)) (*reader, error) {
	c, err := connect()
	if err != nil {
		return nil, err
	}
	r := &reader{conn: c}
	if err = errors.Join(pragma(c, "query_only=1"), setCache(c, readerCache)); err == nil {
		r.stored, err = c.Prepare(selectStored)
	}
	if err == nil {
		r.logged, err = c.Prepare(selectLogged)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return r, nil
}
