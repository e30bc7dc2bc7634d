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

// life is one that a store and the model share. Plants come to wait and are moved
// all the time, because few may wait.
type life struct {
	*rand.Rand
	path  string
	store *Store
	model *storetest.Model
}

const fewWait = 200

func newLife(t *testing.T, seed uint64) *life {
	l := &life{Rand: rand.New(rand.NewPCG(seed, 0)), path: newPath(t), model: storetest.NewModel()}
	l.open(t)
	t.Cleanup(func() { mustClose(t, l.store) })
	return l
}

func (l *life) open(t *testing.T) {
	t.Helper()
	l.store = mustOpen(t, l.path, Serve)
	l.store.write.target = fewWait
}

// id returns one of some thousand ids, next to and far from each other and at both
// ends.
func (l *life) id() plantstore.ID {
	const ids = 20_000
	switch n := l.IntN(ids); n {
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

func (l *life) plant() plantstore.Plant {
	p := plantstore.Plant{ID: l.id(), Name: fmt.Sprintf("plant %d", l.IntN(3))}
	if n := l.IntN(4); n > 0 {
		p.Tag = plantstore.NewTag(strings.Repeat("t", n-1))
	}
	return p
}

// creates returns creates of plants that are not there yet but for about some of
// them, in any order.
func (l *life) creates(t *testing.T, n, some int) []plantstore.Write {
	t.Helper()
	var batch []plantstore.Write
	for len(batch) < n {
		p := l.plant()
		if _, err := l.model.Plant(t.Context(), p.ID); err == nil && l.IntN(n) >= some {
			continue
		}
		batch = append(batch, plantstore.Write{Op: plantstore.Create, Plant: p})
	}
	return batch
}

// mixed returns writes of all kinds.
func (l *life) mixed(n int) []plantstore.Write {
	waiting := l.store.write.recent.Load().all()
	batch := make([]plantstore.Write, n)
	for i := range batch {
		op := []plantstore.Op{plantstore.Create, plantstore.Replace, plantstore.Delete}[l.IntN(3)]
		batch[i] = plantstore.Write{Op: op, Plant: l.plant()}
		if len(waiting) > 0 && l.IntN(2) == 0 {
			batch[i].Plant.ID = waiting[l.IntN(len(waiting))].id
		}
	}
	return batch
}

// apply has both apply a batch, and compares what they say.
func (l *life) apply(t *testing.T, batch []plantstore.Write) {
	t.Helper()
	want, err := l.model.Apply(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.store.Apply(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got[i].Outcome != want[i].Outcome || !errors.Is(got[i].Err, want[i].Err) {
			t.Fatalf("write %d, %v: %v, want %v", i, batch[i], got[i], want[i])
		}
	}
}

// compare compares all that can be read.
func (l *life) compare(t *testing.T, s *Store) {
	t.Helper()
	after := l.id()
	for _, q := range []plantstore.Query{
		{},
		{After: &after},
		{Tag: plantstore.NewTag("")},
		{Tag: plantstore.NewTag("t"), After: &after},
		{Tag: plantstore.NewTag("no such")},
		{Contains: "plant 1"},
	} {
		var want, got []plantstore.Plant
		for p, err := range l.model.Scan(t.Context(), q) {
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
		q.Limit = 1 + l.IntN(50)
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if first := want[:min(len(want), q.Limit)]; !slices.Equal(page.Plants, first) || (page.Next == nil) != (len(want) <= q.Limit) {
			t.Fatalf("%+v: a page of %d plants and then %v, want %d of %d", q, len(page.Plants), page.Next, len(first), len(want))
		}
	}
	for range 20 {
		id := l.id()
		want, wantErr := l.model.Plant(t.Context(), id)
		if got, err := s.Plant(t.Context(), id); got != want || !errors.Is(err, wantErr) {
			t.Fatalf("plant %d: %v and %v, want %v and %v", id, got, err, want, wantErr)
		}
	}
	if problems, err := s.Check(t.Context()); err != nil || len(problems) > 0 {
		t.Fatalf("check: %v, %v", problems, err)
	}
}

// asAfterAKill opens a copy of the files as they are, and compares.
func (l *life) asAfterAKill(t *testing.T) {
	t.Helper()
	path := newPath(t)
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(l.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, path, Serve)
	defer mustClose(t, s)
	if got, want := s.write.recent.Load(), l.store.write.recent.Load(); !slices.EqualFunc(got.all(), want.all(), func(a, b entry) bool { return a == b }) {
		t.Fatalf("%d plants wait in the file, %d in memory", got.size, want.size)
	}
	l.compare(t, s)
}

func (r *recent) all() []entry { return slices.Collect(r.from(firstID)) }

func TestPlantsThatWaitAreThereLikeOthers(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newLife(t, seed)
			passes := map[int64]bool{}
			most := 0
			for range 60 {
				switch l.IntN(10) {
				case 0, 1, 2, 3:
					l.apply(t, l.creates(t, groupSize+l.IntN(100), l.IntN(3)))
				case 4, 5:
					l.apply(t, l.mixed(1+l.IntN(200)))
				case 6:
					if err := l.store.settle(t.Context()); err != nil {
						t.Fatal(err)
					}
				case 7:
					l.compare(t, l.store)
				case 8:
					l.asAfterAKill(t)
				case 9:
					mustClose(t, l.store)
					l.open(t)
				}
				passes[l.store.write.moving.pass] = true
				most = max(most, l.store.write.recent.Load().size)
			}
			l.compare(t, l.store)
			if len(passes) < 5 || most < fewWait/2 {
				t.Errorf("there were %d passes, and %d plants waited at most: that tells little", len(passes), most)
			}
		})
	}
}

// What has been moved does not stay in the table recent for ever.
func TestNothingWaitsInTheEnd(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newLife(t, seed)
			for range 20 {
				l.apply(t, l.creates(t, 300, 0))
			}
			l.settleAll(t, 6000/settleSize+2)
			l.compare(t, l.store)
		})
	}
}

// Plants that were deleted while they waited leave nothing to do, and those that come
// to wait after a restart are not taken for what was left of them.
func TestNothingWaitsWhenAllWasDeleted(t *testing.T) {
	l := newLife(t, 1)
	l.store.write.target = recentTarget // nothing is moved by itself
	l.apply(t, l.creates(t, 2*fewWait, 0))
	var deletes []plantstore.Write
	for _, e := range l.store.write.recent.Load().all() {
		deletes = append(deletes, plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: e.id}})
	}
	l.settleAll(t, 2, deletes...)

	mustClose(t, l.store)
	l.open(t)
	l.store.write.target = recentTarget
	l.apply(t, l.creates(t, 2*fewWait, 0))
	if err := l.store.writing(t.Context(), 0, func(w *writer) error { return w.move(10) }); err != nil {
		t.Fatal(err)
	}
	l.compare(t, l.store)
}

// settleAll applies the writes while plants wait, and settles the store so many times
// at most. Then nothing may be left to do.
func (l *life) settleAll(t *testing.T, times int, writes ...plantstore.Write) {
	t.Helper()
	if l.store.write.recent.Load().size == 0 {
		t.Fatal("nothing waits")
	}
	l.apply(t, writes)
	for range times {
		if err := l.store.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if r := l.store.write.recent.Load(); r.size > 0 || r.rows > 0 {
		t.Errorf("%d plants wait, in about %d rows", r.size, r.rows)
	}
	if left := text(t, l.store.write.conn, "SELECT count(*) FROM recent", 0); left != "0" {
		t.Errorf("the table has %s rows", left)
	}
}

// A transaction that fails leaves those that wait as they were.
func TestFailedTransactionMovesNothing(t *testing.T) {
	l := newLife(t, 2)
	for range 5 {
		l.apply(t, l.creates(t, 300, 0))
	}
	before, at := l.store.write.recent.Load(), l.store.write.moving
	failed := errors.New("failed")
	err := l.store.write.transaction(func(w *writer) error {
		return errors.Join(w.move(100), w.applyAll(l.creates(t, 100, 0), make([]plantstore.Result, 100)), failed)
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if l.store.write.recent.Load() != before || l.store.write.moving != at {
		t.Error("what waits has changed")
	}
	l.asAfterAKill(t)
	l.apply(t, l.creates(t, 300, 0))
	l.asAfterAKill(t)
}

// Ids that come in order do not wait.
func TestIDsInOrderDoNotWait(t *testing.T) {
	s := openStore(t, newPath(t), Serve)
	const batch, batches = 100, 60
	for i := range batches {
		writes := make([]plantstore.Write, batch)
		for j := range writes {
			// Neighbours come in any order, and some a little late.
			id := plantstore.ID(i*batch + j ^ 37)
			writes[j] = plantstore.Write{Op: plantstore.Create, Plant: fern(id)}
		}
		if _, err := s.Apply(t.Context(), writes); err != nil {
			t.Fatal(err)
		}
	}
	if size := s.write.recent.Load().size; size > lookback*batch {
		t.Errorf("%d of %d plants wait", size, batch*batches)
	}
}

// Plants that fill pages would only be written twice.
func TestLargePlantsDoNotWait(t *testing.T) {
	l := newLife(t, 4)
	batch := l.creates(t, 2*groupSize, 0)
	for i := range batch {
		batch[i].Plant.Name = strings.Repeat("n", pageSize)
	}
	l.apply(t, batch)
	if size := l.store.write.recent.Load().size; size > 0 {
		t.Errorf("%d plants wait", size)
	}
	l.apply(t, l.creates(t, 2*groupSize, 0))
	if size := l.store.write.recent.Load().size; size == 0 {
		t.Error("small ones do not wait either")
	}
}

// A store whose two tables disagree is not trusted.
func TestPlantThatIsThereTwiceIsSeen(t *testing.T) {
	for name, damage := range map[string]string{
		"at its place too":     "INSERT OR IGNORE INTO plants SELECT id, 'another', tag FROM recent WHERE seq % 7 = 0",
		"not where it waits":   "DELETE FROM recent WHERE seq % 7 = 0",
		"nothing about moving": "DELETE FROM moving",
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t, 5)
			for range 3 {
				l.apply(t, l.creates(t, 100, 0))
			}
			if err := exec(l.store.write.conn, damage); err != nil {
				t.Fatal(err)
			}
			if problems, err := l.store.Check(t.Context()); err == nil && len(problems) == 0 {
				t.Error("check finds nothing")
			}
			if err := l.store.settle(t.Context()); !errors.Is(err, plantstore.ErrUntrusted) {
				t.Errorf("settle: %v", err)
			}
		})
	}
}

func TestRecentAgreesWithAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 0))
	r, want := new(recent), map[plantstore.ID]entry{}
	for round := range 300 {
		c := newChange()
		for range random.IntN(400) {
			id := plantstore.ID(random.IntN(2000))
			if e, found := c.find(r, id); found {
				if e != want[id] {
					t.Fatalf("find(%d) = %v, want %v", id, e, want[id])
				}
				c.forget(id)
				delete(want, id)
				continue
			}
			want[id] = entry{id, random.Int64(), random.Uint64()}
			c.added[id] = want[id]
		}
		before := slices.Clone(r.all())
		next := c.apply(r, int64(round))
		if !slices.Equal(before, r.all()) {
			t.Fatal("the one before has changed")
		}
		r = next
		ids := slices.Sorted(maps.Keys(want))
		all := r.all()
		if len(all) != len(ids) || r.size != len(ids) {
			t.Fatalf("it has %d of size %d, want %d", len(all), r.size, len(ids))
		}
		for i, id := range ids {
			if all[i] != want[id] {
				t.Fatalf("the %d-th is %v, want %v", i, all[i], want[id])
			}
		}
		for _, part := range r.parts {
			if len(part) == 0 || len(part) > maxPart {
				t.Fatalf("a part of %d", len(part))
			}
		}
	}
}
