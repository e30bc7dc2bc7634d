// Package memtable indexes the rows of a log of changes that a table of plants does not have
// yet: by the id and by the tag of their plants. It has no plants, only where in the log
// they are.
//
// The active [Generation] takes writes. When it is large it is frozen, and flushed to the
// table while the next one takes writes. [Unflushed] is the two of them.
package memtable

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"

	"plantstore"
)

// FirstID is the least id.
const FirstID = plantstore.ID(math.MinInt64)

// Entry says that the log has the state of a plant in row Seq. There are many of them,
// so they are small and have no pointers.
type Entry struct {
	ID   plantstore.ID
	Seq  int64
	Size uint32 // of the row's text, in bytes
	tag  uint32 // tombstone, untagged, or the number of a tag of the generation
}

// What an entry's tag is if it is not the number of one.
const (
	tombstone uint32 = iota // the plant was deleted
	untagged
	firstTag
)

// Deleted reports whether the plant was deleted.
func (e Entry) Deleted() bool { return e.tag == tombstone }

// before orders entries by id, and the newest of an id first.
func before(a, b Entry) bool {
	return a.ID < b.ID || a.ID == b.ID && a.Seq > b.Seq
}

// SortByID sorts entries by id.
func SortByID(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
}

// SortBySeq sorts entries in the order of the log.
func SortBySeq(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) })
}

// Change is a row of the log: what it did to the tag of which plant.
type Change struct {
	ID            plantstore.ID
	Seq           int64
	Size          uint32         // of the row's text, in bytes
	Before, After plantstore.Tag // absent if there was, or is, no plant
	Deleted       bool
}

// Generation indexes a run of the log: what a log-structured engine calls a memtable. It
// has every version of a plant, so that a reader sees only those of its own snapshot: the
// newest with a seq that is not above the snapshot's. Its methods are safe for concurrent
// use.
type Generation struct {
	mu      sync.RWMutex // guards what follows, up to final
	entries *btree.BTreeG[Entry]
	tags    btree.Map[string, *tag]
	size    Size
	last    plantstore.ID // no entry has a larger id

	final atomic.Int64 // the last seq, once it is frozen
	// Plants is how many plants there are as of the last row, and Logged the size of the
	// rows in the log. Freeze sets them.
	Plants, Logged int64
}

// Size is how much a generation has.
type Size struct {
	Rows       int
	TagChanges int   // how many times a plant has got or lost a tag
	Text       int64 // of the rows, in bytes
	TagBytes   int64 // that tags take in memory, approximately
}

// tag is a tag that plants of a generation have or had.
type tag struct {
	number uint32
	// ids has the plants that have got or lost it, some more than once. Readers use it
	// without the mutex, so what it has never changes in place.
	ids []plantstore.ID
	// lost says that some may have lost it. Otherwise all of them have it.
	lost bool
}

// tagOverhead is the approximate size of a tag in memory in addition to its text, and idSize
// that of the id of a plant that has got or lost it, in bytes.
const (
	tagOverhead = 120
	idSize      = 8
)

// New returns an active generation without entries.
func New() *Generation {
	return &Generation{entries: btree.NewBTreeGOptions(before, btree.Options{NoLocks: true, Degree: 64}), last: FirstID}
}

// Add adds the changes of a transaction. Readers whose snapshot is older do not see them.
func (g *Generation) Add(changes []Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var hint btree.PathHint // ids are often in order
	for i := range changes {
		c := &changes[i]
		g.entries.SetHint(Entry{ID: c.ID, Seq: c.Seq, Size: c.Size, tag: g.addTags(c)}, &hint)
		g.size.Text += int64(c.Size)
		g.last = max(g.last, c.ID)
	}
}

// addTags records what a change does to the tag of its plant, and returns the tag of its
// entry.
func (g *Generation) addTags(c *Change) uint32 {
	if before, ok := c.Before.Text(); ok && c.Before != c.After {
		g.tag(before).lost = true
		g.touch(before, c.ID)
	}
	after, ok := c.After.Text()
	switch {
	case c.Deleted:
		return tombstone
	case !ok:
		return untagged
	}
	if c.Before != c.After {
		g.touch(after, c.ID)
	}
	return g.tag(after).number
}

// tag returns the tag with that text.
func (g *Generation) tag(text string) *tag {
	t, ok := g.tags.Get(text)
	if !ok {
		t = &tag{number: firstTag + uint32(g.tags.Len())}
		g.tags.Set(strings.Clone(text), t)
		g.size.TagBytes += int64(len(text)) + tagOverhead
	}
	return t
}

// touch records that a plant has got or lost a tag.
func (g *Generation) touch(text string, id plantstore.ID) {
	t := g.tag(text)
	t.ids = append(t.ids, id)
	g.size.TagChanges++
	g.size.TagBytes += idSize
}

// Remove takes back the changes that were added last, because their transaction failed.
func (g *Generation) Remove(changes []Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		g.entries.Delete(Entry{ID: c.ID, Seq: c.Seq})
		g.size.Text -= int64(c.Size)
		if c.Before == c.After {
			continue
		}
		for _, t := range []plantstore.Tag{c.Before, c.After} {
			if text, ok := t.Text(); ok {
				t := g.tag(text)
				t.ids = slices.Clip(t.ids[:len(t.ids)-1]) // a reader may have the rest
				g.size.TagChanges--
				g.size.TagBytes -= idSize
			}
		}
	}
}

// Freeze ends the generation: seq is its last row.
func (g *Generation) Freeze(seq, plants, logged int64) {
	g.Plants, g.Logged = plants, logged
	g.final.Store(seq)
}

// Final returns the last row of a frozen generation, and 0 for the active one.
func (g *Generation) Final() int64 { return g.final.Load() }

// Covers reports whether the generation has every row up to seq that was appended since it
// was created.
func (g *Generation) Covers(seq int64) bool {
	final := g.Final()
	return final == 0 || seq <= final
}

// Size returns how much the generation has.
func (g *Generation) Size() Size {
	g.mu.RLock()
	defer g.mu.RUnlock()
	size := g.size
	size.Rows = g.entries.Len()
	return size
}

// Find returns the newest entry of the plant that is not after seq.
func (g *Generation) Find(id plantstore.ID, seq int64) (found Entry, ok bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if id > g.last {
		return found, false
	}
	g.entries.Ascend(Entry{ID: id, Seq: seq}, func(e Entry) bool {
		found, ok = e, e.ID == id
		return false
	})
	return found, ok
}

// From fills a chunk with the newest entries after one row up to another, one for each
// plant, in order of id from the first.
func (g *Generation) From(first plantstore.ID, after, seq int64, chunk []Entry) []Entry {
	g.mu.RLock()
	defer g.mu.RUnlock()
	g.entries.Ascend(Entry{ID: first, Seq: math.MaxInt64}, func(e Entry) bool {
		if e.Seq > after && e.Seq <= seq && (len(chunk) == 0 || chunk[len(chunk)-1].ID != e.ID) {
			chunk = append(chunk, e)
		}
		return len(chunk) < cap(chunk)
	})
	return chunk
}

// NextTag returns the first tag that is not before from.
func (g *Generation) NextTag(from string) (next string, ok bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	g.tags.Ascend(from, func(text string, _ *tag) bool {
		next, ok = text, true
		return false
	})
	return next, ok
}

// find returns the number of a tag, or tombstone if no plant has had it, and the plants that
// have got or lost it.
func (g *Generation) find(text string) (number uint32, ids []plantstore.ID) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	t, ok := g.tags.Get(text)
	if !ok {
		return tombstone, nil
	}
	return t.number, t.ids
}

// Tagged returns the plants of a frozen generation that have got or lost one of its tags, in
// order of id, and a function that reports whether a plant has it in the end. For half a
// million it takes some 60 ms.
func (g *Generation) Tagged(text string) (ids []plantstore.ID, has func(plantstore.ID) bool) {
	g.mu.RLock()
	t, _ := g.tags.Get(text)
	g.mu.RUnlock()
	ids = slices.Clone(t.ids)
	slices.Sort(ids)
	return slices.Compact(ids), func(id plantstore.ID) bool {
		if !t.lost {
			return true
		}
		e, _ := g.Find(id, math.MaxInt64)
		return e.tag == t.number
	}
}

// Unflushed is what the table does not have yet. It never changes; the active generation
// does.
type Unflushed struct {
	Active *Generation
	Frozen *Generation // nil if there is none
}

// Find returns the newest entry of the plant that is not after seq.
func (u *Unflushed) Find(id plantstore.ID, seq int64) (Entry, bool) {
	e, ok := u.Active.Find(id, seq)
	if !ok && u.Frozen != nil {
		return u.Frozen.Find(id, seq)
	}
	return e, ok
}

// NextTag returns the first tag that is not before from.
func (u *Unflushed) NextTag(from string) (next string, ok bool) {
	next, ok = u.Active.NextTag(from)
	if u.Frozen != nil {
		if frozen, found := u.Frozen.NextTag(from); found && (!ok || frozen < next) {
			return frozen, true
		}
	}
	return next, ok
}

// TagView is what the entries after one row up to another say about a tag.
type TagView struct {
	u              *Unflushed
	after, seq     int64
	active, frozen uint32 // the number of the tag
	ids            [2][]plantstore.ID
}

// Tag returns what the entries after one row up to another say about a tag.
func (u *Unflushed) Tag(text string, after, seq int64) *TagView {
	v := &TagView{u: u, after: after, seq: seq}
	v.active, v.ids[0] = u.Active.find(text)
	if u.Frozen != nil {
		v.frozen, v.ids[1] = u.Frozen.find(text)
	}
	return v
}

// Changed yields the plants that have got or lost the tag, some more than once.
func (v *TagView) Changed() iter.Seq[plantstore.ID] {
	return func(yield func(plantstore.ID) bool) {
		for _, ids := range v.ids {
			for _, id := range ids {
				if !yield(id) {
					return
				}
			}
		}
	}
}

// Has reports whether a plant has the tag by its newest entry, and whether it has an entry.
func (v *TagView) Has(id plantstore.ID) (has, logged bool) {
	number := v.active
	e, ok := v.u.Active.Find(id, v.seq)
	if !ok && v.u.Frozen != nil {
		number = v.frozen
		e, ok = v.u.Frozen.Find(id, v.seq)
	}
	if !ok || e.Seq <= v.after {
		return false, false
	}
	return !e.Deleted() && e.tag == number, true
}

// chunkSize is how many entries a cursor takes from a generation at once.
const chunkSize = 128

// cursor iterates over the entries of a generation in order of id.
type cursor struct {
	gen        *Generation
	after, seq int64
	tag        uint32 // what an entry has that has the tag
	chunk      []Entry
	at         int // in chunk
}

func newCursor(gen *Generation, first plantstore.ID, after, seq int64, tag string) *cursor {
	c := &cursor{gen: gen, after: after, seq: seq}
	if gen != nil {
		c.tag, _ = gen.find(tag)
		c.chunk = gen.From(first, after, seq, make([]Entry, 0, chunkSize))
	}
	return c
}

// peek returns the next entry.
func (c *cursor) peek() (Entry, bool) {
	if c.at == len(c.chunk) && len(c.chunk) == cap(c.chunk) && c.at > 0 && c.chunk[c.at-1].ID < math.MaxInt64 {
		c.chunk = c.gen.From(c.chunk[c.at-1].ID+1, c.after, c.seq, c.chunk[:0])
		c.at = 0
	}
	if c.at == len(c.chunk) {
		return Entry{}, false
	}
	return c.chunk[c.at], true
}

// Merge iterates over the entries of both generations. Where both have an entry for a
// plant, it returns the active one's.
type Merge struct {
	active, frozen *cursor
	tagged         bool
}

// From returns the newest entries after one row up to another, from the first id on. If
// there is a tag, only plants that have it match.
func (u *Unflushed) From(first plantstore.ID, after, seq int64, tag plantstore.Tag) Merge {
	text, tagged := tag.Text()
	return Merge{newCursor(u.Active, first, after, seq, text), newCursor(u.Frozen, first, after, seq, text), tagged}
}

// Next returns the next entry and moves on. It matches if its plant exists and has the tag.
func (m Merge) Next() (e Entry, matches, ok bool) {
	a, inActive := m.active.peek()
	f, inFrozen := m.frozen.peek()
	from := m.frozen
	switch {
	case inActive && (!inFrozen || a.ID <= f.ID):
		e, from = a, m.active
		if inFrozen && f.ID == a.ID {
			m.frozen.at++
		}
	case inFrozen:
		e = f
	default:
		return Entry{}, false, false
	}
	from.at++
	return e, !e.Deleted() && (!m.tagged || e.tag == from.tag), true
}
