// Package observe_test checks what the real binary tells its operators.
package observe_test

import (
	"os"
	"testing"

	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(func() int { return pgtest.Main(m) }))
}
