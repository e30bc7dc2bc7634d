package server

import (
	"context"
	"errors"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"plantstore"
	"plantstore/internal/auth"
	"plantstore/internal/storetest"
)

// Of 64 requests one address may have 48.
func TestRequestsInFlightAreShared(t *testing.T) {
	guard := auth.New(storetest.NewModel(), auth.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	type request struct {
		n                     int
		from, forwarded, path string
		header                int64
		want                  error // of all of them
		headerOnly            bool  // of the last
	}
	const a, b, plant, ready = "198.51.100.1:1", "198.51.100.2:1", "/plants/1", "/readyz"
	for name, requests := range map[string][]request{
		"an address leaves room for others": {
			{n: 48, from: a, path: plant},
			{n: 1, from: a, path: plant, want: errBusyAddress},
			{n: 1, from: a, path: ready, want: errBusyAddress},
			{n: 14, from: b, path: plant},
			{n: 1, from: b, path: plant, want: errBusy},
			{n: 1, from: b, path: ready},
		},
		"only a few of those that are too many get a body": {
			{n: 48, from: a, path: plant},
			{n: 2, from: a, path: plant, want: errBusyAddress},
			{n: 1, from: a, path: plant, want: errBusyAddress, headerOnly: true},
		},
		"health checks are served to the end": {
			{n: 40, from: a, path: plant},
			{n: 24, from: b, path: plant},
			{n: 8, from: b, path: ready, headerOnly: true},
		},
		"a /64 is one address": {
			{n: 40, from: "[2001:db8::1]:1", path: plant},
			{n: 8, from: "[2001:db8::2]:1", path: plant},
			{n: 1, from: "[2001:db8::3]:1", path: plant, want: errBusyAddress},
		},
		"a trusted proxy is many addresses": {
			{n: 40, from: "192.0.2.1:1", forwarded: "198.51.100.1", path: plant},
			{n: 20, from: "192.0.2.1:1", forwarded: "198.51.100.2", path: plant},
		},
		"a large header is many requests": {
			{n: 4, from: a, path: plant, header: 12*headerUnit - 1},
			{n: 1, from: a, path: plant, want: errBusyAddress},
		},
		"the largest header is one that fits": {{n: 1, from: a, path: plant, header: 1000 * headerUnit}},
	} {
		f := newInFlight(64)
		for f.of(netip.MustParseAddrPort(a).Addr()) == f.of(netip.MustParseAddrPort(b).Addr()) {
			f = newInFlight(64) // who shares a counter is random
		}
		var calls []*call
		for _, request := range requests {
			var c *call
			for range request.n {
				r := httptest.NewRequest("GET", request.path, nil)
				r.RemoteAddr = request.from
				if request.forwarded != "" {
					r.Header.Set("X-Forwarded-For", request.forwarded)
				}
				c = &call{s: &Server{Options: Options{Guard: guard}}, r: r}
				calls = append(calls, c)
				if err := f.enter(c, request.header); err != request.want {
					t.Fatalf("%s: request %d, of %+v: %v", name, len(calls), request, err)
				}
			}
			if c.w.headerOnly != request.headerOnly {
				t.Errorf("%s: the last of %+v: only a header %t", name, request, c.w.headerOnly)
			}
		}
		for _, c := range calls {
			f.leave(c)
		}
		for i := range f.addresses {
			if n := f.addresses[i].Load(); n != 0 || f.all.Load() != 0 {
				t.Fatalf("%s: after all have left, %d and %d are in flight", name, n, f.all.Load())
			}
		}
	}
}

// checkedStore counts how often its readiness is checked.
type checkedStore struct {
	plantstore.Store
	checks int
	err    error
}

func (s *checkedStore) Ready(context.Context) error {
	s.checks++
	return s.err
}

func TestReadinessIsCheckedFiveTimesASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r readiness
		down := errors.New("the store is down")
		store := &checkedStore{}
		for range 3 {
			for _, store.err = range []error{nil, down} {
				for i := range 10 {
					if got := r.check(store); got != store.err {
						t.Fatalf("check %d returned %v, want %v", i, got, store.err)
					}
				}
				time.Sleep(readyFor)
			}
		}
		if store.checks != 6 {
			t.Errorf("the store was checked %d times, want 6", store.checks)
		}
	})
}
