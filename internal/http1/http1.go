// Package http1 serves HTTP/1.1 and spends less on a plain request than net/http.
//
// A connection is served here for as long as plain requests come on it: whole, in
// one piece and in the most ordinary form (request.go). With the first that is not
// plain, the connection is net/http's for good, together with all that was read and
// not answered. So what is difficult about HTTP is decided in one place only, and
// that is net/http; here the one duty is to be sure.
//
// The package knows nothing of plants. An [http.Server] in its place behaves the same,
// for a handler that keeps nothing of a request when it returns and needs no more
// than an answer here can do: no Hijacker, no status before the last, no trailers.
package http1

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// lookInterval is how often connections are looked at, and so how late a deadline
// may be.
const lookInterval = 250 * time.Millisecond

// Server serves plain requests itself and leaves the others to net/http.
//
// For all its connections it does two things now and then that net/http does for
// each request. It keeps their deadlines: net/http sets four for each request, and
// a timer for each costs a twentieth of a request. And it looks whether callers are
// still there: net/http begins a read for that while a request is handled and
// interrupts it again, which costs as much.
type Server struct {
	web      *http.Server
	unusual  chan net.Conn // connections that are net/http's from now on
	failed   chan error    // why a connection could not be accepted
	draining atomic.Bool
	serving  sync.WaitGroup // the connections that are served here

	stopped func() // closes stop, once
	stop    chan struct{}

	mu     sync.Mutex // guards conns, and is held to close closed and to add to serving
	conns  map[*conn]struct{}
	closed chan struct{} // nothing is accepted any more
}

// New returns a server with the handler and the settings of web, which is the new
// server's alone from now on.
func New(web *http.Server) *Server {
	s := &Server{
		web: web, unusual: make(chan net.Conn), failed: make(chan error),
		closed: make(chan struct{}), stop: make(chan struct{}),
		conns: make(map[*conn]struct{}),
	}
	s.stopped = sync.OnceFunc(func() { close(s.stop) })
	web.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		ctx, cancel := context.WithCancel(ctx)
		context.AfterFunc(c.(*conn).ctx, cancel)
		return ctx
	}
	return s
}

// Serve serves the connections of a listener, until the server is shut down or
// closed, and then returns [http.ErrServerClosed].
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.refuses() {
		s.mu.Unlock()
		_ = l.Close() // it is of no use any more
		return http.ErrServerClosed
	}
	s.serving.Add(1)
	s.mu.Unlock()
	go s.accept(l)
	go s.watch()
	defer s.refuseNew()
	return s.web.Serve(handedOver{s, l})
}

// handedOver is the listener that net/http sees.
type handedOver struct {
	s *Server
	net.Listener
}

func (h handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-h.s.unusual:
		return c, nil
	case err := <-h.s.failed:
		return nil, err // net/http knows when to try again
	case <-h.s.closed:
		return nil, http.ErrServerClosed
	}
}

func (h handedOver) Close() error {
	h.s.refuseNew()
	return h.Listener.Close()
}

func (s *Server) accept(l net.Listener) {
	defer s.serving.Done()
	for {
		accepted, err := l.Accept()
		if err == nil {
			s.begin(accepted)
			continue
		}
		select {
		case s.failed <- err:
		case <-s.closed:
			return
		}
	}
}

// begin serves a connection, unless it comes too late.
func (s *Server) begin(accepted net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses() {
		_ = accepted.Close()
		return
	}
	c := newConn(s, accepted)
	s.conns[c] = struct{}{}
	s.serving.Add(1)
	go c.serve()
}

// refuses reports whether nothing is accepted any more. The caller holds mu.
func (s *Server) refuses() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

func (s *Server) refuseNew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.refuses() {
		close(s.closed)
	}
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// handOver gives a connection to net/http, unless that takes none any more.
func (s *Server) handOver(c *conn) {
	select {
	case s.unusual <- c:
	case <-s.closed:
		_ = c.Close() // as net/http does with what comes too late
	}
}

// watch looks after the connections until the server has stopped.
func (s *Server) watch() {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			s.look(now)
		case <-s.stop:
			return
		}
	}
}

func (s *Server) look(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.look(now)
	}
}

// Shutdown ends the server in order: it accepts no more connections, has the
// requests under way answered, and closes the connections that are idle.
func (s *Server) Shutdown(ctx context.Context) error {
	s.draining.Store(true)
	s.look(time.Now())
	err := s.web.Shutdown(ctx)
	s.refuseNew() // also where Serve was never called
	ended := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err == nil {
		s.stopped() // no connection is left that has a deadline
	}
	return err
}

// Close ends the server at once.
func (s *Server) Close() error {
	s.refuseNew()
	err := s.web.Close()
	s.stopped()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.end()
	}
	return err
}
