package postgres

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
)

func TestEscapedTagsAreInTheSameOrder(t *testing.T) {
	text := rapid.StringOfN(rapid.SampledFrom([]rune{0, 1, 2, 'a', '\u2400', '\u241b'}), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		x, y := orderEscapes.Replace(a), orderEscapes.Replace(b)
		if cmp.Compare(a, b) != cmp.Compare(x, y) {
			t.Errorf("%q and %q are stored as %q and %q", a, b, x, y)
		}
		if got := orderUnescapes.Replace(x); got != a || strings.Contains(x, "\x00") {
			t.Errorf("%q is stored as %q, which is %q", a, x, got)
		}
	})
}

// The migration counts what the store counts, whatever the characters.
func TestMigrationCountsEveryTag(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openStore(t, url)
	var writes []plantstore.Write
	parts := []string{"", "\x00", "\x01", "\x02", "\x03", "\x05", "a", "\u2400", "\u241b"}
	for _, a := range parts {
		for _, b := range parts {
			for _, c := range parts {
				id := plantstore.ID(len(writes))
				writes = append(writes, create(plantstore.Plant{ID: id, Tag: plantstore.NewTag(a + b + c)}))
			}
		}
	}
	writes = append(writes, create(plantstore.Plant{ID: -1}), create(plantstore.Plant{ID: -2, Tag: plantstore.NewTag(strings.Repeat("x", 100_000))}))
	apply(t, s, writes...)
	want, err := s.Tags(t.Context(), plantstore.TagQuery{Limit: 10_000})
	if err != nil || len(want.Tags) < 500 {
		t.Fatalf("%d tags, %v", len(want.Tags), err)
	}
	script, err := schemaFiles.ReadFile("schema/0007_tags.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, fill, _ := strings.Cut(string(script), "INSERT INTO tags")
	keys := query(t, url, "SELECT concat(key, plants) FROM tags ORDER BY 1")
	query(t, url, "DELETE FROM tags")
	query(t, url, "INSERT INTO tags"+fill)
	if got, err := s.Tags(t.Context(), plantstore.TagQuery{Limit: 10_000}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the migration counts %v, want %v, %v", got, want, err)
	}
	if got := query(t, url, "SELECT concat(key, plants) FROM tags ORDER BY 1"); !slices.Equal(got, keys) {
		t.Error("the migration uses other keys")
	}
}

func TestTagsAreReadByTheirIndex(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openStore(t, url)
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	query(t, url, "INSERT INTO tags SELECT sha256(n::text::bytea), 'tag ' || n, 1 FROM generate_series(1, 50000) AS n")
	for _, analyze := range []string{"SELECT 1", "ANALYZE tags"} {
		query(t, url, analyze)
		plan := strings.Join(query(t, url, "EXPLAIN "+strings.NewReplacer("$1", "'tag 3'", "$2", "'tag 3'", "$3", "1001").Replace(selectTags)), "\n")
		if !strings.Contains(plan, "tags_in_order") || !strings.Contains(plan, "Incremental Sort") {
			t.Errorf("after %s:\n%s", analyze, plan)
		}
	}
}
