package sqlite

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"
	"sort"

	"plantstore"
)

// maxChunk is the most entries in a chunk of a staging: a commit copies the chunk of
// every plant that it adds or removes.
const maxChunk = 64

// entry says where the table recent has a staged plant, with a hash of its tag. There
// are many entries, so they are small and contain no pointers.
type entry struct {
	id  plantstore.ID
	seq int64
	tag uint64
}

var tagSeed = maphash.MakeSeed()

// hashTag returns the same number for the same tag.
func hashTag(tag plantstore.Tag) uint64 {
	text, ok := tag.Text()
	if !ok {
		return 0
	}
	return maphash.String(tagSeed, text)
}

// staging is the index of the staged plants: those in the table recent that have not
// been flushed to the table plants, in order of id. It is immutable. A commit derives
// the next one, which shares the chunks that stayed the same, so readers can use one
// for as long as they like.
type staging struct {
	version int64 // of the flush state that it belongs to
	rows    int64 // about how many the table recent has
	size    int
	chunks  [][]entry // none is empty or longer than maxChunk
}

// find returns the staged plant with that id.
func (s *staging) find(id plantstore.ID) (entry, bool) {
	chunk := chunkOf(s.chunks, id)
	if chunk < 0 {
		return entry{}, false
	}
	i, found := slices.BinarySearchFunc(s.chunks[chunk], id, byID)
	if !found {
		return entry{}, false
	}
	return s.chunks[chunk][i], true
}

// chunkOf returns the index of the chunk that a plant with that id belongs to, or -1
// if the id is smaller than all others.
func chunkOf(chunks [][]entry, id plantstore.ID) int {
	return sort.Search(len(chunks), func(i int) bool { return chunks[i][0].id > id }) - 1
}

func byID(e entry, id plantstore.ID) int { return cmp.Compare(e.id, id) }

// from yields the staged plants whose ids are not below first, in order.
func (s *staging) from(first plantstore.ID) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		start := max(0, chunkOf(s.chunks, first))
		for _, chunk := range s.chunks[start:] {
			for i := range chunk {
				if chunk[i].id >= first && !yield(chunk[i]) {
					return
				}
			}
		}
	}
}

// next returns the staging without the removed plants and with the added ones, both
// in order of id. It examines only the chunks that change.
func (s *staging) next(version int64, added []entry, removed []plantstore.ID) *staging {
	next := &staging{
		version: version,
		size:    s.size + len(added) - len(removed),
		chunks:  make([][]entry, 0, len(s.chunks)+len(added)/maxChunk+1),
	}
	chunks := s.chunks
	for len(chunks) > 0 && len(added)+len(removed) > 0 {
		i := max(0, chunkOf(chunks, firstOf(added, removed)))
		addedHere, removedHere := added, removed
		if i+1 < len(chunks) {
			end := chunks[i+1][0].id
			addedHere = added[:countBelow(added, end, byID)]
			removedHere = removed[:countBelow(removed, end, cmp.Compare[plantstore.ID])]
		}
		next.chunks = append(next.chunks, chunks[:i]...)
		next.add(merge(chunks[i], addedHere, removedHere))
		added, removed, chunks = added[len(addedHere):], removed[len(removedHere):], chunks[i+1:]
	}
	next.chunks = append(next.chunks, chunks...)
	next.add(added)
	return next
}

// firstOf returns the smallest id of both, one of which may be empty.
func firstOf(added []entry, removed []plantstore.ID) plantstore.ID {
	switch {
	case len(added) == 0:
		return removed[0]
	case len(removed) == 0:
		return added[0].id
	}
	return min(added[0].id, removed[0])
}

// countBelow returns how many of the first elements are below the id. There are few.
func countBelow[E any](elements []E, id plantstore.ID, compare func(E, plantstore.ID) int) int {
	for i, e := range elements {
		if compare(e, id) >= 0 {
			return i
		}
	}
	return len(elements)
}

// add appends a chunk, or several if it is too long for one.
func (s *staging) add(chunk []entry) {
	for len(chunk) > maxChunk {
		half := min(len(chunk)/2, maxChunk)
		s.chunks = append(s.chunks, chunk[:half:half])
		chunk = chunk[half:]
	}
	if len(chunk) > 0 {
		s.chunks = append(s.chunks, chunk)
	}
}

// merge returns a chunk without the removed plants and with the added ones.
func merge(chunk, added []entry, removed []plantstore.ID) []entry {
	merged := make([]entry, 0, len(chunk)+len(added)-len(removed))
	for len(added)+len(removed) > 0 {
		id := firstOf(added, removed)
		i, _ := slices.BinarySearchFunc(chunk, id, byID)
		merged = append(merged, chunk[:i]...)
		chunk = chunk[i:]
		if len(removed) > 0 && removed[0] == id {
			chunk, removed = chunk[1:], removed[1:]
		}
		if len(added) > 0 && added[0].id == id {
			merged, added = append(merged, added[0]), added[1:]
		}
	}
	return append(merged, chunk...)
}

// delta collects what a transaction changes in a staging, until it is committed.
type delta struct {
	added   map[plantstore.ID]entry
	removed map[plantstore.ID]bool // of those staged before the transaction
}

func newDelta() delta {
	return delta{added: make(map[plantstore.ID]entry), removed: make(map[plantstore.ID]bool)}
}

// find returns the plant with that id if it is staged after the delta.
func (d *delta) find(s *staging, id plantstore.ID) (entry, bool) {
	if e, ok := d.added[id]; ok {
		return e, true
	}
	if d.removed[id] {
		return entry{}, false
	}
	return s.find(id)
}

// remove removes a plant that find has found.
func (d *delta) remove(id plantstore.ID) {
	if _, ok := d.added[id]; ok {
		delete(d.added, id)
		return
	}
	d.removed[id] = true
}

// apply returns the staging after the delta.
func (d *delta) apply(s *staging, version int64) *staging {
	added := make([]entry, 0, len(d.added))
	for _, e := range d.added {
		added = append(added, e)
	}
	slices.SortFunc(added, func(a, b entry) int { return cmp.Compare(a.id, b.id) })
	removed := make([]plantstore.ID, 0, len(d.removed))
	for id := range d.removed {
		removed = append(removed, id)
	}
	slices.Sort(removed)
	return s.next(version, added, removed)
}
