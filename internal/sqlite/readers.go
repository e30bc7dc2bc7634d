package sqlite

import (
	"context"
	"errors"
	"sync"

	"zombiezen.com/go/sqlite"
)

// readerCount is the number of connections that read.
const readerCount = 8

// reader is a connection that reads, with the statements that it runs most.
type reader struct {
	conn          *sqlite.Conn
	plant, recent *sqlite.Stmt
}

// readers lends connections, and opens them when they are needed. The one that
// came back last goes out first: its cache is the warmest, and what a quiet server
// does not need is never opened.
type readers struct {
	path  string
	lent  chan struct{} // holds a token for each that is out
	mu    sync.Mutex    // guards what follows
	spare []*reader
}

func newReaders(path string) *readers {
	return &readers{path: path, lent: make(chan struct{}, readerCount)}
}

// take returns a reader, which put must give back.
func (r *readers) take(ctx context.Context) (*reader, error) {
	select {
	case r.lent <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if spare := r.pop(); spare != nil {
		return spare, nil
	}
	opened, err := openReader(r.path)
	if err != nil {
		<-r.lent
		return nil, err
	}
	return opened, nil
}

func (r *readers) pop() *reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spare) == 0 {
		return nil
	}
	last := r.spare[len(r.spare)-1]
	r.spare = r.spare[:len(r.spare)-1]
	return last
}

func (r *readers) put(back *reader) {
	r.mu.Lock()
	r.spare = append(r.spare, back)
	r.mu.Unlock()
	<-r.lent
}

// Close closes all readers. None may be out.
func (r *readers) Close() error {
	var errs []error
	for _, spare := range r.spare {
		errs = append(errs, spare.conn.Close())
	}
	return errors.Join(errs...)
}

func openReader(path string) (*reader, error) {
	c, err := open(path)
	if err != nil {
		return nil, err
	}
	r := &reader{conn: c}
	if err = pragma(c, "query_only=1"); err == nil {
		r.plant, err = c.Prepare(selectPlant)
	}
	if err == nil {
		r.recent, err = c.Prepare(selectRecent)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return r, nil
}
