// Package listen_test checks how the real binary accepts connections: TLS, ACME, Unix
// sockets, systemd and reverse proxies.
package listen_test

import (
	"os"
	"testing"

	"plantstore/e2e/harness"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(pebbleVariable); job != "" {
		os.Exit(pebbleMain(job))
	}
	os.Exit(harness.Main(m.Run))
}
