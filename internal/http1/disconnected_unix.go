//go:build linux || darwin || freebsd || netbsd || openbsd

package http1

import (
	"net"
	"syscall"
)

// disconnected reports whether the client has closed the connection and everything
// it sent before has been read. It consumes nothing.
func disconnected(c net.Conn) bool {
	n, err := peek(c)
	return n == 0 && err == nil || err == syscall.ECONNRESET
}

// wasReset reports whether the client has reset the connection, after which nothing can
// be sent. If it returns true, the connection must be closed.
func wasReset(c net.Conn) bool {
	_, err := peek(c)
	return err == syscall.ECONNRESET
}

// peek returns what a read would return now.
func peek(c net.Conn) (n int, err error) {
	n, err = -1, syscall.ENOTSUP
	socket, ok := c.(syscall.Conn)
	if !ok {
		return n, err
	}
	raw, unsupported := socket.SyscallConn()
	if unsupported != nil {
		return n, err
	}
	_ = raw.Control(func(fd uintptr) { // it fails if the server has closed the connection
		n, _, err = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return n, err
}
