package rules

import (
	"bytes"
	"cmp"
	"container/heap"
	"slices"
	"strings"

	"plantstore"
	"plantstore/internal/match"
)

const (
	// MaxSortedText is how many bytes of text a query by name may examine, once for each word of a
	// search.
	MaxSortedText = 256 << 20
	// scannedByName is how many plants of a scan by name are sorted at once, unless they have more
	// text than scannedText, in bytes. So about 20 pages have a million, whether they are many or large.
	scannedByName = 50_000
	scannedText   = 16 << 20
)

// errTooManyToSort is the error of a query by name.
var errTooManyToSort = plantstore.Errorf(plantstore.ErrTooManyToSort,
	`too many plants to sort by name: it takes at most 1,000,000, with 256 MiB of text; select fewer with "tag" or "tag_prefix", or with "q" where there is a search index, or list them in order of id`)

// CheckSorted returns ErrTooManyToSort if that many plants are too many for a query by name.
func CheckSorted(plants int64) error {
	if plants > plantstore.MaxSorted {
		return errTooManyToSort
	}
	return nil
}

// Unsorted returns a query, in order of id, for the plants that a query by name examines: those that
// its tags select, or its words if they are indexed, or all plants if it takes all to find them. No
// index has those without a tag. Its limit says how many it may take.
func Unsorted(q plantstore.Query, indexed bool) (unsorted plantstore.Query, all bool) {
	if !indexed && (!q.ByTag() || q.Untagged) {
		return plantstore.Query{Details: q.Details}, true
	}
	q.Order, q.After, q.AfterName, q.Limit = plantstore.ByID, nil, "", plantstore.MaxSorted
	return q, false
}

// ScanByName yields all plants of a query by name. sorted returns a page of a query, from the same
// snapshot each time.
func ScanByName(q plantstore.Query, yield func(plantstore.StoredPlant) bool, sorted func(plantstore.Query) (plantstore.Page, error)) error {
	q.Limit, q.Count = scannedByName, false
	for {
		page, err := sorted(q)
		if err != nil {
			return err
		}
		for _, p := range page.Plants {
			if !yield(p) {
				return nil
			}
		}
		if page.NextName == "" {
			return nil
		}
		q.AfterName = page.NextName
	}
}

// NamePageBuilder builds the [plantstore.Page] of a query by name from all plants that may match,
// which a store reads in any order. It keeps those that come first.
type NamePageBuilder struct {
	query    plantstore.Query
	matches  func(plantstore.Plant) bool
	words    int            // that each plant is compared with, 1 at least
	fold     *match.Matcher // folds names
	scratch  []byte
	after    *sortedPlant
	best     worstFirst
	kept     int // bytes of text of the best
	most     int // of them on a page
	more     bool
	matched  int // plants
	examined int // plants
	text     int // bytes examined, for each word
	err      error
}

// sortedPlant is a plant with what it is sorted by, and its id.
type sortedPlant struct {
	folded []byte
	name   string
	plant  plantstore.StoredPlant
}

// NewNamePageBuilder returns a builder for one page of the query. The page ends as those of
// [NewPageBuilder] do, except that the work does not end it, and that those of [ScanByName] have more text.
func NewNamePageBuilder(q plantstore.Query) (*NamePageBuilder, error) {
	b := &NamePageBuilder{query: q, matches: match.Filter(q), words: max(1, match.Words(q.Contains)), fold: match.New(""), most: maxPageText}
	if q.Limit >= scannedByName {
		b.most = scannedText
	}
	b.best.descending = q.Order.Descending()
	if q.AfterName != "" {
		at, err := q.AfterName.Position()
		if err != nil {
			return nil, err
		}
		b.after = &sortedPlant{folded: b.fold.AppendFolded(nil, at.Name), name: at.Name, plant: plantstore.StoredPlant{Plant: plantstore.Plant{ID: at.ID}}}
	}
	return b, nil
}

// Add examines the next plant and reports whether the builder can take another.
func (b *NamePageBuilder) Add(p plantstore.StoredPlant) bool {
	if b.examined == plantstore.MaxSorted || b.text > MaxSortedText {
		b.err = errTooManyToSort
		return false
	}
	b.examined++
	b.text += p.TextSize() * b.words
	if !b.matches(p.Plant) {
		return true
	}
	b.matched++
	next := sortedPlant{name: plantstore.SortedName(p.Name), plant: p}
	b.scratch = b.fold.AppendFolded(b.scratch[:0], next.name)
	next.folded = b.scratch
	if b.after != nil && b.best.compare(&next, b.after) <= 0 {
		return true
	}
	full := len(b.best.plants) == b.query.Limit || b.kept >= b.most
	if full && b.best.compare(&next, &b.best.plants[0]) >= 0 {
		b.more = true
		return true
	}
	next.folded = bytes.Clone(next.folded)
	heap.Push(&b.best, next)
	b.kept += p.TextSize()
	for len(b.best.plants) > 1 && (len(b.best.plants) > b.query.Limit || b.kept-b.best.plants[0].plant.TextSize() >= b.most) {
		worst := heap.Pop(&b.best).(sortedPlant)
		b.kept -= worst.plant.TextSize()
		b.more = true
	}
	return true
}

// Page returns the page of the plants added, or ErrTooManyToSort if it could not take all.
func (b *NamePageBuilder) Page() (page plantstore.Page, err error) {
	if b.err != nil {
		return page, b.err
	}
	best := b.best.plants
	slices.SortFunc(best, func(x, y sortedPlant) int { return b.best.compare(&x, &y) })
	for i := range best {
		page.Plants = append(page.Plants, best[i].plant)
	}
	if b.more {
		last := best[len(best)-1]
		page.NextName = plantstore.NamePosition{Name: last.name, ID: last.plant.ID}.Cursor()
	}
	if b.query.Count {
		page.Count = &plantstore.Count{Plants: min(b.matched, plantstore.MaxCount), More: b.matched > plantstore.MaxCount}
	}
	return page, nil
}

// worstFirst is a heap whose first plant comes last in the order.
type worstFirst struct {
	plants     []sortedPlant
	descending bool
}

// compare returns a negative number if a comes before b.
func (h *worstFirst) compare(a, b *sortedPlant) int {
	n := cmp.Or(bytes.Compare(a.folded, b.folded), strings.Compare(a.name, b.name), cmp.Compare(a.plant.ID, b.plant.ID))
	if h.descending {
		return -n
	}
	return n
}

func (h *worstFirst) Len() int           { return len(h.plants) }
func (h *worstFirst) Less(i, j int) bool { return h.compare(&h.plants[i], &h.plants[j]) > 0 }
func (h *worstFirst) Swap(i, j int)      { h.plants[i], h.plants[j] = h.plants[j], h.plants[i] }
func (h *worstFirst) Push(p any)         { h.plants = append(h.plants, p.(sortedPlant)) }

func (h *worstFirst) Pop() any {
	last := len(h.plants) - 1
	p := h.plants[last]
	h.plants[last] = sortedPlant{}
	h.plants = h.plants[:last]
	return p
}
