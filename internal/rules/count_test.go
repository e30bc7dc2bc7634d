package rules_test

import (
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/rules"
)

func TestPlantsAreCountedWithBoundedWork(t *testing.T) {
	const enough = 50_000
	for _, tt := range []struct {
		name         string
		query        plantstore.Query
		plants, size int
		want         *plantstore.Count
	}{
		{"few", plantstore.Query{}, 17, 10, &plantstore.Count{Plants: 17}},
		{"as many as are counted", plantstore.Query{}, 10_000, 10, &plantstore.Count{Plants: 10_000}},
		{"more", plantstore.Query{}, 10_001, 10, &plantstore.Count{Plants: 10_000, More: true}},
		{"none of as many as are examined", plantstore.Query{Untagged: true}, enough, 10, &plantstore.Count{}},
		{"none of more", plantstore.Query{Untagged: true}, enough + 1, 10, nil},
		{"large names that are not read", plantstore.Query{}, 1000, 1 << 20, &plantstore.Count{Plants: 1000}},
		{"large names", plantstore.Query{Contains: "x"}, 33, 1 << 20, nil},
		{"many words", plantstore.Query{Contains: "x x x x"}, 9, 1 << 20, nil},
		{"some words", plantstore.Query{Contains: "x x x x"}, 8, 1 << 20, &plantstore.Count{Plants: 8}},
	} {
		tt.query.Count, tt.query.After = true, new(plantstore.ID(1000))
		name := strings.Repeat("x", tt.size)
		got, err := rules.CountPlants(tt.query, plantstore.Page{}, func(q plantstore.Query, names bool, f func(plantstore.StoredPlant) bool) error {
			if q.After != nil {
				t.Errorf("%s: it counts from %d on", tt.name, *q.After)
			}
			p := plantstore.StoredPlant{Plant: plantstore.Plant{Tag: plantstore.NewTag("x")}}
			if names {
				p.Name = name
			}
			for i := 0; i < tt.plants && f(p); i++ {
			}
			return nil
		})
		if err != nil || (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: got %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
}

func TestOnlyPageIsItsCount(t *testing.T) {
	page := plantstore.Page{Plants: make([]plantstore.StoredPlant, 3)}
	never := func(plantstore.Query, bool, func(plantstore.StoredPlant) bool) error {
		t.Error("plants are read again")
		return nil
	}
	if got, err := rules.CountPlants(plantstore.Query{Count: true}, page, never); err != nil || got == nil || *got != (plantstore.Count{Plants: 3}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := rules.CountPlants(plantstore.Query{}, page, never); err != nil || got != nil {
		t.Errorf("without count: got %v, %v", got, err)
	}
}
