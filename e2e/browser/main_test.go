// Package browser tests the console and the reference in a real browser, Chromium.
package browser

import (
	"os"
	"testing"

	"plantstore/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m.Run)) }
