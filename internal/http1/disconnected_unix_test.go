//go:build linux || darwin || freebsd || netbsd || openbsd

package http1

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// awaitReset waits until a reset by the other end has arrived. It consumes nothing.
func awaitReset(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		state := make([]unix.PollFd, 1)
		if err := raw.Control(func(fd uintptr) {
			state[0].Fd = int32(fd)
			_, _ = unix.Poll(state, 0)
		}); err != nil {
			t.Fatal(err)
		}
		if state[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the reset does not arrive")
		}
	}
}

// A client that sends part of a request and resets the connection is not worth a
// connection of net/http. One that only closes its end may get a response.
func TestResetConnectionIsNotHandedOff(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var handedOff atomic.Int32
	s := New(&http.Server{Handler: http.HandlerFunc(echo), ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			handedOff.Add(1)
		}
	}}, always)
	t.Cleanup(func() { l.Close(); s.Close() })
	const n = 50
	for _, reset := range []bool{true, false} {
		handedOff.Store(0)
		for range n {
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			served, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(client, partialRequest); err != nil {
				t.Fatal(err)
			}
			if reset {
				client.(*net.TCPConn).SetLinger(0)
			}
			client.Close()
			if reset {
				awaitReset(t, served)
			}
			s.start(served)
			s.serving.Wait()
		}
		if got := handedOff.Load(); reset && got != 0 || !reset && got != n {
			t.Errorf("reset %t: %d of %d connections were handed off", reset, got, n)
		}
	}
}
