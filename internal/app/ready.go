package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// CheckReady returns an error unless the server that listens on addr on this machine, with TLS or
// without, is ready. The name is that of its certificate, or empty.
func CheckReady(ctx context.Context, addr string, secure bool, name string) error {
	network, addr := localAddr(addr)
	scheme := "http"
	if secure {
		scheme = "https"
	}
	web := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		// The connection is to this machine, so the certificate need not be verified.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: name},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://localhost/readyz", nil)
	if err != nil {
		return err
	}
	response, err := web.Do(r)
	if err != nil {
		return fmt.Errorf("the server does not respond: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return fmt.Errorf("the server is not ready: %s", strings.TrimSpace(string(text)))
	}
	return nil
}

// localAddr returns where a client on the same machine reaches a server that listens on addr.
func localAddr(addr string) (network, address string) {
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		return "unix", path
	}
	host, port, err := net.SplitHostPort(addr)
	if ip, ipErr := netip.ParseAddr(host); err == nil && (host == "" || ipErr == nil && ip.IsUnspecified()) {
		return "tcp", net.JoinHostPort("localhost", port)
	}
	return "tcp", addr
}
