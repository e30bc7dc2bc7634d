//go:build linux || darwin || freebsd || netbsd || openbsd

package httpd

import (
	"net"
	"syscall"
)

// disconnected reports whether the client has closed the connection and everything
// it sent before has been read, except the alert with which TLS closes. It consumes
// nothing.
func disconnected(c net.Conn) (closed bool) {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // fails if the server has closed the connection
		next := make([]byte, 25)
		n, _, err := syscall.Recvfrom(int(fd), next, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		// An alert has type 21. In TLS 1.3 it looks like data, with 2 bytes in 24: the next
		// request is not sent in such pieces. Without TLS, a request starts with a letter.
		alert := next[0] == 21 || next[0] == 23 && n == 24
		closed = err == nil && (n == 0 || alert) || err == syscall.ECONNRESET
	})
	return closed
}
