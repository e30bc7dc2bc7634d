// Package memtable holds the rows at the end of a log of changes that the table of plants
// does not contain yet, by the id and by the tag of their plants.
//
// The active [Generation] takes writes. When it is large it is frozen, and flushed to the
// table while the next one takes writes. [Unflushed] is both of them.
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

// Entry is the state of a plant as of a row of the log. There are many of them, so they are
// small and contain no pointers: the generation holds the text.
type Entry struct {
	ID   plantstore.ID
	row  uint32 // counted from the first of the generation, which is 1
	Size uint32 // of the plant's text, in bytes
	tag  uint32 // tombstone, untagged, or the number of a tag of the generation
	name uint32 // the number of its block times blockSize, and where in the block it begins
}

// The values of an entry's tag that are not the number of a tag.
const (
	tombstone uint32 = iota // the plant was deleted
	untagged
	firstTag
)

// Deleted reports whether the plant was deleted.
func (e Entry) Deleted() bool { return e.tag == tombstone }

// before orders entries by id, and the newest of an id first.
func before(a, b Entry) bool {
	return a.ID < b.ID || a.ID == b.ID && a.row > b.row
}

// Change is a row of the log: a plant, and what happened to it.
type Change struct {
	ID            plantstore.ID
	Seq, Time     int64          // of the row
	Created       int64          // when the plant was created, if that is not Time
	Size          uint32         // of the plant's text, in bytes
	Name          string         // empty if it was deleted
	Before, After plantstore.Tag // absent if there was, or is, no plant
	Deleted       bool
}

// Generation holds a run of the log, like the memtable of a log-structured engine. It keeps
// every version of a plant, so that a reader sees the one of its own snapshot: the newest
// whose seq is not above the snapshot's. Its methods are safe for concurrent use.
type Generation struct {
	after   int64        // the last row before it
	mu      sync.RWMutex // guards what follows, up to final
	entries *btree.BTreeG[Entry]
	names   [][]byte // in blocks, which are never reallocated
	tags    btree.Map[string, *tag]
	texts   []string         // of the tags, by their number
	times   []time           // in order of their rows
	created map[uint32]int64 // by row, when a plant was created, if an earlier row did
	known   int              // number of tags before the changes that were added last
	size    Size
	last    plantstore.ID // no entry has a larger id

	final atomic.Int64 // the last seq, once it is frozen
}

// time is when a row, and those that follow up to the next time, were appended.
type time struct {
	row uint32
	at  int64
}

// Size is the size of a generation.
type Size struct {
	Rows       int
	TagChanges int   // how many times a plant has gained or lost a tag
	Text       int64 // of the rows, in bytes
	TagBytes   int64 // that tags take in memory, approximately
}

// tag is a tag that plants of a generation have or had.
type tag struct {
	number uint32
	// ids are the plants that have gained or lost the tag, some more than once. Readers use
	// it without the mutex, so its elements never change in place.
	ids []plantstore.ID
	// gained says of each of them which it was.
	gained []bool
}

// blockSize is how many bytes of names are allocated at once. A name of that size or more has
// a block of its own, so every name begins before blockSize.
const blockSize = 256 << 10

// tagOverhead is the approximate size of a tag in memory in addition to its text, and
// touchSize is that of a plant that has gained or lost it, in bytes.
const (
	tagOverhead = 136
	touchSize   = 9
)

// New returns an active generation for the rows that follow row after.
func New(after int64) *Generation {
	return &Generation{after: after, entries: btree.NewBTreeGOptions(before, btree.Options{NoLocks: true, Degree: 64}), created: map[uint32]int64{}, last: FirstID}
}

// Add adds the changes of a transaction, in order of their rows. Readers whose snapshot is older
// do not see them.
func (g *Generation) Add(changes []Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addTimes(changes)
	g.add(changes)
}

// Load adds many changes, in order of their rows. It leaves them in another order.
func (g *Generation) Load(changes []Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addTimes(changes)
	// In order of id they are added in a fraction of the time.
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Seq, b.Seq)) })
	g.add(changes)
}

func (g *Generation) addTimes(changes []Change) {
	for i := range changes {
		if last := len(g.times) - 1; last < 0 || g.times[last].at != changes[i].Time {
			g.times = append(g.times, time{g.row(changes[i].Seq), changes[i].Time})
		}
	}
}

func (g *Generation) add(changes []Change) {
	g.known = len(g.texts)
	var hint btree.PathHint // ids are often in order
	for i := range changes {
		c := &changes[i]
		g.entries.SetHint(Entry{ID: c.ID, row: g.row(c.Seq), Size: c.Size, tag: g.addTags(c), name: g.addName(c.Name)}, &hint)
		if !c.Deleted && c.Created != c.Time {
			g.created[g.row(c.Seq)] = c.Created
		}
		g.size.Text += int64(c.Size)
		g.last = max(g.last, c.ID)
	}
}

// row returns the number of a row in the generation, or 0 if the row precedes it.
func (g *Generation) row(seq int64) uint32 {
	return uint32(min(max(0, seq-g.after), math.MaxUint32))
}

// addName copies a name, and returns the place of the copy.
func (g *Generation) addName(name string) uint32 {
	last := len(g.names) - 1
	if last < 0 || len(g.names[last])+len(name) >= blockSize {
		g.names = append(g.names, make([]byte, 0, max(blockSize, len(name))))
		last++
	}
	at := last*blockSize + len(g.names[last])
	g.names[last] = append(g.names[last], name...)
	return uint32(at)
}

// removeName removes the name that was added last.
func (g *Generation) removeName(at uint32) {
	block, offset := at/blockSize, at%blockSize
	if offset == 0 {
		g.names = g.names[:block]
		return
	}
	g.names[block] = g.names[block][:offset]
}

// addTags records what a change does to the tag of its plant, and returns the tag of its
// entry.
func (g *Generation) addTags(c *Change) uint32 {
	if before, ok := c.Before.Text(); ok && c.Before != c.After {
		g.touch(g.tag(before), c.ID, false)
	}
	after, ok := c.After.Text()
	switch {
	case c.Deleted:
		return tombstone
	case !ok:
		return untagged
	}
	t := g.tag(after)
	if c.Before != c.After {
		g.touch(t, c.ID, true)
	}
	return t.number
}

// tag returns the tag with the text, which it adds if there is none.
func (g *Generation) tag(text string) *tag {
	t, ok := g.tags.Get(text)
	if !ok {
		t = &tag{number: firstTag + uint32(g.tags.Len())}
		text = strings.Clone(text)
		g.tags.Set(text, t)
		g.texts = append(g.texts, text)
		g.size.TagBytes += int64(len(text)) + tagOverhead
	}
	return t
}

// touch records that a plant has gained or lost a tag.
func (g *Generation) touch(t *tag, id plantstore.ID, gained bool) {
	t.ids, t.gained = append(t.ids, id), append(t.gained, gained)
	g.size.TagChanges++
	g.size.TagBytes += touchSize
}

// Remove takes back the changes that were added last, because their transaction failed.
func (g *Generation) Remove(changes []Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range slices.Backward(changes) {
		c := &changes[i]
		if e, ok := g.entries.Delete(Entry{ID: c.ID, row: g.row(c.Seq)}); ok {
			g.removeName(e.name)
		}
		delete(g.created, g.row(c.Seq))
		g.size.Text -= int64(c.Size)
		if c.Before == c.After {
			continue
		}
		for _, t := range []plantstore.Tag{c.Before, c.After} {
			if text, ok := t.Text(); ok {
				t := g.tag(text)
				last := len(t.ids) - 1
				t.ids, t.gained = slices.Clip(t.ids[:last]), t.gained[:last] // a reader may hold the other ids
				g.size.TagChanges--
				g.size.TagBytes -= touchSize
			}
		}
	}
	for len(changes) > 0 && len(g.times) > 0 && g.times[len(g.times)-1].row >= g.row(changes[0].Seq) {
		g.times = g.times[:len(g.times)-1]
	}
	for _, text := range g.texts[g.known:] {
		g.tags.Delete(text)
		g.size.TagBytes -= int64(len(text)) + tagOverhead
	}
	clear(g.texts[g.known:]) // or their text would stay in memory
	g.texts = g.texts[:g.known]
}

// Freeze ends the generation: seq is its last row.
func (g *Generation) Freeze(seq int64) { g.final.Store(seq) }

// Final returns the last row of a frozen generation, and 0 for the active one.
func (g *Generation) Final() int64 { return g.final.Load() }

// Covers reports whether the generation contains every row up to seq that was appended
// since it was created.
func (g *Generation) Covers(seq int64) bool {
	final := g.Final()
	return final == 0 || seq <= final
}

// Size returns the size of the generation.
func (g *Generation) Size() Size {
	g.mu.RLock()
	defer g.mu.RUnlock()
	size := g.size
	size.Rows = g.entries.Len()
	return size
}

// Plant returns the plant of an entry, which must not be deleted. Its transaction must be
// committed.
func (g *Generation) Plant(e Entry) plantstore.StoredPlant {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.plant(e)
}

// plant is Plant for a caller that holds the mutex.
func (g *Generation) plant(e Entry) plantstore.StoredPlant {
	at, created := g.timeOf(e.row)
	plant := plantstore.StoredPlant{Version: plantstore.Version{Time: at, N: g.after + int64(e.row)}, Created: created}
	plant.ID = e.ID
	size := int(e.Size)
	if e.tag != untagged {
		text := g.texts[e.tag-firstTag]
		plant.Tag, size = plantstore.NewTag(text), size-len(text)
	}
	if size > 0 { // an empty name has no block of its own, and its neighbours' block may be gone
		plant.Name = string(g.names[e.name/blockSize][e.name%blockSize:][:size])
	}
	return plant
}

// timeOf returns when a row was appended, and when its plant was created.
func (g *Generation) timeOf(row uint32) (at, created int64) {
	next, _ := slices.BinarySearchFunc(g.times, row+1, func(t time, row uint32) int { return cmp.Compare(t.row, row) })
	at = g.times[next-1].at
	if created, ok := g.created[row]; ok {
		return at, created
	}
	return at, at
}

// find returns the newest entry of the plant that is not after seq. The caller holds the mutex.
func (g *Generation) find(id plantstore.ID, seq int64) (found Entry, ok bool) {
	if id > g.last {
		return found, false
	}
	g.entries.Ascend(Entry{ID: id, row: g.row(seq)}, func(e Entry) bool {
		found, ok = e, e.ID == id
		return false
	})
	return found, ok
}

// state is Unflushed.Find for one generation.
func (g *Generation) state(id plantstore.ID, seq int64) (plant *plantstore.StoredPlant, row int64) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	e, ok := g.find(id, seq)
	if !ok {
		return nil, 0
	}
	if !e.Deleted() {
		plant = new(g.plant(e))
	}
	return plant, g.after + int64(e.row)
}

// hasTag is Unflushed.HasTag for one generation.
func (g *Generation) hasTag(id plantstore.ID, tag string, seq int64) (has, logged bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	e, ok := g.find(id, seq)
	return ok && e.tag >= firstTag && g.texts[e.tag-firstTag] == tag, ok
}

// From fills a chunk with the newest entries that are not after seq, one for each plant, in
// order of id from the first.
func (g *Generation) From(first plantstore.ID, seq int64, chunk []Entry) []Entry {
	g.mu.RLock()
	defer g.mu.RUnlock()
	last := g.row(seq)
	g.entries.Ascend(Entry{ID: first, row: math.MaxUint32}, func(e Entry) bool {
		if e.row <= last && (len(chunk) == 0 || chunk[len(chunk)-1].ID != e.ID) {
			chunk = append(chunk, e)
		}
		return len(chunk) < cap(chunk)
	})
	return chunk
}

// backFrom is From backwards, in descending order of id to the first.
func (g *Generation) backFrom(first plantstore.ID, seq int64, chunk []Entry) []Entry {
	g.mu.RLock()
	defer g.mu.RUnlock()
	last := g.row(seq)
	g.entries.Descend(Entry{ID: first}, func(e Entry) bool {
		n := len(chunk)
		switch {
		case e.row > last:
		case n > 0 && chunk[n-1].ID == e.ID:
			chunk[n-1] = e // it is newer
		case n == cap(chunk):
			return false
		default:
			chunk = append(chunk, e)
		}
		return true
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

// findTag returns the tag with the text, or one with the number tombstone if no plant has
// had it.
func (g *Generation) findTag(text string) tag {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if t, ok := g.tags.Get(text); ok {
		return *t
	}
	return tag{number: tombstone}
}

// Tagged returns the plants of a frozen generation that have gained or lost a tag, in order
// of id, and whether each has the tag in the end. Half a million plants take about 60 ms.
func (g *Generation) Tagged(text string) (ids []plantstore.ID, has []bool) {
	t := g.findTag(text)
	order := make([]int32, len(t.ids)) // by id, and the changes of a plant as they were
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(t.ids[a], t.ids[b]), cmp.Compare(a, b)) })
	ids, has = make([]plantstore.ID, 0, len(order)), make([]bool, 0, len(order))
	for _, i := range order {
		if last := len(ids) - 1; last >= 0 && ids[last] == t.ids[i] {
			has[last] = t.gained[i]
			continue
		}
		ids, has = append(ids, t.ids[i]), append(has, t.gained[i])
	}
	return ids, has
}

// Unflushed is everything that the table does not contain yet. It never changes; the active
// generation does.
type Unflushed struct {
	Active *Generation
	Frozen *Generation // nil if there is none
}

func (u *Unflushed) generations() []*Generation {
	if u.Frozen == nil {
		return []*Generation{u.Active}
	}
	return []*Generation{u.Active, u.Frozen}
}

// Find returns the newest state of a plant that is not after row seq, nil if it was
// deleted, and the row that recorded it, 0 if there is none.
func (u *Unflushed) Find(id plantstore.ID, seq int64) (plant *plantstore.StoredPlant, row int64) {
	plant, row = u.Active.state(id, seq)
	if row == 0 && u.Frozen != nil {
		return u.Frozen.state(id, seq)
	}
	return plant, row
}

// HasTag reports whether a plant has a tag as of row seq, and whether it has an entry.
func (u *Unflushed) HasTag(id plantstore.ID, tag string, seq int64) (has, logged bool) {
	has, logged = u.Active.hasTag(id, tag, seq)
	if !logged && u.Frozen != nil {
		return u.Frozen.hasTag(id, tag, seq)
	}
	return has, logged
}

// Changed yields the plants that have gained or lost a tag, some more than once.
func (u *Unflushed) Changed(tag string) iter.Seq[plantstore.ID] {
	return func(yield func(plantstore.ID) bool) {
		for _, g := range u.generations() {
			for _, id := range g.findTag(tag).ids {
				if !yield(id) {
					return
				}
			}
		}
	}
}

// NextTag returns the first tag that is not before from.
func (u *Unflushed) NextTag(from string) (next string, ok bool) {
	for _, g := range u.generations() {
		if tag, found := g.NextTag(from); found && (!ok || tag < next) {
			next, ok = tag, true
		}
	}
	return next, ok
}

// chunkSize is how many entries a cursor takes from a generation at once.
const chunkSize = 128

// cursor iterates over the entries of a generation in the order of a query, which is that of
// their ids.
type cursor struct {
	gen   *Generation
	seq   int64
	query *plantstore.Query
	tags  []uint32 // the numbers of the query's tags, untagged included
	chunk []Entry
	at    int // in chunk
}

func newCursor(gen *Generation, first plantstore.ID, seq int64, q *plantstore.Query) *cursor {
	c := &cursor{gen: gen, seq: seq, query: q}
	if gen == nil {
		return c
	}
	for _, tag := range q.ExactTags() {
		c.tags = append(c.tags, gen.findTag(tag).number)
	}
	if q.Untagged {
		c.tags = append(c.tags, untagged)
	}
	c.chunk = make([]Entry, 0, chunkSize)
	c.read(first)
	return c
}

// read reads the entries from an id on.
func (c *cursor) read(first plantstore.ID) {
	if c.query.Order.Descending() {
		c.chunk = c.gen.backFrom(first, c.seq, c.chunk[:0])
	} else {
		c.chunk = c.gen.From(first, c.seq, c.chunk[:0])
	}
	c.at = 0
}

// peek returns the next entry.
func (c *cursor) peek() (Entry, bool) {
	if c.at == len(c.chunk) && len(c.chunk) == cap(c.chunk) && c.at > 0 {
		if next, ok := c.query.Following(c.chunk[c.at-1].ID); ok {
			c.read(next)
		}
	}
	if c.at == len(c.chunk) {
		return Entry{}, false
	}
	return c.chunk[c.at], true
}

// selects reports whether the query selects the plant of an entry by its tag.
func (c *cursor) selects(e Entry) bool {
	switch {
	case e.Deleted():
		return false
	case !c.query.ByTag() || slices.Contains(c.tags, e.tag):
		return true
	}
	return c.query.TagPrefix != nil && e.tag >= firstTag && strings.HasPrefix(c.gen.tagText(e.tag), *c.query.TagPrefix)
}

// tagText returns the text of the tag with a number.
func (g *Generation) tagText(number uint32) string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.texts[number-firstTag]
}

// Merge iterates over the plants of both generations. If both have an entry for a plant, it
// returns the active one's.
type Merge struct {
	active, frozen *cursor
	query          *plantstore.Query
}

// From returns the plants that have entries, as of row seq, in the order of a query, from the
// first id on. Only plants with a tag that the query selects match.
func (u *Unflushed) From(first plantstore.ID, seq int64, q *plantstore.Query) Merge {
	return Merge{newCursor(u.Active, first, seq, q), newCursor(u.Frozen, first, seq, q), q}
}

// Next returns the id of the next plant, and the plant if it exists and has the tag, and
// moves on.
func (m Merge) Next() (id plantstore.ID, match *plantstore.StoredPlant, ok bool) {
	a, inActive := m.active.peek()
	e, inFrozen := m.frozen.peek()
	from := m.frozen
	if inActive && (!inFrozen || m.query.CompareIDs(a.ID, e.ID) <= 0) {
		if inFrozen && e.ID == a.ID {
			m.frozen.at++
		}
		e, from = a, m.active
	} else if !inFrozen {
		return 0, nil, false
	}
	from.at++
	if from.selects(e) {
		match = new(from.gen.Plant(e))
	}
	return e.ID, match, true
}
