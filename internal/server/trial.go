package server

import (
	"context"
	"hash/maphash"
	"slices"

	"plantstore"
)

const (
	// maxTrial is how many new plants a dry run may have: it remembers each, to find ids that
	// occur twice.
	maxTrial = 500_000
	// trialBytes is the approximate memory for each.
	trialBytes = 48
	// trialReads is how many plants a dry run looks up at a time.
	trialReads = 1000
)

// trial is the dry run of an import: it finds out what would become of each write.
type trial struct {
	c       *call
	seed    maphash.Seed
	created map[plantstore.ID]uint64 // the plants that would be new, as a hash
	taken   int64                    // from the lane of imports
}

func newTrial(c *call) *trial {
	return &trial{c: c, seed: maphash.MakeSeed(), created: map[plantstore.ID]uint64{}}
}

func (t *trial) release() { t.c.lane(imports).release(t.c.caller.Hash, t.taken) }

// apply returns what would become of creates after those that it was called with before.
func (t *trial) apply(_ context.Context, writes []plantstore.Write) ([]plantstore.Result, error) {
	results := make([]plantstore.Result, 0, len(writes))
	for part := range slices.Chunk(writes, trialReads) {
		decided, err := inTurn(t.c, reads, listUnits, func(ctx context.Context) ([]plantstore.Result, error) {
			return t.c.s.Store.Decide(ctx, part)
		})
		if err != nil {
			return nil, err
		}
		for i, result := range decided {
			if result.Err == nil && result.Outcome == plantstore.Created {
				decided[i] = t.create(part[i].Plant)
			}
		}
		results = append(results, decided...)
		if err := t.grow(); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// create returns what would become of a plant that the store does not have.
func (t *trial) create(p plantstore.Plant) plantstore.Result {
	hash := maphash.Comparable(t.seed, p)
	switch before, ok := t.created[p.ID]; {
	case !ok:
		t.created[p.ID] = hash
		return plantstore.Result{Outcome: plantstore.Created}
	case before == hash:
		return plantstore.Result{Outcome: plantstore.Unchanged}
	}
	return plantstore.Result{Err: plantstore.ErrIDTaken}
}

// grow takes memory for the plants that would be new.
func (t *trial) grow() error {
	if len(t.created) > maxTrial {
		return plantstore.Errorf(plantstore.ErrParameter, `"dry_run" is for up to %d new plants: split the file`, maxTrial)
	}
	l := t.c.lane(imports)
	for int64(len(t.created)*trialBytes) > t.taken {
		if !l.tryAcquire(t.c.caller.Hash, windowStep, importBytes) {
			return l.full
		}
		t.taken += windowStep
	}
	return nil
}
