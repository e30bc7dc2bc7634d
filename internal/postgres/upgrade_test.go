package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
	"plantstore/internal/wire"
)

// oldPlants are the plants of every store in testdata, in order of id.
var oldPlants = []plantstore.Plant{
	{ID: math.MinInt64, Name: "the least"},
	{ID: -1, Name: "before zero", Tag: plantstore.NewTag("tropical")},
	{ID: 0, Name: "", Tag: plantstore.NewTag("")},
	{ID: 1, Name: "nothing\x00in the middle", Tag: plantstore.NewTag("\x00")},
	{ID: 2, Name: "the symbols \u2400 and \u241b", Tag: plantstore.NewTag("\u2400\x00")},
	{ID: 1<<53 + 1, Name: "beyond a double"},
	{ID: math.MaxInt64, Name: "the greatest", Tag: plantstore.NewTag("tropical")},
}

// oldToken is the only token of every store in testdata.
var oldToken = plantstore.Token{
	Hash:     plantstore.HashSecret("the secret of long ago"),
	Name:     "a gate\x00keeper",
	Scopes:   []plantstore.Scope{plantstore.ScopeWrite, plantstore.ScopeRead},
	Created:  time.Unix(1_700_000_000, 0).UTC(),
	Expires:  time.Unix(4_000_000_000, 0).UTC(),
	LastUsed: time.Unix(1_700_000_060, 0).UTC(),
}

// oldStore returns the URL of a store with an older schema. It comes from a file in
// testdata, not from the schema files, which may have changed since. When you add a
// schema, write the file of the one before it by hand.
func oldStore(t *testing.T, version int) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("store-%04d.sql", version)))
	if err != nil {
		t.Fatal(err)
	}
	url := pgtest.Fresh(t)
	query(t, url, string(script))
	if got := query(t, url, "SELECT version FROM plantstore_schema"); !slices.Equal(got, []string{fmt.Sprint(version)}) {
		t.Fatalf("the store with schema %d has the versions %s", version, got)
	}
	return url
}

// forEachOldSchema runs a test on a store of every schema but the newest.
func forEachOldSchema(t *testing.T, test func(t *testing.T, url string)) {
	files, err := schemaFiles.ReadDir("schema")
	if err != nil {
		t.Fatal(err)
	}
	for version := 1; version < len(files); version++ {
		t.Run(fmt.Sprintf("%04d", version), func(t *testing.T) { test(t, oldStore(t, version)) })
	}
}

// describeTables returns the columns, indexes and constraints of the database, in
// order.
func describeTables(t *testing.T, url string) []string {
	t.Helper()
	return query(t, url, `
		SELECT concat_ws(' ', table_name, ordinal_position, column_name, data_type, is_nullable, column_default, identity_generation) AS line
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
	var wantTropical []plantstore.Plant
	for _, p := range want {
		if got, err := s.Plant(t.Context(), p.ID); err != nil || got != p {
			t.Errorf("plant %d is %+v, %v, want %+v", p.ID, got, err, p)
		}
		if p.Tag == tropical {
			wantTropical = append(wantTropical, p)
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
	if err != nil || !slices.Equal(page.Plants, wantTropical) {
		t.Errorf("List by tag: %+v, %v, want %+v", page.Plants, err, wantTropical)
	}
}

// wantOldData fails unless the store contains what those in testdata do.
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
	forEachOldSchema(t, func(t *testing.T, url string) {
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
		apply(t, s, replace(want[0], &plantstore.Condition{Match: []plantstore.ETag{oldPlants[0].ETag()}}))
		apply(t, s, remove(last.ID))
		wantPlants(t, s, want)
	})
}

// The log of release 0.2.0 carries on, whether it has rows or all of them were trimmed.
func TestUpgradedLogCarriesOn(t *testing.T) {
	for what, change := range map[string]string{
		"with rows":    "UPDATE log_state SET id = 1",
		"without rows": "DELETE FROM log; UPDATE log_state SET trimmed = seq, trimmed_time = time, bytes = 0",
	} {
		url := oldStore(t, 9)
		query(t, url, change)
		before := query(t, url, "SELECT concat_ws(' ', store, seq, seq - trimmed, plants, bytes) FROM log_state")[0]
		s := openReady(t, url)
		if got := query(t, url, "SELECT concat_ws(' ', store, seq, seq - trimmed, plants, bytes) FROM log_end()")[0]; got != before {
			t.Errorf("%s: the log has %s, and had %s", what, got, before)
		}
		wantProblems(t, s)
		apply(t, s, create(plant(5, "fern")))
		apply(t, s, create(plant(6, "fern")), remove(5), replace(plant(6, "rose"), nil))
		s.KeepLog(0, 400)
		trimAll(t, s)
		if stats := compareSize(t, s, url); stats.LastSeq != 8 || stats.Plants != 8 || stats.Events != 3 {
			t.Errorf("%s: %+v", what, stats)
		}
		s.KeepLog(time.Nanosecond, 0)
		trimAll(t, s)
		if stats := compareSize(t, s, url); stats.LastSeq != 8 || stats.Plants != 8 || stats.Events != 0 {
			t.Errorf("%s, after all of it was trimmed: %+v", what, stats)
		}
		apply(t, s, remove(6))
		if stats := compareSize(t, s, url); stats.LastSeq != 9 || stats.Plants != 7 || stats.Events != 1 {
			t.Errorf("%s, after a write: %+v", what, stats)
		}
	}
}

// TestLogIsUpgraded has a log whose events have different times and the same ones, and
// events of tokens.
func TestLogIsUpgraded(t *testing.T) {
	url := oldStore(t, 7)
	query(t, url, `INSERT INTO log SELECT i, 1700000002000000 + i * i / 9000, 'by ' || i, 1 + i % 3, i, 'name ' || i,
		CASE WHEN i % 4 > 0 THEN 'tag ' || i END FROM generate_series(4, 3000) AS i`)
	query(t, url, `INSERT INTO log SELECT i, 1700000003000000, 'operator', i - 2997, 0,
		'{"id":"0123456789ab","name":"a gate","scopes":["plants:read"],"created":"2023-11-14T22:13:20Z"}', NULL FROM generate_series(3001, 3002) AS i`)
	query(t, url, "UPDATE log_state SET seq = 3002, time = 1700000003000000")
	want := query(t, url, `SELECT concat_ws(' ', seq, time, "by", type, id, name, tag) FROM log WHERE seq > 2 ORDER BY seq`)
	s := openReady(t, url)
	if got := query(t, url, `SELECT concat_ws(' ', seq, time, "by", type, id, name, tag) FROM events WHERE seq > 2 ORDER BY seq`); !slices.Equal(got, want) {
		t.Errorf("%d events, which differ from the %d before", len(got), len(want))
	}
	after, seq := plantstore.Cursor(""), int64(1)
	for more := true; more; {
		page, err := s.Events(t.Context(), plantstore.EventQuery{After: after, Limit: 77})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			seq++
			at, err := e.Cursor.Position()
			if err != nil || at.Seq != seq || seq > 3 && (e.By != fmt.Sprint("by ", seq) || e.Plant.ID != plantstore.ID(seq) || at.Time != 1700000002000000+seq*seq/9000) {
				t.Fatalf("event %d is %+v, %v", seq, e, err)
			}
		}
		after, more = page.Next, page.More
	}
	if seq != 3000 {
		t.Errorf("the plants' events end at %d", seq)
	}
	page, err := s.Events(t.Context(), plantstore.EventQuery{Limit: 10, Types: []plantstore.EventType{plantstore.TokenCreated, plantstore.TokenRevoked}, WithTokens: true})
	if err != nil || len(page.Events) != 2 || page.Events[1].Type != plantstore.TokenRevoked || page.Events[1].Token.Name != "a gate" {
		t.Errorf("the tokens' events are %+v, %v", page.Events, err)
	}
}

// TestTextsAreEscapedAgain has texts of all characters that were ever escaped, in every order.
func TestTextsAreEscapedAgain(t *testing.T) {
	oldEscapes := strings.NewReplacer("\x00", "\u2400", "\u2400", "\u241b\u2400", "\u241b", "\u241b\u241b")
	url := oldStore(t, 8)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := c.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("DELETE FROM plants; DELETE FROM tokens")
	var plants []plantstore.Plant
	var ids []int64
	var stored []string
	parts := []string{"", "\x00", "\x01", "\x02", "\x03", "\x05", "a", "\u2400", "\u241b"}
	for i := range len(parts) * len(parts) * len(parts) {
		text := parts[i%9] + parts[i/9%9] + parts[i/81]
		plants = append(plants, plantstore.Plant{ID: plantstore.ID(i), Name: text, Tag: plantstore.NewTag(text)})
		ids, stored = append(ids, int64(i)), append(stored, oldEscapes.Replace(text))
	}
	n := int64(len(plants))
	exec("INSERT INTO plants SELECT id, text, text FROM unnest($1::bigint[], $2::text[]) AS new (id, text)", ids, stored)
	exec("INSERT INTO tokens (hash, name, scopes, created) SELECT sha256(i::text::bytea), text, 'plants:read', 0 FROM unnest($1::text[]) WITH ORDINALITY AS new (text, i)", stored)
	// The row of the log has a token, too, whose name is not escaped.
	symbols := token("\x00\x01\u2400\u241b")
	exec(`INSERT INTO log (first, time, "by", type, id, name, tag, tag_size) SELECT 4, 1700000003000000, array_fill(''::text, ARRAY[$3::int]),
		array_fill(1::smallint, ARRAY[$3::int - 1]) || '{4}', $1::bigint[] || '{0}', $2::text[] || $4::text, $2::text[] || '{NULL}', 0`,
		ids, stored, n+1, string(wire.EncodeToken(symbols.Logged(), "")))
	exec("UPDATE log_state SET seq = 4 + $1::bigint, plants = $1", n)
	const selectOrdinary = "SELECT concat_ws(' ', xmin, ctid, name, tag) FROM %s WHERE name IN ('', 'a', 'aa', 'aaa')"
	ordinary := query(t, url, fmt.Sprintf(selectOrdinary, "plants"))

	s := openReady(t, url)
	wantAll(t, s, plants...)
	if got := query(t, url, fmt.Sprintf(selectOrdinary, "stored_plants")); !slices.Equal(got, ordinary) {
		t.Errorf("plants without these characters were written: %s", got)
	}
	tokens, err := s.Tokens(t.Context())
	if err != nil || len(tokens) != len(plants) {
		t.Fatalf("%d tokens, %v", len(tokens), err)
	}
	page, err := s.Events(t.Context(), plantstore.EventQuery{Limit: 1000, WithTokens: true})
	if err != nil || len(page.Events) != 2+len(plants)+1 {
		t.Fatalf("%d events, %v", len(page.Events), err)
	}
	for i, p := range plants {
		if tokens[i].Name != p.Name || page.Events[2+i].Plant != p {
			t.Errorf("the name %+q became %+q, and the plant %+q in the log", p.Name, tokens[i].Name, page.Events[2+i].Plant)
		}
	}
	if e := page.Events[0]; e.Plant != oldPlants[3] {
		t.Errorf("the first event became %+q", e.Plant)
	}
	if e := page.Events[2+n]; e.Token == nil || e.Token.Name != symbols.Name {
		t.Errorf("the token in the log became %+v", e)
	}
}

// TestOlderSchemaIsUpgradedOnce blocks two stores until both are about to upgrade.
func TestOlderSchemaIsUpgradedOnce(t *testing.T) {
	forEachOldSchema(t, func(t *testing.T, url string) {
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
	})
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
