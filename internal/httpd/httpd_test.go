package httpd

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// net/http sleeps there for half a second before it closes a connection.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// always makes every request eligible.
func always(string, string) bool { return true }

// echo responds with the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = []byte(err.Error())
	}
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, body)
}

const (
	fastRequest     = "GET /plants HTTP/1.1\r\nHost: localhost\r\n\r\n"
	fallbackRequest = "OPTIONS /plants HTTP/1.1\r\nHost: localhost\r\n\r\n"
	partialRequest  = "GET /plants HTTP/1.1\r\nHost: localhost\r\n"
)

// eachPath are requests that are served on the fast path and by the fallback.
var eachPath = map[string]string{"fast path": fastRequest, "fallback": fallbackRequest}

// server is what this package and net/http have in common.
type server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close() error
}

// duplex is one end of a connection in memory that can be closed in each direction.
type duplex struct{ in, out net.Conn }

func newDuplex() (ours, theirs *duplex) {
	in, clientOut := net.Pipe()
	clientIn, out := net.Pipe()
	return &duplex{in, out}, &duplex{clientIn, clientOut}
}

func (d *duplex) Read(b []byte) (int, error)         { return d.in.Read(b) }
func (d *duplex) Write(b []byte) (int, error)        { return d.out.Write(b) }
func (d *duplex) Close() error                       { return errors.Join(d.in.Close(), d.out.Close()) }
func (d *duplex) CloseWrite() error                  { return d.out.Close() }
func (d *duplex) LocalAddr() net.Addr                { return d.in.LocalAddr() }
func (d *duplex) RemoteAddr() net.Addr               { return d.in.RemoteAddr() }
func (d *duplex) SetReadDeadline(t time.Time) error  { return d.in.SetReadDeadline(t) }
func (d *duplex) SetWriteDeadline(t time.Time) error { return d.out.SetWriteDeadline(t) }
func (d *duplex) SetDeadline(t time.Time) error {
	return errors.Join(d.SetReadDeadline(t), d.SetWriteDeadline(t))
}

// listener accepts the connections, and returns the errors, that a test gives it.
type listener struct {
	accepted chan any
	closed   chan struct{}
	close    func()
}

func newListener() *listener {
	l := &listener{accepted: make(chan any), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case accepted := <-l.accepted:
		if err, ok := accepted.(error); ok {
			return nil, err
		}
		return accepted.(net.Conn), nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error { l.close(); return nil }
func (*listener) Addr() net.Addr { return nil }

// give makes Accept return a connection or an error.
func (l *listener) give(t testing.TB, accepted any) {
	t.Helper()
	select {
	case l.accepted <- accepted:
	case <-l.closed:
		t.Fatal("the listener is closed")
	}
}

// running is a server of connections in memory.
type running[S server] struct {
	server   S
	listener *listener
	served   chan error
}

// run serves until the test ends.
func run[S server](t testing.TB, s S) *running[S] {
	t.Helper()
	r := &running[S]{s, newListener(), make(chan error, 1)}
	go func() { r.served <- s.Serve(r.listener) }()
	t.Cleanup(func() { s.Close() })
	return r
}

func runFast(t testing.TB, web *http.Server) *running[*Server] {
	t.Helper()
	if web.Handler == nil {
		web.Handler = http.HandlerFunc(echo)
	}
	return run(t, New(web, always))
}

// dial returns the client's end of a connection that the server has accepted.
func (r *running[S]) dial(t testing.TB) *client {
	t.Helper()
	ours, theirs := newDuplex()
	r.listener.give(t, ours)
	theirs.SetDeadline(time.Now().Add(6 * time.Hour)) // in a bubble this takes no time
	t.Cleanup(func() { theirs.Close() })
	return &client{theirs, bufio.NewReader(theirs), t}
}

// shutdown shuts the server down, and does not wait forever.
func (r *running[S]) shutdown(t testing.TB) error {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
	defer cancel()
	return r.server.Shutdown(ctx)
}

// wantServed checks that Serve has returned because the server was closed.
func (r *running[S]) wantServed(t testing.TB) {
	t.Helper()
	if err := <-r.served; err != http.ErrServerClosed {
		t.Errorf("Serve: %v", err)
	}
}

// client is the client's end of a connection.
type client struct {
	net.Conn
	in *bufio.Reader
	t  testing.TB
}

// send sends a request. If the server has closed the connection, reading the
// response shows it.
func (c *client) send(text string) { io.WriteString(c, text) }

// exchange sends a request, and reads the response if the request is complete.
func (c *client) exchange(text string) {
	c.t.Helper()
	c.send(text)
	if !strings.HasSuffix(text, "\r\n\r\n") {
		return
	}
	if got := c.read(); got.Err != "" {
		c.t.Fatalf("%q: %s", text, got.Err)
	}
}

// wantClosed checks that the server has closed the connection without sending more.
func (c *client) wantClosed() {
	c.t.Helper()
	if b, err := io.ReadAll(c.in); err != nil || len(b) > 0 {
		c.t.Errorf("want a closed connection, got %q and %v", b, err)
	}
}

func TestOnlyEligibleRequestsTakeTheFastPath(t *testing.T) {
	fast := make(chan bool, 1)
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, ok := w.(*response)
		fast <- ok
	})}
	var asked string
	r := run(t, New(web, func(method, path string) bool {
		asked = method + " " + path
		return path == "/eligible"
	}))
	c := r.dial(t)
	for _, x := range []struct {
		line  string
		asked string
		fast  bool
	}{
		{"GET /eligible", "GET /eligible", true},
		{"POST /eligible", "POST /eligible", true},
		{"GET /other", "GET /other", false},
		{"GET /eligible", "", false}, // it stays with net/http
	} {
		asked = ""
		c.exchange(x.line + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if got := <-fast; got != x.fast || asked != x.asked {
			t.Errorf("%s: fast path %v, eligible was called with %q", x.line, got, asked)
		}
	}
}

func TestTimeouts(t *testing.T) {
	const header, idle = 3 * time.Second, 40 * time.Second
	for name, x := range map[string]struct {
		requests []string
		web      *http.Server
		want     time.Duration
	}{
		"nothing sent":                  {nil, &http.Server{ReadHeaderTimeout: header, IdleTimeout: idle}, header},
		"nothing sent, ReadTimeout":     {nil, &http.Server{ReadTimeout: header}, header},
		"after a request":               {[]string{fastRequest}, &http.Server{ReadHeaderTimeout: header, IdleTimeout: idle}, idle},
		"after many":                    {[]string{fastRequest, fastRequest, fastRequest}, &http.Server{IdleTimeout: idle}, idle},
		"after a request, ReadTimeout":  {[]string{fastRequest}, &http.Server{ReadTimeout: header}, header},
		"after a handoff":               {[]string{fallbackRequest}, &http.Server{ReadHeaderTimeout: header, IdleTimeout: idle}, idle},
		"after a handoff, ReadTimeout":  {[]string{fallbackRequest}, &http.Server{ReadTimeout: header}, header},
		"partial request":               {[]string{partialRequest}, &http.Server{ReadHeaderTimeout: header, IdleTimeout: idle}, header},
		"partial request after another": {[]string{fastRequest, partialRequest}, &http.Server{ReadHeaderTimeout: header, IdleTimeout: idle}, header},
		"after a later handoff": {
			[]string{fastRequest, fallbackRequest, fastRequest},
			&http.Server{ReadHeaderTimeout: header, IdleTimeout: idle}, idle,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := runFast(t, x.web).dial(t)
				for _, request := range x.requests {
					time.Sleep(time.Second)
					c.exchange(request)
				}
				start := time.Now()
				c.wantClosed()
				if late := time.Since(start) - x.want; late < 0 || late > sweepInterval {
					t.Errorf("closed after %v, want %v", late+x.want, x.want)
				}
			})
		})
	}
}

func TestConnectionsWithinTheirTimeoutsStayOpen(t *testing.T) {
	for name, x := range map[string]struct{ header, idle, wait time.Duration }{
		"no timeouts":       {0, 0, time.Hour},
		"shorter than idle": {time.Second, time.Minute, 59 * time.Second},
	} {
		for path, request := range eachPath {
			t.Run(name+"/"+path, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := runFast(t, &http.Server{ReadHeaderTimeout: x.header, IdleTimeout: x.idle}).dial(t)
					for range 3 {
						c.exchange(request)
						time.Sleep(x.wait)
					}
				})
			})
		}
	}
}

// A client that does not read its response is disconnected, and so is one whose
// handler takes too long.
func TestWriteTimeout(t *testing.T) {
	const timeout = 10 * time.Second
	for name, x := range map[string]struct {
		body  string
		takes time.Duration
	}{
		"small response": {"a plant", 0},
		"large response": {page, 0},
		"slow handler":   {"a plant", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := runFast(t, &http.Server{
					WriteTimeout: timeout,
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						select {
						case <-r.Context().Done():
						case <-time.After(x.takes):
						}
						io.WriteString(w, x.body)
					}),
				})
				c := r.dial(t)
				start := time.Now()
				c.send(fastRequest)
				if err := r.shutdown(t); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
				if late := time.Since(start) - timeout; late < 0 || late > sweepInterval {
					t.Errorf("the connection was in use for %v", late+timeout)
				}
				c.wantClosed()
			})
		})
	}
}

func TestConnectionsThatEndAreForgotten(t *testing.T) {
	for name, request := range map[string]string{
		"fresh": "", "fast path": fastRequest, "fallback": fallbackRequest, "partial request": partialRequest,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := runFast(t, &http.Server{})
				c := r.dial(t)
				c.exchange(request)
				c.Close()
				synctest.Wait()
				if n := len(r.server.conns); n != 0 {
					t.Errorf("%d connections are kept", n)
				}
				time.Sleep(sweepInterval)
				synctest.Wait()
				if r.server.sweeper != nil {
					t.Error("the server sweeps without connections")
				}
				r.dial(t)
				synctest.Wait()
				if r.server.sweeper == nil {
					t.Error("the server does not sweep another connection")
				}
			})
		})
	}
}

func TestIdleConnectionKeepsSmallBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := page
		r := runFast(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, body)
		})})
		c := r.dial(t)
		c.exchange(fastRequest)
		synctest.Wait()
		if n := len(r.server.conns); n != 1 {
			t.Fatalf("%d connections are on the fast path, want 1", n)
		}
		for kept := range r.server.conns {
			if n := cap(kept.response.head) + cap(kept.response.body); n > 4*bufferSize {
				t.Errorf("%d bytes are kept after a large response", n)
			}
		}
		body = page[:bufferSize]
		c.exchange(fastRequest)
		synctest.Wait()
		if n := len(r.server.conns); n != 1 {
			t.Fatalf("%d connections are on the fast path after the second request, want 1", n)
		}
		for kept := range r.server.conns {
			if cap(kept.response.head) == 0 || cap(kept.response.body) == 0 {
				t.Error("no buffers are kept after a small response")
			}
		}
	})
}

// blocking returns a handler that blocks until it is released or its request is
// cancelled.
func blocking() (h http.HandlerFunc, entered, release chan struct{}) {
	entered, release = make(chan struct{}, 10), make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-release:
			echo(w, r)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}, entered, release
}

func TestShutdownClosesIdleConnectionsImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runFast(t, &http.Server{})
		var clients []*client
		for _, requests := range [][]string{{fastRequest}, {fallbackRequest}, {fastRequest, "GET"}} {
			c := r.dial(t)
			clients = append(clients, c)
			for _, request := range requests {
				c.exchange(request)
			}
		}
		synctest.Wait()
		start := time.Now()
		if err := r.shutdown(t); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		for _, c := range clients {
			c.wantClosed()
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
		r.wantServed(t)
	})
}

func TestShutdownWaitsForRequestsInFlight(t *testing.T) {
	for path, request := range eachPath {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, entered, release := blocking()
				r := runFast(t, &http.Server{Handler: h})
				c := r.dial(t)
				c.send(request)
				<-entered
				stopped := make(chan error, 1)
				go func() { stopped <- r.shutdown(t) }()
				time.Sleep(time.Hour)
				select {
				case err := <-stopped:
					t.Fatalf("Shutdown returned %v", err)
				default:
				}
				close(release)
				if got := c.read(); !strings.HasPrefix(got.Body, request[:3]) || !got.Close {
					t.Errorf("got %+v", got)
				}
				c.wantClosed()
				if err := <-stopped; err != nil {
					t.Errorf("Shutdown: %v", err)
				}
				r.wantServed(t)
			})
		})
	}
}

// The response says that the connection stays open when the shutdown begins.
func TestShutdownClosesAConnectionThatBecomesIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runFast(t, &http.Server{})
		c := r.dial(t)
		c.send(fastRequest)
		synctest.Wait() // the response is being written
		start := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- r.shutdown(t) }()
		synctest.Wait()
		if got := c.read(); got.Status != "200 OK" || got.Close {
			t.Errorf("got %+v", got)
		}
		c.wantClosed()
		if err := <-stopped; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// net/http waits five seconds for the first request of a connection.
func TestShutdownWaitsBrieflyForFreshConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runFast(t, &http.Server{})
		unused, late, fallback := r.dial(t), r.dial(t), r.dial(t)
		synctest.Wait()
		start := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- r.shutdown(t) }()
		synctest.Wait()
		late.send(fastRequest)
		if got := late.read(); got.Status != "200 OK" || !got.Close {
			t.Errorf("the request that was on the way got %+v", got)
		}
		late.wantClosed()
		fallback.send(fallbackRequest)
		fallback.wantClosed() // as net/http closes it
		unused.wantClosed()
		if err := <-stopped; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if took := time.Since(start); took == 0 || took > 2*sweepInterval {
			t.Errorf("it took %v", took)
		}
		r.wantServed(t)
	})
}

// crossing is a connection on which a request arrives while the server ends it.
type crossing struct {
	net.Conn
	ended chan struct{}
}

func (c *crossing) Read(b []byte) (int, error) {
	<-c.ended
	return copy(b, fastRequest), nil
}

func (c *crossing) SetDeadline(time.Time) error { close(c.ended); return nil }

// The client could not find out whether the request was handled.
func TestRequestOnAConnectionThatIsBeingClosedIsNotHandled(t *testing.T) {
	for name, closeIt := range map[string]func(*testing.T, *running[*Server]) error{
		"shutdown": func(t *testing.T, r *running[*Server]) error { return r.shutdown(t) },
		"timeout":  func(*testing.T, *running[*Server]) error { time.Sleep(time.Minute); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := runFast(t, &http.Server{
					ReadHeaderTimeout: 5 * time.Second,
					Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
						t.Error("the request is handled")
					}),
				})
				ours, theirs := net.Pipe()
				defer theirs.Close()
				r.listener.give(t, &crossing{ours, make(chan struct{})})
				if err := closeIt(t, r); err != nil {
					t.Error(err)
				}
				theirs.SetReadDeadline(time.Now().Add(time.Second))
				(&client{theirs, bufio.NewReader(theirs), t}).wantClosed()
			})
		})
	}
}

func TestCloseAfterAShutdownThatTimedOut(t *testing.T) {
	for path, request := range eachPath {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, entered, _ := blocking()
				r := runFast(t, &http.Server{Handler: h})
				c := r.dial(t)
				c.send(request)
				<-entered
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if err := r.server.Shutdown(ctx); err != context.DeadlineExceeded {
					t.Errorf("Shutdown: %v", err)
				}
				r.wantServed(t)
				if err := r.server.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				c.wantClosed()
			})
		})
	}
}

func TestCloseClosesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, entered, _ := blocking()
		mux := http.NewServeMux()
		mux.HandleFunc("/blocking", h)
		mux.HandleFunc("/", echo)
		r := runFast(t, &http.Server{Handler: mux})
		var clients []*client
		for _, request := range []string{"", fastRequest, fallbackRequest, partialRequest} {
			c := r.dial(t)
			clients = append(clients, c)
			c.exchange(request)
		}
		for _, method := range []string{"GET", "OPTIONS"} {
			c := r.dial(t)
			clients = append(clients, c)
			c.send(method + " /blocking HTTP/1.1\r\nHost: localhost\r\n\r\n")
			<-entered
		}
		if err := r.server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		r.wantServed(t)
		for _, c := range clients {
			c.wantClosed()
		}
		synctest.Wait()
		if n := len(r.server.conns); n != 0 {
			t.Errorf("%d connections are kept", n)
		}
	})
}

// lateListener accepts a last connection while it is being closed.
type lateListener struct {
	*listener
	last chan net.Conn
}

func (l lateListener) Accept() (net.Conn, error) {
	<-l.closed
	select {
	case c := <-l.last:
		return c, nil
	default:
		return nil, net.ErrClosed
	}
}

func TestCloseClosesAConnectionThatIsAcceptedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		l := lateListener{newListener(), make(chan net.Conn, 1)}
		l.last <- ours
		s := New(&http.Server{Handler: http.HandlerFunc(echo)}, always)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		<-served
		theirs.SetReadDeadline(time.Now().Add(time.Hour))
		(&client{theirs, bufio.NewReader(theirs), t}).wantClosed()
	})
}

func TestStoppedServerDoesNotServe(t *testing.T) {
	for name, stop := range map[string]func(*Server) error{
		"closed":    (*Server).Close,
		"shut down": func(s *Server) error { return s.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := New(&http.Server{}, always)
			if err := stop(s); err != nil {
				t.Fatal(err)
			}
			l := newListener()
			if err := s.Serve(l); err != http.ErrServerClosed {
				t.Errorf("Serve: %v", err)
			}
			select {
			case <-l.closed:
			default:
				t.Error("the listener is open")
			}
		})
	}
}

// temporary is an error after which net/http accepts again.
type temporary struct{ error }

func (temporary) Timeout() bool   { return false }
func (temporary) Temporary() bool { return true }

func TestErrorsOfAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runFast(t, &http.Server{ErrorLog: log.New(io.Discard, "", 0)})
		start := time.Now()
		for range 3 {
			r.listener.give(t, temporary{errors.New("too many open files")})
		}
		c := r.dial(t)
		if took := time.Since(start); took == 0 || took > time.Second {
			t.Errorf("after temporary errors it accepts after %v", took)
		}
		c.exchange(fastRequest)
		permanent := errors.New("no such socket")
		r.listener.give(t, permanent)
		if err := <-r.served; err != permanent {
			t.Errorf("Serve: %v", err)
		}
		select {
		case <-r.listener.closed:
		default:
			t.Error("the listener is open")
		}
		c.exchange(fastRequest)
		c.exchange(fallbackRequest)
	})
}

// serveTCP serves until the test ends, and returns the address.
func serveTCP(t testing.TB, s server) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

func dialTCP(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() { c.Close() })
	return &client{c, bufio.NewReader(c), t}
}

func TestRequestIsCancelledWhenItsClientDisconnects(t *testing.T) {
	cancelled := map[string]chan struct{}{}
	for name, leave := range map[string]func(*net.TCPConn) error{
		"closed":      (*net.TCPConn).Close,
		"half closed": (*net.TCPConn).CloseWrite,
		"reset": func(c *net.TCPConn) error {
			return errors.Join(c.SetLinger(0), c.Close())
		},
	} {
		for kind, x := range map[string]struct{ send, method string }{
			"fast path":           {fastRequest, "GET"},
			"with a body":         {fastRequest + post("Content-Length: 2\r\n", "{}"), "POST"},
			"fallback":            {fastRequest + fallbackRequest, "OPTIONS"},
			"fallback, long body": {post("Content-Length: 9999\r\n", strings.Repeat("a", 9999)), "POST"},
		} {
			entered, done := make(chan struct{}), make(chan struct{})
			c := dialTCP(t, serveTCP(t, New(&http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.Method != x.method {
					return
				}
				io.Copy(io.Discard, r.Body)
				close(entered)
				<-r.Context().Done()
				close(done)
			})}, always)))
			c.send(x.send)
			<-entered
			if err := leave(c.Conn.(*net.TCPConn)); err != nil {
				t.Fatal(err)
			}
			cancelled[name+"/"+kind] = done
		}
	}
	limit := time.After(time.Minute)
	for name, done := range cancelled {
		select {
		case <-done:
		case <-limit:
			t.Fatalf("the request of %s was not cancelled", name)
		}
	}
}

// On a connection that was handed off, net/http reads while the handler runs.
func TestFallbackNoticesADisconnectedClientImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, entered, _ := blocking()
		r := runFast(t, &http.Server{Handler: h})
		c := r.dial(t)
		c.send(fallbackRequest)
		<-entered
		start := time.Now()
		c.Close()
		if err := r.shutdown(t); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if took := time.Since(start); took >= sweepInterval {
			t.Errorf("it took %v", took)
		}
	})
}

// A client that has sent its next request already is not a disconnected one.
func TestRequestContinuesWhileItsClientWaits(t *testing.T) {
	for name, x := range map[string]struct {
		request string
		config  *tls.Config
	}{
		"nothing sent": {}, "another request": {fastRequest, nil}, "a fallback request": {fallbackRequest, nil},
		"nothing sent, TLS": {"", serverTLS()}, "another request, TLS": {fastRequest, serverTLS()},
	} {
		t.Run(name, func(t *testing.T) {
			request := x.request
			h, entered, release := blocking()
			s := New(&http.Server{Handler: h, TLSConfig: x.config}, always)
			c := dialTCP(t, serveTCP(t, s))
			if x.config != nil {
				c = c.secure(clientTLS())
			}
			c.send(fastRequest)
			<-entered
			c.send(request)
			s.mu.Lock()
			for waiting := range s.conns {
				waiting.check(time.Now().Add(time.Hour))
			}
			s.mu.Unlock()
			close(release)
			for range strings.Count(fastRequest+request, "\r\n\r\n") {
				if got := c.read(); got.Status != "200 OK" {
					t.Errorf("got %+v", got)
				}
			}
		})
	}
}

func TestContextHasServerAndAddress(t *testing.T) {
	for path, request := range eachPath {
		t.Run(path, func(t *testing.T) {
			web := &http.Server{}
			known := make(chan bool, 1)
			web.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
				known <- r.Context().Value(http.ServerContextKey) == web && addr != nil
			})
			runFast(t, web).dial(t).exchange(request)
			if !<-known {
				t.Error("the context has no server or no address")
			}
		})
	}
}
