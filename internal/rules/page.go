package rules

import (
	"plantstore"
	"plantstore/internal/match"
)

const (
	// maxPageText is the amount of text that ends a page, in bytes. A page has at
	// least one plant, however large it is.
	maxPageText = 4 << 20
	// maxExaminedText is how much text one page examines, in bytes, once for each word of a
	// search.
	maxExaminedText = 32 << 20
)

// PageBuilder builds the [plantstore.Page] of a query from plants that a store reads in
// its order.
type PageBuilder struct {
	matches func(plantstore.Plant) bool
	limit   int           // plants that fit on the page
	budget  int           // plants that may still be examined
	last    plantstore.ID // the plant examined last
	page    plantstore.Page

	words          int // that each plant is compared with, 1 at least
	text, examined int // bytes of text on the page, and of all plants examined, for each word
}

// NewPageBuilder returns a builder for one page of the query. After examining
// budget plants, 1 at least, or 32 MiB of text divided by the words of the search, the page
// ends, however few of them matched. It also ends when its plants have 4 MiB of text.
func NewPageBuilder(q plantstore.Query, budget int) *PageBuilder {
	return &PageBuilder{matches: match.Filter(q), limit: q.Limit, budget: budget, words: max(1, match.Words(q.Contains))}
}

// Add examines the next plant and reports whether the builder wants another. The
// plant that it returns false for is not on the page: it starts the next one.
func (b *PageBuilder) Add(p plantstore.StoredPlant) bool {
	if len(b.page.Plants) == b.limit || b.budget == 0 || b.text >= maxPageText || b.examined >= maxExaminedText {
		b.page.Next = &b.last
		return false
	}
	b.budget--
	b.last = p.ID
	b.examined += p.TextSize() * b.words
	if b.matches(p.Plant) {
		b.text += p.TextSize()
		if b.page.Plants == nil {
			b.page.Plants = make([]plantstore.StoredPlant, 0, min(b.limit, 128))
		}
		b.page.Plants = append(b.page.Plants, p)
	}
	return true
}

// End ends the page before the next plant, because finding its plants has taken too much work. At least
// one must have been added.
func (b *PageBuilder) End() { b.budget = 0 }

// Page returns the page of the plants added so far.
func (b *PageBuilder) Page() plantstore.Page { return b.page }
