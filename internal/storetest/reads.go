package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/match"
	"plantstore/internal/rules"
)

var readBehaviours = []behaviour{
	{"EmptyStore", emptyStore},
	{"PlantsAreListedInOrder", plantsAreListedInOrder},
	{"AfterIsExclusive", afterIsExclusive},
	{"PlantsAreSelectedByTheirIDs", plantsAreSelectedByTheirIDs},
	{"LimitBoundsThePage", limitBoundsThePage},
	{"TextBoundsThePage", textBoundsThePage},
	{"PagesSeeLaterWrites", pagesSeeLaterWrites},
	{"TagIsExact", tagIsExact},
	{"ContainsEveryWord", containsEveryWord},
	{"FiltersCombine", filtersCombine},
	{"OrderIsReversed", orderIsReversed},
	{"NamesAreFoldedInTheirOrder", namesAreFoldedInTheirOrder},
	{"LargePlantsAreInOrderOfName", largePlantsAreInOrderOfName},
	{"PagesByNameUnderWrites", pagesByNameUnderWrites},
	{"AnyOfTheTagsSelects", anyOfTheTagsSelects},
	{"ManyTagsAreMerged", manyTagsAreMerged},
	{"ManyPlantsHaveAPrefix", manyPlantsHaveAPrefix},
	{"WritesAreDecidedWithoutAChange", writesAreDecided},
	{"ReadyStore", readyStore},
}

func emptyStore(t *testing.T, s *subject) {
	for range 2 {
		wantNoPlants(t, s, ids...)
		for _, q := range []plantstore.Query{
			{},
			{After: new(plantstore.ID(math.MinInt64))},
			{After: new(plantstore.ID(math.MaxInt64))},
			{Tag: plantstore.NewTag("")},
			{Contains: "fern"},
		} {
			wantFound(t, s, q, nil)
		}
		s.reopen(t)
	}
}

func plantsAreSelectedByTheirIDs(t *testing.T, s *subject) {
	plants := onePerID()
	mustCreate(t, s, plants[2:]...)
	for _, reopen := range []bool{false, true} {
		if reopen { // and some of the plants are newer than the others
			s.reopen(t)
			apply(t, s, step{remove(plants[2].ID), deleted}, step{create(plants[0]), created}, step{create(plants[1]), created})
			plants = slices.Delete(plants, 2, 3)
		}
		kept := plants
		if !reopen {
			kept = plants[2:]
		}
		wantFound(t, s, plantstore.Query{IDs: []plantstore.ID{}}, nil)
		wantFound(t, s, plantstore.Query{IDs: []plantstore.ID{3, 4}}, nil)
		wantFound(t, s, plantstore.Query{IDs: ids}, kept)
		for i, id := range ids {
			some := ids[i:min(i+5, len(ids))]
			found := filter(kept, func(p plantstore.Plant) bool { return slices.Contains(some, p.ID) })
			wantFound(t, s, plantstore.Query{IDs: some}, found)
			wantFound(t, s, plantstore.Query{IDs: some, After: &id}, filter(found, func(p plantstore.Plant) bool { return p.ID > id }))
		}
	}
}

func plantsAreListedInOrder(t *testing.T, s *subject) {
	plants := onePerID()
	backwards := slices.Clone(plants)
	slices.Reverse(backwards)
	mustCreate(t, s, backwards...)
	wantFound(t, s, plantstore.Query{}, plants)
}

func afterIsExclusive(t *testing.T, s *subject) {
	plants := onePerID()
	mustCreate(t, s, plants...)
	for i, p := range plants {
		wantFound(t, s, plantstore.Query{After: &p.ID}, plants[i+1:])
	}
	// Ids without a plant.
	wantFound(t, s, plantstore.Query{After: new(plantstore.ID(5))}, plants[11:])
	wantFound(t, s, plantstore.Query{After: new(plantstore.ID(math.MinInt64 + 2))}, plants[2:])
	apply(t, s, step{remove(math.MaxInt64), deleted}, step{remove(math.MinInt64), deleted})
	wantFound(t, s, plantstore.Query{After: new(plantstore.ID(math.MaxInt64))}, nil)
	wantFound(t, s, plantstore.Query{After: new(plantstore.ID(math.MaxInt64 - 1))}, nil)
	wantFound(t, s, plantstore.Query{After: new(plantstore.ID(math.MinInt64))}, plants[1:len(plants)-1])
}

func limitBoundsThePage(t *testing.T, s *subject) {
	const n = 150
	var plants []plantstore.Plant
	for i := range plantstore.ID(n) {
		plants = append(plants, tagged(i*i-1000, "fern", fmt.Sprintf("tag %d", i%7)))
	}
	mustCreate(t, s, plants...)
	third := slices.DeleteFunc(slices.Clone(plants), func(p plantstore.Plant) bool {
		return p.Tag != plantstore.NewTag("tag 3")
	})
	for _, limit := range []int{1, 7, 21, 22, n - 1, n, n + 1, math.MaxInt32, math.MaxInt} {
		wantPages(t, s, plantstore.Query{Limit: limit}, plants)
		wantPages(t, s, plantstore.Query{Limit: limit, Tag: plantstore.NewTag("tag 3")}, third)
		wantPages(t, s, plantstore.Query{Limit: limit, Contains: "FERN", After: &plants[49].ID}, plants[50:])
	}
}

// textBoundsThePage lists plants that are too large for one page, and the small ones
// after them.
func textBoundsThePage(t *testing.T, s *subject) {
	const large = 10
	var plants []plantstore.Plant
	var ids []plantstore.ID
	for id := range plantstore.ID(large + 100) {
		ids = append(ids, id)
		p := tagged(id, fmt.Sprint("fern ", id), "green")
		if id < large {
			p.Name += strings.Repeat("x", 1<<20)
		}
		plants = append(plants, p)
	}
	mustCreate(t, s, plants...)
	for _, q := range []plantstore.Query{
		{Limit: 1000},
		{Limit: 1000, Tag: plantstore.NewTag("green")},
		{Limit: 1000, Contains: "fern"},
		{Limit: 1000, IDs: ids},
	} {
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatalf("List(%s): %v", showQuery(q), err)
		}
		if n := len(page.Plants); n < 1 || n > 8 {
			t.Errorf("List(%s): a page has %d plants of 1 MiB", showQuery(q), n)
		}
		wantPages(t, s, q, plants)
	}
	wantScan(t, s, plantstore.Query{}, plants)
}

// pagesSeeLaterWrites writes between two pages: each page is a separate read.
func pagesSeeLaterWrites(t *testing.T, s *subject) {
	mustCreate(t, s, plant(10, "fern"), plant(20, "rose"), plant(30, "moss"))
	page, err := s.List(t.Context(), plantstore.Query{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if page.Next == nil || *page.Next >= 20 {
		t.Fatalf("the page with %d plants of three has the wrong Next", len(page.Plants))
	}
	apply(t, s,
		step{remove(20), deleted},
		step{create(plant(9, "before")), created},
		step{create(plant(25, "after")), created},
		step{replace(plant(30, "oak")), replaced},
	)
	left := []plantstore.Plant{plant(25, "after"), plant(30, "oak")}
	if *page.Next < 10 {
		left = slices.Insert(left, 0, plant(10, "fern"))
	}
	if *page.Next < 9 {
		left = slices.Insert(left, 0, plant(9, "before"))
	}
	wantPages(t, s, plantstore.Query{Limit: 1, After: page.Next}, left)
}

func tagIsExact(t *testing.T, s *subject) {
	plants := []plantstore.Plant{plant(-1, "untagged"), plant(-2, "")}
	for i, text := range texts {
		plants = append(plants, tagged(plantstore.ID(i), "typed", text), plant(plantstore.ID(1000+i), text))
	}
	mustCreate(t, s, plants...)
	for i, text := range texts {
		want := []plantstore.Plant{tagged(plantstore.ID(i), "typed", text)}
		wantScan(t, s, plantstore.Query{Tag: plantstore.NewTag(text)}, want)
		wantPages(t, s, plantstore.Query{Tag: plantstore.NewTag(text), Limit: 2}, want)
	}
	wantFound(t, s, plantstore.Query{Tag: plantstore.NewTag("no such tag")}, nil)
	apply(t, s,
		step{replace(plant(0, "now untagged")), replaced},
		step{replace(tagged(1, "typed", "moved")), replaced},
		step{remove(2), deleted},
	)
	for _, text := range texts[:3] {
		wantFound(t, s, plantstore.Query{Tag: plantstore.NewTag(text)}, nil)
	}
	wantFound(t, s, plantstore.Query{Tag: plantstore.NewTag("moved")}, []plantstore.Plant{tagged(1, "typed", "moved")})
}

// garden has names that differ in case and accents, and names with the special
// characters of patterns.
func garden() []plantstore.Plant {
	return []plantstore.Plant{
		tagged(math.MinInt64, "Rose", "flower"),
		plant(-5, "primROSE"),
		tagged(-1, "rosemary", "herb"),
		tagged(0, "Fern", ""),
		tagged(1, "", "rose"),
		tagged(2, "100% rose_water*", "Flower"),
		plant(3, "ro\u017fe"), // the long s is an s
		tagged(4, "\u00c4pfel", "flower"),
		plant(5, "a\u0308pfel"),
		plant(6, "\u039f\u0394\u039f\u03a3"), // the sigma at its end has two small forms
		plant(7, "STRASSE"),
		plant(8, "stra\u00dfe"),
		plant(9, "STRA\u1e9eE"),
		plant(10, "\u212aelvin"), // the Kelvin sign is a k
		plant(11, "kelvin"),
		plant(12, "\u0130stanbul"), // the capital i of Turkish
		plant(13, "istanbul"),
		plant(14, "x\x00Y"),
		plant(15, "x"),
		tagged(16, `C:\path [q]?`, "flower"),
		plant(17, "\u0401\u043b\u043a\u0430"),
		plant(18, "\U00010400"),
		plant(19, "\U0001f335\U0001f339"),
		plant(20, "two\nlines"),
		tagged(math.MaxInt64, "wild rose", "flower"),
	}
}

// roses are the plants of the garden with rose in their names.
var roses = []plantstore.ID{math.MinInt64, -5, -1, 2, 3, math.MaxInt64}

func containsEveryWord(t *testing.T, s *subject) {
	mustCreate(t, s, garden()...)
	for _, c := range []struct {
		part string
		ids  []plantstore.ID
	}{
		{"rose", roses},
		{"ROSE", roses},
		{"Ro\u017fE", roses},
		{"rosem", []plantstore.ID{-1}},
		{" rose ", roses},
		{"rose wild", []plantstore.ID{math.MaxInt64}},
		{"ROSE_ 100%", []plantstore.ID{2}},
		{"rose fern", nil},
		{"fern rose", nil},
		{"flower", nil},
		{"%", []plantstore.ID{2}},
		{"_", []plantstore.ID{2}},
		{"r%e", nil},
		{"ros_", nil},
		{"ro*", nil},
		{"*", []plantstore.ID{2}},
		{"?", []plantstore.ID{16}},
		{"[Q]", []plantstore.ID{16}},
		{"[a-z]", nil},
		{`\`, []plantstore.ID{16}},
		{`\P`, []plantstore.ID{16}},
		{"'", nil},
		{"\u00e4P", []plantstore.ID{4, 5}},
		{"A\u0308P", []plantstore.ID{4, 5}},
		{"apfel", []plantstore.ID{4, 5}},
		{"R\u00f3se", roses},
		{"\u03bf\u03b4\u03bf\u03c2", []plantstore.ID{6}},
		{"\u03c3", []plantstore.ID{6}},
		{"strasse", []plantstore.ID{7}},
		{"STRA\u00dfE", []plantstore.ID{8, 9}},
		{"stra\u1e9ee", []plantstore.ID{8, 9}},
		{"K", []plantstore.ID{10, 11}},
		{"\u212a", []plantstore.ID{10, 11}},
		{"ist", []plantstore.ID{12, 13}},
		{"\u0130ST", []plantstore.ID{12, 13}},
		{"stanbul", []plantstore.ID{12, 13}},
		{"\x00", []plantstore.ID{14}},
		{"X\x00y", []plantstore.ID{14}},
		{"x\x00\x00", nil},
		{"\u0451\u041b\u041a", []plantstore.ID{17}},
		{"\u0435\u043b\u043a", []plantstore.ID{17}},
		{"\U00010428", []plantstore.ID{18}},
		{"\U0001f339", []plantstore.ID{19}},
		{"lines\nTWO", []plantstore.ID{20}},
	} {
		wantFound(t, s, plantstore.Query{Contains: c.part}, filter(garden(), func(p plantstore.Plant) bool {
			return slices.Contains(c.ids, p.ID)
		}))
	}
}

func filtersCombine(t *testing.T, s *subject) {
	mustCreate(t, s, garden()...)
	tags := []plantstore.Tag{{}}
	for _, text := range []string{"", "flower", "FLOWER", "rose"} {
		tags = append(tags, plantstore.NewTag(text))
	}
	afters := []*plantstore.ID{nil}
	for _, id := range []plantstore.ID{math.MinInt64, -1, 2, math.MaxInt64 - 1, math.MaxInt64} {
		afters = append(afters, &id)
	}
	for _, tag := range tags {
		for _, after := range afters {
			found := filter(garden(), func(p plantstore.Plant) bool {
				return (tag == plantstore.Tag{} || p.Tag == tag) && (after == nil || p.ID > *after)
			})
			q := plantstore.Query{Tag: tag, After: after, Limit: 3}
			wantScan(t, s, q, found)
			wantPages(t, s, q, found)
			q.Contains = "roSE"
			found = filter(found, func(p plantstore.Plant) bool { return slices.Contains(roses, p.ID) })
			wantScan(t, s, q, found)
			wantPages(t, s, q, found)
		}
	}
}

func orderIsReversed(t *testing.T, s *subject) {
	plants := onePerID()
	mustCreate(t, s, plants[3:]...)
	s.reopen(t)
	mustCreate(t, s, plants[:3]...)
	slices.Reverse(plants)
	q := plantstore.Query{Order: plantstore.ByIDDescending}
	wantFound(t, s, q, plants)
	for i, p := range plants {
		q.After = &p.ID
		wantFound(t, s, q, plants[i+1:])
	}
	apply(t, s, step{remove(math.MaxInt64), deleted}, step{remove(math.MinInt64), deleted})
	plants = plants[1 : len(plants)-1]
	for _, after := range []plantstore.ID{math.MaxInt64, math.MaxInt64 - 1, math.MinInt64 + 1, math.MinInt64} {
		q.After = &after
		wantFound(t, s, q, filter(plants, func(p plantstore.Plant) bool { return p.ID < after }))
	}
	s.reopen(t)
	wantFound(t, s, plantstore.Query{Order: plantstore.ByIDDescending}, plants)
}

func namesAreFoldedInTheirOrder(t *testing.T, s *subject) {
	long := strings.Repeat("é", 511) + "x" // the second of these bytes would be the 1024th of a name
	var want []plantstore.Plant
	for i, name := range []string{
		"", "", "\x00", " ", "100", "9", "Apfel", "apfel", "a\u0308pfel", "\u00c4pfel", "apfel", "Apfel a", "b", "B", "ROSE", "Rose", "rose", "ro\u017fe", "rosemary",
		long + "a1", long + "a2", long + "a0", long + "b", "z", "\u00df", "\U0001f335",
	} {
		want = append(want, plant(plantstore.ID(i*7%26), name))
	}
	slices.SortFunc(want, func(a, b plantstore.Plant) int { return compare(plantstore.ByName, a, b) })
	var names []string
	for _, p := range want {
		names = append(names, p.Name[:min(len(p.Name), 4)])
	}
	if got := strings.Join(names[5:12], " "); got != "9 Apfe apfe apfe a\u0308p \u00c4pf Apfe" {
		t.Errorf("the names are in the order %+q", got)
	}
	for i, p := range want {
		if i%2 == 0 {
			mustCreate(t, s, p)
		}
	}
	s.reopen(t)
	for i, p := range want {
		if i%2 == 1 {
			mustCreate(t, s, p)
		}
	}
	wantFound(t, s, plantstore.Query{Order: plantstore.ByName}, want)
	for i, p := range want {
		wantFound(t, s, plantstore.Query{Order: plantstore.ByName, AfterName: namePosition(p).Cursor()}, want[i+1:])
	}
	wantFound(t, s, plantstore.Query{Order: plantstore.ByName, AfterName: plantstore.NamePosition{Name: "Rose", ID: 1000}.Cursor()}, filter(want, func(p plantstore.Plant) bool {
		return compareNames(plantstore.ByName, namePosition(p), plantstore.NamePosition{Name: "Rose", ID: 1000}) > 0
	}))
	slices.Reverse(want)
	wantFound(t, s, plantstore.Query{Order: plantstore.ByNameDescending}, want)
	wantFound(t, s, plantstore.Query{Order: plantstore.ByNameDescending, AfterName: namePosition(want[7]).Cursor(), Contains: "ROS"},
		filter(want[8:], func(p plantstore.Plant) bool { return match.New("ros").Match(p.Name) }))
	if _, err := s.List(t.Context(), plantstore.Query{Order: plantstore.ByName, AfterName: "5", Limit: 1}); !errors.Is(err, plantstore.ErrParameter) {
		t.Errorf("a malformed cursor: %v", err)
	}
}

// largePlantsAreInOrderOfName has plants that are too large for one page, and some that are too large
// to be sorted.
func largePlantsAreInOrderOfName(t *testing.T, s *subject) {
	var plants []plantstore.Plant
	for i := range plantstore.ID(24) {
		p := tagged(i, fmt.Sprintf("fern %02d", i*7%24), "few")
		if i%2 == 0 {
			p.Name += strings.Repeat("x", 1<<20)
		}
		plants = append(plants, p)
	}
	mustCreate(t, s, plants...)
	slices.SortFunc(plants, func(a, b plantstore.Plant) int { return strings.Compare(a.Name, b.Name) })
	for _, order := range []plantstore.Order{plantstore.ByName, plantstore.ByNameDescending} {
		q := plantstore.Query{Order: order, Limit: 1000}
		page, err := s.List(t.Context(), q)
		if err != nil || len(page.Plants) < 2 || len(page.Plants) > 10 {
			t.Fatalf("a page with 12 MiB of plants has %d: %v", len(page.Plants), err)
		}
		wantPages(t, s, q, plants)
		wantScan(t, s, q, plants)
		slices.Reverse(plants)
	}
	q := plantstore.Query{Order: plantstore.ByName, Limit: 1, Contains: strings.Repeat("x ", 32)} // each plant is compared with 32 words
	if _, err := s.List(t.Context(), q); !errors.Is(err, plantstore.ErrTooManyToSort) {
		t.Errorf("12 MiB and 32 words: %v, want %v", err, plantstore.ErrTooManyToSort)
	}
	if _, err := collect(s.Scan(t.Context(), q, nil)); !errors.Is(err, plantstore.ErrTooManyToSort) {
		t.Errorf("a scan of them: %v, want %v", err, plantstore.ErrTooManyToSort)
	}
}

// pagesByNameUnderWrites changes plants, the last one of the page among them, between two pages.
func pagesByNameUnderWrites(t *testing.T, s *subject) {
	for _, order := range []plantstore.Order{plantstore.ByName, plantstore.ByNameDescending} {
		var stays []plantstore.Plant
		for i := range plantstore.ID(40) {
			p := plant(i, fmt.Sprintf("Name %d", i*7%40/2))
			mustCreate(t, s, p, plant(100+i, p.Name))
			stays = append(stays, p)
		}
		slices.SortFunc(stays, func(a, b plantstore.Plant) int { return compare(order, a, b) })
		var got []plantstore.Plant
		q := plantstore.Query{Order: order, Limit: 7}
		for i := plantstore.ID(0); ; i++ {
			page, err := s.List(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range page.Plants {
				if p.ID < 100 {
					got = append(got, p.Plant)
				}
			}
			for _, p := range page.Plants {
				switch {
				case p.ID < 100:
				case p.ID%2 == 0:
					apply(t, s, step{remove(p.ID), deleted})
				default:
					apply(t, s, step{replace(plant(p.ID, fmt.Sprintf("Name %d and changed to %d", i, i))), replaced})
				}
			}
			if q.AfterName = page.NextName; q.AfterName == "" || i > 100 {
				break
			}
		}
		if d := difference(got, stays); d != "" {
			t.Errorf("%s: %s", order, d)
		}
		for p, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
			if err != nil {
				t.Fatal(err)
			}
			apply(t, s, step{remove(p.ID), deleted})
		}
	}
}

// anyOfTheTagsSelects combines all ways to select plants by their tags, in both orders.
func anyOfTheTagsSelects(t *testing.T, s *subject) {
	long := strings.Repeat("x", 150)
	var plants []plantstore.Plant
	tags := append([]string{"a", "ab", "abc", "b", long, long + "y", long[1:]}, texts...)
	for i, text := range tags {
		plants = append(plants, tagged(plantstore.ID(2*i), fmt.Sprint("fern ", i), text), tagged(plantstore.ID(1000-i), "rose", text))
	}
	plants = append(plants, plant(-1, "fern"), plant(2000, "rose"))
	mustCreate(t, s, plants...)
	s.reopen(t)
	// Some of the plants are newer than the others.
	plants[2].Tag, plants[5].Tag = plantstore.NewTag("moved"), plantstore.Tag{}
	apply(t, s, step{replace(plants[2]), replaced}, step{replace(plants[5]), replaced}, step{remove(plants[7].ID), deleted})
	plants = slices.Delete(plants, 7, 8)
	prefixes := []*string{nil}
	for _, text := range []string{"", "a", "ab", "mo", long[:120], long + "z", "\x00", "\U0010ffff", "no such"} {
		prefixes = append(prefixes, &text)
	}
	for _, order := range plantstore.Orders() {
		slices.SortFunc(plants, func(a, b plantstore.Plant) int { return compare(order, a, b) })
		for i, prefix := range prefixes {
			for j, some := range [][]string{nil, {"a"}, {"b", "a", "b"}, {long, long + "y", "no such"}, {"", "\x00", "moved"}} {
				for _, untagged := range []bool{false, true} {
					q := plantstore.Query{Order: order, Tags: some, TagPrefix: prefix, Untagged: untagged, Limit: 70}
					found := filter(plants, func(p plantstore.Plant) bool {
						text, ok := p.Tag.Text()
						return some == nil && prefix == nil && !untagged || !ok && untagged ||
							ok && (slices.Contains(some, text) || prefix != nil && strings.HasPrefix(text, *prefix))
					})
					if (i+j)%2 == 0 {
						q.Contains = "FERN"
						found = filter(found, func(p plantstore.Plant) bool { return strings.HasPrefix(p.Name, "fern") })
					}
					wantScan(t, s, q, found)
					wantPages(t, s, q, found)
				}
			}
		}
	}
}

// manyTagsAreMerged reads plants of as many tags as a query can have, which are mixed in the
// order of their ids, and more than a store fetches at a time.
func manyTagsAreMerged(t *testing.T, s *subject) {
	var plants []plantstore.Plant
	for i := range plantstore.ID(2500) {
		plants = append(plants, tagged(i*7919%10_007, "fern", fmt.Sprintf("tag %d", i%40)))
	}
	mustCreate(t, s, plants...)
	slices.SortFunc(plants, func(a, b plantstore.Plant) int { return int(a.ID - b.ID) })
	var tags []string
	for i := range plantstore.MaxTags {
		tags = append(tags, fmt.Sprintf("tag %d", i))
	}
	for _, reopen := range []bool{false, true} {
		if reopen {
			s.reopen(t)
		}
		for _, q := range []plantstore.Query{{Tags: tags}, {Tags: tags[:2], TagPrefix: new("tag 1")}, {Tags: tags[5:], Tag: plantstore.NewTag("tag 1"), Contains: "fern"}} {
			q.Limit = 399
			found := filter(plants, func(p plantstore.Plant) bool { return q.SelectsTag(p.Tag) })
			for _, order := range []plantstore.Order{plantstore.ByID, plantstore.ByIDDescending} {
				q.Order = order
				wantScan(t, s, q, found)
				wantPages(t, s, q, found)
				slices.Reverse(found)
			}
		}
	}
}

// manyPlantsHaveAPrefix has more plants with a prefix than a store collects.
func manyPlantsHaveAPrefix(t *testing.T, s *subject) {
	const n = 50_100
	plants := make([]plantstore.Plant, n)
	for i := range plants {
		plants[i] = tagged(plantstore.ID(i), "", fmt.Sprintf("tag %d", i%3))
	}
	for batch := range slices.Chunk(plants, 8192) {
		mustCreate(t, s, batch...)
	}
	plants[n-1].Tag = plantstore.NewTag("other")
	apply(t, s, step{replace(plants[n-1]), replaced})
	for _, q := range []plantstore.Query{{TagPrefix: new("tag")}, {TagPrefix: new("o")}, {TagPrefix: new("tag 2"), Tags: []string{"other"}}} {
		found := filter(plants, func(p plantstore.Plant) bool { return q.SelectsTag(p.Tag) })
		q.Limit = 10_000
		wantScan(t, s, q, found)
		wantPages(t, s, q, found)
		q.After = new(plantstore.ID(n - 100))
		wantPages(t, s, q, filter(found, func(p plantstore.Plant) bool { return p.ID > *q.After }))
	}
}

// filter returns the plants for which keep returns true.
func filter(plants []plantstore.Plant, keep func(plantstore.Plant) bool) []plantstore.Plant {
	var kept []plantstore.Plant
	for _, p := range plants {
		if keep(p) {
			kept = append(kept, p)
		}
	}
	return kept
}

func readyStore(t *testing.T, s *subject) {
	for i := range plantstore.ID(3) {
		if err := s.Ready(t.Context()); err != nil {
			t.Fatalf("Ready: %v", err)
		}
		mustCreate(t, s, plant(i, "fern"))
		s.reopen(t)
	}
}

// writesAreDecided compares what Decide returns with what Apply then does, for each write alone.
func writesAreDecided(t *testing.T, s *subject) {
	plants := meadow()
	mustCreate(t, s, plants...)
	apply(t, s, step{replace(tagged(0, "hay", "")), replaced}, step{remove(2), deleted})
	want := []plantstore.Plant{tagged(0, "hay", "")}
	want = append(want, plants[2:]...)
	for _, reopen := range []bool{false, true} {
		if reopen {
			s.reopen(t)
		}
		batch := []plantstore.Write{
			create(plant(0, "hay")), create(tagged(0, "hay", "")), create(plants[1]), create(plant(2, "x")), create(plant(2, "y")), create(plant(5, "\x00")),
			replace(tagged(0, "hay", "")), replace(plants[0]), replace(plant(math.MinInt64, "")), patch(0, "straw"), patch(7, "straw"), remove(0), remove(2), remove(math.MaxInt64),
		}
		for _, p := range plants[2:] {
			batch = append(batch, create(p), create(plant(p.ID+1, "new")))
		}
		results, err := s.Decide(t.Context(), batch)
		if err != nil || len(results) != len(batch) {
			t.Fatalf("%d results for %d writes: %v", len(results), len(batch), err)
		}
		for i, w := range batch {
			current := slices.IndexFunc(want, func(p plantstore.Plant) bool { return p.ID == w.Plant.ID })
			expected := rules.Decide(&w, nil, plantstore.Version{}).Result
			if current >= 0 {
				expected = rules.Decide(&w, &plantstore.StoredPlant{Plant: want[current]}, plantstore.Version{}).Result
			}
			if !sameResult(results[i], expected) {
				t.Errorf("write %d of %v: got %v, want %v", i, w.Plant, results[i], expected)
			}
		}
		wantAll(t, s, want...)
	}
}
