package plantstore

import (
	"strings"
	"unicode/utf8"
)

// TagQuery selects tags.
type TagQuery struct {
	// Prefix selects tags that begin with this text.
	Prefix string
	// From selects tags that are not before this text, in the order of their bytes.
	From string
	// Limit is the maximum number of tags on a page. It must be at least 1. A page of
	// large tags has fewer.
	Limit int
}

// Start returns the least text that a tag of the query can be.
func (q TagQuery) Start() string { return max(q.Prefix, q.From) }

// MaxTagPlants is up to how many plants of a tag are counted.
const MaxTagPlants = 1000

// TagCount is a tag, and how many plants have it: Plants, which is at most [MaxTagPlants], or
// more than that.
type TagCount struct {
	Tag    string
	Plants int
	More   bool
}

// TagPage is one page of tags.
type TagPage struct {
	Tags []TagCount
	// Next is the From of the next page, or empty if this page is the last. It is the
	// shortest text that is after this page, and not after the next.
	Next string
}

// TagPageBuilder builds the [TagPage] of a query from tags that a store reads in the
// order of their bytes. Every store uses it, so that all end their pages by the same
// rules.
type TagPageBuilder struct {
	query  TagQuery
	last   string // the tag added last
	text   int    // bytes of text on the page
	budget int
	page   TagPage
}

// NewTagPageBuilder returns a builder for one page of the query. The page ends when its
// tags have 4 MiB of text, or when they took more work than the budget.
func NewTagPageBuilder(q TagQuery, budget int) *TagPageBuilder {
	return &TagPageBuilder{query: q, budget: budget}
}

// Wants reports whether the page goes on with a tag, which is after those added. If not, the
// page ends. The first tag is not before the query's Start.
func (b *TagPageBuilder) Wants(tag string) bool {
	if !strings.HasPrefix(tag, b.query.Prefix) {
		return false
	}
	if len(b.page.Tags) < b.query.Limit && b.text < maxPageText && b.budget > 0 {
		return true
	}
	b.page.Next = separator(b.last, tag)
	return false
}

// Add adds a tag that the builder wants, unless it has no plants. To find and count them took
// that much work: how many plants were examined.
func (b *TagPageBuilder) Add(tag string, plants, work int) {
	b.last = tag
	b.budget -= 1 + work
	if plants > 0 {
		b.text += len(tag)
		b.page.Tags = append(b.page.Tags, TagCount{tag, min(plants, MaxTagPlants), plants > MaxTagPlants})
	}
}

// Page returns the page of the tags added so far.
func (b *TagPageBuilder) Page() TagPage { return b.page }

// separator returns the shortest text in valid UTF-8 that is after a and begins b, which
// is after a.
func separator(a, b string) string {
	n := 0
	for n < len(a) && a[n] == b[n] {
		n++
	}
	for n++; n < len(b) && !utf8.RuneStart(b[n]); n++ {
	}
	return b[:n]
}
