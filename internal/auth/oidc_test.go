package auth_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plantstore"
	"plantstore/internal/auth"
	"plantstore/internal/servertest"
)

// inMemory is an issuer that is reached without a network, so that it works in a bubble.
type inMemory struct {
	*servertest.Issuer
	delay time.Duration
}

func (i inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(i.delay):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	return w.Result(), nil
}

func newOIDC(i *servertest.Issuer) auth.OIDC {
	return auth.OIDC{Issuer: i.URL, Audience: servertest.Audience, Transport: inMemory{i, 0}}
}

const issuerURL = "https://login.example.com/realms/garden"

func TestKeysAreFetchedAtMostEvery5Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := servertest.NewIssuer(issuerURL)
		s := newSubject(t, auth.Options{OIDC: newOIDC(issuer)})
		s.run()
		good := issuer.Sign(nil, nil)
		s.wantValid(good)
		if n := issuer.Fetches(); n != 1 {
			t.Fatalf("the keys were fetched %d times at the start, want once", n)
		}
		for i := range 100 { // a flood of unknown keys
			s.wantRefused(issuer.Sign(map[string]any{"kid": fmt.Sprint("unknown-", i)}, nil), plantstore.ErrBadToken)
			time.Sleep(time.Second)
		}
		if n := issuer.Fetches(); n != 20 {
			t.Errorf("the keys were fetched %d times in 100 s, want 20", n)
		}
		s.wantValid(good)
	})
}

// A new key is known within 5 s, although others use up the fetches with unknown keys.
func TestRotatedKeyIsKnownWithin5Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := servertest.NewIssuer(issuerURL)
		s := newSubject(t, auth.Options{OIDC: newOIDC(issuer)})
		s.run()
		old := issuer.Sign(nil, nil)
		s.wantValid(old)
		issuer.Rotate()
		rotated := issuer.Sign(nil, nil)
		s.wantRefused(rotated, plantstore.ErrBadToken) // the keys were fetched a moment ago
		for i := range 50 {
			s.wantRefused(issuer.Sign(map[string]any{"kid": fmt.Sprint("unknown-", i)}, nil), plantstore.ErrBadToken)
			time.Sleep(100 * time.Millisecond)
		}
		s.wantValid(rotated)
		s.wantRefused(old, plantstore.ErrBadToken) // its key was withdrawn
		issuer.Rotate()
		time.Sleep(10 * time.Minute) // without any token the keys are fetched too
		before := issuer.Fetches()
		s.wantValid(issuer.Sign(nil, nil))
		if n := issuer.Fetches(); n != before {
			t.Error("a known key was fetched again")
		}
		s.wantRefused(rotated, plantstore.ErrBadToken)
	})
}

func TestProviderThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := servertest.NewIssuer(issuerURL)
		issuer.SetDown(true)
		s := newSubject(t, auth.Options{OIDC: newOIDC(issuer), AuthFailures: parseRate(t, "1/h,burst=3")})
		ours, theirs := s.add(), issuer.Sign(nil, nil)
		s.run()
		admit := func(from, secret string, want error) {
			t.Helper()
			if _, err := s.admit(from, secret); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", from, err, want)
			}
		}
		// Tokens that nobody can check are limited like those that fail.
		for range 3 {
			admit("192.0.2.1:1", theirs, plantstore.ErrUnavailable)
		}
		admit("192.0.2.1:1", theirs, plantstore.ErrRate)
		admit("192.0.2.1:1", servertest.NewIssuer(issuerURL).Sign(nil, nil), plantstore.ErrRate)
		admit("192.0.2.2:1", theirs, plantstore.ErrUnavailable)
		admit("192.0.2.1:1", ours, nil)
		time.Sleep(28 * time.Second)
		issuer.SetDown(false)
		time.Sleep(5 * time.Second)
		admit("192.0.2.1:1", theirs, nil) // nobody is locked out
		admit("192.0.2.1:1", servertest.NewIssuer(issuerURL).Sign(nil, nil), plantstore.ErrRate)
		issuer.SetDown(true)
		time.Sleep(20 * time.Minute)
		s.wantValid(issuer.Sign(nil, nil)) // a known key
		s.wantValid(ours)
		issuer.Rotate()
		s.wantRefused(issuer.Sign(nil, nil), plantstore.ErrBadToken)
		s.stop()
		// One in the first 30 s, and then one every 5 minutes.
		if n := strings.Count(s.log.String(), "cannot fetch the keys of the identity provider"); n != 1+4 {
			t.Errorf("the log has %d warnings, want 5:\n%s", n, s.log)
		}
	})
}

// A provider that does not respond delays only those whose key is unknown, by 5 s.
func TestProviderThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := servertest.NewIssuer(issuerURL)
		opts := newOIDC(issuer)
		opts.Transport = inMemory{issuer, time.Hour}
		s := newSubject(t, auth.Options{OIDC: opts})
		ours := s.add()
		start := time.Now()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() { s.wantRefused(issuer.Sign(nil, nil), plantstore.ErrUnavailable) })
		}
		s.wantValid(ours)
		if time.Since(start) != 0 {
			t.Error("one of our tokens waited for the provider")
		}
		callers.Wait()
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("the callers waited %v, want 5 s", took)
		}
		start = time.Now()
		s.run()
		s.stop() // it does not wait for the provider
		s.stop = func() {}
		if took := time.Since(start); took > time.Second {
			t.Errorf("Run ended after %v", took)
		}
	})
}

// A fetch that panics ends for all who wait for it. The next one succeeds.
func TestFetchThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := servertest.NewIssuer(issuerURL)
		opts := newOIDC(issuer)
		fault := &panicOnce{RoundTripper: inMemory{issuer, 0}}
		opts.Transport = fault
		s := newSubject(t, auth.Options{OIDC: opts})
		good := issuer.Sign(nil, nil)
		var callers sync.WaitGroup
		start := time.Now()
		for range 2 {
			callers.Go(func() { s.wantRefused(good, plantstore.ErrUnavailable) })
		}
		callers.Wait()
		if took := time.Since(start); took != panicDelay {
			t.Errorf("the requests waited %v, want %v", took, panicDelay)
		}
		time.Sleep(5 * time.Second)
		s.wantValid(good)
	})
}

// panicDelay is how long a request of panicOnce takes before it panics.
const panicDelay = time.Second

// panicOnce panics in the first request.
type panicOnce struct {
	http.RoundTripper
	requests atomic.Int64
}

func (p *panicOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.requests.Add(1) == 1 {
		time.Sleep(panicDelay)
		panic("a bug in the transport")
	}
	return p.RoundTripper.RoundTrip(r)
}

func TestClockSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := servertest.NewIssuer(issuerURL)
		s := newSubject(t, auth.Options{OIDC: newOIDC(issuer)})
		at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
		for _, tt := range []struct {
			claims map[string]any
			want   error
		}{
			{map[string]any{"exp": at(-59 * time.Second)}, nil},
			{map[string]any{"exp": at(-60 * time.Second)}, plantstore.ErrTokenExpired},
			{map[string]any{"nbf": at(60 * time.Second)}, nil},
			{map[string]any{"nbf": at(61 * time.Second)}, plantstore.ErrBadToken},
		} {
			if err := s.check(issuer.Sign(nil, tt.claims)); !errors.Is(err, tt.want) {
				t.Errorf("%v: %v, want %v", tt.claims, err, tt.want)
			}
		}
		// A token that is remembered expires too.
		token := issuer.Sign(nil, map[string]any{"exp": at(time.Minute)})
		s.wantValid(token)
		time.Sleep(119 * time.Second)
		s.wantValid(token)
		time.Sleep(time.Second)
		s.wantRefused(token, plantstore.ErrTokenExpired)
	})
}

func TestScopesOfClaims(t *testing.T) {
	grants := []string{
		"groups=gardeners:plants:write,plants:read", "realm_access.roles=ops:ops:read", "https://example.com/role=admin:events:read",
		"one.claim=x:ops:read", "sub=bob:events:read",
	}
	issuer := servertest.NewIssuer(issuerURL)
	for _, tt := range []struct {
		name, prefix string
		claims       map[string]any
		want         string
	}{
		{"scope", "", map[string]any{"scope": "plants:read ops:read"}, "plants:read,ops:read"},
		{"scope as an array", "", map[string]any{"scope": []string{"plants:read", "ops:read"}}, "plants:read,ops:read"},
		{"scp", "", map[string]any{"scope": nil, "scp": "plants:write"}, "plants:write"},
		{"scp as an array", "", map[string]any{"scope": nil, "scp": []string{"plants:write", "events:read"}}, "plants:write,events:read"},
		{"unknown scopes", "", map[string]any{"scope": "openid plants:delete PLANTS:READ plants"}, ""},
		{"none", "", map[string]any{"scope": nil}, ""},
		{"prefix", "api://plants/", map[string]any{"scope": "api://plants/plants:read plants:write"}, "plants:read"},
		{"repeated", "", map[string]any{"scope": "plants:read plants:read", "scp": "plants:read"}, "plants:read"},
		{"group", "", map[string]any{"scope": nil, "groups": []string{"x", "gardeners"}}, "plants:write,plants:read"},
		{"group as a string", "", map[string]any{"scope": nil, "groups": "gardeners"}, "plants:write,plants:read"},
		{"another group", "", map[string]any{"scope": nil, "groups": []any{"gardener", "gardeners ", 7, nil}}, ""},
		{"not a list", "", map[string]any{"scope": nil, "groups": map[string]any{"gardeners": true}}, ""},
		{"role inside", "", map[string]any{"scope": nil, "realm_access": map[string]any{"roles": []string{"ops"}}}, "ops:read"},
		{"claim that is a URL", "", map[string]any{"scope": nil, "https://example.com/role": "admin"}, "events:read"},
		{"claim with a dot", "", map[string]any{"scope": nil, "one.claim": "x"}, "ops:read"},
		{"subject", "", map[string]any{"scope": nil, "sub": "bob"}, "events:read"},
		{"scope and group", "", map[string]any{"scope": "ops:read", "groups": "gardeners"}, "plants:write,plants:read,ops:read"},
	} {
		synctest.Test(t, func(t *testing.T) {
			opts := newOIDC(issuer)
			opts.ScopePrefix = tt.prefix
			for _, text := range grants {
				g, err := auth.ParseGrant(text)
				if err != nil {
					t.Fatal(err)
				}
				opts.Grants = append(opts.Grants, g)
			}
			s := newSubject(t, auth.Options{OIDC: opts})
			caller, err := s.guard.Check(t.Context(), []string{"Bearer " + issuer.Sign(nil, tt.claims)}, plantstore.ScopeRead)
			if caller == nil {
				t.Errorf("%s: %v", tt.name, err)
				return
			}
			if got := plantstore.FormatScopes(caller.Scopes); got != tt.want {
				t.Errorf("%s: scopes %q, want %q", tt.name, got, tt.want)
			}
			if allowed := slices.Contains(caller.Scopes, plantstore.ScopeRead); allowed != (err == nil) || !allowed && !errors.Is(err, plantstore.ErrScope) {
				t.Errorf("%s: with the scopes %q: %v", tt.name, tt.want, err)
			}
			if caller.Public != issuerURL+" "+caller.Name || caller.Issuer != issuerURL || caller.Subject != caller.Name || caller.Name == "" {
				t.Errorf("%s: the caller is %q", tt.name, caller.Public)
			}
		})
	}
}

func TestParseGrantRefuses(t *testing.T) {
	for _, text := range []string{"", "groups", "groups=x", "groups=x:", "=x:plants:read", "groups=:plants:read", "groups=x:plants:fly", "groups=x:y:plants:read"} {
		if g, err := auth.ParseGrant(text); err == nil {
			t.Errorf("%q: got %+v", text, g)
		}
	}
}

func TestCheckIssuer(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://login.example.com": true, "https://login.example.com/": true, "https://login.example.com/realms/x": true,
		"http://127.0.0.1:8081": true, "http://[::1]:8081/x": true, "http://localhost:8081": true,
		"http://login.example.com": false, "http://127.0.0.1.example.com": false, "http://localhost.example.com": false,
		"ftp://login.example.com": false, "login.example.com": false, "https://": false, "": false,
		"https://user@login.example.com": false, "https://login.example.com?x=y": false, "https://login.example.com#x": false,
	} {
		if err := auth.CheckIssuer(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Subjects share a rate limit over all their tokens.
func TestRateLimitIsPerSubject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := servertest.NewIssuer(issuerURL)
		s := newSubject(t, auth.Options{OIDC: newOIDC(issuer), RateLimit: parseRate(t, "2/h")})
		token := func(subject string, n int) string {
			return issuer.Sign(nil, map[string]any{"sub": subject, "jti": fmt.Sprint(n)})
		}
		for i := range 2 {
			if _, err := s.admit("192.0.2.1:1", token("alice", i)); err != nil {
				t.Error(err)
			}
		}
		_, err := s.admit("192.0.2.1:1", token("alice", 3))
		wantRate(t, err, 1800)
		if _, err := s.admit("192.0.2.1:1", token("bob", 1)); err != nil {
			t.Error(err)
		}
	})
}
