// Package auth knows who is calling, and whether they may.
package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"plantstore"
)

const (
	// reloadEvery is how often the tokens are read again, and freshFor how long
	// a reading counts. A revocation is effective within freshFor.
	reloadEvery = time.Second
	freshFor    = 1900 * time.Millisecond
	// touchEvery is how often the last use of tokens is written down.
	touchEvery = 10 * time.Second
	// lookupTimeout bounds the wait for a store that does not answer.
	lookupTimeout = 5 * time.Second
)

// Store is the part of a store that a [Guard] needs.
type Store interface {
	Tokens(ctx context.Context) ([]plantstore.Token, error)
	Token(ctx context.Context, hash plantstore.TokenHash) (plantstore.Token, error)
	TouchTokens(ctx context.Context, used map[plantstore.TokenHash]time.Time) error
}

// Guard decides by the bearer token who is calling and what they may do. It
// knows the store's tokens by heart, and asks the store for one it does not know,
// so that a new token works at once. [Guard.Run] must run for that to be quick.
type Guard struct {
	store Store
	log   *slog.Logger

	mu    sync.Mutex // is held while known is replaced
	known atomic.Pointer[reading]
}

// reading is what the store said of its tokens at some time.
type reading struct {
	at     time.Time
	tokens map[plantstore.TokenHash]*entry
}

// entry is a token and its last use in Unix seconds, which outlives the reading.
type entry struct {
	token plantstore.Token
	used  *atomic.Int64
	// learned is when the store was asked for this token alone.
	learned time.Time
}

// New returns a guard over the store's tokens.
func New(store Store, log *slog.Logger) *Guard {
	return &Guard{store: store, log: log}
}

// Check returns the token that the values of the Authorization header name, if
// it is good and has the scope. Otherwise it fails with ErrNoToken, ErrBadToken,
// ErrTokenExpired or ErrScope, or with ErrUnavailable where the store must be
// asked and does not answer. The token is returned with ErrScope too.
func (g *Guard) Check(ctx context.Context, authorization []string, scope plantstore.Scope) (*plantstore.Token, error) {
	secret, err := bearer(authorization)
	if err != nil {
		return nil, err
	}
	// The map is searched by the secret's SHA-256. How long that takes tells an
	// attacker about a hash that they cannot steer, and nothing of the secret.
	e, err := g.find(ctx, plantstore.HashSecret(secret))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	switch {
	case !e.token.Revoked.IsZero():
		return nil, refuse(plantstore.ErrBadToken, "the token has been revoked: ask for a new one")
	case e.token.ExpiredAt(now):
		return nil, refuse(plantstore.ErrTokenExpired, "the token expired at %s: ask for a new one", e.token.Expires.Format(time.RFC3339))
	case !e.token.Allows(scope):
		return &e.token, refuse(plantstore.ErrScope, "this needs the scope %s, and the token has %s",
			scope, plantstore.FormatScopes(e.token.Scopes))
	}
	if second := now.Unix(); e.used.Load() < second {
		e.used.Store(second)
	}
	return &e.token, nil
}

// find returns what is known of the hash: from the last reading if that is fresh
// and has it, else from the store. While the store cannot be reached, an older
// reading counts: nothing can be read or written with it before the store is back.
func (g *Guard) find(ctx context.Context, hash plantstore.TokenHash) (*entry, error) {
	known := g.known.Load()
	var e *entry
	if known != nil {
		e = known.tokens[hash]
		if e != nil && time.Since(known.at) < freshFor {
			return e, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	token, err := g.store.Token(ctx, hash)
	switch {
	case err == nil && e != nil:
		return &entry{token: token, used: e.used}, nil
	case err == nil:
		return g.learn(token), nil
	case errors.Is(err, plantstore.ErrNoSuchToken):
		return nil, refuse(plantstore.ErrBadToken, "the token is not known here: is it copied whole, and for this server?")
	case e != nil:
		return e, nil
	}
	return nil, fmt.Errorf("look up a token: %w: %w", plantstore.ErrUnavailable, err)
}

// learn adds a token that the last reading does not have yet.
func (g *Guard) learn(token plantstore.Token) *entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := &reading{tokens: map[plantstore.TokenHash]*entry{}}
	if known := g.known.Load(); known != nil {
		if e := known.tokens[token.Hash]; e != nil {
			return e
		}
		next = &reading{at: known.at, tokens: maps.Clone(known.tokens)}
	}
	e := &entry{token, new(atomic.Int64), time.Now()}
	next.tokens[token.Hash] = e
	g.known.Store(next)
	return e
}

// Run reads the tokens again every second and writes down their last use now and
// then, until ctx ends.
func (g *Guard) Run(ctx context.Context) error {
	written := map[plantstore.TokenHash]int64{}
	reload, touch := time.NewTicker(reloadEvery), time.NewTicker(touchEvery)
	defer reload.Stop()
	defer touch.Stop()
	g.reload(ctx)
	for {
		select {
		case <-ctx.Done():
			g.touch(context.WithoutCancel(ctx), written)
			return nil
		case <-reload.C:
			g.reload(ctx)
		case <-touch.C:
			g.touch(ctx, written)
		}
	}
}

func (g *Guard) reload(ctx context.Context) {
	at := time.Now()
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	tokens, err := g.store.Tokens(ctx)
	if err != nil {
		if ctx.Err() == nil {
			g.log.Warn("cannot read the tokens", "err", err)
		}
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	last := g.known.Load()
	if last == nil {
		last = &reading{}
	}
	next := &reading{at: at, tokens: make(map[plantstore.TokenHash]*entry, len(tokens))}
	for _, t := range tokens {
		e := &entry{token: t, used: new(atomic.Int64)}
		if known := last.tokens[t.Hash]; known != nil {
			e.used = known.used
		}
		next.tokens[t.Hash] = e
	}
	for hash, e := range last.tokens {
		// What was learned meanwhile may be newer than this reading.
		if next.tokens[hash] == nil && !e.learned.Before(at) {
			next.tokens[hash] = e
		}
	}
	g.known.Store(next)
}

// touch writes down the uses that are newer than what it wrote before.
func (g *Guard) touch(ctx context.Context, written map[plantstore.TokenHash]int64) {
	known := g.known.Load()
	if known == nil {
		return
	}
	used := map[plantstore.TokenHash]time.Time{}
	for hash, e := range known.tokens {
		if second := e.used.Load(); second > written[hash] {
			used[hash] = time.Unix(second, 0).UTC()
		}
	}
	if len(used) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if err := g.store.TouchTokens(ctx, used); err != nil {
		g.log.Warn("cannot write down the last use of tokens", "err", err)
		return
	}
	for hash, at := range used {
		written[hash] = at.Unix()
	}
}

// bearer returns the secret in an Authorization header.
func bearer(authorization []string) (string, error) {
	const hint = "send the header Authorization: Bearer <token>"
	if len(authorization) == 0 {
		return "", refuse(plantstore.ErrNoToken, "no token: %s", hint)
	}
	if len(authorization) > 1 {
		return "", refuse(plantstore.ErrBadToken, "the request has %d Authorization headers: send one", len(authorization))
	}
	scheme, secret, _ := strings.Cut(authorization[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", refuse(plantstore.ErrNoToken, "the Authorization header has no bearer token: %s", hint)
	}
	secret = strings.Trim(secret, " ")
	if secret == "" {
		return "", refuse(plantstore.ErrBadToken, "there is no token behind Bearer: %s", hint)
	}
	if err := plantstore.CheckSecret(secret); err != nil {
		return "", refuse(plantstore.ErrBadToken, "malformed token: %v", err)
	}
	return secret, nil
}

func refuse(code plantstore.Code, format string, args ...any) error {
	return &plantstore.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
