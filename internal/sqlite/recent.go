package sqlite

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"
	"sort"

	"plantstore"
)

// maxPart is the most plants in one part of a recent: what is copied for each plant
// that comes or goes.
const maxPart = 64

// entry says where the table recent has a plant, and nearly what its tag is. There
// are many of them, so they are small and nothing that the collector looks into.
type entry struct {
	id  plantstore.ID
	seq int64
	tag uint64
}

var tagSeed = maphash.MakeSeed()

// hashTag returns a number that is the same for the same tag.
func hashTag(tag plantstore.Tag) uint64 {
	text, ok := tag.Text()
	if !ok {
		return 0
	}
	return maphash.String(tagSeed, text)
}

// recent holds the plants that are in the table recent and wait to be moved to
// plants, in order of id. It never changes. A commit makes the next one of it, which
// shares what stayed the same, so whoever has one can read it for as long as it
// likes.
type recent struct {
	version int64 // of the table moving that it belongs to
	rows    int64 // about how many the table recent has
	size    int
	parts   [][]entry // none is empty or longer than maxPart
}

// find returns the plant with that id.
func (r *recent) find(id plantstore.ID) (entry, bool) {
	part := partOf(r.parts, id)
	if part < 0 {
		return entry{}, false
	}
	i, found := slices.BinarySearchFunc(r.parts[part], id, byID)
	if !found {
		return entry{}, false
	}
	return r.parts[part][i], true
}

// partOf returns the index of the part in which a plant with that id would be, or -1
// if it would be before all.
func partOf(parts [][]entry, id plantstore.ID) int {
	return sort.Search(len(parts), func(i int) bool { return parts[i][0].id > id }) - 1
}

func byID(e entry, id plantstore.ID) int { return cmp.Compare(e.id, id) }

// from yields the plants whose ids are not below first, in order.
func (r *recent) from(first plantstore.ID) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		start := max(0, partOf(r.parts, first))
		for _, part := range r.parts[start:] {
			for i := range part {
				if part[i].id >= first && !yield(part[i]) {
					return
				}
			}
		}
	}
}

// next returns what is left when the plants of gone have gone and those of added
// have come. Both are in order of id. It looks only at the parts that change.
func (r *recent) next(version int64, added []entry, gone []plantstore.ID) *recent {
	next := &recent{
		version: version,
		size:    r.size + len(added) - len(gone),
		parts:   make([][]entry, 0, len(r.parts)+len(added)/maxPart+1),
	}
	parts := r.parts
	for len(parts) > 0 && len(added)+len(gone) > 0 {
		i := max(0, partOf(parts, firstOf(added, gone)))
		here, left := added, gone
		if i+1 < len(parts) {
			end := parts[i+1][0].id
			here = added[:below(added, end, byID)]
			left = gone[:below(gone, end, cmp.Compare[plantstore.ID])]
		}
		next.parts = append(next.parts, parts[:i]...)
		next.add(merge(parts[i], here, left))
		added, gone, parts = added[len(here):], gone[len(left):], parts[i+1:]
	}
	next.parts = append(next.parts, parts...)
	next.add(added)
	return next
}

// firstOf returns the smallest id of both, one of which may be empty.
func firstOf(added []entry, gone []plantstore.ID) plantstore.ID {
	switch {
	case len(added) == 0:
		return gone[0]
	case len(gone) == 0:
		return added[0].id
	}
	return min(added[0].id, gone[0])
}

// below returns how many of the first elements are below the id. There are few.
func below[E any](elements []E, id plantstore.ID, compare func(E, plantstore.ID) int) int {
	for i, e := range elements {
		if compare(e, id) >= 0 {
			return i
		}
	}
	return len(elements)
}

// add adds a part at the end, or several if it is too long for one.
func (r *recent) add(part []entry) {
	for len(part) > maxPart {
		half := min(len(part)/2, maxPart)
		r.parts = append(r.parts, part[:half:half])
		part = part[half:]
	}
	if len(part) > 0 {
		r.parts = append(r.parts, part)
	}
}

// merge returns a part without those who have gone and with those who came.
func merge(part, added []entry, gone []plantstore.ID) []entry {
	merged := make([]entry, 0, len(part)+len(added)-len(gone))
	for len(added)+len(gone) > 0 {
		id := firstOf(added, gone)
		i, _ := slices.BinarySearchFunc(part, id, byID)
		merged = append(merged, part[:i]...)
		part = part[i:]
		if len(gone) > 0 && gone[0] == id {
			part, gone = part[1:], gone[1:]
		}
		if len(added) > 0 && added[0].id == id {
			merged, added = append(merged, added[0]), added[1:]
		}
	}
	return append(merged, part...)
}

// change gathers what a transaction does to a recent, until it is committed.
type change struct {
	added map[plantstore.ID]entry
	gone  map[plantstore.ID]bool // of those that were there before
}

func newChange() change {
	return change{added: make(map[plantstore.ID]entry), gone: make(map[plantstore.ID]bool)}
}

// find returns the plant with that id as r and the change have it.
func (c *change) find(r *recent, id plantstore.ID) (entry, bool) {
	if e, ok := c.added[id]; ok {
		return e, true
	}
	if c.gone[id] {
		return entry{}, false
	}
	return r.find(id)
}

// forget removes a plant that find has found.
func (c *change) forget(id plantstore.ID) {
	if _, ok := c.added[id]; ok {
		delete(c.added, id)
		return
	}
	c.gone[id] = true
}

// apply returns what r becomes by the change.
func (c *change) apply(r *recent, version int64) *recent {
	added := make([]entry, 0, len(c.added))
	for _, e := range c.added {
		added = append(added, e)
	}
	slices.SortFunc(added, func(a, b entry) int { return cmp.Compare(a.id, b.id) })
	gone := make([]plantstore.ID, 0, len(c.gone))
	for id := range c.gone {
		gone = append(gone, id)
	}
	slices.Sort(gone)
	return r.next(version, added, gone)
}
