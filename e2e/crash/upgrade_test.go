package crash

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plantstore"
	"plantstore/client"
	"plantstore/e2e/harness"
)

// makeStores creates the store file in testdata of the newest schema, if it is missing:
//
//	go test -run TestStoresOfEverySchemaAreMigrated ./e2e/crash -make-stores
//
// Run it when a schema is added, and commit the file with it. A file that exists is never
// made again, because only the binary of its time writes exactly that.
var makeStores = flag.Bool("make-stores", false, "create the store file in testdata of the newest schema")

// storedToken is the secret of the only token in the store files.
const storedToken = "e2e-kept-token-0123456789abcdef0123"

// storedPlants is the content of every store file, in order of id.
var storedPlants = []plantstore.Plant{
	{ID: math.MinInt64, Name: "the least"},
	{ID: -1, Name: "before zero", Tag: plantstore.NewTag("negative")},
	{ID: 0, Name: "", Tag: plantstore.NewTag("")},
	{ID: 1, Name: "Monstera", Tag: plantstore.NewTag("tropical")},
	{ID: 2, Name: "nothing\x00in the middle", Tag: plantstore.NewTag("\x00")},
	{ID: 3, Name: "🌵👩🏽‍🌾 שרך", Tag: plantstore.NewTag("tropical")},
	{ID: 1<<53 + 1, Name: "beyond a double"},
	{ID: math.MaxInt64, Name: "the greatest", Tag: plantstore.NewTag("tropical")},
}

// newestSchema returns the version of the newest schema.
func newestSchema(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob(harness.Root + "/internal/sqlite/schema/*.sql")
	if err != nil || len(files) < 2 {
		t.Fatalf("the schema files: %q, %v", files, err)
	}
	return len(files)
}

// storeFile returns the path of a schema's store file. Git ignores names that end
// in .db.
func storeFile(version int) string {
	return filepath.Join("testdata", fmt.Sprintf("store-%04d.sqlite", version))
}

// stagedStore is a store with schema 3 in which some plants are staged. It was written
// by a server of that time, without idle flushes, that was killed.
var stagedStore = filepath.Join("testdata", "store-0003-staged.sqlite")

// If a store file is missing, see makeStores.
func TestStoresOfEverySchemaAreMigrated(t *testing.T) {
	newest := newestSchema(t)
	files := map[string]int{stagedStore: 3}
	for version := 1; version <= newest; version++ {
		files[storeFile(version)] = version
	}
	for file, version := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
				if !*makeStores || version != newest {
					t.Fatalf("%s is missing: see makeStores", file)
				}
				makeStore(t, file)
			}
			db := copyStore(t, file)
			if got := schemaOf(t, db); got != version {
				t.Fatalf("%s has schema %d", file, got)
			}
			s := harness.StartOn(t, db)
			wantStoredPlants(t, s)
			status, body := s.Call(storedToken, "POST", "/plants", `{"id":4,"name":"fern","tag":"tropical"}`)
			if status != 200 {
				t.Errorf("create: %d %s", status, body)
			}
			s.Stop()
			if got, want := strings.Count(s.Log(), "applied a step of the migration"), newest-version; got != want {
				t.Errorf("the server logged %d steps, want %d:\n%s", got, want, s.Log())
			}
			if got := schemaOf(t, db); got != newest {
				t.Errorf("the store has schema %d after it was opened, want %d", got, newest)
			}
			if got := s.Command("check"); got != "ok" {
				t.Errorf("check: %s", got)
			}
		})
	}
}

// wantStoredPlants fails unless the server has exactly what the store files have.
func wantStoredPlants(t *testing.T, s *harness.Server) {
	t.Helper()
	c, err := client.New(s.API, storedToken, client.Options{})
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
	if !slices.Equal(all, storedPlants) {
		t.Errorf("the store has %+v, want %+v", all, storedPlants)
	}
	tag := plantstore.NewTag("tropical")
	for p, err := range c.List(t.Context(), plantstore.Query{Tag: tag}) {
		if err != nil {
			t.Fatal(err)
		}
		tropical = append(tropical, p)
	}
	for _, want := range storedPlants {
		if got, err := c.Get(t.Context(), want.ID); err != nil || got != want {
			t.Errorf("get %d: %+v, %v", want.ID, got, err)
		}
		if want.Tag == tag {
			wantTropical = append(wantTropical, want)
		}
	}
	if !slices.Equal(tropical, wantTropical) {
		t.Errorf("with that tag the store has %+v, want %+v", tropical, wantTropical)
	}
	if status, _ := s.Call(harness.Token, "GET", "/plants", ""); status != 401 {
		t.Errorf("an unknown token got %d", status)
	}
}

// schemaAt is where a SQLite file has its user_version, as four bytes in big-endian
// order.
const schemaAt = 60

// schemaOf returns the schema version of a file that no process has open.
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
	db := filepath.Join(t.TempDir(), "plants.DB")
	if err := os.WriteFile(db, store, 0o600); err != nil {
		t.Fatal(err)
	}
	return db
}

// makeStore creates the store file of the newest schema.
func makeStore(t *testing.T, file string) {
	t.Helper()
	s := harness.New(t, filepath.Join(t.TempDir(), "plants.db"))
	s.Env = []string{"PLANTSTORE_BOOTSTRAP_TOKEN=" + storedToken}
	s.Run()
	c, err := client.New(s.API, storedToken, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	for _, p := range storedPlants {
		if err := c.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	s.Stop()
	store, err := os.ReadFile(s.DB)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, store, 0o644); err != nil {
		t.Fatal(err)
	}
}
