package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

// maxProblems is how many problems Check returns, at most.
const maxProblems = 100

// The statements of a check. PostgreSQL sorts and joins, on its disk if it must.
const (
	selectSize = `SELECT coalesce(sum(bytes), 0)::bigint FROM log`
	// countPlants reads all texts.
	countPlants = `SELECT count(*), sum(length(name) + coalesce(length(tag), 0)) FROM stored_plants`
	selectWhole = `SELECT first, time, "by", type, id, name, tag FROM log ORDER BY first`
	// selectContradicted has the plants that are not what their last event says. The
	// hashes keep what is sorted small.
	selectContradicted = `WITH last AS (
			SELECT DISTINCT ON (id) id, seq, type, hashtextextended(name, 0) AS name, hashtextextended(tag, 0) AS tag
			FROM events WHERE type BETWEEN 1 AND 3 ORDER BY id, seq DESC
		)
		SELECT id, last.seq, last.type, plants.id IS NOT NULL FROM last LEFT JOIN stored_plants AS plants USING (id)
		WHERE CASE
			WHEN last.type = 3 THEN plants.id IS NOT NULL
			ELSE plants.id IS NULL OR hashtextextended(plants.name, 0) <> last.name OR hashtextextended(plants.tag, 0) IS DISTINCT FROM last.tag
		END LIMIT $1`
	// selectFolded has the plants whose names may be folded, or are.
	selectFolded = `SELECT id, name, folded, updated FROM stored_plants WHERE folded IS NOT NULL
		OR octet_length(name) <> char_length(name) AND octet_length(name) < $1`
	// countFound counts the plants that the whole index has. Where it has too few, nothing else may be read, and not
	// the other plants of a page either: so that the memory suffices to know each.
	countFound    = `SELECT (SELECT count(*) FROM stored_plants), (SELECT count(*) FROM stored_plants WHERE %s LIKE '%%')`
	countSettings = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_indexscan', 'off', true), set_config('work_mem', '1GB', true)`
)

// Check reads the whole store in one snapshot and returns what is wrong with it: a wrong
// number of plants, a log with a gap or a wrong size, a plant that is not what its last event
// says, an event that does not lead to the one before it, a folded name that is not that of the
// plant, an index of names that lacks plants, an event, a token or a webhook that cannot be read,
// or whatever PostgreSQL finds corrupt. Servers may use the store. Check itself changes nothing, but like every call it
// migrates a store that was not opened [Options.Alongside]. An error says that the check could
// not be done.
func (s *Store) Check(ctx context.Context) ([]string, error) {
	var found problems
	err := s.withConn(ctx, s.list, 0, func(ctx context.Context, c *pgx.Conn) error {
		err := inSnapshot(ctx, c, func() error { return found.check(ctx, c) })
		if strings.HasPrefix(sqlState(err), "XX") { // corrupt data
			found.add("%v", err)
			return nil
		}
		return err
	})
	if len(found) > maxProblems {
		found = append(found[:maxProblems], "and more")
	}
	return found, err
}

func (p *problems) check(ctx context.Context, c *pgx.Conn) error {
	if _, err := c.Exec(ctx, "SET LOCAL statement_timeout = 0; SET LOCAL jit = off"); err != nil {
		return err
	}
	return cmp.Or(
		p.checkLog(ctx, c),
		p.checkHistory(ctx, c),
		p.checkNames(ctx, c),
		checkRows(ctx, c, p, selectTokens, rowToken),
		checkRows(ctx, c, p, selectWebhooks, rowWebhook),
		checkRows(ctx, c, p, "SELECT webhook, value FROM deliveries", rowDeliveries),
	)
}

// problems are what a check has found, one more than maxProblems at most.
type problems []string

func (p *problems) add(format string, args ...any) {
	if len(*p) <= maxProblems {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

// checkLog reads the whole log, and compares it with its own totals and with the plants.
func (p *problems) checkLog(ctx context.Context, c *pgx.Conn) error {
	state, err := readLogState(ctx, c)
	if errors.Is(err, errNoState) {
		p.add("%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	var size int64
	if err := c.QueryRow(ctx, selectSize).Scan(&size); err != nil {
		return err
	}
	if size != state.bytes {
		p.add("the log has %d bytes, but its rows say %d", size, state.bytes)
	}
	if err := p.checkEvents(ctx, c, &state); err != nil {
		return err
	}
	rows, _ := c.Query(ctx, selectContradicted, maxProblems+1) // ForEachRow returns the error
	var id, seq int64
	var number int16
	var exists bool
	_, err = pgx.ForEachRow(rows, []any{&id, &seq, &number, &exists}, func() error {
		kind := plantstore.EventTypeOf(int64(number))
		is := "has another name or tag"
		switch {
		case !exists:
			is = "does not exist"
		case kind == plantstore.PlantDeleted:
			is = "exists"
		}
		p.add("plant %d %s, but its last event, %d, is %s", id, is, seq, kind)
		return nil
	})
	if err != nil {
		return err
	}
	var plants int64
	if err := c.QueryRow(ctx, countPlants).Scan(&plants, nil); err != nil {
		return err
	}
	if plants != state.plants {
		p.add("the store has %d plants, but the log says %d", plants, state.plants)
	}
	return nil
}

// checkEvents decodes every event, and checks that none is missing.
func (p *problems) checkEvents(ctx context.Context, c *pgx.Conn, state *logState) error {
	rows, _ := c.Query(ctx, selectWhole) // Err returns the error
	defer rows.Close()
	last, at := state.Trimmed, state.TrimmedTime
	for rows.Next() {
		r, err := rowSegment(rows)
		if err != nil {
			p.add("%v", err)
			return nil // the rest cannot be read either
		}
		switch {
		case r.first > last+1:
			p.add("the log has no events %d to %d", last+1, r.first-1)
		case r.first <= last:
			p.add("the log has event %d again, after %d", r.first, last)
		}
		if r.time < at {
			p.add("event %d is earlier than the one before", r.first)
		}
		for i := range r.ids {
			if _, err := state.event(r, i); err != nil {
				p.add("%v", err)
			}
		}
		last, at = r.first+int64(len(r.ids))-1, r.time
	}
	return rows.Err()
}

// checkNames compares the folded names with the names, and counts the plants in the index. It does not compare what
// the index has of each.
func (p *problems) checkNames(ctx context.Context, c *pgx.Conn) error {
	ready, err := canSearch(ctx, c)
	if err != nil {
		return err
	}
	var f folder
	rows, _ := c.Query(ctx, selectFolded, maxIndexedName) // ForEachRow returns the error
	var id, updated int64
	var name string
	var found *string
	_, err = pgx.ForEachRow(rows, []any{&id, &name, &found, &updated}, func() error {
		want := f.folded(name, unescape(name))
		missing := found == nil && updated == 0 && !ready // a plant of release 0.2.0, before the index is built
		if !missing && (found == nil) != (want == nil) || found != nil && want != nil && *found != *want {
			p.add("plant %d has another folded name than its own", id)
		}
		return nil
	})
	if err != nil || !ready {
		return err
	}
	var plants, indexed int64
	if _, err := c.Exec(ctx, countSettings); err != nil {
		return err
	}
	if err := c.QueryRow(ctx, fmt.Sprintf(countFound, indexedText)).Scan(&plants, &indexed); err != nil {
		return err
	}
	if indexed != plants {
		p.add("the index of names has %d of %d plants: start a server with --search-index off, and then build it again", indexed, plants)
	}
	return nil
}

// checkRows decodes every row of a query. Its errors are problems.
func checkRows[T any](ctx context.Context, c *pgx.Conn, p *problems, query string, decode pgx.RowToFunc[T]) error {
	rows, _ := c.Query(ctx, query) // Err returns the error
	defer rows.Close()
	for rows.Next() {
		if _, err := decode(rows); err != nil {
			p.add("%v", err)
		}
	}
	return rows.Err()
}
