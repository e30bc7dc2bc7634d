package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"plantstore/internal/rules"
)

const (
	defaultConnections = 19
	minConnections     = 4 // one for each pool

	// refusedTimeout is how long a call waits for one of the store's connections to be released
	// if the server refuses to open another. It asks again after refusedDelay: the server learns
	// late that a connection was closed.
	refusedTimeout = time.Second
	refusedDelay   = 100 * time.Millisecond
)

// pool admits as many calls at once as its part of the store's connections, in order of arrival.
type pool struct {
	name   string
	inUse  chan struct{} // holds a token for each call
	waits  atomic.Int64
	waited atomic.Int64 // in nanoseconds
}

// newPools divides the connections evenly. The first pool gets the rest.
func newPools(connections int) (all []*pool) {
	names := []string{"write", "read", "list", "export"}
	size, rest := connections/len(names), connections%len(names)
	for _, name := range names {
		all = append(all, &pool{name: name, inUse: make(chan struct{}, size+rest)})
		rest = 0
	}
	return all
}

// Exports returns how many scans may run at once. Others wait.
func (s *Store) Exports() int { return cap(s.export.inUse) }

// MaxInFlight returns how many batches may be applied at once. Other writes need a connection, too.
func (s *Store) MaxInFlight() int { return max(1, cap(s.write.inUse)-1) }

// Connections returns how many connections are open.
func (s *Store) Connections() int { return int(s.conns.Stat().TotalConns()) }

// Pools describes the pools.
func (s *Store) Pools() (all []rules.PoolStats) {
	for _, p := range s.pools {
		all = append(all, rules.PoolStats{
			Name: p.name, InUse: len(p.inUse), Max: cap(p.inUse), Waits: p.waits.Load(), Waited: time.Duration(p.waited.Load()),
		})
	}
	return all
}

// enter waits until the pool admits a call.
func (p *pool) enter(ctx context.Context) error {
	select {
	case p.inUse <- struct{}{}:
		return nil
	default:
	}
	start := time.Now()
	p.waits.Add(1)
	defer func() { p.waited.Add(int64(time.Since(start))) }()
	select {
	case p.inUse <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("all %d connections of the pool %s are in use: %w", cap(p.inUse), p.name, ctx.Err())
	}
}

// acquire returns a connection for a call that the pool admits. It waits no longer than a call
// may take.
func (s *Store) acquire(ctx context.Context, p *pool) (c *pgxpool.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	if s.opts.Trace != nil {
		ctx = tracer(s.opts.Trace).start(ctx, "acquire", "")
		defer func() { end(ctx, err) }()
	}
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			<-p.inUse
		}
	}()
	for refused := time.Now().Add(refusedTimeout); ; {
		c, err := s.conns.Acquire(ctx)
		if errors.Is(err, errPooled) {
			continue
		}
		if sqlState(err) != tooManyConnections || time.Now().After(refused) {
			return c, err
		}
		select {
		case <-s.released:
		case <-time.After(refusedDelay):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// release gives a connection back.
func (s *Store) release(c *pgxpool.Conn, p *pool) {
	c.Release()
	<-p.inUse
	select {
	case s.released <- struct{}{}:
	default:
	}
}
