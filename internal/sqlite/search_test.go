package sqlite

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/memtable"
	"plantstore/internal/rules"
	"plantstore/internal/storetest"
)

// rename gives the plants of a batch other names. A few of them are too long for the index.
func (l *comparison) rename(batch []plantstore.Write) []plantstore.Write {
	for i := range batch {
		batch[i].Plant.Name = storetest.AnyText(l.Rand, 8)
		if l.IntN(50) == 0 {
			batch[i].Plant.Name += strings.Repeat("monstera ", maxIndexedName/8)
		}
	}
	return batch
}

// compareSearches compares random searches of a store with the model's. Some of the pages end early.
func (l *comparison) compareSearches(t *testing.T, s *Store, n int) {
	t.Helper()
	for range n {
		if l.IntN(4) == 0 {
			s.searchTime = 100 * time.Microsecond
		}
		storetest.CompareSearches(t, l.Rand, 1, s, l.model, l.id)
		s.searchTime = searchTime
	}
}

// stepIndex does what Run does for the index of names.
func (l *comparison) stepIndex(t *testing.T) {
	t.Helper()
	if _, err := l.store.stepIndex(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (l *comparison) state(t *testing.T) plantstore.SearchIndex {
	t.Helper()
	stats, err := l.store.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stats.SearchIndex
}

// With an index of names, whatever is built, flushed or dropped, searches find what they find
// without one.
func TestSearchesWithTheIndexFindTheSamePlants(t *testing.T) {
	states := map[string]int{}
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newComparison(t, seed)
			l.store.IndexNames(rules.IndexOn)
			for range 100 {
				switch action := l.IntN(16); action {
				case 0, 1, 2:
					l.apply(t, l.rename(l.creates(t, 1+l.IntN(150), l.IntN(3))))
				case 3, 4:
					l.apply(t, l.rename(l.mixed(1+l.IntN(200))))
				case 5, 6:
					l.flush(t, 1+l.IntN(500))
				case 7:
					if _, err := l.store.idleFlush(t.Context()); err != nil {
						t.Fatal(err)
					}
				case 8, 9:
					l.stepIndex(t)
				case 10:
					path := l.copyFiles(t)
					s := mustOpen(t, path, Serve)
					l.compareSearches(t, s, 6)
					mustClose(t, s)
				case 11:
					mode := l.store.indexNames
					mustClose(t, l.store)
					l.open(t)
					l.store.IndexNames(mode)
				case 12:
					if l.IntN(4) == 0 {
						l.store.IndexNames(rules.IndexOff)
					} else {
						l.store.IndexNames(rules.IndexOn)
					}
				case 13:
					shared := mustOpen(t, l.path, Existing)
					l.compareSearches(t, shared, 5)
					mustClose(t, shared)
				default:
					l.compareSearches(t, l.store, 6)
				}
				states[l.state(t).State]++
			}
			l.compare(t, l.store)
			if problems, err := l.store.Check(t.Context()); err != nil || len(problems) > 0 {
				t.Fatalf("check: %v, %v", problems, err)
			}
		})
	}
	for _, state := range []string{plantstore.SearchOff, plantstore.SearchBuilding, plantstore.SearchReady} {
		if states[state] < 10 {
			t.Errorf("the index was in the states %v: the test covers too little", states)
		}
	}
}

// settle does what Run does for the index until it changes nothing more.
func (l *comparison) settle(t *testing.T) {
	t.Helper()
	for {
		next, err := l.store.stepIndex(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if next == indexInterval {
			return
		}
	}
}

// tables returns the tables of the index, also those that are to be dropped.
func (l *comparison) tables(t *testing.T) string {
	t.Helper()
	return text(t, l.store.write.conn, "SELECT name FROM sqlite_schema WHERE name LIKE 'names%' OR name LIKE 'dropped%' ORDER BY name", 0)
}

func TestIndexIsBuiltAndDropped(t *testing.T) {
	l := newComparison(t, 1)
	l.apply(t, l.rename(l.creates(t, 500, 0)))
	l.settle(t)
	if got := l.tables(t); got != "" || l.state(t) != (plantstore.SearchIndex{State: plantstore.SearchOff}) {
		t.Errorf("a small store has the tables %q, and the index is %+v", got, l.state(t))
	}
	l.store.IndexNames(rules.IndexOn)
	l.settle(t)
	for l.store.freezeRest() {
		l.flush(t, idleFlushSize)
	}
	if got, want := l.state(t), (plantstore.SearchIndex{State: plantstore.SearchReady, Plants: l.store.plants.Load()}); got != want {
		t.Errorf("the index is %+v, want %+v", got, want)
	}
	l.store.IndexNames(rules.IndexAuto)
	l.settle(t)
	if got := l.state(t).State; got != plantstore.SearchReady {
		t.Errorf("with auto an index that exists is %s", got)
	}
	l.store.IndexNames(rules.IndexOff)
	l.stepIndex(t)
	if got := l.state(t).State; got != plantstore.SearchOff || !strings.Contains(l.tables(t), droppedPrefix) {
		t.Errorf("the index is %s, with the tables %q", got, l.tables(t))
	}
	mustClose(t, l.store) // in the middle
	l.open(t)
	l.store.IndexNames(rules.IndexOff)
	l.settle(t)
	if got := l.tables(t); got != "" {
		t.Errorf("these tables are left: %s", got)
	}
}

// A flush in progress takes the plants into an index that is made meanwhile, and does not slow down.
func TestFlushEndsWhenTheIndexIsMadeMeanwhile(t *testing.T) {
	l := newComparison(t, 1)
	const rows, batch = 20_000, 100
	l.store.GenerationLimit.Rows = rows
	next := plantstore.ID(0)
	create := func() {
		writes := make([]plantstore.Write, batch)
		for i := range writes {
			next++
			writes[i] = plantstore.Write{Op: plantstore.Create, Plant: fern(next)}
		}
		if _, err := l.store.Apply(t.Context(), writes); err != nil {
			t.Fatal(err)
		}
	}
	frozen := func() *memtable.Generation { return l.store.unflushed.Load().Frozen }
	for frozen() == nil || l.store.write.progress.left > rows/2 {
		create()
	}
	l.store.IndexNames(rules.IndexOn)
	l.stepIndex(t)
	was, batches := frozen(), 0
	for ; frozen() == was; batches++ {
		if create(); batches > rows/batch {
			t.Fatalf("after %d batches the generation is not flushed, although another one is full", batches)
		}
	}
	if fill := l.store.fill(); fill > 0.75 {
		t.Errorf("when the generation was flushed, the next one was filled to %.2f", fill)
	}
}

// Names that are longer folded, and merges, do not make the flush fall behind what is written.
func TestFlushWithTheIndexKeepsUpWithAnImport(t *testing.T) {
	l := newComparison(t, 1)
	const rows, batch = 20_000, 2000
	l.store.GenerationLimit.Rows = rows
	l.store.IndexNames(rules.IndexOn)
	l.settle(t)
	for first := 0; first < 5*rows; first += batch {
		writes := make([]plantstore.Write, batch)
		for i := range writes {
			name := fmt.Sprintf("%s%06d", strings.Repeat("\ud55c\uae00", 7), first+i)
			writes[i] = plantstore.Write{Op: plantstore.Create, Plant: plantstore.Plant{ID: plantstore.ID(first + i), Name: name}}
		}
		if _, err := l.store.Apply(t.Context(), writes); err != nil {
			t.Fatal(err)
		}
		if got := l.store.unflushed.Load().Active.Size().Rows; got > rows {
			t.Fatalf("after %d plants the active generation has %d, want %d at most", first+batch, got, rows)
		}
	}
}

func TestMergesAreBounded(t *testing.T) {
	for _, tt := range []struct {
		appended     int64
		names, pages int
	}{
		{0, 1, mergeStep},
		{100, 1 << 20, mergeStep},
		{100_000, 1 << 20, 195},
		{200_000, 100 * mergedText, 101},
		{8 << 20, 1, mergeStep},
		{8 << 20, 1 << 30, maxMerge},
	} {
		if got := mergePages(tt.appended, tt.names); got != tt.pages {
			t.Errorf("beside %d bytes %d pages are merged for %d bytes of names, want %d", tt.appended, got, tt.names, tt.pages)
		}
	}
}

// A name is replaced by what differs: after that the index has the trigrams of the new one.
func TestDifferencesOfNames(t *testing.T) {
	for _, tt := range []struct{ before, after, gone, added string }{
		{"monstera 1234567", "monstera 1234568", "567", "568"},
		{"monstera alba", "monstera", "ra alba", "ra"},
		{"", "fern", "", "fern"},
		{"fern 1", "rose 1", "fern 1", "rose 1"},
		{"x000 y000 z", "x001 y000 z", "000 y", "x001 y000 z"}, // "000" is left
		{"ab\x00cd", "ab\x00ce", "ab\x00cd", "ab\x00ce"},
	} {
		if gone, added := difference(tt.before, tt.after); gone != tt.gone || added != tt.added {
			t.Errorf("from %q to %q: %q is gone and %q added, want %q and %q", tt.before, tt.after, gone, added, tt.gone, tt.added)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		same, end := storetest.AnyText(r, 3), storetest.AnyText(r, 3)
		before, after := same+storetest.AnyText(r, 4)+end, same+storetest.AnyText(r, 4)+end
		gone, added := difference(before, after)
		got := trigrams(before)
		for trigram := range trigrams(gone) {
			delete(got, trigram)
		}
		maps.Copy(got, trigrams(added))
		if !maps.Equal(got, trigrams(after)) {
			t.Fatalf("from %q to %q: without %q and with %q the trigrams are %v", before, after, gone, added, got)
		}
	}
}

// While there are no writes, what is left of names that are gone is merged away.
func TestIndexOfNamesThatAreGoneBecomesSmall(t *testing.T) {
	l := newComparison(t, 1)
	l.store.GenerationLimit.Rows = generationSize
	l.store.IndexNames(rules.IndexOn)
	l.settle(t)
	idle := func() (pages int64) {
		t.Helper()
		for l.store.freezeRest() {
			l.flush(t, idleFlushSize)
		}
		for l.store.mayMerge() {
			if err := l.store.withWriter(t.Context(), l.store.flushWhileIdle); err != nil {
				t.Fatal(err)
			}
		}
		pages, err := number(l.store.write.conn, "SELECT count(*) FROM names_data")
		if err != nil {
			t.Fatal(err)
		}
		return pages
	}
	const plants = 5000
	write := func(op plantstore.Op, id int, name string) plantstore.Write {
		return plantstore.Write{Op: op, Plant: plantstore.Plant{ID: plantstore.ID(id), Name: name}}
	}
	var created, deleted []plantstore.Write
	for i := range plants {
		created = append(created, write(plantstore.Create, i, fmt.Sprint(l.Uint64())))
		deleted = append(deleted, write(plantstore.Delete, i, ""))
	}
	l.apply(t, created)
	full := idle()
	for range 6 {
		for i := range created {
			created[i] = write(plantstore.Replace, i, fmt.Sprint(l.Uint64()))
		}
		l.apply(t, created)
		if got := idle(); got > 2*full+10 {
			t.Fatalf("after names were replaced, the index has %d pages, and it had %d", got, full)
		}
	}
	l.apply(t, deleted)
	if got := idle(); got > 10 || full < 20 {
		t.Errorf("without plants the index has %d pages, and it had %d", got, full)
	}
}

func TestBuildContinuesAfterARestart(t *testing.T) {
	l := newComparison(t, 1)
	l.store.GenerationLimit.Rows = generationSize
	l.apply(t, l.rename(l.creates(t, 2*indexGroup, 0)))
	for l.store.freezeRest() {
		l.flush(t, idleFlushSize)
	}
	l.store.IndexNames(rules.IndexOn)
	l.stepIndex(t) // makes it
	l.stepIndex(t)
	want := l.state(t)
	if want.State != plantstore.SearchBuilding || want.Plants == 0 || want.Plants > indexGroup {
		t.Fatalf("after a step the index is %+v", want)
	}
	mustClose(t, l.store)
	l.open(t)
	l.store.IndexNames(rules.IndexOn)
	if got := l.state(t); got != want {
		t.Errorf("after a restart the index is %+v, want %+v", got, want)
	}
	l.compareSearches(t, l.store, 5)
	l.settle(t)
	if got := l.state(t); got.State != plantstore.SearchReady {
		t.Errorf("the index is %+v", got)
	}
	l.compareSearches(t, l.store, 5)
	if problems, err := l.store.Check(t.Context()); err != nil || len(problems) > 0 {
		t.Errorf("check: %q, %v", problems, err)
	}
}

func TestBuildingTakesBoundedSteps(t *testing.T) {
	l := newComparison(t, 1)
	batch := l.creates(t, 40, 0)
	for i := range batch {
		batch[i].Plant.Name = strings.Repeat("x", 100<<10)
	}
	l.apply(t, batch)
	for l.store.freezeRest() {
		l.flush(t, idleFlushSize)
	}
	l.store.IndexNames(rules.IndexOn)
	l.stepIndex(t)
	l.stepIndex(t)
	if got := l.state(t).Plants; got != 3 { // they have 300 KiB
		t.Errorf("a step reads %d plants with a name of 100 KiB", got)
	}
}

func TestCheckComparesTheIndexWithTheNames(t *testing.T) {
	l := newComparison(t, 1)
	l.store.IndexNames(rules.IndexOn)
	l.apply(t, l.rename(l.creates(t, 300, 0)))
	for l.store.freezeRest() {
		l.flush(t, idleFlushSize)
	}
	l.settle(t)
	l.apply(t, l.rename(l.mixed(100)))
	if problems, err := l.store.Check(t.Context()); err != nil || len(problems) > 0 {
		t.Fatalf("check: %q, %v", problems, err)
	}
	for name, damage := range map[string]string{
		"a plant too many": "INSERT INTO names (rowid, name) VALUES (5000000, 'monstera')",
		"another name":     "INSERT INTO names (rowid, name) SELECT id, 'monstera' FROM stored WHERE id NOT IN " + unflushedIDs + " LIMIT 1",
		"a plant too few":  "INSERT INTO names (names, rowid, name) SELECT 'delete', id, name FROM stored WHERE name GLOB '*mon*' AND octet_length(name) < 100 AND id NOT IN " + unflushedIDs + " LIMIT 1",
	} {
		t.Run(name, func(t *testing.T) {
			path := l.copyFiles(t)
			c := openRaw(t, path)
			if err := exec(c, damage); err != nil {
				t.Fatal(err)
			}
			c.Close()
			if problems := strings.Join(check(t, path), "\n"); !strings.Contains(problems, "the index of names differs") {
				t.Errorf("got the problems %q", problems)
			}
		})
	}
}

func TestSearchesReadTheIndexInOrder(t *testing.T) {
	l := newComparison(t, 1)
	l.store.IndexNames(rules.IndexOn)
	l.settle(t)
	for _, order := range []plantstore.Order{plantstore.ByID, plantstore.ByIDDescending} {
		plan := text(t, l.store.write.conn, "EXPLAIN QUERY PLAN "+selectIndexed(&plantstore.Query{Order: order}, "stored.name"), 3)
		if !strings.Contains(plan, "VIRTUAL TABLE INDEX") || !strings.Contains(plan, "SEARCH stored USING INTEGER PRIMARY KEY") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("the plan of a search: %s", plan)
		}
	}
}

func TestIndexQuery(t *testing.T) {
	const or = `" OR "` + examined + `")`
	for text, want := range map[string]string{
		"":                       "",
		"a bc":                   "",
		"Ñan":                    `("nan` + or,
		"stera de":               `("ste` + or + ` AND ("era` + or,
		"deliciosa":              `("del` + or + ` AND ("ici` + or + ` AND ("osa` + or,
		`a"bc* NEAR(`:            `("a""b` + or + ` AND ("bc*` + or + ` AND ("nea` + or + ` AND ("ar(` + or,
		"ab\x00cd":               "",
		"фикус":                  `("ФИК` + or + ` AND ("КУС` + or,
		"観音蓮":                    `("観音蓮` + or,
		strings.Repeat("abc", 9): `("abc` + or,
	} {
		if got := indexQuery(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	var word []rune
	for i := range 100 {
		word = append(word, 0x4e00+rune(i))
	}
	long := indexQuery(string(word))
	if got := strings.Count(long, " AND ") + 1; got != maxTrigrams {
		t.Errorf("a long word is looked up by %d trigrams, want %d", got, maxTrigrams)
	}
}

// FTS5 does not stop until it finds a plant: a page ends although it finds none.
func TestSearchesWithoutMatchesEnd(t *testing.T) {
	l := newComparison(t, 1)
	l.store.GenerationLimit.Rows = generationSize
	l.store.IndexNames(rules.IndexOn)
	l.settle(t)
	var batch []plantstore.Write
	for i := range 4 << examinedBits {
		name := []string{"Monstera", "Philodendron"}[i&1]
		if i == 2<<examinedBits {
			name = "Monstera Philodendron"
		}
		batch = append(batch, plantstore.Write{Op: plantstore.Create, Plant: plantstore.Plant{ID: plantstore.ID(i), Name: name}})
	}
	l.apply(t, batch)
	for l.store.freezeRest() {
		l.flush(t, idleFlushSize)
	}
	for _, order := range []plantstore.Order{plantstore.ByID, plantstore.ByIDDescending} {
		q := plantstore.Query{Contains: "monstera philodendron", Order: order, Limit: 10, Count: true}
		page, err := l.store.List(t.Context(), q)
		if err != nil || page.Next != nil || len(page.Plants) != 1 || page.Count == nil || page.Count.Plants != 1 {
			t.Errorf("with enough time: %+v, %v", page, err)
		}
		l.store.searchTime = 0
		page, err = l.store.List(t.Context(), q)
		if err != nil || page.Next == nil || len(page.Plants) > 0 || page.Count != nil {
			t.Errorf("without time: %+v, %v", page, err)
		}
		l.store.searchTime = searchTime
	}
	l.store.searchTime = 0
	storetest.CompareSearch(t, l.store, l.model, plantstore.Query{Contains: "monstera philodendron", Limit: 10})
	storetest.CompareSearch(t, l.store, l.model, plantstore.Query{Contains: "monstera philodendron", Limit: 10, Order: plantstore.ByIDDescending})
}

// Where many plants have the tag of a search, the index is read instead of them, unless it finds
// many, too.
func TestSearchesAmongManyTaggedPlants(t *testing.T) {
	l := newComparison(t, 1)
	l.store.GenerationLimit.Rows = generationSize
	l.store.IndexNames(rules.IndexOn)
	l.settle(t)
	var batch []plantstore.Write
	for i := range fewPlants + 500 {
		p := plantstore.Plant{ID: plantstore.ID(i), Name: fmt.Sprintf("Monstera %d", i)}
		if i%100 > 0 {
			p.Tag = plantstore.NewTag("t")
		}
		batch = append(batch, plantstore.Write{Op: plantstore.Create, Plant: p})
	}
	l.apply(t, batch)
	for l.store.freezeRest() {
		l.flush(t, idleFlushSize)
	}
	for _, tt := range []struct {
		plantstore.Query
		byName bool
	}{
		{plantstore.Query{Contains: "stera 999", Tag: plantstore.NewTag("t")}, true},
		{plantstore.Query{Contains: "stera 100", Tag: plantstore.NewTag("t")}, true},
		{plantstore.Query{Contains: "stera 700", Tags: []string{"s", "t"}, Order: plantstore.ByIDDescending}, true},
		{plantstore.Query{Contains: "stera", Tag: plantstore.NewTag("t")}, false},
		{plantstore.Query{Contains: "stera 700", Tag: plantstore.NewTag("s")}, false},
	} {
		q := tt.Query
		if got, want := storetest.Scan(t, l.store, q), storetest.Scan(t, l.model, q); len(want) == 0 && q.SelectsTag(plantstore.NewTag("t")) || !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", q, got, want)
		}
		byName, err := readSnapshot(t.Context(), l.store.search, func(snap *snapshot) (bool, error) { return snap.betterByName(&q) })
		if err != nil || byName != tt.byName {
			t.Errorf("%+v: by name: %t, %v, want %t", q, byName, err, tt.byName)
		}
	}
}

// In a store with more plants than can be sorted, those that the index finds are.
func TestPlantsThatTheIndexFindsAreSortedByName(t *testing.T) {
	l := newComparison(t, 1)
	l.store.IndexNames(rules.IndexOn)
	l.settle(t)
	var batch []plantstore.Write
	for i, name := range []string{"Monstera", "Fern", "monstera alba", "Ñandubay", "A Monstera"} {
		p := plantstore.Plant{ID: plantstore.ID(i), Name: name}
		if i%2 > 0 {
			p.Tag = plantstore.NewTag("t")
		}
		batch = append(batch, plantstore.Write{Op: plantstore.Create, Plant: p})
	}
	l.apply(t, batch[:3])
	for l.store.freezeRest() {
		l.flush(t, idleFlushSize)
	}
	l.apply(t, batch[3:]) // which the index does not have yet
	if err := exec(l.store.write.conn, "UPDATE log_state SET plants = ?", 2*plantstore.MaxSorted); err != nil {
		t.Fatal(err)
	}
	for _, q := range []plantstore.Query{
		{Contains: "monst", Order: plantstore.ByName},
		{Contains: "monst", Order: plantstore.ByNameDescending, Limit: 2},
		{Contains: "ÑAN", Order: plantstore.ByName, Tag: plantstore.NewTag("t")},
		{Contains: "stera", Order: plantstore.ByName, Untagged: true},
		{Contains: "palm", Order: plantstore.ByName},
	} {
		q.Limit = max(q.Limit, 10)
		got, err := l.store.List(t.Context(), q)
		want, wantErr := l.model.List(t.Context(), q)
		if err != nil || wantErr != nil || !slices.EqualFunc(got.Plants, want.Plants, func(a, b plantstore.StoredPlant) bool { return a.Plant == b.Plant }) {
			t.Errorf("%+v: %v, %v, want %v, %v", q, got.Plants, err, want.Plants, wantErr)
		}
	}
	for _, q := range []plantstore.Query{{}, {Contains: "mo"}, {Untagged: true}} {
		q.Order, q.Limit = plantstore.ByName, 10
		if _, err := l.store.List(t.Context(), q); !errors.Is(err, plantstore.ErrTooManyToSort) {
			t.Errorf("%+v: %v, want ErrTooManyToSort", q, err)
		}
	}
}
