package auth

import (
	"context"
	"hash/maphash"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// A client that ignores refusals gets them late, so that a flood costs the server little:
// refusals beyond these limits are delayed by holdTime.
const (
	holdTime     = time.Second
	maxRefusals  = 20  // per second
	refusalBurst = 100 // at once
)

// limiter limits the requests of one caller, or the failed attempts of one address.
type limiter struct {
	rate     plantstore.Rate
	policy   []string // the header RateLimit-Policy
	requests bucket
	refusals bucket // refusals that are not held back
}

func newLimiter(r plantstore.Rate) *limiter {
	if r.IsZero() {
		return nil
	}
	l := &limiter{rate: r}
	l.requests.init(r)
	refusals := plantstore.Rate{N: maxRefusals, Burst: min(r.Burst, refusalBurst), Per: time.Second}
	if r.PerSecond() < maxRefusals {
		refusals.N, refusals.Per = r.N, r.Per
	}
	l.refusals.init(refusals)
	l.policy = []string{`"token";q=` + strconv.Itoa(r.Burst) + ";w=" + strconv.Itoa(max(1, ceilSeconds(l.requests.capacity)))}
	return l
}

// exhausted reports whether the next request would be refused.
func (l *limiter) exhausted(now time.Time) bool {
	left, _ := l.requests.state(now)
	return left == 0
}

// refuse returns the error for a request over the limit. It returns late if refusals exceed
// their own limit.
func (l *limiter) refuse(ctx context.Context, now time.Time, what string) error {
	wait := max(1, ceilSeconds(l.requests.wait(now)))
	if !l.refusals.allow(now) {
		held := time.NewTimer(holdTime)
		defer held.Stop()
		select {
		case <-held.C:
		case <-ctx.Done():
		}
	}
	return &RateError{
		error:      plantstore.Errorf(plantstore.ErrRate, "%s, the limit is %s: try again in %d s", what, l.rate, wait),
		RetryAfter: wait,
	}
}

// bucket is a token bucket in one number, so that it needs no lock: the time at which it
// will be full again (the generic cell rate algorithm). Times are since it was created.
// A rate is rounded up to a whole number of nanoseconds for each token, which is at most
// 0.1 % too much.
type bucket struct {
	created  time.Time
	interval time.Duration // time in which a token is added
	capacity time.Duration // time in which an empty bucket fills
	full     atomic.Int64  // when the bucket will be full, or since when it has been
}

func (b *bucket) init(r plantstore.Rate) {
	b.created, b.interval = time.Now(), r.Per/time.Duration(r.N)
	b.capacity = time.Duration(r.Burst) * b.interval
	b.full.Store(math.MinInt64 / 2) // a request may have arrived before its bucket was created
}

// allow takes a token and reports whether there was one.
func (b *bucket) allow(now time.Time) bool {
	at := int64(now.Sub(b.created))
	for {
		full := b.full.Load()
		next := max(full, at) + int64(b.interval)
		if next-at > int64(b.capacity) {
			return false
		}
		if b.full.CompareAndSwap(full, next) {
			return true
		}
	}
}

// state returns how many tokens are left, and how long the bucket takes to fill.
func (b *bucket) state(now time.Time) (left int, fill time.Duration) {
	fill = max(0, time.Duration(b.full.Load())-now.Sub(b.created))
	// Another request that arrived later may have been counted already.
	return int(max(0, b.capacity-fill) / b.interval), fill
}

// wait returns how long it takes until there is a token, 0 if there is one.
func (b *bucket) wait(now time.Time) time.Duration {
	_, fill := b.state(now)
	return max(0, fill+b.interval-b.capacity)
}

func ceilSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// RateError is the ErrRate of a caller that exceeds a limit.
type RateError struct {
	error
	RetryAfter int // in seconds, at least 1
}

// Unwrap returns the [*plantstore.Error].
func (e *RateError) Unwrap() error { return e.error }

// announceExpiry is how long in advance a token's expiry is announced.
const announceExpiry = 7 * 24 * time.Hour

// SetHeaders sets the header Plantstore-Token-Expires, if one of the store's tokens
// expires within seven days, and the headers RateLimit-Policy and RateLimit
// (draft-ietf-httpapi-ratelimit-headers), if the caller has a rate limit. The window is
// the time in which an empty bucket fills. The header shares the value until the response
// is sent.
func (c *Caller) SetHeaders(h http.Header, now time.Time, value *[1]string) {
	if c.expires != nil && c.Expires.Sub(now) <= announceExpiry {
		h[wire.HeaderTokenExpires] = c.expires
	}
	l := c.limiter
	if l == nil {
		return
	}
	left, fill := l.requests.state(now)
	b := append(make([]byte, 0, 32), `"token";r=`...)
	b = append(strconv.AppendInt(b, int64(left), 10), ";t="...)
	b = strconv.AppendInt(b, int64(ceilSeconds(fill)), 10)
	h["Ratelimit-Policy"] = l.policy
	value[0] = string(b)
	h["Ratelimit"] = value[:]
}

// addressLimits has a limiter for each address. Their number is fixed, so that no flood
// makes it grow. Addresses may share a limiter, which harms nobody with a valid token: only
// failed attempts count.
type addressLimits struct {
	rate     plantstore.Rate
	seed     maphash.Seed
	limiters [4096]atomic.Pointer[limiter]
}

func newAddressLimits(r plantstore.Rate) *addressLimits {
	if r.IsZero() {
		return nil
	}
	return &addressLimits{rate: r, seed: maphash.MakeSeed()}
}

// of returns the limiter of a subscriber's address.
func (a *addressLimits) of(addr netip.Addr) *limiter {
	slot := &a.limiters[maphash.Comparable(a.seed, addr)%uint64(len(a.limiters))]
	if l := slot.Load(); l != nil {
		return l
	}
	slot.CompareAndSwap(nil, newLimiter(a.rate))
	return slot.Load()
}
