package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"plantstore"
)

var writeBehaviours = []behaviour{
	{"EveryIDIsValid", everyIDIsValid},
	{"TextIsStoredByteForByte", textIsStoredByteForByte},
	{"SimilarTextsAreDifferent", similarTextsAreDifferent},
	{"LongTextIsStored", longTextIsStored},
	{"EveryWriteHasItsOutcome", everyWriteHasItsOutcome},
	{"PatchChangesWhatItNames", patchChangesWhatItNames},
	{"OneIDManyTimesInABatch", oneIDManyTimesInABatch},
	{"RefusedWriteDoesNotStopOthers", refusedWriteDoesNotStopOthers},
	{"EmptyBatch", emptyBatch},
	{"LargeBatch", largeBatch},
	{"BatchBelongsToTheCaller", batchBelongsToTheCaller},
	{"RepeatedBatchChangesNothing", repeatedBatchChangesNothing},
	{"FailedBatchIsNotApplied", failedBatchIsNotApplied},
	{"PlantsSurviveClose", plantsSurviveClose},
}

// ids are ids that a store could mishandle, in ascending order: the limits of int64,
// both sides of zero, and those that float64 or 32 bits cannot represent.
var ids = []plantstore.ID{
	math.MinInt64, math.MinInt64 + 1, -1<<53 - 1, -1<<53 + 1, -1<<32 - 1, -1 << 31, -2, -1,
	0, 1, 2, 9, 10, 1<<31 - 1, 1 << 31, 1 << 32, 1<<53 - 1, 1<<53 + 1, 1<<53 + 3,
	math.MaxInt64 - 1, math.MaxInt64,
}

// onePerID returns a plant for each of the ids. No two are alike.
func onePerID() []plantstore.Plant {
	plants := make([]plantstore.Plant, len(ids))
	for i, id := range ids {
		plants[i] = plant(id, fmt.Sprintf("plant %d", i))
	}
	return plants
}

func everyIDIsValid(t *testing.T, s *subject) {
	wantAll(t, s)
	wantNoPlants(t, s, ids...)
	for _, p := range onePerID() {
		apply(t, s, step{create(p), created})
		wantPlants(t, s, p)
		apply(t, s, step{create(p), unchanged})
		apply(t, s, step{create(plant(p.ID, "another")), idTaken})
		apply(t, s, step{create(tagged(p.ID, p.Name, "new")), idTaken})
		wantPlants(t, s, p)
	}
	wantAll(t, s, onePerID()...)
	wantNoPlants(t, s, -3, 3, 1<<53, -1<<53, math.MaxInt32-1)
}

func textIsStoredByteForByte(t *testing.T, s *subject) {
	var plants []plantstore.Plant
	for i, text := range texts {
		id := plantstore.ID(3 * i)
		plants = append(plants, plant(id, text), tagged(id+1, "", text), tagged(id+2, text, text))
	}
	mustCreate(t, s, plants...)
	wantPlants(t, s, plants...)
	wantFound(t, s, plantstore.Query{}, plants)
	var again []step
	for _, p := range plants {
		again = append(again, step{create(p), unchanged}, step{replace(p), unchanged})
	}
	apply(t, s, again...)
	s.reopen(t)
	wantPlants(t, s, plants...)
	wantAll(t, s, plants...)
}

// similarTextsAreDifferent compares each text with those that follow it in texts, where
// similar ones are next to each other.
func similarTextsAreDifferent(t *testing.T, s *subject) {
	const near = 20
	for i, text := range texts {
		named, typed := plant(plantstore.ID(2*i), text), tagged(plantstore.ID(2*i+1), "fern", text)
		steps := []step{
			{create(named), created},
			{create(typed), created},
			{create(tagged(named.ID, text, "")), idTaken},
			{create(plant(typed.ID, "fern")), idTaken},
		}
		for j := range near {
			other := texts[(i+1+j)%len(texts)]
			steps = append(steps,
				step{create(plant(named.ID, other)), idTaken},
				step{create(tagged(typed.ID, "fern", other)), idTaken})
		}
		apply(t, s, steps...)
		wantPlants(t, s, named, typed)
	}
}

func longTextIsStored(t *testing.T, s *subject) {
	var plants []plantstore.Plant
	for i, text := range longTexts() {
		id := plantstore.ID(10 * i)
		last := text[:len(text)-1] + "!"
		plants = append(plants, plant(id, text), tagged(id+1, "long", text), tagged(id+2, "longer", last))
		apply(t, s,
			step{create(plants[3*i]), created},
			step{create(plants[3*i+1]), created},
			step{create(plants[3*i+2]), created},
			step{create(plants[3*i]), unchanged},
			step{create(plant(id, last)), idTaken},
			step{create(tagged(id+1, "long", last)), idTaken})
		wantFound(t, s, plantstore.Query{Tag: plantstore.NewTag(text)}, plants[3*i+1:3*i+2])
		wantFound(t, s, plantstore.Query{Tag: plantstore.NewTag(last)}, plants[3*i+2:3*i+3])
		wantFound(t, s, plantstore.Query{Contains: text}, plants[3*i:3*i+1])
	}
	s.reopen(t)
	wantPlants(t, s, plants...)
	wantAll(t, s, plants...)
}

// everyWriteHasItsOutcome goes through the table of writes three times: with the plant
// that a write finds created by an earlier batch, by the same batch, unless its version
// matters, which nobody knows before, and with all cases in one batch.
func everyWriteHasItsOutcome(t *testing.T, s *subject) {
	var before, all []step
	var after []plantstore.Plant
	for i, c := range writeCases() {
		for round := range plantstore.ID(3) {
			if round == 1 && c.ofVersion() {
				continue
			}
			id := plantstore.ID(100*i) + round
			given, tested := c.given.steps(id), c.step(id)
			switch round {
			case 0:
				apply(t, s, given...)
				apply(t, s, tested)
			case 1:
				apply(t, s, append(given, tested)...)
			case 2:
				before = append(before, given...)
				all = append(all, tested)
			}
			if left := c.left; left != nil {
				after = append(after, left.at(id))
			}
		}
	}
	apply(t, s, before...)
	apply(t, s, all...)
	wantAll(t, s, after...)
}

// patchChangesWhatItNames applies the same patches in one batch, one batch for each, and after a
// reopening.
func patchChangesWhatItNames(t *testing.T, s *subject) {
	wild, untagged := plantstore.NewTag("wild"), plantstore.Tag{}
	limited := func(w plantstore.Write, most uint32) plantstore.Write {
		w.MaxText = most
		return w
	}
	conditional := func(w plantstore.Write, c *plantstore.Condition) plantstore.Write {
		w.If = c
		return w
	}
	steps := func(id plantstore.ID) []step {
		fern, rose := tagged(id, "fern", "wild"), tagged(id, "rose", "wild")
		return []step{
			{patch(id, "fern"), noPlant},
			{conditional(patch(id, "fern"), ifMatch(plantstore.AnyETag)), unmet},
			{conditional(patch(id, "fern"), ifNoneMatch(plantstore.AnyETag)), noPlant},
			{create(plant(id, "fern")), created},
			{retag(id, untagged), patched(plantstore.Unchanged, plant(id, "fern"))},
			{retag(id, wild), patched(plantstore.Replaced, fern)},
			{retag(id, wild), patched(plantstore.Unchanged, fern)},
			{patch(id, "rose"), patched(plantstore.Replaced, rose)},
			{conditional(patch(id, "fern"), ifNoneMatch(plantstore.AnyETag)), unmet},
			{conditional(patch(id, "fern"), ifMatch(plantstore.AnyETag)), patched(plantstore.Replaced, fern)},
			{limited(patch(id, "ferns"), 8), plantstore.Result{Err: plantstore.ErrTooLarge}},
			{limited(patch(id, "ferns"), 9), patched(plantstore.Replaced, tagged(id, "ferns", "wild"))},
			{limited(patch(id, "roses"), 9), patched(plantstore.Replaced, tagged(id, "roses", "wild"))},
			{limited(patch(id, "moss"), 7), plantstore.Result{Err: plantstore.ErrTooLarge}},
			{limited(patch(id, "roses"), 8), plantstore.Result{Err: plantstore.ErrTooLarge}},
			{limited(patch(id, "roses"), 9), patched(plantstore.Unchanged, tagged(id, "roses", "wild"))},
			{plantstore.Write{Op: plantstore.Patch, Plant: rose}, patched(plantstore.Replaced, rose)},
			{plantstore.Write{Op: plantstore.Patch, Plant: plantstore.Plant{ID: id}, KeepName: true, KeepTag: true}, patched(plantstore.Unchanged, rose)},
			{retag(id, plantstore.NewTag("")), patched(plantstore.Replaced, tagged(id, "rose", ""))},
			{retag(id, untagged), patched(plantstore.Replaced, plant(id, "rose"))},
		}
	}
	apply(t, s, steps(1)...)
	for _, st := range steps(2) {
		apply(t, s, st)
	}
	s.reopen(t)
	apply(t, s, step{patch(2, "oak"), patched(plantstore.Replaced, plant(2, "oak"))}, step{remove(1), deleted}, step{patch(1, "oak"), noPlant})
	wantAll(t, s, plant(2, "oak"))
	changes := 0
	events, _ := follow(t, s, "")
	for _, e := range events {
		if e.Type == plantstore.PlantReplaced {
			changes++
		}
	}
	if want := 2*8 + 1; changes != want {
		t.Errorf("%d events of replacements, want %d", changes, want)
	}
}

func oneIDManyTimesInABatch(t *testing.T, s *subject) {
	fern, rose, moss := plant(1, "fern"), plant(1, "rose"), tagged(1, "moss", "")
	apply(t, s,
		step{create(fern), created},
		step{create(fern), unchanged},
		step{create(rose), idTaken},
		step{remove(1), deleted},
		step{remove(1), noPlant},
		step{create(rose), created},
		step{create(fern), idTaken},
		step{replace(moss), replaced},
		step{replace(moss), unchanged},
		step{create(moss), unchanged},
	)
	wantAll(t, s, moss)
	apply(t, s,
		step{remove(1), deleted},
		step{create(fern), created},
		step{remove(1), deleted},
	)
	wantAll(t, s)
	apply(t, s,
		step{replace(fern), created},
		step{create(plant(2, "ivy")), created},
		step{create(plant(2, "oak")), idTaken},
		step{replace(rose), replaced},
		step{remove(2), deleted},
		step{create(plant(2, "oak")), created},
	)
	wantAll(t, s, rose, plant(2, "oak"))
}

func refusedWriteDoesNotStopOthers(t *testing.T, s *subject) {
	mustCreate(t, s, plant(1, "fern"), plant(2, "rose"))
	guarded := replace(plant(2, "moss"))
	guarded.If = ifNoneMatch(plantstore.AnyETag)
	apply(t, s,
		step{create(plant(1, "oak")), idTaken},
		step{create(plant(10, "first")), created},
		step{remove(99), noPlant},
		step{create(plant(11, "second")), created},
		step{guarded, unmet},
		step{remove(2), deleted},
		step{create(plant(1, "elm")), idTaken},
	)
	wantAll(t, s, plant(1, "fern"), plant(10, "first"), plant(11, "second"))
	apply(t, s, step{create(plant(1, "oak")), idTaken}, step{remove(99), noPlant})
	s.reopen(t)
	wantAll(t, s, plant(1, "fern"), plant(10, "first"), plant(11, "second"))
}

func emptyBatch(t *testing.T, s *subject) {
	mustCreate(t, s, plant(1, "fern"))
	for _, batch := range [][]plantstore.Write{nil, {}} {
		results, err := s.Apply(t.Context(), batch)
		if err != nil || len(results) != 0 {
			t.Fatalf("Apply of no writes: %d results, error %v", len(results), err)
		}
	}
	wantAll(t, s, plant(1, "fern"))
}

// largeBatch applies 5,000 writes of every kind at once.
func largeBatch(t *testing.T, s *subject) {
	const n = 5000
	var before, left []plantstore.Plant
	var steps []step
	for i := range n {
		p := tagged(plantstore.ID(i-n/2), fmt.Sprintf("plant %d", i), "bulk")
		if i%10 < 4 {
			before = append(before, p)
		}
		switch i % 10 {
		case 0:
			steps = append(steps, step{create(p), unchanged})
		case 1:
			steps = append(steps, step{create(plant(p.ID, "another")), idTaken})
		case 2:
			steps = append(steps, step{remove(p.ID), deleted})
			continue
		case 3:
			p.Name = "replaced"
			steps = append(steps, step{replace(p), replaced})
		case 4:
			steps = append(steps, step{remove(p.ID), noPlant})
			continue
		default:
			steps = append(steps, step{create(p), created})
		}
		left = append(left, p)
	}
	mustCreate(t, s, before...)
	// Backwards, so that they are not in order by chance.
	slices.Reverse(steps)
	apply(t, s, steps...)
	wantAll(t, s, left...)
	wantPages(t, s, plantstore.Query{Limit: 10, Contains: "PLANT 4999"}, left[len(left)-1:])
}

func batchBelongsToTheCaller(t *testing.T, s *subject) {
	guarded := replace(plant(-7, "oak"))
	guarded.If = ifNoneMatch(plantstore.AnyETag)
	batch := []plantstore.Write{create(plant(2, "fern")), create(plant(1, "rose")), guarded}
	before := slices.Clone(batch)
	results, err := applyBatch(t.Context(), s, batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range batch {
		if w != before[i] {
			t.Errorf("write %d: Apply changed it to %s", i+1, showWrite(w))
		}
		batch[i] = remove(99)
		results[i] = idTaken
	}
	*guarded.If = plantstore.Condition{}
	wantAll(t, s, plant(-7, "oak"), plant(1, "rose"), plant(2, "fern"))
}

// repeatedBatchChangesNothing checks that a retry is safe.
func repeatedBatchChangesNothing(t *testing.T, s *subject) {
	fern, rose, moss := plant(1, "fern"), plant(2, "rose"), plant(3, "moss")
	mustCreate(t, s, plant(2, "oak"), plant(4, "elm"), moss)
	moved := replace(tagged(3, "moss", "moved"))
	moved.If = ifMatch((&variety{name: "moss"}).etag())
	apply(t, s,
		step{create(fern), created},
		step{replace(rose), replaced},
		step{moved, replaced},
		step{remove(4), deleted},
		step{create(plant(1, "other")), idTaken},
	)
	wantAll(t, s, fern, rose, moved.Plant)
	apply(t, s,
		step{create(fern), unchanged},
		step{replace(rose), unchanged},
		step{moved, unmet},
		step{remove(4), noPlant},
		step{create(plant(1, "other")), idTaken},
	)
	wantAll(t, s, fern, rose, moved.Plant)
}

// failedBatchIsNotApplied cancels batches before and while they are applied. Whatever
// Apply returns must be true.
func failedBatchIsNotApplied(t *testing.T, s *subject) {
	const attempts, size = 10, 200
	var left []plantstore.Plant
	for attempt := range attempts {
		var plants []plantstore.Plant
		var batch []plantstore.Write
		for i := range size {
			p := plant(plantstore.ID(attempt*size+i), "fern")
			plants = append(plants, p)
			batch = append(batch, create(p))
		}
		ctx, cancel := context.WithCancel(t.Context())
		if attempt == 0 {
			cancel()
		}
		var err error
		inParallel(t, 2, func(i int) error {
			if i == 0 {
				cancel()
				return nil
			}
			_, err = s.Apply(ctx, batch)
			return nil
		})
		switch {
		case errors.Is(err, plantstore.ErrUntrusted):
			t.Fatalf("Apply with a cancelled context: %v", err)
		case errors.Is(err, plantstore.ErrRetry):
			if _, err := applyBatch(t.Context(), s, batch); err != nil {
				t.Fatal(err)
			}
			left = append(left, plants...)
		case err == nil:
			left = append(left, plants...)
		}
		wantAll(t, s, left...)
	}
}

func plantsSurviveClose(t *testing.T, s *subject) {
	plants := onePerID()
	mustCreate(t, s, plants...)
	s.reopen(t)
	wantFound(t, s, plantstore.Query{}, plants)
	apply(t, s,
		step{remove(0), deleted},
		step{replace(tagged(1, "oak", "")), replaced},
		step{create(plant(2, "another")), idTaken},
		step{create(plant(3, "elm")), created},
	)
	s.reopen(t)
	s.reopen(t)
	wantNoPlants(t, s, 0)
	wantPlants(t, s, tagged(1, "oak", ""), plant(3, "elm"), plants[0], plants[len(plants)-1])
	apply(t, s,
		step{create(plants[0]), unchanged},
		step{create(tagged(1, "oak", "")), unchanged},
		step{create(plant(1, "oak")), idTaken},
		step{create(plant(0, "back")), created},
	)
}
