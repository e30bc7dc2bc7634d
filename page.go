package plantstore

// PageBuilder builds the [Page] of a query from plants that a store reads in
// ascending order of id. Every store uses it, so that pages end alike.
type PageBuilder struct {
	query   Query
	matcher *Matcher
	budget  int // how many more plants may be examined
	last    ID  // the one examined last
	page    Page
}

// NewPageBuilder returns a builder for one page of the query. After examining
// budget plants the page ends, however few of them matched.
func NewPageBuilder(q Query, budget int) *PageBuilder {
	return &PageBuilder{query: q, matcher: NewMatcher(q.Contains), budget: budget}
}

// Add examines the next plant and reports whether the page can take another.
func (b *PageBuilder) Add(p Plant) bool {
	if len(b.page.Plants) == b.query.Limit || b.budget == 0 {
		b.page.Next = &b.last
		return false
	}
	b.budget--
	b.last = p.ID
	if b.query.matchesTag(p) && b.matcher.Match(p.Name) {
		b.page.Plants = append(b.page.Plants, p)
	}
	return true
}

// Page returns the page.
func (b *PageBuilder) Page() Page { return b.page }
