package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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

// TestTagsAreFoldedWhileOthersWrite has two servers fold and write concurrently. What a
// fold sees of the log, and what it leaves for the next, must be exact.
func TestTagsAreFoldedWhileOthersWrite(t *testing.T) {
	url := pgtest.Fresh(t)
	stores := []*Store{openReady(t, url), openReady(t, url)}
	const writers, batches = 4, 60
	done := make(chan struct{})
	var folding sync.WaitGroup
	for _, s := range stores {
		folding.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := s.fold(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	inParallel(t, writers, func(w int) error {
		random := rand.New(rand.NewPCG(1, uint64(w)))
		for range batches {
			var batch []plantstore.Write
			for range 1 + random.IntN(8) {
				p := plantstore.Plant{ID: plantstore.ID(random.IntN(50)), Name: "fern", Tag: plantstore.NewTag(fmt.Sprint(random.IntN(10)))}
				if random.IntN(3) == 0 {
					batch = append(batch, remove(p.ID))
				} else {
					batch = append(batch, replace(p, nil))
				}
			}
			if _, err := applyRetrying(t.Context(), stores[w%2], batch); err != nil {
				return err
			}
		}
		return nil
	})
	page, err := stores[0].Tags(t.Context(), plantstore.TagQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	close(done)
	folding.Wait()
	var got []string
	for _, tag := range page.Tags {
		got = append(got, fmt.Sprint(tag.Tag, " ", tag.Plants))
	}
	if want := query(t, url, "SELECT tag || ' ' || count(*) FROM plants GROUP BY tag ORDER BY tag"); !slices.Equal(got, want) {
		t.Errorf("the tags are %v, want %v", got, want)
	}
	if got := query(t, url, "SELECT folded FROM tags_state JOIN log_state ON folded = seq"); len(got) != 1 {
		t.Error("not all is folded")
	}
}

// TestTagsAreFoldedInPieces has more rows, and more text, than one transaction folds.
func TestTagsAreFoldedInPieces(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	query(t, url, fmt.Sprintf(`INSERT INTO log SELECT i, i, ARRAY[''], ARRAY[1::smallint], ARRAY[i], ARRAY['fern'], ARRAY['a'],
		ARRAY[substring(sha256('a') FROM 1 FOR 16)], ARRAY['a'], ARRAY[1::bigint], 81 FROM generate_series(1, %d) AS i`, 2*maxFold+1))
	query(t, url, fmt.Sprintf("UPDATE log_state SET seq = %d", 2*maxFold+1))
	const tagSize = 1 << 20
	const tags = foldSize/tagSize + 1
	for i := range tags {
		s.unfolded.Store(0) // or the next batch would fold
		apply(t, s, create(plantstore.Plant{ID: plantstore.ID(i), Tag: plantstore.NewTag(fmt.Sprintf("b%d%s", i, strings.Repeat("b", tagSize)))}))
	}
	var to []int64
	for end, more := int64(-1), true; more; {
		withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) (err error) {
			end, more, err = s.foldSome(ctx, c, end)
			return err
		})
		to = append(to, int64(pgtest.QueryInt(t, url, "SELECT folded FROM tags_state")))
	}
	if want := []int64{maxFold, 2 * maxFold, 2*maxFold + tags - 1, 2*maxFold + 1 + tags}; !slices.Equal(to, want) {
		t.Errorf("folded up to %v, want %v", to, want)
	}
	page, err := s.Tags(t.Context(), plantstore.TagQuery{Limit: 1, Prefix: "a"})
	if err != nil || len(page.Tags) != 1 || page.Tags[0] != (plantstore.TagCount{Tag: "a", Plants: 2*maxFold + 1}) {
		t.Errorf("got %.100v, %v", page.Tags, err)
	}
	if got := query(t, url, "SELECT count(*) FROM tags"); got[0] != fmt.Sprint(tags+1) {
		t.Errorf("%s tags", got)
	}
}

// TestFoldIsTriedWithFewerRows has a fold fail.
func TestFoldIsTriedWithFewerRows(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	apply(t, s, create(plantstore.Plant{ID: 1, Tag: plantstore.NewTag("a")}))
	query(t, url, "ALTER TABLE tags RENAME TO hidden")
	if err := s.fold(t.Context()); err == nil || s.folds.limit != maxFold/2 {
		t.Errorf("fold: %v, and then at most %d rows", err, s.folds.limit)
	}
	query(t, url, "ALTER TABLE hidden RENAME TO tags")
	if err := s.fold(t.Context()); err != nil || s.folds.limit != maxFold {
		t.Errorf("fold: %v, and then at most %d rows", err, s.folds.limit)
	}
}

// TestWritesWaitForTheFold has a server write tags faster than it folds them.
func TestWritesWaitForTheFold(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	for i := range plantstore.ID(12) {
		apply(t, s, create(plantstore.Plant{ID: i, Tag: plantstore.NewTag(fmt.Sprint(i, strings.Repeat("b", 1<<20)))}))
		behind := pgtest.QueryInt(t, url, "SELECT coalesce(sum(tag_size), 0)::bigint FROM log WHERE first > (SELECT folded FROM tags_state)")
		if behind > foldSize+2<<20 {
			t.Fatalf("after %d plants, %d bytes are not folded", i+1, behind)
		}
	}
}

// TestFoldsAreShared has many calls wait for one fold.
func TestFoldsAreShared(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t))
	s.folds.running <- struct{}{}
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			if err := s.fold(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	<-s.folds.running
	calls.Wait()
	if n := s.folds.started.Load(); n >= 20 {
		t.Errorf("%d folds for 20 calls", n)
	}
}
