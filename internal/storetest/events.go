package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"plantstore"
)

var eventBehaviours = []behaviour{
	{"Events/record every change and nothing else", checkEventsOfWrites},
	{"Events/come in pages", checkEventPages},
	{"Events/come in pages, the newest first", checkNewestEvents},
	{"Events/include the one at a cursor", checkEventsIncluding},
	{"Events/by plant, type and caller", checkEventFilters},
	{"Events/of a plant, whatever has happened to it", checkEventsOfPlants},
	{"Events/in a histogram", checkHistogram},
	{"Events/from a time on", checkEventsSince},
	{"Events/refuse a cursor of another log", checkForeignCursors},
	{"Events/survive a restart", checkEventsAfterReopen},
	{"Events/say when there are more", checkChanged},
	{"Events/follow a snapshot without gap or overlap", checkSnapshotAndFeed},
	{"Events/are in the order of the writes", checkEventOrder},
}

// change is an event without its cursor and time.
type change struct {
	Type  plantstore.EventType
	Plant plantstore.Plant
	By    string
	Token string // for comparison, empty if there is none
}

func changeOf(e plantstore.Event) change {
	c := change{Type: e.Type, Plant: e.Plant, By: e.By}
	if e.Token != nil {
		c.Token = fmt.Sprintf("%+v", *e.Token)
	}
	return c
}

// follow returns all events after a cursor, and the position after them.
func follow(t tb, s plantstore.Store, after plantstore.Cursor) (events []plantstore.Event, end plantstore.Cursor) {
	t.Helper()
	q := plantstore.EventQuery{After: after, Limit: 3, WithTokens: true}
	for {
		page, err := s.Events(t.Context(), q)
		if err != nil {
			t.Fatalf("Events after %q: %v", q.After, err)
		}
		if len(page.Events) > q.Limit {
			t.Fatalf("a page of %d events, want %d at most", len(page.Events), q.Limit)
		}
		events = append(events, page.Events...)
		if q.After = page.Next; !page.More {
			return events, page.Next
		}
	}
}

// newest returns the events before a cursor, or all of them, the newest first.
func newest(t tb, s plantstore.Store, before plantstore.Cursor) (events []plantstore.Event) {
	t.Helper()
	q := plantstore.EventQuery{Newest: true, Before: before, Limit: 3, WithTokens: true}
	for {
		page, err := s.Events(t.Context(), q)
		if err != nil {
			t.Fatalf("Events before %q: %v", q.Before, err)
		}
		if len(page.Events) > q.Limit {
			t.Fatalf("a page of %d events, want %d at most", len(page.Events), q.Limit)
		}
		events = append(events, page.Events...)
		if q.Before = page.Next; !page.More {
			return events
		}
	}
}

// wantNewest compares the events before a cursor with these, which are in order.
func wantNewest(t tb, s plantstore.Store, before plantstore.Cursor, events []plantstore.Event) {
	t.Helper()
	var got, want []string // tokens are pointers
	for _, e := range newest(t, s, before) {
		got = append(got, fmt.Sprint(e.Cursor, changeOf(e)))
	}
	for _, e := range slices.Backward(events) {
		want = append(want, fmt.Sprint(e.Cursor, changeOf(e)))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the newest events before %q:\n%v\nwant:\n%v", before, got, want)
	}
}

// CheckHistories compares the events of plants with all events: those of about n plants that are spread
// over the log, and of one that never was.
func CheckHistories(t tb, s plantstore.Store, n int) {
	t.Helper()
	events, _ := follow(t, s, "")
	ids := []plantstore.ID{123_456_789}
	for i := 0; i < len(events); i += 1 + len(events)/n {
		ids = append(ids, events[i].Plant.ID)
	}
	wantHistories(t, s, events, ids...)
}

// wantHistories compares the events of plants with these events, which are all that the store keeps: in both
// orders, in pages, from several positions on, and filtered.
func wantHistories(t tb, s plantstore.Store, events []plantstore.Event, ids ...plantstore.ID) {
	t.Helper()
	last := ""
	if len(events) > 0 {
		last = events[len(events)-1].By
	}
	for _, id := range ids {
		for i, q := range []plantstore.EventQuery{
			{ID: &id, Limit: 2, WithTokens: true},
			{ID: &id, Limit: 1000},
			{ID: &id, Limit: 1, Types: []plantstore.EventType{plantstore.PlantDeleted}},
			{ID: &id, Limit: 3, By: last},
		} {
			wantHistory(t, s, events, 0, q)
			for at := 1; i == 0 && at < len(events); at += 1 + len(events)/2 {
				wantHistory(t, s, events, at, q)
			}
		}
	}
}

// wantHistory compares the events of a query before or after the one with the index at, or all of them.
func wantHistory(t tb, s plantstore.Store, events []plantstore.Event, at int, q plantstore.EventQuery) {
	t.Helper()
	var before, after []plantstore.Cursor
	for i, e := range events {
		if !q.Matches(&e) {
			continue
		}
		if i > at || at == 0 {
			after = append(after, e.Cursor)
		}
		if i < at || at == 0 {
			before = append(before, e.Cursor)
		}
	}
	slices.Reverse(before)
	if at > 0 {
		q.After, q.Before = events[at].Cursor, events[at].Cursor
	}
	for _, q.Newest = range []bool{false, true} {
		q, want := q, after
		if q.Newest {
			want = before
		}
		var got []plantstore.Cursor
		for more := true; more; {
			page, err := s.Events(t.Context(), q)
			if err != nil || len(page.Events) > q.Limit {
				t.Fatalf("plant %d, %+v: %d events, %v", *q.ID, q, len(page.Events), err)
			}
			for _, e := range page.Events {
				got = append(got, e.Cursor)
			}
			if more = page.More; more && len(page.Events) == 0 {
				t.Fatalf("plant %d, %+v: an empty page has a next one", *q.ID, q)
			}
			q.After, q.Before = page.Next, page.Next
		}
		if !slices.Equal(got, want) {
			t.Fatalf("plant %d, %+v: the events\n%v\nwant\n%v", *q.ID, q, got, want)
		}
		if all, err := s.Events(t.Context(), plantstore.EventQuery{After: q.After, Before: q.Before, Newest: q.Newest, Limit: 1, WithTokens: true}); len(events) > 0 && (err != nil || len(all.Events) > 0 || all.More) {
			t.Fatalf("plant %d, %+v: after its last page come %v, %v", *q.ID, q, all.Events, err)
		}
	}
}

// wantHistogram compares a histogram with the count of these events, which are all that the
// store keeps.
func wantHistogram(t tb, s plantstore.Store, events []plantstore.Event, q plantstore.HistogramQuery) {
	t.Helper()
	got, err := s.Histogram(t.Context(), q)
	if want := histogram(events, q); err != nil || !slices.Equal(got, want) {
		t.Fatalf("%+v:\n%v, %v\nwant:\n%v", q, got, err, want)
	}
}

// wantEvents compares the events after a cursor, and returns the position after them.
func wantEvents(t tb, s plantstore.Store, after plantstore.Cursor, want ...change) plantstore.Cursor {
	t.Helper()
	events, end := follow(t, s, after)
	var got []change
	last := time.Time{}
	for _, e := range events {
		got = append(got, changeOf(e))
		if e.Time.Before(last) {
			t.Errorf("an event of %v after one of %v", e.Time, last)
		}
		last = e.Time
	}
	if !slices.Equal(got, want) {
		t.Fatalf("events after %q:\n%v\nwant:\n%v", after, got, want)
	}
	return end
}

// by returns the write as made by this token.
func by(token string, w plantstore.Write) plantstore.Write {
	w.By = token
	return w
}

func checkEventsOfWrites(t *testing.T, s *subject) {
	start := wantEvents(t, s, "")
	before := time.Now()
	apply(t, s,
		step{by("a", create(plant(1, "fern"))), created},
		step{by("b", create(plant(1, "fern"))), unchanged},
		step{by("b", create(plant(1, "oak"))), idTaken},
		step{by("b", replace(tagged(1, "oak", "tree"))), replaced},
		step{by("c", replace(tagged(1, "oak", "tree"))), unchanged},
		step{by("c", remove(2)), noPlant},
		step{by("c", remove(1)), deleted},
		step{by("d", create(tagged(1, "\x00", ""))), created},
	)
	end := wantEvents(t, s, start,
		change{Type: plantstore.PlantCreated, Plant: plant(1, "fern"), By: "a"},
		change{Type: plantstore.PlantReplaced, Plant: tagged(1, "oak", "tree"), By: "b"},
		change{Type: plantstore.PlantDeleted, Plant: tagged(1, "oak", "tree"), By: "c"},
		change{Type: plantstore.PlantCreated, Plant: tagged(1, "\x00", ""), By: "d"},
	)
	apply(t, s, // creates alone may take another path
		step{by("e", create(plant(3, "elm"))), created},
		step{by("e", create(plant(1, "fern"))), idTaken},
		step{by("e", create(plant(2, "yew"))), created},
		step{by("e", create(plant(3, "elm"))), unchanged},
	)
	end = wantEvents(t, s, end,
		change{Type: plantstore.PlantCreated, Plant: plant(3, "elm"), By: "e"},
		change{Type: plantstore.PlantCreated, Plant: plant(2, "yew"), By: "e"},
	)
	wantEvents(t, s, end)
	events, _ := follow(t, s, start)
	const skew = time.Minute // a database has a clock of its own
	for _, e := range events {
		if e.Time.Before(before.Add(-skew)) || e.Time.After(time.Now().Add(skew)) || e.Time.Location() != time.UTC {
			t.Errorf("an event is of %v, at %v", e.Time, time.Now())
		}
		wantCursor(t, e.Cursor)
	}
	wantCursor(t, end)
}

// wantCursor checks that a cursor can be used in a header and a URL.
func wantCursor(t tb, c plantstore.Cursor) {
	t.Helper()
	for _, r := range c {
		if !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '_' || r == '.') {
			t.Errorf("the cursor %q has the character %q", c, r)
		}
	}
	if len(c) == 0 || len(c) > 64 {
		t.Errorf("the cursor %q has %d characters", c, len(c))
	}
}

func checkEventPages(t *testing.T, s *subject) {
	var steps []step
	var want []change
	for id := range plantstore.ID(20) {
		steps = append(steps, step{create(plant(id, "fern")), created})
		want = append(want, change{Type: plantstore.PlantCreated, Plant: plant(id, "fern"), By: ""})
	}
	apply(t, s, steps[:10]...) // a store may keep the events of a batch together
	for i := range steps[10:] {
		apply(t, s, steps[10+i])
	}
	wantEvents(t, s, "", want...)
	events, end := follow(t, s, "")
	for i, e := range events {
		if after := wantEvents(t, s, e.Cursor, want[i+1:]...); after != end {
			t.Errorf("after event %d the end is %q, want %q", i, after, end)
		}
	}
	wantEvents(t, s, plantstore.LatestCursor)
	if _, latest := follow(t, s, plantstore.LatestCursor); latest != end {
		t.Errorf("the latest cursor is %q, want %q", latest, end)
	}
}

func checkNewestEvents(t *testing.T, s *subject) {
	start := wantEvents(t, s, "")
	wantNewest(t, s, "", nil)
	var batch []step
	for id := range plantstore.ID(10) { // a store may keep the events of a batch together
		batch = append(batch, step{create(plant(id, "fern")), created})
	}
	apply(t, s, batch...)
	for id := range plantstore.ID(5) {
		apply(t, s, step{remove(id), deleted})
	}
	apply(t, s, batch[:5]...)
	events, end := follow(t, s, "")
	wantNewest(t, s, "", events)
	for i, e := range events {
		wantNewest(t, s, e.Cursor, events[:i])
	}
	one := plantstore.ID(1)
	page, err := s.Events(t.Context(), plantstore.EventQuery{Newest: true, ID: &one, Limit: 2})
	if err != nil || !slices.Equal(page.Events, []plantstore.Event{events[16], events[11]}) || page.Start != end || page.Next != events[11].Cursor || !page.More {
		t.Errorf("the newest events of a plant: %+v, %v", page, err)
	}
	at, err := end.Position()
	if err != nil {
		t.Fatal(err)
	}
	at.Store += "x"
	for before, want := range map[plantstore.Cursor]error{
		start: plantstore.ErrGone, at.Cursor(): plantstore.ErrGone, "x": plantstore.ErrParameter, plantstore.LatestCursor: plantstore.ErrParameter,
	} {
		if _, err := s.Events(t.Context(), plantstore.EventQuery{Newest: true, Before: before, Limit: 1}); !errors.Is(err, want) {
			t.Errorf("before %q: %v, want %v", before, err, want)
		}
	}
}

func checkHistogram(t *testing.T, s *subject) {
	q := plantstore.HistogramQuery{Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour), Buckets: 7}
	wantHistogram(t, s, nil, q)
	for id := range plantstore.ID(4) {
		apply(t, s, step{create(plant(id, "fern")), created}, step{create(plant(-1-id, "oak")), created})
	}
	addToken(t, s, token("ci")) // all events count
	events, _ := follow(t, s, "")
	wantHistogram(t, s, events, q)
	first, last := events[0].Time, events[len(events)-1].Time
	for _, until := range []time.Time{first, first.Add(time.Nanosecond), last, last.Add(time.Microsecond), last.Add(time.Second)} {
		for _, buckets := range []int{1, 2, 60, plantstore.MaxBuckets} {
			wantHistogram(t, s, events, plantstore.HistogramQuery{Since: first, Until: until, Buckets: buckets})
		}
	}
	centuries := plantstore.HistogramQuery{Since: time.Unix(0, 0), Until: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), Buckets: plantstore.MaxBuckets}
	wantHistogram(t, s, events, centuries)
}

// including returns the events from the one at a cursor on.
func including(t tb, s plantstore.Store, at plantstore.Cursor) ([]plantstore.Event, error) {
	t.Helper()
	page, err := s.Events(t.Context(), plantstore.EventQuery{After: at, Including: true, Limit: 1000})
	if page.More {
		t.Fatalf("there are more than %d events", len(page.Events))
	}
	return page.Events, err
}

func checkEventsIncluding(t *testing.T, s *subject) {
	start := wantEvents(t, s, "")
	for id := range plantstore.ID(4) {
		apply(t, s, step{create(plant(id, "fern")), created})
	}
	events, end := follow(t, s, "")
	for i, e := range events {
		if got, err := including(t, s, e.Cursor); err != nil || !slices.Equal(got, events[i:]) {
			t.Errorf("from event %d on: %v, %v, want %v", i, got, err, events[i:])
		}
		page, err := s.Events(t.Context(), plantstore.EventQuery{After: e.Cursor, Including: true, Limit: 1})
		if err != nil || !slices.Equal(page.Events, events[i:i+1]) || page.Next != e.Cursor || page.More != (e.Cursor != end) {
			t.Errorf("event %d alone: %+v, %v", i, page, err)
		}
	}
	if _, err := including(t, s, start); !errors.Is(err, plantstore.ErrGone) {
		t.Errorf("at the start, where there is no event: %v, want %v", err, plantstore.ErrGone)
	}
	if got, err := including(t, s, plantstore.LatestCursor); err != nil || len(got) != 0 {
		t.Errorf("after the last event: %v, %v", got, err)
	}
	for what, q := range map[string]plantstore.EventQuery{
		"from the oldest on": {Including: true, Limit: 10},
		"since a time":       {Including: true, Since: events[0].Time, Limit: 10},
	} {
		if page, err := s.Events(t.Context(), q); err != nil || !slices.Equal(page.Events, events) {
			t.Errorf("%s: %v, %v, want %v", what, page.Events, err, events)
		}
	}
	at, err := end.Position()
	if err != nil {
		t.Fatal(err)
	}
	at.Time++
	if _, err := including(t, s, at.Cursor()); !errors.Is(err, plantstore.ErrGone) {
		t.Errorf("in another history: %v, want %v", err, plantstore.ErrGone)
	}
}

func checkEventFilters(t *testing.T, s *subject) {
	apply(t, s,
		step{by("a", create(plant(1, "fern"))), created}, step{create(plant(2, "oak")), created},
		step{by("ab", remove(1)), deleted}, step{by("a", replace(plant(2, "elm"))), replaced},
	)
	addToken(t, s, token("ci"))
	one := plantstore.ID(1)
	for _, tt := range []struct {
		query plantstore.EventQuery
		want  []plantstore.EventType
	}{
		{plantstore.EventQuery{ID: &one}, []plantstore.EventType{plantstore.PlantCreated, plantstore.PlantDeleted}},
		{plantstore.EventQuery{Types: []plantstore.EventType{plantstore.PlantCreated}}, []plantstore.EventType{plantstore.PlantCreated, plantstore.PlantCreated}},
		{plantstore.EventQuery{Types: []plantstore.EventType{plantstore.PlantReplaced, plantstore.PlantDeleted}}, []plantstore.EventType{plantstore.PlantDeleted, plantstore.PlantReplaced}},
		{plantstore.EventQuery{ID: &one, Types: []plantstore.EventType{plantstore.PlantReplaced}}, nil},
		{plantstore.EventQuery{By: "a"}, []plantstore.EventType{plantstore.PlantCreated, plantstore.PlantReplaced}},
		{plantstore.EventQuery{By: "a", Newest: true}, []plantstore.EventType{plantstore.PlantReplaced, plantstore.PlantCreated}},
		{plantstore.EventQuery{By: "a", ID: &one}, []plantstore.EventType{plantstore.PlantCreated}},
		{plantstore.EventQuery{Contains: "\u00c9L M", WithTokens: true}, []plantstore.EventType{plantstore.PlantReplaced}},
		{plantstore.EventQuery{Contains: "fern"}, []plantstore.EventType{plantstore.PlantCreated, plantstore.PlantDeleted}},
		{plantstore.EventQuery{Contains: "e", ID: &one, Newest: true}, []plantstore.EventType{plantstore.PlantDeleted, plantstore.PlantCreated}},
		{plantstore.EventQuery{Contains: "ci", WithTokens: true}, nil}, // a token has the name
	} {
		tt.query.Limit = 10
		page, err := s.Events(t.Context(), tt.query)
		var got []plantstore.EventType
		for _, e := range page.Events {
			got = append(got, e.Type)
		}
		if err != nil || page.More || !slices.Equal(got, tt.want) {
			t.Errorf("%+v: got %v, more: %t, %v, want %v", tt.query, got, page.More, err, tt.want)
		}
		if tt.query.Newest {
			wantNewest(t, s, page.Next, nil)
			continue
		}
		wantEvents(t, s, page.Next) // events that do not match have been skipped
	}
}

func checkEventsOfPlants(t *testing.T, s *subject) {
	ids := []plantstore.ID{0, 1, 2, 3, 4}
	check := func() {
		t.Helper()
		events, _ := follow(t, s, "")
		wantHistories(t, s, events, ids...)
		CheckDetails(t, s)
	}
	check()
	tk := token("ci")
	addToken(t, s, tk) // such an event has the id 0 in a store
	for i, batch := range [][]plantstore.Write{
		{create(plant(1, "a")), create(plant(2, "b"))},
		{replace(plant(1, "c")), create(plant(1, "c"))},
		{remove(1), remove(3)},
		{create(plant(0, "zero"))},
		{create(plant(1, "again"))},
		{replace(plant(1, "d")), replace(plant(1, "e")), remove(1), create(plant(1, "f")), remove(1), create(plant(1, "g")), replace(plant(1, "h"))},
		{create(plant(3, "here")), remove(3)},
		{remove(1), create(plant(1, "i")), remove(1), replace(plant(2, "j"))},
		{create(plant(3, "there")), replace(plant(3, "still")), remove(2)},
		{remove(3), create(plant(1, "k")), remove(0)},
	} {
		mustApply(t, s, batch...)
		check()
		if i%3 == 2 {
			s.reopen(t)
			check()
		}
	}
}

func checkEventsSince(t *testing.T, s *subject) {
	for id := range plantstore.ID(5) {
		apply(t, s, step{create(plant(id, "fern")), created})
	}
	events, _ := follow(t, s, "")
	since := func(at time.Time) int {
		page, err := s.Events(t.Context(), plantstore.EventQuery{Since: at, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Events)
	}
	for i, e := range events {
		first := slices.IndexFunc(events, func(other plantstore.Event) bool { return !other.Time.Before(e.Time) })
		if got := since(e.Time); got != len(events)-first {
			t.Errorf("since event %d there are %d, want %d", i, got, len(events)-first)
		}
	}
	for _, later := range []time.Duration{time.Nanosecond, time.Microsecond} {
		if got := since(events[4].Time.Add(later)); got != 0 {
			t.Errorf("%s after the last event there are %d", later, got)
		}
	}
	if got := since(events[0].Time.Add(-time.Hour)); got != len(events) {
		t.Errorf("since an hour before there are %d, want %d", got, len(events))
	}
	if got := since(time.Now().Add(30 * time.Second)); got != 0 { // a client's clock may be a little ahead
		t.Errorf("since half a minute from now there are %d", got)
	}
	if _, err := s.Events(t.Context(), plantstore.EventQuery{Since: time.Now().Add(time.Hour), Limit: 1}); !errors.Is(err, plantstore.ErrParameter) {
		t.Errorf("since an hour from now: %v, want ErrParameter", err)
	}
}

func checkForeignCursors(t *testing.T, s *subject) {
	apply(t, s, step{create(plant(1, "fern")), created}, step{create(plant(2, "fern")), created})
	_, end := follow(t, s, "")
	at, err := end.Position()
	if err != nil {
		t.Fatal(err)
	}
	other, beyond, history := at, at, at
	other.Store += "x"
	beyond.Seq += 100
	history.Time++
	for name, c := range map[string]plantstore.Cursor{
		"another store": other.Cursor(), "beyond the end": beyond.Cursor(), "another history": history.Cursor(),
	} {
		if _, err := s.Events(t.Context(), plantstore.EventQuery{After: c, Limit: 1}); !errors.Is(err, plantstore.ErrGone) {
			t.Errorf("%s: %v, want %v", name, err, plantstore.ErrGone)
		}
	}
	for _, c := range []plantstore.Cursor{"x", "1.2", "..", ".1.1", "é.1.1", "-.1.1", "a b.1.1", end + ".", " " + end, "latest "} {
		if _, err := s.Events(t.Context(), plantstore.EventQuery{After: c, Limit: 1}); !errors.Is(err, plantstore.ErrParameter) {
			t.Errorf("%q: %v, want %v", c, err, plantstore.ErrParameter)
		}
	}
}

func checkEventsAfterReopen(t *testing.T, s *subject) {
	apply(t, s, step{by("a", create(plant(1, "fern"))), created})
	first := wantEvents(t, s, "", change{Type: plantstore.PlantCreated, Plant: plant(1, "fern"), By: "a"})
	s.reopen(t)
	apply(t, s, step{by("b", remove(1)), deleted})
	s.reopen(t)
	end := wantEvents(t, s, first, change{Type: plantstore.PlantDeleted, Plant: plant(1, "fern"), By: "b"})
	wantEvents(t, s, end)
}

func checkChanged(t *testing.T, s *subject) {
	changed := s.Changed()
	apply(t, s, step{create(plant(1, "fern")), created})
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Error("the channel was not closed after a change")
	}
}

// checkSnapshotAndFeed copies a store by a snapshot and the events after it, while
// others write.
func checkSnapshotAndFeed(t *testing.T, s *subject) {
	var writers sync.WaitGroup
	for w := range plantstore.ID(4) {
		writers.Go(func() {
			for i := range plantstore.ID(30) {
				id := (w + i) % 7
				batch := []plantstore.Write{replace(plant(id, fmt.Sprint(w, i))), remove((id + 3) % 7)}
				if _, err := s.Apply(t.Context(), batch); err != nil && !errors.Is(err, plantstore.ErrRetry) {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		copied := map[plantstore.ID]plantstore.Plant{}
		var at plantstore.Cursor
		for p, err := range s.Scan(t.Context(), plantstore.Query{}, &at) {
			if err != nil {
				t.Fatal(err)
			}
			copied[p.ID] = p.Plant
		}
		defer func() {
			events, _ := follow(t, s, at)
			for _, e := range events {
				if e.Type == plantstore.PlantDeleted {
					delete(copied, e.Plant.ID)
				} else {
					copied[e.Plant.ID] = e.Plant
				}
			}
			for p, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
				if err != nil || copied[p.ID] != p.Plant {
					t.Errorf("the copy has %v, want %v (%v)", copied[p.ID], p, err)
				}
				delete(copied, p.ID)
			}
			for _, p := range copied {
				t.Errorf("the copy has %v, which is not in the store", p)
			}
		}()
	}
	writers.Wait()
}

// checkEventOrder has several writers race for the same plants, and checks that the log
// is a history that could have been: each event of a plant follows from the one before,
// and each writer finds its own changes there, in order, whatever their plants.
func checkEventOrder(t *testing.T, s *subject) {
	const writers, writes, plants = 4, 30, 3
	var changed [writers][]string
	inParallel(t, writers, func(w int) error {
		for i := range writes {
			id, name := plantstore.ID(i%plants), fmt.Sprint(w, ".", i)
			write := replace(plant(id, name))
			if i%5 == 4 {
				write = remove(id)
			}
			write.By = name
			results, err := applyBatch(t.Context(), s, []plantstore.Write{write})
			if err != nil {
				return err
			}
			if results[0].Err == nil {
				changed[w] = append(changed[w], name)
			}
		}
		return nil
	})
	current := make(map[plantstore.ID]plantstore.Plant)
	var logged [writers][]string
	events, _ := follow(t, s, "")
	for i, e := range events {
		was, found := current[e.Plant.ID]
		switch {
		case e.Type == plantstore.PlantCreated && !found, e.Type == plantstore.PlantReplaced && found && was != e.Plant:
			current[e.Plant.ID] = e.Plant
		case e.Type == plantstore.PlantDeleted && found && was == e.Plant:
			delete(current, e.Plant.ID)
		default:
			t.Fatalf("event %d, %v, follows %v (%t)", i, changeOf(e), was, found)
		}
		w := e.By[0] - '0'
		logged[w] = append(logged[w], e.By)
	}
	for w := range writers {
		if !slices.Equal(logged[w], changed[w]) {
			t.Errorf("the log has the changes %v of writer %d, want %v", logged[w], w, changed[w])
		}
	}
	wantAll(t, s, slices.SortedFunc(maps.Values(current), func(a, b plantstore.Plant) int { return cmp.Compare(a.ID, b.ID) })...)
}
