package server

import (
	"context"
	"hash/maphash"
	"slices"

	"plantstore"
	"plantstore/internal/rules"
)

const (
	// maxTrial is how many plants a dry run may change: it remembers each, to find ids that
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
	changed map[plantstore.ID]uint64 // what the plants would become, as a hash, or deleted
	taken   int64                    // from the lane of imports
	first   plantstore.FirstLines
}

// deleted is the hash of no plant.
const deleted = 0

func newTrial(c *call) *trial {
	return &trial{c: c, seed: maphash.MakeSeed(), changed: map[plantstore.ID]uint64{}}
}

func (t *trial) release() { t.c.lane(imports).release(t.c.caller.Hash, t.taken) }

// apply returns the results that writes would have after those that it was called with before.
func (t *trial) apply(ctx context.Context, writes []plantstore.Write) ([]plantstore.Result, error) {
	results := make([]plantstore.Result, 0, len(writes))
	for part := range slices.Chunk(writes, trialReads) {
		decided, err := inTurn(t.c, reads, listUnits, func(ctx context.Context) ([]plantstore.Result, error) {
			return t.c.s.Store.Decide(ctx, part)
		})
		if err != nil {
			return nil, err
		}
		for i := range part {
			w := &part[i]
			if _, changed := t.changed[w.Plant.ID]; changed {
				decided[i] = rules.Decide(w, t.current(w), plantstore.Version{}).Result
			}
			t.remember(w, decided[i].EventType())
		}
		results = append(results, decided...)
		if err := t.grow(ctx); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// current returns a plant that compares to that of the write as the one that would be there. Its
// version is not known yet, so no condition holds for it.
func (t *trial) current(w *plantstore.Write) *plantstore.StoredPlant {
	hash := t.changed[w.Plant.ID]
	if hash == deleted {
		return nil
	}
	p := &plantstore.StoredPlant{Plant: w.Plant, Version: plantstore.Version{Time: -1}}
	if hash != t.hash(w) {
		p.Name += "other"
	}
	return p
}

// remember remembers what a write would change.
func (t *trial) remember(w *plantstore.Write, change plantstore.EventType) {
	switch change {
	case plantstore.PlantCreated, plantstore.PlantReplaced:
		t.changed[w.Plant.ID] = t.hash(w)
	case plantstore.PlantDeleted:
		t.changed[w.Plant.ID] = deleted
	}
}

func (t *trial) hash(w *plantstore.Write) uint64 { return maphash.Comparable(t.seed, w.Plant) | 1 }

// grow takes memory for the plants that would be new, when it is the caller's turn.
func (t *trial) grow(ctx context.Context) error {
	if len(t.changed) > maxTrial {
		return plantstore.Errorf(plantstore.ErrParameter, `"dry_run" is for up to %d changes: split the file`, maxTrial)
	}
	for int64(len(t.changed)*trialBytes) > t.taken {
		if err := t.c.lane(imports).acquire(ctx, t.c.caller.Hash, windowStep); err != nil {
			return err
		}
		t.taken += windowStep
	}
	return nil
}
