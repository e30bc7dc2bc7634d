package console

import (
	"os/exec"
	"path/filepath"
	"testing"

	"plantstore/internal/testenv"
)

const (
	root  = "../.."
	tools = "e2e/tools/node_modules"
)

// node runs a script of Node in the root of the repository, which must succeed. Without
// Node or its packages, the test is skipped, or fails if all tests must run.
func node(t *testing.T, args ...string) {
	t.Helper()
	program := testenv.NeedsProgram(t, "node")
	testenv.NeedsTools(t, root)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
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
