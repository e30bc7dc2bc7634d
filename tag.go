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

// TagCount is a tag, and how many plants have it.
type TagCount struct {
	Tag    string
	Plants int64
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
	query TagQuery
	last  string // the tag examined last
	text  int    // bytes of text on the page
	page  TagPage
}

// NewTagPageBuilder returns a builder for one page of the query. The page ends when its
// tags have 4 MiB of text.
func NewTagPageBuilder(q TagQuery) *TagPageBuilder { return &TagPageBuilder{query: q} }

// Add examines the next tag, which may have no plants, and reports whether the builder
// wants another. The first one is not before the query's Start.
func (b *TagPageBuilder) Add(t TagCount) bool {
	if !strings.HasPrefix(t.Tag, b.query.Prefix) {
		return false
	}
	if len(b.page.Tags) == b.query.Limit || b.text >= maxPageText {
		b.End(t.Tag)
		return false
	}
	b.last = t.Tag
	if t.Plants != 0 {
		b.text += len(t.Tag)
		b.page.Tags = append(b.page.Tags, t)
	}
	return true
}

// End ends the page before a tag that is after those examined.
func (b *TagPageBuilder) End(next string) {
	if strings.HasPrefix(next, b.query.Prefix) {
		b.page.Next = separator(b.last, next)
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
