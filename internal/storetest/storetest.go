// Package storetest is the conformance suite that every [plantstore.Store] passes,
// and the in-memory [Model] that stores are compared with.
//
// The suite covers each sentence of the contract of [plantstore.Store] that can be
// observed from outside. Crashes, power cuts and failing disks cannot: each store's
// own tests and e2e cover them.
//
// A tour: this file opens stores and compares what they contain, show.go formats
// differences. writes.go, with its tables in cases.go, versions.go, reads.go, scans.go, tags.go,
// events.go, tokens.go, webhooks.go and concurrency.go have the behaviours by theme. histories.go
// applies the same random histories to a store and to the model.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"plantstore"
)

// Run tests a store against the contract of [plantstore.Store]. Each call of fresh
// prepares a new, empty store. The open that it returns opens that store, and reopens
// it with its contents after the suite has closed it. Run closes every store that it
// opened. Several stores are tested at the same time.
//
// The test of a store is then
//
//	storetest.Run(t, func(t *testing.T) func() plantstore.Store {
//		path := filepath.Join(t.TempDir(), "plants.db")
//		return func() plantstore.Store { return open(t, path) }
//	})
func Run(t *testing.T, fresh func(t *testing.T) (open func() plantstore.Store)) {
	run(t, fresh, slices.Concat(writeBehaviours, versionBehaviours, readBehaviours, scanBehaviours, tagBehaviours, eventBehaviours, tokenBehaviours, webhookBehaviours, concurrentBehaviours))
	t.Run("Histories", func(t *testing.T) { checkHistories(t, fresh) })
}

// RunReads is the part of [Run] about lists, searches and scans, for a store that has other ways to read.
func RunReads(t *testing.T, fresh func(t *testing.T) (open func() plantstore.Store)) {
	run(t, fresh, slices.Concat(readBehaviours, scanBehaviours))
}

func run(t *testing.T, fresh func(t *testing.T) (open func() plantstore.Store), all []behaviour) {
	for _, b := range all {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			b.check(t, start(t, fresh(t)))
		})
	}
}

// behaviour is one behaviour of a store. Its check starts with an empty store.
type behaviour struct {
	name  string
	check func(t *testing.T, s *subject)
}

// tb is the common part of *testing.T and *rapid.T.
type tb interface {
	rapid.TB
	Context() context.Context
	Cleanup(func())
}

// subject is the store under test, and the function that reopens it.
type subject struct {
	plantstore.Store // nil while closed
	open             func() plantstore.Store
}

// start opens a subject that is closed when the test ends.
func start(t tb, open func() plantstore.Store) *subject {
	t.Helper()
	s := &subject{Store: open(), open: open}
	t.Cleanup(func() {
		if s.Store != nil {
			s.close(t)
		}
	})
	return s
}

func (s *subject) close(t tb) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	s.Store = nil
}

func (s *subject) reopen(t tb) {
	t.Helper()
	s.close(t)
	s.Store = s.open()
}

// step is a write and its expected result.
type step struct {
	write plantstore.Write
	want  plantstore.Result
}

// The results that a step can expect.
var (
	created   = plantstore.Result{Outcome: plantstore.Created}
	unchanged = plantstore.Result{Outcome: plantstore.Unchanged}
	replaced  = plantstore.Result{Outcome: plantstore.Replaced}
	deleted   = plantstore.Result{Outcome: plantstore.Deleted}
	idTaken   = plantstore.Result{Err: plantstore.ErrIDTaken}
	noPlant   = plantstore.Result{Err: plantstore.ErrNoPlant}
	unmet     = plantstore.Result{Err: plantstore.ErrPrecondition}
)

func plant(id plantstore.ID, name string) plantstore.Plant {
	return plantstore.Plant{ID: id, Name: name}
}

func tagged(id plantstore.ID, name, tag string) plantstore.Plant {
	return plantstore.Plant{ID: id, Name: name, Tag: plantstore.NewTag(tag)}
}

func create(p plantstore.Plant) plantstore.Write {
	return plantstore.Write{Op: plantstore.Create, Plant: p}
}

func replace(p plantstore.Plant) plantstore.Write {
	return plantstore.Write{Op: plantstore.Replace, Plant: p}
}

// patch changes the name of a plant, and leaves it its tag.
func patch(id plantstore.ID, name string) plantstore.Write {
	return plantstore.Write{Op: plantstore.Patch, Plant: plant(id, name), KeepTag: true}
}

// retag changes the tag of a plant, and leaves it its name.
func retag(id plantstore.ID, tag plantstore.Tag) plantstore.Write {
	return plantstore.Write{Op: plantstore.Patch, Plant: plantstore.Plant{ID: id, Tag: tag}, KeepName: true}
}

// patched is the result of a patch that leaves this plant.
func patched(outcome plantstore.Outcome, p plantstore.Plant) plantstore.Result {
	return plantstore.Result{Outcome: outcome, Patched: &p}
}

func remove(id plantstore.ID) plantstore.Write {
	return plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: id}}
}

// applyBatch applies a batch as the contract requires of a caller: again after
// ErrRetry, and what is left of it. It may be called from any goroutine.
func applyBatch(ctx context.Context, s plantstore.Store, batch []plantstore.Write) (all []plantstore.Result, err error) {
	const attempts = 100
	for range attempts {
		results, err := s.Apply(ctx, batch[len(all):])
		if errors.Is(err, plantstore.ErrRetry) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("Apply: %w", err)
		}
		if all = append(all, results...); len(all) == len(batch) {
			return all, nil
		}
		if len(results) == 0 || len(all) > len(batch) {
			return nil, fmt.Errorf("Apply of %d writes returned %d results", len(batch), len(all))
		}
	}
	return nil, fmt.Errorf("Apply returned ErrRetry, or only some results, %d times: %w", attempts, err)
}

// apply applies the steps as one batch and fails unless they have the wanted results.
func apply(t tb, s plantstore.Store, steps ...step) {
	t.Helper()
	batch := make([]plantstore.Write, len(steps))
	for i, st := range steps {
		batch[i] = withVersions(t, s, st.write)
	}
	results, err := applyBatch(t.Context(), s, batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, st := range steps {
		if !sameResult(results[i], st.want) {
			t.Fatalf("write %d of %d, %s: got %s, want %s",
				i+1, len(steps), showWrite(st.write), showResult(results[i]), showResult(st.want))
		}
	}
}

// mustCreate creates the plants in one batch.
func mustCreate(t tb, s plantstore.Store, plants ...plantstore.Plant) {
	t.Helper()
	steps := make([]step, len(plants))
	for i, p := range plants {
		steps[i] = step{create(p), created}
	}
	apply(t, s, steps...)
}

func sameResult(got, want plantstore.Result) bool {
	if want.Err != nil {
		return errors.Is(got.Err, want.Err)
	}
	return got.Err == nil && got.Outcome == want.Outcome && (got.Patched == nil) == (want.Patched == nil) &&
		(got.Patched == nil || *got.Patched == *want.Patched)
}

// wantPlants fails unless Plant returns each of the plants.
func wantPlants(t tb, s plantstore.Store, plants ...plantstore.Plant) {
	t.Helper()
	for _, want := range plants {
		got, err := s.Plant(t.Context(), want.ID)
		if err != nil {
			t.Fatalf("Plant(%d): %v, want %s", want.ID, err, showPlant(want))
		}
		if got.Plant != want {
			t.Fatalf("Plant(%d): got %s, want %s", want.ID, showPlant(got.Plant), showPlant(want))
		}
	}
}

// wantNoPlants fails unless Plant returns ErrNoPlant for each id.
func wantNoPlants(t tb, s plantstore.Store, ids ...plantstore.ID) {
	t.Helper()
	for _, id := range ids {
		got, err := s.Plant(t.Context(), id)
		if err == nil {
			t.Fatalf("Plant(%d): got %s, want none", id, showPlant(got.Plant))
		}
		if !errors.Is(err, plantstore.ErrNoPlant) {
			t.Fatalf("Plant(%d): error %v, want ErrNoPlant", id, err)
		}
	}
}

// wantAll fails unless the store contains exactly the plants, in their order.
func wantAll(t tb, s plantstore.Store, plants ...plantstore.Plant) {
	t.Helper()
	wantScan(t, s, plantstore.Query{}, plants)
}

// wantFound fails unless Scan, small pages, and pages with a limit of exactly as many
// plants or one more return exactly the plants, in their order.
func wantFound(t tb, s plantstore.Store, q plantstore.Query, want []plantstore.Plant) {
	t.Helper()
	wantScan(t, s, q, want)
	for _, limit := range []int{2, max(1, len(want)), len(want) + 1} {
		q.Limit = limit
		wantPages(t, s, q, want)
	}
}

func wantScan(t tb, s plantstore.Store, q plantstore.Query, want []plantstore.Plant) {
	t.Helper()
	got, err := collect(s.Scan(t.Context(), q, nil))
	if err != nil {
		t.Fatalf("Scan(%s): %v", showQuery(q), err)
	}
	if d := difference(got, want); d != "" {
		t.Fatalf("Scan(%s): %s", showQuery(q), d)
	}
}

// collect returns the plants that a scan yields before its error. It may be called
// from any goroutine.
func collect(scan iter.Seq2[plantstore.StoredPlant, error]) ([]plantstore.Plant, error) {
	var plants []plantstore.Plant
	for p, err := range scan {
		if err != nil {
			return plants, err
		}
		plants = append(plants, p.Plant)
	}
	return plants, nil
}

// plantsOf returns the plants without their versions and times.
func plantsOf(stored []plantstore.StoredPlant) []plantstore.Plant {
	plants := make([]plantstore.Plant, len(stored))
	for i, p := range stored {
		plants[i] = p.Plant
	}
	return plants
}

// wantPages follows Next from the query's page to the last page, and compares the count of a query for all of them.
func wantPages(t tb, s plantstore.Store, q plantstore.Query, want []plantstore.Plant) {
	t.Helper()
	followPages(t, s, q, want, q.After == nil && q.AfterName == "")
}

// followPages is wantPages, if whole with a count of the plants.
func followPages(t tb, s plantstore.Store, q plantstore.Query, want []plantstore.Plant, whole bool) {
	t.Helper()
	const maxPages = 20_000 // more than any test needs with one plant on each
	matching := len(want)
	for n := range maxPages {
		q.Count = whole && n < 2
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatalf("List(%s): %v", showQuery(q), err)
		}
		if q.Count && (page.Count == nil || *page.Count != count(matching)) || !q.Count && page.Count != nil {
			t.Fatalf("List(%s): %v plants match, want %v", showQuery(q), page.Count, count(matching))
		}
		if p := pageProblem(page, q, want); p != "" {
			t.Fatalf("List(%s): %s", showQuery(q), p)
		}
		if page.Next == nil && page.NextName == "" {
			return
		}
		want = want[len(page.Plants):]
		q.After, q.AfterName = page.Next, page.NextName
	}
	t.Fatalf("List(%s): %d pages without a last one", showQuery(q), maxPages)
}

// count returns a number of plants as a store counts them.
func count(n int) plantstore.Count {
	return plantstore.Count{Plants: min(n, plantstore.MaxCount), More: n > plantstore.MaxCount}
}

// pageProblem says what is wrong with a page if want is all that matches the query. It
// returns "" if nothing is. A page may be short, but must not skip a plant.
func pageProblem(page plantstore.Page, q plantstore.Query, want []plantstore.Plant) string {
	n := len(page.Plants)
	if n > q.Limit {
		return fmt.Sprintf("%d plants on the page", n)
	}
	if d := difference(plantsOf(page.Plants), want[:min(n, len(want))]); d != "" {
		return d
	}
	if q.Order.ByName() {
		switch {
		case page.Next != nil:
			return "Next is an id"
		case page.NextName == "" && n < len(want):
			return fmt.Sprintf("the last page omits %s", showPlant(want[n]))
		case page.NextName != "" && (n == 0 || page.NextName != namePosition(page.Plants[n-1].Plant).Cursor()):
			return fmt.Sprintf("NextName is %q, which is not the last plant", page.NextName)
		}
		return ""
	}
	switch next := page.Next; {
	case next == nil && n < len(want):
		return fmt.Sprintf("the last page omits %s", showPlant(want[n]))
	case next == nil:
		return ""
	case q.After != nil && q.CompareIDs(*next, *q.After) <= 0:
		return fmt.Sprintf("Next is %d, which is not after the query's After", *next)
	case n > 0 && q.CompareIDs(*next, page.Plants[n-1].ID) < 0:
		return fmt.Sprintf("Next is %d, before the page's last plant %d", *next, page.Plants[n-1].ID)
	case n < len(want) && q.CompareIDs(*next, want[n].ID) >= 0:
		return fmt.Sprintf("Next is %d, which skips %s", *next, showPlant(want[n]))
	}
	return ""
}
