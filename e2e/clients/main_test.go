// Package clients tests that the Go, Python and TypeScript clients behave alike:
// scenarios.json says what each is asked, what a scripted server does, and what must
// come out. Scenarios without a script run against the real binary.
package clients

import (
	"os"
	"testing"

	"plantstore/e2e/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(func() int { return m.Run() }))
}
