package server

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// lookInterval is how often connections are looked at, and so how late a deadline
// may be.
const lookInterval = 250 * time.Millisecond

// Listener takes the connections of another one and does two things for all of
// them now and then, in [Listener.Run], that net/http does for each request.
//
// It keeps their deadlines: net/http sets four for each request, and a timer for
// each costs a twentieth of a request. And it looks whether callers are still there:
// net/http begins a read for that while a request is handled and interrupts it
// again, which costs as much.
type Listener struct {
	net.Listener
	draining atomic.Bool

	mu    sync.Mutex // guards conns
	conns map[*conn]struct{}
}

// NewListener returns a listener that takes its connections from l.
func NewListener(l net.Listener) *Listener {
	return &Listener{Listener: l, conns: make(map[*conn]struct{})}
}

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, from: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = struct{}{}
	return c, nil
}

// Context returns the context of the requests on a connection of this listener,
// which ends when its caller is gone. It is an [http.Server]'s ConnContext.
func (l *Listener) Context(ctx context.Context, c net.Conn) context.Context {
	ctx, c.(*conn).cancel = context.WithCancel(ctx)
	return ctx
}

// Drain has connections closed on which nothing comes. An orderly stop of net/http
// would wait for five seconds whether they are used after all.
func (l *Listener) Drain() { l.draining.Store(true) }

// Run looks after the connections until ctx ends.
func (l *Listener) Run(ctx context.Context) error {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			l.look(now)
		case <-ctx.Done():
			return nil
		}
	}
}

func (l *Listener) look(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.read.enforce(now, c.Conn.SetReadDeadline)
		c.write.enforce(now, c.Conn.SetWriteDeadline)
		c.attend(l.draining.Load())
	}
}

// conn is a connection that is looked after by its listener.
type conn struct {
	net.Conn
	from        *Listener
	read, write deadline

	cancel  context.CancelFunc // ends the context of its requests
	used    atomic.Bool        // something has been read
	handled atomic.Bool        // a request is handled, and nothing is read meanwhile

	long, unused bool // it was handled, and not used, at the last look; Run's own
}

// Read reads, unless it is net/http's read of one byte by which it learns that a
// caller is gone: that one returns nothing at once, and net/http leaves it at that.
// Whoever else wants a single byte reads again and has it.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 1 && c.handled.CompareAndSwap(false, true) {
		return 0, nil
	}
	c.handled.Store(false)
	n, err := c.Conn.Read(b)
	if n > 0 && !c.used.Load() {
		c.used.Store(true)
	}
	return n, err
}

// attend ends the context of a request that takes long and whose caller is gone, and
// a connection that nobody will use any more.
func (c *conn) attend(draining bool) {
	handled, unused := c.handled.Load(), !c.used.Load()
	if handled && c.long && isClosed(c.Conn) {
		c.cancel()
	}
	if draining && unused && c.unused {
		_ = c.Conn.Close() // who waits for it to be read learns of it
	}
	c.long, c.unused = handled, unused
}

// Close closes the connection, and the listener forgets it.
func (c *conn) Close() error {
	c.from.mu.Lock()
	delete(c.from.conns, c)
	c.from.mu.Unlock()
	return c.Conn.Close()
}

func (c *conn) SetReadDeadline(t time.Time) error {
	return c.read.set(t, c.Conn.SetReadDeadline)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.write.set(t, c.Conn.SetWriteDeadline)
}

func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

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
