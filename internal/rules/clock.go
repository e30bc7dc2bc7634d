package rules

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// clockWait is how long a clock must have agreed with the monotonic one before what is old by
	// it is removed, and clockHold how long until its time is recorded after a jump forward.
	clockWait = time.Hour
	clockHold = time.Minute
	// maxClockStep is how much a clock may change at once without a jump.
	maxClockStep = time.Minute
	// clockInterval is how often Run reads a clock.
	clockInterval = time.Second
)

// Clock says how far a wall clock can be believed, that of the server or of its database. A wall
// clock jumps when it is corrected, when it is wrong for a moment, or when the machine was
// suspended. A Clock notices that: it compares each reading with the monotonic clock of the
// process. It cannot know which time is the true one, so it waits until the two have agreed for a
// while. It does so at the start of the process, too, which has no earlier reading.
type Clock struct {
	Name string // in logs and metrics
	// Wait is how long the clocks must have agreed before anything is removed because of its
	// age: an hour, less in tests.
	Wait time.Duration

	wall func() time.Time
	log  *slog.Logger

	mu       sync.Mutex    // guards what follows
	started  time.Time     // when the first reading was, by the monotonic clock
	agreed   time.Duration // when after that the last jump was
	zero     time.Time     // what the wall clock showed at the start, by its last reading
	recorded time.Time     // the same for the time to record
	jumps    int64
}

// NewClock returns a clock that calls wall to read the time. Without it, only Observe has readings.
// A log, if there is one, gets a record of every jump.
func NewClock(name string, wall func() time.Time, log *slog.Logger) *Clock {
	c := &Clock{Name: name, Wait: clockWait, wall: wall, log: cmp.Or(log, slog.New(slog.DiscardHandler))}
	c.sample()
	return c
}

// Run reads the clock all the time until ctx ends, so that no jump goes unnoticed.
func (c *Clock) Run(ctx context.Context) error {
	tick := time.NewTicker(clockInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			c.sample()
		}
	}
}

func (c *Clock) sample() {
	if c.wall != nil {
		c.Observe(c.wall())
	}
}

// Observe takes note of what the wall clock shows now.
func (c *Clock) Observe(wall time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall = wall.Round(0) // without its monotonic reading
	if c.started.IsZero() {
		c.started, c.zero, c.recorded = time.Now(), wall, wall
		return
	}
	elapsed := time.Since(c.started)
	zero := wall.Add(-elapsed)
	if jump := zero.Sub(c.zero); jump.Abs() > maxClockStep {
		c.jumps++
		c.agreed = elapsed
		c.log.Warn("the clock has jumped: nothing is removed because of its age for a while",
			"clock", c.Name, "by", jump.Round(time.Second), "now", wall.UTC(), "wait", c.Wait)
	}
	c.zero = zero
	if !zero.After(c.recorded) || elapsed-c.agreed >= clockHold {
		c.recorded = zero
	}
}

// Time returns the time to record for what happens now. It is what the wall clock shows, but
// follows a jump forward only after a minute: what was recorded cannot be taken back.
func (c *Clock) Time() time.Time {
	c.sample()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recorded.Add(time.Since(c.started))
}

// Ago returns the time that is an age ago: what is older may be removed, or done, for good. It is
// the zero time, and nothing is older, until the clocks have agreed for that age or for Wait,
// whichever is less.
func (c *Clock) Ago(age time.Duration) time.Time {
	c.sample()
	c.mu.Lock()
	defer c.mu.Unlock()
	elapsed := time.Since(c.started)
	if c.started.IsZero() || elapsed-c.agreed < min(age, c.Wait) {
		return time.Time{}
	}
	return c.zero.Add(elapsed - age)
}

// Jumps returns how often the clock has jumped.
func (c *Clock) Jumps() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jumps
}
