package storetest

import (
	"math/rand/v2"
	"strings"
	"testing"

	"plantstore"
)

// syllables make names and searches that have much in common. Some fold, some are longer than they
// look, and some mean something to the index of a store.
var syllables = []string{
	"a", "mon", "ste", "RA", "\u00c9", "e\u0301t\u00e9", "\u0444\u0438\u043a\u0443\u0441", "\u039f\u03a3", "\u03c2 ", "\u03a3\u03c3", "\u89c0\u97f3\u84ee",
	"%", "_", "\\", "\"", "*", "NEAR", "'", "^", "\x00", "\x01", "\ufffe", "\u212a", "\U0001f335", "-", " ", " ", " ",
	"\u05e9\u05e8\u05da", "\u0130", "I\u0131i", "\u0937\u093f", "\ub098\ubb34\uaf43",
}

// AnyText returns a name or a search of up to so many syllables.
func AnyText(r *rand.Rand, most int) string {
	var b strings.Builder
	for range r.IntN(most + 1) {
		b.WriteString(syllables[r.IntN(len(syllables))])
	}
	return b.String()
}

// CompareSearches compares n random searches of a store with those of the model, which has the same plants: some
// with the tag t, and some without a tag. id returns an id after which a page may begin.
func CompareSearches(t *testing.T, r *rand.Rand, n int, s plantstore.Store, model *Model, id func() plantstore.ID) {
	t.Helper()
	for range n {
		q := plantstore.Query{Contains: AnyText(r, 3), Limit: 1 + r.IntN(30), Order: plantstore.Orders()[r.IntN(4)]}
		switch r.IntN(8) {
		case 0:
			q.Tag = plantstore.NewTag("t")
		case 1:
			q.Tags = []string{"", "t", "u"}
		case 2:
			q.TagPrefix = new("t")
		case 3:
			q.Untagged = true
		}
		if q.Order.ByName() {
			q.Limit *= 50 // each page sorts all of them
		} else if r.IntN(3) == 0 {
			q.After = new(id())
		}
		CompareSearch(t, s, model, q)
	}
}

// CompareSearch compares the scan and the pages of a search with those of the model. A count may be given up, and is not compared.
func CompareSearch(t *testing.T, s plantstore.Store, model *Model, q plantstore.Query) {
	t.Helper()
	want := Scan(t, model, q)
	wantScan(t, s, q, want)
	q.Limit = max(q.Limit, len(want)/20) // or there would be hundreds of pages
	followPages(t, s, q, want, false)
}

// Scan returns the plants that a query finds.
func Scan(t *testing.T, s plantstore.Store, q plantstore.Query) []plantstore.Plant {
	t.Helper()
	plants, err := collect(s.Scan(t.Context(), q, nil))
	if err != nil {
		t.Fatalf("Scan(%s): %v", showQuery(q), err)
	}
	return plants
}
