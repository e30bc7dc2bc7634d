package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"plantstore"
	"plantstore/internal/rules"
)

// The statements of a plan, in their order.
const (
	fetchAttempt = `UPDATE batches SET at = now() WHERE id = $1 RETURNING attempt`
	selectPlants = `SELECT id, name, tag FROM stored_plants WHERE id = ANY ($1::bigint[])`
	lockPlants   = selectPlants + ` ORDER BY id FOR UPDATE`
	insertPlants = `INSERT INTO stored_plants (id, name, tag)
		SELECT id, name, tag FROM unnest($1::bigint[], $2::text[], $3::text[]) AS new (id, name, tag)
		ON CONFLICT (id) DO NOTHING`
	insertAttempt = `INSERT INTO batches (id, attempt) VALUES ($1, $2)`
	replacePlants = `INSERT INTO stored_plants (id, name, tag)
		SELECT id, name, tag FROM unnest($1::bigint[], $2::text[], $3::text[]) AS new (id, name, tag)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, tag = excluded.tag`
	deletePlants = `DELETE FROM stored_plants WHERE id = ANY ($1::bigint[])`
)

// errConflict says that another writer changed a row between two statements, so
// that the transaction must start over.
var errConflict = errors.New("a concurrent write changed the same plant")

// plan is how a batch is applied that takes more than one statement: what becomes of each row,
// and what may have been applied so far.
type plan struct {
	batchID  pgtype.UUID // the key of the batch in the database
	batch    []plantstore.Write
	results  []plantstore.Result
	attempts [][]plantstore.Result // the results of each transaction that may have been committed
	logged   []loggedPlant         // what the log gets of each write that changes something
	rows     []*row                // in ascending order of id
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
	p := &plan{batchID: pgtype.UUID{Valid: true}, batch: batch, logged: make([]loggedPlant, len(batch))}
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
			r.createsOnly = r.createsOnly && isCreate(&batch[order[end]])
		}
		r.writes = order[start:end]
		p.rows = append(p.rows, r)
	}
	return p
}

// transact applies the batch in one transaction. Two of them never deadlock: each
// locks the rows that exist in the order of their ids, then inserts the others in that
// order, then allocates its numbers in the log, and waits for nothing after that. A
// row that is only locked does not block an insert.
func (p *plan) transact(ctx context.Context, c *pgx.Conn) error {
	if p.maybeCommitted() {
		found, err := p.fetchResults(ctx, c)
		if err != nil || found {
			return err
		}
	}
	if err := p.lock(ctx, c); err != nil {
		return err
	}
	if err := p.insert(ctx, c); err != nil {
		return err
	}
	return p.finish(ctx, c)
}

// maybeCommitted reports whether a transaction with the results of the batch may have been
// committed.
func (p *plan) maybeCommitted() bool { return len(p.attempts) > 0 }

// fetchResults finds out which of the attempts was committed, if any. It does so by an update,
// whose commit waits for the standbys: the earlier commit may not have.
func (p *plan) fetchResults(ctx context.Context, c *pgx.Conn) (found bool, err error) {
	var attempt *int
	err = inTransaction(ctx, c, func() (err error) {
		attempt, err = queryOne(ctx, c, pgx.RowTo[*int], nil, fetchAttempt, p.batchID)
		return err
	})
	if err != nil || attempt == nil {
		return false, err
	}
	p.results = p.attempts[*attempt]
	return true, nil
}

// lock begins the transaction, and reads the plants that exist. It locks them, except where
// all writes are creates: those change no plant.
func (p *plan) lock(ctx context.Context, c *pgx.Conn) error {
	p.results = make([]plantstore.Result, len(p.batch))
	for _, r := range p.rows {
		p.decide(r, nil)
	}
	decide := func(found pgx.Rows) error {
		for found.Next() {
			current, err := rowPlant(found)
			if err != nil {
				return err
			}
			i, _ := slices.BinarySearchFunc(p.rows, current.ID, func(r *row, id plantstore.ID) int { return cmp.Compare(r.id, id) })
			p.decide(p.rows[i], &current)
		}
		return nil // the batch has what was wrong with the rows
	}
	var b pgx.Batch
	queueBegin(&b)
	b.Queue(lockPlants, ids(p.filter(func(r *row) bool { return !r.createsOnly }))).Query(decide)
	b.Queue(selectPlants, ids(p.filter(func(r *row) bool { return r.createsOnly }))).Query(decide)
	return c.SendBatch(ctx, &b).Close()
}

// decide decides the writes to a row where a plant was found, or nil.
func (p *plan) decide(r *row, found *plantstore.Plant) {
	current := found
	r.logsFound = false
	var deleted *plantstore.Plant // the last that was the batch's own
	for _, i := range r.writes {
		change := rules.Decide(&p.batch[i], current)
		p.results[i], current = change.Result, change.After
		plant := change.Logged()
		if plant == nil {
			continue
		}
		p.logged[i] = loggedPlant{plant, plant.TextSize()}
		switch {
		case current != nil:
		case plant == found:
			r.logsFound, p.logged[i].plant = true, nil
		default:
			deleted = plant
		}
	}
	r.action, r.after = leaveRow, nil
	switch {
	case found == nil && current == nil && deleted != nil:
		r.action, r.after = holdRow, deleted
	case found == current:
	case found == nil:
		r.action, r.after = insertRow, current
	case current == nil:
		r.action = deleteRow
	case *found != *current:
		r.action, r.after = replaceRow, current
	}
}

// insert adds plants to the rows where none was found.
func (p *plan) insert(ctx context.Context, c *pgx.Conn) error {
	rows := p.filter(func(r *row) bool { return r.action == insertRow || r.action == holdRow })
	if len(rows) == 0 {
		return nil
	}
	inserted, err := c.Exec(ctx, insertPlants, after(rows)...)
	if err == nil && inserted.RowsAffected() < int64(len(rows)) {
		return errConflict
	}
	return err
}

// finish replaces and deletes, stores the number of the attempt, and commits. The number comes
// first: if an earlier attempt has stored its own after all, nothing else happens.
// It also makes a batch that changes nothing wait for the standbys. What follows the
// log writes to rows that are locked.
func (p *plan) finish(ctx context.Context, c *pgx.Conn) error {
	var b pgx.Batch
	b.Queue(insertAttempt, p.batchID, len(p.attempts))
	p.queueChanges(&b, false)
	p.queueLog(&b)
	p.queueChanges(&b, true)
	b.Queue("COMMIT")
	err := c.SendBatch(ctx, &b).Close()
	switch {
	case err == nil, c.IsClosed():
		p.attempts = append(p.attempts, p.results)
	case sqlState(err) == uniqueViolation:
		return errConflict
	}
	return err
}

// queueChanges queues the replacements and deletions of the rows with this value of
// logsFound.
func (p *plan) queueChanges(b *pgx.Batch, logsFound bool) {
	replaced := p.filter(func(r *row) bool { return r.logsFound == logsFound && r.action == replaceRow })
	if len(replaced) > 0 {
		b.Queue(replacePlants, after(replaced)...)
	}
	deleted := p.filter(func(r *row) bool { return r.logsFound == logsFound && (r.action == deleteRow || r.action == holdRow) })
	if len(deleted) > 0 {
		b.Queue(deletePlants, ids(deleted))
	}
}

// queueLog queues what the batch appends to the log, in its order. Plants that were found
// and are deleted must still be in the table.
func (p *plan) queueLog(b *pgx.Batch) {
	var by []string
	var types []int16
	var ids []int64
	var names, tags []*string
	size, added := 0, int64(0)
	queue := func() {
		if len(ids) > 0 {
			b.Queue(lockLog)
			b.Queue(appendLog, by, types, ids, names, tags, added)
			by, types, ids, names, tags, size, added = nil, nil, nil, nil, nil, 0, 0
		}
	}
	for i := range p.batch {
		kind := p.results[i].EventType()
		if kind == "" {
			continue
		}
		if size > segmentSize {
			queue()
		}
		write, logged := &p.batch[i], p.logged[i]
		size += logged.size
		added += rules.PlantsAdded(kind)
		var name, tag *string
		if logged.plant != nil {
			var stored string
			stored, tag = text(logged.plant)
			name = &stored
		}
		by, types, ids, names, tags = append(by, write.By), append(types, int16(kind.Number())), append(ids, int64(write.Plant.ID)), append(names, name), append(tags, tag)
	}
	queue()
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

// after returns the columns of the plants to leave in the rows.
func after(rows []*row) []any {
	plants := newColumns(len(rows))
	for _, r := range rows {
		plants.add(r.after)
	}
	return []any{plants.ids, plants.names, plants.tags}
}
