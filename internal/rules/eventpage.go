package rules

import (
	"plantstore"
	"plantstore/internal/match"
)

// EventPageBuilder builds a [plantstore.EventPage] from the events that a store reads in
// the order of the query.
type EventPageBuilder struct {
	query  plantstore.EventQuery
	name   *match.Matcher
	words  int // that each name is compared with, 1 at least
	budget int // how many more events may be examined
	page   plantstore.EventPage

	text, examined int // bytes of text on the page, and of all events examined, for each word
}

// NewEventPageBuilder returns a builder for one page from a position on. After examining
// budget events, or 32 MiB of text divided by the words of the search, the page ends, however few of them matched. It also
// ends when its events have 4 MiB of text.
func NewEventPageBuilder(q plantstore.EventQuery, start plantstore.Cursor, budget int) *EventPageBuilder {
	name, words := match.New(q.Contains), max(1, match.Words(q.Contains))
	return &EventPageBuilder{query: q, name: name, words: words, budget: budget, page: plantstore.EventPage{Start: start, Next: start}}
}

// Add examines the next event and reports whether the page can take another.
func (b *EventPageBuilder) Add(e plantstore.Event) bool {
	if len(b.page.Events) == b.query.Limit || b.budget == 0 || b.text >= maxPageText || b.examined >= maxExaminedText {
		b.page.More = true
		return false
	}
	b.budget--
	b.page.Next = e.Cursor
	b.examined += e.TextSize() * b.words
	if b.query.Matches(&e) && b.name.Match(e.Plant.Name) {
		b.text += e.TextSize()
		b.page.Events = append(b.page.Events, e)
	}
	return true
}

// Page returns the page.
func (b *EventPageBuilder) Page() plantstore.EventPage { return b.page }
