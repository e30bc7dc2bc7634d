package http1

import (
	"cmp"
	"context"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// bufferSize is the longest request that is plain.
const bufferSize = 4 << 10

// What a connection is doing. Only an idle one is closed by an orderly stop.
const (
	idle  int32 = iota
	busy        // with a request that is handled here
	ended       // or net/http's
)

// conn is a connection that is looked after by its server.
type conn struct {
	net.Conn
	server      *Server
	read, write deadline

	ctx    context.Context // of its requests; it ends when the caller is gone
	cancel context.CancelFunc

	state   atomic.Int32
	used    atomic.Bool // something has been read
	handled atomic.Bool // net/http handles a request, and nothing is read meanwhile

	rest []byte // was read, and is for net/http to read again

	long, unused bool // it was busy, and not used, at the last look; look's own
}

func newConn(s *Server, accepted net.Conn) *conn {
	c := &conn{Conn: accepted, server: s}
	ctx := context.WithValue(context.Background(), http.ServerContextKey, s.web)
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, accepted.LocalAddr())
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c
}

// serve answers plain requests until there are no more, or one is not plain.
func (c *conn) serve() {
	defer c.server.serving.Done()
	c.servePlain()
	if len(c.rest) > 0 {
		c.server.handOver(c)
	} else {
		_ = c.Close()
	}
}

// servePlain leaves a request that is not plain, and what follows it, in c.rest.
func (c *conn) servePlain() {
	web := c.server.web
	x := newExchange(c)
	buffer := make([]byte, bufferSize)
	patience := cmp.Or(web.ReadHeaderTimeout, web.ReadTimeout)
	for !c.server.draining.Load() || !c.used.Load() {
		_ = c.SetReadDeadline(in(patience))
		n, err := c.Conn.Read(buffer)
		if err != nil || !c.state.CompareAndSwap(idle, busy) {
			return
		}
		c.used.Store(true)
		patience = cmp.Or(web.IdleTimeout, web.ReadTimeout)
		for b := x.request.skipEmptyLines(buffer[:n]); len(b) > 0; b = x.request.skipEmptyLines(b) {
			size := x.request.parse(b)
			if size == 0 {
				c.rest = b
				_ = c.SetDeadline(time.Time{}) // net/http sets its own
				c.state.Store(ended)
				return
			}
			_ = c.SetWriteDeadline(in(web.WriteTimeout))
			if !x.handle(web.Handler, web.ErrorLog) {
				return
			}
			b = b[size:]
		}
		c.state.Store(idle)
	}
}

// in returns the time in a while, or never if there is no limit.
func in(while time.Duration) time.Time {
	if while <= 0 {
		return time.Time{}
	}
	return time.Now().Add(while)
}

// exchange is a request and its answer. A connection has one, and uses it again and
// again.
type exchange struct {
	request  request
	response response
}

func newExchange(c *conn) *exchange {
	x := &exchange{response: response{conn: c, header: http.Header{}}}
	x.request.blank = *(&http.Request{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, URL: &x.request.url,
		Header: http.Header{}, RemoteAddr: c.RemoteAddr().String(),
	}).WithContext(c.ctx)
	return x
}

// handle has the request answered, and reports whether another one may follow.
func (x *exchange) handle(h http.Handler, errorLog *log.Logger) (more bool) {
	x.response.begin()
	defer func() {
		if err := recover(); err != nil {
			more = false
			if err != http.ErrAbortHandler && errorLog != nil {
				errorLog.Printf("http: panic serving %s: %v\n%s", x.request.RemoteAddr, err, debug.Stack())
			}
		}
		x.response.release()
	}()
	h.ServeHTTP(&x.response, &x.request.Request)
	return x.response.finish()
}

// Read is net/http's. It reads what was read before, and then the connection,
// unless it is the read of one byte by which net/http learns that a caller is gone:
// that one returns nothing at once, and net/http leaves it at that. Whoever else
// wants a single byte reads again and has it.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 1 && c.handled.CompareAndSwap(false, true) {
		return 0, nil
	}
	c.handled.Store(false)
	if len(c.rest) > 0 {
		n := copy(b, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	c.rest = nil
	return c.Conn.Read(b)
}

// look enforces the deadlines. It ends the context of a request that takes long and
// whose caller is gone and, in an orderly stop, a connection that nobody uses. One
// that was never used has some time, since its first request may be on the way.
func (c *conn) look(now time.Time) {
	c.read.enforce(now, c.Conn.SetReadDeadline)
	c.write.enforce(now, c.Conn.SetWriteDeadline)
	handled := c.state.Load() == busy || c.handled.Load()
	if handled && c.long && isClosed(c.Conn) {
		c.cancel()
	}
	unused := !c.used.Load()
	if c.server.draining.Load() && (!unused || c.unused) && c.state.CompareAndSwap(idle, ended) {
		_ = c.Conn.Close() // who waits for it to be read learns of it
	}
	c.long, c.unused = handled, unused
}

// CloseWrite tells the caller that nothing more comes, if the connection can do that.
// net/http does so before it closes one on which something was not read.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the connection, and the server forgets it.
func (c *conn) Close() error {
	c.server.forget(c)
	return c.end()
}

func (c *conn) end() error {
	c.cancel()
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
