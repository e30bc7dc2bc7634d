package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
)

// fillTags fills an empty store with plants. tag is an expression for the tag of plant i.
func fillTags(t *testing.T, url string, n int, tag string) {
	t.Helper()
	query(t, url, fmt.Sprintf("INSERT INTO stored_plants SELECT i, 'fern', %s FROM generate_series(0, %d - 1) AS i", tag, n))
}

// TestTagsAreReadByTheirIndex has few tags, so that going through all plants of the table
// looks cheap to the planner.
func TestTagsAreReadByTheirIndex(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	fillTags(t, url, 20_000, "'tag ' || i / 5000")
	for _, analyze := range []string{"SELECT 1", "ANALYZE plants"} {
		query(t, url, analyze)
		plan := queryText(t, s, "EXPLAIN "+selectTags, "tag", "t", 1001, tagBudget, 1001)
		if strings.Count(plan, "Index Scan using plants_by_tag") != 3 || strings.Contains(plan, "Seq Scan") || strings.Count(plan, "Sort Key") != 1 {
			t.Errorf("after %s:\n%s", analyze, plan)
		}
	}
}

// TestPageOfTagsIsBounded has tags with so many plants that they take two pages, whether they
// share their start or not.
func TestPageOfTagsIsBounded(t *testing.T) {
	for _, c := range []struct {
		start        string
		tags, plants int
		pages        []int
	}{
		{"", 60, 1001, []int{50, 10}},
		{strings.Repeat("x", 200), 9, tagBudget / 6, []int{6, 3}},
	} {
		url := pgtest.Fresh(t)
		s := openReady(t, url)
		fillTags(t, url, c.tags*c.plants, fmt.Sprintf("'%s' || 10 + i %% %d", c.start, c.tags))
		var pages []int
		var got, want []plantstore.TagCount
		for q := (plantstore.TagQuery{Limit: 100}); len(pages) == 0 || q.From != "" && len(pages) <= len(c.pages); {
			page, err := s.Tags(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			pages, got = append(pages, len(page.Tags)), append(got, page.Tags...)
			q.From = page.Next
		}
		for i := range c.tags {
			want = append(want, plantstore.TagCount{Tag: fmt.Sprint(c.start, 10+i), Plants: plantstore.MaxTagPlants, More: true})
		}
		if !slices.Equal(got, want) || !slices.Equal(pages, c.pages) {
			t.Errorf("pages of %v tags, want %v: %.500v", pages, c.pages, got)
		}
	}
}

// TestTagsAreNotCountedInVain counts the tags that the server reads for a page: one more
// than the page has.
func TestTagsAreNotCountedInVain(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	fillTags(t, url, 2000, "lpad((i % 100)::text, 2, '0')")
	for _, c := range []struct {
		from, prefix string
		limit        int
		budget       int
		want         string
	}{
		{"", "", 3, 1000, "00 20\n01 20\n02 20"},
		{"", "", 100, 40, "00 20\n01 20\n02 20"},
		{"", "", 100, 41, "00 20\n01 20\n02 20\n03 20"},
		{"09", "0", 100, 1000, "09 20\n10 20"},
		{"x", "", 100, 1000, ""},
	} {
		got := queryText(t, s, "SELECT concat(tag, ' ', plants) FROM ("+selectTags+") AS tags", c.from, c.prefix, c.limit, c.budget, 1001)
		if got != c.want {
			t.Errorf("%+v: got\n%s", c, got)
		}
	}
}
