package harness

import (
	"fmt"
	"slices"
	"strings"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/testenv"
)

// searched returns the name of a plant that [Server.ImportSearched] creates.
func searched(id int) string {
	name := []string{"Monstera", "Philodendron"}[id%2] + fmt.Sprintf(" %05d", id)
	if id%3 == 0 {
		name += " Фикус"
	}
	return name
}

// ImportSearched imports n plants for [Server.CompareSearches].
func (s *Server) ImportSearched(n int) {
	s.t.Helper()
	var lines strings.Builder
	for id := range n {
		fmt.Fprintf(&lines, `{"id":%d,"name":%q}`+"\n", id, searched(id))
	}
	s.Import(lines.String())
}

// CompareSearches compares searches with the names of the n plants that were imported.
func (s *Server) CompareSearches(n int) {
	s.t.Helper()
	c := s.Client(client.Options{})
	for _, text := range []string{"monstera philodendron", "0471", "stera 4711", "ФИКУС 12", "кус philo 99", "xyz"} {
		var want []plantstore.ID
		for id := range n {
			name := strings.ToLower(searched(id))
			if !slices.ContainsFunc(strings.Fields(strings.ToLower(text)), func(word string) bool { return !strings.Contains(name, word) }) {
				want = append(want, plantstore.ID(id))
			}
		}
		q := plantstore.Query{Contains: text}
		for p, err := range c.List(s.t.Context(), q) {
			if err != nil {
				s.t.Fatal(err)
			}
			if len(want) == 0 || p.ID != want[0] {
				s.t.Fatalf("the pages of the search for %q have plant %d, want %v", text, p.ID, want)
			}
			want = want[1:]
		}
		if len(want) > 0 {
			s.t.Errorf("the pages of the search for %q lack %v", text, want)
		}
	}
}

// AwaitIndex waits until the index for searches has enough plants or is ready, and returns it. Until then it must not have
// fewer plants than least.
func (s *Server) AwaitIndex(least, enough int64) (x plantstore.SearchIndex) {
	s.t.Helper()
	c := s.Client(client.Options{})
	testenv.Eventually(s.t, func() error {
		about, err := c.About(s.t.Context())
		if err != nil {
			return err
		}
		x = *about.SearchIndex
		if x.State != plantstore.SearchReady && x.Plants < least {
			s.t.Fatalf("the index is %+v, and had %d plants", x, least)
		}
		if x.State != plantstore.SearchReady && x.Plants < enough {
			return fmt.Errorf("the index is %+v", x)
		}
		return nil
	})
	return x
}
