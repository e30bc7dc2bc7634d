package postgres

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/backoff"
)

const (
	// checkInterval is how often Run checks whether the server is available.
	checkInterval = 5 * time.Second
	// pruneInterval is how often Run deletes the results of old batches.
	pruneInterval = time.Minute
	// resultsAge is how long the results of a batch are kept.
	resultsAge = 10 * time.Minute
)

// How the store spaces its retries: fast when a request waits for them, slow when
// only the log does.
var (
	fastDelays = backoff.Exponential{Min: 10 * time.Millisecond, Max: time.Second}
	slowDelays = backoff.Exponential{Min: time.Second, Max: 5 * time.Second}
)

// Run connects to the server and creates or migrates its schema, logs when the
// server becomes unavailable and when it is available again, deletes results that are
// no longer needed, trims the log of changes, and builds or drops the index of names, until ctx ends. It returns an error
// only if the store had a schema that this release does not support before it could use it. If a
// newer Plantstore migrates it later, the store refuses everything.
func (s *Store) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	others.Go(func() { s.poll(ctx) })
	if s.indexNames != "" {
		others.Go(func() { s.keepIndex(ctx) })
		others.Go(func() { s.keepMerged(ctx) })
	}
	others.Go(func() {
		eachTick(ctx, trimInterval, func() {
			for s.trimAndReport(ctx) {
				// There may be more.
			}
		})
	})
	prune := time.Tick(pruneInterval)
	available := false
	delays := slowDelays
	for {
		err := s.Ready(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrOlderSchema), errors.Is(err, ErrNewerSchema) && !s.used.Load():
			return err
		case errors.Is(err, ErrNewerSchema):
			<-ctx.Done()
			return nil
		case err != nil:
			available = false
			s.opts.Log.Warn("PostgreSQL is unavailable, retrying", "db", s.name, "err", err)
			delays.Wait(ctx)
			continue
		case !available:
			s.opts.Log.Info("PostgreSQL is available", "db", s.name)
		}
		available, delays = true, slowDelays
		s.measureRoundTrip(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(checkInterval):
		case <-prune:
			if err := s.pruneResults(ctx); err != nil && ctx.Err() == nil {
				s.opts.Log.Warn("cannot delete the results of old batches", "db", s.name, "err", err)
			}
		}
	}
}

// RoundTrip returns how long a message to the server and its response take, without any work.
func (s *Store) RoundTrip() time.Duration { return time.Duration(s.roundTrip.Load()) }

// pings is how many messages measure a round trip: the quickest counts.
const pings = 5

// measureRoundTrip measures that. Other work of the machines makes a measurement too long, never
// too short, so a shorter one counts at once, and a longer one slowly.
func (s *Store) measureRoundTrip(ctx context.Context) {
	// If it fails, the next check finds out why.
	_ = s.withConn(ctx, s.write, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
		took := time.Duration(math.MaxInt64)
		for range pings {
			start := time.Now()
			if err := c.Ping(ctx); err != nil {
				return err
			}
			took = min(took, time.Since(start))
		}
		if before := s.RoundTrip(); before > 0 && took > before {
			took = before + (took-before)/8
		}
		s.roundTrip.Store(int64(took))
		return nil
	})
}

// eachTick calls f after each interval until ctx ends.
func eachTick(ctx context.Context, interval time.Duration, f func()) {
	for tick := time.Tick(interval); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			f()
		}
	}
}

// pruneResults deletes the results of batches that are so old that no caller waits for them.
func (s *Store) pruneResults(ctx context.Context) error {
	return s.withConn(ctx, s.write, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
		return inTransaction(ctx, c, func() error {
			if err := s.observeClock(ctx, c); err != nil {
				return err
			}
			_, err := c.Exec(ctx, "DELETE FROM batches WHERE at < $1", s.clock.Ago(resultsAge))
			return err
		})
	})
}
