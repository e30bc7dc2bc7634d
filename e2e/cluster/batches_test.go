package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"plantstore"
	"plantstore/e2e/harness"
	"plantstore/internal/postgres"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/rules"
)

// TestBatchesAreLinearizable has two stores write and read a few ids, in batches,
// and checks that one order of the operations explains their results, id by id.
func TestBatchesAreLinearizable(t *testing.T) {
	const clients, rounds, ids = 6, 60, 3
	url := pgtest.Fresh(t)
	var stores [2]*postgres.Store
	for i := range stores {
		store, err := postgres.Open(url, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		stores[i] = store
	}
	var mu sync.Mutex
	var history []porcupine.Operation
	start := time.Now()
	now := func() int64 { return int64(time.Since(start)) }
	record := func(client int, call, end int64, in plantstore.Write, out any) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: end})
	}
	harness.Parallel(t, clients, func(client int) error {
		s := stores[client%2]
		for range rounds {
			call := now()
			if rand.IntN(4) == 0 {
				id := plantstore.ID(rand.IntN(ids))
				p, err := s.Plant(t.Context(), id)
				if err != nil && !errors.Is(err, plantstore.ErrNoPlant) {
					return err
				}
				record(client, call, now(), plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: id}}, seen{p, err == nil})
				continue
			}
			var batch []plantstore.Write
			for _, id := range rand.Perm(ids)[:1+rand.IntN(ids)] {
				batch = append(batch, randomWrite(plantstore.ID(id), client))
			}
			results, err := applyRetrying(t.Context(), s, batch)
			if err != nil {
				return err
			}
			end := now()
			for i, w := range batch {
				record(client, call, end, w, results[i])
			}
		}
		return nil
	})
	if !porcupine.CheckOperations(plantModel, history) {
		t.Error("no order of the writes explains their results")
	}
}

// seen is the result of a read.
type seen struct {
	plant plantstore.StoredPlant
	found bool
}

// plantModel models one id. The output of a write is a plantstore.Result, and that
// of a read is what was seen.
var plantModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byID := map[plantstore.ID][]porcupine.Operation{}
		for _, op := range history {
			id := op.Input.(plantstore.Write).Plant.ID
			byID[id] = append(byID[id], op)
		}
		return slices.Collect(maps.Values(byID))
	},
	Init: func() any { return seen{} },
	Step: func(state, input, output any) (bool, any) {
		now := state.(seen)
		if read, ok := output.(seen); ok {
			return read == now, now
		}
		var current *plantstore.StoredPlant
		if now.found {
			current = &now.plant
		}
		w := input.(plantstore.Write)
		result := output.(plantstore.Result)
		change := rules.Decide(&w, current, result.Version)
		if change.After == nil || change.Err != nil { // its version is meaningless
			change.Version = result.Version
		}
		if change.Result != result {
			return false, now
		}
		if change.After == nil {
			return true, seen{}
		}
		return true, seen{*change.After, true}
	},
}

func randomWrite(id plantstore.ID, client int) plantstore.Write {
	w := plantstore.Write{Op: plantstore.Create, Plant: plantstore.Plant{ID: id, Name: fmt.Sprint(client)}}
	switch rand.IntN(5) {
	case 0:
		w.Op = plantstore.Replace
	case 1:
		w = plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: id}}
	case 2:
		w.Op, w.If = plantstore.Replace, &plantstore.Condition{NoneMatch: []plantstore.ETag{plantstore.AnyETag}}
	}
	return w
}

// applyRetrying applies a batch again after ErrRetry, as commit.Writer does.
func applyRetrying(ctx context.Context, s *postgres.Store, batch []plantstore.Write) ([]plantstore.Result, error) {
	for {
		results, err := s.Apply(ctx, batch)
		if !errors.Is(err, plantstore.ErrRetry) || ctx.Err() != nil {
			return results, err
		}
	}
}
