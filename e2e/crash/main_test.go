// Package crash tests that a server on SQLite keeps its promises through kills, power
// cuts, failing disks, upgrades and restores.
package crash

import (
	"os"
	"testing"

	"plantstore/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m.Run)) }
