package crash

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
	"plantstore/e2e/harness"
)

// A backup under load, a crash, and the restore as docs/operations/backup.md describes it. What
// was acknowledged before the backup began must be there, and what is acknowledged after
// the restore.
func TestRestoredBackupHasEverythingAcknowledgedBeforeIt(t *testing.T) {
	for n := range harness.Times(1, 50) {
		t.Run(fmt.Sprint("drill ", n+1), restoreDrill)
	}
}

func restoreDrill(t *testing.T) {
	s := harness.Start(t)
	c := s.Client(client.Options{})
	w := harness.StartWorkload(t, 32, harness.Creates, rand.Uint64(), c)
	w.AwaitAcked(3000)
	saved := ackedByWriter(w)
	before := w.Acked()
	backup := filepath.Join(t.TempDir(), "backup.db")
	s.Command("backup", backup)
	during := w.Acked() - before
	w.AwaitAcked(500) // which the restore loses
	s.Kill()
	lost := ackedByWriter(w)
	restore(t, s.DB, backup)
	s.Run()
	w.AwaitAcked(500)
	for _, err := range w.Errors() {
		t.Error(err)
	}
	stored := make(map[plantstore.ID]plantstore.Plant)
	for p, err := range c.Export(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		stored[p.ID] = p.Plant
	}
	kept, missing, wrong := 0, 0, 0
	for i, writer := range w.Writers {
		for n, r := range writer.Records {
			id := writer.First + plantstore.ID(n)
			got, found := stored[id]
			delete(stored, id)
			// One more may have been acknowledged when the server died.
			if int64(n) >= saved[i] && int64(n) <= lost[i] && !found {
				missing++
				continue
			}
			kept++
			if r.Allows(got, found) {
				continue
			}
			if wrong++; wrong <= 10 {
				t.Errorf("plant %d: the store has %+v (%t), acknowledged %+v; %d were acknowledged before the backup and %d before the crash",
					id, got, found, r.Acked, saved[i], lost[i])
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d plants are wrong", wrong, kept)
	}
	if len(stored) > 0 {
		t.Errorf("%d plants were never written", len(stored))
	}
	if missing == 0 {
		t.Error("the restore lost nothing, not even what came after the backup")
	}
	c.CloseIdleConnections() // one that was never used would delay the shutdown
	s.Stop()
	s.Command("check")
	t.Logf("%d creates before the backup, %d during it; the restored store has %d plants and lacks %d", before, during, kept, missing)
}

func ackedByWriter(w *harness.Workload) (counts []int64) {
	for _, writer := range w.Writers {
		counts = append(counts, writer.Acked())
	}
	return counts
}

// restore replaces a store that no server has open by the backup.
func restore(t *testing.T, db, backup string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(db + suffix); err != nil {
			t.Fatal(err) // after a crash all of them exist
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

func TestCheckLocatesCorruption(t *testing.T) {
	s := harness.Start(t)
	w := harness.StartWorkload(t, 16, harness.Creates, rand.Uint64(), s.Client(client.Options{}))
	w.AwaitAcked(2000)
	w.Stop()
	db := filepath.Join(t.TempDir(), "plants.db")
	name := []byte(" written 7")
	s.AwaitFlushed() // or the table would not have the plants
	s.Command("backup", db)
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	if status, out := checkStore(t, db); status != 0 || out != "ok\n" {
		t.Fatalf("check of an intact store: %d, %s", status, out)
	}
	const page = 4096
	pages := len(whole) / page
	if pages < 20 {
		t.Fatalf("the store has only %d pages", pages)
	}
	type spot struct {
		at   int
		want string
	}
	spots := []spot{{100, "the store is damaged"}} // the page of the schema
	for _, n := range []int{2, 6, pages / 3, pages / 2, pages} {
		spots = append(spots, spot{(n - 1) * page, fmt.Sprintf("page %d: ", n)}) // the type of the page
	}
	// A letter of a tag in the table, which the table of tagged plants has too.
	tag := indexStored(t, whole, page, append(name, "tag"...)) + len(name)
	spots = append(spots, spot{tag, "it is not found by its tag"}, spot{tag, "its name or tag is not UTF-8"})
	for _, spot := range spots {
		whole[spot.at] ^= 0xff
		if err := os.WriteFile(db, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if status, out := checkStore(t, db); status != 1 || !strings.Contains(out, spot.want) {
			t.Errorf("check with another byte at %d, page %d of %d: exit code %d, want 1 and %q, got %.300s",
				spot.at, spot.at/page+1, pages, status, spot.want, out)
		}
		whole[spot.at] ^= 0xff
	}
}

// indexStored returns where a leaf of the table of plants has the text. The pages of the
// log have it too, with the id of the token that wrote it.
func indexStored(t *testing.T, whole []byte, page int, text []byte) int {
	t.Helper()
	const leaf = 13 // a leaf of a table begins with it
	writer := []byte(plantstore.HashSecret(harness.Token).ID())
	for at := 0; at < len(whole); at += page {
		p := whole[at : at+page]
		if i := bytes.Index(p, text); i >= 0 && p[0] == leaf && !bytes.Contains(p, writer) {
			return at + i
		}
	}
	t.Fatalf("the table has no %q", text)
	return 0
}

// checkStore returns the exit code and the output of the check.
func checkStore(t *testing.T, db string) (int, string) {
	t.Helper()
	out, err := exec.Command(harness.Binary(), "check", "--db", db).CombinedOutput()
	exit, failed := errors.AsType[*exec.ExitError](err)
	if err != nil && !failed {
		t.Fatal(err)
	}
	if !failed {
		return 0, string(out)
	}
	return exit.ExitCode(), string(out)
}
