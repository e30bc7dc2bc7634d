package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"plantstore"
	"plantstore/internal/rules"
)

// buildTags builds a page of sorted tags.
func buildTags(sorted []plantstore.TagCount, q plantstore.TagQuery, budget int) plantstore.TagPage {
	b := rules.NewTagPageBuilder(q, budget)
	for _, tag := range sorted {
		if tag.Tag < q.Start() {
			continue
		}
		if !b.Wants(tag.Tag) {
			break
		}
		b.Add(tag.Tag, tag.Plants, 0, tag.Plants)
	}
	return b.Page()
}

// allTags follows the pages of a query over sorted tags, and fails if a page breaks a rule.
func allTags(t rapid.TB, sorted []plantstore.TagCount, q plantstore.TagQuery) (all []plantstore.TagCount) {
	t.Helper()
	for range len(sorted) + 1 {
		page := buildTags(sorted, q, 1<<20)
		if len(page.Tags) > q.Limit {
			t.Fatalf("%d tags on a page of %d", len(page.Tags), q.Limit)
		}
		all = append(all, page.Tags...)
		if page.Next == "" {
			return all
		}
		if len(page.Tags) > 0 && page.Next <= page.Tags[len(page.Tags)-1].Tag {
			t.Fatalf("the page after %q starts at %q", page.Tags[len(page.Tags)-1].Tag, page.Next)
		}
		q.From = page.Next
	}
	t.Fatalf("%d pages without a last one", len(sorted)+1)
	return nil
}

func TestPagesOfTagsAreComplete(t *testing.T) {
	text := rapid.StringOfN(rapid.SampledFrom([]rune{0, 'a', 'b', 'ä', 'å', '\u2400', '\U0010ffff'}), 0, 4, -1)
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfNDistinct(text, 0, 20, rapid.ID).Draw(t, "tags")
		slices.Sort(texts)
		q := plantstore.TagQuery{Prefix: text.Draw(t, "prefix"), Limit: rapid.IntRange(1, 5).Draw(t, "limit")}
		var sorted, want []plantstore.TagCount
		for _, text := range texts {
			tag := plantstore.TagCount{Tag: text, Plants: rapid.IntRange(0, 3).Draw(t, "plants")}
			sorted = append(sorted, tag)
			if strings.HasPrefix(text, q.Prefix) && tag.Plants > 0 {
				want = append(want, tag)
			}
		}
		if got := allTags(t, sorted, q); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestNextTagIsShort(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for _, tt := range []struct{ first, second, want string }{
		{"", "a", "a"},
		{"a", "b" + large, "b"},
		{"a" + large, "b" + large, "b"},
		{"rose", "rosemary", "rosem"},
		{"tree", "tropical", "tro"},
		{"\u00e4" + large, "\u00e5" + large, "\u00e5"},
		{"a", "\U0001f33f" + large, "\U0001f33f"},
	} {
		sorted := []plantstore.TagCount{{Tag: tt.first, Plants: 1}, {Tag: tt.second, Plants: 1}}
		if got := buildTags(sorted, plantstore.TagQuery{Limit: 1}, 100).Next; got != tt.want {
			t.Errorf("after %.20q, before %.20q: got %.20q, want %q", tt.first, tt.second, got, tt.want)
		}
	}
}

func TestPageOfTagsIsBoundedByItsText(t *testing.T) {
	var sorted []plantstore.TagCount
	for i := range 10 {
		sorted = append(sorted, plantstore.TagCount{Tag: fmt.Sprintf("%d", i) + strings.Repeat("x", 1<<20), Plants: 1})
	}
	if page := buildTags(sorted, plantstore.TagQuery{Limit: 100}, 100); len(page.Tags) != 4 || page.Next != "4" {
		t.Errorf("%d tags on a page, and then %.10q", len(page.Tags), page.Next)
	}
	if got := allTags(t, sorted, plantstore.TagQuery{Limit: 100}); !slices.Equal(got, sorted) {
		t.Errorf("got %d tags, want %d", len(got), len(sorted))
	}
}

func TestPageOfTagsIsBoundedByItsWork(t *testing.T) {
	sorted := []plantstore.TagCount{{Tag: "a", Plants: 10}, {Tag: "b"}, {Tag: "c", Plants: 10}, {Tag: "d", Plants: 1}}
	page := buildTags(sorted, plantstore.TagQuery{Limit: 100}, 15)
	if len(page.Tags) != 2 || page.Next != "d" {
		t.Errorf("%v on a page, and then %q", page.Tags, page.Next)
	}
}
