package crash

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plantstore"
	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// Commands that only read a store work in a folder that they cannot write to, on a store of
// release 0.2.0 and on what a kill has left, and change nothing there.
func TestLookingAtAStoreChangesNothing(t *testing.T) {
	for name, db := range map[string]string{"killed": killedStore(t), "release 0.2.0": storeOfRelease020(t)} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Dir(db)
			makeReadOnly(t, dir)
			before := contents(t, dir)
			temp := t.TempDir()
			for _, args := range [][]string{
				{"check"}, {"token", "list"}, {"export", "-"}, {"backup", "-"}, {"backup", filepath.Join(t.TempDir(), "backup.db")},
			} {
				cmd := unprivileged(t, harness.Binary(), append(args, "--db", db)...)
				cmd.Env = append(os.Environ(), "TMPDIR="+temp)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%.1000s", strings.Join(args, " "), err, out)
				}
			}
			if after := contents(t, dir); after != before {
				t.Errorf("the folder had\n%s\nand has\n%s", before, after)
			}
			if left := contents(t, temp); strings.Count(left, "\n") > 1 {
				t.Errorf("temporary files are left:\n%s", left)
			}
		})
	}
}

// storeOfRelease020 returns a copy of a store that release 0.2.0 wrote.
func storeOfRelease020(t *testing.T) string {
	t.Helper()
	store, err := os.ReadFile(harness.Root + "/internal/sqlite/testdata/release-0.2.0.sqlite")
	if err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(t.TempDir(), "plants.db")
	if err := os.WriteFile(db, store, 0o600); err != nil {
		t.Fatal(err)
	}
	return db
}

// killedPlant is the only plant of a killedStore.
var killedPlant = plantstore.Plant{ID: -1 << 63, Name: "the least"}

// killedStore returns the store that a killed server has left.
func killedStore(t *testing.T) string {
	t.Helper()
	s := harness.Start(t)
	if err := s.Client(client.Options{}).Create(t.Context(), killedPlant); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if info, err := os.Stat(s.DB + "-wal"); err != nil || info.Size() == 0 {
		t.Fatalf("the killed server has left no log: %v", err)
	}
	return s.DB
}

// makeReadOnly makes a folder one that only a privileged process can write to.
func makeReadOnly(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) }) // so that it can be removed
	if unprivileged(t, "touch", filepath.Join(dir, "new")).Run() == nil {
		t.Fatalf("%s can be written to", dir)
	}
}

// unprivileged returns a command that permissions apply to, even if the test runs as root.
func unprivileged(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		return exec.Command(program, args...)
	}
	setpriv := testenv.NeedsProgram(t, "setpriv")
	return exec.Command(setpriv, append([]string{"--inh-caps=-all", "--bounding-set=-all", program}, args...)...)
}

// contents describes a folder and its files: every byte, and when they were written.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		sum := ""
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum = fmt.Sprintf("%x", sha256.Sum256(text))
		}
		_, err = fmt.Fprintf(&b, "%s %v %d %s\n", filepath.Base(path), info.ModTime(), info.Size(), sum)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
