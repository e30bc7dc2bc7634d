package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
)

// fillLog fills an empty log with creates, each in a row of its own. name is an
// expression for the name of plant i.
func fillLog(t *testing.T, url string, n int, name string) {
	t.Helper()
	query(t, url, fmt.Sprintf(`INSERT INTO log (first, time, "by", type, id, name, tag, prev, bytes) SELECT *, %s
		FROM (SELECT i AS first, i AS time, ARRAY[''] AS "by", ARRAY[1::smallint] AS type, ARRAY[i] AS id, ARRAY[%s] AS name, ARRAY[NULL::text] AS tag, NULL::bigint[] AS prev
			FROM generate_series(1, %d) AS i) AS log`, rowSize, name, n))
	query(t, url, fmt.Sprintf("UPDATE log SET plants = 0, total_bytes = (SELECT sum(bytes) FROM log) WHERE first = %d", n))
}

// TestPageOfLargeEventsIsBounded counts what the server sends for a page of a log
// whose events have 1 MiB each.
func TestPageOfLargeEventsIsBounded(t *testing.T) {
	url := pgtest.Fresh(t)
	proxy, proxied := newProxy(t, addr(url), url)
	s := openReady(t, proxied)
	fillLog(t, url, 80, "repeat('x', 1 << 20)")
	cases := []struct {
		what          string
		query         plantstore.EventQuery
		events, maxMB int
	}{
		{"a page of one", plantstore.EventQuery{Limit: 1}, 1, 3},
		{"a page that its text ends", plantstore.EventQuery{Limit: 1000}, 4, 20},
		{"a search", plantstore.EventQuery{Limit: 1, By: "nobody"}, 0, 50},
	}
	for _, c := range cases {
		before := proxy.received.Load()
		page, err := s.Events(t.Context(), c.query)
		if err != nil || len(page.Events) != c.events || !page.More {
			t.Errorf("%s: %d events, more: %t, %v", c.what, len(page.Events), page.More, err)
		}
		if got := proxy.received.Load() - before; got > int64(c.maxMB)<<20 {
			t.Errorf("%s: the server sent %d MiB, want at most %d", c.what, got>>20, c.maxMB)
		}
	}
}

// TestGapInTheLogIsAnError also checks that the connection is usable afterwards.
func TestGapInTheLogIsAnError(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	fillLog(t, url, 900, "'fern'")
	query(t, url, "DELETE FROM log WHERE first = 2")
	for range 3 {
		if page, err := s.Events(t.Context(), plantstore.EventQuery{Limit: 1000}); err == nil {
			t.Fatalf("a page with a gap: %v", page)
		}
	}
	if n := s.conns.Stat().NewConnsCount(); n > 1 {
		t.Errorf("%d connections were made, want 1", n)
	}
}

// TestMissingStateIsAnError removes the row of log_state. What needs it fails, and writes leave
// nothing without an event.
func TestMissingStateIsAnError(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	apply(t, s, create(plant(1, "fern")))
	query(t, url, "DELETE FROM log_state")
	before := dumpRows(t, url)
	operator := plantstore.Actor{Name: plantstore.Operator}
	write := func(batch ...plantstore.Write) func() error {
		return func() error { _, err := s.Apply(t.Context(), batch); return err }
	}
	for what, call := range map[string]func() error{
		"create one":  write(create(plant(2, "moss"))),
		"create two":  write(create(plant(2, "moss")), create(plant(3, "moss"))),
		"replace":     write(replace(plant(1, "moss"), nil)),
		"delete":      write(remove(1)),
		"token":       func() error { return s.CreateToken(t.Context(), token("ci"), operator) },
		"first token": func() error { _, err := s.CreateFirstToken(t.Context(), token("ci")); return err },
		"events":      func() error { _, err := s.Events(t.Context(), plantstore.EventQuery{Limit: 1}); return err },
		"histogram": func() error {
			_, err := s.Histogram(t.Context(), plantstore.HistogramQuery{Since: time.Now().Add(-time.Hour), Until: time.Now(), Buckets: 3})
			return err
		},
		"backlogs": func() error {
			at := plantstore.Position{Store: "x"}.Cursor()
			_, err := s.Backlogs(t.Context(), []plantstore.Webhook{{ID: "hook", Progress: plantstore.Progress{Position: at}}})
			return err
		},
		"stats": func() error { _, err := s.Stats(t.Context()); return err },
		"scan": func() error {
			var at plantstore.Cursor
			for _, err := range s.Scan(t.Context(), plantstore.Query{}, &at) {
				return err
			}
			return nil
		},
	} {
		err := call()
		if err == nil || errors.Is(err, plantstore.ErrRetry) {
			t.Errorf("%s: %v", what, err)
		}
		if reads := []string{"events", "histogram", "backlogs", "stats", "scan"}; slices.Contains(reads, what) && !errors.Is(err, errNoState) {
			t.Errorf("%s: %v, want %v", what, err, errNoState)
		}
	}
	if after := dumpRows(t, url); !slices.Equal(after, before) {
		t.Errorf("the store has changed to\n%s", strings.Join(after, "\n"))
	}
}

// TestDeletedPlantsAreNotKept deletes plants of 1 MiB each, and measures what of them
// the plan keeps in memory.
func TestDeletedPlantsAreNotKept(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	const n = 24
	query(t, url, fmt.Sprintf("INSERT INTO stored_plants SELECT i, repeat('x', 1 << 20), NULL FROM generate_series(1, %d) AS i", n))
	var batch []plantstore.Write
	for i := range n {
		batch = append(batch, remove(plantstore.ID(i+1)))
		if i%2 == 0 {
			batch = append(batch, create(plant(plantstore.ID(i+1), "fern")))
		}
	}
	p := newPlan(batch, 0)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	withWriteConn(t, s, p.transact)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > n<<20/4 {
		t.Errorf("after deleting plants of %d MiB, the plan keeps %d MiB", n, kept>>20)
	}
	runtime.KeepAlive(p)
	for rest := batch[len(p.results):]; len(rest) > 0; rest = rest[len(p.results):] {
		p = newPlan(rest, 0)
		withWriteConn(t, s, p.transact)
	}
	if got := query(t, url, "SELECT count(*) FROM events WHERE type = 3 AND name = repeat('x', 1 << 20)"); got[0] != strconv.Itoa(n) {
		t.Errorf("the log has %s of %d deleted plants", got, n)
	}
	if got := query(t, url, fmt.Sprintf("SELECT first FROM log WHERE octet_length(array_to_string(name, '')) > %d", segmentSize+2<<20)); len(got) > 0 {
		t.Errorf("the rows %v of the log are too large", got)
	}
}

// What a plan reads is bounded: once it has found large plants, the next one has fewer writes.
func TestPlansOfLargePlantsAreSmall(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	const n = 300
	query(t, url, fmt.Sprintf("INSERT INTO stored_plants SELECT i, repeat('x', 1 << 17), NULL FROM generate_series(1, %d) AS i", n))
	var batch []plantstore.Write
	for i := range n {
		batch = append(batch, remove(plantstore.ID(i+1)))
	}
	if size := s.planSize(); size < n {
		t.Errorf("the first plan has %d writes at most", size)
	}
	apply(t, s, batch[:40]...)
	if size := s.planSize(); size != 64 {
		t.Errorf("after plants of 128 KiB, a plan has %d writes, want 64", size)
	}
	apply(t, s, batch[40:]...)
	apply(t, s, create(plant(1, "fern")), replace(plant(1, "rose"), nil))
	apply(t, s, replace(plant(1, "fern"), nil))
	if size := s.planSize(); size < 1<<20 {
		t.Errorf("after a small plant, a plan has %d writes", size)
	}
}

// TestLogOfManyEvents has a log whose numbers do not fit into 32 bits.
func TestLogOfManyEvents(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	for _, last := range []int64{1<<31 - 4, 1<<31 - 1, 3_000_000_000} {
		query(t, url, fmt.Sprintf("DELETE FROM log; UPDATE log_start SET seq = %d", last))
		apply(t, s, create(plant(plantstore.ID(last), "fern")), create(plant(plantstore.ID(last+1), "moss")))
		page, err := s.Events(t.Context(), plantstore.EventQuery{Limit: 1000})
		if err != nil || len(page.Events) != 2 {
			t.Fatalf("after %d: %v, %v", last, page, err)
		}
		page, err = s.Events(t.Context(), plantstore.EventQuery{Limit: 1, After: page.Events[0].Cursor})
		if err != nil || len(page.Events) != 1 || page.Events[0].Plant.Name != "moss" {
			t.Errorf("the last of %d: %v, %v", last+2, page, err)
		}
	}
}

// TestLogHasDeletedPlants deletes plants that the batch finds, and others that it has
// written itself.
func TestLogHasDeletedPlants(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	tagged := func(id plantstore.ID, name, tag string) plantstore.Plant {
		return plantstore.Plant{ID: id, Name: name, Tag: plantstore.NewTag(tag)}
	}
	apply(t, s, create(plant(1, "fern")), create(tagged(2, "oak\x00", "old\x00")), create(tagged(3, "ivy", "")), create(tagged(4, "elm", "green")))
	batch := []plantstore.Write{
		remove(4),                            // leaves nothing
		create(tagged(3, "rose", "red")),     // refused
		remove(3),                            // the plant found
		replace(plant(1, "moss"), nil),       // and then deleted
		remove(2),                            // and then created
		create(tagged(2, "rose\x00", "red")), //
		remove(2),                            // the plant created
		create(plant(2, "tulip")),            // stays
		remove(1),                            // the plant replaced
		create(plant(5, "lily")),             //
		remove(5),                            //
	}
	if _, err := s.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	page, err := s.Events(t.Context(), plantstore.EventQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	type change struct {
		kind  plantstore.EventType
		plant plantstore.Plant
	}
	var got []change
	for _, e := range page.Events[4:] {
		got = append(got, change{e.Type, e.Plant})
	}
	want := []change{
		{plantstore.PlantDeleted, tagged(4, "elm", "green")},
		{plantstore.PlantDeleted, tagged(3, "ivy", "")},
		{plantstore.PlantReplaced, plant(1, "moss")},
		{plantstore.PlantDeleted, tagged(2, "oak\x00", "old\x00")},
		{plantstore.PlantCreated, tagged(2, "rose\x00", "red")},
		{plantstore.PlantDeleted, tagged(2, "rose\x00", "red")},
		{plantstore.PlantCreated, plant(2, "tulip")},
		{plantstore.PlantDeleted, plant(1, "moss")},
		{plantstore.PlantCreated, plant(5, "lily")},
		{plantstore.PlantDeleted, plant(5, "lily")},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has\n%v, want\n%v", got, want)
	}
	wantAll(t, s, plant(2, "tulip"))
}

// TestWritesThatCancelOutHoldTheirID has another server create a plant between the moment
// when a batch finds none and the moment when it logs that it has created and deleted one.
func TestWritesThatCancelOutHoldTheirID(t *testing.T) {
	url := pgtest.Fresh(t)
	s, other := openReady(t, url), openReady(t, url)
	batch := []plantstore.Write{create(plant(1, "fern")), remove(1), create(plant(2, "oak"))}
	withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
		p := newPlan(batch, 0)
		if err := p.lock(ctx, c); err != nil {
			return err
		}
		apply(t, other, create(plant(1, "moss")))
		if err := p.insert(ctx, c); !errors.Is(err, errConflict) {
			t.Errorf("insert: %v, want %v", err, errConflict)
		}
		_, err := c.Exec(ctx, "ROLLBACK")
		return err
	})
	apply(t, other, remove(1))
	results, err := s.Apply(t.Context(), batch)
	if err != nil || results[0].Outcome != plantstore.Created || results[1].Outcome != plantstore.Deleted {
		t.Errorf("got %v, %v", results, err)
	}
	want := []string{"1 1 moss", "3 1 moss", "1 1 fern", "3 1 fern", "1 2 oak"}
	if got := query(t, url, "SELECT concat_ws(' ', type, id, name) FROM events ORDER BY seq"); !slices.Equal(got, want) {
		t.Errorf("the log has %v, want %v", got, want)
	}
	wantAll(t, s, plant(2, "oak"))
}

// TestCreatesAreLoggedInOrder applies batches whose ids are neither in order nor
// unique, without and with ids that are taken.
func TestCreatesAreLoggedInOrder(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	var want []string
	next := plantstore.ID(1_000_000)
	batch := func(withTaken bool) {
		t.Helper()
		var writes []plantstore.Write
		for _, n := range []plantstore.ID{3, 1, 1, 4, 2, 3} {
			writes = append(writes, create(plant(next+n, "fern")))
		}
		if withTaken {
			writes = slices.Insert(writes, 2, create(plant(1_000_001, "fern")))
		}
		for _, n := range []plantstore.ID{3, 1, 4, 2} {
			want = append(want, strconv.Itoa(int(next+n)))
		}
		next -= 10
		if _, err := s.Apply(t.Context(), writes); err != nil {
			t.Fatal(err)
		}
	}
	for _, withTaken := range []bool{false, true, true, false, false} {
		batch(withTaken)
	}
	if got := query(t, url, "SELECT id FROM events ORDER BY seq"); !slices.Equal(got, want) {
		t.Errorf("the log has the plants %v, want %v", got, want)
	}
	if got := query(t, url, "SELECT count(*) FROM log_end() WHERE seq = (SELECT count(*) FROM events)"); got[0] != "1" {
		t.Error("the log has gaps")
	}
}
