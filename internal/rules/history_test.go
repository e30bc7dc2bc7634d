package rules_test

import (
	"testing"

	"plantstore"
	"plantstore/internal/rules"
)

// manyEvents are the events 1 to last of a plant. It records how many were asked for at once.
type manyEvents struct {
	last  int64
	asked []int
}

func (m *manyEvents) Numbers(before, low int64, most int) (numbers []int64, more bool, err error) {
	if before == 0 {
		before = m.last + 1
	}
	for seq := before - 1; seq >= low && len(numbers) < most; seq-- {
		numbers = append(numbers, seq)
	}
	return numbers, len(numbers) == most, nil
}

func (m *manyEvents) Each(numbers []int64, f func(plantstore.Event) bool) error {
	m.asked = append(m.asked, len(numbers))
	for _, seq := range numbers {
		if !f(plantstore.Event{Cursor: plantstore.Position{Seq: seq}.Cursor(), Type: plantstore.PlantReplaced}) {
			break
		}
	}
	return nil
}

// A store sends all events that it is asked for, also those after the page. So a page asks for those that it has room
// for, and for more only if they do not match.
func TestPageOfAHistoryAsksForItsEvents(t *testing.T) {
	const last, limit = 30_000, 100
	log := rules.LogRange{Last: last, TimeOf: func(int64) (int64, error) { return 0, nil }}
	for _, tt := range []struct {
		types []plantstore.EventType
		want  int // events on the page
		most  int // calls
	}{{nil, limit, 1}, {[]plantstore.EventType{plantstore.PlantDeleted}, 0, 9}} {
		events := &manyEvents{last: last}
		q := plantstore.EventQuery{Limit: limit, Types: tt.types}
		page := rules.NewEventPageBuilder(q, "", last+1)
		found, err := log.AddEventsOf(events, &q, 1, last+1, page)
		got := page.Page()
		if err != nil || !found || len(got.Events) != tt.want || got.More != (tt.want > 0) {
			t.Errorf("types %v: %d events, more: %t, found: %t, %v", tt.types, len(got.Events), got.More, found, err)
		}
		if events.asked[0] != limit+1 || len(events.asked) > tt.most {
			t.Errorf("types %v: asked for %v events", tt.types, events.asked)
		}
	}
}
