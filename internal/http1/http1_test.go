package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipes is a listener whose connections, and errors, are handed to it.
type pipes struct {
	accepted chan any
	done     chan struct{}
	close    func()
}

func newPipes() *pipes {
	p := &pipes{accepted: make(chan any), done: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.done) })
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case accepted := <-p.accepted:
		if err, failed := accepted.(error); failed {
			return nil, err
		}
		return accepted.(net.Conn), nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.close(); return nil }
func (*pipes) Addr() net.Addr { return nil }

// dial returns the other end of a connection that was accepted.
func (p *pipes) dial(t testing.TB) *caller {
	t.Helper()
	ours, theirs := net.Pipe()
	p.hand(t, ours)
	theirs.SetDeadline(time.Now().Add(6 * time.Hour)) // mostly of a bubble's time
	t.Cleanup(func() { theirs.Close() })
	return &caller{theirs, bufio.NewReader(theirs), t}
}

// hand has the listener return a connection or an error.
func (p *pipes) hand(t testing.TB, accepted any) {
	t.Helper()
	select {
	case p.accepted <- accepted:
	case <-p.done:
		t.Fatal("the listener is closed")
	}
}

// serving is a server of pipes.
type serving struct {
	*Server
	*pipes
	served chan error
}

// servePipes serves until the test ends.
func servePipes(t testing.TB, web *http.Server) *serving {
	t.Helper()
	s := &serving{New(web), newPipes(), make(chan error, 1)}
	go func() { s.served <- s.Serve(s.pipes) }()
	t.Cleanup(func() { s.Server.Close() })
	return s
}

// shutdown shuts the server down, and does not wait forever.
func (s *serving) shutdown(t testing.TB) error {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
	defer cancel()
	return s.Shutdown(ctx)
}

// ended checks that Serve has returned as it does when the server was closed.
func (s *serving) ended(t testing.TB) {
	t.Helper()
	if err := <-s.served; err != http.ErrServerClosed {
		t.Errorf("Serve: %v", err)
	}
}

// ended checks that nothing more comes.
func (c *caller) ended() {
	c.t.Helper()
	if b, err := io.ReadAll(c.in); err != nil || len(b) > 0 {
		c.t.Errorf("instead of the end came %q and %v", b, err)
	}
}

// unusually is a request that is net/http's, and whose answer has a body.
const unusually = "PATCH /unusual HTTP/1.1\r\nHost: localhost\r\n\r\n"

const partOfOne = "GET / HTTP/1.1\r\nHost: localhost\r\n"

// echo answers with what was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = []byte(err.Error())
	}
	fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, body)
}

// watched returns both ends of a connection, the first of which is looked after by
// a server.
func watched(t *testing.T) (ours *conn, theirs net.Conn) {
	t.Helper()
	accepted, theirs := net.Pipe()
	s := New(&http.Server{})
	go s.watch()
	t.Cleanup(func() {
		s.Close()
		theirs.Close()
	})
	ours = newConn(s, accepted)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[ours] = struct{}{}
	return ours, theirs
}

func TestDeadlinesAreEnforced(t *testing.T) {
	for name, call := range map[string]struct {
		set func(net.Conn, time.Time) error
		use func(net.Conn, []byte) (int, error)
	}{
		"read":       {net.Conn.SetReadDeadline, net.Conn.Read},
		"write":      {net.Conn.SetWriteDeadline, net.Conn.Write},
		"both read":  {net.Conn.SetDeadline, net.Conn.Read},
		"both write": {net.Conn.SetDeadline, net.Conn.Write},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, _ := watched(t)
				began := time.Now()
				for _, deadline := range []time.Duration{time.Second, 5 * time.Second} {
					// The second comes after the first was over, and counts anew.
					if err := call.set(ours, began.Add(deadline)); err != nil {
						t.Fatal(err)
					}
					if _, err := call.use(ours, make([]byte, 2)); !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the call ended with %v", err)
					}
					if late := time.Since(began) - deadline; late < 0 || late > lookInterval {
						t.Errorf("the call ended %v after its deadline", late)
					}
				}
			})
		})
	}
}

func TestDeadlineThatMovesOnDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := watched(t)
		for range 5 {
			ours.SetReadDeadline(time.Now().Add(time.Second))
			time.Sleep(700 * time.Millisecond)
		}
		ours.SetReadDeadline(time.Time{})
		go func() {
			time.Sleep(time.Hour)
			theirs.Write([]byte("x"))
		}()
		if _, err := ours.Read(make([]byte, 2)); err != nil {
			t.Errorf("a read without a deadline: %v", err)
		}
	})
}

// net/http interrupts a read by a deadline that was over long ago, and takes it
// back.
func TestDeadlineOfLongAgoCountsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := watched(t)
		began := time.Now()
		go func() {
			time.Sleep(time.Millisecond)
			ours.SetReadDeadline(time.Unix(1, 0))
		}()
		if _, err := ours.Read(make([]byte, 2)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the read ended with %v", err)
		}
		if took := time.Since(began); took != time.Millisecond {
			t.Errorf("the read ended after %v", took)
		}
		ours.SetReadDeadline(time.Time{})
		go theirs.Write([]byte("x"))
		if _, err := ours.Read(make([]byte, 2)); err != nil {
			t.Errorf("a read when the deadline was taken back: %v", err)
		}
	})
}

func TestClosedConnectionsAreForgotten(t *testing.T) {
	ours, _ := watched(t)
	ours.Close()
	ours.Close()
	if n := len(ours.server.conns); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
	if ours.ctx.Err() == nil {
		t.Error("requests of a closed connection go on")
	}
}

// Whoever leaves is forgotten, whoever served it.
func TestConnectionsThatEndAreForgotten(t *testing.T) {
	for name, ask := range map[string]string{
		"unused": "", "plain": askPlain, "handed over": unusually, "part of a header": partOfOne,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := servePipes(t, &http.Server{Handler: http.HandlerFunc(echo)})
				c := s.dial(t)
				c.send(ask)
				if strings.HasSuffix(ask, "\r\n\r\n") {
					c.read()
				}
				c.Close()
				synctest.Wait()
				if n := len(s.conns); n != 0 {
					t.Errorf("%d connections are kept", n)
				}
			})
		})
	}
}

// A read of one byte is net/http's own, unless it is asked again.
func TestSingleByteIsReadWhenAskedAgain(t *testing.T) {
	ours, theirs := watched(t)
	go theirs.Write([]byte("xyz"))
	one := make([]byte, 1)
	for i, want := range []string{"", "x", "", "y"} {
		n, err := ours.Read(one)
		if got := string(one[:n]); got != want || err != nil {
			t.Errorf("read %d returned %q and %v, want %q", i+1, got, err, want)
		}
	}
}

// A part of a header can leave room for a single byte in net/http's buffer.
func TestHeaderThatFillsTheBufferButOneByte(t *testing.T) {
	c := servePipes(t, &http.Server{Handler: http.NotFoundHandler()}).dial(t)
	start := "GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: "
	// A write to a pipe ends when all of it has been read.
	c.send(start + strings.Repeat("a", bufferSize-1-len(start)))
	go c.send("aa\r\n\r\n")
	if a := c.read(); a.Status != "404 Not Found" {
		t.Errorf("the answer is %+v", a)
	}
}

// Whoever serves a request, all are answered in their order, and handled once.
func TestRequestsAreAnsweredInTheirOrder(t *testing.T) {
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n" }
	put := func(path, body string) string {
		return fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	}
	for name, x := range map[string]struct {
		pieces []string // each is sent when the one before was read
		want   []string // what is handled; all but the bodies of HEAD is answered
	}{
		"plain": {
			[]string{get("/1") + put("/2", "two") + get("/3?a=b"), get("/4"), put("/5", "") + get("/6")},
			[]string{"GET /1 ", "PUT /2 two", "GET /3?a=b ", "GET /4 ", "PUT /5 ", "GET /6 "},
		},
		"more than the buffer": {
			[]string{strings.Repeat(put("/1", strings.Repeat("a", 1000)), 5)},
			slices.Repeat([]string{"PUT /1 " + strings.Repeat("a", 1000)}, 5),
		},
		"HEAD": {
			[]string{get("/1") + "HEAD /2 HTTP/1.1\r\nHost: localhost\r\n\r\n" + get("/3"), get("/4")},
			[]string{"GET /1 ", "HEAD /2 ", "GET /3 ", "GET /4 "},
		},
		"chunked body": {
			[]string{get("/1") + "POST /2 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
				"3\r\ntwo\r\n0\r\n\r\n" + get("/3")},
			[]string{"GET /1 ", "POST /2 two", "GET /3 "},
		},
		"header in two pieces": {
			[]string{get("/1") + "GET /2 HT", "TP/1.1\r\nHost: localhost\r\n\r\n" + get("/3"), get("/4")},
			[]string{"GET /1 ", "GET /2 ", "GET /3 ", "GET /4 "},
		},
		"header in single bytes": {strings.Split(get("/1")+get("/2"), ""), []string{"GET /1 ", "GET /2 "}},
		"body in two pieces": {
			[]string{put("/1", "one") + strings.TrimSuffix(put("/2", "two"), "wo"), "wo" + put("/3", "three"), get("/4")},
			[]string{"PUT /1 one", "PUT /2 two", "PUT /3 three", "GET /4 "},
		},
		"long header": {
			[]string{get("/1"), "GET /2 HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("a", 5<<10) +
				"\r\n\r\n" + get("/3"), get("/4")},
			[]string{"GET /1 ", "GET /2 ", "GET /3 ", "GET /4 "},
		},
		"long body": {
			[]string{get("/1") + put("/2", strings.Repeat("a", 10_000)) + get("/3")},
			[]string{"GET /1 ", "PUT /2 " + strings.Repeat("a", 10_000), "GET /3 "},
		},
		"Expect": {
			[]string{
				get("/1") + "PUT /2 HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
				"two" + get("/3"), get("/4"),
			},
			[]string{"GET /1 ", "PUT /2 two", "GET /3 ", "GET /4 "},
		},
		"empty line behind a body": {
			[]string{post("Content-Length: 3\r\n", "one") + "\r\n" + post("", "") + "\r\n\r\n", "\r\n", get("/3")},
			[]string{"POST /plants one", "POST /plants ", "GET /3 "},
		},
		"HTTP/1.0": {
			[]string{get("/1") + get("/2") + "GET /3 HTTP/1.0\r\n\r\n"},
			[]string{"GET /1 ", "GET /2 ", "GET /3 "},
		},
		"no request": {
			[]string{get("/1") + "nonsense\r\n\r\n" + get("/2")},
			[]string{"GET /1 ", "400 Bad Request"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var handled []string
			c := servePipes(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				said := fmt.Sprintf("%s %s %s", r.Method, r.URL, body)
				mu.Lock()
				handled = append(handled, said)
				mu.Unlock()
				io.WriteString(w, said)
			})}).dial(t)
			c.SetDeadline(time.Now().Add(10 * time.Second))
			go func() {
				for _, piece := range x.pieces {
					c.send(piece)
				}
			}()
			wantHandled := x.want
			for i, want := range x.want {
				method, _, _ := strings.Cut(want, " ")
				a := c.readTo(method)
				if strings.HasPrefix(a.Status, "100 ") {
					a = c.readTo(method)
				}
				if method == http.MethodHead {
					want = ""
				} else if strings.HasPrefix(want, "400 ") {
					wantHandled = x.want[:i]
				}
				if a.Body != want || a.Err != "" || a.BodyErr != "" {
					t.Fatalf("answer %d is %+v, want %q", i+1, a, want)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(handled, wantHandled) {
				t.Errorf("handled are %q", handled)
			}
		})
	}
}

func TestQuietConnectionsAreClosed(t *testing.T) {
	const header, idle = 3 * time.Second, 40 * time.Second
	for name, x := range map[string]struct {
		ask  []string
		web  *http.Server
		want time.Duration
	}{
		"nothing sent":            {nil, &http.Server{ReadHeaderTimeout: header, IdleTimeout: idle}, header},
		"nothing sent, one limit": {nil, &http.Server{ReadTimeout: header}, header},
		"after a plain request":   {[]string{askPlain}, &http.Server{ReadHeaderTimeout: header, IdleTimeout: idle}, idle},
		"after many":              {[]string{askPlain, askPlain, askPlain}, &http.Server{IdleTimeout: idle}, idle},
		"plain, one limit":        {[]string{askPlain}, &http.Server{ReadTimeout: header}, header},
		"handed over":             {[]string{unusually}, &http.Server{ReadHeaderTimeout: header, IdleTimeout: idle}, idle},
		"handed over later": {
			[]string{askPlain, unusually, askPlain},
			&http.Server{ReadHeaderTimeout: header, IdleTimeout: idle}, idle,
		},
		"part of a header": {[]string{partOfOne}, &http.Server{ReadHeaderTimeout: header, IdleTimeout: idle}, header},
		"part of a header later": {
			[]string{askPlain, partOfOne}, &http.Server{ReadHeaderTimeout: header, IdleTimeout: idle}, header,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x.web.Handler = http.HandlerFunc(echo)
				c := servePipes(t, x.web).dial(t)
				for _, ask := range x.ask {
					time.Sleep(time.Second)
					c.send(ask)
					if !strings.HasSuffix(ask, "\r\n\r\n") {
						continue
					}
					if a := c.read(); a.Err != "" {
						t.Fatal(a.Err)
					}
				}
				began := time.Now()
				c.ended()
				if late := time.Since(began) - x.want; late < 0 || late > lookInterval {
					t.Errorf("it was closed after %v, want %v", late+x.want, x.want)
				}
			})
		})
	}
}

// Without limits, and within them, nothing is closed.
func TestConnectionsMayWait(t *testing.T) {
	for name, x := range map[string]struct{ header, idle, wait time.Duration }{
		"no limits":         {0, 0, time.Hour},
		"shorter than idle": {time.Second, time.Minute, 59 * time.Second},
	} {
		for kind, ask := range map[string]string{"plain": askPlain, "handed over": unusually} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := servePipes(t, &http.Server{
						Handler: http.HandlerFunc(echo), ReadHeaderTimeout: x.header, IdleTimeout: x.idle,
					}).dial(t)
					for range 3 {
						c.send(ask)
						if a := c.read(); a.Err != "" {
							t.Fatal(a.Err)
						}
						time.Sleep(x.wait)
					}
				})
			})
		}
	}
}

// What a handler set as a deadline ends with its request, also where net/http
// serves the next one.
func TestDeadlinesOfAHandlerAreForItsRequest(t *testing.T) {
	for name, next := range map[string]string{"plain": askPlain, "handed over": unusually} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := servePipes(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/first" {
						c := http.NewResponseController(w)
						soon := time.Now().Add(time.Second)
						if err := errors.Join(c.SetReadDeadline(soon), c.SetWriteDeadline(soon)); err != nil {
							t.Error(err)
						}
					}
				})}).dial(t)
				c.send("GET /first HTTP/1.1\r\nHost: localhost\r\n\r\n")
				if a := c.read(); a.Err != "" {
					t.Fatal(a.Err)
				}
				time.Sleep(time.Minute)
				c.send(next)
				time.Sleep(time.Second) // which the answer waits to be read
				if a := c.read(); a.Err != "" {
					t.Errorf("the next request: %s", a.Err)
				}
			})
		})
	}
}

// held returns a handler that says when it has begun, and ends when it is released
// or its request is over.
func held() (h http.HandlerFunc, begun, release chan struct{}) {
	begun, release = make(chan struct{}, 10), make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		select {
		case <-release:
			echo(w, r)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}, begun, release
}

func TestShutdownClosesIdleConnectionsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servePipes(t, &http.Server{Handler: http.HandlerFunc(echo)})
		plain, handedOver := s.dial(t), s.dial(t)
		plain.send(askPlain)
		handedOver.send(unusually)
		for _, c := range []*caller{plain, handedOver} {
			if a := c.read(); a.Err != "" {
				t.Fatal(a.Err)
			}
		}
		synctest.Wait()
		began := time.Now()
		if err := s.shutdown(t); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		plain.ended()
		handedOver.ended()
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		s.ended(t)
	})
}

func TestShutdownAwaitsAnswers(t *testing.T) {
	for name, ask := range map[string]string{"plain": askPlain, "handed over": unusually} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, begun, release := held()
				s := servePipes(t, &http.Server{Handler: h})
				c := s.dial(t)
				c.send(ask)
				<-begun
				stopped := make(chan error, 1)
				go func() { stopped <- s.shutdown(t) }()
				time.Sleep(time.Hour)
				select {
				case err := <-stopped:
					t.Fatalf("Shutdown returned %v", err)
				default:
				}
				close(release)
				if a := c.read(); !strings.HasPrefix(a.Body, ask[:4]) || !a.Close {
					t.Errorf("the answer is %+v", a)
				}
				c.ended()
				if err := <-stopped; err != nil {
					t.Errorf("Shutdown: %v", err)
				}
				s.ended(t)
			})
		})
	}
}

// net/http itself would wait for five seconds.
func TestUnusedConnectionDoesNotDelayAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servePipes(t, &http.Server{Handler: http.HandlerFunc(echo)})
		unused, late := s.dial(t), s.dial(t)
		synctest.Wait()
		began := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- s.shutdown(t) }()
		synctest.Wait()
		// The request was on the way.
		late.send(askPlain)
		if a := late.read(); a.Status != "200 OK" || !a.Close {
			t.Errorf("the late answer is %+v", a)
		}
		late.ended()
		unused.ended()
		if err := <-stopped; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if took := time.Since(began); took == 0 || took > 2*lookInterval {
			t.Errorf("it took %v", took)
		}
		s.ended(t)
	})
}

// crossing is a connection on which a request comes in the moment it is closed.
type crossing struct {
	net.Conn
	closed chan struct{}
	close  func()
}

func (c *crossing) Read(b []byte) (int, error) {
	<-c.closed
	return copy(b, askPlain), nil
}

func (c *crossing) Close() error {
	c.close()
	return c.Conn.Close()
}

// Its caller would never know what became of it.
func TestRequestThatCrossesAStopIsNotHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servePipes(t, &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("the request is handled")
		})})
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := &crossing{Conn: ours, closed: make(chan struct{})}
		c.close = sync.OnceFunc(func() { close(c.closed) })
		s.hand(t, c)
		if err := s.shutdown(t); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

func TestCloseEndsWhatShutdownCouldNot(t *testing.T) {
	for name, ask := range map[string]string{"plain": askPlain, "handed over": unusually} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, begun, _ := held()
				s := servePipes(t, &http.Server{Handler: h})
				c := s.dial(t)
				c.send(ask)
				<-begun
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if err := s.Shutdown(ctx); err != context.DeadlineExceeded {
					t.Errorf("Shutdown: %v", err)
				}
				s.ended(t)
				if err := s.Server.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				c.ended()
			})
		})
	}
}

func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, begun, _ := held()
		mux := http.NewServeMux()
		mux.HandleFunc("/held", h)
		mux.HandleFunc("/", echo)
		s := servePipes(t, &http.Server{Handler: mux})
		var all []*caller
		for _, ask := range []string{
			"", askPlain, unusually, partOfOne, "GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"PATCH /held HTTP/1.1\r\nHost: localhost\r\n\r\n",
		} {
			c := s.dial(t)
			all = append(all, c)
			c.send(ask)
			if strings.Contains(ask, "/held") {
				<-begun
			} else if strings.HasSuffix(ask, "\r\n\r\n") {
				c.read()
			}
		}
		if err := s.Server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		s.ended(t)
		for _, c := range all {
			c.ended()
		}
		synctest.Wait()
		if n := len(s.conns); n != 0 {
			t.Errorf("%d connections are kept", n)
		}
	})
}

// late is a listener that accepts a last connection while it is being closed.
type late struct {
	*pipes
	last chan net.Conn
}

func (l late) Accept() (net.Conn, error) {
	<-l.done
	select {
	case c := <-l.last:
		return c, nil
	default:
		return nil, net.ErrClosed
	}
}

func TestCloseEndsAConnectionThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		l := late{newPipes(), make(chan net.Conn, 1)}
		l.last <- ours
		s := New(&http.Server{Handler: http.HandlerFunc(echo)})
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		<-served
		theirs.SetReadDeadline(time.Now().Add(time.Hour))
		(&caller{theirs, bufio.NewReader(theirs), t}).ended()
	})
}

func TestServerThatWasStoppedServesNothing(t *testing.T) {
	for name, stop := range map[string]func(*Server) error{
		"closed":    (*Server).Close,
		"shut down": func(s *Server) error { return s.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := New(&http.Server{})
			if err := stop(s); err != nil {
				t.Fatal(err)
			}
			if err := s.Serve(newPipes()); err != http.ErrServerClosed {
				t.Errorf("Serve: %v", err)
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
		s := servePipes(t, &http.Server{Handler: http.HandlerFunc(echo), ErrorLog: log.New(io.Discard, "", 0)})
		began := time.Now()
		for range 3 {
			s.hand(t, temporary{errors.New("too many open files")})
		}
		c := s.dial(t)
		if took := time.Since(began); took == 0 || took > time.Second {
			t.Errorf("after temporary errors it accepts after %v", took)
		}
		c.send(askPlain)
		if a := c.read(); a.Err != "" {
			t.Error(a.Err)
		}
		broken := errors.New("no such socket")
		s.hand(t, broken)
		if err := <-s.served; err != broken {
			t.Errorf("Serve: %v", err)
		}
		select {
		case <-s.done:
		default:
			t.Error("the listener is open")
		}
	})
}

func TestRequestEndsWhenItsCallerIsGone(t *testing.T) {
	awaited := map[string]chan struct{}{} // closed when the request ends
	for name, leave := range map[string]func(*net.TCPConn) error{
		"closed":      (*net.TCPConn).Close,
		"half closed": (*net.TCPConn).CloseWrite,
		"reset": func(c *net.TCPConn) error {
			return errors.Join(c.SetLinger(0), c.Close())
		},
	} {
		for kind, x := range map[string]struct{ ask, method string }{
			"plain":       {askPlain, "GET"},
			"with a body": {askPlain + post("Content-Length: 2\r\n", "{}"), "POST"},
			"handed over": {askPlain + unusually, "PATCH"},
			"long body":   {post("Content-Length: 9999\r\n", strings.Repeat("a", 9999)), "POST"},
		} {
			begun, ended := make(chan struct{}), make(chan struct{})
			c := dial(t, serve(t, New(&http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.Method != x.method {
					return
				}
				io.Copy(io.Discard, r.Body)
				close(begun)
				<-r.Context().Done()
				close(ended)
			})})))
			c.send(x.ask)
			<-begun
			if err := leave(c.Conn.(*net.TCPConn)); err != nil {
				t.Fatal(err)
			}
			awaited[name+"/"+kind] = ended
		}
	}
	limit := time.After(10 * time.Second)
	for name, ended := range awaited {
		select {
		case <-ended:
		case <-limit:
			t.Fatalf("the request of %s goes on", name)
		}
	}
}

// A caller who is there is not taken for one who is gone, also when it has sent its
// next request already.
func TestRequestGoesOnWhileItsCallerWaits(t *testing.T) {
	addr := serve(t, New(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusTeapot)
		case <-time.After(4 * lookInterval):
		}
	})}))
	callers := map[string]*caller{}
	for name, ask := range map[string]string{
		"plain": askPlain + askPlain, "handed over": unusually + unusually, "both": askPlain + unusually,
	} {
		callers[name] = dial(t, addr)
		callers[name].send(ask)
	}
	for name, c := range callers {
		for range 2 {
			if a := c.read(); a.Status != "200 OK" {
				t.Errorf("%s: the answer is %+v", name, a)
			}
		}
	}
}

// A profile that takes longer than answers may take finds the server there, and with
// it how long that is.
func TestContextKnowsItsServer(t *testing.T) {
	for name, request := range map[string]string{"plain": partOfOne + "\r\n", "unusual": unusually} {
		t.Run(name, func(t *testing.T) {
			web := &http.Server{}
			known := make(chan bool, 1)
			web.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
				known <- r.Context().Value(http.ServerContextKey) == web && addr != nil
			})
			c := servePipes(t, web).dial(t)
			c.send(request)
			if !<-known {
				t.Error("the context has no server or no address")
			}
		})
	}
}
