// Package cluster tests servers that share a PostgreSQL database, through restarts and
// failovers of the database. The tests spend much of their time waiting for it, and run in
// parallel.
package cluster

import (
	"os"
	"testing"

	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(func() int { return pgtest.Main(m) }))
}
