package http1

import (
	"sync"
	"time"
)

// deadline is one that the connection itself knows only when it is over.
type deadline struct {
	mu       sync.Mutex // guards what follows
	at       time.Time  // zero is never
	enforced bool       // the connection knows it
}

// longAgo is before every deadline that anybody means: net/http interrupts a read
// by the first second of 1970.
var longAgo = time.Unix(1_000_000, 0)

func (d *deadline) set(at time.Time, tell func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
	now := !at.IsZero() && at.Before(longAgo)
	if !now && !d.enforced {
		return nil
	}
	d.enforced = now
	if now {
		return tell(at)
	}
	return tell(time.Time{})
}

func (d *deadline) enforce(now time.Time, tell func(time.Time) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.enforced || d.at.IsZero() || now.Before(d.at) {
		return
	}
	d.enforced = true
	_ = tell(d.at) // it fails where the connection is closed already
}
