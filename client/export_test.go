package client

import (
	"context"
	"net"
	"net/http"
)

// DialWith makes the client's default transports connect through dial.
func (c *Client) DialWith(dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	c.calls.Transport.(*http.Transport).DialContext = dial
	c.streams.Transport.(*http.Transport).DialContext = dial
}

// Wrap wraps the client's transports.
func (c *Client) Wrap(around func(http.RoundTripper) http.RoundTripper) {
	c.calls.Transport = around(c.calls.Transport)
	c.streams.Transport = around(c.streams.Transport)
}
