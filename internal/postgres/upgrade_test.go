package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/storetest"
	"plantstore/internal/testenv"
)

// oldPlants are the plants of the store in testdata, in order of id.
var oldPlants = []plantstore.Plant{
	{ID: math.MinInt64, Name: "the least"},
	{ID: -1, Name: "before zero", Tag: plantstore.NewTag("tropical")},
	{ID: 0, Name: "", Tag: plantstore.NewTag("")},
	{ID: 1, Name: "nothing\x00in the middle", Tag: plantstore.NewTag("\x00")},
	{ID: 2, Name: "the symbols \u2400 and \u241b", Tag: plantstore.NewTag("\u2400\x00")},
	{ID: 1<<53 + 1, Name: "beyond a double"},
	{ID: math.MaxInt64, Name: "the greatest", Tag: plantstore.NewTag("tropical")},
}

// oldToken is the only token of the store in testdata.
var oldToken = plantstore.Token{
	Hash:     plantstore.HashSecret("the secret of long ago"),
	Name:     "a gate\x00keeper",
	Scopes:   []plantstore.Scope{plantstore.ScopeWrite, plantstore.ScopeRead},
	Created:  time.Unix(1_700_000_000, 0).UTC(),
	Expires:  time.Unix(4_000_000_000, 0).UTC(),
	LastUsed: time.Unix(1_700_000_060, 0).UTC(),
}

// release020 returns the URL of a store that release 0.2.0 wrote.
func release020(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile("testdata/release-0.2.0.sql")
	if err != nil {
		t.Fatal(err)
	}
	url := pgtest.Fresh(t)
	query(t, url, string(script))
	return url
}

func TestSchemasAreNumberedAsTheirFiles(t *testing.T) {
	for i, name := range steps {
		if want := fmt.Sprintf("schema/%04d_", base+i); !strings.HasPrefix(name, want) {
			t.Errorf("%s makes the schema %d", name, base+i)
		}
	}
}

// describeTables returns the columns, indexes and constraints of the database, in
// order. Columns that were dropped do not count.
func describeTables(t *testing.T, url string) []string {
	t.Helper()
	return query(t, url, `
		SELECT concat_ws(' ', table_name, row_number() OVER (PARTITION BY table_name ORDER BY ordinal_position), column_name, data_type, is_nullable, column_default, identity_generation) AS line
			FROM information_schema.columns WHERE table_schema = current_schema()
		UNION ALL SELECT replace(indexdef, current_schema() || '.', '')
			FROM pg_indexes WHERE schemaname = current_schema()
		UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid))
			FROM pg_constraint WHERE connamespace = current_schema()::regnamespace
		ORDER BY line`)
}

// dumpRows returns every row and the transaction that wrote it last, in order.
func dumpRows(t *testing.T, url string) []string {
	t.Helper()
	tables := query(t, url, `SELECT format('SELECT concat_ws('' '', %L, r.xmin, r.ctid, r) AS line FROM %I AS r', table_name, table_name)
		FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'`)
	return query(t, url, strings.Join(tables, " UNION ALL ")+" ORDER BY line")
}

// wantPlants fails unless Scan, Plant and List return these plants.
func wantPlants(t *testing.T, s *Store, want []plantstore.Plant) {
	t.Helper()
	wantAll(t, s, want...)
	tropical := plantstore.NewTag("tropical")
	var wantTropical []plantstore.ID
	for _, p := range want {
		if got, err := s.Plant(t.Context(), p.ID); err != nil || got.Plant != p {
			t.Errorf("plant %d is %+v, %v, want %+v", p.ID, got, err, p)
		}
		if p.Tag == tropical {
			wantTropical = append(wantTropical, p.ID)
		}
	}
	if stats, err := s.Stats(t.Context()); err != nil || stats.Plants != int64(len(want)) {
		t.Errorf("Stats: %+v, %v, want %d plants", stats, err, len(want))
	}
	counts := map[string]int{}
	for _, p := range want {
		if tag, ok := p.Tag.Text(); ok {
			counts[tag]++
		}
	}
	tags, err := s.Tags(t.Context(), plantstore.TagQuery{Limit: 100})
	if err != nil || len(tags.Tags) != len(counts) {
		t.Errorf("Tags: %v, %v, want %v", tags, err, counts)
	}
	for _, tag := range tags.Tags {
		if counts[tag.Tag] != tag.Plants {
			t.Errorf("%d plants have the tag %q, want %d", tag.Plants, tag.Tag, counts[tag.Tag])
		}
	}
	page, err := s.List(t.Context(), plantstore.Query{Tag: tropical, Limit: 100})
	if err != nil || !slices.EqualFunc(page.Plants, wantTropical, func(p plantstore.StoredPlant, id plantstore.ID) bool { return p.ID == id }) {
		t.Errorf("List by tag: %+v, %v, want %+v", page.Plants, err, wantTropical)
	}
}

// wantOldData fails unless the store contains what the one in testdata does.
func wantOldData(t *testing.T, s *Store) {
	t.Helper()
	wantPlants(t, s, oldPlants)
	tokens, err := s.Tokens(t.Context())
	if err != nil || !reflect.DeepEqual(tokens, []plantstore.Token{oldToken}) {
		t.Errorf("the tokens are %+v, %v, want %+v", tokens, err, oldToken)
	}
	if first, err := s.CreateFirstToken(t.Context(), token("an intruder")); first || err != nil {
		t.Errorf("CreateFirstToken: %v, %v, want false", first, err)
	}
}

func TestOlderSchemaIsUpgraded(t *testing.T) {
	fresh := pgtest.Fresh(t)
	if err := openStore(t, fresh).Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	url := release020(t)
	wantOldData(t, openStore(t, url))
	if got, want := describeTables(t, url), describeTables(t, fresh); !slices.Equal(got, want) {
		t.Errorf("the tables are now\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	upgraded := dumpRows(t, url)
	s := openStore(t, url)
	wantOldData(t, s)
	if got := dumpRows(t, url); !slices.Equal(got, upgraded) {
		t.Errorf("after it was reopened, the store is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(upgraded, "\n"))
	}

	want := slices.Clone(oldPlants)
	want[0].Tag = plantstore.NewTag("tropical")
	fern := plantstore.Plant{ID: 3, Name: "fern\x00", Tag: plantstore.NewTag("tropical")}
	want = slices.Insert(want, 5, fern)
	last := want[len(want)-1]
	want = want[:len(want)-1]
	apply(t, s, create(fern))
	old, err := s.Plant(t.Context(), want[0].ID)
	if err != nil || old.Created != 0 || old.Version != (plantstore.Version{}) {
		t.Errorf("a plant of release 0.2.0 is %+v, %v", old, err)
	}
	apply(t, s, replace(want[0], &plantstore.Condition{Match: []plantstore.ETag{old.ETag()}}))
	if now, err := s.Plant(t.Context(), want[0].ID); err != nil || now.Created != 0 || now.Version == old.Version {
		t.Errorf("once it was replaced, it is %+v, %v", now, err)
	}
	apply(t, s, remove(last.ID))
	wantPlants(t, s, want)
	storetest.CheckHistories(t, s, 20)
	apply(t, s, create(last))
	apply(t, s, remove(last.ID), create(last))
	storetest.CheckHistories(t, s, 20)
	wantProblems(t, s)
}

// The log of release 0.2.0 carries on, whether it has rows or all of them were trimmed.
func TestUpgradedLogCarriesOn(t *testing.T) {
	for what, change := range map[string]string{
		"with rows":    "UPDATE log_state SET id = 1",
		"without rows": "DELETE FROM log; UPDATE log_state SET trimmed = seq, trimmed_time = time, bytes = 0",
	} {
		url := release020(t)
		query(t, url, change)
		before := query(t, url, "SELECT concat_ws(' ', store, seq, seq - trimmed, plants, bytes) FROM log_state")[0]
		s := openReady(t, url)
		if got := query(t, url, "SELECT concat_ws(' ', store, seq, seq - trimmed, plants, bytes) FROM log_end()")[0]; got != before {
			t.Errorf("%s: the log has %s, and had %s", what, got, before)
		}
		wantProblems(t, s)
		apply(t, s, create(plant(5, "fern")))
		apply(t, s, create(plant(6, "fern")), remove(5), replace(plant(6, "rose"), nil))
		storetest.CheckHistories(t, s, 20)
		wantProblems(t, s)
		s.KeepLog(0, 400)
		trimAll(t, s)
		if stats := compareSize(t, s, url); stats.LastSeq != 8 || stats.Plants != 8 || stats.Events != 3 {
			t.Errorf("%s: %+v", what, stats)
		}
		wantProblems(t, s)
		s.KeepLog(time.Nanosecond, 0)
		trimAll(t, s)
		wantProblems(t, s)
		if stats := compareSize(t, s, url); stats.LastSeq != 8 || stats.Plants != 8 || stats.Events != 0 {
			t.Errorf("%s, after all of it was trimmed: %+v", what, stats)
		}
		apply(t, s, remove(6))
		if stats := compareSize(t, s, url); stats.LastSeq != 9 || stats.Plants != 7 || stats.Events != 1 {
			t.Errorf("%s, after a write: %+v", what, stats)
		}
	}
}

// TestOlderSchemaIsUpgradedOnce blocks two stores until both are about to upgrade.
func TestOlderSchemaIsUpgradedOnce(t *testing.T) {
	url := release020(t)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(t.Context(), "BEGIN; SELECT FROM plantstore_schema FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var stores [2]*Store
	var errs [2]error
	var upgrades sync.WaitGroup
	for i := range stores {
		stores[i] = openStore(t, url+"&application_name=upgrades")
		upgrades.Go(func() { errs[i] = stores[i].Ready(t.Context()) })
	}
	testenv.WaitFor(t, "both to wait for the lock", func() bool {
		return len(query(t, url, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'upgrades' AND wait_event_type = 'Lock'")) == len(stores)
	})
	if _, err := c.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	upgrades.Wait()
	for i, s := range stores {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		wantOldData(t, s)
	}
}

// TestSchemaCheckTimesOut blocks the first query of a store, as a server that hangs
// would.
func TestSchemaCheckTimesOut(t *testing.T) {
	url := pgtest.Fresh(t)
	if err := openStore(t, url).Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(t.Context(), "BEGIN; LOCK TABLE plantstore_schema"); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, url)
	s.callTimeout, s.opts.StoreTimeout = time.Second, time.Nanosecond
	if _, err := s.Plant(t.Context(), 1); !errors.Is(err, plantstore.ErrUnavailable) {
		t.Errorf("Plant while the schema cannot be read: %v, want ErrUnavailable", err)
	}
	if _, err := c.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	s.callTimeout, s.opts.StoreTimeout = testenv.Timeout, testenv.Timeout
	if _, err := s.Plant(t.Context(), 1); !errors.Is(err, plantstore.ErrNoPlant) {
		t.Errorf("Plant afterwards: %v, want ErrNoPlant", err)
	}
}
