package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"
)

// unixPrefix begins an address that is the path of a Unix socket.
const unixPrefix = "unix:"

// CheckAddr refuses an address that no machine could listen on.
func CheckAddr(addr string) error {
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		if path == "" || len(path) > 100 {
			return fmt.Errorf("must be unix: and a path of at most 100 bytes, such as unix:/run/plantstore/http.sock, got %q", addr)
		}
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err == nil && port != "" {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return fmt.Errorf("must be HOST:PORT or :PORT with a port from 0 to 65535, such as 127.0.0.1:8080, got %q", addr)
	}
	return nil
}

// Listen returns the socket that systemd passed to the process, or else a new one at the
// address.
func Listen(addr string) (net.Listener, error) {
	passed, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("cannot use the socket from systemd: %w", err)
	}
	switch {
	case len(passed) > 1:
		return nil, fmt.Errorf("systemd passed %d sockets, want one ListenStream=", len(passed))
	case len(passed) == 1 && passed[0] == nil:
		return nil, errors.New("the socket from systemd is not a stream socket: use ListenStream=")
	case len(passed) == 1:
		return passed[0], nil
	}
	var listener net.Listener
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		listener, err = listenUnix(path)
	} else {
		var config net.ListenConfig
		config.SetMultipathTCP(false) // whose sockets cost more to accept
		listener, err = config.Listen(context.Background(), "tcp", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w%s", err, listenHint(err))
	}
	return listener, nil
}

// listenUnix listens on a Unix socket that the owner and the group may use. It replaces
// the socket of a server that has crashed.
func listenUnix(path string) (net.Listener, error) {
	listener, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		conn, dialErr := net.Dial("unix", path)
		if dialErr == nil {
			conn.Close()
		}
		if !errors.Is(dialErr, syscall.ECONNREFUSED) {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		listener, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

func listenHint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return ": is another server running?"
	case errors.Is(err, syscall.EACCES):
		return ": is this user allowed to use the address?"
	}
	return ""
}

// LocalURL returns the URL of the API on this machine: the listener's address and
// the path of the base URL. A certificate is not valid for an address, so with one it is
// the base URL itself, if that is known.
func LocalURL(addr net.Addr, base *url.URL, secure bool) *url.URL {
	scheme, host := "http", addr.String()
	if at, err := netip.ParseAddrPort(host); err == nil && at.Addr().IsUnspecified() {
		host = fmt.Sprintf("127.0.0.1:%d", at.Port())
	}
	if addr.Network() == "unix" {
		host = "localhost"
	}
	if secure {
		scheme = "https"
		if base.Host != "" {
			host = base.Host
		}
	}
	return &url.URL{Scheme: scheme, Host: host, Path: base.Path, RawPath: base.RawPath}
}
