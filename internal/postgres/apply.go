package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

// The statements of a batch.
const (
	insertPlants = `INSERT INTO stored_plants (id, name, tag)
		SELECT id, name, tag FROM unnest($1::bigint[], $2::text[], $3::text[]) AS new (id, name, tag)
		ON CONFLICT (id) DO NOTHING`
	replacePlants = `INSERT INTO stored_plants (id, name, tag)
		SELECT id, name, tag FROM unnest($1::bigint[], $2::text[], $3::text[]) AS new (id, name, tag)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, tag = excluded.tag`
	deletePlants  = `DELETE FROM stored_plants WHERE id = ANY ($1::bigint[])`
	selectPlants  = `SELECT id, name, tag FROM stored_plants WHERE id = ANY ($1::bigint[])`
	lockPlants    = selectPlants + ` ORDER BY id FOR UPDATE`
	insertResults = `INSERT INTO batches (id, results) VALUES ($1, $2)`
	fetchResults  = `UPDATE batches SET at = now() WHERE id = $1 RETURNING results`
)

// errConflict says that another writer changed a row between two statements, so
// that the transaction must start over.
var errConflict = errors.New("a concurrent write changed the same plant")

// Apply applies the batch in one transaction, which is on disk when it returns,
// and on the synchronous standbys if there are any.
//
// A batch of creates without conditions takes one statement, unless an id is taken. It
// can be applied again as it is after ErrRetry, with the exception that
// [plantstore.Store] allows: ruling that out would make every create more expensive.
//
// Any other batch cannot be repeated: a delete would find nothing the second time.
// It stores its results in the database, in the same transaction. If the outcome
// of that transaction is unknown, Apply queries the results until ctx ends. Only
// then does it return ErrRetry with the outcome unknown.
func (s *Store) Apply(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	if err := ctx.Err(); err != nil || len(batch) == 0 {
		return nil, err
	}
	p := newPlan(batch)
	err := s.apply(ctx, p)
	s.changes.Notify()
	if err == nil {
		return p.results, nil
	}
	if (p.maybeCommitted || ctx.Err() != nil) && !errors.Is(err, plantstore.ErrRetry) && !errors.Is(err, ErrNewerSchema) {
		err = fmt.Errorf("%w: %w: %w", plantstore.ErrRetry, plantstore.ErrUnavailable, err)
	}
	return nil, err
}

// apply tries a batch of creates with create first, unless the last one had an id that was
// taken: this one is likely to have one, too, and the work would be in vain.
func (s *Store) apply(ctx context.Context, p *plan) error {
	onlyCreates := p.isOneInsert()
	if onlyCreates && !s.idsTaken.Load() {
		created := false
		err := s.withConn(ctx, s.write, s.callTimeout, func(ctx context.Context, c *pgx.Conn) (err error) {
			created, err = p.create(ctx, c)
			return err
		})
		if err != nil || created {
			return err
		}
	}
	for delays := fastDelays; ; {
		err := s.withConn(ctx, s.write, s.callTimeout, p.transact)
		if err == nil && onlyCreates {
			s.idsTaken.Store(slices.ContainsFunc(p.results, func(r plantstore.Result) bool { return r.EventType() == "" }))
		}
		if err == nil || !p.maybeCommitted || !errors.Is(err, plantstore.ErrRetry) || !delays.Wait(ctx) {
			return err
		}
	}
}

// create applies creates without conditions in a transaction of one statement, which
// appends them to the log in the order of the batch. If an id is taken, it changes
// nothing and returns false.
func (p *plan) create(ctx context.Context, c *pgx.Conn) (created bool, err error) {
	for _, r := range p.rows {
		p.decide(r, nil)
	}
	rows := slices.SortedFunc(slices.Values(p.rows), func(a, b *row) int { return cmp.Compare(a.writes[0], b.writes[0]) })
	by := make([]string, len(rows))
	for i, r := range rows {
		by[i] = p.batch[r.writes[0]].By
	}
	err = c.QueryRow(ctx, createPlants, append(arrays(rows), by)...).Scan(&created)
	if sqlState(err) == uniqueViolation {
		return false, nil
	}
	return created, err
}

// transact applies the batch in one transaction. Two of them never deadlock: each
// locks the rows that exist in the order of their ids, then inserts the others in that
// order, then allocates its numbers in the log, and waits for nothing after that. A
// row that is only locked does not block an insert.
func (p *plan) transact(ctx context.Context, c *pgx.Conn) error {
	if p.maybeCommitted {
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

// lock begins the transaction, and reads the plants that exist. It locks them, except where
// all writes are creates: those change no plant.
func (p *plan) lock(ctx context.Context, c *pgx.Conn) error {
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

// insert adds plants to the rows where none was found.
func (p *plan) insert(ctx context.Context, c *pgx.Conn) error {
	rows := p.filter(func(r *row) bool { return r.action == insertRow || r.action == holdRow })
	if len(rows) == 0 {
		return nil
	}
	inserted, err := c.Exec(ctx, insertPlants, arrays(rows)...)
	if err == nil && inserted.RowsAffected() < int64(len(rows)) {
		return errConflict
	}
	return err
}

// finish replaces and deletes, stores the results, and commits. The results come
// first: if an earlier attempt has stored them after all, nothing else happens.
// They also make a batch that changes nothing wait for the standbys. What follows the
// log writes to rows that are locked.
func (p *plan) finish(ctx context.Context, c *pgx.Conn) error {
	var b pgx.Batch
	b.Queue(insertResults, p.batchID, encode(p.results))
	p.queueChanges(&b, false)
	p.queueLog(&b)
	p.queueChanges(&b, true)
	b.Queue("COMMIT")
	err := c.SendBatch(ctx, &b).Close()
	switch {
	case err == nil, c.IsClosed():
		p.maybeCommitted = true
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
		b.Queue(replacePlants, arrays(replaced)...)
	}
	deleted := p.filter(func(r *row) bool { return r.logsFound == logsFound && (r.action == deleteRow || r.action == holdRow) })
	if len(deleted) > 0 {
		b.Queue(deletePlants, ids(deleted))
	}
}

// fetchResults fetches the results that an earlier attempt may have stored. It does
// so by an update, whose commit waits for the standbys: the earlier commit may not
// have.
func (p *plan) fetchResults(ctx context.Context, c *pgx.Conn) (found bool, err error) {
	var stored []int32
	err = inTransaction(ctx, c, func() (err error) {
		stored, err = queryOne(ctx, c, pgx.RowTo[[]int32], nil, fetchResults, p.batchID)
		return err
	})
	if err != nil || stored == nil {
		return false, err
	}
	p.results = decode(stored)
	return true, nil
}
