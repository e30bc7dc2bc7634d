package postgres

import (
	"cmp"
	"crypto/rand"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"plantstore"
)

// logRowSize is approximately how many bytes of text a row of the log has at most: a reader of
// one event reads its row.
const logRowSize = 4 << 20

// plan is how a batch is applied: what becomes of each row, and what may have been
// applied so far.
type plan struct {
	batchID        pgtype.UUID // the key of the batch's results in the database
	batch          []plantstore.Write
	results        []plantstore.Result
	logged         []loggedPlant // what the log gets of each write that changes something
	rows           []*row        // in ascending order of id
	maybeCommitted bool          // the transaction with the results may have been committed
}

// loggedPlant is a plant after a change, or before a deletion.
type loggedPlant struct {
	plant *plantstore.Plant // nil for the plant that was found, which is not kept
	size  int               // of its text
}

// row is a row of the table plants that a batch writes to.
type row struct {
	id          plantstore.ID
	writes      []int // indexes into the batch, in order
	createsOnly bool  // all of those are creates without a condition
	action      action
	logsFound   bool              // the log needs the plant that was found there, because a write deletes it
	after       *plantstore.Plant // the plant to leave there, if the action needs one
}

// action is what has to be done to a row. The plant that was found there is not kept:
// there may be many, and they may be large.
type action uint8

const (
	leaveRow action = iota
	insertRow
	replaceRow
	deleteRow
	// holdRow is to insert a plant and delete it again. The batch leaves nothing where it
	// found nothing, but its events must not come between those of another's plant.
	holdRow
)

func newPlan(batch []plantstore.Write) *plan {
	p := &plan{batchID: pgtype.UUID{Valid: true}, batch: batch, results: make([]plantstore.Result, len(batch)), logged: make([]loggedPlant, len(batch))}
	rand.Read(p.batchID.Bytes[:])
	order := make([]int, len(batch))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(batch[a].Plant.ID, batch[b].Plant.ID) })
	p.rows = make([]*row, 0, len(batch))
	all := make([]row, len(batch)) // one allocation; ids that repeat leave gaps
	for start, end := 0, 0; start < len(order); start = end {
		r := &all[start]
		r.id, r.createsOnly = batch[order[start]].Plant.ID, true
		for ; end < len(order) && batch[order[end]].Plant.ID == r.id; end++ {
			write := &batch[order[end]]
			r.createsOnly = r.createsOnly && write.Op == plantstore.Create && write.If == nil
		}
		r.writes = order[start:end]
		p.rows = append(p.rows, r)
	}
	return p
}

// isOneInsert reports whether all writes are creates without a condition that fit
// into one row of the log.
func (p *plan) isOneInsert() bool {
	size := 0
	for _, r := range p.rows {
		if !r.createsOnly {
			return false
		}
		size += p.batch[r.writes[0]].Plant.TextSize()
	}
	return size <= logRowSize
}

// decide decides the writes to a row that has current.
func (p *plan) decide(r *row, current *plantstore.Plant) {
	before := current
	r.logsFound = false
	var deleted *plantstore.Plant // the last that was the batch's own
	for _, i := range r.writes {
		write := &p.batch[i]
		p.results[i] = write.Decide(current)
		switch {
		case p.results[i].Err != nil:
		case p.results[i].Outcome != plantstore.Deleted:
			current = &write.Plant
			p.logged[i] = loggedPlant{current, current.TextSize()}
		case current == before:
			r.logsFound = true
			p.logged[i] = loggedPlant{nil, before.TextSize()}
			current = nil
		default:
			deleted = current
			p.logged[i] = loggedPlant{current, current.TextSize()}
			current = nil
		}
	}
	r.action, r.after = leaveRow, nil
	switch {
	case before == nil && current == nil && deleted != nil:
		r.action, r.after = holdRow, deleted
	case before == current:
	case before == nil:
		r.action, r.after = insertRow, current
	case current == nil:
		r.action = deleteRow
	case *before != *current:
		r.action, r.after = replaceRow, current
	}
}

// filter returns the rows for which keep returns true.
func (p *plan) filter(keep func(*row) bool) []*row {
	var kept []*row
	for _, r := range p.rows {
		if keep(r) {
			kept = append(kept, r)
		}
	}
	return kept
}

func ids(rows []*row) []int64 {
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = int64(r.id)
	}
	return ids
}

// arrays returns the ids, names and tags of the plants to leave in the rows.
func arrays(rows []*row) []any {
	ids, names, tags := make([]int64, len(rows)), make([]string, len(rows)), make([]*string, len(rows))
	for i, r := range rows {
		ids[i] = int64(r.id)
		names[i], tags[i] = text(r.after)
	}
	return []any{ids, names, tags}
}

// text returns the plant's name and tag as the database stores them.
func text(p *plantstore.Plant) (name string, tag *string) {
	if text, ok := p.Tag.Text(); ok {
		text = escape(text)
		tag = &text
	}
	return escape(p.Name), tag
}

// encode returns the results as the database stores them: an outcome, or the code
// of a refusal.
func encode(results []plantstore.Result) []int32 {
	codes := make([]int32, len(results))
	for i, r := range results {
		codes[i] = int32(r.Outcome)
		if refused, ok := errors.AsType[plantstore.Code](r.Err); ok {
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
