package auth_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"plantstore"
	"plantstore/internal/auth"
)

// admit sends a request with the token from an address, which may have a port.
func (s *subject) admit(addr, secret string, header ...string) (*auth.Caller, error) {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), "GET", "/plants/1", nil)
	r.RemoteAddr = addr
	r.Header["Authorization"] = []string{"Bearer " + secret}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return s.guard.Admit(r, []plantstore.Scope{plantstore.ScopeRead}, time.Now())
}

// wantRate fails unless the error is an ErrRate with this Retry-After.
func wantRate(t *testing.T, err error, retryAfter int) {
	t.Helper()
	limited, ok := errors.AsType[*auth.RateError](err)
	if !ok || !errors.Is(err, plantstore.ErrRate) || limited.RetryAfter != retryAfter {
		t.Errorf("got %v, want ErrRate with Retry-After %d", err, retryAfter)
	}
}

func parseRate(t *testing.T, text string) plantstore.Rate {
	t.Helper()
	r, err := plantstore.ParseRate(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRateLimitIsPerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, auth.Options{RateLimit: parseRate(t, "10/s,burst=20")})
		greedy, other := s.add(), s.add()
		s.run()
		for i := range 20 {
			if _, err := s.admit("192.0.2.1:1", greedy); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
		caller, err := s.admit("192.0.2.2:1", greedy) // another address, the same token
		wantRate(t, err, 1)
		if caller == nil {
			t.Error("a refused caller is not returned")
		}
		if _, err := s.admit("192.0.2.1:1", other); err != nil {
			t.Errorf("another token: %v", err)
		}
		if _, err := s.guard.Check(t.Context(), []string{"Bearer " + greedy}, plantstore.ScopeRead); err != nil {
			t.Errorf("Check is limited: %v", err)
		}
		time.Sleep(1500 * time.Millisecond) // a reload of the cache keeps the count
		for i := range 15 {
			if _, err := s.admit("192.0.2.1:1", greedy); err != nil {
				t.Fatalf("after 1.5 s, request %d: %v", i, err)
			}
		}
		_, err = s.admit("192.0.2.1:1", greedy)
		wantRate(t, err, 1)
	})
}

func TestRequestsWithoutTheScopeCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, auth.Options{RateLimit: parseRate(t, "1/m,burst=2")})
		writer := s.add(func(t *plantstore.Token) { t.Scopes = []plantstore.Scope{plantstore.ScopeWrite} })
		for range 2 {
			if _, err := s.admit("192.0.2.1:1", writer); !errors.Is(err, plantstore.ErrScope) {
				t.Errorf("got %v, want ErrScope", err)
			}
		}
		_, err := s.admit("192.0.2.1:1", writer)
		wantRate(t, err, 60)
	})
}

func TestRateLimitHeaders(t *testing.T) {
	for _, tt := range []struct {
		rate, policy string
		current      []string // after each request
	}{
		{"10/s,burst=20", `"token";q=20;w=2`, []string{`"token";r=19;t=1`, `"token";r=18;t=1`}},
		{"1/s,burst=3", `"token";q=3;w=3`, []string{`"token";r=2;t=1`, `"token";r=1;t=2`, `"token";r=0;t=3`, `"token";r=0;t=3`}},
		{"1/m", `"token";q=1;w=60`, []string{`"token";r=0;t=60`, `"token";r=0;t=60`}},
		{"1000/s,burst=1", `"token";q=1;w=1`, []string{`"token";r=0;t=1`}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSubject(t, auth.Options{RateLimit: parseRate(t, tt.rate)})
			secret := s.add()
			for i, want := range tt.current {
				caller, _ := s.admit("192.0.2.1:1", secret)
				h := http.Header{}
				caller.SetHeaders(h, time.Now(), new([1]string))
				if got := h.Get("RateLimit"); got != want || h.Get("RateLimit-Policy") != tt.policy {
					t.Errorf("%s, request %d: %v, want %s and %s", tt.rate, i, h, tt.policy, want)
				}
			}
		})
	}
	s := newSubject(t)
	caller, err := s.admit("192.0.2.1:1", s.add())
	h := http.Header{}
	caller.SetHeaders(h, time.Now(), new([1]string))
	if err != nil || len(h) > 0 {
		t.Errorf("without a limit: %v, %v", err, h)
	}
}

func TestFailuresAreLimitedPerAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, auth.Options{AuthFailures: parseRate(t, "2/h,burst=5")})
		good := s.add()
		s.run()
		for i := range 5 {
			if _, err := s.admit("192.0.2.1:1", plantstore.NewSecret()); !errors.Is(err, plantstore.ErrBadToken) {
				t.Fatalf("attempt %d: %v", i, err)
			}
		}
		s.store.takeLookups()
		for _, wrong := range []string{plantstore.NewSecret(), "plt_short", "", "a b"} {
			_, err := s.admit("192.0.2.1:2", wrong) // another connection
			if !errors.Is(err, plantstore.ErrRate) {
				t.Errorf("got %v, want ErrRate", err)
			}
		}
		if n := s.store.takeLookups(); n != 0 {
			t.Errorf("the flood caused %d lookups", n)
		}
		if _, err := s.admit("192.0.2.1:1", good); err != nil {
			t.Errorf("a valid token from the same address: %v", err)
		}
		if _, err := s.admit("192.0.2.2:1", "wrong"); !errors.Is(err, plantstore.ErrBadToken) {
			t.Errorf("another address: %v", err)
		}
		// A token that is created during the flood waits until the cache is loaded again.
		time.Sleep(500 * time.Millisecond)
		fresh, start := s.add(), time.Now()
		if _, err := s.admit("192.0.2.1:1", fresh); err != nil {
			t.Errorf("a new token from the same address: %v", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("a new token waited for %v", took)
		}
		if n := s.store.takeLookups(); n != 1 { // by the other address
			t.Errorf("%d lookups, want 1", n)
		}
		time.Sleep(time.Hour)
		for i := range 2 { // what an hour earned
			if _, err := s.admit("192.0.2.1:1", "wrong"); !errors.Is(err, plantstore.ErrBadToken) {
				t.Errorf("after an hour, attempt %d: %v", i, err)
			}
		}
		if _, err := s.admit("192.0.2.1:1", "a b"); !errors.Is(err, plantstore.ErrRate) {
			t.Errorf("got %v, want ErrRate", err)
		}
	})
}

// When the store is slow, a known token has to be looked up, whatever its address did.
func TestKnownTokenIsLookedUpDuringAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, auth.Options{AuthFailures: parseRate(t, "1/h,burst=1")})
		good := s.add()
		s.run()
		s.admit("192.0.2.1:1", "wrong")
		s.store.set(fail, "ActiveTokens")
		time.Sleep(5 * time.Second)
		if _, err := s.admit("192.0.2.1:1", good); err != nil {
			t.Error(err)
		}
	})
}

func TestFailureOfTheStoreIsNotTheClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, auth.Options{AuthFailures: parseRate(t, "1/h,burst=1")})
		s.store.set(fail, "ActiveTokens", "Token")
		good := s.add()
		for range 3 {
			if _, err := s.admit("192.0.2.1:1", good); !errors.Is(err, plantstore.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
		}
	})
}

// A client that goes on after a number of refusals gets them a second late.
func TestClientThatIgnoresRefusalsIsHeldBack(t *testing.T) {
	for name, wrong := range map[string]bool{"rate limit": false, "failures": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSubject(t, auth.Options{RateLimit: parseRate(t, "1/m,burst=3"), AuthFailures: parseRate(t, "1/m,burst=3")})
				secret := s.add()
				if wrong {
					secret = "wrong"
				}
				start := time.Now()
				for range 6 {
					s.admit("192.0.2.1:1", secret)
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("the first refusals took %v", took)
				}
				for i := range 3 {
					_, err := s.admit("192.0.2.1:1", secret)
					wantRate(t, err, 60-i)
				}
				if took := time.Since(start); took != 3*time.Second {
					t.Errorf("three more took %v, want 3 s", took)
				}
			})
		})
	}
}

func TestSubscribersOfIPv6ShareALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, auth.Options{AuthFailures: parseRate(t, "1/h,burst=1")})
		s.admit("[2001:db8:1:2:3:4:5:6]:1", "wrong")
		s.admit("192.0.2.1:1", "wrong")
		for addr, limited := range map[string]bool{
			"[2001:db8:1:2::1]:1":         true,
			"[2001:db8:1:2:ffff::%en0]:1": true,
			"[2001:db8:1:3::1]:1":         false,
			"[::ffff:192.0.2.1]:1":        true,
			"192.0.2.2:1":                 false,
		} {
			if _, err := s.admit(addr, "wrong"); errors.Is(err, plantstore.ErrRate) != limited {
				t.Errorf("%s: %v, want limited %v", addr, err, limited)
			}
		}
	})
}

func TestFloodFromManyAddressesTakesNoMemory(t *testing.T) {
	s := newSubject(t, auth.Options{AuthFailures: parseRate(t, "1/h,burst=1000000")})
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	send := func(n int) {
		for i := range n {
			s.admit(fmt.Sprintf("[2001:db8:%x:%x::1]:1", i>>16, i&0xffff), "wrong wrong")
			s.admit(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&0xff, i&0xff), "wrong wrong")
		}
	}
	before := heap()
	send(30_000)
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("60,000 addresses take %d KB", grown>>10)
	}
}

func TestAddressOfTheClient(t *testing.T) {
	s := newSubject(t, auth.Options{TrustedProxies: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/64"), netip.MustParsePrefix("127.0.0.1/32"),
	}})
	for _, tt := range []struct {
		name, remote string
		header       []string
		want         string
	}{
		{"no proxy", "192.0.2.1:1", nil, "192.0.2.1"},
		{"untrusted proxy", "192.0.2.1:1", []string{"X-Forwarded-For", "198.51.100.1"}, "192.0.2.1"},
		{"untrusted proxy, standard", "192.0.2.1:1", []string{"Forwarded", "for=198.51.100.1"}, "192.0.2.1"},
		{"trusted proxy without a header", "10.0.0.1:1", nil, "10.0.0.1"},
		{"X-Forwarded-For", "10.0.0.1:1", []string{"X-Forwarded-For", "198.51.100.1"}, "198.51.100.1"},
		{"with a forged hop", "10.0.0.1:1", []string{"X-Forwarded-For", "203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{"two trusted proxies", "10.0.0.1:1", []string{"X-Forwarded-For", "203.0.113.9, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"},
		{"two fields", "10.0.0.1:1", []string{"X-Forwarded-For", "203.0.113.9", "X-Forwarded-For", "198.51.100.1"}, "198.51.100.1"},
		{"only trusted hops", "10.0.0.1:1", []string{"X-Forwarded-For", "10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"a port", "10.0.0.1:1", []string{"X-Forwarded-For", "198.51.100.1:4711"}, "198.51.100.1"},
		{"IPv6", "[2001:db8::1]:1", []string{"X-Forwarded-For", "2001:db8:1::7"}, "2001:db8:1::7"},
		{"IPv6 with brackets", "10.0.0.1:1", []string{"X-Forwarded-For", "[2001:db8:1::7]"}, "2001:db8:1::7"},
		{"IPv4 in IPv6", "[::ffff:10.0.0.1]:1", []string{"X-Forwarded-For", "::ffff:198.51.100.1"}, "198.51.100.1"},
		{"not an address", "10.0.0.1:1", []string{"X-Forwarded-For", "198.51.100.1, unknown"}, "10.0.0.1"},
		{"empty", "10.0.0.1:1", []string{"X-Forwarded-For", ""}, "10.0.0.1"},
		{"Forwarded", "10.0.0.1:1", []string{"Forwarded", `for=198.51.100.1;proto=https;by=10.0.0.1`}, "198.51.100.1"},
		{"Forwarded, any case", "10.0.0.1:1", []string{"Forwarded", `proto=https; For="[2001:db8:1::7]:4711"`}, "2001:db8:1::7"},
		{"Forwarded, forged", "10.0.0.1:1", []string{"Forwarded", `for=203.0.113.9, for=198.51.100.1, for=10.1.1.1`}, "198.51.100.1"},
		{"Forwarded, an open quote", "10.0.0.1:1", []string{"Forwarded", `for="203.0.113.9, for=198.51.100.1`}, "198.51.100.1"},
		{"Forwarded, obfuscated", "10.0.0.1:1", []string{"Forwarded", `for=198.51.100.1, for=_hidden`}, "10.0.0.1"},
		{"Forwarded, no for", "10.0.0.1:1", []string{"Forwarded", `for=198.51.100.1, proto=https`}, "10.0.0.1"},
		{"both agree", "10.0.0.1:1", []string{"Forwarded", "for=198.51.100.1", "X-Forwarded-For", "203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{"one is forged", "10.0.0.1:1", []string{"Forwarded", "for=203.0.113.9", "X-Forwarded-For", "198.51.100.1"}, "10.0.0.1"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tt.remote
		for i := 0; i < len(tt.header); i += 2 {
			r.Header.Add(tt.header[i], tt.header[i+1])
		}
		if got := s.guard.Address(r).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		from := tt.want
		if remote, _ := netip.ParseAddrPort(tt.remote); remote.Addr().Unmap().String() == tt.want {
			from = tt.remote
		}
		if got := s.guard.From(r); got != from {
			t.Errorf("%s: from %s, want %s", tt.name, got, from)
		}
	}
}
