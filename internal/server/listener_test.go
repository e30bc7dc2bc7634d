package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are handed to it.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c := <-p; c != nil {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return nil }

// watched returns both ends of a connection, the first of which a listener looks
// after, with that listener.
func watched(t *testing.T) (ours, theirs net.Conn, l *Listener) {
	t.Helper()
	accepted, theirs := net.Pipe()
	in := make(pipes, 1)
	in <- accepted
	l = NewListener(in)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return ours, theirs, l
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
				ours, _, _ := watched(t)
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
		ours, theirs, _ := watched(t)
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
		ours, theirs, _ := watched(t)
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
	ours, _, l := watched(t)
	ours.Close()
	ours.Close()
	if len(l.conns) != 0 {
		t.Errorf("%d connections are kept", len(l.conns))
	}
}

// A read of one byte is net/http's own, unless it is asked again.
func TestSingleByteIsReadWhenAskedAgain(t *testing.T) {
	ours, theirs, _ := watched(t)
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
	accepted, theirs := net.Pipe()
	defer theirs.Close()
	in := make(pipes, 1)
	in <- accepted
	close(in)
	web := &http.Server{Handler: http.NotFoundHandler()}
	web.Serve(NewListener(in)) // ends after the only connection came
	defer web.Close()
	const buffer = 4096
	start := "GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: "
	// A write to a pipe ends when all of it has been read.
	io.WriteString(theirs, start+strings.Repeat("a", buffer-1-len(start)))
	go io.WriteString(theirs, "aa\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(theirs), nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("status %d", response.StatusCode)
	}
}

// serveWatched serves with a listener that looks after its connections, and returns
// where.
func serveWatched(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	watched := NewListener(listener)
	stop := background(t, watched.Run)
	web := &http.Server{Handler: handler, ConnContext: watched.Context}
	served := make(chan error, 1)
	go func() { served <- web.Serve(watched) }()
	t.Cleanup(func() {
		web.Close()
		<-served
		stop()
	})
	return listener.Addr().String()
}

func TestRequestEndsWhenItsCallerIsGone(t *testing.T) {
	for name, leave := range map[string]func(*net.TCPConn) error{
		"closed":      (*net.TCPConn).Close,
		"half closed": (*net.TCPConn).CloseWrite,
		"reset": func(c *net.TCPConn) error {
			return errors.Join(c.SetLinger(0), c.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			begun, ended := make(chan struct{}), make(chan struct{})
			addr := serveWatched(t, func(_ http.ResponseWriter, r *http.Request) {
				close(begun)
				<-r.Context().Done()
				close(ended)
			})
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
			<-begun
			if err := leave(c.(*net.TCPConn)); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Error("the request goes on")
				c.Close()
			}
		})
	}
}

// net/http itself would wait for five seconds.
func TestUnusedConnectionDoesNotDelayAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unused, theirs, l := watched(t)
		used, peer, other := watched(t)
		go peer.Write([]byte("GET"))
		if _, err := used.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		l.Drain()
		other.Drain()
		began := time.Now()
		if _, err := unused.Read(make([]byte, 10)); err == nil {
			t.Error("something was read")
		}
		if took := time.Since(began); took < lookInterval || took > 2*lookInterval {
			t.Errorf("it was closed after %v", took)
		}
		if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the other end sees %v", err)
		}
		time.Sleep(time.Minute)
		go peer.Write([]byte(" / "))
		if n, err := used.Read(make([]byte, 10)); n != 3 || err != nil {
			t.Errorf("from the connection in use came %d bytes and %v", n, err)
		}
	})
}

// A caller who is there is not taken for one who is gone, also when it has sent its
// next request already.
func TestRequestGoesOnWhileItsCallerWaits(t *testing.T) {
	addr := serveWatched(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusTeapot)
		case <-time.After(4 * lookInterval):
		}
	})
	for name, sent := range map[string]int{"one request": 1, "two at once": 2} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", sent))
			answers := bufio.NewReader(c)
			for range sent {
				response, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Fatal(err)
				}
				if response.StatusCode != http.StatusOK {
					t.Errorf("status %d", response.StatusCode)
				}
			}
		})
	}
}
