package auth_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"plantstore"
	"plantstore/internal/auth"
	"plantstore/internal/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const storeTimeout = 20 * time.Second

// fault fails a call or delays it.
type fault func(ctx context.Context) error

// store is the model with injected faults and a record of its calls.
type store struct {
	*storetest.Model

	mu      sync.Mutex // guards what follows
	faults  map[string]fault
	lookups int
	touches []map[plantstore.TokenHash]time.Time
}

// set injects a fault into the methods, or removes it.
func (s *store) set(f fault, methods ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range methods {
		s.faults[m] = f
	}
}

func (s *store) inject(ctx context.Context, method string) error {
	s.mu.Lock()
	f := s.faults[method]
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx)
}

func (s *store) ActiveTokens(ctx context.Context, at time.Time) ([]plantstore.Token, error) {
	found, err := s.Model.ActiveTokens(ctx, at)
	if err := s.inject(ctx, "ActiveTokens"); err != nil {
		return nil, err
	}
	return found, err
}

func (s *store) Token(ctx context.Context, hash plantstore.TokenHash) (plantstore.Token, error) {
	s.mu.Lock()
	s.lookups++
	s.mu.Unlock()
	if err := s.inject(ctx, "Token"); err != nil {
		return plantstore.Token{}, err
	}
	return s.Model.Token(ctx, hash)
}

func (s *store) TouchTokens(ctx context.Context, used map[plantstore.TokenHash]time.Time) error {
	if err := s.inject(ctx, "TouchTokens"); err != nil {
		return err
	}
	s.mu.Lock()
	s.touches = append(s.touches, used)
	s.mu.Unlock()
	return s.Model.TouchTokens(ctx, used)
}

// takeLookups returns how many tokens were looked up since the last call.
func (s *store) takeLookups() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.lookups
	s.lookups = 0
	return n
}

func (s *store) touchCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.touches)
}

var errDown = errors.New("connection refused")

func fail(context.Context) error { return errDown }

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// slow returns late, by the bubble's clock, with what was true at the call.
func slow(d time.Duration) fault {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// subject is a guard over a store. Its log and its errors must not contain secrets.
type subject struct {
	t       *testing.T
	guard   *auth.Guard
	store   *store
	log     *bytes.Buffer
	secrets []string
	stop    func()
}

// newSubject returns a guard that does not run yet, with the limits if any are given.
func newSubject(t *testing.T, limits ...auth.Options) *subject {
	t.Helper()
	s := &subject{t: t, store: &store{Model: storetest.NewModel(), faults: map[string]fault{}}, log: new(bytes.Buffer), stop: func() {}}
	var opts auth.Options
	if len(limits) > 0 {
		opts = limits[0]
	}
	opts.StoreTimeout = storeTimeout
	opts.Log = slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.guard = auth.New(s.store, opts)
	t.Cleanup(func() {
		s.stop()
		s.wantNoSecrets("the log", s.log.String())
	})
	return s
}

// run runs the guard until the test ends or stop is called, and returns when the
// cache is loaded.
func (s *subject) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.guard.Run(ctx); err != nil {
			s.t.Errorf("Run: %v", err)
		}
	}()
	s.stop = func() {
		cancel()
		<-done
	}
	synctest.Wait()
}

// add creates a token with all scopes, and applies the changes to it.
func (s *subject) add(change ...func(*plantstore.Token)) (secret string) {
	s.t.Helper()
	secret = plantstore.NewSecret()
	s.secrets = append(s.secrets, secret)
	token := plantstore.Token{
		Hash: plantstore.HashSecret(secret), Name: "ci", Scopes: plantstore.AllScopes(), Created: time.Now(),
	}
	for _, f := range change {
		f(&token)
	}
	if err := s.store.CreateToken(s.t.Context(), token, plantstore.Actor{Name: plantstore.Operator}); err != nil {
		s.t.Fatal(err)
	}
	return secret
}

func (s *subject) revoke(secret string) {
	s.t.Helper()
	if err := s.store.RevokeToken(s.t.Context(), plantstore.HashSecret(secret), time.Now(), plantstore.Actor{Name: plantstore.Operator}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *subject) check(secret string) error {
	s.t.Helper()
	_, err := s.guard.Check(s.t.Context(), []string{"Bearer " + secret}, plantstore.ScopeWrite)
	if err != nil {
		s.wantNoSecrets("the error", err.Error())
	}
	return err
}

func (s *subject) wantValid(secret string) {
	s.t.Helper()
	if err := s.check(secret); err != nil {
		s.t.Errorf("Check: %v", err)
	}
}

func (s *subject) wantRefused(secret string, want error) {
	s.t.Helper()
	if err := s.check(secret); !errors.Is(err, want) {
		s.t.Errorf("Check: %v, want %v", err, want)
	}
}

func (s *subject) wantNoSecrets(where, text string) {
	s.t.Helper()
	for _, secret := range s.secrets {
		if strings.Contains(text, secret) || strings.Contains(text, secret[len("plt_"):]) {
			s.t.Errorf("%s contains a secret: %s", where, text)
		}
	}
}

// wantLastUse fails unless the store has the time as the token's last use.
func (s *subject) wantLastUse(secret string, want time.Time) {
	s.t.Helper()
	token, err := s.store.Model.Token(s.t.Context(), plantstore.HashSecret(secret))
	if err != nil {
		s.t.Fatal(err)
	}
	if !token.LastUsed.Equal(want) {
		s.t.Fatalf("the last use is %s, want %s", token.LastUsed, want)
	}
}

func expiresIn(d time.Duration) func(*plantstore.Token) {
	return func(t *plantstore.Token) { t.Expires = time.Now().Add(d) }
}

func TestCheckReadsTheHeader(t *testing.T) {
	s := newSubject(t)
	good, other := s.add(), s.add()
	tests := []struct {
		name   string
		header []string
		want   error
	}{
		{"one token", []string{"Bearer " + good}, nil},
		{"scheme in lower case", []string{"bearer " + good}, nil},
		{"scheme in any case", []string{"bEARER " + good}, nil},
		{"several spaces", []string{"Bearer    " + good}, nil},
		{"space after", []string{"Bearer " + good + "  "}, nil},

		{"no header", nil, plantstore.ErrNoToken},
		{"empty header", []string{""}, plantstore.ErrNoToken},
		{"another scheme", []string{"Basic dXNlcjpwYXNzd29yZA=="}, plantstore.ErrNoToken},
		{"another scheme with the token", []string{"Token " + good}, plantstore.ErrNoToken},
		{"token alone", []string{good}, plantstore.ErrNoToken},
		{"no space", []string{"Bearer" + good}, plantstore.ErrNoToken},
		{"a tab", []string{"Bearer\t" + good}, plantstore.ErrNoToken},
		{"space before", []string{" Bearer " + good}, plantstore.ErrNoToken},

		{"scheme alone", []string{"Bearer"}, plantstore.ErrBadToken},
		{"scheme and space", []string{"Bearer   "}, plantstore.ErrBadToken},
		{"two tokens", []string{"Bearer " + good + " " + other}, plantstore.ErrBadToken},
		{"a list of tokens", []string{"Bearer " + good + ",Bearer " + other}, plantstore.ErrBadToken},
		{"two headers", []string{"Bearer " + good, "Bearer " + other}, plantstore.ErrBadToken},
		{"the same header twice", []string{"Bearer " + good, "Bearer " + good}, plantstore.ErrBadToken},
		{"another scheme before it", []string{"Basic dXNlcjpwYXNzd29yZA==", "Bearer " + good}, plantstore.ErrBadToken},
		{"quoted", []string{`Bearer "` + good + `"`}, plantstore.ErrBadToken},
		{"cut off", []string{"Bearer " + good[:39]}, plantstore.ErrBadToken},
		{"wrong checksum", []string{"Bearer " + good[:34] + "000000"}, plantstore.ErrBadToken},
		{"a newline inside", []string{"Bearer " + good + "\nX: y"}, plantstore.ErrBadToken},
		{"not ASCII", []string{"Bearer pflänzchen"}, plantstore.ErrBadToken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.store.takeLookups()
			token, err := s.guard.Check(t.Context(), tt.header, plantstore.ScopeWrite)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Check(%q): %v, want %v", tt.header, err, tt.want)
			}
			if tt.want == nil {
				if token.Hash != plantstore.HashSecret(good) {
					t.Errorf("Check(%q): token %s", tt.header, token.Hash.ID())
				}
				return
			}
			s.wantNoSecrets("the error", err.Error())
			if token != nil {
				t.Errorf("Check(%q): a refused call has the token %s", tt.header, token.Hash.ID())
			}
			if n := s.store.takeLookups(); n != 0 {
				t.Errorf("a malformed token was looked up in the store")
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	tests := []struct {
		name    string
		token   func(s *subject) string
		want    plantstore.Code
		message string // part of the error's message
	}{
		{
			"an unknown token", func(s *subject) string {
				secret := plantstore.NewSecret()
				s.secrets = append(s.secrets, secret)
				return secret
			},
			plantstore.ErrBadToken, "unknown token",
		},
		{
			"a token of another service", func(*subject) string { return "hunter2" },
			plantstore.ErrBadToken, "unknown token",
		},
		{
			"a revoked token", func(s *subject) string {
				secret := s.add()
				s.revoke(secret)
				return secret
			},
			plantstore.ErrBadToken, "revoked",
		},
		{
			"a token that was revoked and has expired", func(s *subject) string {
				secret := s.add(expiresIn(-time.Hour))
				s.revoke(secret)
				return secret
			},
			plantstore.ErrBadToken, "revoked",
		},
		{
			"an expired token", func(s *subject) string { return s.add(expiresIn(-time.Second)) },
			plantstore.ErrTokenExpired, "expired at 1999-12-31T23:59:59Z",
		},
		{
			"a token without the scope", func(s *subject) string {
				return s.add(func(t *plantstore.Token) { t.Scopes = []plantstore.Scope{plantstore.ScopeRead, plantstore.ScopeOps} })
			},
			plantstore.ErrScope, "needs the scope plants:write, but the token has only plants:read,ops:read",
		},
	}
	for _, running := range []bool{false, true} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s, running %t", tt.name, running), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSubject(t)
					secret := tt.token(s)
					if running {
						s.run()
					}
					err := s.check(secret)
					refusal, ok := errors.AsType[*plantstore.Error](err)
					if !ok || refusal.Code != tt.want || !strings.Contains(refusal.Message, tt.message) {
						t.Fatalf("Check: %v, want %v and %q", err, tt.want, tt.message)
					}
				})
			})
		}
	}
}

func TestCheckReturnsTheTokenThatLacksTheScope(t *testing.T) {
	s := newSubject(t)
	secret := s.add(func(t *plantstore.Token) { t.Name, t.Scopes = "reader", []plantstore.Scope{plantstore.ScopeRead} })
	for scope, want := range map[plantstore.Scope]error{
		plantstore.ScopeRead: nil, plantstore.ScopeWrite: plantstore.ErrScope, plantstore.ScopeOps: plantstore.ErrScope,
	} {
		token, err := s.guard.Check(t.Context(), []string{"Bearer " + secret}, scope)
		if !errors.Is(err, want) || token == nil || token.Name != "reader" {
			t.Errorf("Check for %s: %v, %v, want %v", scope, token, err, want)
		}
	}
}

func TestTokenExpiresWhileTheServerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		secret := s.add(expiresIn(10 * time.Second))
		s.run()
		time.Sleep(10*time.Second - time.Nanosecond)
		s.wantValid(secret)
		time.Sleep(time.Nanosecond)
		s.wantRefused(secret, plantstore.ErrTokenExpired)
	})
}

func TestCachedTokenIsNotLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		secret := s.add()
		s.run()
		for range 50 {
			s.wantValid(secret)
			time.Sleep(100 * time.Millisecond)
		}
		if n := s.store.takeLookups(); n != 0 {
			t.Errorf("a cached token was looked up %d times", n)
		}
	})
}

func TestNewTokenWorksImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		s.add()
		s.run()
		secret := s.add()
		start := time.Now()
		s.wantValid(secret)
		s.wantValid(secret)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("the new token works after %s", waited)
		}
		if n := s.store.takeLookups(); n != 1 {
			t.Errorf("the new token was looked up %d times, want once", n)
		}
		time.Sleep(time.Minute)
		s.wantValid(secret)
	})
}

func TestGuardWorksBeforeItRuns(t *testing.T) {
	s := newSubject(t)
	secret := s.add()
	s.wantValid(secret)
	s.revoke(secret)
	s.wantRefused(secret, plantstore.ErrBadToken)
}

// The token is revoked at different moments between two reloads, and also while
// reloads fail, are slow or hang.
func TestRevocationIsEffectiveWithinTwoSeconds(t *testing.T) {
	const promise = 2 * time.Second
	reloads := map[string]fault{
		"reloads succeed":  nil,
		"reloads fail":     fail,
		"reloads hang":     hang,
		"reloads are slow": slow(1500 * time.Millisecond),
	}
	for name, tokens := range reloads {
		t.Run(name, func(t *testing.T) {
			for offset := time.Duration(0); offset < 3*time.Second; offset += 130 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					s := newSubject(t)
					secret := s.add()
					s.run()
					s.wantValid(secret)
					s.store.set(tokens, "ActiveTokens")
					time.Sleep(offset)
					s.wantValid(secret)
					s.revoke(secret)
					time.Sleep(promise)
					for range 5 {
						s.wantRefused(secret, plantstore.ErrBadToken)
						time.Sleep(time.Second)
					}
				})
			}
		})
	}
}

func TestRevocationOfATokenThatWasLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		s.run()
		time.Sleep(990 * time.Millisecond)
		secret := s.add()
		s.wantValid(secret)
		s.revoke(secret)
		time.Sleep(2 * time.Second)
		s.wantRefused(secret, plantstore.ErrBadToken)
	})
}

// Cached tokens are not trusted once they are two seconds old, whether the store fails
// or is only too busy to respond.
func TestUnreachableStore(t *testing.T) {
	for name, fault := range map[string]fault{"fails": fail, "hangs": hang, "responds too late": slow(2 * time.Second)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSubject(t)
				cached, revoked := s.add(), s.add()
				s.run()
				s.store.set(fault, "ActiveTokens", "Token")
				s.revoke(revoked)
				s.wantValid(cached)
				late := s.add()

				time.Sleep(2 * time.Second)
				for _, secret := range []string{cached, revoked, late} {
					start := time.Now()
					s.wantRefused(secret, plantstore.ErrUnavailable)
					if waited := time.Since(start); waited > storeTimeout {
						t.Errorf("a request waited %s", waited)
					}
				}

				s.store.set(nil, "ActiveTokens", "Token")
				s.wantValid(cached)
				s.wantValid(late)
				s.wantRefused(revoked, plantstore.ErrBadToken)
			})
		})
	}
}

func TestRequestWaitsForABusyStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		secret := s.add()
		s.run()
		free := make(chan struct{})
		s.store.set(func(ctx context.Context) error {
			select {
			case <-free:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, "ActiveTokens", "Token")
		time.Sleep(2 * time.Second)
		time.AfterFunc(storeTimeout-time.Second, func() { close(free) })
		s.wantValid(secret)
	})
}

func TestWaitingRequestsShareALookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 5000
		s := newSubject(t)
		secret, other := s.add(), s.add()
		s.run()
		s.store.set(fail, "ActiveTokens")
		s.store.set(slow(time.Second), "Token")
		time.Sleep(2 * time.Second)
		var wait sync.WaitGroup
		for range callers {
			wait.Go(func() { s.wantValid(secret) })
			wait.Go(func() { s.wantValid(other) })
		}
		wait.Wait()
		if n := s.store.takeLookups(); n != 2 {
			t.Errorf("%d requests with two tokens made %d lookups, want 2", 2*callers, n)
		}
	})
}

// A lookup that began before a token was created says nothing about it.
func TestNewTokenWorksDuringAnOlderLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		s.run()
		secret := plantstore.NewSecret()
		s.store.set(func(context.Context) error {
			time.Sleep(time.Second)
			return plantstore.ErrNoSuchToken
		}, "Token")
		var early sync.WaitGroup
		early.Go(func() { s.wantRefused(secret, plantstore.ErrBadToken) })
		time.Sleep(time.Millisecond)
		s.store.set(nil, "Token")
		if err := s.store.CreateToken(t.Context(), plantstore.Token{
			Hash: plantstore.HashSecret(secret), Scopes: plantstore.AllScopes(), Created: time.Now(),
		}, plantstore.Actor{Name: plantstore.Operator}); err != nil {
			t.Fatal(err)
		}
		s.wantValid(secret)
		early.Wait()
	})
}

// A request that ends early does not affect those that share its lookup.
func TestLookupSurvivesItsFirstRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		secret := s.add()
		s.store.set(slow(time.Second), "Token")
		ctx, cancel := context.WithCancel(t.Context())
		var first sync.WaitGroup
		first.Go(func() { s.guard.Check(ctx, []string{"Bearer " + secret}, plantstore.ScopeWrite) })
		synctest.Wait()
		time.AfterFunc(time.Millisecond, cancel)
		s.wantValid(secret)
		first.Wait()
		if n := s.store.takeLookups(); n != 1 {
			t.Errorf("%d lookups, want 1", n)
		}
	})
}

// A lookup that panics fails for all that share it. The next one succeeds.
func TestLookupThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		secret := s.add()
		s.store.set(func(context.Context) error {
			time.Sleep(time.Second)
			panic("a bug in the store")
		}, "Token")
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				defer func() {
					if panicked := recover(); !strings.Contains(fmt.Sprint(panicked), "a bug in the store") {
						t.Errorf("recovered %v, want the panic of the store", panicked)
					}
				}()
				s.check(secret)
			})
		}
		callers.Wait()
		s.store.set(nil, "Token")
		s.wantValid(secret)
	})
}

func TestUnreachableStoreFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		secret := s.add()
		s.store.set(fail, "ActiveTokens", "Token")
		s.run()
		err := s.check(secret)
		if !errors.Is(err, plantstore.ErrUnavailable) || !errors.Is(err, errDown) {
			t.Errorf("Check: %v, want ErrUnavailable and its cause", err)
		}
		s.store.set(nil, "ActiveTokens", "Token")
		s.wantValid(secret)
		s.stop()
		if !strings.Contains(s.log.String(), errDown.Error()) {
			t.Errorf("the log does not mention the failed reload: %s", s.log)
		}
	})
}

func TestReloadThatHangsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		s.run()
		s.store.set(hang, "ActiveTokens")
		time.Sleep(90 * time.Second)
		s.stop() // that a reload is interrupted is not logged
		if n := strings.Count(s.log.String(), "cannot load the tokens"); n != 2 {
			t.Errorf("the log has %d warnings in 90 s, want 2: %s", n, s.log)
		}
	})
}

func TestLastUseIsRecordedLazily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		used, idle := s.add(), s.add()
		s.run()
		time.Sleep(3 * time.Second)
		first := time.Now()
		s.wantValid(used)
		synctest.Wait()
		if n := s.store.touchCount(); n != 0 {
			t.Fatalf("a request recorded its last use")
		}
		time.Sleep(10 * time.Second)
		s.wantLastUse(used, first)
		s.wantLastUse(idle, time.Time{})

		time.Sleep(time.Minute)
		if n := s.store.touchCount(); n != 1 {
			t.Errorf("one use was recorded %d times", n)
		}
		var second time.Time
		for range 100 {
			second = time.Now()
			s.wantValid(used)
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		s.wantLastUse(used, second.Truncate(time.Second))
		if n := s.store.touchCount(); n > 3 {
			t.Errorf("uses within 5 s were recorded %d times", n-1)
		}
	})
}

// However many tokens are used, few rows are written at a time, and none is left out.
func TestLastUsesAreRecordedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		secrets := make([]string, 250)
		for i := range secrets {
			secrets[i] = s.add()
		}
		s.run()
		for round := range 5 {
			time.Sleep(10 * time.Second)
			for _, secret := range secrets {
				s.wantValid(secret)
			}
			if round == 0 {
				time.Sleep(time.Second) // uses are recorded after they were made
			}
		}
		synctest.Wait()
		recorded := map[plantstore.TokenHash]bool{}
		for _, used := range s.store.touches {
			if len(used) > 100 {
				t.Errorf("%d uses were recorded at once", len(used))
			}
			for hash := range used {
				recorded[hash] = true
			}
		}
		if len(recorded) != len(secrets) {
			t.Errorf("the uses of %d of %d tokens were recorded", len(recorded), len(secrets))
		}
		used := time.Now()
		for _, secret := range secrets {
			s.wantValid(secret)
		}
		s.stop()
		for _, secret := range secrets {
			s.wantLastUse(secret, used)
		}
	})
}

// A job that makes a token, uses it and revokes it takes less than the time between two
// records.
func TestLastUseOfAnEndedTokenIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		revoked, expired, stays := s.add(), s.add(expiresIn(3*time.Second)), s.add()
		s.run()
		time.Sleep(time.Second)
		used := time.Now()
		for _, secret := range []string{revoked, expired, stays} {
			s.wantValid(secret)
		}
		s.revoke(revoked)
		s.store.set(fail, "TouchTokens")
		time.Sleep(10 * time.Second)
		s.store.set(nil, "TouchTokens")
		time.Sleep(10 * time.Second)
		for _, secret := range []string{revoked, expired, stays} {
			s.wantLastUse(secret, used)
		}
		time.Sleep(time.Minute)
		if n := s.store.touchCount(); n != 1 {
			t.Errorf("the uses were recorded %d times, want once", n)
		}
	})
}

// A token that has ended is refused in the same way before and after the store deletes it.
func TestEndedTokenIsRefusedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		revoked, expired := s.add(), s.add(expiresIn(time.Hour))
		s.run()
		s.revoke(revoked)
		time.Sleep(2 * time.Second)
		s.wantRefused(revoked, plantstore.ErrBadToken)
		s.wantValid(expired)
		time.Sleep(time.Hour)
		s.wantRefused(expired, plantstore.ErrTokenExpired)
		s.stop() // a month of reloads takes a minute
		time.Sleep(plantstore.MaxEndedAge)
		other := s.add()
		for _, secret := range []string{revoked, expired} {
			if _, err := s.store.Model.Token(t.Context(), plantstore.HashSecret(secret)); !errors.Is(err, plantstore.ErrNoSuchToken) {
				t.Errorf("the token was not deleted: %v", err)
			}
			s.wantRefused(secret, plantstore.ErrBadToken)
		}
		s.wantValid(other)
	})
}

func TestLastUseNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		secret := s.add()
		s.run()
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 200 {
					s.wantValid(secret)
					time.Sleep(333 * time.Millisecond)
				}
			})
		}
		callers.Wait()
		s.stop()
		var last time.Time
		for _, used := range s.store.touches {
			for _, at := range used {
				if !at.After(last) {
					t.Errorf("%s was recorded after %s", at, last)
				}
				last = at
			}
		}
		if last.IsZero() {
			t.Error("no use was recorded")
		}
	})
}

// If the write were on the request's path, the clock would move until it gives up.
func TestNoRequestWaitsForTheLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		secret := s.add()
		s.store.set(hang, "TouchTokens")
		s.run()
		s.wantValid(secret)
		time.Sleep(10*time.Second + time.Millisecond) // the guard hangs in TouchTokens
		for range 10 {
			start := time.Now()
			s.wantValid(secret)
			if waited := time.Since(start); waited != 0 {
				t.Errorf("a request waited %s", waited)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestLastUseIsRecordedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		secret := s.add()
		s.store.set(fail, "TouchTokens")
		s.run()
		used := time.Now()
		s.wantValid(secret)
		time.Sleep(15 * time.Second)
		s.wantLastUse(secret, time.Time{})
		s.store.set(nil, "TouchTokens")
		time.Sleep(10 * time.Second)
		s.wantLastUse(secret, used)
		s.stop()
		if !strings.Contains(s.log.String(), errDown.Error()) {
			t.Errorf("the log does not mention the failed write: %s", s.log)
		}
	})
}

func TestLastUseIsRecordedAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		cached := s.add()
		s.run()
		late := s.add()
		time.Sleep(1200 * time.Millisecond)
		s.wantValid(cached)
		s.wantValid(late)
		used := time.Now()
		s.stop()
		s.wantLastUse(cached, used.Truncate(time.Second))
		s.wantLastUse(late, used.Truncate(time.Second))
	})
}

func TestRefusedCallIsNotAUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		expired := s.add(expiresIn(-time.Second))
		reader := s.add(func(t *plantstore.Token) { t.Scopes = []plantstore.Scope{plantstore.ScopeRead} })
		s.run()
		s.wantRefused(expired, plantstore.ErrTokenExpired)
		s.wantRefused(reader, plantstore.ErrScope)
		s.stop()
		s.wantLastUse(expired, time.Time{})
		s.wantLastUse(reader, time.Time{})
	})
}

// A token is created and used while a reload that does not include it is still in
// progress.
func TestUseDuringAReloadIsNotLost(t *testing.T) {
	for name, before := range map[string]time.Duration{"the first": 0, "a later one": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSubject(t)
				s.store.set(slow(700*time.Millisecond), "ActiveTokens")
				s.run()
				time.Sleep(before)
				secret := s.add()
				used := time.Now()
				s.wantValid(secret)
				time.Sleep(30 * time.Second)
				s.stop()
				s.wantLastUse(secret, used.Truncate(time.Second))
			})
		})
	}
}

func TestRunEndsIfTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		secret := s.add()
		s.run()
		s.wantValid(secret)
		s.store.set(hang, "ActiveTokens", "Token", "TouchTokens")
		time.Sleep(1500 * time.Millisecond)
		start := time.Now()
		s.stop()
		if waited := time.Since(start); waited > 5*time.Second {
			t.Errorf("Run ended after %s", waited)
		}
	})
}

// Requests are checked while tokens are created, revoked and reloaded.
func TestCheckFromManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t)
		good, bad := s.add(), s.add()
		s.revoke(bad)
		s.run()
		var fresh []string
		for range 20 {
			fresh = append(fresh, s.add())
		}
		var callers sync.WaitGroup
		for caller := range 10 {
			callers.Go(func() {
				for i := range 100 {
					s.wantValid(good)
					s.wantRefused(bad, plantstore.ErrBadToken)
					s.wantValid(fresh[(caller+i)%len(fresh)])
					time.Sleep(77 * time.Millisecond)
				}
			})
		}
		callers.Wait()
	})
}
