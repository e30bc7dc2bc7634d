package memtable_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plantstore"
	"plantstore/internal/memtable"
)

// history is a log, and the generations that index it.
type history struct {
	*rand.Rand
	mem    *memtable.Unflushed
	log    []memtable.Change
	states map[plantstore.ID]memtable.Change // the last change of each plant
}

func newHistory(seed uint64) *history {
	return &history{
		Rand: rand.New(rand.NewPCG(seed, 0)), mem: &memtable.Unflushed{Active: memtable.New()},
		states: map[plantstore.ID]memtable.Change{},
	}
}

var tags = []plantstore.Tag{{}, plantstore.NewTag(""), plantstore.NewTag("a"), plantstore.NewTag("a\x00"), plantstore.NewTag("b")}

// transaction returns a few changes, which are not in the log yet.
func (h *history) transaction() (changes []memtable.Change) {
	after := map[plantstore.ID]memtable.Change{}
	for range 1 + h.IntN(5) {
		id := plantstore.ID(h.IntN(40) - 20)
		was, ok := after[id]
		if !ok {
			was, ok = h.states[id]
		}
		c := memtable.Change{ID: id, Seq: int64(len(h.log) + len(changes) + 1), Size: uint32(h.IntN(9)), Before: was.After}
		if c.Deleted = ok && !was.Deleted && h.IntN(3) == 0; !c.Deleted {
			c.After = tags[h.IntN(len(tags))]
		}
		changes, after[id] = append(changes, c), c
	}
	return changes
}

func (h *history) commit(changes []memtable.Change) {
	h.mem.Active.Add(changes)
	h.log = append(h.log, changes...)
	for _, c := range changes {
		h.states[c.ID] = c
	}
}

// at returns the newest change of each plant after one row up to another.
func (h *history) at(after, seq int64) map[plantstore.ID]memtable.Change {
	states := map[plantstore.ID]memtable.Change{}
	for _, c := range h.log[:seq] {
		if c.Seq > after {
			states[c.ID] = c
		}
	}
	return states
}

// compare compares what a reader sees whose snapshot ends with a row.
func (h *history) compare(t *testing.T, after, seq int64) {
	t.Helper()
	want := h.at(after, seq)
	for id := plantstore.ID(-21); id <= 20; id++ {
		e, ok := h.mem.Find(id, seq)
		state, exists := want[id]
		if ok = ok && e.Seq > after; ok != exists || ok && (e.Seq != state.Seq || e.Deleted() != state.Deleted || e.Size != state.Size) {
			t.Fatalf("plant %d at row %d: %+v, %t, want %+v, %t", id, seq, e, ok, state, exists)
		}
	}
	for _, tag := range tags {
		first := plantstore.ID(h.IntN(40) - 20)
		var got, expected []plantstore.ID
		m := h.mem.From(first, after, seq, tag)
		for e, matches, ok := m.Next(); ok; e, matches, ok = m.Next() {
			if matches {
				got = append(got, e.ID)
			}
		}
		text, tagged := tag.Text()
		for id, state := range want {
			if id >= first && !state.Deleted && (!tagged || state.After == tag) {
				expected = append(expected, id)
			}
		}
		slices.Sort(expected)
		if !slices.Equal(got, expected) {
			t.Fatalf("plants of tag %q from %d on, at row %d: %v, want %v", text, first, seq, got, expected)
		}
		if !tagged {
			continue
		}
		view := h.mem.Tag(text, after, seq)
		changed := slices.Collect(view.Changed())
		for id := plantstore.ID(-21); id <= 20; id++ {
			has, logged := view.Has(id)
			state, exists := want[id]
			if wantHas := exists && !state.Deleted && state.After == tag; logged != exists || has != wantHas {
				t.Fatalf("plant %d has tag %q at row %d: %t, %t, want %t, %t", id, text, seq, has, logged, wantHas, exists)
			}
		}
		for _, c := range h.log[after:] {
			if c.Before != c.After && (c.Before == tag || c.After == tag) && !slices.Contains(changed, c.ID) {
				t.Fatalf("the plants that have got or lost tag %q, %v, lack %d", text, changed, c.ID)
			}
		}
	}
}

// Readers of any snapshot see the log as it was then, across a freeze and failed
// transactions, and a flush writes the tags that plants have in the end.
func TestGenerationsAreLikeTheirLog(t *testing.T) {
	for seed := range uint64(30) {
		h := newHistory(seed)
		for round := range 60 {
			if h.IntN(4) == 0 { // a transaction fails
				failed := h.transaction()
				h.mem.Active.Add(failed)
				h.mem.Active.Remove(failed)
			}
			h.commit(h.transaction())
			if round == 30 {
				h.mem.Active.Freeze(int64(len(h.log)), 0, 0)
				h.mem = &memtable.Unflushed{Active: memtable.New(), Frozen: h.mem.Active}
			}
			h.compare(t, 0, int64(len(h.log)))
			h.compare(t, 0, h.Int64N(int64(len(h.log)+1)))
		}
		frozen := h.mem.Frozen
		final := h.at(0, frozen.Final())
		flushed := map[plantstore.Tag][]plantstore.ID{}
		for tag, ok := frozen.NextTag(""); ok; tag, ok = frozen.NextTag(tag + "\x00") {
			ids, has := frozen.Tagged(tag)
			for _, id := range ids {
				if has(id) {
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
		h.compare(t, frozen.Final(), int64(len(h.log)))
	}
}

func TestGenerationCoversWhatItWasFrozenWith(t *testing.T) {
	g := memtable.New()
	if !g.Covers(math.MaxInt64) {
		t.Error("the active generation does not cover what comes")
	}
	g.Freeze(7, 1, 2)
	if !g.Covers(7) || g.Covers(8) || fmt.Sprint(g.Final(), g.Plants, g.Logged) != "7 1 2" {
		t.Errorf("frozen with row 7: covers it: %t, and the next: %t", g.Covers(7), g.Covers(8))
	}
}
