package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/match"
)

var tagBehaviours = []behaviour{
	{"TagsAreCounted", tagsAreCounted},
	{"TagsAreInByteOrder", tagsAreInByteOrder},
	{"LimitBoundsThePageOfTags", limitBoundsThePageOfTags},
	{"LargeTagsAreCounted", largeTagsAreCounted},
	{"EveryTagOfALargeBatchIsCounted", everyTagOfALargeBatchIsCounted},
	{"TagsAreThoseOfASnapshot", tagsAreThoseOfASnapshot},
	{"ConcurrentWritesAreCounted", concurrentWritesAreCounted},
	{"PlantsOfATagAreCountedUpToAThousand", plantsOfATagAreCountedUpToAThousand},
}

// countTags returns the tags that a scan finds, in byte order.
func countTags(t tb, s plantstore.Store, prefix string) (tags []plantstore.TagCount) {
	t.Helper()
	counts := map[string]int{}
	for p, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
		if err != nil {
			t.Fatalf("Scan: %v", err)
		}
		if tag, ok := p.Tag.Text(); ok && strings.HasPrefix(tag, prefix) {
			counts[tag]++
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(counts)) {
		n := counts[tag]
		tags = append(tags, plantstore.TagCount{Tag: tag, Plants: min(n, plantstore.MaxTagPlants), More: n > plantstore.MaxTagPlants})
	}
	return tags
}

// readTags follows Next from the query's page to the last one.
func readTags(t tb, s plantstore.Store, q plantstore.TagQuery) (tags []plantstore.TagCount) {
	t.Helper()
	const maxPages = 20_000 // more than any test needs with one tag on each
	for range maxPages {
		page, err := s.Tags(t.Context(), q)
		if err != nil {
			t.Fatalf("Tags(%s): %v", showTagQuery(q), err)
		}
		if len(page.Tags) > q.Limit {
			t.Fatalf("Tags(%s): %d tags on the page", showTagQuery(q), len(page.Tags))
		}
		tags = append(tags, page.Tags...)
		if len(page.Tags) > 0 || page.Last != "" {
			p, err := s.Plant(t.Context(), page.Plant)
			if tag, _ := p.Tag.Text(); err != nil || tag != page.Last || len(page.Tags) > 0 && tag < tags[len(tags)-1].Tag {
				t.Fatalf("Tags(%s): plant %d does not have the last tag, but %s, %v", showTagQuery(q), page.Plant, showText(tag), err)
			}
		}
		if page.Next == "" {
			return tags
		}
		if page.Next <= q.From || len(tags) > 0 && page.Next <= tags[len(tags)-1].Tag {
			t.Fatalf("Tags(%s): Next is %s, which is not after the page", showTagQuery(q), showText(page.Next))
		}
		q.From = page.Next
	}
	t.Fatalf("Tags(%s): %d pages without a last one", showTagQuery(q), maxPages)
	return nil
}

// wantTags fails unless Tags returns what a scan counts, in pages of any size.
func wantTags(t tb, s plantstore.Store, prefixes ...string) {
	t.Helper()
	for _, prefix := range append(prefixes, "") {
		want := countTags(t, s, prefix)
		few := 1 + len(want)/20
		for _, q := range []plantstore.TagQuery{
			{Limit: few}, {Limit: max(1, len(want))}, {Limit: len(want) + 1}, {Contains: "1", Limit: 3 * few}, {Contains: "T AG", Limit: 3 * few},
		} {
			q.Prefix = prefix
			matches := match.New(q.Contains)
			matching := slices.DeleteFunc(slices.Clone(want), func(c plantstore.TagCount) bool { return !matches.Match(c.Tag) })
			if got := readTags(t, s, q); !slices.Equal(got, matching) {
				t.Fatalf("Tags(%s): got %s, want %s", showTagQuery(q), showTags(got), showTags(matching))
			}
		}
	}
}

func tagsAreCounted(t *testing.T, s *subject) {
	wantTags(t, s, "x")
	mustCreate(t, s, plant(1, "bare"), tagged(2, "a", "x"), tagged(3, "b", "x"), tagged(4, "c", ""), tagged(5, "d", "xy"))
	steps := [][]step{
		{{create(tagged(2, "a", "x")), unchanged}, {create(tagged(2, "a", "y")), idTaken}, {remove(9), noPlant}},
		{{replace(tagged(2, "other name", "x")), replaced}},
		{{replace(tagged(2, "a", "y")), replaced}},
		{{replace(plant(2, "a")), replaced}},
		{{replace(tagged(1, "bare", "x")), replaced}},
		{{replace(tagged(6, "new", "z")), created}},
		{{remove(3), deleted}, {remove(1), deleted}},
		{{create(tagged(3, "b", "x")), created}, {replace(tagged(3, "b", "y")), replaced}, {remove(3), deleted}, {create(tagged(3, "b", "z")), created}},
		{{remove(3), deleted}, {create(tagged(3, "b", "z")), created}},
		{{remove(4), deleted}, {remove(5), deleted}, {remove(6), deleted}, {remove(3), deleted}, {remove(2), deleted}},
		{{create(tagged(3, "b", "z")), created}},
	}
	for _, batch := range steps {
		apply(t, s, batch...)
		wantTags(t, s, "x", "no such")
		s.reopen(t)
		wantTags(t, s)
	}
}

func tagsAreInByteOrder(t *testing.T, s *subject) {
	texts := []string{
		"", "\x00", "\x00\x00", "\x00a", "\x01", " ", "A", "B", "a", "a\x00", "a\x00b", "aa", "b", "Z", "é", "e\u0301", "ß", "\u2400", "\u2400\x00",
		"\u241b", "\u241b\u2400", "\ufb01", "\U0001f33f", "\U0010ffff", "%", "_", "a%", "100", "99",
	}
	var plants []plantstore.Plant
	for i, text := range texts {
		plants = append(plants, tagged(plantstore.ID(i), "", text), tagged(plantstore.ID(-1-i), "", text))
	}
	mustCreate(t, s, plants...)
	wantTags(t, s, texts...)
	for _, from := range texts {
		want := slices.DeleteFunc(countTags(t, s, ""), func(c plantstore.TagCount) bool { return c.Tag < from })
		if got := readTags(t, s, plantstore.TagQuery{From: from, Limit: 4}); !slices.Equal(got, want) {
			t.Fatalf("tags from %q: got %s, want %s", from, showTags(got), showTags(want))
		}
	}
	if got := readTags(t, s, plantstore.TagQuery{Prefix: "a", From: "b", Limit: 4}); got != nil {
		t.Errorf("tags that begin with a from b: got %s", showTags(got))
	}
	s.reopen(t)
	wantTags(t, s, texts...)
}

func plantsOfATagAreCountedUpToAThousand(t *testing.T, s *subject) {
	var plants []plantstore.Plant
	for i := range plantstore.ID(3002) {
		tag := "most"
		if i < 2001 {
			tag = []string{"exactly", "more"}[i%2]
		}
		plants = append(plants, tagged(i, "", tag))
	}
	mustCreate(t, s, plants...)
	wantTags(t, s)
	s.reopen(t)
	apply(t, s, step{replace(tagged(0, "", "most")), replaced}, step{replace(tagged(1, "", "most")), replaced}, step{remove(2), deleted})
	wantTags(t, s)
	apply(t, s, step{replace(tagged(0, "", "exactly")), replaced}, step{create(tagged(2, "", "exactly")), created}, step{create(tagged(-1, "", "exactly")), created})
	wantTags(t, s)
}

func limitBoundsThePageOfTags(t *testing.T, s *subject) {
	var plants []plantstore.Plant
	for i := range plantstore.ID(1500) {
		plants = append(plants, tagged(i, "", fmt.Sprintf("tag %d", i)))
	}
	mustCreate(t, s, plants...)
	want := countTags(t, s, "")
	for _, limit := range []int{7, 1000, 1499, 1500, 1501} {
		page, err := s.Tags(t.Context(), plantstore.TagQuery{Limit: limit})
		if err != nil || !slices.Equal(page.Tags, want[:min(limit, len(want))]) || (page.Next == "") != (limit >= len(want)) {
			t.Fatalf("a limit of %d: %d tags and then %q, %v", limit, len(page.Tags), page.Next, err)
		}
	}
	wantTags(t, s, "tag 149", "tag 1499", "tag 14999")
}

// largeTagsAreCounted has tags that are too long for an index, alike and not.
func largeTagsAreCounted(t *testing.T, s *subject) {
	large := strings.Repeat("x", 1<<17)
	texts := []string{"", "x", "xx", large[:2000], large[:2000] + "y", large[:2001], large[:2705], large[:8191] + "\x00", large[:8192], large[:8192] + "a", large, large[1:] + "y"}
	var steps []step
	for i, text := range texts {
		steps = append(steps, step{create(tagged(plantstore.ID(i), "", text)), created}, step{create(tagged(plantstore.ID(1000+i), "", text)), created})
	}
	apply(t, s, steps...)
	wantTags(t, s, "x", large[:2000], large[:2001], large)
	s.reopen(t)
	wantTags(t, s)
	var removed []step
	for i := range texts {
		removed = append(removed, step{remove(plantstore.ID(i)), deleted})
		if i%2 == 0 {
			removed = append(removed, step{replace(tagged(plantstore.ID(1000+i), "", texts[i]+"!")), replaced})
		}
	}
	apply(t, s, removed...)
	wantTags(t, s, large[:2000])
}

func everyTagOfALargeBatchIsCounted(t *testing.T, s *subject) {
	const n = 3000
	batch := make([]plantstore.Plant, n)
	for i := range batch {
		batch[i] = tagged(plantstore.ID(i*7919%n), "", fmt.Sprintf("tag %d", i%1100))
	}
	mustCreate(t, s, batch...)
	wantTags(t, s)
	var changes []step
	for i := range batch {
		changes = append(changes, step{remove(plantstore.ID(i)), deleted})
		if i%3 > 0 {
			changes = append(changes, step{create(tagged(plantstore.ID(i), "", fmt.Sprintf("tag %d", i%3))), created})
		}
	}
	apply(t, s, changes...)
	wantTags(t, s)
	// Some of these exist already.
	again := make([]plantstore.Write, n)
	for i := range again {
		again[i] = create(tagged(plantstore.ID(i), "", fmt.Sprintf("tag %d", i%7)))
	}
	if _, err := applyBatch(t.Context(), s, again); err != nil {
		t.Fatal(err)
	}
	wantTags(t, s)
}

// tagsAreThoseOfASnapshot moves plants between two tags while it reads: every page has
// all of them.
func tagsAreThoseOfASnapshot(t *testing.T, s *subject) {
	const plants, rounds = 40, 60
	batch := func(round int) []plantstore.Write {
		writes := make([]plantstore.Write, plants)
		for i := range writes {
			writes[i] = replace(tagged(plantstore.ID(i), fmt.Sprint(round), fmt.Sprintf("tag %d", (i*round)%3)))
		}
		return writes
	}
	if _, err := applyBatch(t.Context(), s, batch(0)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	inParallel(t, 4, func(i int) error {
		if i == 0 {
			defer close(done)
			for round := range rounds {
				if _, err := applyBatch(t.Context(), s, batch(round+1)); err != nil {
					return err
				}
			}
			return nil
		}
		for !isClosed(done) {
			page, err := s.Tags(t.Context(), plantstore.TagQuery{Limit: 10})
			if err != nil {
				return err
			}
			sum := 0
			for _, tag := range page.Tags {
				sum += tag.Plants
			}
			if sum != plants || page.Next != "" {
				return fmt.Errorf("the tags have %d plants, want %d: %s", sum, plants, showTags(page.Tags))
			}
		}
		return nil
	})
	wantTags(t, s)
}

func concurrentWritesAreCounted(t *testing.T, s *subject) {
	inParallel(t, 8, func(writer int) error {
		random := rand.New(rand.NewPCG(uint64(writer), 0))
		for range 40 {
			batch := make([]plantstore.Write, 1+random.IntN(8))
			for i := range batch {
				p := tagged(plantstore.ID(random.IntN(30)), "", fmt.Sprintf("tag %d", random.IntN(5)))
				batch[i] = []plantstore.Write{create(p), create(p), replace(p), remove(p.ID)}[random.IntN(4)]
			}
			if _, err := applyBatch(t.Context(), s, batch); err != nil {
				return err
			}
		}
		return nil
	})
	wantTags(t, s)
	s.reopen(t)
	wantTags(t, s)
}
