package http1

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

const (
	// maxExtra is how many connections beyond the limit are read, to find out whether
	// they are probes. Others are closed immediately.
	maxExtra = 64
	// probeTimeout is how long such a connection may last.
	probeTimeout = 2 * time.Second
)

// refuse closes the n-th connection over the limit. It does not block.
func (s *Server) refuse(c net.Conn, n int) {
	extra := &replayConn{Conn: c, server: s}
	if n <= maxExtra {
		s.serving.Go(func() { s.serveExtra(extra) })
		return
	}
	s.refused()
	_ = extra.Close()
}

// serveExtra serves a probe on a connection beyond the limit. Any other request gets a
// 503.
func (s *Server) serveExtra(c *replayConn) {
	_ = c.SetDeadline(time.Now().Add(probeTimeout))
	buffer := make([]byte, bufferSize) // the handoff may keep it
	n, end := 0, -1
	for end < 0 && n < len(buffer) {
		m, err := c.Conn.Read(buffer[n:])
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
		c.replay = io.MultiReader(bytes.NewReader(buffer[:end+4]), endReader{c.Conn})
		s.handoff(&probeConn{c})
		return
	}
	s.refused()
	fmt.Fprintf(c.Conn, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n"+
		"Retry-After: 1\r\nContent-Length: %d\r\n\r\n%s", len(s.refusal), s.refusal)
	_ = c.Close()
}

// probeConn is a connection for one request. Its deadline is fixed.
type probeConn struct{ *replayConn }

func (*probeConn) SetDeadline(time.Time) error      { return nil }
func (*probeConn) SetReadDeadline(time.Time) error  { return nil }
func (*probeConn) SetWriteDeadline(time.Time) error { return nil }

// endReader waits for the connection's next byte, and ends there.
type endReader struct{ conn net.Conn }

func (r endReader) Read([]byte) (int, error) {
	_, _ = r.conn.Read(make([]byte, 1))
	return 0, io.EOF
}
