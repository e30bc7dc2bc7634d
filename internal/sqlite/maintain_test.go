package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
)

// closedStore returns the path of a closed store with n plants.
func closedStore(t *testing.T, n int) string {
	t.Helper()
	path := newPath(t)
	s := mustOpen(t, path, Serve)
	var batch []plantstore.Write
	for i := range n {
		batch = append(batch, plantstore.Write{Plant: plantstore.Plant{
			ID: plantstore.ID(i), Name: fmt.Sprint("plant ", i), Tag: plantstore.NewTag(fmt.Sprint(i % 7)),
		}})
	}
	if _, err := s.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	return path
}

// check returns the problems of the store at path.
func check(t *testing.T, path string) []string {
	t.Helper()
	s := mustLook(t, path)
	problems, err := s.Check(t.Context())
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatalf("Check: %v", err)
	}
	return problems
}

func TestCheckFindsDamage(t *testing.T) {
	for name, test := range map[string]struct {
		damage string // SQL
		want   string
	}{
		"none":                           {"SELECT 1", ""},
		"text that is not UTF-8":         {"INSERT INTO stored (id, name, tag) VALUES (-1, CAST(x'ff' AS TEXT), NULL)", "plant -1: its name or tag is not UTF-8"},
		"a token that cannot be read":    {"INSERT INTO tokens (hash, name, scopes, created) VALUES (zeroblob(32), 'x', 'all', 0)", `unknown scope "all"`},
		"a webhook that cannot be read":  {"INSERT INTO webhooks (id, value) VALUES ('wh_1', '{')", "webhook wh_1: "},
		"deliveries that cannot be read": {"INSERT INTO webhooks (id, value) VALUES ('wh_1', '{\"id\":\"wh_1\"}'); INSERT INTO deliveries VALUES ('wh_1', '{}')", "deliveries of webhook wh_1: "},
		"a plant without its tag":        {"INSERT INTO stored (id, name, tag) VALUES (-1, 'a', 'b')", "plant -1: it is not found by its tag"},
		"a plant with another tag":       {"INSERT INTO stored (id, name, tag) VALUES (-1, 'a', 'b'); INSERT INTO stored_by_tag VALUES ('c', -1)", "plant -1: it is not found by its tag"},
		"a plant with two tags":          {"INSERT INTO stored (id, name, tag) VALUES (-1, 'a', 'b'); INSERT INTO stored_by_tag VALUES ('b', -1), ('c', -1)", "plants with a tag: 1, rows of stored_by_tag: 2"},
		"a tag without its plant":        {"INSERT INTO stored_by_tag VALUES ('b', -1)", "plants with a tag: 0, rows of stored_by_tag: 1"},
		"a wrong count":                  {"UPDATE log_state SET plants = plants + 1", "there are 500 plants, but the log's state says 501"},
		"a corrupt page":                 {"", "Tree"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := closedStore(t, 500)
			if test.damage == "" {
				corruptLastPage(t, path)
			} else {
				runScript(t, path, test.damage)
			}
			problems := strings.Join(check(t, path), "\n")
			if (test.want == "") != (problems == "") || !strings.Contains(problems, test.want) {
				t.Errorf("got the problems %q, want %q", problems, test.want)
			}
		})
	}
}

// Whether the table has a plant already or memory, each event leads to the one before it.
func TestCheckFindsEventsThatLeadNowhere(t *testing.T) {
	path := closedStore(t, 3) // rows 1 to 3
	s := mustOpen(t, path, Serve)
	write := func(op plantstore.Op, id plantstore.ID) {
		t.Helper()
		w := plantstore.Write{Op: op, Plant: plantstore.Plant{ID: id, Name: "changed"}}
		if results, err := s.Apply(t.Context(), []plantstore.Write{w}); err != nil || results[0].Err != nil {
			t.Fatal(results, err)
		}
	}
	write(plantstore.Replace, 1) // row 4
	write(plantstore.Delete, 2)  // row 5
	for s.freezeRest() {
		if err := s.withWriter(t.Context(), func(*writer) error { return s.flush(idleFlushSize, flushText) }); err != nil {
			t.Fatal(err)
		}
	}
	write(plantstore.Create, 2) // row 6
	write(plantstore.Delete, 2) // row 7
	mustClose(t, s)
	if problems := check(t, path); problems != nil {
		t.Fatalf("an intact store has the problems %q", problems)
	}
	for damage, want := range map[string]string{
		"UPDATE log SET prev = 1 WHERE seq = 4":                "row 4 of the log, of plant 1, leads to row 1, but the one before it is 2",
		"UPDATE log SET prev = 0 WHERE seq = 7":                "row 7 of the log, of plant 2, leads to row 5, but the one before it is 6",
		"UPDATE stored SET seq = 3 WHERE id = 1":               "plant 1: its version is not that of its last event, row 4 of the log",
		"UPDATE stored SET seq = 0 WHERE id = 1":               "plant 1: its version is not that of its last event, row 4 of the log",
		"INSERT INTO stored (id, name, seq) VALUES (9, '', 1)": "plants whose last event is kept: 3, rows of the log that are one: 2",
		"UPDATE log SET prev = 7 WHERE seq = 1":                "row 1 of the log, of plant 0, leads to row 7, but the one before it is 0",
	} {
		damaged := copiedStore(t, path)
		runScript(t, damaged, damage)
		if problems := strings.Join(check(t, damaged), "\n"); !strings.Contains(problems, want) {
			t.Errorf("%s: the problems %q, want %q", damage, problems, want)
		}
	}
}

func runScript(t *testing.T, path, script string) {
	t.Helper()
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDefensive(false); err != nil {
		t.Fatal(err)
	}
	for _, statement := range strings.Split(script, "; ") {
		if err := sqlitex.ExecuteTransient(c, statement, nil); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// corruptLastPage overwrites the last page of the file.
func corruptLastPage(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(strings.Repeat("x", pageSize)), info.Size()-pageSize); err != nil {
		t.Fatal(err)
	}
}

// A backup taken while batches of ten are written contains whole batches, and all that
// were acknowledged before it began.
func TestBackupDuringWrites(t *testing.T) {
	s := openStore(t, newPath(t), Serve)
	const size = 10
	var acknowledged atomic.Int64
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := int64(0); ; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			var batch []plantstore.Write
			for i := range int64(size) {
				batch = append(batch, plantstore.Write{Plant: plantstore.Plant{ID: plantstore.ID(n*size + i)}})
			}
			if _, err := s.Apply(t.Context(), batch); err != nil {
				done <- err
				return
			}
			acknowledged.Store((n + 1) * size)
		}
	}()
	for acknowledged.Load() < 100*size {
		select {
		case err := <-done:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	before := acknowledged.Load()
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := Backup(t.Context(), s.path, copied, unexpected(t)); err != nil {
		t.Fatal(err)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if problems := check(t, copied); problems != nil {
		t.Errorf("the backup is damaged: %q", problems)
	}
	b := openStore(t, copied, Existing)
	count := int64(0)
	for p, err := range b.Scan(t.Context(), plantstore.Query{}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if int64(p.ID) != count {
			t.Fatalf("plant %d comes after %d others", p.ID, count)
		}
		count++
	}
	if count < before || count%size != 0 {
		t.Errorf("the backup has %d plants, want a multiple of ten, at least %d", count, before)
	}
	if info, err := os.Stat(copied); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup has the mode %v, %v", info.Mode(), err)
	}
}

func TestBackupRefusesCursorsOfTheOriginal(t *testing.T) {
	path := closedStore(t, 3)
	original := openStore(t, path, Serve)
	page, err := original.Events(t.Context(), plantstore.EventQuery{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, copied := range []string{path + ".1", path + ".2"} {
		if err := Backup(t.Context(), path, copied, unexpected(t)); err != nil {
			t.Fatal(err)
		}
		entries, err := filepath.Glob(copied + "*")
		if err != nil || len(entries) != 1 {
			t.Errorf("a backup consists of %q, %v", entries, err)
		}
		restored := openStore(t, copied, Serve)
		got, err := restored.Events(t.Context(), plantstore.EventQuery{Limit: 10})
		if err != nil || len(got.Events) != 3 {
			t.Fatalf("the backup has %d events, %v, want 3", len(got.Events), err)
		}
		at, err := got.Next.Position()
		if err != nil {
			t.Fatal(err)
		}
		names[at.Store] = true
		for _, c := range []plantstore.Cursor{page.Events[0].Cursor, page.Next} {
			if _, err := restored.Events(t.Context(), plantstore.EventQuery{After: c, Limit: 1}); !errors.Is(err, plantstore.ErrGone) {
				t.Errorf("the backup takes the original's cursor: %v, want %v", err, plantstore.ErrGone)
			}
			if _, err := original.Events(t.Context(), plantstore.EventQuery{After: c, Limit: 1}); err != nil {
				t.Errorf("the original refuses its own cursor: %v", err)
			}
		}
	}
	if len(names) != 2 {
		t.Errorf("two backups have the names %v", names)
	}
}
