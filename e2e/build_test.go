package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// buildPatched builds the binary with a text in one of its files replaced, which
// must be there once, and returns where it is.
func buildPatched(t *testing.T, file, text, by string) string {
	t.Helper()
	built, err := buildPatchedIn(t.TempDir(), file, text, by)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func buildPatchedIn(dir, file, text, by string) (built string, err error) {
	source, err := filepath.Abs(filepath.Join("..", file))
	if err != nil {
		return "", err
	}
	code, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(code), text); n != 1 {
		return "", fmt.Errorf("%s has %q %d times", file, text, n)
	}
	patched, overlay, built := filepath.Join(dir, "patched.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "plantstore")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {source: patched}})
	if err != nil {
		return "", err
	}
	for path, content := range map[string]string{patched: strings.Replace(string(code), text, by, 1), overlay: string(replace)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", built, "plantstore/cmd/plantstore").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return built, nil
}

// restless returns a binary whose SQLite store has plants wait and moves them all the
// time, also where few come at once and few are there.
func restless(t *testing.T) string {
	t.Helper()
	built, err := buildRestless()
	if err != nil {
		t.Fatal(err)
	}
	return built
}

var buildRestless = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "plantstore-restless-")
	if err != nil {
		return "", err
	}
	atEnd = append(atEnd, func() { os.RemoveAll(dir) })
	const code = `const (
	// groupSize is how many plants one statement takes.
	groupSize = 32
	// recentTarget is about how many plants wait to be moved while creates come
	// without end. The more, the fewer pages a move touches for each, and the longer
	// it takes to read them when a server starts.
	recentTarget = 1 << 18
	// lookback`
	return buildPatchedIn(dir, "internal/sqlite/move.go", code, "const (groupSize = 2; recentTarget = 20 // lookback")
})

// bothBuilds runs a test with the binary as it is and with the restless one.
func bothBuilds(t *testing.T, test func(t *testing.T, program string)) {
	t.Run("as it is", func(t *testing.T) { test(t, binary) })
	t.Run("restless", func(t *testing.T) { test(t, restless(t)) })
}
