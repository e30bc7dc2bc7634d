package rules_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/rules"
)

func TestPageBuilder(t *testing.T) {
	const last = plantstore.ID(math.MaxInt64) // stands for no next page
	plants := []plantstore.Plant{
		{ID: -5, Name: "Fern", Tag: plantstore.NewTag("green")},
		{ID: 0, Name: "rose"},
		{ID: 1, Name: "tree fern", Tag: plantstore.NewTag("tall")},
		{ID: 9, Name: "fern", Tag: plantstore.NewTag("green")},
	}
	green := plantstore.NewTag("green")
	for _, tt := range []struct {
		name   string
		query  plantstore.Query
		budget int
		want   []plantstore.ID
		next   plantstore.ID
	}{
		{"room for all", plantstore.Query{Limit: 4}, 10, []plantstore.ID{-5, 0, 1, 9}, last},
		{"full page", plantstore.Query{Limit: 2}, 10, []plantstore.ID{-5, 0}, 0},
		{"tag", plantstore.Query{Limit: 4, Tag: green}, 10, []plantstore.ID{-5, 9}, last},
		{"name", plantstore.Query{Limit: 4, Contains: "FERN"}, 10, []plantstore.ID{-5, 1, 9}, last},
		{"tag and name", plantstore.Query{Limit: 4, Tag: green, Contains: "rose"}, 10, nil, last},
		{"full page, then none that match", plantstore.Query{Limit: 1, Contains: "rose"}, 10, []plantstore.ID{0}, 0},
		{"budget", plantstore.Query{Limit: 4, Contains: "tree"}, 2, nil, 0},
		{"budget for all", plantstore.Query{Limit: 4, Contains: "tree"}, 4, []plantstore.ID{1}, last},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := rules.NewPageBuilder(tt.query, tt.budget)
			for _, p := range plants {
				if !b.Add(plantstore.StoredPlant{Plant: p}) {
					break
				}
			}
			page := b.Page()
			var got []plantstore.ID
			for _, p := range page.Plants {
				got = append(got, p.ID)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("the page has the plants %d, want %d", got, tt.want)
			}
			next := last
			if page.Next != nil {
				next = *page.Next
			}
			if next != tt.next {
				t.Errorf("Next is %d, want %d", next, tt.next)
			}
		})
	}
}

func TestPageEndsByBytes(t *testing.T) {
	name := strings.Repeat("x", 1<<20)
	for _, tt := range []struct {
		name, contains, tag string
		want, examined      int // plants
	}{
		{"of its plants", "", "", 4, 4},
		{"of large tags", "", name, 2, 2},
		{"of a search", "fern", "", 0, 32},
		{"of a search for four words", "xx xxx xxxx fern", "", 0, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := rules.NewPageBuilder(plantstore.Query{Limit: 1000, Contains: tt.contains}, 1000)
			examined := 0
			for b.Add(plantstore.StoredPlant{Plant: plantstore.Plant{ID: plantstore.ID(examined), Name: name, Tag: plantstore.NewTag(tt.tag)}}) {
				examined++
			}
			page := b.Page()
			if len(page.Plants) != tt.want || examined != tt.examined || *page.Next != plantstore.ID(examined-1) {
				t.Errorf("a page has %d plants of %d examined, and Next %d; want %d of %d",
					len(page.Plants), examined, *page.Next, tt.want, tt.examined)
			}
		})
	}
}
