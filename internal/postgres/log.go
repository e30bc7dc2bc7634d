package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/wire"
)

// The statements of the log. Each that appends updates the row of log_state after
// everything else that can block. The lock on that row lasts until the commit is
// visible, so no transaction with a larger seq commits before one with a smaller.
const (
	now = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

	createPlant = `WITH created AS (
			INSERT INTO plants (id, name, tag) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING RETURNING id
		), last AS (
			UPDATE log_state SET seq = seq + 1, plants = plants + 1, time = greatest(time, ` + now + `)
			WHERE id = 1 AND EXISTS (SELECT 1 FROM created) RETURNING seq, time
		), tagged AS (
			` + insertTags + `SELECT $5::bytea, $6::text, 1 FROM last WHERE $5 IS NOT NULL` + orAddTags + `
		)
		INSERT INTO log (seq, time, "by", type, id, name, tag) SELECT seq, time, $4, 1, $1, $2, $3 FROM last`
	// createNew fails if one of the ids is taken. Otherwise it does the same as
	// createPlants for a fifth to a third less: PostgreSQL inserts each plant in one
	// step instead of two, and n, which counts from 1, is the number of the row.
	createNew = `WITH new AS (
			SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::integer[]) AS new (id, name, tag, "by", n)
		), created AS (
			INSERT INTO plants (id, name, tag) SELECT id, name, tag FROM new RETURNING id
		), last AS (
			UPDATE log_state SET seq = seq + cardinality($1::bigint[]), plants = plants + cardinality($1::bigint[]), time = greatest(time, ` + now + `)
			WHERE id = 1 AND (SELECT count(*) FROM created) > 0 RETURNING seq, time
		), tagged AS (
			` + insertTags + `SELECT t.* FROM last, unnest($6::bytea[], $7::text[], $8::bigint[]) AS t` + orAddTags + `
		)
		INSERT INTO log (seq, time, "by", type, id, name, tag)
		SELECT last.seq - cardinality($1::bigint[]) + new.n, last.time, new."by", 1, new.id, new.name, new.tag FROM last, new`
	createPlants = `WITH new AS (
			SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::bytea[]) AS new (id, name, tag, "by", n, key)
		), created AS (
			INSERT INTO plants (id, name, tag) SELECT id, name, tag FROM new ON CONFLICT (id) DO NOTHING RETURNING id
		), count AS (
			SELECT count(*) AS n FROM created
		), last AS (
			UPDATE log_state SET seq = seq + (SELECT n FROM count), plants = plants + (SELECT n FROM count), time = greatest(time, ` + now + `)
			WHERE id = 1 AND (SELECT n FROM count) > 0 RETURNING seq, time
		), tagged AS (
			` + insertTags + `SELECT t.key, t.tag, counted.plants
			FROM last, (SELECT key, count(*) AS plants FROM created JOIN new USING (id) GROUP BY key) AS counted
			JOIN unnest($7::bytea[], $8::text[]) AS t (key, tag) USING (key)` + orAddTags + `
		)
		INSERT INTO log (seq, time, "by", type, id, name, tag)
		SELECT last.seq - (SELECT n FROM count) + row_number() OVER (ORDER BY new.n), last.time, new."by", 1, new.id, new.name, new.tag
		FROM last, created JOIN new USING (id) RETURNING id`
	// appendLog takes the plants without a name from the table. $6 is how many more
	// plants there are.
	appendLog = `WITH last AS (
			UPDATE log_state SET seq = seq + cardinality($1::text[]), plants = plants + $6, time = greatest(time, ` + now + `)
			WHERE id = 1 RETURNING seq, time
		)
		INSERT INTO log (seq, time, "by", type, id, name, tag)
		SELECT last.seq - cardinality($1::text[]) + new.n, last.time, new."by", new.type, new.id,
			coalesce(new.name, (SELECT name FROM plants WHERE id = new.id)),
			CASE WHEN new.name IS NULL THEN (SELECT tag FROM plants WHERE id = new.id) ELSE new.tag END
		FROM last, unnest($1::text[], $2::smallint[], $3::bigint[], $4::text[], $5::text[])
			WITH ORDINALITY AS new ("by", type, id, name, tag, n)`

	selectLogState = `SELECT store, seq, time, trimmed, trimmed_time FROM log_state WHERE id = 1`
	selectLogTime  = `SELECT time FROM log WHERE seq = $1`
	selectLog      = `SELECT seq, time, "by", type, id, name, tag FROM log WHERE seq > $1 ORDER BY seq LIMIT $2`
	selectLogEnd   = `SELECT seq FROM log_state WHERE id = 1`
)

// eventTypes has the event type of each type in the log, except 0.
var eventTypes = [...]plantstore.EventType{"", plantstore.PlantCreated, plantstore.PlantReplaced, plantstore.PlantDeleted, plantstore.TokenCreated, plantstore.TokenRevoked}

// Types in the log. Those of tokens are last.
const (
	createdType      = 1
	deletedType      = 3
	tokenCreatedType = 4
	tokenRevokedType = 5
)

// logType returns the type that the log has for an outcome, or 0 if that changed
// nothing.
func logType(r plantstore.Result) int16 {
	if r.Err != nil {
		return 0
	}
	switch r.Outcome {
	case plantstore.Created:
		return createdType
	case plantstore.Replaced:
		return 2
	case plantstore.Deleted:
		return deletedType
	}
	return 0
}

// queueLog queues what the writes of the plan's rows append to the log, in the order of
// the batch. Rows that create has inserted are in the log already. Plants that were found
// and are deleted must still be in the table.
func (p *plan) queueLog(b *pgx.Batch) {
	var by []string
	var types []int16
	var ids []int64
	var names, tags []*string
	size, more := 0, 0
	queue := func() {
		if len(ids) > 0 {
			b.Queue(appendLog, by, types, ids, names, tags, more)
			by, types, ids, names, tags, size, more = nil, nil, nil, nil, nil, 0, 0
		}
	}
	var writes []int
	for _, r := range p.rows {
		writes = append(writes, r.writes...)
	}
	slices.Sort(writes)
	for _, i := range writes {
		kind := logType(p.results[i])
		if kind == 0 {
			continue
		}
		write := &p.batch[i]
		plant := &write.Plant
		switch kind {
		case createdType:
			more++
		case deletedType:
			more--
			plant = p.deleted[i]
		}
		var name, tag *string
		if plant != nil {
			var stored string
			stored, tag = text(plant)
			name = &stored
			size += plant.TextSize()
		}
		by, types, ids, names, tags = append(by, write.By), append(types, kind), append(ids, int64(write.Plant.ID)), append(names, name), append(tags, tag)
		if size > statementSize {
			queue()
		}
	}
	queue()
}

// logState is the row of that name.
type logState struct {
	store                string
	seq, time            int64
	trimmed, trimmedTime int64
}

type querier interface {
	QueryRow(context.Context, string, ...any) pgx.Row
	Query(context.Context, string, ...any) (pgx.Rows, error)
}

func readLogState(ctx context.Context, q querier) (s logState, err error) {
	err = q.QueryRow(ctx, selectLogState).Scan(&s.store, &s.seq, &s.time, &s.trimmed, &s.trimmedTime)
	return s, err
}

// end returns the position after the last event.
func (s *logState) end() plantstore.Position {
	return plantstore.Position{Store: s.store, Seq: s.seq, Time: s.time}
}

// eventBudget is how many events one call of Events examines.
const eventBudget = 20_000

// Events returns a page of the log.
func (s *Store) Events(ctx context.Context, q plantstore.EventQuery) (page plantstore.EventPage, err error) {
	err = s.retryRead(ctx, s.list, func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, beginSnapshot); err != nil {
			return err
		}
		state, err := readLogState(ctx, c)
		if err != nil {
			return err
		}
		after, err := state.logRange(ctx, c).Start(q)
		if err != nil {
			return err
		}
		if page, err = state.page(ctx, c, q, after); err != nil {
			return err
		}
		return endSnapshot(ctx, c)
	})
	if err != nil {
		return plantstore.EventPage{}, err
	}
	return page, nil
}

// logRange returns what the transaction's snapshot has of the log.
func (s *logState) logRange(ctx context.Context, c querier) *plantstore.LogRange {
	return &plantstore.LogRange{
		Store: s.store, Trimmed: s.trimmed, Last: s.seq, TrimmedTime: s.trimmedTime,
		TimeOf: func(seq int64) (at int64, err error) {
			err = c.QueryRow(ctx, selectLogTime, seq).Scan(&at)
			return at, err
		},
	}
}

// page reads a page of events after a position.
func (s *logState) page(ctx context.Context, c *pgx.Conn, q plantstore.EventQuery, after plantstore.Position) (plantstore.EventPage, error) {
	limit := fetchSize
	if q.ID == nil && len(q.Types) == 0 { // one fetch has the page and the event after it
		limit = min(q.Limit, eventBudget) + 1
	}
	b := plantstore.NewEventPageBuilder(q, after.Cursor(), eventBudget)
	for last, more := after.Seq, true; more; {
		var err error
		if last, more, err = s.fetch(ctx, c, last, limit, b.Add); err != nil {
			return plantstore.EventPage{}, err
		}
	}
	return b.Page(), nil
}

// fetch calls f with up to limit events after an event, until f returns false. It
// returns the last one, and reports whether f wants more and there may be more.
func (s *logState) fetch(ctx context.Context, c *pgx.Conn, after int64, limit int, f func(plantstore.Event) bool) (last int64, more bool, err error) {
	rows, err := c.Query(ctx, selectLog, after, limit)
	if err != nil {
		return after, false, err
	}
	defer rows.Close()
	last = after
	for text := 0; rows.Next(); {
		e, seq, err := s.event(rows)
		if err != nil {
			return last, false, err
		}
		if seq != last+1 {
			return last, false, fmt.Errorf("row %d of the log follows row %d", seq, last)
		}
		last = seq
		text += e.TextSize()
		if !f(e) {
			closeUnlessShort(ctx, c, text, int(last-after), int(min(after+int64(limit), s.seq)-last))
			return last, false, nil
		}
	}
	return last, last == after+int64(limit), rows.Err()
}

func (s *logState) event(row pgx.Rows) (e plantstore.Event, seq int64, err error) {
	var at, id int64
	var kind int16
	var name string
	var tag *string
	if err := row.Scan(&seq, &at, &e.By, &kind, &id, &name, &tag); err != nil {
		return e, 0, err
	}
	e.Cursor = plantstore.Position{Store: s.store, Seq: seq, Time: at}.Cursor()
	e.Time, e.Type = time.UnixMicro(at).UTC(), eventTypes[kind]
	if kind >= tokenCreatedType {
		token, _, err := wire.DecodeToken([]byte(name))
		e.Token = &token
		return e, seq, err
	}
	e.Plant = plantOf(id, name, tag)
	return e, seq, nil
}

// Changed returns a channel that is closed when events may have been added: by this
// server immediately, by others when Run notices.
func (s *Store) Changed() <-chan struct{} { return s.changes.Changed() }

// pollInterval is how often the end of the log is polled while a client waits for
// changes that other servers make.
const pollInterval = 200 * time.Millisecond

// poll notifies those that wait for changes when the log has grown, until ctx ends.
func (s *Store) poll(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	last := int64(-1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !s.changes.HasWaiters() {
			last = -1
			continue
		}
		var end int64
		err := s.withConn(ctx, s.read, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, selectLogEnd).Scan(&end)
		})
		if err == nil && end != last {
			last = end
			s.changes.Notify()
		}
	}
}
