package browser

import (
	"cmp"
	"os/exec"
	"path/filepath"
	"testing"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// Details are tested in Chromium only.
func TestMainPathInFirefox(t *testing.T) {
	t.Parallel()
	node, firefox := testenv.NeedsProgram(t, "node"), testenv.NeedsProgram(t, "firefox")
	testenv.NeedsTools(t, harness.Root)
	script, err := filepath.Abs(harness.Root + "/e2e/tools/firefox.js")
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t)
	screenshots := cmp.Or(harness.Artifacts(), t.TempDir())
	cmd := exec.CommandContext(t.Context(), node, script, firefox, "http://"+s.Addr, s.API, harness.Token, file(t, "plants.ndjson", garden(60)), screenshots)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
}
