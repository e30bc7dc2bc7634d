package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
)

// openReady opens a store, connects it, and closes it when the test ends.
func openReady(t *testing.T, url string) *Store {
	t.Helper()
	s := openStore(t, url)
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// withWriteConn runs f with a connection that writes.
func withWriteConn(t *testing.T, s *Store, f func(ctx context.Context, c *pgx.Conn) error) {
	t.Helper()
	if err := s.withPooledConn(t.Context(), s.write, f); err != nil {
		t.Fatal(err)
	}
}

// queryText returns the rows of a query in order with one text column, a line each.
func queryText(t *testing.T, s *Store, query string, args ...any) (text string) {
	t.Helper()
	withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
		var lines []string
		for line, err := range inOrder(ctx, c, pgx.RowTo[string], query, args...) {
			if err != nil {
				return err
			}
			lines = append(lines, line)
		}
		text = strings.Join(lines, "\n")
		return nil
	})
	return text
}

// TestTagQueryUsesItsIndex checks the query plan for a tag that half of the plants
// have, where an optimistic planner would go through all of them.
func TestTagQueryUsesItsIndex(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t))
	queries := func() map[string]string {
		plans := map[string]string{}
		for order, r := range map[string]*strings.Replacer{"": ascending, " backwards": descending} {
			plans["one tag"+order] = queryText(t, s, "EXPLAIN SELECT id, name, tag"+r.Replace(selectTagged), 0, 1000, "common")
			plans["any tag"+order] = queryText(t, s, "EXPLAIN SELECT id, name, tag"+r.Replace(selectAnyTagged), 0, 1000, []string{"common", "rare"})
		}
		plans["prefix"] = queryText(t, s, "EXPLAIN "+selectTaggedFrom, "com", "con", 1000)
		return plans
	}
	withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "INSERT INTO stored_plants SELECT i, 'fern', CASE WHEN i % 2 = 0 THEN 'common' END FROM generate_series(1, 20000) AS i")
		return err
	})
	for _, moment := range []string{"before", "after"} {
		for what, got := range queries() {
			// The plants of several tags are sorted, as many as are fetched.
			sorts := strings.Contains(got, "Sort") && !strings.HasPrefix(what, "any tag")
			if !regexp.MustCompile(`Index (Only )?Scan (Backward )?using plants_by_tag`).MatchString(got) || sorts || strings.Contains(got, "Seq Scan") {
				t.Errorf("%s, %s ANALYZE:\n%s", what, moment, got)
			}
		}
		withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "ANALYZE stored_plants")
			return err
		})
	}
}

func TestTokenIsFoundByItsIDInTheIndex(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t))
	withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `INSERT INTO stored_tokens (hash, name, scopes, created)
			SELECT sha256(i::text::bytea), i, 'plants:read', 0 FROM generate_series(1, 20000) AS i`)
		return err
	})
	least, greatest, _ := plantstore.HashesWithID("0123456789ab")
	for _, moment := range []string{"before", "after"} {
		if got := queryText(t, s, "EXPLAIN "+selectWithID, least[:], greatest[:]); !strings.Contains(got, "Index Cond: ((hash >=") {
			t.Errorf("%s ANALYZE:\n%s", moment, got)
		}
		withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "ANALYZE stored_tokens")
			return err
		})
	}
}

// TestLateCommitIsFencedOff has an earlier attempt at a batch commit after all, when
// the next attempt is already in progress.
func TestLateCommitIsFencedOff(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t))
	fern := plantstore.Plant{ID: 1, Name: "fern"}
	if _, err := s.Apply(t.Context(), []plantstore.Write{{Op: plantstore.Create, Plant: fern}}); err != nil {
		t.Fatal(err)
	}
	batch := []plantstore.Write{{Op: plantstore.Delete, Plant: fern}}
	early, late := newPlan(batch, 0), newPlan(batch, 0)
	late.batchID = early.batchID
	withWriteConn(t, s, early.transact)
	if _, err := s.Apply(t.Context(), []plantstore.Write{{Op: plantstore.Create, Plant: fern}}); err != nil {
		t.Fatal(err)
	}
	err := s.withPooledConn(t.Context(), s.write, late.transact)
	if !errors.Is(err, errConflict) {
		t.Errorf("the late attempt: %v, want errConflict", err)
	}
	if _, err := s.Plant(t.Context(), 1); err != nil {
		t.Errorf("the late attempt deleted the new plant: %v", err)
	}
	late.attempts = early.attempts
	withWriteConn(t, s, late.transact)
	if want := (plantstore.Result{Outcome: plantstore.Deleted}); late.results[0].Outcome != want.Outcome || late.results[0].Err != nil {
		t.Errorf("the fetched result is %v, want %v", late.results[0], want)
	}
}

func TestCreatesStoreNoResults(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t))
	for range 2 {
		if _, err := s.Apply(t.Context(), []plantstore.Write{{Plant: plantstore.Plant{ID: 1}}}); err != nil {
			t.Fatal(err)
		}
	}
	// The second create finds the first one's plant, which takes a transaction with
	// results.
	if got := queryText(t, s, "SELECT count(*)::text FROM batches"); got != "1" {
		t.Errorf("%s batches stored results, want 1", got)
	}
}

func TestOldResultsArePruned(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t))
	withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `INSERT INTO batches (id, attempt, at) VALUES
			('00000000-0000-0000-0000-000000000001', 0, now() - interval '11 minutes'),
			('00000000-0000-0000-0000-000000000002', 0, now() - interval '9 minutes')`)
		return err
	})
	if err := s.pruneResults(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := queryText(t, s, "SELECT id::text FROM batches"); !strings.HasSuffix(got, "2") || strings.Contains(got, "\n") {
		t.Errorf("the remaining batches are:\n%s", got)
	}
}

// TestCommitsAreNeverAsynchronous also checks that the store leaves the other levels
// of synchronous_commit alone.
func TestCommitsAreNeverAsynchronous(t *testing.T) {
	url := pgtest.Fresh(t)
	for setting, want := range map[string]string{"off": "on", "on": "on", "local": "local", "remote_apply": "remote_apply"} {
		s := openReady(t, url+"&synchronous_commit="+setting)
		withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
			for what, begin := range map[string]func(*pgx.Batch){
				"a transaction": func(b *pgx.Batch) { queueBegin(b) },
				"a create": func(b *pgx.Batch) {
					b.Queue("BEGIN")
					b.Queue(createPlants, []int64{rand.Int64()}, []string{"fern"}, []*string{nil}, nil, []string{""}, 0)
				},
			} {
				var got string
				var b pgx.Batch
				begin(&b)
				b.Queue("SHOW synchronous_commit").QueryRow(func(row pgx.Row) error { return row.Scan(&got) })
				b.Queue("COMMIT")
				if err := c.SendBatch(ctx, &b).Close(); err != nil {
					return err
				}
				if got != want {
					t.Errorf("%s: synchronous_commit=%s became %s, want %s", what, setting, got, want)
				}
			}
			return nil
		})
	}
}

// Each would take a second, because its plan has a sort.
func TestStatementsAreNotCompiled(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t)+"&jit=on")
	if got := queryText(t, s, "SHOW jit"); got != "off" {
		t.Errorf("jit is %s", got)
	}
}

// TestReadOnlyConnectionsAreDropped has all connections of a store refuse writes, as
// if their server had become a standby, while new ones accept them.
func TestReadOnlyConnectionsAreDropped(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t))
	readOnly := func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SET default_transaction_read_only = on")
		return err
	}
	withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error { // two connections at once
		return errors.Join(readOnly(ctx, c), s.withPooledConn(ctx, s.write, readOnly))
	})
	batch := []plantstore.Write{{Op: plantstore.Delete}}
	if _, err := s.Apply(t.Context(), batch); !errors.Is(err, plantstore.ErrRetry) {
		t.Errorf("Apply on a read-only connection: %v", err)
	}
	if _, err := s.Apply(t.Context(), batch); err != nil {
		t.Errorf("Apply again: %v", err)
	}
}

// TestScansReleaseTheirConnections abandons and cancels many more scans than there
// are connections.
func TestScansReleaseTheirConnections(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t))
	withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "INSERT INTO stored_plants SELECT i, 'fern' FROM generate_series(1, 5000) AS i")
		return err
	})
	for i := range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		for _, err := range s.Scan(ctx, plantstore.Query{}, nil) {
			n++
			if n == 2500 && i%2 == 0 {
				break
			}
			if n == 2500 {
				cancel()
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		cancel()
	}
	// A cancelled connection takes a moment to close.
	testenv.WaitFor(t, "all connections to be released", func() bool { return s.conns.Stat().AcquiredConns() == 0 })
	n := 0
	for _, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 5000 {
		t.Errorf("a scan yields %d plants, want 5000", n)
	}
}

// Whatever takes long, what is short finds a connection. A store has at least one for each pool.
func TestNoPoolWaitsForAnother(t *testing.T) {
	for _, connections := range []int{0, minConnections} {
		url := pgtest.Fresh(t)
		s := mustOpenWith(t, url, Options{Connections: connections})
		t.Cleanup(func() { s.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Timeout)
		defer cancel()
		tk := token("ci")
		for i, busy := range []*pool{nil, s.export, s.list, s.lookups} {
			if busy != nil {
				occupy(t, s, busy)
			}
			id := plantstore.ID(i)
			apply(t, s, create(plant(id, "fern")))
			for what, call := range map[*pool]func() error{
				s.lookups: func() error {
					_, err := s.Plant(ctx, id)
					_, failed := s.ActiveTokens(ctx, tk.Created)
					return errors.Join(err, failed, s.Ready(ctx))
				},
				s.list: func() error {
					_, err := s.List(ctx, plantstore.Query{Limit: 10})
					return err
				},
				s.export: func() error {
					for _, err := range s.Scan(ctx, plantstore.Query{}, nil) {
						return err
					}
					return nil
				},
			} {
				if len(what.inUse) == cap(what.inUse) {
					continue
				}
				if err := call(); err != nil {
					t.Errorf("%d connections, pool %s: %v", connections, what.name, err)
				}
			}
		}
		if got, want := s.Connections(), cmp.Or(connections, defaultConnections); got > want {
			t.Errorf("%d connections are open, want at most %d", got, want)
		}
	}
}

func TestWaitsForAPoolAreCounted(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t))
	var held []*pgxpool.Conn
	for range cap(s.lookups.inUse) {
		c, err := s.acquire(t.Context(), s.lookups)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	ready := make(chan error, 1)
	go func() { ready <- s.Ready(t.Context()) }()
	testenv.WaitFor(t, "a wait", func() bool { return s.Pools()[1].Waits == 1 })
	for _, c := range held {
		s.release(c, s.lookups)
	}
	if err := <-ready; err != nil {
		t.Error(err)
	}
	if got := s.Pools()[1]; got.Name != "read" || got.InUse != 0 || got.Max != 4 || got.Waited <= 0 {
		t.Errorf("the pool is %+v", got)
	}
}

// occupy acquires all connections of a pool until the test ends.
func occupy(t *testing.T, s *Store, p *pool) {
	t.Helper()
	for range cap(p.inUse) {
		c, err := s.acquire(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.release(c, p) })
	}
}

func TestSearchIsBounded(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t))
	const n = searchBudget + 10
	withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, fmt.Sprintf("INSERT INTO stored_plants SELECT i, 'fern' FROM generate_series(1, %d) AS i", n))
		return err
	})
	page, err := s.List(t.Context(), plantstore.Query{Contains: "rose", Limit: 10})
	if err != nil || len(page.Plants) > 0 || page.Next == nil || *page.Next != searchBudget {
		t.Fatalf("a search without matches: %v, %v", page, err)
	}
	page, err = s.List(t.Context(), plantstore.Query{Contains: "rose", Limit: 10, After: page.Next})
	if err != nil || len(page.Plants) > 0 || page.Next != nil {
		t.Fatalf("its last page: %v, %v", page, err)
	}
}

// A call takes too long between two of its statements. It is unavailable, like one that waits
// for a statement.
func TestCallThatTakesTooLongBetweenStatements(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t))
	err := s.withConn(t.Context(), s.list, time.Second, func(ctx context.Context, c *pgx.Conn) error {
		return inSnapshot(ctx, c, func() error {
			<-ctx.Done()
			_, err := c.Exec(ctx, "SELECT 1")
			return err
		})
	})
	if !errors.Is(err, plantstore.ErrUnavailable) || !errors.Is(err, plantstore.ErrRetry) {
		t.Errorf("got %v, want %v", err, plantstore.ErrUnavailable)
	}
}
