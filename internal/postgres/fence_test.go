package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
)

// newerRelease migrates the store to the schema after the newest, as a newer release would.
// Servers of the oldest schema, and of those after it, may still write.
func newerRelease(t *testing.T, url string, oldest int) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	_, err = c.Exec(t.Context(), beginWrite)
	err = errors.Join(err, lockTables(t.Context(), c))
	_, failed := c.Exec(t.Context(), fmt.Sprintf("UPDATE plantstore_schema SET version = %d; UPDATE log_state SET oldest_writer = %d; COMMIT", newest+1, oldest))
	err = errors.Join(err, failed)
	if err != nil {
		t.Error(err)
	}
}

// Every way to write is refused by its own transaction, which changes nothing.
func TestNoWriteReachesANewerSchema(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	operator := plantstore.Actor{Name: plantstore.Operator}
	tk, other := token("ci"), token("other")
	hook := plantstore.Webhook{ID: "a", URL: "https://example.com"}
	applyMany(t, s, 3)
	withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `INSERT INTO batches (id, attempt, at) VALUES ('00000000-0000-0000-0000-000000000001', 0, now() - interval '11 minutes')`)
		return err
	})
	if err := errors.Join(s.CreateToken(t.Context(), tk, operator), s.CreateWebhook(t.Context(), hook, operator)); err != nil {
		t.Fatal(err)
	}
	s.KeepLog(0, 1)
	newerRelease(t, url, newest+1)
	before := dumpRows(t, url)

	change := func(w *plantstore.Webhook) error { w.Description = "changed"; return nil }
	write := func(batch ...plantstore.Write) func(context.Context) error {
		return func(ctx context.Context) error { _, err := s.Apply(ctx, batch); return err }
	}
	two := []plantstore.Write{create(plant(10, "fern")), create(plant(11, "fern"))}
	for what, write := range map[string]func(context.Context) error{
		"Ready":            s.Ready,
		"create":           write(two[0]),
		"create two":       write(two...),
		"create and taken": write(create(plant(1, "fern")), two[0]),
		"create again":     write(create(plant(1, "fern"))),
		"replace":          write(replace(plant(1, "rose"), nil)),
		"replace as it is": write(replace(plant(1, "fern"), nil)),
		"delete":           write(remove(1)),
		"fetch results": func(ctx context.Context) error {
			return s.withConn(ctx, s.write, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
				p := newPlan(two, 0)
				p.batchID.Bytes[15] = 1
				_, err := p.fetchResults(ctx, c)
				return err
			})
		},
		"CreateToken": func(ctx context.Context) error { return s.CreateToken(ctx, other, operator) },
		"RevokeToken": func(ctx context.Context) error { return s.RevokeToken(ctx, tk.Hash, time.Now(), operator) },
		"TouchTokens": func(ctx context.Context) error {
			return s.TouchTokens(ctx, map[plantstore.TokenHash]time.Time{tk.Hash: time.Now()})
		},
		"CreateWebhook": func(ctx context.Context) error {
			return s.CreateWebhook(ctx, plantstore.Webhook{ID: "b", URL: hook.URL}, operator)
		},
		"UpdateWebhook":  func(ctx context.Context) error { _, err := s.UpdateWebhook(ctx, "a", operator, change); return err },
		"SaveWebhook":    func(ctx context.Context) error { return s.SaveWebhook(ctx, "a", change) },
		"DeleteWebhook":  func(ctx context.Context) error { return s.DeleteWebhook(ctx, "a", operator) },
		"SaveDeliveries": func(ctx context.Context) error { return s.SaveDeliveries(ctx, "a", make([]plantstore.Delivery, 1)) },
		"trim":           func(ctx context.Context) error { _, err := s.trim(ctx); return err },
		"prune":          s.pruneResults,
	} {
		s.migrated.Store(true) // the store does not know it yet
		s.newer.Store(nil)
		err := write(t.Context())
		want := fmt.Sprintf("a newer Plantstore wrote this store: its schema is version %d, this release supports schemas up to %d; start the newer one", newest+1, newest)
		if e, ok := errors.AsType[*plantstore.Error](err); !ok || !errors.Is(err, ErrNewerSchema) || errors.Is(err, plantstore.ErrRetry) || e.Code != plantstore.ErrUnavailable || e.Message != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
		if after := dumpRows(t, url); !slices.Equal(after, before) {
			t.Errorf("%s: the store has\n%s\nand had\n%s", what, strings.Join(after, "\n"), strings.Join(before, "\n"))
			before = after
		}
	}
}

// A store that has met a newer schema refuses reads too, and says so once.
func TestStoreThatMetANewerSchemaRefusesEverything(t *testing.T) {
	url := pgtest.Fresh(t)
	var log bytes.Buffer
	s := mustOpenWith(t, url, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer s.Close()
	applyMany(t, s, 1)
	newerRelease(t, url, newest+1)
	query(t, url, "ALTER TABLE stored_plants RENAME TO renamed")
	if _, err := s.Plant(t.Context(), 1); !errors.Is(err, ErrNewerSchema) {
		t.Errorf("Plant: %v", err)
	}
	query(t, url, "UPDATE log_state SET oldest_writer = 0") // it does not look again
	for range 2 {
		if err := s.Ready(t.Context()); !errors.Is(err, ErrNewerSchema) {
			t.Errorf("Ready: %v", err)
		}
		if _, err := s.Tokens(t.Context()); !errors.Is(err, ErrNewerSchema) {
			t.Errorf("Tokens: %v", err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if err := s.Run(ctx); err != nil {
		t.Errorf("Run of a store that was used: %v", err)
	}
	if got := strings.Count(log.String(), "refuses everything"); got != 1 {
		t.Errorf("the log says it %d times: %s", got, log.String())
	}
}

func TestNewerSchemaMayAllowOlderWriters(t *testing.T) {
	url := pgtest.Fresh(t)
	running := openReady(t, url)
	newerRelease(t, url, newest)
	for i, s := range []*Store{running, openStore(t, url)} {
		apply(t, s, create(plant(plantstore.ID(i), "fern")))
		if err := s.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := query(t, url, "SELECT version FROM plantstore_schema")[0]; got != fmt.Sprint(newest+1) {
		t.Errorf("the schema is now version %s", got)
	}
}

// A migration waits for a transaction that has begun to write.
func TestMigrationWaitsForTransactions(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	var migration sync.WaitGroup
	withWriteConn(t, s, func(ctx context.Context, c *pgx.Conn) error {
		p := newPlan([]plantstore.Write{replace(plant(1, "fern"), nil)}, 0)
		if err := p.lock(ctx, c); err != nil {
			return err
		}
		migration.Go(func() { newerRelease(t, url+"&application_name=migration", newest+1) })
		testenv.WaitFor(t, "the migration to wait", func() bool {
			return len(query(t, url, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'migration' AND wait_event_type = 'Lock'")) > 0
		})
		return errors.Join(p.insert(ctx, c), p.finish(ctx, c))
	})
	migration.Wait()
	if got := query(t, url, "SELECT name FROM plants"); !slices.Equal(got, []string{"fern"}) {
		t.Errorf("the plants are %s", got)
	}
	if _, err := s.Apply(t.Context(), []plantstore.Write{remove(1)}); !errors.Is(err, ErrNewerSchema) {
		t.Errorf("the next batch: %v", err)
	}
}

// A write that waited for a migration sees it, even if the role's transactions have one
// snapshot. A create may fail once without knowing why.
func TestWriteThatWaitedForAMigrationIsRefused(t *testing.T) {
	for _, level := range []string{"read committed", "repeatable read"} {
		url := pgtest.Fresh(t)
		s := openReady(t, url+"&default_transaction_isolation="+strings.ReplaceAll(level, " ", "%20")+"&application_name=waiting")
		tk := token("ci")
		last := plantstore.ID(0)
		writes := map[string]func() error{
			"touch": func() error {
				return s.TouchTokens(t.Context(), map[plantstore.TokenHash]time.Time{tk.Hash: time.Now()})
			},
			"create": func() error {
				last++
				_, err := s.Apply(t.Context(), []plantstore.Write{create(plant(last, "fern"))})
				return err
			},
		}
		for range 10 { // the statements are prepared, and have a plan
			for what, write := range writes {
				if err := write(); err != nil {
					t.Fatalf("%s: %s: %v", level, what, err)
				}
			}
		}
		other := openReady(t, url)
		for _, what := range []string{"touch", "create"} {
			s.migrated.Store(true) // the store does not know it yet
			s.newer.Store(nil)
			query(t, url, fmt.Sprintf("UPDATE plantstore_schema SET version = %[1]d; UPDATE log_state SET oldest_writer = %[1]d", newest))
			var wait sync.WaitGroup
			withWriteConn(t, other, func(ctx context.Context, c *pgx.Conn) error {
				if _, err := c.Exec(ctx, fmt.Sprintf(`BEGIN; LOCK TABLE log, log_state, stored_tokens;
					UPDATE log_state SET oldest_writer = %[1]d; UPDATE plantstore_schema SET version = %[1]d`, newest+1)); err != nil {
					return err
				}
				wait.Go(func() {
					err := writes[what]()
					if what == "create" && errors.Is(err, plantstore.ErrRetry) {
						err = writes[what]()
					}
					if !errors.Is(err, ErrNewerSchema) {
						t.Errorf("%s: a %s that waited for the migration: %v", level, what, err)
					}
				})
				testenv.WaitFor(t, "the write to wait", func() bool {
					return len(query(t, url, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'waiting' AND wait_event_type = 'Lock'")) > 0
				})
				_, err := c.Exec(ctx, "COMMIT")
				return err
			})
			wait.Wait()
			if got := query(t, url, "SELECT (SELECT count(*) FROM stored_plants) || ' plants, ' || seq || ' events' FROM log_end()"); got[0] != "10 plants, 10 events" {
				t.Errorf("%s: after a %s, the store has %s", level, what, got[0])
			}
		}
	}
}

// Servers of this release and a migration lock tables in the same order, whether statements are
// prepared, new to a connection, or analysed again because of new statistics.
func TestMigrationsDoNotDeadlockWithWriters(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	put := func(p plantstore.Plant) plantstore.Write { return replace(p, nil) }
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	writers.Go(func() {
		for ctx.Err() == nil {
			query(t, url, "ANALYZE log_state")
			query(t, url, "ANALYZE stored_plants")
		}
	})
	write := func(i int, writes ...func(plantstore.Plant) plantstore.Write) {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				p := plant(plantstore.ID(n*4+i), fmt.Sprint("written ", n))
				if _, err := s.Apply(context.Background(), []plantstore.Write{writes[n%len(writes)](p)}); err != nil {
					t.Errorf("write %d: %v", n, err)
					return
				}
			}
		})
	}
	for i, writes := range [][]func(plantstore.Plant) plantstore.Write{{create}, {put}, {create, put}, {put}} {
		write(i, writes...)
	}
	for range 50 {
		newerRelease(t, url, newest)
	}
	stop()
	writers.Wait()
}

// A server of release 0.2.0 is in the middle of a transaction, and goes on afterwards.
func TestOlderServerIsFencedOff(t *testing.T) {
	url := release020(t)
	old, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close(context.Background())
	exec := func(sql string) error { _, err := old.Exec(t.Context(), sql); return err }
	if err := exec("BEGIN; SELECT create_plants('{77}', '{in flight}', '{NULL}', '{x}', 9)"); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := mustOpenWith(t, url+"&application_name=migration", Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer s.Close()
	var migration sync.WaitGroup
	migration.Go(func() {
		if err := s.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	})
	testenv.WaitFor(t, "the migration to wait", func() bool {
		return len(query(t, url, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'migration' AND wait_event_type = 'Lock'")) > 0
	})
	if err := exec("COMMIT"); err != nil {
		t.Fatal(err)
	}
	migration.Wait()
	if p, err := s.Plant(t.Context(), 77); err != nil || p.Name != "in flight" {
		t.Errorf("the plant that was in flight is %+v, %v", p, err)
	}
	for _, want := range []string{"schema=10", "step=0010_release_0_3_0.sql", "took=", "servers of earlier releases can no longer write"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not have %s: %s", want, log.String())
		}
	}
	before := dumpRows(t, url)
	for _, sql := range []string{
		"SELECT create_plants('{78}', '{late}', '{NULL}', '{x}', 9)",
		"SELECT create_plants('{78,79}', '{late,late}', '{NULL,NULL}', '{x,x}', 9)",
		"UPDATE log_state SET oldest_writer = CASE WHEN oldest_writer <= 9 THEN oldest_writer END WHERE id = 1 AND oldest_writer > 9",
		"UPDATE log_state SET seq = seq + 1, plants = plants + 1, bytes = bytes + 1 WHERE id = 1",
		"UPDATE log_state SET trimmed = trimmed + 1, bytes = bytes - 1 WHERE id = 1",
		"SELECT store, seq, time, trimmed, trimmed_time, plants, bytes FROM log_state WHERE id = 1",
	} {
		if err := exec(sql); !meetsOtherSchema(err) {
			t.Errorf("release 0.2.0 can still %s, or does not know why not: %v", sql, err)
		}
	}
	if after := dumpRows(t, url); !slices.Equal(after, before) {
		t.Errorf("the store has\n%s\nand had\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
}
