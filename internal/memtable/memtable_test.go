package memtable_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/memtable"
)

// history is a log, and the generations that index it.
type history struct {
	*rand.Rand
	mem    *memtable.Unflushed
	time   int64
	log    []memtable.Change
	states map[plantstore.ID]memtable.Change // the last change of each plant
}

func newHistory(seed uint64) *history {
	return &history{
		Rand: rand.New(rand.NewPCG(seed, 0)), mem: &memtable.Unflushed{Active: memtable.New(0)},
		states: map[plantstore.ID]memtable.Change{},
	}
}

var tags = []plantstore.Tag{{}, plantstore.NewTag(""), plantstore.NewTag("a"), plantstore.NewTag("a\x00"), plantstore.NewTag("b")}

// transaction returns a few changes, which are not in the log yet.
func (h *history) transaction() (changes []memtable.Change) {
	after := map[plantstore.ID]memtable.Change{}
	h.time += h.Int64N(2)
	for range 1 + h.IntN(5) {
		id := plantstore.ID(h.IntN(40) - 20)
		was, ok := after[id]
		if !ok {
			was, ok = h.states[id]
		}
		c := memtable.Change{ID: id, Seq: int64(len(h.log) + len(changes) + 1), Time: h.time, Created: h.time, Before: was.After}
		if ok && !was.Deleted {
			c.Created = was.Created
		}
		if c.Deleted = ok && !was.Deleted && h.IntN(3) == 0; !c.Deleted {
			c.After, c.Name = tags[h.IntN(len(tags))], strings.Repeat("x", h.IntN(9))
			if h.IntN(40) == 0 {
				c.Name = strings.Repeat("y", 100<<10) // a few fill a block
			}
			plant := plantOf(c)
			c.Size = uint32(plant.TextSize())
		}
		changes, after[id] = append(changes, c), c
	}
	return changes
}

func plantOf(c memtable.Change) plantstore.StoredPlant {
	return plantstore.StoredPlant{
		Plant:   plantstore.Plant{ID: c.ID, Name: c.Name, Tag: c.After},
		Version: plantstore.Version{Time: c.Time, N: c.Seq}, Created: c.Created,
	}
}

func (h *history) commit(changes []memtable.Change) {
	h.mem.Active.Add(changes)
	h.log = append(h.log, changes...)
	for _, c := range changes {
		h.states[c.ID] = c
	}
}

// at returns the newest change of each plant up to a row.
func (h *history) at(seq int64) map[plantstore.ID]memtable.Change {
	states := map[plantstore.ID]memtable.Change{}
	for _, c := range h.log[:seq] {
		states[c.ID] = c
	}
	return states
}

// compare compares what a reader sees whose snapshot ends with a row.
func (h *history) compare(t *testing.T, seq int64) {
	t.Helper()
	want := h.at(seq)
	for id := plantstore.ID(-21); id <= 20; id++ {
		plant, row := h.mem.Find(id, seq)
		state, exists := want[id]
		if row != state.Seq || exists && (plant == nil) != state.Deleted || exists && plant != nil && *plant != plantOf(state) {
			t.Fatalf("plant %d at row %d: %.40v in row %d, want %.40v", id, seq, plant, row, state)
		}
	}
	for _, tag := range tags {
		for _, order := range plantstore.Orders() {
			h.comparePlants(t, seq, want, plantstore.Query{Order: order, Tag: tag})
		}
		text, tagged := tag.Text()
		if !tagged {
			continue
		}
		changed := slices.Collect(h.mem.Changed(text))
		for id := plantstore.ID(-21); id <= 20; id++ {
			has, logged := h.mem.HasTag(id, text, seq)
			state, exists := want[id]
			if wantHas := exists && !state.Deleted && state.After == tag; logged != exists || has != wantHas {
				t.Fatalf("plant %d has tag %q at row %d: %t, %t, want %t, %t", id, text, seq, has, logged, wantHas, exists)
			}
		}
		for _, c := range h.log[:seq] {
			if c.Before != c.After && (c.Before == tag || c.After == tag) && !slices.Contains(changed, c.ID) {
				t.Fatalf("the plants that have got or lost tag %q, %v, lack %d", text, changed, c.ID)
			}
		}
	}
}

// comparePlants compares the plants that a query selects.
func (h *history) comparePlants(t *testing.T, seq int64, want map[plantstore.ID]memtable.Change, q plantstore.Query) {
	t.Helper()
	switch h.IntN(4) {
	case 0:
		q.Tags = []string{"", "no such tag"}
	case 1:
		q.TagPrefix = new(tags[h.IntN(len(tags))].String())
	case 2:
		q.Untagged = true
	}
	first := plantstore.ID(h.IntN(40) - 20)
	var got, expected []plantstore.ID
	m := h.mem.From(first, seq, &q)
	for id, plant, ok := m.Next(); ok; id, plant, ok = m.Next() {
		if plant != nil {
			got = append(got, id)
		}
		if plant != nil && *plant != plantOf(want[id]) {
			t.Fatalf("plant %d at row %d: %.40v, want %.40v", id, seq, plant, want[id])
		}
	}
	for id, state := range want {
		if q.CompareIDs(id, first) >= 0 && !state.Deleted && q.SelectsTag(state.After) {
			expected = append(expected, id)
		}
	}
	slices.SortFunc(expected, q.CompareIDs)
	if !slices.Equal(got, expected) {
		t.Fatalf("the plants of %+v from %d on, at row %d: %v, want %v", q, first, seq, got, expected)
	}
}

// Readers of any snapshot see the log as it was then, across a freeze and failed
// transactions, and a flush writes the tags that plants have in the end.
func TestGenerationsAreLikeTheirLog(t *testing.T) {
	for seed := range uint64(12) {
		h := newHistory(seed)
		for round := range 60 {
			if h.IntN(4) == 0 { // a transaction fails
				failed := h.transaction()
				h.mem.Active.Add(failed)
				h.mem.Active.Remove(failed)
			}
			h.commit(h.transaction())
			if round == 30 {
				h.mem.Active.Freeze(int64(len(h.log)))
				h.mem = &memtable.Unflushed{Active: memtable.New(int64(len(h.log))), Frozen: h.mem.Active}
			}
			h.compare(t, int64(len(h.log)))
			h.compare(t, h.Int64N(int64(len(h.log)+1)))
		}
		frozen := h.mem.Frozen
		final := h.at(frozen.Final())
		flushed := map[plantstore.Tag][]plantstore.ID{}
		for tag, ok := frozen.NextTag(""); ok; tag, ok = frozen.NextTag(tag + "\x00") {
			ids, has := frozen.Tagged(tag)
			for i, id := range ids {
				if has[i] {
					flushed[plantstore.NewTag(tag)] = append(flushed[plantstore.NewTag(tag)], id)
				}
			}
		}
		for _, tag := range tags[1:] {
			var want []plantstore.ID
			for id, state := range final {
				if state.After == tag && !state.Deleted {
					want = append(want, id)
				}
			}
			slices.Sort(want)
			if !slices.Equal(flushed[tag], want) {
				t.Fatalf("seed %d: plants %v have the tag %v in the end, want %v", seed, flushed[tag], tag, want)
			}
		}
	}
}

// Names are kept in blocks of 256 KiB, which some fill exactly and some exceed.
func TestNamesOfAnySize(t *testing.T) {
	const block = 256 << 10
	g := memtable.New(100)
	mem := &memtable.Unflushed{Active: g}
	var names []string
	for i, size := range []int{0, 1, block - 1, 0, block, 0, 3 * block, 0, 7, block - 7, 0} {
		names = append(names, strings.Repeat(string(rune('a'+i)), size))
		c := memtable.Change{ID: plantstore.ID(i), Seq: int64(101 + i), Name: names[i], Size: uint32(size)}
		g.Add([]memtable.Change{c})
		g.Remove([]memtable.Change{c})
		g.Add([]memtable.Change{c})
	}
	for i, name := range names {
		if plant, row := mem.Find(plantstore.ID(i), math.MaxInt64); row != int64(101+i) || plant.Name != name {
			t.Errorf("plant %d is in row %d, with a name of %d bytes, want %d", i, row, len(plant.Name), len(name))
		}
	}
}

// The block of an empty name goes with a transaction that fails after it.
func TestEmptyNameOutlivesItsBlock(t *testing.T) {
	g := memtable.New(0)
	g.Add([]memtable.Change{{ID: 1, Seq: 1}})
	failed := []memtable.Change{{ID: 2, Seq: 2, Name: "x", Size: 1}}
	g.Add(failed)
	g.Remove(failed)
	if plant, row := (&memtable.Unflushed{Active: g}).Find(1, math.MaxInt64); row != 1 || plant == nil || plant.Name != "" {
		t.Errorf("found %v in row %d", plant, row)
	}
}

// However many transactions fail, as on a full disk, their tags take no memory.
func TestFailedTransactionsLeaveNoTags(t *testing.T) {
	g := memtable.New(0)
	kept := plantstore.NewTag("kept")
	// A replacement that keeps a tag is all that has it.
	g.Add([]memtable.Change{{ID: 1, Seq: 1, Size: 4, Before: kept, After: kept}})
	before := g.Size()
	for i := range 3 {
		failed := []memtable.Change{{ID: 1, Seq: 2, Before: kept, After: plantstore.NewTag(fmt.Sprint(i))}, {ID: 2, Seq: 3, After: plantstore.NewTag("x")}}
		g.Add(failed)
		g.Remove(failed)
	}
	if after := g.Size(); after != before {
		t.Errorf("%+v after transactions that failed, %+v before", after, before)
	}
	g.Add([]memtable.Change{{ID: 3, Seq: 2, Size: 1, After: plantstore.NewTag("y")}})
	mem := &memtable.Unflushed{Active: g}
	for id, want := range map[plantstore.ID]plantstore.Tag{1: kept, 3: plantstore.NewTag("y")} {
		if plant, _ := mem.Find(id, math.MaxInt64); plant == nil || plant.Tag != want {
			t.Errorf("plant %d is %v, want the tag %v", id, plant, want)
		}
	}
	if tag, ok := g.NextTag("0"); tag != "kept" {
		t.Errorf("the first tag is %q, %t", tag, ok)
	}
}

// A reader may find an entry of a transaction that fails meanwhile.
func TestEntriesAreFoundWhileTransactionsFail(t *testing.T) {
	g := memtable.New(0)
	mem := &memtable.Unflushed{Active: g}
	failed := []memtable.Change{{ID: 1, Seq: 1, Name: strings.Repeat("x", 300<<10), Size: 300 << 10}, {ID: 2, Seq: 2, Name: "y", Size: 1}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			g.Add(failed)
			g.Remove(failed)
		}
	}()
	for {
		select {
		case <-done:
			return
		default:
			if plant, row := mem.Find(2, math.MaxInt64); row != 0 && plant.Name != "y" {
				t.Fatalf("found %q", plant.Name)
			}
		}
	}
}

func TestGenerationCoversWhatItWasFrozenWith(t *testing.T) {
	g := memtable.New(0)
	if !g.Covers(math.MaxInt64) {
		t.Error("the active generation does not cover what comes")
	}
	g.Freeze(7)
	if !g.Covers(7) || g.Covers(8) || g.Final() != 7 {
		t.Errorf("frozen with row 7: covers it: %t, and the next: %t", g.Covers(7), g.Covers(8))
	}
}
