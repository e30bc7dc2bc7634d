// Package auth decides who is calling and what they may do.
package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"plantstore"
)

const (
	// reloadInterval is how often the cache is loaded, and cacheTTL how long a read from
	// the store is trusted, counted from when it began. A revocation takes effect within
	// cacheTTL.
	reloadInterval = time.Second
	cacheTTL       = 1900 * time.Millisecond
	// touchInterval is how often the last use of tokens is recorded, and maxTouched for how
	// many tokens, the oldest record first: PostgreSQL cannot remove the old rows while
	// anybody's transaction is open.
	touchInterval = 10 * time.Second
	maxTouched    = 100
	// runTimeout limits how long Run waits for a store that does not respond.
	runTimeout = 5 * time.Second
	// warnInterval is the shortest time between two records of a failure to load the
	// tokens, or the keys of the identity provider.
	warnInterval = time.Minute
)

// Options adjust a [Guard]. The zero value of a field stands for its default.
type Options struct {
	// StoreTimeout is how long a request waits for a token that must be looked up. Default:
	// 30 s.
	StoreTimeout time.Duration
	// Log receives a record when the store fails in the background.
	Log *slog.Logger
	// RateLimit limits the requests of each caller whose token has no rate of its own.
	// The zero Rate is no limit.
	RateLimit plantstore.Rate
	// AuthFailures limits the failed attempts of each address. The zero Rate is no limit.
	AuthFailures plantstore.Rate
	// OIDC is an identity provider whose tokens are accepted too, if it has an Issuer.
	OIDC OIDC
	// TrustedProxies are the addresses whose Forwarded and X-Forwarded-For count.
	TrustedProxies []netip.Prefix
}

// Caller is who sent a request.
type Caller struct {
	// Token is one of the store's, or describes the identity provider's: its Hash is then
	// of the caller and not of the secret, and its Name is the subject.
	plantstore.Token
	// Issuer and Subject are empty without an identity provider.
	Issuer, Subject string
	// Public names the caller in events and logs: the token's id, or the issuer and the
	// subject.
	Public  string
	expires []string // the header that announces the end of one of the store's tokens
	limiter *limiter // nil without a rate limit
}

// Guard decides by the bearer token who is calling and what they may do. It caches the
// active tokens, and looks up one that is not in the cache, so that a new token works
// immediately. It never trusts a read from more than two seconds ago: if the store does not
// respond, requests wait, and then fail. Without [Guard.Run] it still works, but the cache
// goes stale and every token is looked up. All methods are safe for concurrent use.
type Guard struct {
	store plantstore.Tokens
	opts  Options

	mu    sync.Mutex // held while cache is replaced
	cache atomic.Pointer[activeTokens]

	lookups  singleflight.Group
	turn     *semaphore.Weighted // held by the lookup that runs
	failures *addressLimits      // nil without a limit
	provider *provider           // nil without an identity provider
	warned   time.Time           // belongs to Run
	// unrecorded holds the last use of tokens that are no longer in the cache, until it is
	// recorded. It belongs to Run.
	unrecorded map[plantstore.TokenHash]time.Time
}

// activeTokens are the store's tokens that were active when it loaded them. They are immutable,
// except for their last use.
type activeTokens struct {
	loaded   time.Time // zero until the first load
	tokens   map[plantstore.TokenHash]*entry
	replaced chan struct{} // closed once there is another
}

// entry is a token and its last use. The entry that replaces it shares the last use and the
// caller's limiter.
type entry struct {
	caller Caller
	use    *lastUse
	// added is when a lookup of this token alone added it to the cache.
	added time.Time
}

// lastUse is the last use of a token, and the last one that is recorded, in Unix seconds.
type lastUse struct {
	at       atomic.Int64
	recorded int64 // belongs to Run
}

// Info returns the caller's token as the interface shows it.
func (c *Caller) Info() plantstore.TokenInfo {
	if c.Issuer == "" {
		return c.Token.Info()
	}
	return plantstore.TokenInfo{Issuer: c.Issuer, Subject: c.Subject, Scopes: c.Scopes, Created: c.Created, Expires: c.Expires}
}

// Actor returns the caller as a store checks it.
func (c *Caller) Actor() plantstore.Actor {
	if c.Issuer == "" {
		return plantstore.Actor{Name: c.Public, Token: &c.Hash}
	}
	return plantstore.Actor{Name: c.Public, Expires: c.Expires.Add(clockSkew)}
}

// RateLimit returns the rate limit of the caller. The zero Rate is no limit.
func (c *Caller) RateLimit() plantstore.Rate {
	if c.limiter == nil {
		return plantstore.Rate{}
	}
	return c.limiter.rate
}

// New returns a guard over the store's tokens.
func New(store plantstore.Tokens, opts Options) *Guard {
	opts.StoreTimeout = cmp.Or(opts.StoreTimeout, 30*time.Second)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	g := &Guard{
		store: store, opts: opts, turn: semaphore.NewWeighted(1),
		failures: newAddressLimits(opts.AuthFailures),
		provider: newProvider(opts.OIDC, opts.RateLimit, opts.Log), unrecorded: map[plantstore.TokenHash]time.Time{},
	}
	g.cache.Store(&activeTokens{tokens: map[plantstore.TokenHash]*entry{}, replaced: make(chan struct{})})
	return g
}

// Admit is Check for a request that counts: it fails with a [*RateError] too, if the
// caller sends too many requests, or its address too many that fail. A valid token is
// never refused because of other requests from its address. now is when the request arrived.
func (g *Guard) Admit(r *http.Request, scopes []plantstore.Scope, now time.Time) (*Caller, error) {
	caller, err := g.check(r.Context(), r.Header["Authorization"], scopes, r, now)
	if caller == nil {
		return nil, g.countFailure(r, err)
	}
	if l := caller.limiter; l != nil && !l.requests.allow(now) {
		return caller, l.refuse(r.Context(), now, "too many requests with this token")
	}
	return caller, err
}

// countFailure returns the error of a request without a valid token, or another error if
// its address has sent too many of them. A failure of the store is not the client's. While
// the keys of the identity provider are unknown, everybody could send tokens that may be
// valid, so these count. That locks nobody out: a valid token is served once its key is
// known, however many were refused before.
func (g *Guard) countFailure(r *http.Request, err error) error {
	if g.failures == nil || errors.Is(err, plantstore.ErrUnavailable) && !errors.Is(err, errKeysUnknown) {
		return err
	}
	l, now := g.failures.of(g.Subscriber(r)), time.Now()
	if !errors.Is(err, errFlood) && l.requests.allow(now) {
		return err
	}
	return l.refuse(r.Context(), now, "too many requests without a valid token from this address")
}

// errFlood is for a token that is not in the cache and not looked up, because its address
// has had too many failures.
var errFlood = errors.New("too many failures")

// Check returns the caller whose token is in the values of the Authorization header, if
// it is valid and has all the scopes. Otherwise it fails with ErrNoToken, ErrBadToken,
// ErrTokenExpired or ErrScope, or with ErrUnavailable if the token must be looked up
// and the store does not respond. The caller is returned with ErrScope too. Limits do
// not apply.
func (g *Guard) Check(ctx context.Context, authorization []string, scopes ...plantstore.Scope) (*Caller, error) {
	return g.check(ctx, authorization, scopes, nil, time.Now())
}

// check is Check. If r is given, it fails with errFlood where a token would have to be
// looked up for an address that has had too many failures. Before that it waits for the
// next load of the cache, which includes the token if it is new.
func (g *Guard) check(ctx context.Context, authorization []string, scopes []plantstore.Scope, r *http.Request, now time.Time) (*Caller, error) {
	secret, err := bearer(authorization)
	if err != nil {
		return nil, err
	}
	// The map's key is the secret's SHA-256. The duration of a lookup tells an attacker
	// about a hash that they cannot choose, and nothing about the secret.
	hash := plantstore.HashSecret(secret)
	if g.provider != nil && isJWT(secret) {
		caller, err := g.provider.check(ctx, secret, hash, now)
		if err == nil {
			err = caller.checkScopes(scopes)
		}
		return caller, err
	}
	e, err := g.find(ctx, hash, r, now)
	if err != nil {
		return nil, err
	}
	if err := e.caller.Token.Check(now); err != nil {
		return nil, err
	}
	if err := e.caller.checkScopes(scopes); err != nil {
		return &e.caller, err
	}
	if second := now.Unix(); e.use.at.Load() < second {
		e.use.at.Store(second)
	}
	return &e.caller, nil
}

func (c *Caller) checkScopes(scopes []plantstore.Scope) error {
	if !slices.ContainsFunc(scopes, func(s plantstore.Scope) bool { return !c.Allows(s) }) {
		return nil
	}
	needs := "the scope " + string(scopes[0])
	for _, s := range scopes[1:] {
		needs = strings.Replace(needs, "scope ", "scopes ", 1) + " and " + string(s)
	}
	if len(c.Scopes) == 0 {
		return plantstore.Errorf(plantstore.ErrScope, "this needs %s, but the token has none of this server's", needs)
	}
	return plantstore.Errorf(plantstore.ErrScope, "this needs %s, but the token has only %s", needs, plantstore.FormatScopes(c.Scopes))
}

// find returns the entry with the hash: from the cache if that is fresh and contains it,
// else from the store.
func (g *Guard) find(ctx context.Context, hash plantstore.TokenHash, r *http.Request, now time.Time) (*entry, error) {
	cache := g.cache.Load()
	e := cache.tokens[hash]
	if e != nil && now.Sub(cache.loaded) < cacheTTL {
		return e, nil
	}
	if e == nil && r != nil && g.failures != nil && g.failures.of(g.Subscriber(r)).exhausted(now) {
		if e = g.awaitLoad(ctx, hash); e == nil {
			return nil, errFlood
		}
		return e, nil
	}
	token, err := g.lookUp(ctx, hash)
	switch {
	case err == nil && (e != nil || !token.ActiveAt(now)):
		return g.newEntry(token, e), nil
	case err == nil:
		return g.add(token), nil
	case errors.Is(err, plantstore.ErrNoSuchToken):
		return nil, plantstore.Errorf(plantstore.ErrBadToken, "unknown token: is it complete, and is it for this server?")
	}
	return nil, fmt.Errorf("look up a token: %w: %w", plantstore.ErrUnavailable, err)
}

// awaitLoad returns the entry with the hash once the cache has been loaded again, or nil if
// there is none, or if the cache is not loaded within its TTL, or never was.
func (g *Guard) awaitLoad(ctx context.Context, hash plantstore.TokenHash) *entry {
	start := time.Now()
	timeout := time.NewTimer(cacheTTL)
	defer timeout.Stop()
	for {
		cache := g.cache.Load()
		if e := cache.tokens[hash]; e != nil || cache.loaded.IsZero() || cache.loaded.After(start) {
			return e
		}
		select {
		case <-cache.replaced:
		case <-timeout.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// replace makes next the cache. The caller holds the mutex.
func (g *Guard) replace(next *activeTokens) {
	next.replaced = make(chan struct{})
	close(g.cache.Swap(next).replaced)
}

// newEntry returns the entry of a token. last is its previous entry, or nil.
func (g *Guard) newEntry(token plantstore.Token, last *entry) *entry {
	e := &entry{caller: Caller{Token: token, Public: token.Hash.ID()}}
	if !token.Expires.IsZero() {
		e.caller.expires = []string{token.Expires.UTC().Format(time.RFC3339)}
	}
	if last != nil {
		e.use, e.caller.limiter = last.use, last.caller.limiter
		return e
	}
	e.use, e.caller.limiter = new(lastUse), newLimiter(cmp.Or(token.Rate, g.opts.RateLimit))
	return e
}

func (g *Guard) add(token plantstore.Token) *entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	cache := g.cache.Load()
	if e := cache.tokens[token.Hash]; e != nil {
		return e
	}
	e := g.newEntry(token, nil)
	e.added = time.Now()
	next := &activeTokens{loaded: cache.loaded, tokens: maps.Clone(cache.tokens)}
	next.tokens[token.Hash] = e
	g.replace(next)
	return e
}

// shortLived is the longest lifetime of a token that is replaced rather than renewed, such as
// one for a single run of a pipeline.
const shortLived = 7 * 24 * time.Hour

// NextExpiry returns when the next of the store's tokens expires, as of the last load,
// except short-lived ones. It returns the zero Time if none will.
func (g *Guard) NextExpiry(now time.Time) (next time.Time) {
	for _, e := range g.cache.Load().tokens {
		t := e.caller.Token
		if t.Expires.IsZero() || t.ExpiredAt(now) || t.Expires.Sub(t.Created) <= shortLived {
			continue
		}
		if next.IsZero() || t.Expires.Before(next) {
			next = t.Expires
		}
	}
	return next
}

// Run loads the cache every second and records the last use of a hundred tokens every ten
// seconds, until ctx ends. It also fetches the keys of the identity provider.
func (g *Guard) Run(ctx context.Context) error {
	if g.provider != nil {
		var fetcher sync.WaitGroup
		fetcher.Go(func() { g.provider.keys.run(ctx) })
		defer fetcher.Wait()
	}
	reload, touch := time.NewTicker(reloadInterval), time.NewTicker(touchInterval)
	defer reload.Stop()
	defer touch.Stop()
	g.reload(ctx)
	for {
		select {
		case <-ctx.Done():
			g.touch(context.WithoutCancel(ctx), plantstore.MaxTokens)
			return nil
		case <-reload.C:
			g.reload(ctx)
		case <-touch.C:
			g.touch(ctx, maxTouched)
		}
	}
}

func (g *Guard) reload(ctx context.Context) {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	tokens, err := g.store.ActiveTokens(limited, start)
	if err != nil {
		if ctx.Err() == nil && time.Since(g.warned) > warnInterval {
			g.warned = start
			g.opts.Log.Warn("cannot load the tokens, retrying", "err", err)
		}
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	last := g.cache.Load()
	next := &activeTokens{loaded: start, tokens: make(map[plantstore.TokenHash]*entry, len(tokens))}
	for _, t := range tokens {
		next.tokens[t.Hash] = g.newEntry(t, last.tokens[t.Hash])
	}
	for hash, e := range last.tokens {
		if next.tokens[hash] != nil {
			continue
		}
		// Entries added in the meantime may be newer than the store's response.
		if !e.added.Before(start) {
			next.tokens[hash] = e
		} else if at, unrecorded := e.use.next(); unrecorded {
			g.unrecorded[hash] = time.Unix(at, 0).UTC()
		}
	}
	g.replace(next)
}

// next returns the last use, and whether it is newer than the recorded one.
func (u *lastUse) next() (at int64, newer bool) {
	at = u.at.Load()
	return at, at > u.recorded
}

// touch records the uses that are newer than the recorded ones: of tokens that have left
// the cache, and of up to most others.
func (g *Guard) touch(ctx context.Context, most int) {
	cache := g.cache.Load()
	used := maps.Clone(g.unrecorded)
	var newer []plantstore.TokenHash
	for hash, e := range cache.tokens {
		if _, ok := e.use.next(); ok {
			newer = append(newer, hash)
		}
	}
	slices.SortFunc(newer, func(a, b plantstore.TokenHash) int {
		return cmp.Compare(cache.tokens[a].use.recorded, cache.tokens[b].use.recorded)
	})
	for _, hash := range newer[:min(len(newer), most)] {
		used[hash] = time.Unix(cache.tokens[hash].use.at.Load(), 0).UTC()
	}
	if len(used) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	if err := g.store.TouchTokens(ctx, used); err != nil {
		g.opts.Log.Warn("cannot record the last use of tokens", "err", err)
		return
	}
	clear(g.unrecorded)
	for hash, at := range used {
		if e := cache.tokens[hash]; e != nil {
			e.use.recorded = at.Unix()
		}
	}
}

// bearer returns the secret in an Authorization header.
func bearer(authorization []string) (string, error) {
	const hint = "send the header Authorization: Bearer <token>"
	if len(authorization) == 0 {
		return "", plantstore.Errorf(plantstore.ErrNoToken, "no token: %s", hint)
	}
	if len(authorization) > 1 {
		return "", plantstore.Errorf(plantstore.ErrBadToken, "the request has %d Authorization headers: send one", len(authorization))
	}
	scheme, secret, _ := strings.Cut(authorization[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", plantstore.Errorf(plantstore.ErrNoToken, "the Authorization header has no bearer token: %s", hint)
	}
	secret = strings.Trim(secret, " ")
	if secret == "" {
		return "", plantstore.Errorf(plantstore.ErrBadToken, "no token after Bearer: %s", hint)
	}
	if err := plantstore.CheckSecret(secret); err != nil {
		return "", plantstore.Errorf(plantstore.ErrBadToken, "malformed token: %v", err)
	}
	return secret, nil
}
