package http1

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plantstore/internal/testenv"
)

// listenTCP listens without Multipath TCP. The kernel must allow this user to filter sockets.
func listenTCP(t *testing.T, addr string) net.Listener {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	if filterConnects(socket, map[netip.Addr]struct{}{netip.IPv4Unspecified(): {}}) == unix.EPERM {
		testenv.Missing(t, "the kernel allows only root to filter sockets")
	}
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	l, err := config.Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// dialFrom connects to a server from an address of this machine.
func dialFrom(from, to string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return dialer.DialContext(ctx, "tcp", to)
}

// statusOn sends a request on a connection and returns the status.
func statusOn(t *testing.T, conn net.Conn) int {
	t.Helper()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, "GET /1 HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// onFastPath returns how many connections are on the fast path.
func onFastPath(s *Server) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// holdFor sets for how long addresses are held back, and lets those that are be held back
// again.
func holdFor(h *Holdback, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hold = d
	clear(h.held)
}

// An address whose connections end without a request has to wait. Its other connections
// go on, and so do other addresses.
func TestAddressIsHeldBack(t *testing.T) {
	for _, test := range []struct {
		listen  string
		waiting bool // net/http waits for the rest of the request
	}{{"127.0.0.1:0", false}, {"[::]:0", true}} {
		listen := test.listen
		l := listenTCP(t, listen)
		to := fmt.Sprintf("127.0.0.1:%d", l.Addr().(*net.TCPAddr).Port)
		s := New(&http.Server{Handler: http.HandlerFunc(echo)}, always)
		abandoned := make(chan netip.Addr, 10)
		s.OnAbandon(func(addr netip.Addr) bool {
			abandoned <- addr
			return true
		})
		served := make(chan error)
		go func() { served <- s.Serve(l) }()
		open, err := dialFrom("127.0.0.2", to, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if status := statusOn(t, open); status != 200 {
			t.Errorf("got %d", status)
		}
		h := s.holdback.Load()
		holdFor(h, time.Hour) // longer than the test takes on any machine
		hostile, err := dialFrom("127.0.0.2", to, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(hostile, partialRequest); err != nil {
			t.Fatal(err)
		}
		for test.waiting && s.Connections()-onFastPath(s) != 1 {
			time.Sleep(time.Millisecond)
		}
		hostile.(*net.TCPConn).SetLinger(0)
		hostile.Close()
		if addr := <-abandoned; addr.String() != "127.0.0.2" {
			t.Errorf("got %s", addr)
		}
		for h.len() == 0 {
			time.Sleep(time.Millisecond)
		}
		if conn, err := dialFrom("127.0.0.2", to, holdTime/4); err == nil {
			conn.Close()
			t.Errorf("%s: the address connected again", listen)
		}
		if status := statusOn(t, open); status != 200 {
			t.Errorf("%s: the open connection got %d", listen, status)
		}
		other, err := dialFrom("127.0.0.3", to, time.Minute)
		if err != nil {
			t.Fatalf("%s: another address: %v", listen, err)
		}
		if status := statusOn(t, other); status != 200 {
			t.Errorf("%s: another address got %d", listen, status)
		}
		holdFor(h, time.Millisecond)
		h.Add(netip.MustParseAddr("127.0.0.2"))
		for h.len() > 0 {
			time.Sleep(time.Millisecond)
		}
		again, err := dialFrom("127.0.0.2", to, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if status := statusOn(t, again); status != 200 {
			t.Errorf("%s: later it got %d", listen, status)
		}
		for _, conn := range []net.Conn{open, other, again} {
			conn.Close()
		}
		s.Close()
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
		if len(abandoned) > 0 {
			t.Errorf("%s: connections with requests count: %s", listen, <-abandoned)
		}
	}
}

// Many addresses of both kinds make a program that the kernel accepts.
func TestManyAddressesAreHeldBack(t *testing.T) {
	l := listenTCP(t, "[::]:0")
	defer l.Close()
	h := NewHoldback(l)
	holdFor(h, time.Hour)
	for i := range maxHeld {
		h.Add(netip.AddrFrom4([4]byte{127, 0, 1, byte(i)}))
		h.Add(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 0, byte(i)}))
	}
	if h.len() != maxHeld || h.raw == nil {
		t.Errorf("%d addresses are held back", h.len())
	}
	to := fmt.Sprintf("127.0.0.1:%d", l.Addr().(*net.TCPAddr).Port)
	for from, held := range map[string]bool{"127.0.1.0": true, "127.0.1.77": true, "127.0.1.127": true, "127.0.1.128": false, "127.0.0.1": false} {
		timeout := time.Minute
		if held {
			timeout = holdTime / 10
		}
		conn, err := dialFrom(from, to, timeout)
		if err == nil {
			conn.Close()
		}
		if (err != nil) != held {
			t.Errorf("%s: %v", from, err)
		}
	}
	v6 := fmt.Sprintf("[::1]:%d", l.Addr().(*net.TCPAddr).Port)
	if conn, err := dialFrom("::1", v6, time.Minute); err == nil {
		conn.Close()
		h.Add(netip.IPv6Loopback())
	}
	holdFor(h, time.Hour) // there is room again
	h.Add(netip.IPv6Loopback())
	if conn, err := dialFrom("::1", v6, holdTime/10); err == nil {
		conn.Close()
		t.Error("::1 is not held back")
	}
}
