package crash

import (
	"math"
	"testing"

	"plantstore"
	"plantstore/e2e/harness"
)

// A build of the index for searches goes on where a kill has interrupted it.
func TestBuildOfTheIndexResumesAfterKills(t *testing.T) {
	const plants = 90_000
	s := harness.Start(t, "--search-index", "off")
	s.ImportSearched(plants)
	s.AwaitFlushed()
	s.Stop()
	s.Flags = []string{"--search-index", "on"}
	s.Run()
	var killed plantstore.SearchIndex
	for _, enough := range []int64{plants / 3, plants / 2} {
		if killed = s.AwaitIndex(killed.Plants, enough); killed.State != plantstore.SearchBuilding {
			t.Errorf("the index is %+v before the kill", killed)
		}
		s.Kill()
		s.Run()
	}
	if got := s.AwaitIndex(killed.Plants, math.MaxInt64); got.Plants != plants {
		t.Errorf("the index has %d plants, want %d", got.Plants, plants)
	}
	s.CompareSearches(plants)
	s.Stop()
	if got := s.Command("check"); got != "ok" {
		t.Errorf("check: %s", got)
	}
}
