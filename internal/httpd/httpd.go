// Package httpd is the HTTP server under the API: it accepts and counts connections, terminates
// TLS, and serves the most important requests of HTTP/1.1 on a fast path. It leaves all other
// requests, and HTTP/2, to net/http.
//
// A connection starts on the fast path, unless its client has chosen HTTP/2. It stays there
// while every request on it is eligible, arrives whole in one read and has the most
// ordinary form (message.go). The first other request hands the connection off to net/http
// permanently, together with the bytes that were read. So net/http alone decides everything
// that is difficult about HTTP; the fast path takes only unambiguous requests.
//
// The package knows nothing of plants. A handler behaves as it does under net/http,
// with these limits on the fast path: it must not use the request, its header or its
// body after it returns (strings taken from them may be kept); the context of the
// request does not end then, but with the connection; and there is no flushing,
// hijacking, informational status, trailer or detection of the Content-Type. A
// response is buffered and sent as a whole.
package httpd

import (
	"cmp"
	"context"
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// sweepInterval is how often the connections on the fast path are checked, and so
// how late a timeout may be.
const sweepInterval = 250 * time.Millisecond

// The limits of an HTTP/2 connection: streams, and bytes of bodies and of a frame that the
// handler has not read. The smallest allowed window would make a distant import slow.
const (
	maxStreams       = 20
	maxReceiveBuffer = 256 << 10
	maxFrame         = 16 << 10
)

// Server serves eligible requests on the fast path and all others with net/http. The fast
// path sets no deadlines, and starts no reads to notice that a client has disconnected:
// that would cost a tenth of a request. Instead, a periodic sweep over its connections does
// both.
type Server struct {
	// MaxConnections is how many connections may be open; 0 is no limit. It must be set
	// before Serve. A connection beyond it is accepted and gets a 503, see OnRefuse. If too
	// many such connections are open too, it is closed.
	MaxConnections int

	refusal  string // the body of the 503
	probe    func(method, path string) bool
	refused  func()
	open     atomic.Int64 // connections, including those that are being refused
	web      *http.Server
	tls      *tls.Config // nil without TLS
	eligible func(method, path string) bool
	timeouts [closed]time.Duration // how long a connection may be in a state; 0 is forever
	stopping atomic.Bool           // Shutdown has been called
	serving  sync.WaitGroup        // counts the connections on the fast path

	mu      sync.Mutex // guards conns and sweeper
	conns   map[*conn]struct{}
	sweeper *time.Timer // not nil while there are connections
}

// New returns a server with the handler, the timeouts and the log of web, which belongs to
// the new server and gets the limits of HTTP/2. If web has a TLSConfig, all connections use
// TLS, with the protocols of its NextProtos. A request for which eligible returns false
// does not take the fast path.
func New(web *http.Server, eligible func(method, path string) bool) *Server {
	web.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame,
		MaxReceiveBufferPerConnection: maxReceiveBuffer, MaxReceiveBufferPerStream: maxReceiveBuffer,
		WriteByteTimeout: web.WriteTimeout,
	}
	return &Server{
		web: web, tls: web.TLSConfig, eligible: eligible, conns: make(map[*conn]struct{}),
		probe: func(string, string) bool { return false }, refused: func() {},
		timeouts: [...]time.Duration{
			fresh: cmp.Or(web.ReadHeaderTimeout, web.ReadTimeout),
			idle:  cmp.Or(web.IdleTimeout, web.ReadTimeout),
			busy:  web.WriteTimeout,
		},
	}
}

// recovered ends a connection if its handler, or TLS, has panicked. The handler logs its
// own panics where they are seen; ErrorLog is only the last resort.
func (s *Server) recovered(c net.Conn, end func()) {
	if err := recover(); err != nil {
		if err != http.ErrAbortHandler {
			s.logf("http: panic serving %s: %v\n%s", c.RemoteAddr(), err, debug.Stack())
		}
		end()
	}
}

func (s *Server) logf(format string, args ...any) {
	cmp.Or(s.web.ErrorLog, log.Default()).Printf(format, args...)
}

// sweep checks the connections on the fast path, and does so again while there are
// any.
func (s *Server) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) == 0 {
		s.sweeper = nil
		return
	}
	now := time.Now()
	for c := range s.conns {
		c.check(now)
	}
	s.sweeper.Reset(sweepInterval)
}

// Shutdown stops the server gracefully: it accepts no more connections, waits
// for responses to requests in flight, and closes idle connections.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopping.Store(true)
	s.sweep()
	err := s.web.Shutdown(ctx) // no connection starts after that
	done := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// OnRefuse configures the treatment of connections beyond the limit: the body of the 503,
// which is JSON; which requests are served nevertheless; and a function to call for each
// refused connection. It must be called before Serve.
func (s *Server) OnRefuse(body string, probe func(method, path string) bool, refused func()) {
	s.refusal, s.probe, s.refused = body, probe, refused
}

// Connections returns how many connections are open.
func (s *Server) Connections() int { return int(s.open.Load()) }

// Close stops the server immediately.
func (s *Server) Close() error {
	err := s.web.Close() // no connection starts after that
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.cancel()
		_ = c.accepted.Close()
	}
	return err
}
