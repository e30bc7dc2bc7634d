package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plantstore"
	"plantstore/internal/auth"
)

// laneTest lets requests with names enter a lane, in a bubble.
type laneTest struct {
	*lane
	t *testing.T

	record           sync.Mutex // guards what follows
	granted, refused []string
}

func onLane(t *testing.T, size int64, maxQueue int, test func(l *laneTest)) {
	synctest.Test(t, func(t *testing.T) {
		l := &laneTest{lane: newLane("test", size, maxQueue, 5*time.Second, "full"), t: t}
		test(l)
		time.Sleep(time.Hour) // in the bubble: every wait ends
		if len(l.waiting) > 0 {
			t.Errorf("%d requests still wait", len(l.waiting))
		}
	})
}

func tokenNamed(name string) (hash plantstore.TokenHash) {
	copy(hash[:], name)
	return hash
}

// enter sends requests, one after the other. The first letter of a name is its token.
func (l *laneTest) enter(names ...string) {
	for _, name := range names {
		go func() {
			err := l.acquire(l.t.Context(), tokenNamed(name[:1]), 1)
			l.record.Lock()
			defer l.record.Unlock()
			if err != nil {
				l.refused = append(l.refused, name)
				return
			}
			l.granted = append(l.granted, name)
		}()
		synctest.Wait()
	}
}

// end ends a request of each token.
func (l *laneTest) end(tokens ...string) {
	for _, token := range tokens {
		l.release(tokenNamed(token), 1)
		synctest.Wait()
	}
}

func (l *laneTest) wantGranted(want ...string) {
	l.t.Helper()
	l.record.Lock()
	defer l.record.Unlock()
	if !slices.Equal(l.granted, want) {
		l.t.Fatalf("%v entered, want %v", l.granted, want)
	}
}

func (l *laneTest) wantRefused(want ...string) {
	l.t.Helper()
	l.record.Lock()
	defer l.record.Unlock()
	if !slices.Equal(l.refused, want) {
		l.t.Fatalf("%v were refused, want %v", l.refused, want)
	}
}

func TestLaneServesTheTokenThatHoldsFewest(t *testing.T) {
	onLane(t, 4, 16, func(l *laneTest) {
		l.enter("a1", "a2", "a3", "b1")
		l.enter("a4", "a5", "a6", "b2", "c1")
		l.wantGranted("a1", "a2", "a3", "b1")
		l.end("a", "a", "a")
		l.wantGranted("a1", "a2", "a3", "b1", "c1", "a4", "a5")
		l.end("b", "b")
		l.wantGranted("a1", "a2", "a3", "b1", "c1", "a4", "a5", "b2", "a6")
		l.wantRefused()
	})
}

func TestLaneNeverGivesAllToOneToken(t *testing.T) {
	onLane(t, 8, 16, func(l *laneTest) {
		l.enter("a1", "a2", "a3", "a4", "a5", "a6", "a7", "b1", "b2")
		l.wantGranted("a1", "a2", "a3", "a4", "a5", "a6", "b1", "b2")
		l.end("b", "b")
		l.wantGranted("a1", "a2", "a3", "a4", "a5", "a6", "b1", "b2")
		l.end("a")
		l.wantGranted("a1", "a2", "a3", "a4", "a5", "a6", "b1", "b2", "a7")
	})
}

func TestLaneRefusesIfTheQueueIsFullOrTheWaitTooLong(t *testing.T) {
	onLane(t, 1, 2, func(l *laneTest) {
		l.enter("a1", "a2", "a3", "a4", "b1")
		l.wantGranted("a1")
		l.wantRefused("a4")
		time.Sleep(5*time.Second - 1)
		synctest.Wait()
		l.wantRefused("a4")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		l.record.Lock()
		slices.Sort(l.refused)
		l.record.Unlock()
		l.wantRefused("a2", "a3", "a4", "b1")
		l.end("a")
		l.enter("a5")
		l.wantGranted("a1", "a5")
		l.end("a")
		if l.used != 0 || len(l.held) != 0 {
			t.Errorf("%d units are in use by %d tokens, want none", l.used, len(l.held))
		}
	})
}

func TestDisconnectedRequestLeavesTheLane(t *testing.T) {
	onLane(t, 1, 16, func(l *laneTest) {
		l.enter("a1")
		ctx, cancel := context.WithCancel(l.t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.acquire(ctx, tokenNamed("b"), 1) }()
		synctest.Wait()
		l.enter("a2")
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		l.end("a")
		l.wantGranted("a1", "a2")
	})
}

// A large request is not overtaken by small ones, which might keep coming forever.
func TestLaneDoesNotStarveLargeRequests(t *testing.T) {
	onLane(t, 8, 16, func(l *laneTest) {
		l.enter("a1", "a2", "a3", "a4")
		ended := make(chan error, 1)
		go func() { ended <- l.acquire(l.t.Context(), tokenNamed("b"), 6) }()
		synctest.Wait()
		if l.tryAcquire(tokenNamed("a"), 1, l.size) {
			t.Error("a token that holds more overtook one that waits")
		}
		l.end("a", "a")
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if l.tryAcquire(tokenNamed("c"), 1, l.size) {
			t.Error("there was room left")
		}
		l.release(tokenNamed("b"), 6)
		if !l.tryAcquire(tokenNamed("c"), 6, l.size) {
			t.Error("there was no room")
		}
	})
}

// A page is sent from its plants and the JSON of one of them.
func TestLargePagesCountTheLargestEncodedPlant(t *testing.T) {
	const mib = 1 << 20
	for name, tt := range map[string]struct {
		plants []plantstore.Plant
		want   int64
	}{
		"small":              {[]plantstore.Plant{{Name: strings.Repeat("x", smallBody/3)}}, 0},
		"letters":            {[]plantstore.Plant{{Name: strings.Repeat("x", mib)}, {Name: strings.Repeat("y", mib)}}, 3*mib + 2*itemBytes},
		"many":               {make([]plantstore.Plant, smallBody), smallBody * itemBytes},
		"control characters": {[]plantstore.Plant{{Name: strings.Repeat("\x01", mib)}, {Tag: plantstore.NewTag(strings.Repeat("\x01", mib))}}, 8*mib + 2*itemBytes},
		"more than a share":  {[]plantstore.Plant{{Name: strings.Repeat("x", mostPages)}}, mostPages * 3 / 4},
	} {
		c := newTestCall(memory)
		release, err := takePage(c, tt.plants, func(p plantstore.Plant) (name, tag string) { return p.Name, p.Tag.String() })
		if used := c.lane(memory).used; err != nil || used != tt.want {
			t.Errorf("%s: %v, %d bytes, want %d", name, err, used, tt.want)
			continue
		}
		release()
		if used := c.lane(memory).used; used != 0 {
			t.Errorf("%s: %d bytes are still held", name, used)
		}
	}
}

// newTestCall returns a call of a route with these lanes, by a caller.
func newTestCall(lanes lanes) *call {
	return &call{s: &Server{lanes: newLanes(time.Second)}, route: &route{lanes: lanes}, caller: &auth.Caller{}}
}

// What is taken without waiting leaves the rest of the lane to others, and a share of its
// own part to other tokens.
func TestLaneKeepsAPartForOthers(t *testing.T) {
	l := newLane("test", 16, 0, 0, "full")
	for _, tt := range []struct {
		token string
		want  bool
	}{{"a", true}, {"a", true}, {"a", true}, {"a", false}, {"b", true}, {"b", false}, {"c", false}} {
		if got := l.tryAcquire(tokenNamed(tt.token), 3, 12); got != tt.want {
			t.Errorf("%s: %v, want %v with %d units in use", tt.token, got, tt.want, l.used)
		}
	}
	if !l.tryAcquire(tokenNamed("c"), 4, 16) {
		t.Error("there is no room for others")
	}
}

// A handler that used a lane which the table of routes does not name would not be limited
// as the table says.
func TestRouteUsesOnlyItsLanes(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a lane of another route was used")
		}
	}()
	_, _ = newTestCall(memory).take(streams, 1, streamsSize)
}
