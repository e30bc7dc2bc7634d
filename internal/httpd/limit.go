package httpd

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxExtra is the number of connections beyond the limit that are read, to find out
	// whether they are probes. Others are closed immediately.
	maxExtra = 64
	// probeTimeout is how long such a connection may last.
	probeTimeout = 2 * time.Second
)

// countedConn is an accepted connection, below TLS if there is any. It counts as open until
// Close is called.
type countedConn struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

// Close closes the connection. It may be called more than once, and counts once.
func (c *countedConn) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return err
}

// CloseWrite is for net/http, which closes a connection in two steps if the client
// may still be sending.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// refuse closes the n-th connection over the limit. It does not block.
func (s *Server) refuse(c *countedConn, n int) {
	if n <= maxExtra {
		go s.serveExtra(c)
		return
	}
	s.refused()
	_ = c.Close()
}

// serveExtra serves a probe on a connection beyond the limit. Any other request gets a
// 503 of HTTP/1.1, so with TLS the client is not offered HTTP/2.
func (s *Server) serveExtra(accepted *countedConn) {
	defer s.recovered(accepted, func() { _ = accepted.Close() })
	_ = accepted.SetDeadline(time.Now().Add(probeTimeout))
	var c duplexConn = probeConn{accepted}
	if s.tls != nil {
		config := s.tls.Clone()
		config.NextProtos = slices.DeleteFunc(slices.Clone(config.NextProtos), func(name string) bool { return name == "h2" })
		c = tls.Server(c, config)
	}
	buffer := make([]byte, bufferSize)
	n, end := 0, -1
	for end < 0 && n < len(buffer) {
		m, err := c.Read(buffer[n:])
		n += m
		end = bytes.Index(buffer[:n], []byte("\r\n\r\n"))
		if err != nil {
			break
		}
	}
	method, rest, _ := strings.Cut(string(buffer[:n]), " ")
	path, _, _ := strings.Cut(rest, " ")
	if end >= 0 && s.probe(method, path) {
		// Nothing after the first request is served.
		line, rest, _ := bytes.Cut(buffer[:n], []byte("\n"))
		s.handoff(replay(c, slices.Concat(line, []byte("\nConnection: close\r\n"), rest)))
		return
	}
	s.refused()
	fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n"+
		"Retry-After: 1\r\nContent-Length: %d\r\n\r\n%s", len(s.refusal), s.refusal)
	_ = c.Close()
}

// probeConn is a connection for one request. Its deadline is fixed.
type probeConn struct{ *countedConn }

func (probeConn) SetDeadline(time.Time) error      { return nil }
func (probeConn) SetReadDeadline(time.Time) error  { return nil }
func (probeConn) SetWriteDeadline(time.Time) error { return nil }
