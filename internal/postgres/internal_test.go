package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
)

// started opens a store, connects it, and closes it when the test ends.
func started(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// on runs f with a connection that writes.
func on(t *testing.T, s *Store, f func(ctx context.Context, c *pgx.Conn) error) {
	t.Helper()
	if err := s.with(t.Context(), s.write, f); err != nil {
		t.Fatal(err)
	}
}

func show(t *testing.T, s *Store, query string, args ...any) (text string) {
	t.Helper()
	on(t, s, func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		text = strings.Join(lines, "\n")
		return err
	})
	return text
}

// TestTagIsFoundByItsIndex asks for the plan where a planner that counts on luck
// would go through all plants: one tag is on half of them, and one on none.
func TestTagIsFoundByItsIndex(t *testing.T) {
	s := started(t, pgtest.Fresh(t))
	plan := func() string { return show(t, s, "EXPLAIN "+selectTagged, 0, 1000, "common") }
	on(t, s, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "INSERT INTO plants SELECT i, 'fern', CASE WHEN i % 2 = 0 THEN 'common' END FROM generate_series(1, 20000) AS i")
		return err
	})
	for _, moment := range []string{"before", "after"} {
		got := plan()
		if !strings.Contains(got, "Index Scan using plants_by_tag") || strings.Contains(got, "Sort") {
			t.Errorf("%s ANALYZE:\n%s", moment, got)
		}
		on(t, s, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "ANALYZE plants")
			return err
		})
	}
}

// TestLateCommitIsFencedOff has an earlier try of a batch commit after all, when
// the next try is under way already.
func TestLateCommitIsFencedOff(t *testing.T) {
	s := started(t, pgtest.Fresh(t))
	fern := plantstore.Plant{ID: 1, Name: "fern"}
	if _, err := s.Apply(t.Context(), []plantstore.Write{{Op: plantstore.Create, Plant: fern}}); err != nil {
		t.Fatal(err)
	}
	batch := []plantstore.Write{{Op: plantstore.Delete, Plant: fern}}
	early, late := newWork(batch), newWork(batch)
	late.mark = early.mark
	on(t, s, early.transact)
	if _, err := s.Apply(t.Context(), []plantstore.Write{{Op: plantstore.Create, Plant: fern}}); err != nil {
		t.Fatal(err)
	}
	err := s.with(t.Context(), s.write, late.transact)
	if !errors.Is(err, errMoved) {
		t.Errorf("the late try: %v", err)
	}
	if _, err := s.Plant(t.Context(), 1); err != nil {
		t.Errorf("the late try has deleted another plant: %v", err)
	}
	late.unknown = true
	on(t, s, late.transact)
	if want := (plantstore.Result{Outcome: plantstore.Deleted}); late.results[0] != want {
		t.Errorf("asked again: %v", late.results[0])
	}
}

func TestCreatesLeaveNoResultsBehind(t *testing.T) {
	s := started(t, pgtest.Fresh(t))
	for range 2 {
		if _, err := s.Apply(t.Context(), []plantstore.Write{{Plant: plantstore.Plant{ID: 1}}}); err != nil {
			t.Fatal(err)
		}
	}
	// The second create found the first, which takes a transaction.
	if got := show(t, s, "SELECT count(*)::text FROM batches"); got != "1" {
		t.Errorf("%s batches left results", got)
	}
}

func TestOldResultsAreForgotten(t *testing.T) {
	s := started(t, pgtest.Fresh(t))
	on(t, s, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `INSERT INTO batches (id, results, at) VALUES
			('00000000-0000-0000-0000-000000000001', '{0}', now() - interval '11 minutes'),
			('00000000-0000-0000-0000-000000000002', '{0}', now() - interval '9 minutes')`)
		return err
	})
	if err := s.forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := show(t, s, "SELECT id::text FROM batches"); !strings.HasSuffix(got, "2") || strings.Contains(got, "\n") {
		t.Errorf("left are:\n%s", got)
	}
}

// TestCommitsAreNeverAsynchronous also says that what a commit is to wait for,
// beyond the disk, is not the store's business.
func TestCommitsAreNeverAsynchronous(t *testing.T) {
	url := pgtest.Fresh(t)
	for setting, want := range map[string]string{"off": "on", "on": "on", "local": "local", "remote_apply": "remote_apply"} {
		s := started(t, url+"&synchronous_commit="+setting)
		if got := show(t, s, "SHOW synchronous_commit"); got != want {
			t.Errorf("synchronous_commit=%s has become %s, want %s", setting, got, want)
		}
	}
}

// TestReadOnlyConnectionsAreLeft has all connections of a store refuse writes, as
// those to a server do that has become a standby, while new ones take them.
func TestReadOnlyConnectionsAreLeft(t *testing.T) {
	s := started(t, pgtest.Fresh(t))
	readOnly := func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SET default_transaction_read_only = on")
		return err
	}
	on(t, s, func(ctx context.Context, c *pgx.Conn) error { // two at once
		return errors.Join(readOnly(ctx, c), s.with(ctx, s.write, readOnly))
	})
	batch := []plantstore.Write{{Op: plantstore.Delete}}
	if _, err := s.Apply(t.Context(), batch); !errors.Is(err, plantstore.ErrRetry) {
		t.Errorf("Apply on a connection that takes no writes: %v", err)
	}
	if _, err := s.Apply(t.Context(), batch); err != nil {
		t.Errorf("Apply again: %v", err)
	}
}

// TestScansGiveTheirConnectionsBack breaks scans off, and cancels them, many more
// than there are connections.
func TestScansGiveTheirConnectionsBack(t *testing.T) {
	s := started(t, pgtest.Fresh(t))
	on(t, s, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "INSERT INTO plants SELECT i, 'fern' FROM generate_series(1, 5000) AS i")
		return err
	})
	for i := range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		for _, err := range s.Scan(ctx, plantstore.Query{}) {
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
	// A connection that was cancelled takes its time to close.
	for deadline := time.Now().Add(10 * time.Second); s.read.Stat().AcquiredConns() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are not given back", s.read.Stat().AcquiredConns())
		}
	}
	n := 0
	for _, err := range s.Scan(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 5000 {
		t.Errorf("a scan yields %d plants", n)
	}
}

func TestSearchIsBounded(t *testing.T) {
	s := started(t, pgtest.Fresh(t))
	const n = searchBudget + 10
	on(t, s, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, fmt.Sprintf("INSERT INTO plants SELECT i, 'fern' FROM generate_series(1, %d) AS i", n))
		return err
	})
	page, err := s.List(t.Context(), plantstore.Query{Contains: "rose", Limit: 10})
	if err != nil || len(page.Plants) > 0 || page.Next == nil || *page.Next != searchBudget {
		t.Fatalf("a search for what is not there: %v, %v", page, err)
	}
	page, err = s.List(t.Context(), plantstore.Query{Contains: "rose", Limit: 10, After: page.Next})
	if err != nil || len(page.Plants) > 0 || page.Next != nil {
		t.Fatalf("the rest of it: %v, %v", page, err)
	}
}

func TestPauseGrowsToItsBound(t *testing.T) {
	p := pause{time.Microsecond, 5 * time.Microsecond}
	for _, want := range []time.Duration{2, 4, 5, 5} {
		if !p.wait(t.Context()) || p.next != want*time.Microsecond {
			t.Errorf("the next pause is %s, want %d µs", p.next, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	forever := pause{time.Hour, time.Hour}
	if forever.wait(ctx) {
		t.Error("a pause outlasts its context")
	}
}
