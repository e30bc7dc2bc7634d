package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// A backup, or a restore, for which there is no room says which disk is full, and leaves nothing
// there.
func TestCopyToAFullDiskLeavesNothing(t *testing.T) {
	s := harness.Start(t)
	var plants strings.Builder // more than SQLite keeps in memory until it writes the copy
	for id := range 60 {
		fmt.Fprintf(&plants, "{\"id\":%d,\"name\":%q}\n", id, strings.Repeat("fern", 15_000))
	}
	s.Import(plants.String())
	good := filepath.Join(t.TempDir(), "good.db")
	s.Command("backup", good)
	info, err := os.Stat(good)
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string]string{
		"backup":      "backup --db " + s.DB + " full/copy.db",
		"backup --to": "backup --db " + s.DB + " --to full",
		"restore":     "restore --db full/plants.db " + good,
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int64{4 << 10, 64 << 10, info.Size() / 2, info.Size() - 4<<10} {
				said, left := onTmpfs(t, size, args)
				if !strings.Contains(said, "full/") || strings.Contains(said, s.DB) ||
					!strings.Contains(said, "disk is full") && !strings.Contains(said, "no space left on device") {
					t.Errorf("with room for %d of %d bytes, it says %q, want that the disk of the copy is full", size, info.Size(), said)
				}
				if left = strings.TrimSpace(strings.ReplaceAll(left, "plants.db.lock", "")); left != "" {
					t.Errorf("with room for %d of %d bytes, it leaves %s", size, info.Size(), left)
				}
			}
		})
	}
}

// onTmpfs runs a command that must fail where the folder full is a tmpfs of that size. It returns
// what the command says, and the names of the files that it leaves there.
func onTmpfs(t *testing.T, size int64, args string) (said, left string) {
	t.Helper()
	program, err := filepath.Abs(harness.Binary())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("mkdir full && mount -t tmpfs -o size=%d none full || exit 9; %s %s 2>said && exit 8; ls -A full", size, program, args)
	cmd := exec.Command("sh", "-c", ownMounts(t)+` sh -c "$0"`, script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v, 9 for no tmpfs, 8 for a command that succeeds: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text), string(out)
}

// ownMounts returns the beginning of a command that may mount what no other process sees.
func ownMounts(t *testing.T) string {
	t.Helper()
	unshare := testenv.NeedsProgram(t, "unshare") + " --mount"
	if os.Getuid() != 0 {
		unshare += " --map-root-user"
	}
	if out, err := exec.Command("sh", "-c", unshare+" true").CombinedOutput(); err != nil {
		testenv.Missing(t, "nothing can be mounted here: "+string(out))
	}
	return unshare
}
