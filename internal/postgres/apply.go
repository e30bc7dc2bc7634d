package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

// The statements of a batch. A row is locked by its id alone because Citus knows
// no other way. Sent together, many such statements take one round trip.
const (
	begin        = `BEGIN ISOLATION LEVEL READ COMMITTED`
	insertPlant  = `INSERT INTO plants (id, name, tag) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING`
	insertPlants = `INSERT INTO plants (id, name, tag)
		SELECT id, name, tag FROM unnest($1::bigint[], $2::text[], $3::text[]) AS new (id, name, tag)
		ON CONFLICT (id) DO NOTHING RETURNING id`
	replacePlants = `INSERT INTO plants (id, name, tag)
		SELECT id, name, tag FROM unnest($1::bigint[], $2::text[], $3::text[]) AS new (id, name, tag)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, tag = excluded.tag`
	deletePlants = `DELETE FROM plants WHERE id = ANY ($1::bigint[])`
	selectPlants = `SELECT id, name, tag FROM plants WHERE id = ANY ($1::bigint[])`
	lockPlant    = `SELECT id, name, tag FROM plants WHERE id = $1 FOR UPDATE`
	keepResults  = `INSERT INTO batches (id, results) VALUES ($1, $2)`
	askResults   = `UPDATE batches SET at = now() WHERE id = $1 RETURNING results`
)

// errMoved says that somebody else wrote under one of the ids between two
// statements, so that the transaction must begin again.
var errMoved = errors.New("another writer was faster")

// Apply applies the batch in one transaction, which is on disk when it returns,
// and on the synchronous standbys where there are any.
//
// A batch of creates without conditions takes one statement; those of them whose
// id is taken are compared in a transaction after it. Such a batch can be applied
// again as it is, after ErrRetry. (Should its first application have succeeded
// unnoticed, and somebody have deleted a plant of it since, that plant is created
// again: to rule that out would cost every create.)
//
// Any other batch cannot: a delete would find nothing the second time. It leaves
// its results in the database, in the same transaction, and where the outcome of
// that is unknown, Apply asks for them until ctx ends. Only then it returns
// ErrRetry and nobody knows.
func (s *Store) Apply(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	if err := ctx.Err(); err != nil || len(batch) == 0 {
		return nil, err
	}
	w := newWork(batch)
	err := s.apply(ctx, w)
	if err == nil {
		return w.results, nil
	}
	if (w.begun || ctx.Err() != nil) && !errors.Is(err, plantstore.ErrRetry) {
		err = fmt.Errorf("%w: %w: %w", plantstore.ErrRetry, plantstore.ErrUnavailable, err)
	}
	return nil, err
}

func (s *Store) apply(ctx context.Context, w *work) error {
	if w.isSimple() {
		err := s.using(ctx, s.write, s.timeout, w.create)
		if err != nil || len(w.places) == 0 {
			return err
		}
		w.begun = true
	}
	for p := soon; ; {
		err := s.using(ctx, s.write, s.timeout, w.transact)
		if err == nil || !w.begun || !errors.Is(err, plantstore.ErrRetry) || !p.wait(ctx) {
			return err
		}
	}
}

// create applies creates without conditions in a transaction of one statement. It
// leaves the places that are taken in w.
func (w *work) create(ctx context.Context, c *pgx.Conn) error {
	for _, p := range w.places {
		w.decide(p, nil)
	}
	taken, err := insert(ctx, c, w.places)
	w.places = taken
	return err
}

// transact applies the batch in one transaction. No two of these wait for each
// other: each locks the rows that are there in the order of their ids, then
// inserts the others in that order, and after that does nothing that can wait. A
// row that is only locked keeps no insert waiting.
func (w *work) transact(ctx context.Context, c *pgx.Conn) error {
	if w.unknown {
		known, err := w.ask(ctx, c)
		if err != nil || known {
			return err
		}
	}
	if err := w.lock(ctx, c); err != nil {
		return err
	}
	if err := w.insert(ctx, c); err != nil {
		return err
	}
	return w.finish(ctx, c)
}

// lock begins the transaction, and locks and reads what stands in the way of all
// but plain creates.
func (w *work) lock(ctx context.Context, c *pgx.Conn) error {
	var b pgx.Batch
	b.Queue(begin)
	for _, p := range w.places {
		w.decide(p, nil)
		if p.plain {
			continue
		}
		b.Queue(lockPlant, int64(p.id)).Query(func(rows pgx.Rows) error {
			return eachPlant(rows, func(found plantstore.Plant) bool {
				w.decide(p, &found)
				return true
			})
		})
	}
	return c.SendBatch(ctx, &b).Close()
}

// insert adds the plants where none was found, and compares those where a plain
// create finds one only now.
func (w *work) insert(ctx context.Context, c *pgx.Conn) error {
	taken, err := insert(ctx, c, only(w.places, func(p *place) bool { return p.before == nil && p.after != nil }))
	if err != nil || len(taken) == 0 {
		return err
	}
	if slices.ContainsFunc(taken, func(p *place) bool { return !p.plain }) {
		return errMoved
	}
	rows, err := c.Query(ctx, selectPlants, ids(taken))
	if err != nil {
		return err
	}
	found := 0
	err = eachPlant(rows, func(plant plantstore.Plant) bool {
		w.decide(find(taken, plant.ID), &plant)
		found++
		return true
	})
	if err == nil && found < len(taken) {
		return errMoved
	}
	return err
}

// finish replaces and deletes, leaves the results, and commits. The results come
// first: where an earlier try has left them after all, nothing else happens. They
// are also what makes a batch wait for the standbys in which nothing changes.
func (w *work) finish(ctx context.Context, c *pgx.Conn) error {
	var b pgx.Batch
	b.Queue(keepResults, w.mark, encode(w.results))
	changed := only(w.places, func(p *place) bool { return p.before != nil && p.after != nil && *p.before != *p.after })
	for arrays := range statements(changed) {
		b.Queue(replacePlants, arrays...)
	}
	if gone := only(w.places, func(p *place) bool { return p.before != nil && p.after == nil }); len(gone) > 0 {
		b.Queue(deletePlants, ids(gone))
	}
	b.Queue("COMMIT")
	err := c.SendBatch(ctx, &b).Close()
	switch code := sqlState(err); {
	case err == nil, c.IsClosed(), code == statementCompletionUnknown:
		w.begun, w.unknown = true, true
	case code == uniqueViolation:
		return errMoved
	}
	return err
}

// ask asks for the results that an earlier try may have left. It does so by an
// update, whose commit waits for the standbys as the lost one may not have.
func (w *work) ask(ctx context.Context, c *pgx.Conn) (known bool, err error) {
	var left []int32
	err = c.QueryRow(ctx, askResults, w.mark).Scan(&left)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	w.results = decode(left)
	return true, nil
}

// insert adds the plants of the places, in their order, and returns the places
// that are taken.
func insert(ctx context.Context, c *pgx.Conn, places []*place) (taken []*place, err error) {
	switch len(places) {
	case 0:
		return nil, nil
	case 1:
		return insertOne(ctx, c, places)
	}
	var b pgx.Batch
	added := make([]int64, 0, len(places))
	for arrays := range statements(places) {
		b.Queue(insertPlants, arrays...).Query(func(rows pgx.Rows) error {
			var id int64
			_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
				added = append(added, id)
				return nil
			})
			return err
		})
	}
	if err := c.SendBatch(ctx, &b).Close(); err != nil {
		return nil, err
	}
	if len(added) == len(places) {
		return nil, nil
	}
	slices.Sort(added)
	return only(places, func(p *place) bool {
		_, found := slices.BinarySearch(added, int64(p.id))
		return !found
	}), nil
}

// insertOne is insert for one place, which a simpler statement takes.
func insertOne(ctx context.Context, c *pgx.Conn, places []*place) (taken []*place, err error) {
	id, name, tag := columns(places[0])
	done, err := c.Exec(ctx, insertPlant, id, name, tag)
	if err != nil || done.RowsAffected() == 1 {
		return nil, err
	}
	return places, nil
}
