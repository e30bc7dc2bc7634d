package postgres

import (
	"cmp"
	"crypto/rand"
	"errors"
	"iter"
	"slices"

	"plantstore"
)

// statementSize is about how many bytes of text go into one statement, far below
// the gigabyte at which PostgreSQL refuses it.
const statementSize = 4 << 20

// work is a batch on its way into the database.
type work struct {
	mark    [16]byte // names the batch in the database
	batch   []plantstore.Write
	results []plantstore.Result
	places  []*place // in ascending order of id
	// begun says that something of the batch may have been applied, and unknown
	// that a commit of all that was left of it may have been.
	begun, unknown bool
}

// place is an id under which a batch writes.
type place struct {
	id     plantstore.ID
	writes []int             // what writes there, in order
	plain  bool              // all of that are creates without a condition
	before *plantstore.Plant // what was found there
	after  *plantstore.Plant // what is to be there
}

func newWork(batch []plantstore.Write) *work {
	w := &work{batch: batch, results: make([]plantstore.Result, len(batch))}
	rand.Read(w.mark[:])
	order := make([]int, len(batch))
	for i := range order {
		order[i] = i
	}
	w.places = make([]*place, 0, len(batch))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(batch[a].Plant.ID, batch[b].Plant.ID) })
	all := make([]place, len(batch)) // at once, of which some may be too many
	for start, end := 0, 0; start < len(order); start = end {
		p := &all[start]
		p.id, p.plain = batch[order[start]].Plant.ID, true
		for ; end < len(order) && batch[order[end]].Plant.ID == p.id; end++ {
			write := &batch[order[end]]
			p.plain = p.plain && write.Op == plantstore.Create && write.If == nil
		}
		p.writes = order[start:end]
		w.places = append(w.places, p)
	}
	return w
}

// isSimple reports whether all writes are creates without a condition and fit
// into one statement.
func (w *work) isSimple() bool {
	size := 0
	for _, p := range w.places {
		if !p.plain {
			return false
		}
		size += textSize(&w.batch[p.writes[0]].Plant)
	}
	return size <= statementSize
}

// decide decides the writes to a place where current was found.
func (w *work) decide(p *place, current *plantstore.Plant) {
	p.before = current
	for _, i := range p.writes {
		write := &w.batch[i]
		w.results[i] = write.Decide(current)
		switch {
		case w.results[i].Err != nil:
		case w.results[i].Outcome == plantstore.Deleted:
			current = nil
		default:
			current = &write.Plant
		}
	}
	p.after = current
}

// only returns the places that are wanted.
func only(places []*place, wanted func(*place) bool) []*place {
	var left []*place
	for _, p := range places {
		if wanted(p) {
			left = append(left, p)
		}
	}
	return left
}

// find returns the place with that id.
func find(places []*place, id plantstore.ID) *place {
	i, _ := slices.BinarySearchFunc(places, id, func(p *place, id plantstore.ID) int { return cmp.Compare(p.id, id) })
	return places[i]
}

func ids(places []*place) []int64 {
	ids := make([]int64, len(places))
	for i, p := range places {
		ids[i] = int64(p.id)
	}
	return ids
}

// statements yields what is to be at the places as arrays of ids, names and tags,
// as many as it takes to keep each within statementSize.
func statements(places []*place) iter.Seq[[]any] {
	return func(yield func([]any) bool) {
		for len(places) > 0 {
			n, size := 0, 0
			for n < len(places) && (n == 0 || size < statementSize) {
				size += textSize(places[n].after)
				n++
			}
			if !yield(arrays(places[:n])) {
				return
			}
			places = places[n:]
		}
	}
}

func textSize(p *plantstore.Plant) int {
	text, _ := p.Tag.Text()
	return len(p.Name) + len(text)
}

func arrays(places []*place) []any {
	ids, names, tags := make([]int64, len(places)), make([]string, len(places)), make([]*string, len(places))
	for i, p := range places {
		ids[i], names[i], tags[i] = columns(p)
	}
	return []any{ids, names, tags}
}

// columns returns what is to be at the place as the database has it.
func columns(p *place) (id int64, name string, tag *string) {
	if text, ok := p.after.Tag.Text(); ok {
		text = escape(text)
		tag = &text
	}
	return int64(p.id), escape(p.after.Name), tag
}

// encode returns the results as the database keeps them: an outcome, or the code
// of a refusal.
func encode(results []plantstore.Result) []int32 {
	codes := make([]int32, len(results))
	for i, r := range results {
		codes[i] = int32(r.Outcome)
		var refused plantstore.Code
		if errors.As(r.Err, &refused) {
			codes[i] = int32(refused)
		}
	}
	return codes
}

// decode is the inverse of [encode].
func decode(codes []int32) []plantstore.Result {
	results := make([]plantstore.Result, len(codes))
	for i, code := range codes {
		if code <= int32(plantstore.Deleted) {
			results[i].Outcome = plantstore.Outcome(code)
			continue
		}
		results[i].Err = plantstore.Code(code)
	}
	return results
}
