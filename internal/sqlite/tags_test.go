package sqlite

import (
	"fmt"
	"strings"
	"testing"

	"plantstore"
)

// A server ends at many points of the flush of a generation's tags, and again during the
// flush of the one that follows. Every plant is found and counted by its tag.
func TestPlantsAreFoundByTheirTagsWhereverAFlushEnds(t *testing.T) {
	const rows = 46 // of the six tags and the plants that have or had them
	for first := 0; first <= rows+2; first += 5 {
		for _, second := range []int{0, 2, 9} { // the second time, there are up to 9
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
				l.compareCount(t, plantstore.Query{Tags: []string{"d", "f"}})
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

// compareCount compares how many plants a query counts.
func (l *comparison) compareCount(t *testing.T, q plantstore.Query) {
	t.Helper()
	q.Limit, q.Count = 1, true
	want, err := l.model.List(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.store.List(t.Context(), q); err != nil || got.Count == nil || *got.Count != *want.Count {
		t.Fatalf("%+v: it counts %v, %v, want %v", q, got.Count, err, want.Count)
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
			l.store.GenerationLimit.Rows, l.store.GenerationLimit.TagBytes = generationSize, generationTags
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
			s.GenerationLimit.Text, s.GenerationLimit.TagBytes = generationText, generationTags
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
