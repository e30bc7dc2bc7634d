package crash

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// A file has one server, by whatever name another one opens it.
func TestSecondServerIsRefusedByAnyName(t *testing.T) {
	for name, otherName := range map[string]func(t *testing.T, second *harness.Server, db string){
		"hard link": func(t *testing.T, second *harness.Server, db string) {
			if err := os.Link(db, second.DB); err != nil {
				t.Fatal(err)
			}
		},
		"bind mount": func(t *testing.T, second *harness.Server, db string) {
			if err := os.WriteFile(second.DB, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			second.Program = withMount(t, db, second.DB)
		},
		"deleted lock": func(t *testing.T, second *harness.Server, db string) {
			second.DB = db
			if err := os.Remove(db + ".lock"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := harness.Start(t)
			wantCreated(t, first, `{"id":1,"name":"oak"}`)
			wantLocks(t, first)
			first.Command("token", "create", "--name", "by a command")
			first.Command("check")
			wantLocks(t, first)
			second := harness.New(t, filepath.Join(t.TempDir(), "plants.db"))
			otherName(t, second, first.DB)
			if err := second.TryRun(); err == nil || !strings.Contains(err.Error(), "another server has this store open") {
				t.Errorf("the second server: %v", err)
			}
			if second.DB != first.DB && second.Program == "" {
				for _, args := range [][]string{{"token", "create", "--name", "lost"}, {"check"}, {"backup", second.DB + ".copy"}} {
					if out, err := second.TryCommand(args...); err == nil || !strings.Contains(err.Error(), "by another name") {
						t.Errorf("%s by another name: %s, %v", args[0], out, err)
					}
				}
			}
			first.AwaitReady(http.StatusOK)
			wantCreated(t, first, `{"id":2,"name":"elm"}`)
			wantLocks(t, first)
		})
	}
}

// withMount returns a program that is plantstore where the file at path is also at target.
func withMount(t *testing.T, path, target string) string {
	t.Helper()
	program, err := filepath.Abs(harness.Binary())
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "plantstore")
	text := fmt.Sprintf("#!/bin/sh\nexec %s sh -c 'mount --bind %s %s && exec %s \"$@\"' sh \"$@\"\n", ownMounts(t), path, target, program)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return script
}

// wantLocks checks that SQLite has its lock on the file, with which no other process takes
// the write-ahead log away. The kernel drops it when its process closes the file by another
// descriptor than SQLite's.
func wantLocks(t *testing.T, s *harness.Server) {
	t.Helper()
	info, err := os.Stat(s.DB)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(":%d 1073741826 1073742335", info.Sys().(*syscall.Stat_t).Ino)
	// What others lock and unlock meanwhile can hide a line.
	testenv.WaitFor(t, "SQLite's lock on the file", func() bool {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(locks)) {
			if strings.Contains(line, "POSIX") && strings.Contains(line, fmt.Sprintf(" %d ", s.PID())) && strings.HasSuffix(line, want+"\n") {
				return true
			}
		}
		return false
	})
}

// A file with two names has a log for each. The server that finds none beside its name would
// write to a store that lacks what is in the other.
func TestFileWithSeveralNamesIsNotWritten(t *testing.T) {
	db := killedStore(t)
	other := filepath.Join(t.TempDir(), "plants.db")
	if err := os.Link(db, other); err != nil {
		t.Fatal(err)
	}
	for _, db := range []string{db, other} {
		s := harness.New(t, db)
		_, tokenErr := s.TryCommand("token", "create", "--name", "a")
		for what, err := range map[string]error{"serve": s.TryRun(), "token create": tokenErr} {
			if err == nil || !strings.Contains(err.Error(), "find -samefile") {
				t.Errorf("%s: %v, want a refusal that says what to do", what, err)
			}
		}
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	s := harness.New(t, db)
	s.Run()
	wantFound(t, s, killedPlant.ID)
}

func wantFound[ID ~int | ~int64](t *testing.T, s *harness.Server, ids ...ID) {
	t.Helper()
	for _, id := range ids {
		if status, body := s.Call(harness.Token, "GET", fmt.Sprint("/plants/", id), ""); status != http.StatusOK {
			t.Errorf("plant %d: %d %.200s", id, status, body)
		}
	}
}

// A server whose file goes away acknowledges nothing more, and still reads. Whatever is in the
// place of the file, the next start finds a store that is intact, or refuses to make one.
func TestFileThatGoesAwayIsNoticed(t *testing.T) {
	for name, tt := range map[string]struct {
		fault  func(db string) error
		repair func(db string) error // nil if the next start needs none
		lost   bool                  // the next start is refused
		other  bool                  // the next start finds another store
	}{
		"removed": {fault: os.Remove, lost: true},
		"moved": {
			fault:  func(db string) error { return os.Rename(db, db+".moved") },
			repair: func(db string) error { return os.Rename(db+".moved", db) },
			lost:   true,
		},
		"folder moved": {
			fault:  func(db string) error { return os.Rename(filepath.Dir(db), filepath.Dir(db)+".moved") },
			repair: func(db string) error { return os.Rename(filepath.Dir(db)+".moved", filepath.Dir(db)) },
		},
		"replaced":      {fault: func(db string) error { return os.Rename(db+".other", db) }, other: true},
		"log removed":   {fault: func(db string) error { return os.Remove(db + "-wal") }},
		"log replaced":  {fault: func(db string) error { return replaceWithCopy(db + "-wal") }},
		"index removed": {fault: func(db string) error { return os.Remove(db + "-shm") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "store")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			s := harness.StartOn(t, filepath.Join(dir, "plants.db"))
			wantCreated(t, s, `{"id":1,"name":"oak"}`)
			s.Command("backup", s.DB+".other")
			wantCreated(t, s, `{"id":2,"name":"elm"}`)
			s.AwaitReady(http.StatusOK)
			if err := tt.fault(s.DB); err != nil {
				t.Fatal(err)
			}
			testenv.WaitFor(t, "the server to notice", func() bool { return strings.Contains(s.Log(), "removed, moved or replaced") })
			s.AwaitReady(http.StatusServiceUnavailable)
			if status, body := s.Call(harness.Token, "POST", "/plants", `{"id":3,"name":"ash"}`); status != http.StatusServiceUnavailable || !strings.Contains(body, "removed, moved or replaced") {
				t.Errorf("a create: %d %s", status, body)
			}
			wantFound(t, s, 1, 2)
			wantSaved(t, s)
			if n := strings.Count(s.Log(), `"level":"ERROR"`); n != 1 || !strings.Contains(s.Log(), "is not the file that was opened") {
				t.Errorf("%d errors are logged, want one:\n%s", n, s.Log())
			}
			s.StopWith(1)
			if tt.lost {
				wantOrphanRefused(t, s)
			}
			if tt.repair != nil {
				if err := tt.repair(s.DB); err != nil {
					t.Fatal(err)
				}
			} else if tt.lost {
				return
			}
			s.Run()
			wantFound(t, s, 1)
			if tt.other {
				if status, _ := s.Call(harness.Token, "GET", "/plants/2", ""); status != http.StatusNotFound {
					t.Errorf("the other store has plant 2: %d", status)
				}
			} else {
				wantFound(t, s, 2)
			}
			wantCreated(t, s, `{"id":3,"name":"ash"}`)
			s.Stop()
			s.Command("check")
		})
	}
}

// wantSaved does what the runbook says: whatever has become of the files, the server has them open.
func wantSaved(t *testing.T, s *harness.Server) {
	t.Helper()
	saved := filepath.Join(t.TempDir(), "saved.db")
	fds := fmt.Sprintf("/proc/%d/fd", s.PID())
	entries, err := os.ReadDir(fds)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name, _ := os.Readlink(filepath.Join(fds, e.Name()))
		name = strings.TrimSuffix(strings.TrimSuffix(filepath.Base(name), " (deleted)"), ".moved")
		suffix, ok := strings.CutPrefix(name, "plants.db")
		if !ok || suffix != "" && suffix != "-wal" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(fds, e.Name()))
		if err := errors.Join(err, os.WriteFile(saved+suffix, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	copied := harness.New(t, saved)
	if out, err := copied.TryCommand("export", "-"); err != nil || strings.Count(out, "\n") != 1 {
		t.Errorf("what the server has open: %s, %v, want two plants", out, err)
	}
}

// replaceWithCopy puts a copy in place of a file.
func replaceWithCopy(path string) error {
	text, err := os.ReadFile(path)
	return errors.Join(err, os.WriteFile(path+".copy", text, 0o600), os.Rename(path+".copy", path))
}

// wantOrphanRefused checks that nothing makes a store in place of one whose log is left, or changes
// the log.
func wantOrphanRefused(t *testing.T, s *harness.Server) {
	t.Helper()
	before, err := os.ReadFile(s.DB + "-wal")
	if err != nil || len(before) == 0 {
		t.Fatalf("the log is gone: %v", err)
	}
	_, initErr := s.TryCommand("token", "create", "--name", "a", "--init")
	_, tokenErr := s.TryCommand("token", "create", "--name", "a")
	_, restoreErr := s.TryCommand("restore", "--force", s.DB+".other")
	_, checkErr := s.TryCommand("check")
	for what, err := range map[string]error{
		"serve": s.TryRun(), "token create --init": initErr, "token create": tokenErr, "restore": restoreErr, "check": checkErr,
	} {
		if err == nil || !strings.Contains(err.Error(), "put that very file back") {
			t.Errorf("%s beside a log without its file: %v", what, err)
		}
	}
	after, err := os.ReadFile(s.DB + "-wal")
	if err != nil || string(after) != string(before) {
		t.Errorf("the log has changed: %v", err)
	}
	if _, err := os.Lstat(s.DB); err == nil {
		t.Error("there is a new file")
	}
}
