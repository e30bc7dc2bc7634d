package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plantstore"
	"plantstore/e2e/harness"
)

// The way back of docs/operations/upgrade.md: a backup with the old release, an upgrade, and the
// backup restored with the old release. Looking at the store with the new release in between
// is not an upgrade.
func TestGoingBackToTheReleaseBefore(t *testing.T) {
	files, err := filepath.Glob(harness.Root + "/internal/sqlite/schema/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	migrates := len(files) > 1 // the first is that of release 0.2.0
	old, dir := harness.Earlier(t, harness.Release020), t.TempDir()
	backup, exported := filepath.Join(dir, "backup.db"), filepath.Join(dir, "plants.ndjson")
	db := filepath.Join(t.TempDir(), "plants.db")
	before, after := newServer(t, db, old), newServer(t, db, harness.Binary())

	before.Run()
	create(t, before, `{"id":1,"name":"before the upgrade","tag":"old"}`)
	mustRun(t, old, "backup", "--db", db, backup)
	for _, args := range [][]string{{"check"}, {"token", "list"}, {"export", filepath.Join(dir, "beside.csv")}, {"backup", filepath.Join(dir, "beside.db")}} {
		mustRun(t, harness.Binary(), append(args, "--db", db)...)
	}
	out, err := run(harness.Binary(), "token", "create", "--name", "too early", "--db", db)
	if migrates && (err == nil || !strings.Contains(out, "start the server of this release first")) {
		t.Errorf("a token is created in the store of an older server: %v\n%s", err, out)
	}
	create(t, before, `{"id":2,"name":"after the backup"}`)
	before.Stop()
	wantPlants(t, before, 1, 2) // it still opens its store

	after.Run()
	create(t, after, `{"id":3,"name":"after the upgrade","tag":"new"}`)
	after.Stop()
	if !migrates {
		wantPlants(t, before, 1, 2, 3) // the old release may have it back as it is
	} else if err := before.TryRun(); err == nil || !strings.Contains(err.Error(), "a newer Plantstore wrote this store") {
		t.Fatalf("the old release on the migrated store: %v", err)
	}

	mustRun(t, harness.Binary(), "export", "--db", db, exported)
	mustRun(t, old, "restore", "--db", db, "--force", backup)
	wantPlants(t, before, 1)
	before.Run()
	mustRun(t, old, "import", "--url", before.API, exported)
	before.Stop()
	wantPlants(t, before, 1, 2, 3)

	// The new release restores what was backed up, for the old one too.
	mustRun(t, harness.Binary(), "restore", "--db", db, "--force", filepath.Join(dir, "beside.db"))
	wantPlants(t, before, 1)
	mustRun(t, old, "check", "--db", db)
}

func newServer(t *testing.T, db, program string) *harness.Server {
	t.Helper()
	s := harness.New(t, db)
	s.Program = program
	return s
}

func create(t *testing.T, s *harness.Server, plant string) {
	t.Helper()
	if status, body := s.Call(harness.Token, "POST", "/plants", plant); status != 200 {
		t.Fatalf("create %s: %d %s", plant, status, body)
	}
}

// wantPlants fails unless the server, which it starts and stops, has exactly these plants.
func wantPlants(t *testing.T, s *harness.Server, want ...plantstore.ID) {
	t.Helper()
	s.Run()
	defer s.Stop()
	_, lines := s.Call(harness.Token, "GET", "/plants", "", "Accept", "application/x-ndjson")
	for _, id := range want {
		if status, body := s.Call(harness.Token, "GET", "/plants/"+id.String(), ""); status != 200 {
			t.Errorf("get %d: %d %s", id, status, body)
		}
	}
	if got := strings.Count(lines, "\n"); got != len(want) {
		t.Errorf("the store has %d plants, want %d: %s", got, len(want), lines)
	}
}

// run runs a command with the token of the test's servers.
func run(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "PLANTSTORE_TOKEN="+harness.Token)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func mustRun(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := run(program, args...); err != nil {
		t.Fatalf("plantstore %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
