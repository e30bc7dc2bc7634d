package harness

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
)

// ReserveAddr returns an address on loopback that belongs to the test until it ends. A server
// that is told to can listen there, again and again, but the kernel gives the port to nobody
// who asks for any port, not even while no server listens.
func ReserveAddr(t testing.TB) string {
	t.Helper()
	port, release, err := reservePort()
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	t.Cleanup(release)
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// reservePort binds a port without listening on it. Listeners of Go set SO_REUSEADDR too.
func reservePort() (port int, release func(), err error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	release = sync.OnceFunc(func() { syscall.Close(socket) })
	err = syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var bound syscall.Sockaddr
	if err == nil {
		bound, err = syscall.Getsockname(socket)
	}
	if err != nil {
		release()
		return 0, nil, err
	}
	return bound.(*syscall.SockaddrInet4).Port, release, nil
}
