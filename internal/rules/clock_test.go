package rules_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/rules"
)

// testClock is a clock that jumps when ahead changes. Its other times are those of a synctest bubble.
type testClock struct {
	*rules.Clock
	ahead atomic.Int64 // a duration
	log   bytes.Buffer
}

func newTestClock() *testClock {
	c := new(testClock)
	c.Clock = rules.NewClock("server", func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }, slog.New(slog.NewTextHandler(&c.log, nil)))
	return c
}

// wantAgo fails unless what is older than an age may be removed, or nothing may.
func (c *testClock) wantAgo(t *testing.T, when string, age time.Duration, believed bool) {
	t.Helper()
	want := time.Time{}
	if believed {
		want = time.Now().Add(time.Duration(c.ahead.Load()) - age)
	}
	if got := c.Ago(age); !got.Equal(want) {
		t.Errorf("%s: %v ago was %v, want %v", when, age, got, want)
	}
}

// wantTime fails unless the time to record is ahead of the true time by that much.
func (c *testClock) wantTime(t *testing.T, when string, ahead time.Duration) {
	t.Helper()
	if got, want := c.Time(), time.Now().Add(ahead); !got.Equal(want) {
		t.Errorf("%s: the time to record is %v, want %v", when, got, want)
	}
}

const day = 24 * time.Hour

func TestClockIsBelievedAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClock()
		c.wantTime(t, "at the start", 0)
		c.wantAgo(t, "at the start", 7*day, false)
		c.wantAgo(t, "at the start", 10*time.Minute, false)
		time.Sleep(10 * time.Minute)
		c.wantAgo(t, "after ten minutes", 7*day, false)
		c.wantAgo(t, "after ten minutes", 10*time.Minute, true)
		time.Sleep(50 * time.Minute)
		c.wantAgo(t, "after an hour", 7*day, true)
		c.ahead.Store(int64(time.Minute)) // a small correction
		c.wantAgo(t, "after a small step", 7*day, true)
		if c.Jumps() != 0 || c.log.Len() > 0 {
			t.Errorf("%d jumps, and the log has %s", c.Jumps(), &c.log)
		}
	})
}

func TestClockThatIsAheadForAMoment(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Minute, 10 * day, 200 * day, 200 * 365 * day} {
		synctest.Test(t, func(t *testing.T) {
			c := newTestClock()
			time.Sleep(2 * time.Hour)
			c.ahead.Store(int64(ahead))
			for range 3 {
				c.wantAgo(t, "while it is ahead", 7*day, false)
				c.wantTime(t, "while it is ahead", 0)
				time.Sleep(time.Second)
			}
			c.ahead.Store(0)
			c.wantTime(t, "when it is right again", 0)
			c.wantAgo(t, "when it is right again", 7*day, false)
			time.Sleep(time.Hour)
			c.wantAgo(t, "an hour later", 7*day, true)
			c.wantTime(t, "an hour later", 0)
			if n := strings.Count(c.log.String(), "the clock has jumped"); n != 2 || c.Jumps() != 2 {
				t.Errorf("%d jumps, and the log has %d; want 2: there and back\n%s", c.Jumps(), n, &c.log)
			}
		})
	}
}

// A machine was suspended, or its clock was corrected.
func TestClockThatStaysAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClock()
		time.Sleep(2 * time.Hour)
		c.ahead.Store(int64(10 * day))
		c.wantTime(t, "at the jump", 0)
		time.Sleep(time.Minute)
		c.wantTime(t, "a minute later", 10*day)
		c.wantAgo(t, "a minute later", 7*day, false)
		time.Sleep(59 * time.Minute)
		c.wantAgo(t, "an hour later", 7*day, true)
	})
}

func TestClockThatIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClock()
		time.Sleep(2 * time.Hour)
		c.ahead.Store(int64(-10 * day))
		c.wantTime(t, "at the jump", -10*day)
		c.wantAgo(t, "at the jump", 7*day, false)
		time.Sleep(time.Hour)
		c.wantAgo(t, "an hour later", 7*day, true)
	})
}

func TestRunNoticesAJumpThatNobodyAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClock()
		go c.Run(t.Context())
		time.Sleep(2*time.Hour + time.Second/2)
		c.ahead.Store(int64(10 * day))
		time.Sleep(3 * time.Second)
		c.ahead.Store(0)
		time.Sleep(3 * time.Second)
		if c.Jumps() != 2 {
			t.Errorf("%d jumps, want 2", c.Jumps())
		}
	})
}

// A clock that is only observed, such as that of a database, shows nothing before the first time.
func TestClockWithoutAReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := rules.NewClock("database", nil, nil)
		time.Sleep(2 * time.Hour)
		if got := c.Ago(0); !got.IsZero() {
			t.Errorf("without a reading, now is %v", got)
		}
		c.Observe(time.Now())
		time.Sleep(time.Hour)
		if got, want := c.Ago(7*day), time.Now().Add(-7*day); !got.Equal(want) {
			t.Errorf("7 days ago was %v, want %v", got, want)
		}
	})
}

// A token that expires in 90 days has not ended, whatever the caller's clock shows.
func TestEndedTokensByAClockThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClock()
		time.Sleep(2 * time.Hour)
		now := time.Now()
		for _, ahead := range []time.Duration{0, 200 * day} {
			tooMany, tooLongAgo := rules.EndedTokens(c.Clock, now.Add(ahead))
			if tooMany != now.Unix() || tooLongAgo != now.Add(-30*day).Unix() {
				t.Errorf("%v ahead: got %d and %d", ahead, tooMany, tooLongAgo)
			}
		}
		c.ahead.Store(int64(200 * day))
		tooMany, tooLongAgo := rules.EndedTokens(c.Clock, now.Add(200*day))
		if tooMany != now.Unix() || tooLongAgo != (time.Time{}).Unix() {
			t.Errorf("during a jump: got %d and %d", tooMany, tooLongAgo)
		}
	})
}
