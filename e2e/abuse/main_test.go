// Package abuse tests that misbehaving clients, or too many clients, cannot deny
// service to the others.
//
// Latencies are measured and reported. No test fails because of one, except for the
// promise that a revoked token is refused within two seconds.
package abuse

import (
	"os"
	"testing"

	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(proberVariable); job != "" {
		os.Exit(proberMain(job))
	}
	os.Exit(harness.Main(func() int { return pgtest.Main(m) }))
}
