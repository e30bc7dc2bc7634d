package sqlite

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"plantstore"
)

// A server ends at many points of the flush of a generation's tags, and again during the
// flush of the one that follows. Every plant is found and counted by its tag.
func TestPlantsAreFoundByTheirTagsWhereverAFlushEnds(t *testing.T) {
	const rows = 46 // of the six tags and the plants that have or had them
	for first := 0; first <= rows+2; first += 5 {
		for _, second := range []int{0, 3, 9} { // the second time, there are up to 9
			l := newComparison(t, 1)
			for n, tag := range []string{"a", "b", "c", "d", "e", "f"} {
				var batch []plantstore.Write
				for id := range plantstore.ID(10) {
					if int(id)%4 >= n%4 {
						batch = append(batch, plantstore.Write{Op: plantstore.Replace, Plant: plantstore.Plant{ID: id, Tag: plantstore.NewTag(tag)}})
					}
				}
				l.apply(t, batch)
			}
			for round, flushed := range []int{first, second} {
				l.store.freezeRest()
				if frozen := l.store.unflushed.Load().Frozen; frozen != nil {
					l.transact(t, func(w *writer) error { _, _, err := w.flushPlants(frozen, 100, flushText); return err })
				}
				for range flushed {
					l.flush(t, 1)
				}
				l.apply(t, []plantstore.Write{
					{Op: plantstore.Replace, Plant: plantstore.Plant{ID: 1, Name: fmt.Sprint(round), Tag: plantstore.NewTag("d")}},
					{Op: plantstore.Delete, Plant: plantstore.Plant{ID: 2}},
					{Op: plantstore.Create, Plant: plantstore.Plant{ID: 100 + plantstore.ID(round), Tag: plantstore.NewTag("b")}},
				})
				l.compareTags(t, l.store, "", 4)
				mustClose(t, l.store)
				l.open(t)
				l.compareTags(t, l.store, "", 4)
				l.compareView(t, l.store)
			}
			for l.store.freezeRest() {
				l.flush(t, 100)
			}
			l.compareTags(t, l.store, "", 4)
			if wrong := text(t, l.store.write.conn, "SELECT count(*) FROM (SELECT tag, id FROM stored_by_tag EXCEPT SELECT tag, id FROM stored)", 0); wrong != "0" {
				t.Fatalf("%s plants are found by a tag that they do not have", wrong)
			}
			if problems, err := l.store.Check(t.Context()); err != nil || len(problems) > 0 {
				t.Fatalf("after %d and %d rows: %q, %v", first, second, problems, err)
			}
		}
	}
}

func (l *comparison) transact(t *testing.T, f func(*writer) error) {
	t.Helper()
	if err := l.store.withWriter(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// Tags take a bounded amount of memory.
func TestManyTagsAreFlushedByTheirSize(t *testing.T) {
	const generationTags = 1 << 20
	for size, batchSize := range map[int]int{16 << 10: 1, 64 << 10: 2} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			l := newComparison(t, 1)
			l.store.generationLimit.Rows, l.store.generationLimit.TagBytes = generationSize, generationTags
			large := strings.Repeat("x", size)
			next := plantstore.ID(0)
			for range 3 * generationTags / (size * batchSize) {
				var batch []plantstore.Write
				for range batchSize {
					batch = append(batch, plantstore.Write{Op: plantstore.Create, Plant: plantstore.Plant{ID: next, Tag: plantstore.NewTag(fmt.Sprint(next) + large)}})
					next++
				}
				l.apply(t, batch)
				if n := l.store.unflushed.Load().Active.Size().TagBytes; n > generationTags+64<<10 {
					t.Fatalf("after %d tags, %d bytes are not frozen", next, n)
				}
			}
			l.compareTags(t, l.store, "", 1000)
		})
	}
}

// A delete brings its plant's text back into memory and the log, although it has none itself.
func TestDeletesOfLargePlantsAreFlushedByTheirSize(t *testing.T) {
	const size, batchSize, generationText, generationTags = 16 << 10, 16, 4 << 20, 1 << 20
	large := strings.Repeat("x", size)
	for _, tt := range []struct {
		name    string
		plantOf func(plantstore.ID) plantstore.Plant
		batches int // that fill more than two generations
	}{
		{"tags", func(id plantstore.ID) plantstore.Plant {
			return plantstore.Plant{ID: id, Tag: plantstore.NewTag(fmt.Sprint(id) + large)}
		}, 12},
		{"names", func(id plantstore.ID) plantstore.Plant {
			return plantstore.Plant{ID: id, Name: large + large}
		}, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t, newPath(t), Serve)
			s.generationLimit.Text, s.generationLimit.TagBytes = generationText, generationTags
			apply := func(op plantstore.Op) {
				t.Helper()
				for i := range tt.batches {
					var batch []plantstore.Write
					for j := range batchSize {
						id := plantstore.ID(i*batchSize + j)
						write := plantstore.Write{Op: op, Plant: plantstore.Plant{ID: id}}
						if op == plantstore.Create {
							write.Plant = tt.plantOf(id)
						}
						batch = append(batch, write)
					}
					if _, err := s.Apply(t.Context(), batch); err != nil {
						t.Fatal(err)
					}
					active := s.unflushed.Load().Active
					if tags, text := active.Size().TagBytes, active.Size().Text; tags > generationTags+batchSize*size || text > generationText+2*batchSize*size {
						t.Fatalf("after %d batches, %d bytes of tags and %d of text are not frozen", i+1, tags, text)
					}
				}
			}
			apply(plantstore.Create)
			for s.freezeRest() {
				if err := s.withWriter(t.Context(), s.flushWhileIdle); err != nil {
					t.Fatal(err)
				}
			}
			apply(plantstore.Delete)
		})
	}
}

// A transaction takes a bounded amount of memory, although its deletes have no text themselves.
func TestDeletesOfLargePlantsAreAppliedInParts(t *testing.T) {
	s := openStore(t, newPath(t), Serve)
	large := strings.Repeat("x", maxAppended/groupSize)
	var creates, deletes []plantstore.Write
	for id := range plantstore.ID(groupSize + 1) {
		creates = append(creates, plantstore.Write{Plant: plantstore.Plant{ID: id, Tag: plantstore.NewTag(fmt.Sprint(id) + large)}})
		deletes = append(deletes, plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: id}})
	}
	for _, batch := range [][]plantstore.Write{creates, deletes} {
		for _, want := range []int{groupSize, 1} {
			results, err := s.Apply(t.Context(), batch)
			if err != nil || len(results) != want {
				t.Fatalf("%d of %d writes were applied, %v, want %d", len(results), len(batch), err, want)
			}
			for i, r := range results {
				if r.Err != nil || r.EventType() == "" {
					t.Fatalf("%v of plant %d: %v", batch[i].Op, batch[i].Plant.ID, r)
				}
			}
			batch = batch[want:]
		}
	}
	if n, err := s.Stats(t.Context()); err != nil || n.Plants != 0 {
		t.Errorf("%d plants, %v", n.Plants, err)
	}
}

// A store of an older schema, killed in the middle of a flush: plants up to id 2 are flushed.
func TestMigrationCountsTheTagsOfUnflushedPlants(t *testing.T) {
	path := storeOfSchema(t, 7)
	runRaw(t, path, `
		INSERT INTO stored VALUES (1, '', 'b'), (2, '', 'b'), (3, '', 'a'), (4, '', 'a'), (5, '', NULL);
		INSERT INTO log (seq, time, "by", type, id, name, tag) VALUES
			(1, 1, '', 1, 1, '', 'a'), (2, 1, '', 1, 3, '', 'a'), (3, 1, '', 1, 4, '', 'a'), (4, 1, '', 1, 5, '', NULL),
			(5, 1, '', 2, 1, '', 'b'), (6, 1, '', 1, 2, '', 'b'), (7, 1, '', 3, 3, '', 'a'), (8, 1, '', 2, 5, '', 'c'),
			(9, 1, '', 2, 5, '', 'd'), (10, 1, '', 1, 6, '', 'd'), (11, 1, '', 3, 6, '', 'd');
		UPDATE log_state SET flushed = 4, plants = 4;`)
	s := openStore(t, path, Serve)
	if got := fmt.Sprint(allTags(t, s, "", 10)); got != "[{a 1 false} {b 2 false} {d 1 false}]" {
		t.Errorf("the tags are %s", got)
	}
	if stats, err := s.Stats(t.Context()); err != nil || stats.Plants != 4 || stats.Unflushed != 0 {
		t.Errorf("Stats: %+v, %v", stats, err)
	}
	if problems, err := s.Check(t.Context()); err != nil || len(problems) > 0 {
		t.Errorf("check: %q, %v", problems, err)
	}
}

// storeOfSchema returns the path of an empty store of an older schema.
func storeOfSchema(t *testing.T, version int) string {
	t.Helper()
	path := newPath(t)
	steps, err := fs.Glob(schemaFiles, "schema/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range steps[:version] {
		script, err := schemaFiles.ReadFile(step)
		if err != nil {
			t.Fatal(err)
		}
		runRaw(t, path, string(script))
	}
	runRaw(t, path, fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=%d", applicationID, version))
	return path
}

// A store that had an index on tags, killed in the middle of a flush: all plants up to row
// 9 are flushed, and the numbers of tags before c. Plant 1 has had three tags since.
func TestMigrationFindsPlantsByTheirTags(t *testing.T) {
	path := storeOfSchema(t, 8)
	runRaw(t, path, `
		INSERT INTO stored VALUES (1, '', 'c'), (2, '', 'b'), (4, '', 'a'), (5, '', NULL);
		INSERT INTO log (seq, time, "by", type, id, name, tag, was) VALUES
			(1, 1, '', 1, 1, '', 'a', NULL), (2, 1, '', 1, 3, '', 'a', NULL), (3, 1, '', 1, 4, '', 'a', NULL), (4, 1, '', 1, 5, '', NULL, NULL),
			(5, 1, '', 2, 1, '', 'b', 'a'), (6, 1, '', 2, 1, '', 'a', 'b'), (7, 1, '', 1, 2, '', 'b', NULL), (8, 1, '', 3, 3, '', 'a', NULL),
			(9, 1, '', 2, 1, '', 'c', 'a'),
			(10, 1, '', 2, 2, '', 'a', 'b'), (11, 1, '', 2, 2, '', 'd', 'a'), (12, 1, '', 3, 4, '', 'a', NULL);
		INSERT INTO stored_tags VALUES ('a', 1), ('b', 1);
		UPDATE log_state SET flushed = 4, plants = 4, tags_seq = 9, tags_next = 'c';`)
	s := openStore(t, path, Serve)
	examine := func(when string) {
		t.Helper()
		if got := fmt.Sprint(allTags(t, s, "", 10)); got != "[{c 1 false} {d 1 false}]" {
			t.Errorf("%s, the tags are %s", when, got)
		}
		for tag, want := range map[string]string{"a": "[]", "b": "[]", "c": "[1]", "d": "[2]"} {
			page, err := s.List(t.Context(), plantstore.Query{Tag: plantstore.NewTag(tag), Limit: 10})
			ids := []plantstore.ID{}
			for _, p := range page.Plants {
				ids = append(ids, p.ID)
			}
			if fmt.Sprint(ids) != want || err != nil {
				t.Errorf("%s, the plants %v have the tag %s, want %s, %v", when, ids, tag, want, err)
			}
		}
		if problems, err := s.Check(t.Context()); err != nil || len(problems) > 0 {
			t.Errorf("%s: %q, %v", when, problems, err)
		}
	}
	examine("after the migration")
	for s.freezeRest() {
		if err := s.withWriter(t.Context(), func(*writer) error { return s.flush(1, flushText) }); err != nil {
			t.Fatal(err)
		}
		examine("during the flush")
	}
	if got := text(t, s.write.conn, "SELECT group_concat(tag || id) FROM stored_by_tag", 0); got != "c1,d2" {
		t.Errorf("the table has %s", got)
	}
}

// An older server that has the store open, or is started again, would go on to write the old
// tables.
func TestOnlyAServerMigrates(t *testing.T) {
	path := storeOfSchema(t, 8)
	before := describe(t, path)
	for _, mode := range []Mode{Existing, Share} {
		if _, err := Open(path, mode); err == nil || !strings.Contains(err.Error(), "start the server of this release first") {
			t.Errorf("mode %d: %v", mode, err)
		}
	}
	if after := describe(t, path); after != before {
		t.Errorf("the schema is\n%s\nwant\n%s", after, before)
	}
	mustClose(t, mustOpen(t, path, Serve))
	mustClose(t, mustOpen(t, path, Existing))
}
