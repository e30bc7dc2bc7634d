package postgres

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/storetest"
	"plantstore/internal/testenv"
)

// trimAll trims until there is nothing more to trim.
func trimAll(t *testing.T, s *Store) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = s.trim(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTrimmedLog(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t))
	const limit = 4000
	s.KeepLog(0, limit)
	storetest.CheckTrim(t, s, func() {
		trimAll(t, s)
		wantProblems(t, s) // and what leads to events that are trimmed is gone
	})
	stats, err := s.Stats(t.Context())
	if err != nil || stats.Events == 0 || stats.Events > 40 || stats.LastSeq < 100 || stats.Bytes > limit || time.Since(stats.Oldest) > time.Hour {
		t.Errorf("%+v, %v", stats, err)
	}
}

// What is old by the database's clock is removed once that can be believed, and nothing before.
func TestClockThatIsAheadForAMomentRemovesNothing(t *testing.T) {
	for _, ahead := range []string{"10 days", "200 days"} {
		url := pgtest.Fresh(t)
		s := openReady(t, url)
		right, wrong := s.selectTime, fmt.Sprintf("SELECT clock_timestamp() + interval '%s'", ahead)
		s.KeepLog(7*24*time.Hour, 0)
		apply(t, s, create(plant(1, "fern")))
		apply(t, s, remove(1)) // the results of which are kept
		ci := token("ci")
		ci.Created = time.Now()
		ci.Expires = ci.Created.AddDate(0, 3, 0)
		addToken := func(t1 plantstore.Token) {
			t.Helper()
			if err := s.CreateToken(t.Context(), t1, plantstore.Actor{Name: plantstore.Operator}); err != nil {
				t.Fatal(err)
			}
		}
		addToken(ci)
		want := func(when, want string) {
			t.Helper()
			trimAll(t, s)
			if err := s.pruneResults(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := query(t, url, "SELECT concat_ws(' ', (SELECT count(*) FROM events), (SELECT count(*) FROM batches), (SELECT count(*) FROM stored_tokens))")
			if got[0] != want {
				t.Errorf("%s, %s ahead: %s events, results and tokens are left, want %s", when, ahead, got[0], want)
			}
		}
		want("before the jump", "3 1 1")
		s.clock.Wait = time.Hour
		s.selectTime = wrong
		during := token("during the jump")
		during.Created = time.Now().AddDate(0, 0, 200)
		addToken(during)
		want("at the jump", "4 1 2")
		s.selectTime = right
		want("after the jump", "4 1 2")
		if jumps := s.Clock().Jumps(); jumps != 2 {
			t.Errorf("%d jumps, want 2: there and back", jumps)
		}
		s.selectTime = wrong // for good
		s.clock.Wait = 0
		want("when the clock is believed", "0 0 2")
	}
}

// compareSize compares the size of the log with the sum of its rows, and its numbers with what
// is in the table.
func compareSize(t *testing.T, s *Store, url string) plantstore.Stats {
	t.Helper()
	stats, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := query(t, url, "SELECT coalesce(sum(bytes), 0) FROM log")[0]; fmt.Sprint(stats.Bytes) != want {
		t.Fatalf("the log has %s bytes, but Stats says %d", want, stats.Bytes)
	}
	wantProblems(t, s)
	return stats
}

// Every way to append to the log, and trimming it, keeps its size. A large plant among many
// small ones does not matter, nor whether PostgreSQL compresses it.
func TestSizeOfTheLogIsExact(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	large := strings.Repeat("x", 1<<20)
	for i := range plantstore.ID(20) {
		apply(t, s, create(plant(100*i, "fern")))
		apply(t, s, create(plant(100*i+1, large)), create(plant(100*i+2, "moss")))
		apply(t, s, create(plant(100*i+2, "moss")), create(plant(100*i+3, "ivy"))) // one is taken
		apply(t, s, remove(100*i), replace(plant(100*i+2, "reed"), nil))
		if err := s.CreateToken(t.Context(), token(fmt.Sprint(i)), plantstore.Actor{Name: plantstore.Operator}); err != nil {
			t.Fatal(err)
		}
	}
	stats := compareSize(t, s, url)
	if want := int64(20 << 20); stats.Bytes < want || stats.Bytes > want+want/20 {
		t.Errorf("the log has %d bytes, want about %d", stats.Bytes, want)
	}
	s.KeepLog(0, 5<<20)
	trimAll(t, s)
	if stats := compareSize(t, s, url); stats.Bytes > 5<<20 || stats.Bytes < 4<<20 {
		t.Errorf("a log of at most 5 MiB has %d bytes", stats.Bytes)
	}
}

func TestLogIsTrimmedByAgeInSmallTransactions(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	fillLog(t, url, 25_000, "'fern'")
	apply(t, s, create(plant(1, "fern")))
	s.KeepLog(time.Hour, 1<<40)
	for i, want := range []string{"10000", "20000", "25000", "25000"} {
		more, err := s.trim(t.Context())
		if err != nil || more != (i < 2) {
			t.Errorf("trim %d: more: %t, %v", i, more, err)
		}
		if got := query(t, url, "SELECT seq FROM log_start WHERE seq = time"); len(got) != 1 || got[0] != want {
			t.Errorf("trim %d: trimmed up to %s, want %s", i, got, want)
		}
	}
	if got := query(t, url, "SELECT seq FROM events"); len(got) != 1 || got[0] != "25001" {
		t.Errorf("the log has the rows %s, want 25001", got)
	}
	s.KeepLog(time.Nanosecond, 0)
	trimAll(t, s)
	apply(t, s, create(plant(2, "fern")))
	if got := query(t, url, "SELECT seq FROM events"); len(got) != 1 || got[0] != "25002" {
		t.Errorf("the log has the rows %s, want 25002", got)
	}
}

// TestRowsOfUnequalSize has a log whose rows are large at one end, so that no part of
// it is like the whole. It must be trimmed to about its limit.
func TestRowsOfUnequalSize(t *testing.T) {
	// Large rows are not so large that PostgreSQL compresses them.
	const rows, large, limit = 18_000, 1500, 3 << 20
	sizeOf := func(name string) int64 {
		url := pgtest.Fresh(t)
		s := openReady(t, url)
		fillLog(t, url, 1, name)
		stats, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats.Bytes
	}
	largeName := fmt.Sprintf("repeat('x', %d)", large)
	smallRow, largeRow := sizeOf("'x'"), sizeOf(largeName)
	for _, c := range []struct {
		what, isLarge string
		want          int64 // the rows that remain
	}{
		{"large at the start", "i <= 12000", 6000 + (limit-6000*smallRow)/largeRow},
		{"large at the end", "i > 15000", limit / largeRow},
		{"large and small in turns", "i % 2 = 0", 2 * limit / (smallRow + largeRow)},
	} {
		url := pgtest.Fresh(t)
		s := openReady(t, url)
		fillLog(t, url, rows, fmt.Sprintf("CASE WHEN %s THEN %s ELSE 'x' END", c.isLarge, largeName))
		s.KeepLog(0, limit)
		trimAll(t, s)
		stats, err := s.Stats(t.Context())
		if err != nil || stats.Events < c.want*95/100 || stats.Events > c.want*105/100 {
			t.Errorf("%s: %d events remain, want about %d, %v", c.what, stats.Events, c.want, err)
		}
	}
}

// TestSlowTrimProgresses has a server that is too slow to trim as many rows at once as
// usual.
func TestSlowTrimProgresses(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	fillLog(t, url, 10_000, "'fern'")
	query(t, url, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF (SELECT count(*) FROM gone) > 500 THEN PERFORM pg_sleep(10); END IF; RETURN NULL; END'`)
	query(t, url, "CREATE TRIGGER slow AFTER DELETE ON log REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION slow()")
	s.callTimeout = 500 * time.Millisecond
	s.KeepLog(time.Nanosecond, 0)
	trimmed := func() string { return query(t, url, "SELECT seq FROM log_start")[0] }
	testenv.WaitFor(t, "the log to be trimmed", func() bool {
		// It does nothing while the session of a call that timed out still has the lock.
		if _, err := s.trim(t.Context()); err != nil {
			s.callTimeout += 100 * time.Millisecond // the machine may be slow, too
		}
		return trimmed() != "0"
	})
	slow := s.trimSize
	if slow > maxTrim/8 {
		t.Errorf("the log was trimmed by %d rows at a time", slow)
	}
	query(t, url, "DROP TRIGGER slow ON log")
	s.callTimeout = testenv.Timeout
	trimAll(t, s)
	if got := trimmed(); got != "10000" || s.trimSize <= slow {
		t.Errorf("the log was trimmed up to %s, by %d rows at a time at last", got, s.trimSize)
	}
}

func TestFailingTrimIsLoggedOnce(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	var logged bytes.Buffer
	s.opts.Log = slog.New(slog.NewTextHandler(&logged, nil))
	s.KeepLog(time.Nanosecond, 0)
	trimTwice := func() {
		s.trimAndReport(t.Context())
		s.trimAndReport(t.Context())
	}
	for id := range plantstore.ID(2) {
		apply(t, s, create(plant(id, "fern")))
		query(t, url, "ALTER TABLE log RENAME TO hidden")
		trimTwice()
		query(t, url, "ALTER TABLE hidden RENAME TO log")
		trimTwice()
	}
	if failed, worked := strings.Count(logged.String(), "cannot trim"), strings.Count(logged.String(), "trimmed again"); failed != 2 || worked != 2 {
		t.Errorf("%d failures and %d recoveries were logged, want 2 of each:\n%s", failed, worked, &logged)
	}
}

func TestOneServerTrimsAtATime(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	apply(t, s, create(plant(1, "fern")))
	s.KeepLog(time.Nanosecond, 0)
	withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, lockTrimmer, time.Now().UnixMicro(), s.logBytes); err != nil {
				return err
			}
			trimAll(t, s)
			return nil
		})
	})
	if got := query(t, url, "SELECT seq FROM log_start"); got[0] != "0" {
		t.Errorf("the log was trimmed up to %s while another server was trimming", got[0])
	}
	trimAll(t, s)
	if got := query(t, url, "SELECT seq FROM log_start"); got[0] != "1" {
		t.Errorf("the log was trimmed up to %s, want 1", got[0])
	}
}

func TestRunTrimsTheLog(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	apply(t, s, create(plant(1, "fern")))
	s.KeepLog(time.Nanosecond, 0)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	testenv.WaitFor(t, "the log to be trimmed", func() bool {
		return query(t, url, "SELECT seq FROM log_start")[0] == "1"
	})
	cancel()
	running.Wait()
}

// TestTrimWhileOthersWrite has two servers trim and write concurrently. The newest
// events stay, without gaps.
func TestTrimWhileOthersWrite(t *testing.T) {
	url := pgtest.Fresh(t)
	stores := []*Store{openReady(t, url), openReady(t, url)}
	const writers, writes = 4, 100
	var writing, trimming sync.WaitGroup
	done := make(chan struct{})
	for _, s := range stores {
		s.KeepLog(0, 50*rowOverhead) // rows are larger than that
		trimming.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := s.trim(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			for i := range writes {
				if _, err := applyRetrying(t.Context(), stores[w%2], []plantstore.Write{create(plant(plantstore.ID(w*writes+i), "fern"))}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	close(done)
	trimming.Wait()
	trimAll(t, stores[0])
	page, err := stores[0].Events(t.Context(), plantstore.EventQuery{Limit: writers * writes})
	if err != nil {
		t.Fatal(err)
	}
	last, err := page.Next.Position()
	if n := int64(len(page.Events)); err != nil || last.Seq != writers*writes || n == 0 || n > 50 {
		t.Errorf("%d events up to %d, %v", n, last.Seq, err)
	}
	for i, e := range page.Events {
		at, err := e.Cursor.Position()
		if want := last.Seq - int64(len(page.Events)-1-i); err != nil || at.Seq != want {
			t.Errorf("event %d has the number %d, want %d", i, at.Seq, want)
		}
	}
}
