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
	fetchAttempt = `UPDATE batches SET at = now() WHERE id = $1 RETURNING attempt, coalesce(time, 0)`
	selectTime   = `SELECT greatest($1, ` + now + `)`
	selectPlants = `SELECT ` + storedColumns + ` FROM stored_plants WHERE id = ANY ($1::bigint[])`
	lockPlants   = selectPlants + ` ORDER BY id FOR UPDATE`
	insertPlants = `INSERT INTO stored_plants (id, name, tag, folded, n, updated)
		SELECT id, name, tag, folded, n, $6 FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::int[]) AS new (id, name, tag, folded, n)
		ON CONFLICT (id) DO NOTHING`
	insertAttempt = `INSERT INTO batches (id, attempt) VALUES ($1, $2)`
	// replacePlants takes the time of the last event if it is given none.
	replacePlants = `INSERT INTO stored_plants (id, name, tag, folded, n, updated, created)
		SELECT id, name, tag, folded, n, coalesce($6, (SELECT time FROM log ORDER BY first DESC LIMIT 1)), created
		FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::int[], $7::bigint[]) AS new (id, name, tag, folded, n, created)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, tag = excluded.tag, folded = excluded.folded,
			n = excluded.n, updated = excluded.updated, created = excluded.created`
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
	least    int64 // the least time that its events may have
	time     int64 // of its events, as far as it is known
	results  []plantstore.Result
	attempts [][]plantstore.Result // the results of each transaction that may have been committed
	logged   []loggedPlant         // what the log gets of each write that changes something
	rows     []*row                // in ascending order of id
	// foundText is how many bytes of text the plants that were found have, on average.
	foundText int64
}

// loggedPlant is a plant after a change, or before a deletion.
type loggedPlant struct {
	plant *plantstore.StoredPlant // nil for the plant that was found, which is not kept
	size  int                     // of its text
	n     int64                   // the place of the event in the row of the log
	// before is the version that the plant had, if it was found with one. A plant that the batch itself
	// has left has that of the event of another write, follows.
	before  plantstore.Version
	follows *loggedPlant
}

// previous returns the version of the plant before the event, as append_log takes it.
func (l *loggedPlant) previous() (at, n *int64) {
	switch {
	case l.follows != nil:
		return nil, &l.follows.n
	case l.before.Time > 0:
		return &l.before.Time, &l.before.N
	}
	return nil, nil
}

// row is a row of the table plants that a batch writes to.
type row struct {
	id          plantstore.ID
	writes      []int // indexes into the batch, in order
	createsOnly bool  // all of those are creates without a condition
	action      action
	logsFound   bool                    // the log needs the plant that was found there, because a write deletes it
	after       *plantstore.StoredPlant // the plant to leave there, if the action needs one
	created     bool                    // the batch has created it
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

func newPlan(batch []plantstore.Write, least int64) *plan {
	p := &plan{batchID: pgtype.UUID{Valid: true}, least: least}
	rand.Read(p.batchID.Bytes[:])
	p.reset(batch)
	return p
}

// reset makes it a plan for a batch, in place of the one before.
func (p *plan) reset(batch []plantstore.Write) {
	p.batch, p.logged = batch, make([]loggedPlant, len(batch))
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
	var attempt int
	var at int64
	err = inTransaction(ctx, c, func() error {
		err := c.QueryRow(ctx, fetchAttempt, p.batchID).Scan(&attempt, &at)
		found = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil || !found {
		return false, err
	}
	p.time, p.results = at, p.attempts[attempt]
	p.setVersions()
	return true, nil
}

// setVersions sets the versions in the results, whose events have the time of the plan.
func (p *plan) setVersions() {
	batch := p.batch[:len(p.results)]                                  // of the attempt, which may have been longer
	made := make(map[plantstore.ID]plantstore.Version, len(p.results)) // by the batch
	n := int64(0)
	for i := range p.results {
		r := &p.results[i]
		if r.EventType() != "" {
			made[batch[i].Plant.ID] = plantstore.Version{Time: p.time, N: n}
			n++
		}
		if version, ok := made[batch[i].Plant.ID]; ok { // or it is that of the plant that was found
			r.Version = version
		}
	}
}

// lock begins the transaction, and reads the plants that exist. It locks them, except where
// all writes are creates: those change no plant.
func (p *plan) lock(ctx context.Context, c *pgx.Conn) error {
	p.results = make([]plantstore.Result, len(p.batch))
	var text, plants int64
	decide := func(found pgx.Rows) error {
		for found.Next() {
			current, err := rowStored(found)
			if err != nil {
				return err
			}
			text, plants = text+int64(current.TextSize()), plants+1
			i, _ := slices.BinarySearchFunc(p.rows, current.ID, func(r *row, id plantstore.ID) int { return cmp.Compare(r.id, id) })
			p.decide(p.rows[i], &current)
		}
		return nil // the batch has what was wrong with the rows
	}
	var b pgx.Batch
	queueBegin(&b)
	b.Queue(selectTime, p.least).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&p.time)
		for _, r := range p.rows {
			p.decide(r, nil)
		}
		return err
	})
	b.Queue(lockPlants, ids(p.filter(func(r *row) bool { return !r.createsOnly }))).Query(decide)
	b.Queue(selectPlants, ids(p.filter(func(r *row) bool { return r.createsOnly }))).Query(decide)
	if err := c.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	p.foundText = text / max(1, plants)
	if n := p.fits(); n < len(p.batch) {
		p.reset(p.batch[:n])
		if _, err := c.Exec(ctx, "ROLLBACK"); err != nil {
			return err
		}
		return p.lock(ctx, c)
	}
	n := int64(0) // the place of the next event
	for i := range p.results {
		if p.results[i].EventType() != "" {
			if plant := p.logged[i].plant; plant != nil {
				plant.Version.N = n
			}
			p.logged[i].n = n
			n++
		}
	}
	return nil
}

// fits returns how many writes of the batch, one at least, have events that fit into one row of
// the log.
func (p *plan) fits() int {
	size := 0
	for i := range p.batch {
		if size += p.logged[i].size; size > segmentSize && i > 0 {
			return i
		}
	}
	return len(p.batch)
}

// decide decides the writes to a row where a plant was found, or nil.
func (p *plan) decide(r *row, found *plantstore.StoredPlant) {
	current := found
	r.logsFound, r.created = false, false
	var deleted *plantstore.StoredPlant // the last that was the batch's own
	var last *loggedPlant
	for _, i := range r.writes {
		change := rules.Decide(&p.batch[i], current, plantstore.Version{Time: p.time})
		p.results[i], current = change.Result, change.After
		p.logged[i] = loggedPlant{}
		plant := change.Logged()
		if plant == nil {
			continue
		}
		p.logged[i] = loggedPlant{plant: plant, size: plant.TextSize()}
		switch {
		case change.Before == nil:
		case change.Before == found:
			p.logged[i].before = found.Version
		default:
			p.logged[i].follows = last
		}
		last = &p.logged[i]
		switch {
		case current != nil:
			r.created = r.created || change.Outcome == plantstore.Created
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
	default:
		r.action, r.after = replaceRow, current
	}
}

// insert adds plants to the rows where none was found.
func (p *plan) insert(ctx context.Context, c *pgx.Conn) error {
	rows := p.filter(func(r *row) bool { return r.action == insertRow || r.action == holdRow })
	if len(rows) == 0 {
		return nil
	}
	inserted, err := c.Exec(ctx, insertPlants, append(after(rows), p.time)...)
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
		p.setVersions()
	case sqlState(err) == uniqueViolation:
		return errConflict
	}
	return err
}

// queueChanges queues the replacements and deletions of the rows with this value of
// logsFound. The time of the events is known only once the log has them.
func (p *plan) queueChanges(b *pgx.Batch, logsFound bool) {
	replaced := p.filter(func(r *row) bool { return r.logsFound == logsFound && r.action == replaceRow })
	if len(replaced) > 0 {
		var at *int64
		if !logsFound {
			at = &p.time
		}
		b.Queue(replacePlants, append(after(replaced), at, created(replaced))...)
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
	var beforeTime []*int64
	var beforeN []*int64
	added, linked := int64(0), false
	for i := range p.batch {
		kind := p.results[i].EventType()
		if kind == "" {
			continue
		}
		added += rules.PlantsAdded(kind)
		var name, tag *string
		if logged := p.logged[i].plant; logged != nil {
			var stored string
			stored, tag = text(&logged.Plant)
			name = &stored
		}
		write := &p.batch[i]
		by, types, ids, names, tags = append(by, write.By), append(types, int16(kind.Number())), append(ids, int64(write.Plant.ID)), append(names, name), append(tags, tag)
		at, n := p.logged[i].previous()
		beforeTime, beforeN = append(beforeTime, at), append(beforeN, n)
		linked = linked || kind != plantstore.PlantCreated
	}
	if !linked {
		beforeTime, beforeN = nil, nil
	}
	if len(ids) > 0 {
		b.Queue(appendLog, by, types, ids, names, tags, beforeTime, beforeN, added, p.time, p.batchID).QueryRow(func(row pgx.Row) error { return row.Scan(&p.time) })
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

// after returns the columns of the plants to leave in the rows, except their times.
func after(rows []*row) []any {
	plants, n := newColumns(len(rows)), make([]int32, len(rows))
	for i, r := range rows {
		plants.add(&r.after.Plant)
		n[i] = int32(r.after.Version.N)
	}
	return []any{plants.ids, plants.names, plants.tags, plants.folded, n}
}

// created returns when the plants to leave in the rows were created, as the database stores that.
func created(rows []*row) []*int64 {
	times := make([]*int64, len(rows))
	for i, r := range rows {
		if !r.created {
			times[i] = &r.after.Created
		}
	}
	return times
}
