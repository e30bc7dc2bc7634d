package rules

import (
	"strings"
	"unicode/utf8"

	"plantstore"
	"plantstore/internal/match"
)

// TagPageBuilder builds the [plantstore.TagPage] of a query from tags that a store reads in
// the order of their bytes.
type TagPageBuilder struct {
	query  plantstore.TagQuery
	words  *match.Matcher
	each   int    // how many words each tag is compared with, 1 at least
	last   string // the tag added last
	text   int    // bytes of text on the page
	seen   int    // bytes of text that was examined, for each word
	budget int
	page   plantstore.TagPage
}

// NewTagPageBuilder returns a builder for one page of the query. The page ends when its
// tags have 4 MiB of text, or when the builder has examined 32 MiB of text, divided by the words
// of the search, or taken more work than the budget.
func NewTagPageBuilder(q plantstore.TagQuery, budget int) *TagPageBuilder {
	return &TagPageBuilder{query: q, words: match.New(q.Contains), each: max(1, match.Words(q.Contains)), budget: budget}
}

// Wants reports whether the page goes on with a tag, which is after those added. If not, the
// page ends. The first tag is not before the query's Start.
func (b *TagPageBuilder) Wants(tag string) bool {
	if !strings.HasPrefix(tag, b.query.Prefix) {
		return false
	}
	if len(b.page.Tags) < b.query.Limit && b.text < maxPageText && b.seen < maxExaminedText && b.budget > 0 {
		return true
	}
	b.page.Next = separator(b.last, tag)
	return false
}

// Matches reports whether a tag that the builder wants has the words of the query. If not, the
// tag is not to be added, and to find it took that much work.
func (b *TagPageBuilder) Matches(tag string, work int) bool {
	b.seen += len(tag) * b.each
	if b.words.Match(tag) {
		return true
	}
	b.last = tag
	b.budget -= 1 + work
	return false
}

// Add adds a tag that the builder wants, and that matches, unless it has no plants. One of them has the id. To find
// and count them took that much work: how many plants were examined.
func (b *TagPageBuilder) Add(tag string, plants int, id plantstore.ID, work int) {
	b.last = tag
	b.budget -= 1 + work
	if plants > 0 {
		b.text += len(tag)
		b.Found(id)
		b.page.Tags = append(b.page.Tags, plantstore.TagCount{
			Tag: tag, Plants: min(plants, plantstore.MaxTagPlants), More: plants > plantstore.MaxTagPlants,
		})
	}
}

// Found says that a plant has the tag that was examined last.
func (b *TagPageBuilder) Found(id plantstore.ID) { b.page.Last, b.page.Plant = b.last, id }

// Examined returns the tag that was examined last, and whether a plant with it remains to be found: the next page
// may begin after that.
func (b *TagPageBuilder) Examined() (tag string, find bool) {
	return b.last, b.page.Next != "" && b.page.Last != b.last
}

// Page returns the page of the tags added so far.
func (b *TagPageBuilder) Page() plantstore.TagPage { return b.page }

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

// PrefixEnd returns the least text in valid UTF-8 that is after every text that begins with a
// prefix. If there is none, ok is false.
func PrefixEnd(prefix string) (end string, ok bool) {
	for len(prefix) > 0 {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case last == 0xd7ff:
			return prefix + "\ue000", true // after the surrogates, which are no text
		case last < utf8.MaxRune:
			return prefix + string(last+1), true
		}
	}
	return "", false
}
