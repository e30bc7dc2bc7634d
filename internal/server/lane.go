package server

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"plantstore"
)

// lanes is a set of lanes.
type lanes uint8

// The lanes, which all requests share. Gets of small plants, small writes, token checks and
// readiness checks need none.
const (
	// reads are short reads of many rows: plain lists, tags, histograms, and all tokens or webhooks.
	reads lanes = 1 << iota
	// searches are reads that can take long: filtered lists, pages of events, exports.
	searches
	// streams are requests that last: followers of the log, tests of webhooks.
	streams
	// imports counts the bytes of what imports have read and not written yet.
	imports
	// memory counts the bytes of large bodies, pages and plants while they are received or
	// sent: clients that are slow could fill the memory with them.
	memory
)

// How much requests take of the lanes.
const (
	readsSize      = 8
	listUnits      = 1
	tagUnits       = 2
	histogramUnits = 2
	accessUnits    = 6 // reads of all tokens or webhooks: those that check tokens use the same connections
	searchesSize   = 16
	searchUnits    = 2
	sortUnits      = 6                    // orders by name examine up to ten times as much as a search
	exportUnits    = 3                    // more if the store runs fewer exports at once than fit
	mostExports    = searchesSize * 3 / 4 // leaves room for searches
	streamsSize    = 256
	followUnits    = 1
	testUnits      = 16
	importBytes    = 48 << 20
	memoryBytes    = 64 << 20
	mostPages      = memoryBytes * 3 / 4 // leaves room for bodies and single plants

	maxReadsQueued    = 1024 // of one token: they are short
	maxSearchesQueued = 16
	maxImportsQueued  = 64
	maxReadWait       = 5 * time.Second
)

// newLanes returns the lanes in order. An import waits for memory as long as it may wait
// for its client.
func newLanes(streamTimeout time.Duration) []*lane {
	return []*lane{
		newLane("reads", readsSize, maxReadsQueued, maxReadWait, "too many lists are running"),
		newLane("searches", searchesSize, maxSearchesQueued, maxReadWait, "too many searches and exports are running"),
		newLane("streams", streamsSize, 0, 0, "too many clients follow the events, or test webhooks"),
		newLane("imports", importBytes, maxImportsQueued, streamTimeout, "too many imports are running"),
		newLane("memory", memoryBytes, 0, 0, "too many large bodies, pages or plants are being received or sent"),
	}
}

// unitsOfExport returns how many units of searches an export takes, so that no more of them begin than
// the store runs at once: another would wait for a connection, and hold its units meanwhile.
func unitsOfExport(store plantstore.Store) int64 {
	s, limited := store.(interface{ Exports() int })
	if !limited {
		return exportUnits
	}
	most := int64(s.Exports())
	return max(exportUnits, (mostExports+most-1)/most)
}

func (s *Server) lane(name lanes) *lane { return s.lanes[bits.TrailingZeros8(uint8(name))] }

// lane returns one of the lanes of the call's route.
func (c *call) lane(name lanes) *lane {
	if c.route.lanes&name == 0 {
		panic(fmt.Sprintf("the route %s does not have the lane %s", c.route.name, c.s.lane(name).name))
	}
	return c.s.lane(name)
}

// inTurn reads with units of a lane, when it is the caller's turn.
func inTurn[T any](c *call, name lanes, units int64, read func(context.Context) (T, error)) (result T, err error) {
	l, token := c.lane(name), c.caller.Hash
	if err := l.acquire(c.r.Context(), token, units); err != nil {
		return result, err
	}
	defer l.release(token, units)
	return read(c.r.Context())
}

// take takes units of a lane if there are enough now, or as many as one token may hold.
// Requests of its kind never fill more of the lane than most. The caller releases them.
func (c *call) take(name lanes, units, most int64) (release func(), err error) {
	l, token := c.lane(name), c.caller.Hash
	units = min(units, share(most))
	if !l.tryAcquire(token, units, most) {
		return nil, l.full
	}
	return func() { l.release(token, units) }, nil
}

// takeBody takes memory for the request's body, in place of what it has taken before. ServeHTTP
// releases it.
func (c *call) takeBody(bytes int64) error {
	c.releaseBody()
	l, bytes := c.lane(memory), min(bytes, share(memoryBytes))
	if !l.tryAcquire(c.caller.Hash, bytes, memoryBytes) {
		return l.full
	}
	c.body = bytes
	return nil
}

func (c *call) releaseBody() {
	if c.body > 0 {
		c.lane(memory).release(c.caller.Hash, c.body)
		c.body = 0
	}
}

// lane shares a number of units, such as concurrent requests or bytes of memory,
// between the requests of all tokens.
//
// One token gets at most three quarters of them, so that it can never take everything
// from the others. A request that does not fit waits for its turn: the next one is the
// oldest request of the token that holds the fewest.
type lane struct {
	name     string // in the metrics
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

func newLane(name string, size int64, maxQueue int, maxWait time.Duration, full string) *lane {
	return &lane{
		name: name, size: size, maxQueue: maxQueue, maxWait: maxWait,
		full: plantstore.Errorf(plantstore.ErrUnavailable, "%s: try again later", full),
		held: make(map[plantstore.TokenHash]int64),
	}
}

// share returns how many of the units one token may hold.
func share(units int64) int64 { return units - units/4 }

// acquire takes n units for the token, which is not more than its share. The caller
// releases them. If the token's queue is full, or the wait is too long, the error is
// the lane's.
func (l *lane) acquire(ctx context.Context, token plantstore.TokenHash, n int64) error {
	w, err := l.join(token, n, l.size, l.maxQueue)
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
// did. It does not overtake a request that waits, and leaves free what is beyond most.
func (l *lane) tryAcquire(token plantstore.TokenHash, n, most int64) bool {
	_, err := l.join(token, n, most, 0)
	return err == nil
}

// join adds a request to those that wait. It returns the lane's error if the request
// would use more than most of the lane, or has to wait, and maxQueue requests of its token
// already do.
func (l *lane) join(token plantstore.TokenHash, n, most int64, maxQueue int) (*waiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if most < l.size && (l.used+n > most || l.held[token]+n > share(most)) {
		return nil, l.full
	}
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

// grant gives free units to the requests whose turn it is. The caller holds mu.
func (l *lane) grant() {
	for {
		next, held, least := -1, int64(0), int64(0)
		for i, w := range l.waiting {
			if i == 0 || w.token != l.waiting[i-1].token { // most requests that wait are of one token
				held = l.held[w.token]
			}
			if held+w.n <= share(l.size) && (next < 0 || held < least) {
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
