package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/rules"
	"plantstore/internal/storetest"
	"plantstore/internal/testenv"
)

func TestLogIsTrimmedByAgeAndSize(t *testing.T) {
	for name, keep := range map[string]func(*Store){
		"age":  func(s *Store) { s.KeepLog(time.Nanosecond, 0) },
		"size": func(s *Store) { s.KeepLog(0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newComparison(t, 1)
			l.apply(t, l.creates(t, 50, 0))
			first, err := l.store.Events(t.Context(), plantstore.EventQuery{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			keep(l.store)
			trim := func() {
				t.Helper()
				if err := l.store.updateTrim(t.Context()); err != nil {
					t.Fatal(err)
				}
				for more := true; more; {
					if more, err = l.store.idleTrim(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			trim()
			if got := text(t, l.store.write.conn, "SELECT count(*) FROM log", 0); got != "50" {
				t.Errorf("the log has %s rows, want 50: they are not flushed", got)
			}
			for l.store.freezeRest() {
				l.flush(t, idleFlushSize)
			}
			trim()
			if got := text(t, l.store.write.conn, "SELECT count(*) FROM log", 0); got != "0" {
				t.Errorf("the log has %s rows, want 0", got)
			}
			_, err = l.store.Events(t.Context(), plantstore.EventQuery{After: first.Next, Limit: 1})
			if !errors.Is(err, plantstore.ErrGone) {
				t.Errorf("a trimmed cursor: %v, want %v", err, plantstore.ErrGone)
			}
			end, err := l.store.Events(t.Context(), plantstore.EventQuery{Limit: 1})
			if err != nil || len(end.Events) > 0 {
				t.Fatalf("%d events, %v", len(end.Events), err)
			}
			// The next row comes after the trimmed ones, even after a restart.
			mustClose(t, l.store)
			l.open(t)
			l.apply(t, l.creates(t, 5, 0))
			page, err := l.store.Events(t.Context(), plantstore.EventQuery{After: end.Next, Limit: 10})
			if err != nil || len(page.Events) != 5 {
				t.Errorf("%d events after the end, %v, want 5", len(page.Events), err)
			}
			l.compare(t, l.store)
		})
	}
}

// A batch trims more than it appends, so the log does not outgrow its limit under load.
func TestBatchesTrimTheLog(t *testing.T) {
	l := newComparison(t, 1)
	l.store.KeepLog(0, 1)
	for range 40 {
		l.apply(t, l.creates(t, 50, 0))
		if err := l.store.updateTrim(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if rows := l.store.write.seq - l.store.write.trimmed; rows > 4*smallGeneration {
		t.Errorf("the log has %d rows", rows)
	}
	l.compare(t, l.store)
}

// Plants of 256 KiB are spread over many small ones, and after those come large ones only.
func TestLogKeepsToItsSizeWhateverTheRowsAre(t *testing.T) {
	const limit = 4 << 20
	s := mustOpen(t, newPath(t), Serve)
	defer mustClose(t, s)
	s.GenerationLimit.Rows = 250
	s.KeepLog(0, limit)
	large := strings.Repeat("x", 256<<10)
	trimmed := func() int64 {
		t.Helper()
		compareSize(t, s)
		stats, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if unflushed := s.write.unflushedBytes; stats.Bytes > limit+limit/20+unflushed {
			t.Fatalf("the log has %d bytes, %d of them unflushed, the limit is %d", stats.Bytes, unflushed, limit)
		}
		return s.write.trimmed
	}
	id := plantstore.ID(0)
	write := func(n int, name string) {
		t.Helper()
		batch := make([]plantstore.Write, n)
		for i := range batch {
			id++
			batch[i].Plant = plantstore.Plant{ID: id, Name: name}
		}
		if _, err := s.Apply(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		write(50, "small")
		if i%10 == 5 {
			write(1, large)
		}
		if n := trimmed(); n > 0 {
			t.Fatalf("%d rows were trimmed below the limit", n)
		}
	}
	for range 40 {
		write(1, large)
		trimmed()
	}
	for s.freezeRest() {
		if err := s.withWriter(t.Context(), s.flushWhileIdle); err != nil {
			t.Fatal(err)
		}
	}
	for more := true; more; {
		var err error
		if more, err = s.idleTrim(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if trimmed(); s.write.bytes > limit || s.write.bytes < limit-limit/10 {
		t.Errorf("the log has %d bytes in the end, want almost %d", s.write.bytes, limit)
	}
}

func TestTrimOfLargeRowsIsBounded(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for name, p := range map[string]plantstore.Plant{"names": {Name: large}, "tags": {Tag: plantstore.NewTag(large)}} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, newPath(t), Serve)
			const plants = 8
			for p.ID = range plants {
				create(t, s, p)
			}
			for s.freezeRest() {
				if err := s.withWriter(t.Context(), s.flushWhileIdle); err != nil {
					t.Fatal(err)
				}
			}
			s.expired.Store(plants)
			if _, err := s.idleTrim(t.Context()); err != nil {
				t.Fatal(err)
			}
			if trimmed := s.write.trimmed; trimmed == 0 || trimmed > trimBytes>>20 {
				t.Errorf("one transaction trimmed %d MiB, want at most %d", trimmed, trimBytes>>20)
			}
		})
	}
}

func TestTrimmedLog(t *testing.T) {
	s := mustOpen(t, newPath(t), Serve)
	defer mustClose(t, s)
	s.GenerationLimit.Rows = 10
	storetest.CheckTrim(t, s, func() {
		s.KeepLog(0, 20*(rowOverhead+5))
		defer s.KeepLog(0, 0)
		for s.freezeRest() {
			if err := s.withWriter(t.Context(), func(*writer) error { return s.flush(idleFlushSize, flushText) }); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.updateTrim(t.Context()); err != nil {
			t.Fatal(err)
		}
		for more := true; more; {
			var err error
			if more, err = s.idleTrim(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if problems, err := s.Check(t.Context()); err != nil || len(problems) > 0 {
			t.Fatalf("check: %q, %v", problems, err)
		}
	})
}

func TestStats(t *testing.T) {
	l := newComparison(t, 1)
	want := func(events, last, unflushed int64) {
		t.Helper()
		got, err := l.store.Stats(t.Context())
		if err != nil || got.Events != events || got.LastSeq != last || got.Unflushed != unflushed || got.Oldest.IsZero() != (events == 0) {
			t.Errorf("got %+v, %v, want %d events up to %d, %d unflushed", got, err, events, last, unflushed)
		}
		if (got.Bytes > rowOverhead*events) != (events > 0) {
			t.Errorf("%d events take %d bytes", events, got.Bytes)
		}
	}
	want(0, 0, 0)
	l.store.KeepLog(0, 1)
	l.apply(t, l.creates(t, 50, 0))
	if err := l.store.updateTrim(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(50, 50, 50)
	l.flush(t, idleFlushSize)
	want(50, 50, 0)
	if err := l.store.updateTrim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.store.idleTrim(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(0, 50, 0)
}

// The clock is set back by an hour while the store is closed.
func TestTimeInTheLogNeverDecreases(t *testing.T) {
	for name, flushed := range map[string]bool{"flushed": true, "unflushed": false} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			s := mustOpen(t, path, Serve)
			create(t, s, fern(1))
			for flushed && s.freezeRest() {
				if err := s.withWriter(t.Context(), func(*writer) error { return s.flush(idleFlushSize, flushText) }); err != nil {
					t.Fatal(err)
				}
			}
			mustClose(t, s)
			runRaw(t, path, "UPDATE log SET time = time + 3600000000")
			s = mustOpen(t, path, Serve)
			defer mustClose(t, s)
			var log bytes.Buffer
			s.Log = slog.New(slog.NewTextHandler(&log, nil))
			if s.warnOfTime(); !strings.Contains(log.String(), "ahead of the clock") {
				t.Errorf("the log does not say that the clock is behind: %q", &log)
			}
			create(t, s, fern(2))
			page, err := s.Events(t.Context(), plantstore.EventQuery{Limit: 2})
			if err != nil || len(page.Events) != 2 {
				t.Fatalf("%d events, %v", len(page.Events), err)
			}
			if first, second := page.Events[0].Time, page.Events[1].Time; second.Before(first) {
				t.Errorf("an event of %v after one of %v", second, first)
			}
		})
	}
}

// What is older than the log keeps is removed once the clock can be believed, and nothing before. The
// events that are written meanwhile have the true time.
func TestClockThatIsAheadForAMomentTrimsNothing(t *testing.T) {
	for _, ahead := range []time.Duration{10 * 24 * time.Hour, 200 * 24 * time.Hour} {
		s := openStore(t, newPath(t), Serve)
		var jump atomic.Int64
		s.Clock = rules.NewClock("server", func() time.Time { return time.Now().Add(time.Duration(jump.Load())) }, nil)
		s.Clock.Wait = 0 // as if it had agreed for an hour
		s.KeepLog(7*24*time.Hour, 0)
		token := newToken("ci")
		token.Created = time.Now()
		token.Expires = token.Created.AddDate(0, 3, 0)
		if err := s.CreateToken(t.Context(), token, plantstore.Actor{Name: plantstore.Operator}); err != nil {
			t.Fatal(err)
		}
		create(t, s, fern(1))
		trim := func() (rows string) {
			t.Helper()
			for s.freezeRest() {
				if err := s.withWriter(t.Context(), s.flushWhileIdle); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.updateTrim(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.idleTrim(t.Context()); err != nil {
				t.Fatal(err)
			}
			return text(t, s.write.conn, "SELECT count(*) FROM log", 0)
		}
		if rows := trim(); rows != "2" {
			t.Errorf("the log has %s rows, want 2", rows)
		}

		s.Clock.Wait = time.Hour
		jump.Store(int64(ahead))
		during := newToken("during the jump")
		during.Created = time.Now().Add(ahead)
		during.Expires = during.Created.AddDate(0, 3, 0)
		if err := s.CreateToken(t.Context(), during, plantstore.Actor{Name: plantstore.Operator}); err != nil {
			t.Fatal(err)
		}
		create(t, s, fern(2))
		if rows := trim(); rows != "4" {
			t.Errorf("%v ahead, the log has %s rows, want 4", ahead, rows)
		}
		jump.Store(0)
		create(t, s, fern(3))
		page, err := s.Events(t.Context(), plantstore.EventQuery{Limit: 10, WithTokens: true})
		if err != nil || len(page.Events) != 5 {
			t.Fatalf("%d events, %v, want 5", len(page.Events), err)
		}
		for _, e := range page.Events {
			if e.Time.After(time.Now()) {
				t.Errorf("after a jump of %v an event has the time %v", ahead, e.Time)
			}
		}
		if _, err := s.Token(t.Context(), token.Hash); err != nil {
			t.Errorf("after a jump of %v: %v", ahead, err)
		}

		jump.Store(int64(ahead)) // for good
		s.Clock.Wait = 0
		if rows := trim(); rows != "0" {
			t.Errorf("once the clock is believed, the log has %s rows, want 0", rows)
		}
	}
}

// Rows of tokens alone are flushed and trimmed like others, even if another process has
// appended them, and those that wait for changes are told.
func TestRowsOfTokensAreTrimmed(t *testing.T) {
	path := newPath(t)
	s := openRunning(t, path)
	other := openStore(t, path, Existing)
	awaitLocks(s, other)
	changed := s.Changed()
	if err := other.CreateToken(t.Context(), newToken("by the other"), plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("the server did not notice the change of another process")
	}
	if err := s.CreateToken(t.Context(), newToken("by the server"), plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "it is flushed", func(stats plantstore.Stats) bool { return stats.Unflushed == 0 && stats.Events == 2 }, s)
	waitUntil(t, "it is trimmed", func(stats plantstore.Stats) bool {
		s.expired.Store(2) // again and again: Run decides every second that all rows are kept
		return stats.Events == 0 && stats.LastSeq == 2
	}, s)
}

func waitUntil(t *testing.T, what string, holds func(plantstore.Stats) bool, s *Store) {
	t.Helper()
	testenv.Eventually(t, func() error {
		stats, err := s.Stats(t.Context())
		if err == nil && !holds(stats) {
			err = fmt.Errorf("not %s: %+v", what, stats)
		}
		return err
	})
}

// idleTrim trims as Run does while there are no writes, and reports whether there is more to
// trim.
func (s *Store) idleTrim(ctx context.Context) (more bool, err error) {
	err = s.withWriter(ctx, s.flushWhileIdle)
	return err == nil && s.mayTrim(), err
}
