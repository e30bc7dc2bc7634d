package http1

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// bufferSize is the largest request that the fast path serves.
const bufferSize = 4 << 10

// buffers holds the buffers of connections that have ended, so that a storm of short
// connections does not keep the garbage collector busy.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// state is what a connection on the fast path is doing.
type state int

const (
	fresh  state = iota // Nothing has been read yet.
	idle                // It waits for the next request.
	busy                // It serves a request.
	closed              // The server has closed it.
)

// conn is a connection on the fast path. It serves one request at a time and reuses
// its memory for the next one.
type conn struct {
	net.Conn
	server   *Server
	cancel   context.CancelFunc // ends the context of the requests
	request  request
	response response

	mu    sync.Mutex // guards state and since
	state state
	since time.Time // when the state was entered
}

func newConn(s *Server, accepted net.Conn) *conn {
	ctx := context.WithValue(context.Background(), http.ServerContextKey, s.web)
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, accepted.LocalAddr())
	ctx, cancel := context.WithCancel(ctx)
	c := &conn{Conn: accepted, server: s, cancel: cancel, since: time.Now()}
	c.request.init(ctx, accepted.RemoteAddr().String())
	c.response = response{conn: c, header: http.Header{}}
	return c
}

// serve serves requests, and then hands the connection off or closes it.
func (c *conn) serve() {
	buffer := buffers.Get().(*[bufferSize]byte)
	buffered, fallback := c.serveRequests(buffer[:])
	buffered = bytes.Clone(buffered)
	buffers.Put(buffer)
	s := c.server
	s.mu.Lock()
	delete(s.conns, c) // after that nothing else closes it
	s.mu.Unlock()
	if fallback {
		c.cancel()
		s.handoff(&replayConn{Conn: c.Conn, replay: io.MultiReader(bytes.NewReader(buffered), c.Conn), server: s})
		return
	}
	c.close()
	s.open.Add(-1)
}

// serveRequests serves requests until the connection ends or a request needs the
// fallback, which has to see the buffered bytes.
//
// Between two requests it does what net/http does: it waits for four bytes, and
// after a POST it skips line breaks among them.
func (c *conn) serveRequests(buffer []byte) (buffered []byte, fallback bool) {
	buffered = buffer[:0]
	afterPost := false
	for atLeast := 1; ; atLeast = 4 {
		for len(buffered) < atLeast {
			n, err := c.Read(buffer[len(buffered):])
			if err != nil {
				return nil, false
			}
			buffered = buffer[:len(buffered)+n]
		}
		if !c.enter(busy) {
			return nil, false
		}
		if afterPost {
			buffered = buffered[4-len(bytes.TrimLeft(buffered[:4], "\r\n")):]
		}
		size := c.request.parse(buffered, c.server.eligible)
		if size == 0 {
			return buffered, true
		}
		if !c.handle() || !c.enter(idle) {
			return nil, false
		}
		afterPost = c.request.Method == http.MethodPost
		buffered = buffer[:copy(buffer, buffered[size:])]
	}
}

// handle responds to the request and reports whether another may follow. If the
// handler panics, nothing is sent and the connection is closed. The handler logs its
// own panics where they are seen; ErrorLog is only the last resort.
func (c *conn) handle() (reusable bool) {
	defer func() {
		if err := recover(); err != nil && err != http.ErrAbortHandler {
			c.logf("http: panic serving %s: %v\n%s", c.request.RemoteAddr, err, debug.Stack())
		}
	}()
	c.response.reset()
	c.server.web.Handler.ServeHTTP(&c.response, &c.request.Request)
	reusable, err := c.response.send()
	if err != nil {
		c.logf("http: response not sent to %s: %v", c.request.RemoteAddr, err)
	}
	return reusable
}

func (c *conn) logf(format string, args ...any) {
	cmp.Or(c.server.web.ErrorLog, log.Default()).Printf(format, args...)
}

// enter changes the state, unless the server has closed the connection or is
// stopping and does not wait for another request.
func (c *conn) enter(next state) bool {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == closed || next == idle && c.server.stopping.Load() {
		return false
	}
	c.state, c.since = next, now
	return true
}

// check closes the connection if it exceeds a timeout, or if the server is stopping
// and the connection serves no request. It cancels a slow request whose client has
// disconnected. When the server is stopping, a fresh connection gets one more sweep
// interval: its first request may be in transit.
func (c *conn) check(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == closed {
		return
	}
	age, timeout := now.Sub(c.since), c.server.timeouts[c.state]
	expired := timeout > 0 && age >= timeout
	unused := c.state == idle || c.state == fresh && age >= sweepInterval
	if expired || unused && c.server.stopping.Load() {
		c.state = closed
		c.close()
	} else if c.state == busy && age >= sweepInterval && disconnected(c.Conn) {
		c.cancel()
	}
}

// close closes the connection and cancels its request.
func (c *conn) close() {
	c.cancel()
	_ = c.Conn.Close()
}

// replayConn is a connection that left the fast path. It first replays the bytes that
// were read there.
type replayConn struct {
	net.Conn
	replay io.Reader
	server *Server
	closed atomic.Bool
}

// Close closes the connection, which may be closed more than once, and counts it once.
func (c *replayConn) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) {
		c.server.open.Add(-1)
	}
	return err
}

func (c *replayConn) Read(b []byte) (int, error) { return c.replay.Read(b) }

// CloseWrite is for net/http, which closes a connection in two steps if the client
// may still be sending.
func (c *replayConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
