package sqlite

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plantstore"
)

// mustLook looks at a store of this release, which the caller closes.
func mustLook(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Look(t.Context(), path, unexpected(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// unexpected fails the test if the store is copied.
func unexpected(t *testing.T) func(string) {
	return func(sentence string) { t.Errorf("unexpected: %s", sentence) }
}

// folder describes every byte of the files in a folder, when they were written, and when the
// folder last got or lost a file.
func folder(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for _, name := range append(namesIn(t, dir), ".") {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s, written at %v", name, info.ModTime())
		if name != "." {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, ", %d bytes: %x", len(text), sha256.Sum256(text))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// loggedToken is the name of the token in the log of a killedStore.
const loggedToken = "in the log"

// killedStore returns a copy of a store as a kill leaves it: its log has a token. Without
// its index, it is as a copy of the first two files.
func killedStore(t *testing.T, path string, index bool) string {
	t.Helper()
	killed := newPath(t)
	suffixes := []string{"", "-wal"}
	if index {
		suffixes = append(suffixes, "-shm")
	}
	c := openRaw(t, copiedStore(t, path))
	text(t, c, "PRAGMA journal_mode=wal", 0)
	if err := errors.Join(pragma(c, "wal_autocheckpoint=0"),
		exec(c, "INSERT INTO tokens (hash, name, scopes, created) VALUES (zeroblob(32), ?, 'plants:read', 0)", loggedToken)); err != nil {
		t.Fatal(err)
	}
	from := text(t, c, "SELECT file FROM pragma_database_list", 0)
	for _, suffix := range suffixes {
		if err := copyFile(from+suffix, killed+suffix); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	return killed
}

// emptiedStore returns a copy of a store whose log has no pages: a power cut has left only its
// header.
func emptiedStore(t *testing.T, path string) string {
	t.Helper()
	emptied := killedStore(t, path, true)
	if err := os.Truncate(emptied+"-wal", 32); err != nil {
		t.Fatal(err)
	}
	return emptied
}

// copiedStore copies a file into a folder of its own.
func copiedStore(t *testing.T, path string) string {
	t.Helper()
	copied := newPath(t)
	if err := copyFile(path, copied); err != nil {
		t.Fatal(err)
	}
	return copied
}

// states are the ways in which a process can leave a store. Each returns a copy of it.
var states = map[string]func(t *testing.T, path string) string{
	"closed":                    copiedStore,
	"killed":                    func(t *testing.T, path string) string { return killedStore(t, path, true) },
	"killed, without its index": func(t *testing.T, path string) string { return killedStore(t, path, false) },
	"a log without pages":       emptiedStore,
}

func TestLookingAtAStoreChangesNothing(t *testing.T) {
	for _, schema := range []string{"newest schema", "older schema"} {
		for name, prepare := range states {
			t.Run(schema+", "+name, func(t *testing.T) {
				path := prepare(t, release020)
				if schema == "older schema" {
					nextRelease(t, "CREATE TABLE next (id INTEGER)")
				}
				temp := t.TempDir()
				t.Setenv("TMPDIR", temp)
				before := folder(t, filepath.Dir(path))
				lookEverywhere(t, path, strings.HasPrefix(name, "killed"))
				if after := folder(t, filepath.Dir(path)); after != before {
					t.Errorf("the folder was\n%s\nand is\n%s", before, after)
				}
				if left := namesIn(t, temp); len(left) > 0 {
					t.Errorf("temporary files are left: %q", left)
				}
			})
		}
	}
}

// lookEverywhere reads all of a store file, as commands do, and finds what it should.
func lookEverywhere(t *testing.T, path string, killed bool) {
	t.Helper()
	ctx, say := t.Context(), func(string) {}
	s, err := Look(ctx, path, say)
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := s.Check(ctx); err != nil || len(problems) > 0 {
		t.Errorf("Check: %q, %v", problems, err)
	}
	plants := 0
	for _, err := range s.Scan(ctx, plantstore.Query{}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		plants++
	}
	tokens, err := s.Tokens(ctx)
	if err != nil {
		t.Fatal(err)
	}
	logged := slices.ContainsFunc(tokens, func(t plantstore.Token) bool { return t.Name == loggedToken })
	if plants != 8 || logged != killed {
		t.Errorf("%d plants, want 8; the log's token was found: %t", plants, logged)
	}
	mustClose(t, s)

	var backup bytes.Buffer
	if err := WriteBackup(ctx, path, &backup, say); err != nil {
		t.Fatal(err)
	}
	restored := newPath(t)
	if err := Restore(ctx, &backup, restored, false); err != nil {
		t.Fatal(err)
	}
	// The original is read from a copy, which recovers its log.
	copied := copiedStore(t, path)
	if killed {
		if err := copyFile(path+"-wal", copied+"-wal"); err != nil {
			t.Fatal(err)
		}
	}
	original, backedUp := openRaw(t, copied), openRaw(t, restored)
	for _, query := range []string{"PRAGMA user_version", "SELECT group_concat(name) FROM tokens", "SELECT count(*) FROM plants"} {
		if want, got := text(t, original, query, 0), text(t, backedUp, query, 0); got != want {
			t.Errorf("%s: the restored backup has %s, the original %s", query, got, want)
		}
	}
}

// A log beside the file that a link leads to is part of the store.
func TestLookFollowsLinks(t *testing.T) {
	path := killedStore(t, closedStore(t, 1), true)
	link := newPath(t)
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	s := mustLook(t, link)
	defer mustClose(t, s)
	if tokens, err := s.Tokens(t.Context()); err != nil || len(tokens) != 1 {
		t.Errorf("the tokens are %v, %v, want the one in the log", tokens, err)
	}
}

// Without a log, a file is read without locks. A server that is started then may have
// overwritten what was read.
func TestLookNoticesAServerThatIsStarted(t *testing.T) {
	path := closedStore(t, 1)
	s := mustLook(t, path)
	server := openStore(t, path, Serve)
	create(t, server, fern(1))
	if err := s.Close(); !errors.Is(err, errWritten) {
		t.Errorf("Close: %v, want %v", err, errWritten)
	}
	s = mustLook(t, path)
	wantPlant(t, s, fern(1))
	create(t, server, fern(2))
	wantPlant(t, s, fern(2))
	mustClose(t, s)
}

// A copy of an older store gets new indexes, so that the original's have to be checked.
func TestCheckFindsDamageInAnOlderStore(t *testing.T) {
	path := copiedStore(t, release020)
	nextRelease(t, "CREATE TABLE next (id INTEGER)")
	c := openRaw(t, path)
	root, err := strconv.Atoi(text(t, c, "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_webhooks_1'", 0))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file[(root-1)*pageSize] ^= 0xff
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Look(t.Context(), path, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, s)
	if problems, err := s.Check(t.Context()); err != nil || len(problems) == 0 {
		t.Errorf("Check: %q, %v, want a problem", problems, err)
	}
}

func TestCopyThatDoesNotFitSaysWhatToDo(t *testing.T) {
	for dir, size := range map[string]int64{t.TempDir(): 1 << 62, filepath.Join(t.TempDir(), "missing"): 1} {
		t.Setenv("TMPDIR", dir)
		if _, err := makeTemp(size); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "set TMPDIR") {
			t.Errorf("%d bytes in %s: %v", size, dir, err)
		}
	}
}
