package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
)

func plant(id plantstore.ID, name string) plantstore.Plant {
	return plantstore.Plant{ID: id, Name: name}
}

func create(p plantstore.Plant) plantstore.Write {
	return plantstore.Write{Op: plantstore.Create, Plant: p}
}

func replace(p plantstore.Plant, cond *plantstore.Condition) plantstore.Write {
	return plantstore.Write{Op: plantstore.Replace, Plant: p, If: cond}
}

func remove(id plantstore.ID) plantstore.Write {
	return plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: id}}
}

func noneMatch(tags ...plantstore.ETag) *plantstore.Condition {
	return &plantstore.Condition{NoneMatch: tags}
}

// applyRetrying applies a batch again after ErrRetry, and what is left of it, as commit.Writer does.
func applyRetrying(ctx context.Context, s *Store, batch []plantstore.Write) (all []plantstore.Result, err error) {
	for {
		results, err := s.Apply(ctx, batch[len(all):])
		all = append(all, results...)
		retry := errors.Is(err, plantstore.ErrRetry) && ctx.Err() == nil
		if !retry && (err != nil || len(all) == len(batch)) {
			return all, err
		}
	}
}

// apply applies the writes as one batch, none of which may be refused.
func apply(t testing.TB, s *Store, batch ...plantstore.Write) {
	t.Helper()
	results, err := applyRetrying(t.Context(), s, batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("write %d of %d: %v", i+1, len(batch), r.Err)
		}
	}
}

// TestReplicasCreateTheSameIDs has two stores create the same ids at the same time,
// with equal or different plants, each batch in a random order.
func TestReplicasCreateTheSameIDs(t *testing.T) {
	const rounds, ids, writers = 10, 512, 4
	for _, equal := range []bool{true, false} {
		t.Run(fmt.Sprintf("equal=%v", equal), func(t *testing.T) {
			url := pgtest.Fresh(t)
			stores := []*Store{openStore(t, url), openStore(t, url)}
			want := int32(1)
			if equal {
				want = writers
			}
			for round := range rounds {
				for _, s := range stores {
					s.idsTaken.Store(false) // each round begins with createPlants
				}
				var wins [ids]atomic.Int32
				inParallel(t, writers, func(writer int) error {
					order := rand.Perm(ids)
					var batch []plantstore.Write
					for _, i := range order {
						p := plant(plantstore.ID(round*ids+i), "fern")
						if !equal {
							p.Name = fmt.Sprintf("fern %d", writer)
						}
						batch = append(batch, create(p))
					}
					results, err := applyRetrying(t.Context(), stores[writer%2], batch)
					if err != nil {
						return err
					}
					for i, r := range results {
						switch {
						case r.Err == nil:
							wins[order[i]].Add(1)
						case equal || !errors.Is(r.Err, plantstore.ErrIDTaken):
							return fmt.Errorf("create %d: %w", batch[i].Plant.ID, r.Err)
						}
					}
					return nil
				})
				for i := range wins {
					if got := wins[i].Load(); got != want {
						t.Errorf("%d of %d writers created %d, want %d", got, writers, round*ids+i, want)
					}
				}
			}
			wantNoDeadlock(t, url)
		})
	}
}

// TestReplicasNeverDeadlock has two stores apply all kinds of writes to the same few
// ids, each batch in a random order.
func TestReplicasNeverDeadlock(t *testing.T) {
	url := pgtest.Fresh(t)
	stores := []*Store{openStore(t, url), openStore(t, url)}
	inParallel(t, 6, func(client int) error {
		for range 60 {
			var batch []plantstore.Write
			for _, id := range rand.Perm(24)[:12] {
				batch = append(batch, randomWrite(plantstore.ID(id), client))
			}
			if _, err := applyRetrying(t.Context(), stores[client%2], batch); err != nil {
				return err
			}
		}
		return nil
	})
	wantNoDeadlock(t, url)
}

func randomWrite(id plantstore.ID, client int) plantstore.Write {
	p := plant(id, fmt.Sprint(client))
	switch rand.IntN(5) {
	case 0:
		return replace(p, nil)
	case 1:
		return remove(id)
	case 2:
		return replace(p, noneMatch(plantstore.AnyETag))
	}
	return create(p)
}

// wantNoDeadlock fails if the server had to resolve a deadlock. It counts those of
// other tests in the same database too.
func wantNoDeadlock(t *testing.T, url string) {
	t.Helper()
	query(t, url, "SELECT pg_stat_force_next_flush()")
	if got := query(t, url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); got[0] != "0" {
		t.Errorf("there were %s deadlocks", got[0])
	}
}

// TestBatchLargerThanAStatement applies more text than fits into one statement.
func TestBatchLargerThanAStatement(t *testing.T) {
	const n = 6
	s := openStore(t, pgtest.Fresh(t))
	var creates, replaces []plantstore.Write
	for i := range plantstore.ID(n) {
		creates = append(creates, create(plant(i, strings.Repeat("x", 1<<20))))
		replaces = append(replaces, replace(plant(i, strings.Repeat("y", 1<<20)), nil))
	}
	for _, batch := range [][]plantstore.Write{creates, replaces} {
		apply(t, s, batch...)
		for _, w := range batch {
			if got, err := s.Plant(t.Context(), w.Plant.ID); err != nil || got.Plant != w.Plant {
				t.Fatalf("plant %d has %d bytes, %v", w.Plant.ID, len(got.Name), err)
			}
		}
	}
}

// BenchmarkCreate creates plants in batches of 256 on a server that syncs.
func BenchmarkCreate(b *testing.B) {
	const size = 256
	server := pgtest.Start(b, "fsync=on")
	s := openStore(b, server.URL())
	if err := s.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, flushers := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("flushers=%d", flushers), func(b *testing.B) {
			var batches atomic.Int64
			var last atomic.Int64
			last.Store(rand.Int64())
			b.ResetTimer()
			inParallel(b, flushers, func(int) error {
				for batches.Add(1) <= int64(b.N) {
					first := last.Add(size)
					batch := make([]plantstore.Write, size)
					for i := range batch {
						p := plant(plantstore.ID(first+int64(i)), "Monstera deliciosa")
						p.Tag = plantstore.NewTag("tropical")
						batch[i] = create(p)
					}
					if _, err := s.Apply(context.Background(), batch); err != nil {
						return err
					}
				}
				return nil
			})
			b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "plants/s")
		})
	}
}
