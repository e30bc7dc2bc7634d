package harness

import (
	"os"
	"sync"
	"testing"

	"plantstore/internal/testenv"
)

// Root is the root of the repository, seen from the folder of a test package.
const Root = "../.."

// EachBuild runs a test against the binary under test and against the eager build.
func EachBuild(t *testing.T, test func(t *testing.T, program string)) {
	t.Run("default", func(t *testing.T) { test(t, Binary()) })
	t.Run("eager", func(t *testing.T) { test(t, Eager(t)) })
}

// Eager returns the path of the binary with the build tag [testenv.Eager].
func Eager(t testing.TB) string {
	t.Helper()
	built, err := buildEager()
	if err != nil {
		t.Fatal(err)
	}
	return built
}

var buildEager = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "plantstore-eager-")
	if err != nil {
		return "", err
	}
	AtExit(func() { os.RemoveAll(dir) })
	return testenv.Binary(dir, testenv.Eager)
})
