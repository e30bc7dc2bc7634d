package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"plantstore"
	"plantstore/internal/storetest"
)

// release020 is a store that a server of release 0.2.0 wrote. Git ignores names that end in .db.
const release020 = "testdata/release-0.2.0.sqlite"

// release020Plants is its content, in order of id.
var release020Plants = []plantstore.Plant{
	{ID: math.MinInt64, Name: "the least"},
	{ID: -1, Name: "before zero", Tag: plantstore.NewTag("negative")},
	{ID: 0, Name: "", Tag: plantstore.NewTag("")},
	{ID: 1, Name: "Monstera", Tag: plantstore.NewTag("tropical")},
	{ID: 2, Name: "nothing\x00in the middle", Tag: plantstore.NewTag("\x00")},
	{ID: 3, Name: "🌵👩🏽‍🌾 שרך", Tag: plantstore.NewTag("tropical")},
	{ID: 1<<53 + 1, Name: "beyond a double"},
	{ID: math.MaxInt64, Name: "the greatest", Tag: plantstore.NewTag("tropical")},
}

// nextRelease makes this the next release until the test ends: it has one more step.
func nextRelease(t *testing.T, step string) {
	t.Helper()
	files := fstest.MapFS{fmt.Sprintf("schema/%04d_next.sql", Schema()+1): {Data: []byte(step)}}
	for _, name := range schemaSteps() {
		text, err := fs.ReadFile(schemaFiles, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	before := schemaFiles
	schemaFiles = files
	t.Cleanup(func() { schemaFiles = before })
}

// setSchema sets the version of a store's schema.
func setSchema(t *testing.T, path string, version int) {
	t.Helper()
	runRaw(t, path, fmt.Sprintf("PRAGMA user_version=%d", version))
}

// describe returns the file's schema, without white space and quotes, and its version.
func describe(t *testing.T, path string) string {
	t.Helper()
	c := openRaw(t, path)
	defer c.Close()
	return regexp.MustCompile(`[\s"]`).ReplaceAllString(text(t, c, "SELECT sql FROM sqlite_schema ORDER BY type, name", 0), "") +
		"\nuser_version " + text(t, c, "PRAGMA user_version", 0) +
		"\napplication_id " + text(t, c, "PRAGMA application_id", 0)
}

func TestSchemasAreNumberedAsTheirFiles(t *testing.T) {
	for i, name := range schemaSteps() {
		if want := fmt.Sprintf("schema/%04d_", base+i); !strings.HasPrefix(name, want) {
			t.Errorf("%s makes the schema %d", name, base+i)
		}
	}
}

// A store of release 0.2.0 keeps its data, and gets the schema that a new store has.
func TestStoreOfTheFirstReleaseIsMigrated(t *testing.T) {
	for _, next := range []string{"", "ALTER TABLE stored ADD COLUMN next TEXT"} {
		if next != "" {
			nextRelease(t, next)
		}
		path, fresh := copiedStore(t, release020), newPath(t)
		var log bytes.Buffer
		s, err := OpenLogged(path, Serve, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range []string{"migrating the store", "applied a step"} {
			if n := strings.Count(log.String(), record); n != Schema()-base {
				t.Errorf("%q was logged %d times for %d steps", record, n, Schema()-base)
			}
		}
		for _, want := range release020Plants {
			wantPlant(t, s, want)
		}
		var plants []plantstore.Plant
		for p, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
			if err != nil {
				t.Fatal(err)
			}
			plants = append(plants, p.Plant)
		}
		if !slices.Equal(plants, release020Plants) {
			t.Errorf("the store has %v", plants)
		}
		page, err := s.List(t.Context(), plantstore.Query{Tag: plantstore.NewTag("tropical"), Limit: 10})
		if err != nil || len(page.Plants) != 3 {
			t.Errorf("List by tag: %v, %v", page, err)
		}
		if token, err := s.Token(t.Context(), plantstore.HashSecret("e2e-kept-token-0123456789abcdef0123")); err != nil || token.LastUsed.IsZero() {
			t.Errorf("Token: %v, %v", token, err)
		}
		create(t, s, fern(4))
		storetest.CheckHistories(t, s, 20)
		checkOldPlant(t, s, release020Plants[3])
		for _, op := range []plantstore.Op{plantstore.Delete, plantstore.Create, plantstore.Replace, plantstore.Delete} {
			w := plantstore.Write{Op: op, Plant: release020Plants[1]}
			w.Plant.Name = fmt.Sprint(op)
			if results, err := s.Apply(t.Context(), []plantstore.Write{w}); err != nil || results[0].Err != nil {
				t.Fatal(results, err)
			}
			storetest.CheckHistories(t, s, 20)
		}
		mustClose(t, s)
		mustClose(t, mustOpen(t, path, Existing))
		if problems := check(t, path); problems != nil {
			t.Errorf("check: %q", problems)
		}
		mustClose(t, mustOpen(t, fresh, Serve))
		if got, want := describe(t, path), describe(t, fresh); got != want {
			t.Errorf("the schema is\n%s\nand that of a new store\n%s", got, want)
		}
	}
}

// checkOldPlant replaces a plant that an earlier release created: its version changes, and nobody
// knows when it was created.
func checkOldPlant(t *testing.T, s *Store, p plantstore.Plant) {
	t.Helper()
	before, err := s.Plant(t.Context(), p.ID)
	if err != nil {
		t.Fatal(err)
	}
	w := plantstore.Write{Op: plantstore.Replace, Plant: p, If: &plantstore.Condition{Match: []plantstore.ETag{before.ETag()}}}
	w.Plant.Name += ", replaced"
	for _, want := range []error{nil, plantstore.ErrPrecondition} {
		if results, err := s.Apply(t.Context(), []plantstore.Write{w}); err != nil || results[0].Err != want {
			t.Fatalf("replaced with the version %s: %v, %v", before.Version, results, err)
		}
	}
	after, err := s.Plant(t.Context(), p.ID)
	if err != nil || after.Version == before.Version || after.Created != before.Created || after.Version.Time == 0 {
		t.Errorf("%+v after %+v, %v", after, before, err)
	}
}

// An older server that has the store open, or is started again, would go on to write the old
// tables.
func TestOnlyAServerMigrates(t *testing.T) {
	path := copiedStore(t, release020)
	nextRelease(t, "DROP TABLE stored_by_tag")
	before := describe(t, path)
	for _, mode := range []Mode{Existing, Share} {
		if _, err := Open(path, mode); err == nil || !strings.Contains(err.Error(), "start the server of this release first") {
			t.Errorf("mode %d: %v", mode, err)
		}
	}
	if after := describe(t, path); after != before {
		t.Errorf("the schema is\n%s\nwant\n%s", after, before)
	}
}

func TestFailedMigrationChangesNothing(t *testing.T) {
	path := copiedStore(t, release020)
	nextRelease(t, "CREATE TABLE next (id INTEGER); CREATE TABLE stored (id INTEGER)")
	before := describe(t, path)
	for range 2 {
		if _, err := Open(path, Serve); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("to schema %d", Schema())) {
			t.Fatalf("Open: %v, want a failure of the last step", err)
		}
	}
	if after := describe(t, path); after != before {
		t.Errorf("the schema is\n%s\nwant\n%s", after, before)
	}
}

// Whatever is done with a store of another release's schema, it stays as it was, its log
// included.
func TestOtherSchemasAreRefused(t *testing.T) {
	ctx, say := t.Context(), func(string) {}
	for version, refusal := range map[int]struct {
		is   error
		says string
	}{
		1:            {ErrOlderSchema, fmt.Sprintf("its schema is version 1, this release supports schemas from %d on; export the plants with the release that wrote it, and import them into a new store with this one", base)},
		base - 1:     {ErrOlderSchema, fmt.Sprintf("its schema is version %d, ", base-1)},
		Schema() + 1: {ErrNewerSchema, fmt.Sprintf("its schema is version %d, this release supports schemas up to %d; start the newer one", Schema()+1, Schema())},
	} {
		original := copiedStore(t, release020)
		setSchema(t, original, version)
		for name, prepare := range states {
			path := prepare(t, original)
			before := contents(t, path)
			for what, use := range map[string]func() error{
				"serve":    func() error { _, err := Open(path, Serve); return err },
				"share":    func() error { _, err := Open(path, Share); return err },
				"existing": func() error { _, err := Open(path, Existing); return err },
				"look":     func() error { _, err := Look(ctx, path, say); return err },
				"backup":   func() error { return Backup(ctx, path, newPath(t), say) },
				"stream":   func() error { return WriteBackup(ctx, path, new(bytes.Buffer), say) },
				"restore": func() error {
					return Restore(ctx, bytes.NewReader(before[0]), newPath(t), false)
				},
			} {
				err := use()
				if !errors.Is(err, refusal.is) || !strings.Contains(err.Error(), refusal.says) {
					t.Errorf("%s, schema %d, %s: %v", what, version, name, err)
				}
				if after := contents(t, path); !slices.EqualFunc(after, before, bytes.Equal) {
					t.Fatalf("%s, schema %d, %s: the store was changed", what, version, name)
				}
			}
		}
	}
}

// contents returns what is in the file of a store, and in its log if that has pages.
func contents(t *testing.T, path string) (contents [][]byte) {
	t.Helper()
	for _, name := range []string{path, path + "-wal"} {
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if name != path && len(text) <= 32 {
			text = nil
		}
		contents = append(contents, text)
	}
	return contents
}

// A server of release 0.2.0 may have flushed its events: their plants have no version.
func TestFlushedEventsOfTheFirstReleaseAreFound(t *testing.T) {
	path := copiedStore(t, release020)
	s := mustOpen(t, path, Serve)
	for s.freezeRest() {
		if err := s.withWriter(t.Context(), func(*writer) error { return s.flush(idleFlushSize, flushText) }); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, s)
	runRaw(t, path, "UPDATE stored SET seq = 0, updated = 0, created = NULL")
	s = mustOpen(t, path, Serve)
	defer mustClose(t, s)
	storetest.CheckHistories(t, s, 20)
	checkOldPlant(t, s, release020Plants[3])
	storetest.CheckHistories(t, s, 20)
	if problems, err := s.Check(t.Context()); err != nil || problems != nil {
		t.Errorf("check: %q, %v", problems, err)
	}
}
