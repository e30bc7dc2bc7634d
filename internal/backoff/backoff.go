// Package backoff spaces out retries.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Exponential spaces out retries: the delays double from Min to Max. Each is shortened at
// random, by up to half, so that callers that failed together do not retry together. It may
// be copied before its first use.
type Exponential struct {
	Min, Max time.Duration
	next     time.Duration // 0 before the first use
}

// Next returns how long to wait before the next attempt.
func (b *Exponential) Next() time.Duration {
	delay := max(b.next, b.Min)
	b.next = min(2*delay, b.Max)
	return delay - rand.N(delay/2+1)
}

// Wait waits for the next delay. It reports false if ctx ends first.
func (b *Exponential) Wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(b.Next()):
		return true
	}
}
