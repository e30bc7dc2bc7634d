package rules

import (
	"slices"

	"plantstore"
)

// PlantEvents is how a store finds the events of one plant without reading those of others: each
// leads to the one before it.
type PlantEvents interface {
	// Numbers returns the numbers of up to about most events of the plant, the newest first, and
	// reports whether there may be more that are not below low. They start with the event before
	// the one with the number before, if that is one of the plant's, and otherwise with the last.
	Numbers(before, low int64, most int) (numbers []int64, more bool, err error)
	// Each calls f with the events that have these numbers, in their order, until f returns false.
	Each(numbers []int64, f func(plantstore.Event) bool) error
}

// AddEventsOf adds the events of the query's plant to a page, from the first number that Start
// returned. It finds up to budget events of the plant that the query does not ask for, those of later
// pages for example. If there are more, it reports false and has added nothing: the log has to be
// searched.
func (l *LogRange) AddEventsOf(events PlantEvents, q *plantstore.EventQuery, first int64, budget int, page *EventPageBuilder) (found bool, err error) {
	if q.Newest {
		return l.addNewest(events, q, first, budget, page)
	}
	if first > l.Last {
		return true, nil
	}
	numbers, more, err := events.Numbers(0, first, budget)
	if err != nil || more {
		return false, err
	}
	slices.Reverse(numbers)
	return true, l.addFound(events, numbers, q.Limit+1, l.Last, page)
}

// addNewest is AddEventsOf for the newest first.
func (l *LogRange) addNewest(events PlantEvents, q *plantstore.EventQuery, first int64, budget int, page *EventPageBuilder) (bool, error) {
	low := l.Trimmed + 1
	skipped := 0
	before, most := first+1, q.Limit+1 // one more shows whether there is another page
	for first >= low {
		numbers, more, err := events.Numbers(before, low, most)
		if err != nil {
			return false, err
		}
		wanted := numbers
		for len(wanted) > 0 && wanted[0] > first {
			wanted = wanted[1:]
			skipped++
		}
		if !more {
			return true, l.addFound(events, wanted, most, low, page)
		}
		if err := events.Each(wanted, page.Add); err != nil || page.page.More {
			return true, err
		}
		if len(wanted) == 0 && skipped >= budget {
			return false, nil
		}
		before = numbers[len(numbers)-1]
		most = min(2*most, budget)
	}
	return true, nil
}

// addFound adds events that are the last ones, and then ends the page where the log does. It asks for
// some of them at first, and for more if those do not match: a store may send all that it is asked for.
func (l *LogRange) addFound(events PlantEvents, numbers []int64, some int, end int64, page *EventPageBuilder) error {
	for ; len(numbers) > 0; some *= 2 {
		some = min(some, len(numbers))
		if err := events.Each(numbers[:some], page.Add); err != nil || page.page.More {
			return err
		}
		numbers = numbers[some:]
	}
	at, err := l.At(end)
	page.page.Next = at.Cursor()
	return err
}
