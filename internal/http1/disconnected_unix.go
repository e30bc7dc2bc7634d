//go:build linux || darwin || freebsd || netbsd || openbsd

package http1

import (
	"net"
	"syscall"
)

// disconnected reports whether the client has closed the connection and everything
// it sent before has been read. It consumes nothing.
func disconnected(c net.Conn) (closed bool) {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // it fails if the server has closed the connection
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		closed = n == 0 && err == nil || err == syscall.ECONNRESET
	})
	return closed
}
