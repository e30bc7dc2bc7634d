package auth

import (
	"context"
	"errors"
	"sync"
	"time"

	"plantstore"
)

// lookupGroup has the lookups of single tokens in progress. Requests with the same token
// share one, and one runs at a time: whatever clients send, the store's connections
// for tokens are not all busy with lookups when the cache is reloaded.
type lookupGroup struct {
	gate  chan struct{} // holds a token while a lookup runs
	mu    sync.Mutex    // guards byKey
	byKey map[plantstore.TokenHash]*lookup
}

// lookup is one lookup. The request that starts it runs it. The other fields are set
// before done is closed, and err is not nil unless the store has returned the token.
type lookup struct {
	done  chan struct{}
	began time.Time // when the store was queried
	token plantstore.Token
	err   error
}

var errPanicked = errors.New("the lookup that this request shares panicked")

func newLookupGroup() lookupGroup {
	return lookupGroup{gate: make(chan struct{}, 1), byKey: map[plantstore.TokenHash]*lookup{}}
}

// lookUp returns the token from a fresh read of the store.
func (g *Guard) lookUp(ctx context.Context, hash plantstore.TokenHash) (plantstore.Token, error) {
	arrived := time.Now()
	ctx, cancel := context.WithTimeout(ctx, g.opts.StoreTimeout)
	defer cancel()
	for {
		l, first := g.lookups.join(hash)
		if first {
			g.runLookup(ctx, hash, l)
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return plantstore.Token{}, ctx.Err()
		}
		switch {
		case l.err == nil && time.Since(l.began) < cacheTTL:
			return l.token, nil
		case l.err != nil && !l.began.Before(arrived):
			return plantstore.Token{}, l.err
		case ctx.Err() != nil:
			return plantstore.Token{}, errors.Join(ctx.Err(), l.err)
		}
		// The result is too old, or the lookup failed before this request arrived.
	}
}

// join returns the lookup of the token in progress. If there is none, the caller must
// run the one that it returns.
func (ls *lookupGroup) join(hash plantstore.TokenHash) (l *lookup, first bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.byKey[hash]; l != nil {
		return l, false
	}
	l = &lookup{done: make(chan struct{}), err: errPanicked}
	ls.byKey[hash] = l
	return l, true
}

func (ls *lookupGroup) leave(hash plantstore.TokenHash) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.byKey, hash)
}

// runLookup looks up a token when it is its turn, until the deadline of ctx. The
// requests that share the lookup get their token even if ctx is cancelled.
func (g *Guard) runLookup(ctx context.Context, hash plantstore.TokenHash, l *lookup) {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	defer close(l.done)
	defer g.lookups.leave(hash)
	select {
	case g.lookups.gate <- struct{}{}:
		defer func() { <-g.lookups.gate }()
	case <-ctx.Done():
		l.began, l.err = time.Now(), ctx.Err()
		return
	}
	l.began = time.Now()
	l.token, l.err = g.store.Token(ctx, hash)
}
