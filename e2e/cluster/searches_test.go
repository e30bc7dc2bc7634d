package cluster

import (
	"math"
	"testing"

	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
)

// After a kill, names that have been folded are not folded again, and PostgreSQL's part of the build ends or is repeated.
func TestBuildOfTheIndexResumesAfterKills(t *testing.T) {
	t.Parallel()
	const plants = 60_000
	db := pgtest.Start(t)
	old := harness.New(t, db.URL())
	old.Program = harness.Earlier(t, harness.Release020) // which folds no names
	old.Run()
	old.AwaitToken()
	old.ImportSearched(plants)
	old.Stop()
	s := harness.New(t, db.URL(), "--search-index", "on")
	s.Run()
	number := func(sql string) int { return pgtest.QueryInt(t, db.URL(), sql) }
	testenv.WaitFor(t, "some names to be folded", func() bool { return number("SELECT count(folded) FROM stored_plants") > 0 })
	s.Kill()
	db.Exec(t, "CREATE TABLE before AS SELECT id, xmin::text AS version FROM stored_plants WHERE folded IS NOT NULL")
	if n := number("SELECT count(*) FROM before"); n == 0 || n == plants/3 {
		t.Fatalf("when the server was killed, %d names were folded", n)
	}
	s.Run()
	testenv.WaitFor(t, "the index to be built", func() bool { return number("SELECT count(to_regclass('plants_by_name'))") > 0 })
	s.Kill()
	s.Run()
	s.CompareSearches(plants)
	s.AwaitIndex(0, math.MaxInt64)
	if n := number("SELECT count(*) FROM before JOIN stored_plants USING (id) WHERE version <> stored_plants.xmin::text"); n > 0 {
		t.Errorf("%d names were folded again", n)
	}
	s.CompareSearches(plants)
	s.Stop()
	if got := s.Command("check"); got != "ok" {
		t.Errorf("check: %s", got)
	}
}
