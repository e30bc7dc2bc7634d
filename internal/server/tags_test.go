package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
)

func (s *service) listTags(t *testing.T, query string, header ...string) reply {
	t.Helper()
	return s.send(t, "GET", "/tags"+query, "", s.withDefaults(header)...)
}

// tagLink returns the query of the link to the next page.
func tagLink(t *testing.T, s *service, got reply) string {
	t.Helper()
	link := got.header.Get("Link")
	if link == "" {
		return ""
	}
	query, ok := strings.CutPrefix(link, "<"+s.BaseURL.String()+"/tags")
	query, end := strings.CutSuffix(query, `>; rel="next"`)
	if !ok || !end {
		t.Fatalf("got the Link %q", link)
	}
	return query
}

func TestTagsAreListedWithTheirPlants(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		if got := s.listTags(t, ""); string(got.body) != "[]\n" || got.header.Get("Link") != "" {
			t.Errorf("without plants: %s", got.body)
		}
		s.Fill(t, plant(1, "Monstera", "tropical"), plant(2, "Elm", "tree"), plant(3, "Oak", "tree"), plant(4, "", ""), plant(5, "", "\x00<é>"), plantstore.Plant{ID: 6})
		const all = `[{"tag":"","plants":1},{"tag":"\u0000<é>","plants":1},{"tag":"tree","plants":2},{"tag":"tropical","plants":1}]` + "\n"
		got := s.listTags(t, "")
		got.wantOK(t)
		if string(got.body) != all {
			t.Errorf("got %s, want %s", got.body, all)
		}
		got.wantHeader(t, "Cache-Control", "private, no-cache")
		for query, want := range map[string]string{
			"?prefix=tr":            `[{"tag":"tree","plants":2},{"tag":"tropical","plants":1}]`,
			"?prefix=tro":           `[{"tag":"tropical","plants":1}]`,
			"?prefix=%00":           `[{"tag":"\u0000<é>","plants":1}]`,
			"?prefix=TR":            `[]`,
			"?prefix=&from=tri":     `[{"tag":"tropical","plants":1}]`,
			"?prefix=tree&from=tri": `[]`,
		} {
			if got := s.listTags(t, query); got.status != http.StatusOK || string(got.body) != want+"\n" {
				t.Errorf("%s: got %d %s, want %s", query, got.status, got.body, want)
			}
		}
		var texts []string
		for query, pages := "?limit=1&prefix=", 0; query != ""; pages++ {
			got := s.listTags(t, query)
			var tags []struct{ Tag string }
			decodeJSON(t, got.body, &tags)
			if len(tags) != 1 || pages > 3 {
				t.Fatalf("%s: got %s", query, got.body)
			}
			texts = append(texts, tags[0].Tag)
			query = tagLink(t, s, got)
		}
		if want := []string{"", "\x00<é>", "tree", "tropical"}; !slices.Equal(texts, want) {
			t.Errorf("the pages have %q, want %q", texts, want)
		}
		s.Clear(t)
		if got := s.listTags(t, ""); string(got.body) != "[]\n" {
			t.Errorf("after all plants were deleted: %s", got.body)
		}
	})
}

func TestPlantsOfATagAreCountedUpToAThousand(t *testing.T) {
	s := startDefault(t)
	var plants []plantstore.Plant
	for i := range plantstore.ID(2001) {
		plants = append(plants, plant(i, "", []string{"more", "exactly"}[i%2]))
	}
	s.Fill(t, plants...)
	const want = `[{"tag":"exactly","plants":1000},{"tag":"more","plants":1000,"more":true}]` + "\n"
	if got := s.listTags(t, ""); string(got.body) != want {
		t.Errorf("got %s, want %s", got.body, want)
	}
}

func TestTagsParameters(t *testing.T) {
	s := startDefault(t)
	s.listTags(t, "?limit=5000").wantOK(t)
	s.listTags(t, "?prefix="+strings.Repeat("x", 4096)).wantOK(t)
	for query, want := range map[string]string{
		"?limit=0":                             `"limit" must be an integer, 1 or more, got "0"`,
		"?tag=x":                               `unknown parameter "tag"; allowed: limit, prefix, q, from`,
		"?q=+":                                 `"q" has nothing to search for: give a word of the tag`,
		"?from=%ff":                            `"from" is not UTF-8`,
		"?prefix=" + strings.Repeat("x", 4097): `"prefix" must have at most 4096 bytes, got 4097`,
	} {
		s.listTags(t, query).wantError(t, plantstore.ErrParameter, want)
	}
	secret := s.NewToken(plantstore.ScopeWrite)
	s.send(t, "GET", "/tags", "", "Authorization: Bearer "+secret).wantError(t, plantstore.ErrScope)
	s.send(t, "GET", "/tags", "").wantError(t, plantstore.ErrNoToken)
}

// Every page of large tags can be reached, although its start is too long for a URL.
func TestLargeTagsArePaged(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		large := strings.Repeat("\U0001f33f", 100_000)
		var plants []plantstore.Plant
		var want []string
		for i := range 8 {
			text := fmt.Sprint(i) + large
			want = append(want, text)
			plants = append(plants, plantstore.Plant{ID: plantstore.ID(i), Tag: plantstore.NewTag(text)})
		}
		for i := range 8 {
			text := "x" + large + fmt.Sprint(i)
			want = append(want, text)
			plants = append(plants, plantstore.Plant{ID: plantstore.ID(100 + i), Tag: plantstore.NewTag(text)})
		}
		plants = append(plants, plantstore.Plant{ID: 200, Tag: plantstore.NewTag("y")})
		s.Fill(t, plants...)
		var got []string
		for tag, err := range s.Client(client.Options{}).Tags(t.Context(), plantstore.TagQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, tag.Tag)
		}
		if !slices.Equal(got, append(want, "y")) {
			t.Errorf("got %d tags, want %d", len(got), len(want)+1)
		}
	})
}

// Tags that differ after their first 4096 bytes only are listed completely, in pages of the limit.
func TestTagsThatBeginAlikeAreListedCompletely(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		const n = 1200
		// The last character that fits into a URL has two bytes, and only one of them fits.
		alike := strings.Repeat("x", 4095) + "\u00e4"
		var plants []plantstore.Plant
		want := make([]string, n)
		for i := range want {
			want[i] = fmt.Sprintf("%s%04d", alike, i)
			plants = append(plants, plantstore.Plant{ID: plantstore.ID(n - i), Tag: plantstore.NewTag(want[i])})
		}
		s.Fill(t, plant(0, "", "w"), plant(-1, "", "y"))
		for some := range slices.Chunk(plants, 200) { // a batch must fit between two restarts of a pooler
			s.Fill(t, some...)
		}
		want = slices.Concat([]string{"w"}, want, []string{"y"})
		api := s.Client(client.Options{})
		for _, limit := range []int{1000, 500} {
			var got []string
			for tag, err := range api.Tags(t.Context(), plantstore.TagQuery{Limit: limit}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, tag.Tag)
			}
			if !slices.Equal(got, want) {
				t.Errorf("with a limit of %d: got %d tags, want %d", limit, len(got), len(want))
			}
		}

		// The plant at the end of a page gets another tag: nothing is left out.
		first, err := api.TagPage(t.Context(), plantstore.TagQuery{Limit: 1000})
		if err != nil || len(first.Tags) == 0 {
			t.Fatalf("%d tags, %v", len(first.Tags), err)
		}
		last := len(first.Tags) - 1
		s.Fill(t, plantstore.Plant{ID: plantstore.ID(n - (last - 1)), Tag: plantstore.NewTag(want[n])})
		rest := map[string]bool{}
		for tag, err := range api.Tags(t.Context(), plantstore.TagQuery{Limit: 1000, From: first.Next}) {
			if err != nil {
				t.Fatal(err)
			}
			rest[tag.Tag] = true
		}
		for _, text := range want[last+1:] {
			if !rest[text] {
				t.Fatalf("the tag that ends in %s is left out", text[max(0, len(text)-4):])
			}
		}
	})
}

// A search ends a page after a bounded amount of text also where no tag on it matches, and where the next page
// starts is too long for a URL.
func TestSearchForLargeTagsIsPaged(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		const n = 600
		alike := strings.Repeat("x", 5000)
		var plants []plantstore.Plant
		for i := range plantstore.ID(n) {
			plants = append(plants, plantstore.Plant{ID: i, Tag: plantstore.NewTag(fmt.Sprintf("%s%04d", alike, i))})
		}
		for some := range slices.Chunk(plants, 200) { // a batch must fit between two restarts of a pooler
			s.Fill(t, some...)
		}
		words := []string{"0599"}
		for len(words) < 32 { // each makes a page examine the text once more
			words = append(words, strings.Repeat("x", len(words)))
		}
		query, pages := "?q="+strings.Join(words, "+"), 0
		var found []struct{ Tag string }
		for ; query != "" && pages < n; pages++ {
			got := s.listTags(t, query)
			got.wantOK(t)
			decodeJSON(t, got.body, &found)
			query = tagLink(t, s, got)
		}
		if len(found) != 1 || found[0].Tag != alike+"0599" || pages < 3 {
			t.Errorf("%d tags on the last of %d pages, want one after at least 3", len(found), pages)
		}
	})
}

// A start that looks like that of a page, and is none, is a text like any other.
func TestTagsFromAnyLongText(t *testing.T) {
	s := startDefault(t)
	alike := strings.Repeat("x", 4096)
	s.Fill(t, plant(1, "", alike+"\x00"), plant(2, "", alike+"y"))
	for _, tt := range []struct {
		from string
		want int
	}{
		{alike + "\x0000000000.1.0123456789abcdef", 2}, // of a plant with another tag
		{alike + "\x0000000000.99999999999999999999.0123456789abcdef", 1},
		{alike + "\x0000000000.3.0123456789abcdef", 2}, // no plant
		{alike + "x", 1},
		{alike + "z", 0},
	} {
		var tags []struct{ Tag string }
		got := s.listTags(t, "?from="+url.QueryEscape(tt.from))
		got.wantOK(t)
		if decodeJSON(t, got.body, &tags); len(tags) != tt.want {
			t.Errorf("from %q: %d tags, want %d", tt.from[len(alike):], len(tags), tt.want)
		}
	}
}

// slowTags is a model whose tags take until it is opened.
type slowTags struct {
	*storetest.Model
	began, open chan struct{}
}

func (s slowTags) Tags(ctx context.Context, q plantstore.TagQuery) (plantstore.TagPage, error) {
	s.began <- struct{}{}
	<-s.open
	return s.Model.Tags(ctx, q)
}

func TestTagFloodDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	store := slowTags{storetest.NewModel(), make(chan struct{}), make(chan struct{})}
	s := start(t, servertest.Options{Store: store})
	s.Handler.WaitForTurns()
	flood, honest := s.NewToken(plantstore.ScopeRead), s.NewToken(plantstore.ScopeRead)
	done := make(replies)
	send := func(n int, secret string) {
		for range n {
			go func() { done <- s.send(t, "GET", "/tags", "", "Authorization: Bearer "+secret) }()
		}
	}
	const running, queued = 3, 20
	send(running+queued, flood)
	for range running {
		<-store.began
	}
	s.listAs(t, "", honest).wantOK(t) // lists of plants share the turns
	send(1, honest)
	<-store.began // before the queue of the flood
	go func() {
		for range queued {
			<-store.began
		}
	}()
	close(store.open)
	done.wantSuccess(t, running+queued+1)
}
