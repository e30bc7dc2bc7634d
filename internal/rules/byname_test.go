package rules_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plantstore"
	folding "plantstore/internal/match"
	"plantstore/internal/rules"
)

// Any page is the first plants of a sort, whatever the order in which they are added.
func TestPagesByNameAreThoseOfASort(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 15 {
		var plants []plantstore.StoredPlant
		for id := range plantstore.ID(random.IntN(60)) {
			name := fmt.Sprintf("%c%d", []rune("aAäb")[random.IntN(4)], random.IntN(5)) + strings.Repeat("x", random.IntN(2)*random.IntN(3<<20))
			plants = append(plants, plantstore.StoredPlant{Plant: plantstore.Plant{ID: id, Name: name}})
		}
		sorted := slices.SortedFunc(slices.Values(plants), func(a, b plantstore.StoredPlant) int {
			fold := folding.New("")
			key := func(p plantstore.StoredPlant) string {
				name := plantstore.SortedName(p.Name)
				return string(fold.AppendFolded(nil, name)) + "\x00" + name + fmt.Sprintf("\x00%03d", p.ID)
			}
			return strings.Compare(key(a), key(b))
		})
		q := plantstore.Query{Order: plantstore.ByName, Limit: 1 + random.IntN(20), Count: true}
		if random.IntN(2) == 0 {
			q.Order = plantstore.ByNameDescending
			slices.Reverse(sorted)
		}
		for more := true; more; {
			b, err := rules.NewNamePageBuilder(q)
			if err != nil {
				t.Fatal(err)
			}
			random.Shuffle(len(plants), func(i, j int) { plants[i], plants[j] = plants[j], plants[i] })
			for _, p := range plants {
				if !b.Add(p) {
					t.Fatal("the builder takes no more")
				}
			}
			page, err := b.Page()
			if err != nil || len(page.Plants) == 0 && len(sorted) > 0 || *page.Count != (plantstore.Count{Plants: len(plants)}) {
				t.Fatalf("%d plants of %d, %v, %v", len(page.Plants), len(sorted), page.Count, err)
			}
			text := 0
			for i, p := range page.Plants {
				if p != sorted[i] || text >= 4<<20 {
					t.Fatalf("plant %d after %d bytes is %.10q, want %.10q", i, text, p.Name, sorted[i].Name)
				}
				text += p.TextSize()
			}
			sorted = sorted[len(page.Plants):]
			if more = page.NextName != ""; more != (len(sorted) > 0) || more && len(page.Plants) < q.Limit && text < 4<<20 {
				t.Fatalf("a page of %d plants and %d bytes, more: %t, %d plants are left", len(page.Plants), text, more, len(sorted))
			}
			q.AfterName = page.NextName
		}
	}
}

// Each page of a scan reads all plants again, so it has many of them, also if their names are long.
func TestScanByNameHasLargePages(t *testing.T) {
	const n = 12_000
	name := strings.Repeat("x", 1000)
	pages, last := 0, plantstore.ID(-1)
	err := rules.ScanByName(plantstore.Query{Order: plantstore.ByName}, func(p plantstore.StoredPlant) bool {
		if p.ID != last+1 {
			t.Errorf("plant %d follows on %d", p.ID, last)
		}
		last = p.ID
		return true
	}, func(q plantstore.Query) (plantstore.Page, error) {
		pages++
		b, err := rules.NewNamePageBuilder(q)
		for id := range plantstore.ID(n) {
			b.Add(plantstore.StoredPlant{Plant: plantstore.Plant{ID: id, Name: name}})
		}
		page, _ := b.Page()
		return page, err
	})
	if err != nil || last != n-1 || pages != 1 {
		t.Errorf("the last plant is %d, after %d pages, %v", last, pages, err)
	}
}

func TestAMillionPlantsAreSorted(t *testing.T) {
	b, err := rules.NewNamePageBuilder(plantstore.Query{Order: plantstore.ByName, Limit: 2, Contains: "9"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range plantstore.ID(plantstore.MaxSorted) {
		if !b.Add(plantstore.StoredPlant{Plant: plantstore.Plant{ID: i, Name: i.String()}}) {
			t.Fatalf("plant %d is too many", i)
		}
	}
	if page, err := b.Page(); err != nil || len(page.Plants) != 2 || page.Plants[0].Name != "100009" {
		t.Errorf("got %v, %v", page.Plants, err)
	}
	if b.Add(plantstore.StoredPlant{}) {
		t.Error("one more is taken")
	}
	if _, err := b.Page(); !errors.Is(err, plantstore.ErrTooManyToSort) {
		t.Errorf("got %v, want %v", err, plantstore.ErrTooManyToSort)
	}
	if rules.CheckSorted(plantstore.MaxSorted) != nil || !errors.Is(rules.CheckSorted(plantstore.MaxSorted+1), plantstore.ErrTooManyToSort) {
		t.Error("another number is checked")
	}
}

func TestNameCursors(t *testing.T) {
	for _, p := range []plantstore.NamePosition{{}, {Name: "\x00", ID: -1 << 63}, {Name: plantstore.SortedName(strings.Repeat("é", 1000) + "x"), ID: 1<<63 - 1}} {
		c := p.Cursor()
		if got, err := c.Position(); err != nil || got != p || len(c) > 1400 || strings.Trim(string(c), "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.") != "" {
			t.Errorf("%+v: got %+v, %v, cursor %s", p, got, err, c)
		}
	}
	if name := plantstore.SortedName("x" + strings.Repeat("é", 1000)); len(name) != 1023 {
		t.Errorf("%d bytes are sorted", len(name))
	}
	for _, c := range []plantstore.NameCursor{"", "5", "5.!", "05.YQ", "5.YQ=", "5.YR", "5./w", "x.YQ", "5._w", plantstore.NameCursor("5." + strings.Repeat("YWFh", 342))} {
		if _, err := c.Position(); !errors.Is(err, plantstore.ErrParameter) {
			t.Errorf("%s: %v", c, err)
		}
	}
}
