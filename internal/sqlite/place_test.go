package sqlite

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/gofrs/flock"
)

// Releases until 0.2.0 lock only the name.
func TestServerAndOneOfAnEarlierReleaseRefuseEachOther(t *testing.T) {
	path := closedStore(t, 1)
	earlier := flock.New(path + ".lock")
	defer earlier.Close()
	if held, err := earlier.TryLock(); !held {
		t.Fatal(err)
	}
	if s, err := Open(path, Serve); !errors.Is(err, ErrLocked) {
		t.Errorf("while the earlier one runs: %v, %v, want ErrLocked", s, err)
	}
	command := newStore(path)
	defer command.unlock()
	if err := command.openFile(Existing); err != nil || !command.serverRuns() {
		t.Errorf("a command does not see that the earlier one runs: %v", err)
	}
	if err := earlier.Unlock(); err != nil {
		t.Fatal(err)
	}
	openStore(t, path, Serve)
	if held, err := earlier.TryLock(); held || err != nil {
		t.Errorf("the earlier one can start: %v, %v", held, err)
	}
}

// SQLite would remove the log, which may be all that is left of a store.
func TestLogWithoutItsFileIsKept(t *testing.T) {
	for name, tt := range map[string]struct {
		log     string
		empty   bool // the file is there, and empty
		allowed bool
	}{
		"no file, log":       {log: "-wal"},
		"no file, journal":   {log: "-journal"},
		"empty file, log":    {log: "-wal", empty: true},
		"creation cut short": {log: "-journal", empty: true, allowed: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			if tt.empty {
				writeFile(t, path, "")
			}
			writeFile(t, path+tt.log, "what was written")
			if tt.allowed {
				openStore(t, path, Serve)
				return
			}
			for what, open := range map[string]func() error{
				"Serve":    func() error { _, err := Open(path, Serve); return err },
				"Share":    func() error { _, err := Open(path, Share); return err },
				"Existing": func() error { _, err := Open(path, Existing); return err },
				"Look":     func() error { _, err := Look(t.Context(), path, unexpected(t)); return err },
				"Restore":  func() error { return Restore(t.Context(), strings.NewReader(""), path, true) },
			} {
				if err := open(); err == nil || !strings.Contains(err.Error(), "put that very file back") {
					t.Errorf("%s: %v", what, err)
				}
			}
			if text, err := os.ReadFile(path + tt.log); err != nil || string(text) != "what was written" {
				t.Errorf("the log is now %q, %v", text, err)
			}
			if info, err := os.Stat(path); err == nil && !tt.empty || err == nil && info.Size() > 0 {
				t.Error("there is a new store")
			}
		})
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
