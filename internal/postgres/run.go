package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// watchEvery is how often Run looks whether the server can be used.
	watchEvery = 5 * time.Second
	// forgetEvery is how often Run removes the results of old batches. One that
	// is as old as resultsAge is asked for no more.
	forgetEvery = time.Minute
	resultsAge  = "10 minutes"
)

// How the store tries again: soon where somebody waits for it, and with more
// patience where only the log does.
var (
	soon    = pause{10 * time.Millisecond, time.Second}
	patient = pause{time.Second, 5 * time.Second}
)

// Run connects to the server and makes its schema, logs when it cannot be used
// and when it can again, and removes what is of no more use, until ctx ends. It
// returns an error only if a newer Plantstore wrote the store.
func (s *Store) Run(ctx context.Context) error {
	forget := time.NewTicker(forgetEvery)
	defer forget.Stop()
	usable := false
	retry := patient
	for {
		err := s.Ready(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrNewerSchema):
			return err
		case err != nil:
			usable = false
			s.log.Warn("PostgreSQL cannot be used: trying again", "db", s.name, "err", err)
			retry.wait(ctx)
			continue
		case !usable:
			s.log.Info("PostgreSQL can be used", "db", s.name)
		}
		usable, retry = true, patient
		select {
		case <-ctx.Done():
		case <-time.After(watchEvery):
		case <-forget.C:
			if err := s.forget(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("cannot remove the results of old batches", "db", s.name, "err", err)
			}
		}
	}
}

// forget removes the results of old batches.
func (s *Store) forget(ctx context.Context) error {
	return s.using(ctx, s.write, s.timeout, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "DELETE FROM batches WHERE at < now() - interval '"+resultsAge+"'")
		return err
	})
}

// pause is how long to wait before the next try: longer each time, and at random,
// so that the replicas do not all come at once.
type pause struct{ next, longest time.Duration }

// wait waits, and reports false if ctx ended instead.
func (p *pause) wait(ctx context.Context) bool {
	half := p.next / 2
	p.next = min(2*p.next, p.longest)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(half + rand.N(half)):
		return true
	}
}
