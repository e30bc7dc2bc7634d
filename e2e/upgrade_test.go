package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
)

// makeStores makes the store files in testdata that are missing, one for each
// schema:
//
//	go test -run TestUpgrade -make-stores ./e2e
//
// A file that is there is never made again, because no later binary writes what the
// one of its time wrote. So run this when a schema is added, and commit the file
// with it.
//
// Each is written by a server. For a schema that is not the newest one, the later
// ones are hidden from the build.
var makeStores = flag.Bool("make-stores", false, "make the store files in testdata that are missing")

// keptToken is the secret of the only token in the store files.
const keptToken = "e2e-kept-token-0123456789abcdef0123"

// keptPlants are what every store file holds, in order of id.
var keptPlants = []plantstore.Plant{
	{ID: math.MinInt64, Name: "the least"},
	{ID: -1, Name: "before zero", Tag: plantstore.NewTag("negative")},
	{ID: 0, Name: "", Tag: plantstore.NewTag("")},
	{ID: 1, Name: "Monstera", Tag: plantstore.NewTag("tropical")},
	{ID: 2, Name: "nothing\x00in the middle", Tag: plantstore.NewTag("\x00")},
	{ID: 3, Name: "🌵👩🏽‍🌾 שרך", Tag: plantstore.NewTag("tropical")},
	{ID: 1<<53 + 1, Name: "beyond a double"},
	{ID: math.MaxInt64, Name: "the greatest", Tag: plantstore.NewTag("tropical")},
}

// schemas returns the absolute paths of the schema files, in order.
func schemas(t *testing.T) []string {
	t.Helper()
	dir, err := filepath.Abs("../internal/sqlite/schema")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.sql"))
	if err != nil || len(files) < 2 {
		t.Fatalf("the schema files: %q, %v", files, err)
	}
	return files
}

// keptStore returns the path of a schema's store file. Git ignores names that end
// in .db.
func keptStore(version int) string {
	return filepath.Join("testdata", fmt.Sprintf("store-%04d.sqlite", version))
}

// TestUpgrade opens a store of every schema there ever was. If it says that one is
// missing, see makeStores.
func TestUpgrade(t *testing.T) {
	newest := len(schemas(t))
	for version := 1; version <= newest; version++ {
		t.Run(fmt.Sprintf("%04d", version), func(t *testing.T) {
			kept := keptStore(version)
			if _, err := os.Stat(kept); errors.Is(err, os.ErrNotExist) {
				if !*makeStores {
					t.Fatalf("there is no %s: go test -run TestUpgrade ./e2e -make-stores makes it", kept)
				}
				makeStore(t, version)
			}
			db := copyStore(t, kept)
			if got := schemaOf(t, db); got != version {
				t.Fatalf("%s has schema %d", kept, got)
			}
			s := startOn(t, db)
			wantKept(t, s)
			status, body := s.call(keptToken, "POST", "/plants", `{"id":4,"name":"fern","tag":"tropical"}`)
			if status != 200 {
				t.Errorf("create: %d %s", status, body)
			}
			s.stop()
			if got := schemaOf(t, db); got != newest {
				t.Errorf("the store has schema %d after it was opened, want %d", got, newest)
			}
			if got := s.command("check"); got != "ok" {
				t.Errorf("check: %s", got)
			}
		})
	}
}

// wantKept fails unless the server has what the store files hold, and nothing else.
func wantKept(t *testing.T, s *server) {
	t.Helper()
	c, err := client.New(s.api, keptToken, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	var all, tropical, wantTropical []plantstore.Plant
	for p, err := range c.Export(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if !slices.Equal(all, keptPlants) {
		t.Errorf("the store holds %+v, want %+v", all, keptPlants)
	}
	tag := plantstore.NewTag("tropical")
	for p, err := range c.List(t.Context(), plantstore.Query{Tag: tag}) {
		if err != nil {
			t.Fatal(err)
		}
		tropical = append(tropical, p)
	}
	for _, want := range keptPlants {
		if got, err := c.Get(t.Context(), want.ID); err != nil || got != want {
			t.Errorf("get %d: %+v, %v", want.ID, got, err)
		}
		if want.Tag == tag {
			wantTropical = append(wantTropical, want)
		}
	}
	if !slices.Equal(tropical, wantTropical) {
		t.Errorf("the store has %+v with that tag, want %+v", tropical, wantTropical)
	}
	if status, _ := s.call(bootstrap, "GET", "/plants", ""); status != 401 {
		t.Errorf("a token that the store does not have gets %d", status)
	}
}

// TestDowngrade opens a store of the newest schema with a binary that does not know
// it, and one of the schema after that with this one.
func TestDowngrade(t *testing.T) {
	files := schemas(t)
	newest := len(files)
	t.Run("older binary", func(t *testing.T) {
		wantRefused(t, buildBefore(t, files[newest-1:]), copyStore(t, keptStore(newest)), newest)
	})
	t.Run("newer store", func(t *testing.T) {
		db := copyStore(t, keptStore(newest))
		store, err := os.ReadFile(db)
		if err != nil {
			t.Fatal(err)
		}
		store[schemaAt+3]++
		if err := os.WriteFile(db, store, 0o600); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, binary, db, newest+1)
	})
}

// wantRefused fails unless every command of the program refuses the store, says
// why, and leaves it as it is.
func wantRefused(t *testing.T, program, db string, version int) {
	t.Helper()
	before, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("a newer Plantstore wrote this store: its schema is version %d, this binary knows up to %d; start the newer binary",
		version, version-1)
	for _, args := range [][]string{
		{"check"},
		{"backup", filepath.Join(t.TempDir(), "copy.db")},
		{"token", "list"},
		{"serve", "--addr", "127.0.0.1:0"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // serve would not end by itself
		defer cancel()
		out, err := exec.CommandContext(ctx, program, append(args, "--db", db)...).CombinedOutput()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), want) {
			t.Errorf("plantstore %s: %v, %s, want exit code 1 and %q", args[0], err, out, want)
		}
		after, err := os.ReadFile(db)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(before, after) {
			t.Fatalf("plantstore %s changed the store", args[0])
		}
	}
}

// schemaAt is where SQLite keeps the number of a file's schema, in four bytes with
// the least one at the end.
const schemaAt = 60

// schemaOf returns the number of the schema of a file that nobody has open.
func schemaOf(t *testing.T, db string) int {
	t.Helper()
	store, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	return int(store[schemaAt+3])
}

// copyStore returns the path of a copy for the test.
func copyStore(t *testing.T, from string) string {
	t.Helper()
	store, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(t.TempDir(), "plants.db")
	if err := os.WriteFile(db, store, 0o600); err != nil {
		t.Fatal(err)
	}
	return db
}

// makeStore makes the store file of a schema.
func makeStore(t *testing.T, version int) {
	t.Helper()
	s := &server{t: t, addr: "127.0.0.1:0", env: []string{"PLANTSTORE_BOOTSTRAP_TOKEN=" + keptToken}}
	s.db = filepath.Join(t.TempDir(), "plants.db")
	if later := schemas(t)[version:]; len(later) > 0 {
		s.program = buildBefore(t, later)
	}
	s.run()
	c, err := client.New(s.api, keptToken, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	for _, p := range keptPlants {
		if err := c.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	s.stop()
	store, err := os.ReadFile(s.db)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keptStore(version), store, 0o644); err != nil {
		t.Fatal(err)
	}
}

// buildBefore builds the binary as it would be without those schema files.
func buildBefore(t *testing.T, hidden []string) string {
	t.Helper()
	replace := make(map[string]string)
	for _, file := range hidden {
		replace[file] = "" // which go build takes for a file that is not there
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	list, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "plantstore")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", list, "-o", program, "plantstore/cmd/plantstore")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build an older binary: %v\n%s", err, out)
	}
	return program
}
