package postgres

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// limitSilence bounds how long what was sent may stay unacknowledged. Keep-alive
// does not: it only probes a connection on which nothing is under way.
func limitSilence(network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
