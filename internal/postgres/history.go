package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

// plantEvents are the events of a plant in a snapshot. Each leads to the one before it, and the
// plant, if it exists, to the last.
type plantEvents struct {
	ctx  context.Context
	conn *pgx.Conn
	log  *logState
	id   plantstore.ID
}

const (
	// selectPrevious is the number of the event of the plant $1 before its event seq.
	selectPrevious = `coalesce(
			(SELECT prev[seq - first + 1] FROM (SELECT first, prev FROM log WHERE first <= seq ORDER BY first DESC LIMIT 1) AS found),
			(SELECT unlinked.seq FROM unlinked_events AS unlinked WHERE id = $1 AND unlinked.seq < chain.seq ORDER BY unlinked.seq DESC LIMIT 1)
		)`
	// selectNumbers has the numbers of up to $4 events of the plant $1, the newest first, from $3 on:
	// those before $2, if that is one of the plant's.
	selectNumbers = `WITH RECURSIVE start (seq) AS (
			SELECT $2::bigint FROM (SELECT first, id, type FROM log WHERE first <= $2 ORDER BY first DESC LIMIT 1) AS found
			WHERE id[$2 - first + 1] = $1 AND type[$2 - first + 1] BETWEEN 1 AND 3
		), chain (seq) AS (
			SELECT CASE WHEN EXISTS (SELECT FROM start) THEN (SELECT ` + selectPrevious + ` FROM start AS chain)
				ELSE coalesce(
					(SELECT first + n FROM stored_plants JOIN log ON time = updated AND total_bytes IS NOT NULL WHERE stored_plants.id = $1),
					(SELECT unlinked.seq FROM unlinked_events AS unlinked WHERE id = $1 ORDER BY unlinked.seq DESC LIMIT 1)
				) END
			UNION ALL
			SELECT ` + selectPrevious + ` FROM chain WHERE seq >= $3
		)
		SELECT seq FROM chain WHERE seq >= $3 LIMIT $4`
	// selectNumbered has the events with the numbers $1, in that order: for each, its row of the log is
	// looked up.
	selectNumbered = `SELECT seq, first, time, "by"[i], type[i], id[i], name[i], tag[i]
		FROM unnest($1::bigint[]) AS wanted (seq)
		CROSS JOIN LATERAL (SELECT *, seq - first + 1 AS i FROM log WHERE first <= seq ORDER BY first DESC LIMIT 1) AS found`
)

// Numbers is that of [rules.PlantEvents].
func (p *plantEvents) Numbers(before, low int64, most int) (numbers []int64, more bool, err error) {
	for seq, err := range inOrder(p.ctx, p.conn, pgx.RowTo[int64], selectNumbers, int64(p.id), before, low, most+1) {
		if err != nil {
			return nil, false, err
		}
		numbers = append(numbers, seq)
	}
	if more = len(numbers) > most; more {
		numbers = numbers[:most]
	}
	return numbers, more, nil
}

// Each is that of [rules.PlantEvents].
func (p *plantEvents) Each(numbers []int64, f func(plantstore.Event) bool) error {
	found := 0
	for r, err := range inOrder(p.ctx, p.conn, rowNumbered, selectNumbered, numbers) {
		var e plantstore.Event
		if err == nil && r.first == numbers[found] {
			e, err = p.log.event(r, 0)
		}
		if err == nil && (r.first != numbers[found] || e.Plant.ID != p.id || !e.Type.OfPlant()) {
			err = fmt.Errorf("the log has %s %d where event %d of plant %d is next", e.Type, r.first, numbers[found], p.id)
		}
		if err != nil || !f(e) {
			return err
		}
		found++
	}
	if found < len(numbers) {
		return fmt.Errorf("the log has no event %d", numbers[found])
	}
	return nil
}

// rowNumbered returns the part of a row of the log that is an event.
func rowNumbered(row pgx.CollectableRow) (segment, error) {
	var first int64
	r := segment{by: make([]string, 1), types: make([]int16, 1), ids: make([]int64, 1), names: make([]string, 1), tags: make([]*string, 1)}
	err := row.Scan(&r.first, &first, &r.time, &r.by[0], &r.types[0], &r.ids[0], &r.names[0], &r.tags[0])
	r.skipped = r.first - first
	return r, err
}

// selectMisled has what is wrong with the history of plants: an event that leads to another than the
// one before it, an event that unlinked_events should have, and a plant that does not lead to its last event.
const selectMisled = `WITH log_ends AS MATERIALIZED (SELECT trimmed, trimmed_time, linked_after FROM log_end(), log_state),
		e AS MATERIALIZED (
			SELECT e.id, first + i - 1 AS seq, time, i - 1 AS n, e.type, e.prev,
				lag(first + i - 1) OVER history AS before, lead(i) OVER history IS NULL AS is_last, e.type = 3 OR first <= linked_after AS is_unlinked
			FROM log_ends, log, unnest(log.type, log.id, log.prev) WITH ORDINALITY AS e (type, id, prev, i)
			WHERE e.type BETWEEN 1 AND 3 AND first > trimmed
			WINDOW history AS (PARTITION BY e.id ORDER BY first + i - 1)
		), leads AS (
			SELECT id, seq, before, coalesce(prev, (SELECT u.seq FROM unlinked_events AS u WHERE u.id = e.id AND u.seq < e.seq ORDER BY u.seq DESC LIMIT 1)) AS found FROM e
		)
		SELECT format('event %s of plant %s leads to %s, but the one before it is %s', seq, id, coalesce(found::text, 'none'), coalesce(before::text, 'none'))
		FROM leads, log_ends WHERE before IS DISTINCT FROM CASE WHEN found > trimmed THEN found END
		UNION ALL
		SELECT format('event %s of plant %s is not in unlinked_events', seq, id)
		FROM e WHERE is_unlinked AND NOT EXISTS (SELECT FROM unlinked_events AS u WHERE u.id = e.id AND u.seq = e.seq)
		UNION ALL
		SELECT format('rows of unlinked_events: %s, events that it should have: %s', found, want)
		FROM (SELECT (SELECT count(*) FROM unlinked_events) AS found, (SELECT count(*) FROM e WHERE is_unlinked) AS want) AS counts WHERE found <> want
		UNION ALL
		SELECT format('plant %s does not have the version of its last event, %s', id, seq)
		FROM stored_plants AS plants JOIN e USING (id)
		WHERE is_last AND CASE WHEN updated = 0 THEN NOT is_unlinked ELSE (updated, plants.n) <> (time, e.n) END
		UNION ALL
		SELECT format('plant %s has a version that is not in the log', id)
		FROM stored_plants AS plants, log_ends WHERE updated > trimmed_time AND NOT EXISTS (SELECT FROM e WHERE e.id = plants.id)
		LIMIT $1`

// checkHistory checks whether each event of a plant leads to the one before it, and each plant to its last
// event. If anything else is wrong with them, that is why they do not.
func (p *problems) checkHistory(ctx context.Context, c *pgx.Conn) error {
	if len(*p) > 0 {
		return nil
	}
	rows, _ := c.Query(ctx, selectMisled, maxProblems+1) // ForEachRow returns the error
	var problem string
	_, err := pgx.ForEachRow(rows, []any{&problem}, func() error { p.add("%s", problem); return nil })
	return err
}
