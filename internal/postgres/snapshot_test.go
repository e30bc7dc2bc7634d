package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
)

// holdSnapshot keeps a transaction open until the test ends, so that PostgreSQL removes nothing
// that was visible at its start.
func holdSnapshot(t *testing.T, url string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	if _, err := c.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT"); err != nil {
		t.Fatal(err)
	}
}

// A batch rewrites no row that another batch reads.
func TestBatchesRewriteNothing(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	state := func() []string {
		return query(t, url, "SELECT concat_ws(' ', xmin, ctid) FROM log_state UNION ALL SELECT concat_ws(' ', xmin, ctid) FROM log_start")
	}
	before := state()
	apply(t, s, create(plant(1, "fern")))
	apply(t, s, create(plant(2, "fern")), create(plant(3, "fern")))
	apply(t, s, create(plant(3, "fern")), replace(plant(2, "rose"), nil), remove(1))
	if err := s.CreateToken(t.Context(), token("ci"), plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Fatal(err)
	}
	if after := state(); !slices.Equal(after, before) {
		t.Errorf("the versions of the rows are %s, and were %s", after, before)
	}
}

// While a transaction stays open, no statement walks over what was trimmed or rewritten since: it
// reads about as many blocks as before.
func TestOpenTransactionSlowsNothingDown(t *testing.T) {
	const rows, maxBlocks = 20_000, 60
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	holdSnapshot(t, url)
	fillLog(t, url, rows, "'fern'")
	s.KeepLog(time.Nanosecond, 0)
	for range 200 { // versions of log_start
		s.trimSize = rows / 200
		if _, err := s.trim(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	positions, types := []int64{rows}, []int64{1 << 1}
	bounds := []int64{0, time.Now().UnixMicro()}
	for _, empty := range []bool{true, false} {
		for what, statement := range map[string]struct {
			sql  string
			args []any
		}{
			"state":     {selectLogState, nil},
			"stats":     {selectStats, nil},
			"oldest":    {"SELECT time FROM log WHERE first > (SELECT trimmed FROM log_end()) ORDER BY first LIMIT 1", nil},
			"page":      {selectLog, []any{rows + 1, 100}},
			"newest":    {selectNewest, []any{rows + 1, 100, rows + 1}},
			"backlogs":  {selectBacklogs, []any{positions, types, plantstore.MaxPending}},
			"histogram": {selectBounds, []any{bounds}},
			"trimmer":   {lockTrimmer, []any{time.Now().UnixMicro(), int64(1) << 40}},
			"create":    {createPlants, []any{[]int64{1}, []string{"fern"}, []*string{nil}, nil, []string{"x"}, 0}},
			"append":    {appendLog, []any{[]string{"x"}, []int16{4}, []int64{0}, []string{"{}"}, []*string{nil}, nil, nil, 0, 1, nil}},
		} {
			if empty && (what == "page" || what == "create") {
				continue // the one is not read, and the other finds the end at most once after each trim
			}
			withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
				var b pgx.Batch
				b.Queue(beginWrite)
				b.Queue(orderSettings)
				var plan string
				for range 2 { // the first call plans, and reads catalogs
					b.Queue("SAVEPOINT before")
					b.Queue("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) "+statement.sql, statement.args...).Query(func(r pgx.Rows) error {
						lines, err := pgx.CollectRows(r, pgx.RowTo[string])
						plan = strings.Join(lines, "\n")
						return err
					})
					b.Queue("ROLLBACK TO before")
				}
				b.Queue("ROLLBACK")
				if err := c.SendBatch(ctx, &b).Close(); err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				hit, read := 0, 0
				_, buffers, _ := strings.Cut(plan, "Buffers: shared ")
				if n, _ := fmt.Sscanf(buffers, "hit=%d read=%d", &hit, &read); n == 0 {
					return fmt.Errorf("%s: no blocks in\n%s", what, plan)
				}
				if hit+read > maxBlocks {
					t.Errorf("%s of a log that is empty: %t: %d blocks were read:\n%s", what, empty, hit+read, plan)
				}
				return nil
			})
		}
		apply(t, s, create(plant(2, "fern")))
	}
}

// A role whose transactions have one snapshot may write: what follows an end of the log that it
// does not see fails, and is repeated.
func TestCreatesWithOneSnapshot(t *testing.T) {
	const writers, writes = 4, 50
	for _, level := range []string{"repeatable read", "serializable"} {
		fresh := pgtest.Fresh(t)
		isolated := fresh + "&default_transaction_isolation=" + url.PathEscape(level)
		stores := []*Store{openReady(t, isolated), openReady(t, isolated)}
		inParallel(t, writers, func(w int) error {
			for i := range writes {
				id := plantstore.ID(2 * (w*writes + i))
				if _, err := applyRetrying(t.Context(), stores[w%2], []plantstore.Write{create(plant(id, "fern")), create(plant(id+1, "fern"))}[:1+i%2]); err != nil {
					return err
				}
			}
			return nil
		})
		if got := query(t, fresh, "SELECT seq || ' ' || plants FROM log_end()")[0]; got != "300 300" {
			t.Errorf("%s: the log ends with event and plants %s, want 300 300", level, got)
		}
		wantProblems(t, stores[0])
	}
}

// A create whose snapshot is older than the end of the log does not take the number of another.
func TestCreateWithAnOldSnapshotFails(t *testing.T) {
	fresh := pgtest.Fresh(t)
	s := openReady(t, fresh)
	apply(t, s, create(plant(1, "fern")))
	withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM log_state")
		apply(t, s, create(plant(2, "fern")))
		_, failed := c.Exec(ctx, createPlants, []int64{3}, []string{"fern"}, []*string{nil}, nil, []string{"x"}, 0)
		if sqlState(failed) != uniqueViolation {
			t.Errorf("a create with an old snapshot: %v", failed)
		}
		_, ended := c.Exec(ctx, "ROLLBACK")
		return errors.Join(err, ended)
	})
	wantProblems(t, s)
}
