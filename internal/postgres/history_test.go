package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
)

// A planner that expects few events, or few of a plant, must not read all of them either.
func TestHistoryIsReadByIndexes(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	const n = 30_000
	query(t, url, fmt.Sprintf(`INSERT INTO log (first, time, "by", type, id, name, tag, prev, bytes, plants, total_bytes)
		SELECT i, i, '{x}', '{2}', '{1}', '{fern}', '{NULL}', ARRAY[i - 1], 0, 1, 0 FROM generate_series(1, %d) AS i`, n))
	query(t, url, fmt.Sprintf("INSERT INTO stored_plants (id, name, updated) SELECT i, 'fern', i FROM generate_series(1, %d) AS i", n))
	query(t, url, fmt.Sprintf("INSERT INTO unlinked_events SELECT i, i FROM generate_series(1, %d) AS i", n))
	for _, moment := range []string{"before", "after"} {
		for what, plan := range map[string]string{
			"the numbers": queryText(t, s, "EXPLAIN "+selectNumbers, 1, 500, 1, 100),
			"the events":  queryText(t, s, "EXPLAIN "+selectNumbered, []int64{5, 3, 1}),
		} {
			for _, bad := range []string{"Seq Scan", "Sort", "Hash", "Merge", "Bitmap"} {
				if strings.Contains(plan, bad) {
					t.Errorf("%s, %s ANALYZE: %s in\n%s", what, moment, bad, plan)
				}
			}
		}
		withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
			return inTransaction(ctx, c, func() error {
				rows, _ := c.Query(ctx, "EXPLAIN "+trimOldest, 0, 1<<40, maxTrim)
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if plan := strings.Join(lines, "\n"); !strings.Contains(plan, "unlinked_events_pkey") || strings.Contains(plan, "Seq Scan on unlinked_events") {
					t.Errorf("trimming, %s ANALYZE:\n%s", moment, plan)
				}
				return err
			}, byIndex)
		})
		query(t, url, "ANALYZE")
	}
}

// A row of a large batch is read for one of its events: no other event is sent.
func TestHistoryIsPagedByItsText(t *testing.T) {
	url := pgtest.Fresh(t)
	proxy, proxied := newProxy(t, addr(url), url)
	s := openReady(t, proxied)
	large := strings.Repeat("x", 1<<20)
	for i := range 8 {
		var batch []plantstore.Write
		for id := range plantstore.ID(3) {
			batch = append(batch, replace(plant(id, fmt.Sprint(large, i)), nil))
		}
		apply(t, s, batch...)
	}
	one := plantstore.ID(1)
	for _, newest := range []bool{false, true} {
		before := proxy.received.Load()
		page, err := s.Events(t.Context(), plantstore.EventQuery{ID: &one, Newest: newest, Limit: 1000})
		if err != nil || len(page.Events) != 4 || !page.More {
			t.Errorf("newest: %t: %d events, more: %t, %v", newest, len(page.Events), page.More, err)
		}
		if got := proxy.received.Load() - before; got > 20<<20 {
			t.Errorf("newest: %t: the server sent %d MiB", newest, got>>20)
		}
	}
}
