package auth

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"plantstore"
)

// lookup is a read of one token from the store.
type lookup struct {
	began time.Time // when the store was queried
	token plantstore.Token
	err   error
	// panicked is the panic of the store and its stack, for every request that shares the
	// lookup. It is empty otherwise.
	panicked string
}

// lookUp returns the token from a fresh read of the store. Requests with the same token
// share one.
func (g *Guard) lookUp(ctx context.Context, hash plantstore.TokenHash) (plantstore.Token, error) {
	arrived := time.Now()
	ctx, cancel := context.WithTimeout(ctx, g.opts.StoreTimeout)
	defer cancel()
	for {
		var l lookup
		select {
		case shared := <-g.lookups.DoChan(string(hash[:]), func() (any, error) { return g.runLookup(ctx, hash), nil }):
			l = shared.Val.(lookup)
		case <-ctx.Done():
			return plantstore.Token{}, ctx.Err()
		}
		switch {
		case l.panicked != "":
			panic(l.panicked)
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

// runLookup looks up a token when it is its turn, until the deadline of ctx. The requests
// that share the lookup get their token even if ctx is cancelled. Lookups run one at a
// time, so that clients cannot keep all the store's connections for tokens busy when the
// cache is reloaded.
func (g *Guard) runLookup(ctx context.Context, hash plantstore.TokenHash) (l lookup) {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	defer func() {
		if panicked := recover(); panicked != nil {
			l.panicked = fmt.Sprintf("%v\n%s", panicked, debug.Stack())
		}
	}()
	l.err = g.turn.Acquire(ctx, 1)
	l.began = time.Now()
	if l.err != nil {
		return l
	}
	defer g.turn.Release(1)
	l.token, l.err = g.store.Token(ctx, hash)
	return l
}
