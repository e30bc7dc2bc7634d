package sqlite

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/storetest"
)

// comparison applies the same writes to a store and to the model. The store stages
// and flushes plants all the time, because it keeps few of them staged.
type comparison struct {
	*rand.Rand
	path  string
	store *Store
	model *storetest.Model
}

const smallTarget = 200

func newComparison(t *testing.T, seed uint64) *comparison {
	c := &comparison{Rand: rand.New(rand.NewPCG(seed, 0)), path: newPath(t), model: storetest.NewModel()}
	c.open(t)
	t.Cleanup(func() { mustClose(t, c.store) })
	return c
}

func (c *comparison) open(t *testing.T) {
	t.Helper()
	c.store = mustOpen(t, c.path, Serve)
	c.store.write.target = smallTarget
}

// id returns one of some thousand ids: adjacent ones, distant ones and both extremes.
func (c *comparison) id() plantstore.ID {
	const ids = 20_000
	switch n := c.IntN(ids); n {
	case 0:
		return math.MinInt64
	case 1:
		return math.MaxInt64
	default:
		if n%2 == 0 {
			return plantstore.ID(n)
		}
		return plantstore.ID(n-ids/2) * 1_000_003
	}
}

func (c *comparison) plant() plantstore.Plant {
	p := plantstore.Plant{ID: c.id(), Name: fmt.Sprintf("plant %d", c.IntN(3))}
	if n := c.IntN(4); n > 0 {
		p.Tag = plantstore.NewTag(strings.Repeat("t", n-1))
	}
	return p
}

// creates returns n creates in random order, about taken of them of ids that are
// taken.
func (c *comparison) creates(t *testing.T, n, taken int) []plantstore.Write {
	t.Helper()
	var batch []plantstore.Write
	for len(batch) < n {
		p := c.plant()
		if _, err := c.model.Plant(t.Context(), p.ID); err == nil && c.IntN(n) >= taken {
			continue
		}
		batch = append(batch, plantstore.Write{Op: plantstore.Create, Plant: p})
	}
	return batch
}

// mixed returns writes of all kinds.
func (c *comparison) mixed(n int) []plantstore.Write {
	staged := c.store.write.staging.Load().all()
	batch := make([]plantstore.Write, n)
	for i := range batch {
		op := []plantstore.Op{plantstore.Create, plantstore.Replace, plantstore.Delete}[c.IntN(3)]
		batch[i] = plantstore.Write{Op: op, Plant: c.plant()}
		if len(staged) > 0 && c.IntN(2) == 0 {
			batch[i].Plant.ID = staged[c.IntN(len(staged))].id
		}
	}
	return batch
}

// apply applies a batch to both, and compares the results.
func (c *comparison) apply(t *testing.T, batch []plantstore.Write) {
	t.Helper()
	want, err := c.model.Apply(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.store.Apply(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got[i].Outcome != want[i].Outcome || !errors.Is(got[i].Err, want[i].Err) {
			t.Fatalf("write %d, %v: %v, want %v", i, batch[i], got[i], want[i])
		}
	}
}

// compare compares what can be read from a store with the model.
func (c *comparison) compare(t *testing.T, s *Store) {
	t.Helper()
	after := c.id()
	for _, q := range []plantstore.Query{
		{},
		{After: &after},
		{Tag: plantstore.NewTag("")},
		{Tag: plantstore.NewTag("t"), After: &after},
		{Tag: plantstore.NewTag("unknown")},
		{Contains: "plant 1"},
	} {
		var want, got []plantstore.Plant
		for p, err := range c.model.Scan(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, p)
		}
		for p, err := range s.Scan(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: %d plants, want %d", q, len(got), len(want))
		}
		q.Limit = 1 + c.IntN(50)
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if first := want[:min(len(want), q.Limit)]; !slices.Equal(page.Plants, first) || (page.Next == nil) != (len(want) <= q.Limit) {
			t.Fatalf("%+v: a page of %d plants with Next %v, want %d of %d", q, len(page.Plants), page.Next, len(first), len(want))
		}
	}
	for range 20 {
		id := c.id()
		want, wantErr := c.model.Plant(t.Context(), id)
		if got, err := s.Plant(t.Context(), id); got != want || !errors.Is(err, wantErr) {
			t.Fatalf("plant %d: %v and %v, want %v and %v", id, got, err, want, wantErr)
		}
	}
	if problems, err := s.Check(t.Context()); err != nil || len(problems) > 0 {
		t.Fatalf("check: %v, %v", problems, err)
	}
}

// compareCopy opens a copy of the files in their current state, as after a crash, and
// compares.
func (c *comparison) compareCopy(t *testing.T) {
	t.Helper()
	path := newPath(t)
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(c.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, path, Serve)
	defer mustClose(t, s)
	if got, want := s.write.staging.Load(), c.store.write.staging.Load(); !slices.Equal(got.all(), want.all()) {
		t.Fatalf("%d plants are staged in the file, %d in memory", got.size, want.size)
	}
	c.compare(t, s)
}

func (s *staging) all() []entry { return slices.Collect(s.from(firstID)) }

func TestStagedPlantsBehaveLikeOthers(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newComparison(t, seed)
			sweeps := map[int64]bool{}
			peak := 0
			for range 60 {
				switch c.IntN(10) {
				case 0, 1, 2, 3:
					c.apply(t, c.creates(t, groupSize+c.IntN(100), c.IntN(3)))
				case 4, 5:
					c.apply(t, c.mixed(1+c.IntN(200)))
				case 6:
					if err := c.store.idleFlush(t.Context()); err != nil {
						t.Fatal(err)
					}
				case 7:
					c.compare(t, c.store)
				case 8:
					c.compareCopy(t)
				case 9:
					mustClose(t, c.store)
					c.open(t)
				}
				sweeps[c.store.write.state.sweep] = true
				peak = max(peak, c.store.write.staging.Load().size)
			}
			c.compare(t, c.store)
			if len(sweeps) < 5 || peak < smallTarget/2 {
				t.Errorf("there were %d sweeps and at most %d staged plants: the test covers too little", len(sweeps), peak)
			}
		})
	}
}

// Rows of flushed plants are deleted in the end.
func TestIdleFlushLeavesNoRows(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newComparison(t, seed)
			for range 20 {
				c.apply(t, c.creates(t, 300, 0))
			}
			c.flushAll(t, 6000/idleFlushSize+2)
			c.compare(t, c.store)
		})
	}
}

// Plants that are deleted while staged leave no rows, and plants staged after a restart
// are not taken for their remains.
func TestDeletedStagedPlantsLeaveNoRows(t *testing.T) {
	c := newComparison(t, 1)
	c.store.write.target = stagingTarget // no batch flushes
	c.apply(t, c.creates(t, 2*smallTarget, 0))
	var deletes []plantstore.Write
	for _, e := range c.store.write.staging.Load().all() {
		deletes = append(deletes, plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: e.id}})
	}
	c.flushAll(t, 2, deletes...)

	mustClose(t, c.store)
	c.open(t)
	c.store.write.target = stagingTarget
	c.apply(t, c.creates(t, 2*smallTarget, 0))
	if err := c.store.withWriter(t.Context(), 0, func(w *writer) error { return w.flush(10) }); err != nil {
		t.Fatal(err)
	}
	c.compare(t, c.store)
}

// flushAll applies the writes while plants are staged, and calls idleFlush that many
// times. Then nothing may be left.
func (c *comparison) flushAll(t *testing.T, times int, writes ...plantstore.Write) {
	t.Helper()
	if c.store.write.staging.Load().size == 0 {
		t.Fatal("no plant is staged")
	}
	c.apply(t, writes)
	for range times {
		if err := c.store.idleFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s := c.store.write.staging.Load(); s.size > 0 || s.rows > 0 {
		t.Errorf("%d plants are staged, in about %d rows", s.size, s.rows)
	}
	if left := text(t, c.store.write.conn, "SELECT count(*) FROM recent", 0); left != "0" {
		t.Errorf("the table has %s rows", left)
	}
}

// A transaction that fails leaves the staged plants unchanged.
func TestFailedTransactionFlushesNothing(t *testing.T) {
	c := newComparison(t, 2)
	for range 5 {
		c.apply(t, c.creates(t, 300, 0))
	}
	before, state := c.store.write.staging.Load(), c.store.write.state
	failed := errors.New("failed")
	err := c.store.write.transaction(func(w *writer) error {
		return errors.Join(w.flush(100), w.applyAll(c.creates(t, 100, 0), make([]plantstore.Result, 100)), failed)
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if c.store.write.staging.Load() != before || c.store.write.state != state {
		t.Error("the staged plants have changed")
	}
	c.compareCopy(t)
	c.apply(t, c.creates(t, 300, 0))
	c.compareCopy(t)
}

func TestIDsInOrderAreNotStaged(t *testing.T) {
	s := openStore(t, newPath(t), Serve)
	const batch, batches = 100, 60
	for i := range batches {
		writes := make([]plantstore.Write, batch)
		for j := range writes {
			// Adjacent ids come in any order, and some a little late.
			id := plantstore.ID(i*batch + j ^ 37)
			writes[j] = plantstore.Write{Op: plantstore.Create, Plant: fern(id)}
		}
		if _, err := s.Apply(t.Context(), writes); err != nil {
			t.Fatal(err)
		}
	}
	if size := s.write.staging.Load().size; size > lookback*batch {
		t.Errorf("%d of %d plants are staged", size, batch*batches)
	}
}

// Staging plants that fill pages would only write them twice.
func TestLargePlantsAreNotStaged(t *testing.T) {
	c := newComparison(t, 4)
	batch := c.creates(t, 2*groupSize, 0)
	for i := range batch {
		batch[i].Plant.Name = strings.Repeat("n", pageSize)
	}
	c.apply(t, batch)
	if size := c.store.write.staging.Load().size; size > 0 {
		t.Errorf("%d large plants are staged", size)
	}
	c.apply(t, c.creates(t, 2*groupSize, 0))
	if size := c.store.write.staging.Load().size; size == 0 {
		t.Error("small plants are not staged either")
	}
}

// A store whose two tables disagree is not trusted.
func TestDamagedStagingIsDetected(t *testing.T) {
	for name, damage := range map[string]string{
		"a staged plant in plants": "INSERT OR IGNORE INTO plants SELECT id, 'another', tag FROM recent WHERE seq % 7 = 0",
		"a staged plant missing":   "DELETE FROM recent WHERE seq % 7 = 0",
		"the flush state missing":  "DELETE FROM moving",
	} {
		t.Run(name, func(t *testing.T) {
			c := newComparison(t, 5)
			for range 3 {
				c.apply(t, c.creates(t, 100, 0))
			}
			if err := exec(c.store.write.conn, damage); err != nil {
				t.Fatal(err)
			}
			if problems, err := c.store.Check(t.Context()); err == nil && len(problems) == 0 {
				t.Error("Check finds nothing")
			}
			if err := c.store.idleFlush(t.Context()); !errors.Is(err, plantstore.ErrUntrusted) {
				t.Errorf("idleFlush: %v, want ErrUntrusted", err)
			}
		})
	}
}

func TestStagingAgreesWithAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 0))
	s, want := new(staging), map[plantstore.ID]entry{}
	for round := range 300 {
		d := newDelta()
		for range random.IntN(400) {
			id := plantstore.ID(random.IntN(2000))
			if e, found := d.find(s, id); found {
				if e != want[id] {
					t.Fatalf("find(%d) = %v, want %v", id, e, want[id])
				}
				d.remove(id)
				delete(want, id)
				continue
			}
			want[id] = entry{id, random.Int64(), random.Uint64()}
			d.added[id] = want[id]
		}
		before := slices.Clone(s.all())
		next := d.apply(s, int64(round))
		if !slices.Equal(before, s.all()) {
			t.Fatal("apply changed the staging")
		}
		s = next
		ids := slices.Sorted(maps.Keys(want))
		all := s.all()
		if len(all) != len(ids) || s.size != len(ids) {
			t.Fatalf("it has %d plants and the size %d, want %d", len(all), s.size, len(ids))
		}
		for i, id := range ids {
			if all[i] != want[id] {
				t.Fatalf("entry %d is %v, want %v", i, all[i], want[id])
			}
		}
		for _, chunk := range s.chunks {
			if len(chunk) == 0 || len(chunk) > maxChunk {
				t.Fatalf("a chunk has %d entries", len(chunk))
			}
		}
	}
}
