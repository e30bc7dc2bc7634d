package console

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const (
	root  = "../.."
	tools = "e2e/tools/node_modules"
)

// node runs a script of Node in the root of the repository, which must succeed. Without
// Node or its packages, the test is skipped, or fails if all tests must run.
func node(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		lacks(t, "node is not installed: run .ci/deps")
	}
	if _, err := os.Stat(filepath.Join(root, tools, ".package-lock.json")); err != nil {
		lacks(t, "e2e/tools is not installed: run .ci/deps")
	}
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
}

func lacks(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("PLANTSTORE_TEST_ALL") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

func TestScriptsPassTheirOwnTests(t *testing.T) {
	t.Parallel()
	tests, err := filepath.Glob("webtest/*.test.js")
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	args := []string{"--test"}
	for _, name := range tests {
		args = append(args, filepath.Join("internal/console", name))
	}
	node(t, args...)
}

func TestScriptsHaveNoFindingOfESLint(t *testing.T) {
	t.Parallel()
	node(t, tools+"/eslint/bin/eslint.js", "--max-warnings", "0", "--config", "e2e/tools/eslint.config.js", "internal/console/web", "internal/console/webtest")
}

func TestScriptsAreTyped(t *testing.T) {
	t.Parallel()
	node(t, tools+"/typescript/bin/tsc", "--project", "internal/console")
}
