//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package httpd

import "net"

// disconnected cannot tell on this system: a disconnected client is noticed when
// the response is written.
func disconnected(net.Conn) bool { return false }
