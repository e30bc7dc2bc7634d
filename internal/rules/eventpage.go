package rules

import "plantstore"

// EventPageBuilder builds a [plantstore.EventPage] from the events that a store reads in
// the order of the query.
type EventPageBuilder struct {
	query  plantstore.EventQuery
	budget int // how many more events may be examined
	page   plantstore.EventPage

	text, examined int // bytes of text on the page, and of all events examined
}

// NewEventPageBuilder returns a builder for one page from a position on. After examining
// budget events, or 32 MiB of text, the page ends, however few of them matched. It also
// ends when its events have 4 MiB of text.
func NewEventPageBuilder(q plantstore.EventQuery, start plantstore.Cursor, budget int) *EventPageBuilder {
	return &EventPageBuilder{query: q, budget: budget, page: plantstore.EventPage{Start: start, Next: start}}
}

// Add examines the next event and reports whether the page can take another.
func (b *EventPageBuilder) Add(e plantstore.Event) bool {
	if len(b.page.Events) == b.query.Limit || b.budget == 0 || b.text >= maxPageText || b.examined >= maxExaminedText {
		b.page.More = true
		return false
	}
	b.budget--
	b.page.Next = e.Cursor
	b.examined += e.TextSize()
	if b.query.Matches(&e) {
		b.text += e.TextSize()
		b.page.Events = append(b.page.Events, e)
	}
	return true
}

// Page returns the page.
func (b *EventPageBuilder) Page() plantstore.EventPage { return b.page }
