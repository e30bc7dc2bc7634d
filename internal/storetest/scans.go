package storetest

import (
	"context"
	"math"
	"testing"

	"plantstore"
)

var scanBehaviours = []behaviour{
	{"ScanIgnoresTheLimit", scanIgnoresTheLimit},
	{"ScanIsASnapshot", scanIsASnapshot},
	{"ReadsContinueDuringAScan", readsContinueDuringAScan},
	{"AbandonedScanReleasesItsResources", abandonedScanReleasesItsResources},
	{"CancelledScanEndsWithAnError", cancelledScanEndsWithAnError},
}

// meadow returns more plants than a store fetches at a time.
func meadow() []plantstore.Plant {
	plants := make([]plantstore.Plant, 1200)
	for i := range plants {
		plants[i] = tagged(plantstore.ID(2*i), "grass", "wild")
	}
	return plants
}

// meadowQueries all find the whole meadow, by different query plans.
var meadowQueries = []plantstore.Query{
	{},
	{Tag: plantstore.NewTag("wild")},
	{Contains: "GRASS"},
	{After: new(plantstore.ID(-1)), Tag: plantstore.NewTag("wild"), Contains: "s"},
}

func scanIgnoresTheLimit(t *testing.T, s *subject) {
	plants := meadow()
	mustCreate(t, s, plants...)
	for _, limit := range []int{-1, 0, 1, 2, math.MaxInt} {
		wantScan(t, s, plantstore.Query{Limit: limit}, plants)
	}
}

// scanIsASnapshot writes at the start and in the middle of a scan, before and after its
// position. It would hang if a write waited for the scan.
func scanIsASnapshot(t *testing.T, s *subject) {
	plants := meadow()
	half, last := len(plants)/2, len(plants)-1
	mustCreate(t, s, plants...)
	for _, q := range meadowQueries {
		var got []plantstore.Plant
		for p, err := range s.Scan(t.Context(), q, nil) {
			if err != nil {
				t.Fatalf("Scan(%s): %v", showQuery(q), err)
			}
			got = append(got, p.Plant)
			switch len(got) {
			case 1:
				apply(t, s,
					step{remove(plants[0].ID), deleted},
					step{remove(plants[half].ID), deleted},
					step{replace(plant(plants[last].ID, "tree")), replaced},
					step{create(tagged(1, "grass", "wild")), created},
					step{create(tagged(math.MaxInt64, "grass", "wild")), created},
				)
				wantNoPlants(t, s, plants[0].ID, plants[half].ID)
			case half:
				apply(t, s,
					step{remove(plants[last-1].ID), deleted},
					step{create(tagged(plants[last].ID-1, "grass", "wild")), created},
				)
			}
		}
		if d := difference(got, plants); d != "" {
			t.Fatalf("Scan(%s) while writing: %s", showQuery(q), d)
		}
		apply(t, s,
			step{create(plants[0]), created},
			step{create(plants[half]), created},
			step{create(plants[last-1]), created},
			step{replace(plants[last]), replaced},
			step{remove(1), deleted},
			step{remove(plants[last].ID - 1), deleted},
			step{remove(math.MaxInt64), deleted},
		)
		wantScan(t, s, q, plants)
	}
}

func readsContinueDuringAScan(t *testing.T, s *subject) {
	plants := meadow()
	mustCreate(t, s, plants...)
	n := 0
	for p, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
		if err != nil {
			t.Fatalf("Scan: %v", err)
		}
		if n%400 == 0 {
			wantPlants(t, s, p.Plant)
			wantScan(t, s, plantstore.Query{After: &p.ID, Contains: "grass"}, plants[n+1:])
			wantPages(t, s, plantstore.Query{Limit: 700}, plants)
		}
		n++
	}
	if n != len(plants) {
		t.Fatalf("Scan yielded %d plants, want %d", n, len(plants))
	}
}

// abandonedScanReleasesItsResources abandons more iterations than a store has
// connections.
func abandonedScanReleasesItsResources(t *testing.T, s *subject) {
	plants := meadow()
	mustCreate(t, s, plants...)
	for i := range 40 {
		n := 0
		for p, err := range s.Scan(t.Context(), meadowQueries[i%len(meadowQueries)], nil) {
			if err != nil {
				t.Fatalf("Scan: %v", err)
			}
			if p.Plant != plants[n] {
				t.Fatalf("Scan: plant %d is %s, want %s", n+1, showPlant(p.Plant), showPlant(plants[n]))
			}
			if n++; n > i%5 {
				break
			}
		}
	}
	apply(t, s, step{remove(0), deleted})
	wantAll(t, s, plants[1:]...)
	wantPages(t, s, plantstore.Query{Limit: 1000}, plants[1:])
	s.reopen(t)
	wantAll(t, s, plants[1:]...)
}

func cancelledScanEndsWithAnError(t *testing.T, s *subject) {
	plants := meadow()
	mustCreate(t, s, plants...)
	for _, q := range meadowQueries {
		for _, after := range []int{0, 1, len(plants) / 2} {
			ctx, cancel := context.WithCancel(t.Context())
			if after == 0 {
				cancel()
			}
			n, failures := 0, 0
			for p, err := range s.Scan(ctx, q, nil) {
				switch {
				case failures > 0:
					t.Fatalf("Scan(%s) yields %s, %v after its error", showQuery(q), showPlant(p.Plant), err)
				case err != nil:
					failures++
				default:
					n++
				}
				if n == after {
					cancel()
				}
			}
			cancel()
			if failures == 0 {
				t.Fatalf("Scan(%s), cancelled after %d plants, yields %d and no error", showQuery(q), after, n)
			}
		}
	}
	apply(t, s, step{create(plant(-1, "fern")), created})
	wantScan(t, s, plantstore.Query{Tag: plantstore.NewTag("wild")}, plants)
}
