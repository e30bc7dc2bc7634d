package sqlite

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plantstore"
)

// backupOf returns a backup of the store at path.
func backupOf(t *testing.T, path string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteBackup(t.Context(), path, &b, unexpected(t)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func countPlants(t *testing.T, path string) (n int) {
	t.Helper()
	s := mustLook(t, path)
	for _, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	mustClose(t, s)
	return n
}

func TestRestorePutsTheCopyInPlace(t *testing.T) {
	copied := backupOf(t, closedStore(t, 100))
	path := filepath.Join(t.TempDir(), "plants.db")
	if err := Restore(t.Context(), bytes.NewReader(copied), path, false); err != nil {
		t.Fatal(err)
	}
	if n := countPlants(t, path); n != 100 {
		t.Errorf("%d plants, want 100", n)
	}
	if names := namesIn(t, filepath.Dir(path)); !slices.Equal(names, []string{"plants.db", "plants.db.lock"}) {
		t.Errorf("files are left behind: %q", names)
	}
	if problems := check(t, path); problems != nil {
		t.Errorf("the restored store has problems: %q", problems)
	}
	if err := Restore(t.Context(), bytes.NewReader(copied), path, false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an existing store: %v", err)
	}
}

// A copy that is restored twice has two histories, which must not be mixed up.
func TestRestoredStoresRefuseEachOthersCursors(t *testing.T) {
	copied := backupOf(t, closedStore(t, 3))
	path := filepath.Join(t.TempDir(), "plants.db")
	var last plantstore.Cursor
	for range 2 {
		if err := Restore(t.Context(), bytes.NewReader(copied), path, true); err != nil {
			t.Fatal(err)
		}
		s := mustOpen(t, path, Existing)
		if last != "" {
			if _, err := s.Events(t.Context(), plantstore.EventQuery{After: last, Limit: 1}); !errors.Is(err, plantstore.ErrGone) {
				t.Errorf("the cursor %s: %v", last, err)
			}
		}
		page, err := s.Events(t.Context(), plantstore.EventQuery{After: plantstore.LatestCursor, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		last = page.Next
		mustClose(t, s)
	}
}

// The log of the replaced store must not be applied to the copy. With the copy's own
// pages, SQLite could not tell.
func TestRestoreRetiresTheLogOfTheReplacedStore(t *testing.T) {
	path := closedStore(t, 2000)
	crashed := filepath.Join(t.TempDir(), "plants.db")
	s := mustOpen(t, path, Serve)
	if _, err := s.Apply(t.Context(), []plantstore.Write{{Plant: plantstore.Plant{ID: 1 << 40, Name: "late"}}}); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		text, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(crashed+suffix, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, s)
	copied := backupOf(t, closedStore(t, 10))
	if err := Restore(t.Context(), bytes.NewReader(copied), crashed, true); err != nil {
		t.Fatal(err)
	}
	if problems := check(t, crashed); problems != nil {
		t.Errorf("the restored store has problems: %q", problems)
	}
	if n := countPlants(t, crashed); n != 10 {
		t.Errorf("%d plants, want 10", n)
	}
}

func TestRestoreChangesNothingIfItFails(t *testing.T) {
	good := backupOf(t, closedStore(t, 2000))
	damaged := bytes.Clone(good)
	copy(damaged[len(damaged)-4096:], bytes.Repeat([]byte{0xff}, 4096))
	for name, test := range map[string]struct {
		copied []byte
		mode   Mode // of another process that has the store open
		open   bool
		want   string
	}{
		"empty":               {nil, 0, false, "empty"},
		"not a store":         {[]byte(strings.Repeat("Water the ferns. ", 100)), 0, false, "not a Plantstore store"},
		"cut off":             {good[:len(good)/2], 0, false, ""},
		"damaged":             {damaged, 0, false, "damaged"},
		"a server is running": {good, Serve, true, "another server"},
		"a command has it":    {good, Existing, true, "another process"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := closedStore(t, 5)
			if test.open {
				s := mustOpen(t, path, test.mode)
				defer mustClose(t, s)
				if _, err := s.Tokens(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			err := Restore(t.Context(), bytes.NewReader(test.copied), path, true)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
			if n := countPlants(t, path); n != 5 {
				t.Errorf("%d plants, want 5", n)
			}
			for _, name := range namesIn(t, filepath.Dir(path)) {
				if strings.Contains(name, "partial") {
					t.Errorf("%s is left behind", name)
				}
			}
		})
	}
}

func TestRestoreReplacesADamagedStore(t *testing.T) {
	path := closedStore(t, 5)
	if err := os.WriteFile(path, []byte("no longer a store"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+"-wal", []byte("nor a log"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Restore(t.Context(), bytes.NewReader(backupOf(t, closedStore(t, 7))), path, true); err != nil {
		t.Fatal(err)
	}
	if n := countPlants(t, path); n != 7 {
		t.Errorf("%d plants, want 7", n)
	}
}
