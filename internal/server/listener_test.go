package server

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are handed to it.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) { return <-p, nil }
func (p pipes) Close() error              { return nil }
func (p pipes) Addr() net.Addr            { return nil }

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
					if _, err := call.use(ours, make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
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
		if _, err := ours.Read(make([]byte, 1)); err != nil {
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
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the read ended with %v", err)
		}
		if took := time.Since(began); took != time.Millisecond {
			t.Errorf("the read ended after %v", took)
		}
		ours.SetReadDeadline(time.Time{})
		go theirs.Write([]byte("x"))
		if _, err := ours.Read(make([]byte, 1)); err != nil {
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
