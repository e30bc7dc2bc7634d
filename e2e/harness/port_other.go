//go:build !linux

package harness

import (
	"net"
	"testing"
)

// ReserveAddr returns an address on loopback that nobody listens on. Only Linux lets us keep
// it.
func ReserveAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
