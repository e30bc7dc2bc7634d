package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"plantstore"
)

// CheckTrim checks what Events and Histogram return while a store's log is trimmed. It appends to
// the log and calls trim, which must remove some events, but not all, several times.
func CheckTrim(t *testing.T, s plantstore.Store, trim func()) {
	t.Helper()
	start := wantEvents(t, s, "")
	all := []plantstore.Event{{Cursor: start}} // every position, and the event before it
	trimmed := 0
	for round := range 3 {
		for i := range plantstore.ID(50) {
			mustApply(t, s, by("a", replace(plant(i%20, fmt.Sprint(round, i)))), by("b", remove((i+7)%20)))
		}
		added, end := follow(t, s, all[len(all)-1].Cursor)
		all = append(all, added...)
		trim()
		if _, latest := follow(t, s, plantstore.LatestCursor); latest != end {
			t.Fatalf("after a trim the log ends at %q, want %q", latest, end)
		}
		kept, _ := follow(t, s, "")
		before := trimmed
		if trimmed = len(all) - 1 - len(kept); trimmed <= before || len(kept) == 0 {
			t.Fatalf("of %d events, %d were trimmed after %d", len(all)-1, trimmed, before)
		}
		for i, e := range all {
			got, err := including(t, s, e.Cursor)
			if i > trimmed && (err != nil || !slices.Equal(got, all[i:])) {
				t.Errorf("round %d, from event %d on: %v, %v, want %v", round, i, got, err, all[i:])
			}
			if i <= trimmed && !errors.Is(err, plantstore.ErrGone) {
				t.Errorf("round %d, from event %d on, which is trimmed: %v, want %v", round, i, err, plantstore.ErrGone)
			}
			before := plantstore.EventQuery{Newest: true, Before: e.Cursor, Limit: 1}
			if i > trimmed {
				wantNewest(t, s, e.Cursor, all[trimmed+1:i])
			} else if _, err := s.Events(t.Context(), before); !errors.Is(err, plantstore.ErrGone) {
				t.Errorf("round %d, before event %d, which is trimmed: %v, want %v", round, i, err, plantstore.ErrGone)
			}
			if i >= trimmed {
				got, _ := follow(t, s, e.Cursor)
				if !slices.Equal(got, all[i+1:]) {
					t.Errorf("round %d, after event %d: got %v, want %v", round, i, got, all[i+1:])
				}
				continue
			}
			if _, err := s.Events(t.Context(), plantstore.EventQuery{After: e.Cursor, Limit: 1}); !errors.Is(err, plantstore.ErrGone) {
				t.Errorf("round %d, after event %d, which is trimmed: %v, want %v", round, i, err, plantstore.ErrGone)
			}
		}
		CheckHistories(t, s, 8)
		wantBacklogs(t, s, kept, all[0].Cursor, all[trimmed].Cursor, kept[len(kept)/2].Cursor)
		last := all[trimmed].Time // trimmed
		for _, since := range []time.Time{all[1].Time, last, last.Add(time.Microsecond)} {
			q := plantstore.HistogramQuery{Since: since, Until: all[len(all)-1].Time.Add(time.Second), Buckets: 50}
			want := histogram(kept, q)
			for i := range want {
				want[i].Partial = !want[i].Time.After(last)
			}
			if got, err := s.Histogram(t.Context(), q); err != nil || !slices.Equal(got, want) {
				t.Errorf("round %d: the histogram since %v is %v, %v, want %v", round, since, got, err, want)
			}
		}
		if page, err := s.Events(t.Context(), plantstore.EventQuery{Since: all[1].Time, Limit: 1}); err != nil || page.Events[0] != kept[0] {
			t.Errorf("since the first event: %v, %v, want %v", page.Events, err, kept[0])
		}
	}
}

// mustApply applies a batch, whatever its results are.
func mustApply(t tb, s plantstore.Store, batch ...plantstore.Write) {
	t.Helper()
	if _, err := applyBatch(t.Context(), s, batch); err != nil {
		t.Fatal(err)
	}
}
