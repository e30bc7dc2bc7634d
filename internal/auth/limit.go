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

	"golang.org/x/time/rate"

	"plantstore"
	"plantstore/internal/wire"
)

// A client that ignores refusals gets them late, so that a flood costs the server
// little: holdTime later, if there are more than these.
const (
	holdTime     = time.Second
	maxRefusals  = 20  // per second
	refusalBurst = 100 // at once
)

// limiter limits the requests of one caller, or the failed attempts of one address.
type limiter struct {
	rate     plantstore.Rate
	policy   []string      // the header RateLimit-Policy
	allowed  *rate.Limiter // requests
	refusals *rate.Limiter // those that are not held back
}

func newLimiter(r plantstore.Rate) *limiter {
	if r.IsZero() {
		return nil
	}
	perSecond := rate.Limit(r.PerSecond())
	return &limiter{
		rate:     r,
		policy:   []string{`"token";q=` + strconv.Itoa(r.Burst) + ";w=" + strconv.Itoa(max(1, ceil(float64(r.Burst)/r.PerSecond())))},
		allowed:  rate.NewLimiter(perSecond, r.Burst),
		refusals: rate.NewLimiter(min(perSecond, maxRefusals), min(r.Burst, refusalBurst)),
	}
}

func ceil(seconds float64) int { return int(math.Ceil(seconds)) }

// exhausted reports whether the next request would be refused.
func (l *limiter) exhausted(now time.Time) bool { return l.allowed.TokensAt(now) < 1 }

// refuse returns the error for a request that is too many. It returns late if the
// refusals are too many too.
func (l *limiter) refuse(ctx context.Context, now time.Time, what string) error {
	wait := max(1, ceil((1-l.allowed.TokensAt(now))/l.rate.PerSecond()))
	if !l.refusals.AllowN(now, 1) {
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

// RateError is the ErrRate of a caller that exceeds a limit.
type RateError struct {
	error
	RetryAfter int // in seconds, at least 1
}

// Unwrap returns the [*plantstore.Error].
func (e *RateError) Unwrap() error { return e.error }

// announceExpiry is how long before its end a token's expiry is announced.
const announceExpiry = 7 * 24 * time.Hour

// SetHeaders sets the header Plantstore-Token-Expires, if one of the store's tokens
// expires within seven days, and the headers RateLimit-Policy and RateLimit
// (draft-ietf-httpapi-ratelimit-headers), if the caller has a rate limit. The window is
// the time in which an empty bucket fills.
func (c *Caller) SetHeaders(h http.Header) {
	if c.expires != nil && time.Until(c.Expires) <= announceExpiry {
		h[wire.HeaderTokenExpires] = c.expires
	}
	l := c.limiter
	if l == nil {
		return
	}
	left := max(0, l.allowed.TokensAt(time.Now()))
	b := append(make([]byte, 0, 32), `"token";r=`...)
	b = append(strconv.AppendInt(b, int64(left), 10), ";t="...)
	b = strconv.AppendInt(b, int64(ceil((float64(l.rate.Burst)-left)/l.rate.PerSecond())), 10)
	h["Ratelimit-Policy"] = l.policy
	h["Ratelimit"] = []string{string(b)}
}

// addressLimits has a limiter for each address. There is a fixed number of them, so
// that no flood makes it grow. Addresses may share one: only failed attempts count, so
// that harms nobody with a valid token.
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

// of returns the limiter of an address. The addresses of an IPv6 /64 belong to one
// subscriber and share it.
func (a *addressLimits) of(addr netip.Addr) *limiter {
	if addr.Is6() {
		addr = netip.PrefixFrom(addr.WithZone(""), 64).Masked().Addr()
	}
	slot := &a.limiters[maphash.Comparable(a.seed, addr)%uint64(len(a.limiters))]
	if l := slot.Load(); l != nil {
		return l
	}
	slot.CompareAndSwap(nil, newLimiter(a.rate))
	return slot.Load()
}
