package sqlite

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"

	"plantstore"
)

// entry says that the log has the state of a plant in row seq. There are many of them,
// so they are small and have no pointers.
type entry struct {
	id   plantstore.ID
	seq  int64
	tag  uint32 // tombstone, untagged, or a hash of the tag
	size uint32 // of the row's text, in bytes
}

// What an entry's tag is if it is not a hash.
const (
	tombstone uint32 = iota // the plant was deleted
	untagged
)

var tagSeed = maphash.MakeSeed()

// hashTag returns the same number for equal tags, and never that of a tombstone.
func hashTag(tag plantstore.Tag) uint32 {
	text, ok := tag.Text()
	if !ok {
		return untagged
	}
	return uint32(maphash.String(tagSeed, text)) | 2
}

// generation indexes a run of the log by id: what a log-structured engine calls a
// memtable. The active one takes writes. A frozen one never changes, and is flushed
// to the table in order of id.
//
// It has every version of a plant, so that a reader sees only those of its own
// snapshot: the newest with a seq that is not above the snapshot's.
type generation struct {
	mu     sync.RWMutex // guards what follows, until it is frozen
	tree   *btree.BTreeG[entry]
	tags   tagSums
	bytes  int64         // of text
	last   plantstore.ID // no entry has a larger id
	final  atomic.Int64  // the last seq, once it is frozen
	plants int64         // how many there are as of that one
	logged int64         // the size of its rows of the log, once it is frozen
}

func newGeneration() *generation {
	return &generation{tree: btree.NewBTreeGOptions(before, btree.Options{NoLocks: true, Degree: 64}), last: firstID}
}

// before orders entries by id, and the newest of an id first.
func before(a, b entry) bool {
	return a.id < b.id || a.id == b.id && a.seq > b.seq
}

// add adds the entries of a transaction that ends with row seq, and what it changes about
// tags. Readers whose snapshot is older do not see them.
func (g *generation) add(entries []entry, tagged []tagChange, seq int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tags.add(tagged, seq)
	var hint btree.PathHint // ids are often in order
	for _, e := range entries {
		g.tree.SetHint(e, &hint)
		g.bytes += int64(e.size)
		g.last = max(g.last, e.id)
	}
}

// remove takes back what was added for a transaction that failed.
func (g *generation) remove(entries []entry, tagged []tagChange) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tags.remove(tagged)
	for _, e := range entries {
		g.tree.Delete(e)
		g.bytes -= int64(e.size)
	}
}

func (g *generation) len() int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.tree.Len()
}

// text returns how many bytes of text the rows have.
func (g *generation) text() int64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.bytes
}

// tagBytes returns approximately how much memory the tags take.
func (g *generation) tagBytes() int64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.tags.bytes
}

// covers reports whether the generation has every row up to seq that was appended
// since it was created.
func (g *generation) covers(seq int64) bool {
	final := g.final.Load()
	return final == 0 || seq <= final
}

// find returns the newest entry of the plant that is not after seq.
func (g *generation) find(id plantstore.ID, seq int64) (found entry, ok bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if id > g.last {
		return found, false
	}
	g.tree.Ascend(entry{id: id, seq: seq}, func(e entry) bool {
		found, ok = e, e.id == id
		return false
	})
	return found, ok
}

// from fills a chunk with the newest entries that are not after seq, one for each
// plant, in order of id from the first.
func (g *generation) from(first plantstore.ID, seq int64, chunk []entry) []entry {
	g.mu.RLock()
	defer g.mu.RUnlock()
	g.tree.Ascend(entry{id: first, seq: math.MaxInt64}, func(e entry) bool {
		if e.seq <= seq && (len(chunk) == 0 || chunk[len(chunk)-1].id != e.id) {
			chunk = append(chunk, e)
		}
		return len(chunk) < cap(chunk)
	})
	return chunk
}

// unflushed is what the table does not have yet. It never changes; the active
// generation does.
type unflushed struct {
	active *generation
	frozen *generation // nil if there is none
}

// find returns the newest entry of the plant that is not after seq.
func (u *unflushed) find(id plantstore.ID, seq int64) (entry, bool) {
	e, ok := u.active.find(id, seq)
	if !ok && u.frozen != nil {
		return u.frozen.find(id, seq)
	}
	return e, ok
}

// chunkSize is how many entries a cursor takes from a generation at once.
const chunkSize = 128

// cursor iterates over the entries of a generation in order of id.
type cursor struct {
	gen   *generation
	seq   int64 // of the snapshot
	chunk []entry
	at    int // in chunk
}

func newCursor(gen *generation, first plantstore.ID, seq int64) *cursor {
	c := &cursor{gen: gen, seq: seq}
	if gen != nil {
		c.chunk = gen.from(first, seq, make([]entry, 0, chunkSize))
	}
	return c
}

// peek returns the next entry.
func (c *cursor) peek() (entry, bool) {
	if c.at == len(c.chunk) && len(c.chunk) == cap(c.chunk) && c.at > 0 && c.chunk[c.at-1].id < math.MaxInt64 {
		c.chunk = c.gen.from(c.chunk[c.at-1].id+1, c.seq, c.chunk[:0])
		c.at = 0
	}
	if c.at == len(c.chunk) {
		return entry{}, false
	}
	return c.chunk[c.at], true
}

// merged iterates over the entries of both generations. Where both have an entry for a
// plant, it returns the active one's.
type merged struct{ active, frozen *cursor }

func (u *unflushed) from(first plantstore.ID, seq int64) merged {
	return merged{newCursor(u.active, first, seq), newCursor(u.frozen, first, seq)}
}

// next returns the next entry and moves on.
func (m merged) next() (entry, bool) {
	a, inActive := m.active.peek()
	f, inFrozen := m.frozen.peek()
	switch {
	case inActive && (!inFrozen || a.id <= f.id):
		m.active.at++
		if inFrozen && f.id == a.id {
			m.frozen.at++
		}
		return a, true
	case inFrozen:
		m.frozen.at++
		return f, true
	}
	return entry{}, false
}
