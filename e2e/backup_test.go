package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plantstore"
	"plantstore/client"
)

// TestRestore is the drill: a backup while plants are created, a crash, and the
// restore as docs/operations.md has it. All that was answered before the backup
// began must be there, and all that is answered after the restore.
func TestRestore(t *testing.T) {
	for n := range times(1, 50) {
		t.Run(fmt.Sprint("drill ", n+1), drill)
	}
}

func drill(t *testing.T) {
	s := start(t)
	all := s.client(client.Options{})
	c := gather(t, 32, true, rand.Uint64(), all)
	c.await(3000)
	saved := c.counts()
	before := c.acknowledged.Load()
	backup := filepath.Join(t.TempDir(), "backup.db")
	s.command("backup", backup)
	during := c.acknowledged.Load() - before
	c.await(500) // what the restore loses
	s.kill()
	lost := c.counts()
	restore(t, s.db, backup)
	s.run()
	c.await(500)
	c.stop()
	for _, err := range c.errors() {
		t.Error(err)
	}
	held := make(map[plantstore.ID]plantstore.Plant)
	for p, err := range all.Export(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		held[p.ID] = p
	}
	kept, gone, wrong := 0, 0, 0
	for i, w := range c.writers {
		for n, f := range w.fates {
			id := w.first + plantstore.ID(n)
			got, there := held[id]
			delete(held, id)
			// The answer to one more may have been on its way when the server died.
			if int64(n) >= saved[i] && int64(n) <= lost[i] && !there {
				gone++
				continue
			}
			kept++
			if f.allows(got, there) {
				continue
			}
			if wrong++; wrong <= 10 {
				t.Errorf("plant %d: the store has %+v (%v), its writer was told %+v; %d were answered before the backup and %d before the crash",
					id, got, there, f.is, saved[i], lost[i])
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d plants are not as their writers were told", wrong, kept)
	}
	if len(held) > 0 {
		t.Errorf("%d plants were written by nobody", len(held))
	}
	if gone == 0 {
		t.Error("the restore lost nothing: was it one?")
	}
	all.CloseIdleConnections() // one that was never used would keep the server for 5 s
	s.stop()
	s.command("check")
	t.Logf("%d creates before the backup, %d during it; after the restore %d plants are there and %d later ones are gone", before, during, kept, gone)
}

// counts returns how many writes of each writer have been acknowledged.
func (c *crowd) counts() []int64 {
	counts := make([]int64, len(c.writers))
	for i, w := range c.writers {
		counts[i] = w.acknowledged.Load()
	}
	return counts
}

// restore puts the backup in the place of a store that no server has open.
func restore(t *testing.T, db, backup string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(db + suffix); err != nil {
			t.Fatal(err) // after a crash all of them are there
		}
	}
	copied, err := os.ReadFile(backup)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(db, copied, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCheckSeesDamage spoils a byte of a store here and there. The check must say
// what is wrong and where.
func TestCheckSeesDamage(t *testing.T) {
	s := start(t)
	c := gather(t, 16, true, rand.Uint64(), s.client(client.Options{}))
	c.await(2000)
	c.stop()
	db := filepath.Join(t.TempDir(), "plants.db")
	s.command("backup", db)
	if status, said := checkStore(t, db); status != 0 || said != "ok\n" {
		t.Fatalf("check of a good store: %d, %s", status, said)
	}
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	pages := len(whole) / page
	if pages < 20 {
		t.Fatalf("the store has %d pages only", pages)
	}
	type spot struct {
		at   int
		want string
	}
	spots := []spot{{100, "the store can no longer be trusted"}} // where the schema is
	for _, n := range []int{2, 6, pages / 3, pages / 2, pages} {
		spots = append(spots, spot{(n - 1) * page, fmt.Sprintf("page %d: ", n)}) // what kind of page it is
	}
	// A letter of a tag in the table, which the index has too.
	name := []byte(" written 7")
	tag := bytes.LastIndex(whole, append(name, "tag"...)) + len(name)
	spots = append(spots, spot{tag, "missing from index plants_by_tag"}, spot{tag, "its name or tag is not UTF-8"})
	for _, spot := range spots {
		whole[spot.at] ^= 0xff
		if err := os.WriteFile(db, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if status, said := checkStore(t, db); status != 1 || !strings.Contains(said, spot.want) {
			t.Errorf("check with another byte at %d, page %d of %d: exit code %d, want 1 and %q, got %.300s",
				spot.at, spot.at/page+1, pages, status, spot.want, said)
		}
		whole[spot.at] ^= 0xff
	}
}

// checkStore returns the exit code of the check and what it says.
func checkStore(t *testing.T, db string) (int, string) {
	t.Helper()
	out, err := exec.Command(binary, "check", "--db", db).CombinedOutput()
	exit, failed := errors.AsType[*exec.ExitError](err)
	if err != nil && !failed {
		t.Fatal(err)
	}
	if !failed {
		return 0, string(out)
	}
	return exit.ExitCode(), string(out)
}
