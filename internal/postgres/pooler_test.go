package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/rules"
)

// TestStoresShareAPooler has each transaction of two stores on another connection.
func TestStoresShareAPooler(t *testing.T) {
	pooler := pgtest.Start(t).Pooler(t)
	stores := []*Store{openStore(t, pooler.URL()), openStore(t, pooler.URL())}
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			for n := range 5 {
				if err := useAll(t.Context(), stores[i%2], plantstore.ID(100*i+n)); err != nil {
					t.Errorf("caller %d: %v", i, err)
				}
			}
		})
	}
	callers.Wait()
	stores[0].IndexNames(rules.IndexOn)
	settle(t, stores[0], plantstore.SearchReady)
	wantProblems(t, stores[1])
	for _, s := range stores {
		for _, c := range s.conns.AcquireAllIdle(t.Context()) {
			var left []string
			rows, err := c.Query(t.Context(), `SELECT name FROM pg_settings WHERE source = 'session' AND name <> 'application_name'
				UNION ALL SELECT statement FROM pg_prepared_statements WHERE name <> ''`)
			if err == nil {
				left, err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			c.Release()
			if err != nil || len(left) > 0 {
				t.Errorf("a transaction left %q, %v", left, err)
			}
		}
	}
}

// A URL may have statements sent in another way, such as without describing them first.
func TestModesOfStatements(t *testing.T) {
	for _, mode := range []string{"exec", "simple_protocol"} {
		s := openStore(t, pgtest.Fresh(t)+"&default_query_exec_mode="+mode)
		if err := useAll(t.Context(), s, 1); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// useAll uses a store in every way that has its own statements.
func useAll(ctx context.Context, s *Store, id plantstore.ID) error {
	one := func(op plantstore.Op, name string) error {
		results, err := applyRetrying(ctx, s, []plantstore.Write{{Op: op, Plant: plantstore.Plant{ID: id, Name: name}}})
		if err != nil {
			return err
		}
		return results[0].Err
	}
	several := []plantstore.Write{create(plantstore.Plant{ID: id + 50, Name: "moss"}), create(plantstore.Plant{ID: id + 51, Name: "ivy"})}
	_, failed := applyRetrying(ctx, s, several)
	err := errors.Join(failed, one(plantstore.Create, "fern"), one(plantstore.Replace, "rose"))
	if p, failed := s.Plant(ctx, id); failed != nil || p.Name != "rose" {
		err = errors.Join(err, fmt.Errorf("plant %d is %q, %w", id, p.Name, failed))
	}
	page, failed := s.List(ctx, plantstore.Query{Limit: 1000})
	if failed != nil || !slices.ContainsFunc(page.Plants, func(p plantstore.StoredPlant) bool { return p.ID == id }) {
		err = errors.Join(err, fmt.Errorf("a list has no plant %d, %w", id, failed))
	}
	_, failed = s.Events(ctx, plantstore.EventQuery{Limit: 10})
	_, failedTags := s.Tags(ctx, plantstore.TagQuery{Limit: 10})
	_, failedTokens := s.Tokens(ctx)
	return errors.Join(err, failed, failedTags, failedTokens, s.Ready(ctx), one(plantstore.Delete, ""))
}
