package httpd

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Serve serves the connections of a listener until the server is shut down or
// closed, and then returns [http.ErrServerClosed].
func (s *Server) Serve(l net.Listener) error {
	return s.web.Serve(acceptor{l, s})
}

// acceptor is a listener that starts every connection on the fast path and leaves
// only errors to net/http.
type acceptor struct {
	net.Listener
	server *Server
}

func (a acceptor) Accept() (net.Conn, error) {
	for {
		accepted, err := a.Listener.Accept()
		if err != nil {
			return nil, err
		}
		a.server.start(accepted)
	}
}

// start serves a connection on the fast path, unless there are too many.
func (s *Server) start(accepted net.Conn) {
	counted := &countedConn{Conn: accepted, open: &s.open}
	if n := int(s.open.Add(1)); s.MaxConnections > 0 && n > s.MaxConnections {
		s.refuse(counted, n-s.MaxConnections)
		return
	}
	c := newConn(s, counted)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
	if s.sweeper == nil {
		s.sweeper = time.AfterFunc(sweepInterval, s.sweep)
	}
	if s.tls == nil {
		s.serving.Go(c.serve)
		return
	}
	secured := tls.Server(counted, s.tls)
	c.duplexConn = secured
	go c.handshake(secured)
}

// bufferSize is the largest request that the fast path serves.
const bufferSize = 4 << 10

// buffers holds the buffers of connections that have ended, so that a storm of short
// connections does not keep the garbage collector busy.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// state is what a connection on the fast path is doing.
type state int

const (
	fresh  state = iota // doing the TLS handshake, or waiting for the first request
	idle                // waiting for the next request
	busy                // serving a request
	closed              // ended by the server
)

// conn is a connection on the fast path. It serves one request at a time and reuses
// its memory for the next one.
type conn struct {
	duplexConn
	accepted *countedConn // the connection below TLS, or duplexConn itself
	server   *Server
	cancel   context.CancelFunc // ends the context of the requests
	request  request
	response response

	mu    sync.Mutex // guards state and since
	state state
	since time.Time // when the state was entered
}

func newConn(s *Server, accepted *countedConn) *conn {
	ctx := context.WithValue(context.Background(), http.ServerContextKey, s.web)
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, accepted.LocalAddr())
	ctx, cancel := context.WithCancel(ctx)
	c := &conn{duplexConn: accepted, accepted: accepted, server: s, cancel: cancel, since: time.Now()}
	c.request.init(ctx, accepted.RemoteAddr().String())
	c.response = response{conn: c, header: http.Header{}}
	return c
}

// handshake does the TLS handshake, and then serves requests of HTTP/1.1. All other
// connections are for net/http, even if the handshake failed: net/http gets the same
// error, logs it, and tells a client that speaks plain HTTP.
//
// Shutdown does not wait for a handshake: obtaining a certificate may take minutes.
func (c *conn) handshake(secured *tls.Conn) {
	defer c.server.recovered(c, func() { c.leave(nil) })
	err := secured.Handshake()
	state := secured.ConnectionState()
	c.request.blank.TLS = &state
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if protocol := state.NegotiatedProtocol; err == nil && (protocol == "" || protocol == "http/1.1") && c.enter(fresh) {
		c.server.serving.Go(c.serve)
	} else {
		go c.leave(secured)
	}
}

// serve serves requests, and then hands the connection off or closes it.
func (c *conn) serve() {
	defer c.server.recovered(c, func() { c.leave(nil) })
	buffer := buffers.Get().(*[bufferSize]byte)
	buffered, fallback := c.serveRequests(buffer[:])
	var rest net.Conn
	if fallback {
		rest = replay(c.duplexConn, bytes.Clone(buffered))
	}
	buffers.Put(buffer)
	c.leave(rest)
}

// leave ends the fast path: net/http gets the rest of the connection, or it is closed.
func (c *conn) leave(rest net.Conn) {
	s := c.server
	s.mu.Lock()
	delete(s.conns, c) // after that nothing else closes it
	s.mu.Unlock()
	c.cancel()
	if rest == nil {
		_ = c.Close()
		return
	}
	s.handoff(rest)
}

// handoff hands a connection off to net/http. If the server is stopping, it closes
// the connection, as net/http does with one whose next request comes too late.
func (s *Server) handoff(c net.Conn) {
	l := &singleConnListener{conn: c}
	_ = s.web.Serve(l)
	if l.conn != nil {
		_ = c.Close()
	}
}

// singleConnListener is a listener with one connection to accept.
type singleConnListener struct{ conn net.Conn }

func (l *singleConnListener) Accept() (net.Conn, error) {
	c := l.conn
	if c == nil {
		return nil, net.ErrClosed
	}
	l.conn = nil
	return c, nil
}

func (*singleConnListener) Close() error   { return nil }
func (*singleConnListener) Addr() net.Addr { return nil }

// serveRequests serves requests until the connection ends or a request needs the fallback,
// which has to see the buffered bytes. Between two requests it acts like net/http: it waits
// for four bytes, and after a POST it skips line breaks among them.
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
// handler panics, nothing is sent.
func (c *conn) handle() (reusable bool) {
	c.response.reset()
	c.server.web.Handler.ServeHTTP(&c.response, &c.request.Request)
	reusable, err := c.response.send()
	if err != nil {
		c.server.logf("http: response not sent to %s: %v", c.request.RemoteAddr, err)
	}
	return reusable
}

// enter changes the state, unless the connection is closed, or the server is stopping
// and does not wait for another request.
func (c *conn) enter(next state) bool {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == closed || next != busy && c.server.stopping.Load() {
		return false
	}
	c.state, c.since = next, now
	return true
}

// check ends the connection if it exceeds a timeout, or if the server is stopping and the
// connection serves no request. It cancels a slow request whose client has disconnected.
// When the server is stopping, a fresh connection gets one more sweep interval: its first
// request may be in transit. The connection's own goroutine closes it, because TLS then
// sends a message, which may block.
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
		c.cancel()
		_ = c.accepted.SetDeadline(now)
	} else if c.state == busy && age >= sweepInterval && disconnected(c.accepted.Conn) {
		c.cancel()
	}
}

// duplexConn is a connection that can be closed in each direction.
type duplexConn interface {
	net.Conn
	CloseWrite() error
}

// replay returns the connection with the bytes that were read from it in front of the rest.
func replay(c duplexConn, read []byte) net.Conn {
	all := io.MultiReader(bytes.NewReader(read), c)
	if secured, ok := c.(*tls.Conn); ok {
		return secureReplayConn{secured, all}
	}
	return replayConn{c, all}
}

type replayConn struct {
	duplexConn
	replay io.Reader
}

// secureReplayConn has the method ConnectionState, from which net/http sets the TLS of
// requests.
type secureReplayConn struct {
	*tls.Conn
	replay io.Reader
}

func (c replayConn) Read(b []byte) (int, error)       { return c.replay.Read(b) }
func (c secureReplayConn) Read(b []byte) (int, error) { return c.replay.Read(b) }
