//go:build linux || darwin || freebsd || netbsd || openbsd

package http1

import (
	"net"
	"syscall"
)

// isClosed reports whether the other end has closed the connection and all that it
// sent before has been read. It reads nothing.
func isClosed(c net.Conn) bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	var n int
	var peek error
	err = raw.Control(func(fd uintptr) {
		n, _, peek = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	if err != nil {
		return false
	}
	return n == 0 && peek == nil || peek == syscall.ECONNRESET
}
