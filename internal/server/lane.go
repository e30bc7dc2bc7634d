package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"plantstore"
)

// lane shares a number of units, such as concurrent requests or bytes of memory,
// between the requests of all tokens.
//
// One token gets at most three quarters of them, so that it can never take everything
// from the others. A request that does not fit waits for its turn: the next one is the
// oldest request of the token that holds the fewest.
type lane struct {
	size     int64
	maxQueue int           // requests of one token that may wait
	maxWait  time.Duration // of each
	full     error         // why a request is refused

	mu      sync.Mutex // guards what follows
	used    int64
	held    map[plantstore.TokenHash]int64 // by each token that holds any
	waiting []*waiter                      // in order of arrival
}

// waiter is a request that wants n units.
type waiter struct {
	token   plantstore.TokenHash
	n       int64
	granted chan struct{} // closed when it has them, with the lane's mu held
}

func newLane(size int64, maxQueue int, maxWait time.Duration, full string) *lane {
	return &lane{
		size: size, maxQueue: maxQueue, maxWait: maxWait,
		full: plantstore.Errorf(plantstore.ErrUnavailable, "%s: try again later", full),
		held: make(map[plantstore.TokenHash]int64),
	}
}

// share returns how many units one token may hold.
func (l *lane) share() int64 { return l.size - l.size/4 }

// acquire takes n units for the token, which is not more than its share. The caller
// releases them. If the token's queue is full, or the wait is too long, the error is
// the lane's.
func (l *lane) acquire(ctx context.Context, token plantstore.TokenHash, n int64) error {
	w, err := l.join(token, n, l.maxQueue)
	if err != nil {
		return err
	}
	timeout := time.NewTimer(l.maxWait)
	defer timeout.Stop()
	select {
	case <-w.granted:
		return nil
	case <-timeout.C:
		err = l.full
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leave(w) {
		return nil // granted in the meantime
	}
	return err
}

// tryAcquire takes n units for the token without waiting, and reports whether it
// did. It does not overtake a request that waits.
func (l *lane) tryAcquire(token plantstore.TokenHash, n int64) bool {
	_, err := l.join(token, n, 0)
	return err == nil
}

// join adds a request to those that wait. It returns the lane's error if the request
// has to wait, and maxQueue requests of its token already do.
func (l *lane) join(token plantstore.TokenHash, n int64, maxQueue int) (*waiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &waiter{token, n, make(chan struct{})}
	l.waiting = append(l.waiting, w)
	l.grant()
	queued := 0
	for _, other := range l.waiting {
		if other.token == token {
			queued++
		}
	}
	if queued > maxQueue && l.leave(w) {
		return nil, l.full
	}
	return w, nil
}

// leave removes a request that waits, and reports whether it still did. The caller
// holds mu.
func (l *lane) leave(w *waiter) bool {
	i := slices.Index(l.waiting, w)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	l.grant() // others may fit
	return true
}

// release returns n units of the token.
func (l *lane) release(token plantstore.TokenHash, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used -= n
	if l.held[token] -= n; l.held[token] == 0 {
		delete(l.held, token)
	}
	l.grant()
}

// inUse returns how many units are held.
func (l *lane) inUse() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}

// grant gives free units to the requests whose turn it is. The caller holds mu.
func (l *lane) grant() {
	for {
		next, held, least := -1, int64(0), int64(0)
		for i, w := range l.waiting {
			if i == 0 || w.token != l.waiting[i-1].token { // most requests that wait are of one token
				held = l.held[w.token]
			}
			if held+w.n <= l.share() && (next < 0 || held < least) {
				next, least = i, held
			}
		}
		if next < 0 || l.used+l.waiting[next].n > l.size {
			return
		}
		w := l.waiting[next]
		l.used += w.n
		l.held[w.token] += w.n
		l.waiting = slices.Delete(l.waiting, next, next+1)
		close(w.granted)
	}
}
