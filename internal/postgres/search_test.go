package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/match"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/rules"
	"plantstore/internal/storetest"
	"plantstore/internal/testenv"
)

// addIndex builds the index of names at once, in the middle of whatever other tests do.
func addIndex(t testing.TB, s *Store) {
	t.Helper()
	schema, err := s.trigrams(context.Background())
	for sqlState(err) == uniqueViolation { // another test has just created the extension
		schema, err = s.trigrams(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	err = s.foldNames(context.Background())
	if err == nil {
		err = s.alterIndex(context.Background(), strings.Replace(fmt.Sprintf(createIndex, schema), "CONCURRENTLY", "", 1))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestStoreWithTheIndex(t *testing.T) {
	storetest.RunReads(t, func(t *testing.T) func() plantstore.Store {
		url := pgtest.Fresh(t)
		s := mustOpen(t, url)
		addIndex(t, s)
		s.Close()
		return func() plantstore.Store { return mustOpen(t, url) }
	})
}

// With an index, searches find what they find without one, whatever is written.
func TestSearchesWithTheIndexFindTheSamePlants(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			id := func() plantstore.ID { return plantstore.ID(r.IntN(2000) - 1000) }
			s, model := openReady(t, pgtest.Fresh(t)), storetest.NewModel()
			addIndex(t, s)
			s.indexed.Store(true)
			for range 40 {
				batch := make([]plantstore.Write, 1+r.IntN(50))
				for i := range batch {
					w := &batch[i]
					w.Plant = plantstore.Plant{ID: id(), Name: storetest.AnyText(r, 8)}
					switch r.IntN(5) {
					case 0:
						w.Op = plantstore.Replace
					case 1:
						w.Op = plantstore.Delete
					case 2:
						*w = plantstore.Write{Op: plantstore.Patch, Plant: w.Plant, KeepTag: true}
					}
					if r.IntN(50) == 0 {
						w.Plant.Name += strings.Repeat("monstera ", maxIndexedName/8)
					}
					if r.IntN(2) == 0 {
						w.Plant.Tag = plantstore.NewTag(string("tuv"[r.IntN(3)]))
					}
				}
				for done := 0; done < len(batch); {
					results, err := s.Apply(t.Context(), batch[done:])
					if err != nil {
						t.Fatal(err)
					}
					if _, err := model.Apply(t.Context(), batch[done:done+len(results)]); err != nil {
						t.Fatal(err)
					}
					done += len(results)
				}
				storetest.CompareSearches(t, r, 10, s, model, id)
			}
			wantProblems(t, s)
		})
	}
}

// What the database compares contains a word if the name does.
func TestNamesAreFoldedForTheIndex(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	s := openReady(t, pgtest.Fresh(t))
	var f folder
	for range 300 {
		name, word := storetest.AnyText(r, 6), storetest.AnyText(r, 2)
		matches := patterns(word)
		if matches == nil || !match.New(word).Match(name) {
			continue
		}
		stored := escape(name)
		withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
			for _, pattern := range matches {
				found, err := queryOne(ctx, c, pgx.RowTo[bool], nil, "SELECT "+indexedText+" LIKE $3 FROM (SELECT $1::text, $2::text) AS plant (name, folded)", stored, f.folded(stored, name), pattern)
				if err != nil {
					return err
				}
				if !found {
					t.Errorf("%q does not match %q", name, pattern)
				}
			}
			return nil
		})
	}
	for name, want := range map[string]string{
		"Monstera \x00": "", "\u89c0\u97f3\u84ee": "", "\u00d1andubay": "nandubay", "\u03a6\u0399\u039a\u039f\u03a3": "\u03c6\u03b9\u03ba\u03bf\u03c3",
		"\u0444\u0438\u043a\u0443\u0441": "", "\u0424\u0438\u043a\u0443\u0441": "\u0444\u0438\u043a\u0443\u0441", "\u00d1" + strings.Repeat("x", maxIndexedName): "",
	} {
		got := ""
		if folded := f.folded(escape(name), name); folded != nil {
			got = *folded
		}
		if got != want {
			t.Errorf("%q is folded as %q, want %q", name, got, want)
		}
	}
}

func TestPatterns(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                    nil,
		"a bc":                                nil,
		"a-b-c":                               nil,
		"\U0001f335\U0001f335\U0001f335":      nil,
		"\u00d1an de":                         {"%nan%"},
		`50%_\abc`:                            {`%50\%\_\\abc%`},
		"\u0444\u0438\u043a\u0443\u0441 STER": {"%\u0444\u0438\u043a\u0443\u0441%", "%ster%"},
		"\u0913\u0937\u093f":                  {"%\u0913\u0937\u093f%"},
	} {
		if got := patterns(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := patterns(strings.Repeat("abc ", 50)); len(got) != maxPatterns {
		t.Errorf("many words have %d patterns", len(got))
	}
}

// The planner has no choice, whatever it knows about the table, and however often it has planned.
func TestSearchesReadTheIndex(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	addIndex(t, s)
	words := patterns("MONSTERA deliciosa")
	explain := func() (plan string) {
		withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
			if _, err := c.Exec(ctx, "BEGIN"); err != nil {
				return err
			}
			if _, err := c.Exec(ctx, indexSettings); err != nil {
				return err
			}
			rows, _ := c.Query(ctx, "EXPLAIN "+ascending.Replace(fmt.Sprintf(selectFound, matching(3, 2))), 0, foundAtOnce, words[0], words[1])
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			plan = strings.Join(lines, "\n")
			return err
		})
		return plan
	}
	for _, sql := range []string{
		"SELECT 1",
		"INSERT INTO stored_plants SELECT i, 'Monstera deliciosa ' || i FROM generate_series(1, 5000) AS i",
		"ANALYZE stored_plants",
	} {
		query(t, url, sql)
		for range 7 { // from the sixth time on, the plan may be one for any words
			if plan := explain(); strings.Count(plan, "Bitmap Index Scan on plants_by_name") < 2 || strings.Contains(plan, "plants_pkey") || strings.Contains(plan, "Seq Scan") {
				t.Fatalf("after %s:\n%s", sql, plan)
			}
		}
	}
}

func TestServersThatStartTogetherCreateTheExtension(t *testing.T) {
	url := pgtest.Start(t).URL()
	s := openReady(t, url)
	for range 10 {
		inParallel(t, 5, func(int) error {
			_, err := s.trigrams(t.Context())
			return err
		})
		query(t, url, "DROP EXTENSION pg_trgm")
	}
}

// settle does what Run does for the index until it is in this state.
func settle(t *testing.T, s *Store, state string) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if err := s.stepIndex(t.Context()); err != nil {
			return err
		}
		if stats, err := s.Stats(t.Context()); err != nil || stats.SearchIndex.State != state {
			return fmt.Errorf("the index is %+v, %w", stats.SearchIndex, err)
		}
		return nil
	})
}

func TestIndexIsBuiltAndDropped(t *testing.T) {
	url := pgtest.Start(t).URL()
	s := openReady(t, url)
	apply(t, s, create(plant(1, "Monstera")), create(plant(2, "\u0424\u0438\u043a\u0443\u0441")))
	has := func() int {
		return pgtest.QueryInt(t, url, "SELECT count(*) FROM pg_class WHERE relname = 'plants_by_name'")
	}
	for _, step := range []struct {
		mode  rules.IndexMode
		state string
		has   int
	}{
		{rules.IndexAuto, plantstore.SearchOff, 0},
		{rules.IndexOn, plantstore.SearchReady, 1},
		{rules.IndexAuto, plantstore.SearchReady, 1},
		{rules.IndexOff, plantstore.SearchOff, 0},
	} {
		s.IndexNames(step.mode)
		settle(t, s, step.state)
		if err := s.stepIndex(t.Context()); err != nil || has() != step.has {
			t.Errorf("%s: %d indexes, %v", step.mode, has(), err)
		}
		wantFound(t, s, "\u0444\u0438\u043a\u0443\u0441", 2)
		wantProblems(t, s)
	}
}

// wantFound fails unless a search finds these plants.
func wantFound(t *testing.T, s *Store, text string, want ...plantstore.ID) {
	t.Helper()
	var got []plantstore.ID
	for _, p := range storetest.Scan(t, s, plantstore.Query{Contains: text}) {
		got = append(got, p.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q finds %v, want %v", text, got, want)
	}
}

// Release 0.2.0 folded no names. The step of the schema does not either, which would take long: the build does.
func TestIndexOfAnUpgradedStore(t *testing.T) {
	url := release020(t)
	query(t, url, fmt.Sprintf("INSERT INTO stored_plants SELECT i, '\u00d1andubay ' || i FROM generate_series(1001, %d) AS i", 1000+2*foldSize))
	const ficus = "\u0424\u0438\u043a\u0443\u0441"
	query(t, url, fmt.Sprintf("INSERT INTO stored_plants VALUES (100, '%[1]s' || chr(1) || chr(1)), (101, '\u89c0\u97f3\u84ee'), (102, repeat('\u00d1', %[2]d) || '%[1]s'), (103, '%[1]s')", ficus, maxIndexedName))
	query(t, url, fmt.Sprintf("UPDATE log_state SET plants = plants + %d", 2*foldSize+4))
	s := openReady(t, url)
	wantProblems(t, s)
	apply(t, s, replace(plant(103, "\u00c9pine"), nil))
	addIndex(t, s)
	wantProblems(t, s)
	folded := dumpRows(t, url)
	if err := s.foldNames(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := dumpRows(t, url); !slices.Equal(again, folded) {
		t.Error("names that are folded are folded again")
	}
	wantFound(t, s, "nandubay 10501", 10501)
	wantFound(t, s, "\u0444\u0418\u043a\u0443\u0441", 100, 102)
	wantFound(t, s, "\u89c0\u97f3\u84ee", 101)
	wantFound(t, s, "epine", 103)
}

// A transaction of somebody else only delays the build, whatever ends the build leaves something that the next
// one replaces, and two never build it.
func TestInterruptedBuildIsRepeated(t *testing.T) {
	url := pgtest.Start(t).URL()
	one, two := openReady(t, url), openReady(t, url)
	one.IndexNames(rules.IndexOn)
	two.IndexNames(rules.IndexOn)
	apply(t, one, create(plant(1, "Monstera")))
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	hold := func(sql string) {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	hold("BEGIN; LOCK TABLE stored_plants IN ROW EXCLUSIVE MODE")
	built := make(chan error, 1)
	go func() { built <- one.stepIndex(t.Context()) }()
	const builds = "FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX%' AND wait_event_type = 'Lock'"
	testenv.WaitFor(t, "the build to wait", func() bool { return len(query(t, url, "SELECT pid "+builds)) == 1 })
	for _, s := range []*Store{one, two} {
		if stats, err := s.Stats(t.Context()); err != nil || stats.SearchIndex.State != plantstore.SearchBuilding {
			t.Errorf("during the build: %+v, %v", stats.SearchIndex, err)
		}
	}
	if err := two.stepIndex(t.Context()); err != nil {
		t.Errorf("the other server: %v", err)
	}
	if got := query(t, url, "SELECT pid "+builds); len(got) != 1 {
		t.Errorf("%d builds wait", len(got))
	}
	apply(t, two, create(plant(2, "Monstera")), replace(plant(1, "\u00c9pine"), nil))
	query(t, url, "SELECT pg_terminate_backend(pid) "+builds)
	if err := <-built; err == nil {
		t.Error("the build ended although its session did")
	}
	if got := query(t, url, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'plants_by_name'::regclass"); !slices.Equal(got, []string{"f"}) {
		t.Fatalf("the build has left %q", got)
	}
	wantFound(t, one, "monstera", 2)
	hold("ROLLBACK")
	settle(t, two, plantstore.SearchReady)
	wantFound(t, one, "monstera", 2)
	wantProblems(t, one)
}

func TestServersThatStartTogetherBuildOneIndex(t *testing.T) {
	url := pgtest.Start(t, "deadlock_timeout=10ms").URL()
	apply(t, openReady(t, url), create(plant(1, "Monstera")))
	ctx, stop := context.WithCancel(t.Context())
	var servers sync.WaitGroup
	defer servers.Wait()
	defer stop()
	var last *Store
	for range 3 {
		s := mustOpenWith(t, url, Options{Connections: minConnections})
		t.Cleanup(func() { s.Close() })
		s.IndexNames(rules.IndexOn)
		last = s
		servers.Go(func() { s.keepIndex(ctx) })
		servers.Go(func() { s.keepMerged(ctx) })
	}
	testenv.WaitFor(t, "the index", func() bool {
		stats, err := last.Stats(t.Context())
		return err == nil && stats.SearchIndex == plantstore.SearchIndex{State: plantstore.SearchReady, Plants: 1}
	})
}

func TestDatabasesThatCannotHaveTheIndex(t *testing.T) {
	server := pgtest.Start(t)
	server.Exec(t, "CREATE DATABASE ascii LC_CTYPE 'C' TEMPLATE template0")
	server.Exec(t, "CREATE ROLE guest LOGIN")
	server.Exec(t, "CREATE DATABASE lent")
	query(t, strings.Replace(server.URL(), "/postgres?", "/lent?", 1), "GRANT ALL ON SCHEMA public TO guest")
	for database, want := range map[string]string{
		"postgres@%s/ascii": "LC_CTYPE has no letters beyond ASCII",
		"guest@%s/lent":     "permission denied to create extension",
	} {
		var log bytes.Buffer
		s := mustOpenWith(t, "postgres://"+fmt.Sprintf(database, server.Addr())+"?sslmode=disable", Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		defer s.Close()
		s.IndexNames(rules.IndexOn)
		apply(t, s, create(plant(1, "Monstera")), create(plant(2, "\u0424\u0438\u043a\u0443\u0441")))
		s.keepIndex(t.Context()) // ends
		if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, want) {
			t.Errorf("%s: the log is\n%s\nwant %q", database, got, want)
		}
		wantFound(t, s, "\u0444\u0438\u043a\u0443\u0441", 2)
		if stats, err := s.Stats(t.Context()); err != nil || stats.SearchIndex.State != plantstore.SearchOff {
			t.Errorf("%s: %+v, %v", database, stats.SearchIndex, err)
		}
		wantProblems(t, s)
	}
}

func TestCheckComparesTheIndexWithTheNames(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	addIndex(t, s)
	apply(t, s, create(plant(1, "Monstera")), create(plant(2, "\u00c9pine")), create(plant(3, "\u0444\u0438\u043a\u0443\u0441")), create(plant(4, "")))
	wantProblems(t, s)
	const differs = "plant %d has another folded name than its own"
	for _, damage := range []struct{ sql, undo, want string }{
		{"UPDATE stored_plants SET folded = NULL WHERE id = 2", "UPDATE stored_plants SET folded = 'epine' WHERE id = 2", fmt.Sprintf(differs, 2)},
		{"UPDATE stored_plants SET folded = 'pine' WHERE id = 2", "UPDATE stored_plants SET folded = 'epine' WHERE id = 2", fmt.Sprintf(differs, 2)},
		{"UPDATE stored_plants SET folded = 'monstera' WHERE id = 1", "UPDATE stored_plants SET folded = NULL WHERE id = 1", fmt.Sprintf(differs, 1)},
		{
			"UPDATE pg_index SET indisready = false WHERE indexrelid = 'plants_by_name'::regclass", "UPDATE pg_index SET indisready = true WHERE indexrelid = 'plants_by_name'::regclass",
			"the index of names has 4 of 5 plants: start a server with --search-index off, and then build it again",
		},
	} {
		query(t, url, damage.sql)
		if strings.Contains(damage.sql, "pg_index") {
			apply(t, s, create(plant(5, "Monstera")))
		}
		wantProblems(t, s, damage.want)
		query(t, url, damage.undo)
	}
}

// Batches leave nothing to merge to those that follow.
func TestNamesAreMerged(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	addIndex(t, s)
	s.indexed.Store(true)
	apply(t, s, create(plant(1, "Monstera")))
	ctx, stop := context.WithCancel(t.Context())
	var merging sync.WaitGroup
	merging.Go(func() { s.keepMerged(ctx) })
	testenv.WaitFor(t, "the names to be merged", func() bool { return s.unmerged.Load() == 0 })
	stop()
	merging.Wait()
	if got := query(t, url, "SELECT gin_clean_pending_list('plants_by_name')"); got[0] != "0" {
		t.Errorf("%s pages were not merged", got[0])
	}
	wantFound(t, s, "STERA", 1)
}

// Where many plants match although the first do not, the index would be read for too long.
func TestSearchForWhichTheIndexTakesTooLong(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	addIndex(t, s)
	query(t, url, "INSERT INTO stored_plants SELECT i, CASE WHEN i > 20 THEN 'Monstera ' || i ELSE 'fern' END FROM generate_series(1, 60000) AS i")
	before := indexSettings
	defer func() { indexSettings = before }()
	indexSettings = strings.Replace(indexSettings, "'200'", "'1'", 1)
	page, err := s.List(t.Context(), plantstore.Query{Contains: "stera", Limit: 5})
	if err != nil || len(page.Plants) != 5 || page.Plants[0].ID != 21 {
		t.Errorf("a page: %+v, %v", page, err)
	}
	if got := storetest.Scan(t, s, plantstore.Query{Contains: "stera", Order: plantstore.ByIDDescending}); len(got) != 60000-20 {
		t.Errorf("a scan: %d plants", len(got))
	}
	if got := storetest.Scan(t, s, plantstore.Query{Contains: "fern"}); len(got) != 20 {
		t.Errorf("a scan for another word: %d plants", len(got))
	}
}

// In a store with more plants than can be sorted, those that the index finds are.
func TestPlantsThatTheIndexFindsAreSortedByName(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	var batch []plantstore.Write
	for i, name := range []string{"Monstera", "Fern", "monstera alba", "A Monstera"} {
		batch = append(batch, plantstore.Write{Op: plantstore.Create, Plant: plantstore.Plant{ID: plantstore.ID(i), Name: name}})
	}
	if _, err := s.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	query(t, url, fmt.Sprintf("UPDATE log SET plants = %d", 2*plantstore.MaxSorted))
	q := plantstore.Query{Contains: "monst", Order: plantstore.ByName, Limit: 10}
	if _, err := s.List(t.Context(), q); !errors.Is(err, plantstore.ErrTooManyToSort) {
		t.Errorf("without the index: %v, want ErrTooManyToSort", err)
	}
	addIndex(t, s)
	for _, q.Untagged = range []bool{false, true} {
		page, err := s.List(t.Context(), q)
		var ids []plantstore.ID
		for _, p := range page.Plants {
			ids = append(ids, p.ID)
		}
		if err != nil || !slices.Equal(ids, []plantstore.ID{3, 0, 2}) {
			t.Errorf("%+v: %v, %v", q, ids, err)
		}
	}
	for _, q.Contains = range []string{"", "mo"} {
		if _, err := s.List(t.Context(), q); !errors.Is(err, plantstore.ErrTooManyToSort) {
			t.Errorf("%+v: %v, want ErrTooManyToSort", q, err)
		}
	}
}
