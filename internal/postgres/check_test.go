package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
)

// wantProblems fails unless a check finds these problems.
func wantProblems(t *testing.T, s *Store, want ...string) {
	t.Helper()
	got, err := s.Check(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Check: %v\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCheckFindsDamage(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	operator := plantstore.Actor{Name: plantstore.Operator}
	fern := plantstore.Plant{ID: 1, Name: "fern\x00\u2400", Tag: plantstore.NewTag("green")}
	apply(t, s, create(fern), create(plant(2, "rose")))                                // events 1 and 2
	apply(t, s, replace(plant(2, "a rose"), nil), remove(1), create(plant(3, "lily"))) // 3 to 5
	apply(t, s, create(fern))                                                          // 6
	apply(t, s, remove(3))                                                             // 7
	err := errors.Join(
		s.CreateToken(t.Context(), token("ci"), operator), // 8
		s.CreateWebhook(t.Context(), plantstore.Webhook{ID: "hook", URL: "https://example.com"}, operator),
		s.SaveDeliveries(t.Context(), "hook", make([]plantstore.Delivery, 1)),
	)
	if err != nil {
		t.Fatal(err)
	}
	before := dumpRows(t, url)
	wantProblems(t, s)
	if after := dumpRows(t, url); !slices.Equal(after, before) {
		t.Errorf("after a check, the store is\n%s\nwant\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	exec := func(sql string) func(context.Context, *pgx.Conn) error {
		return func(ctx context.Context, c *pgx.Conn) error { _, err := c.Exec(ctx, sql); return err }
	}
	id := token("ci").Hash.ID()
	for _, damage := range []struct {
		sql, undo string
		want      []string
	}{
		{
			"UPDATE log SET plants = plants + 1 WHERE first = 8", "UPDATE log SET plants = plants - 1 WHERE first = 8",
			[]string{"the store has 2 plants, but the log says 3"},
		},
		{
			"INSERT INTO stored_plants VALUES (3, 'lily')", "DELETE FROM stored_plants WHERE id = 3",
			[]string{"plant 3 exists, but its last event, 7, is plant.deleted", "the store has 3 plants, but the log says 2"},
		},
		{
			"UPDATE stored_plants SET id = 4 WHERE id = 2", "UPDATE stored_plants SET id = 2 WHERE id = 4",
			[]string{"plant 2 does not exist, but its last event, 3, is plant.replaced"},
		},
		{
			"UPDATE stored_plants SET name = 'rose' WHERE id = 2", "UPDATE stored_plants SET name = 'a rose' WHERE id = 2",
			[]string{"plant 2 has another name or tag, but its last event, 3, is plant.replaced"},
		},
		{
			"UPDATE stored_plants SET tag = NULL WHERE id = 1", "UPDATE stored_plants SET tag = 'green' WHERE id = 1",
			[]string{"plant 1 has another name or tag, but its last event, 6, is plant.created"},
		},
		{
			"UPDATE stored_plants SET tag = '' WHERE id = 2", "UPDATE stored_plants SET tag = NULL WHERE id = 2",
			[]string{"plant 2 has another name or tag, but its last event, 3, is plant.replaced"},
		},
		{
			"UPDATE log SET prev[1] = 1 WHERE first = 3", "UPDATE log SET prev[1] = 2 WHERE first = 3",
			[]string{"event 3 of plant 2 leads to 1, but the one before it is 2"},
		},
		{
			"UPDATE log SET prev = NULL WHERE first = 7", "UPDATE log SET prev = '{5}' WHERE first = 7",
			[]string{"event 7 of plant 3 leads to none, but the one before it is 5"},
		},
		{
			"DELETE FROM unlinked_events WHERE id = 1", "INSERT INTO unlinked_events VALUES (1, 4)",
			[]string{"event 6 of plant 1 leads to none, but the one before it is 4", "event 4 of plant 1 is not in unlinked_events", "rows of unlinked_events: 1, events that it should have: 2"},
		},
		{
			"INSERT INTO unlinked_events VALUES (9, 1)", "DELETE FROM unlinked_events WHERE id = 9",
			[]string{"rows of unlinked_events: 3, events that it should have: 2"},
		},
		{
			"UPDATE stored_plants SET n = 1 WHERE id = 2", "UPDATE stored_plants SET n = 0 WHERE id = 2",
			[]string{"plant 2 does not have the version of its last event, 3"},
		},
		{
			"UPDATE log SET total_bytes = 1 WHERE first = 8", "UPDATE log SET total_bytes = (" + selectSize + ") WHERE first = 8",
			[]string{"the log has " + query(t, url, selectSize)[0] + " bytes, but its rows say 1"},
		},
		{
			"UPDATE log SET first = 20 WHERE first = 8", "UPDATE log SET first = 8 WHERE first = 20",
			[]string{"the log has no events 8 to 19"},
		},
		{
			"UPDATE log SET time = time - 1e12 WHERE first = 6", "UPDATE log SET time = time + 1e12 WHERE first = 6",
			[]string{"event 6 is earlier than the one before"},
		},
		{
			"UPDATE log_start SET seq = -1", "UPDATE log_start SET seq = 0",
			[]string{"the log has no events 0 to 0"},
		},
		{
			"UPDATE log SET first = 4 WHERE first = 6", "UPDATE log SET first = 6 WHERE first = 4",
			[]string{"the log has event 4 again, after 5", "the log has no events 5 to 6", "plant 1 exists, but its last event, 4, is plant.deleted"},
		},
		{
			"UPDATE log_start SET seq = 2", "UPDATE log_start SET seq = 0",
			[]string{"the log has event 1 again, after 2"},
		},
		{
			`UPDATE log SET "by" = "by" || 'x'::text WHERE first = 6`, `UPDATE log SET "by" = "by"[1:1] WHERE first = 6`,
			[]string{"the row 6 of the log has columns of different lengths"},
		},
		{
			"UPDATE log SET type = '{9}' WHERE first = 7", "UPDATE log SET type = '{3}' WHERE first = 7",
			[]string{"event 7 of the log has the type 9", "plant 3 does not exist, but its last event, 5, is plant.created"},
		},
		{
			"UPDATE log SET name = ARRAY['x' || name[1]] WHERE first = 8", "UPDATE log SET name = ARRAY[substr(name[1], 2)] WHERE first = 8",
			[]string{"event 8 of the log: jsontext: invalid character 'x' at start of value"},
		},
		{
			"UPDATE stored_tokens SET scopes = 'all'", "UPDATE stored_tokens SET scopes = 'plants:read'",
			[]string{"token " + id + `: unknown scope "all"; allowed: ` + plantstore.FormatScopes(plantstore.AllScopes())},
		},
		{
			"UPDATE stored_webhooks SET value = ''", "UPDATE stored_webhooks SET value = '{}'",
			[]string{"webhook hook: unexpected end of JSON input"},
		},
		{
			"UPDATE deliveries SET value = ''", "UPDATE deliveries SET value = '[]'",
			[]string{"deliveries of webhook hook: unexpected end of JSON input"},
		},
		{
			"UPDATE log_state SET id = 2", "UPDATE log_state SET id = 1",
			[]string{"the table log_state or log_start has no row"},
		},
		{
			"DELETE FROM log_start", "INSERT INTO log_start VALUES (0, 0, 0, 0)",
			[]string{"the table log_state or log_start has no row"},
		},
	} {
		withWriteConn(t, s, exec(damage.sql))
		wantProblems(t, s, damage.want...)
		withWriteConn(t, s, exec(damage.undo))
	}
	wantProblems(t, s)
	query(t, url, "DELETE FROM stored_plants")
	query(t, url, fmt.Sprintf(`INSERT INTO log (first, time, "by", type, id, name, tag, bytes, plants, total_bytes)
		SELECT i + 8, log_end.time + i, '{x}', '{1}', ARRAY[i + 8], '{fern}', '{NULL}', 0, 0, total_bytes FROM log_end(), generate_series(1, %d) AS i`, 2*maxProblems))
	if got, err := s.Check(t.Context()); err != nil || len(got) != maxProblems+1 || got[maxProblems] != "and more" {
		t.Errorf("a check of much damage: %d problems, %v", len(got), err)
	}
}

// A log that PostgreSQL cannot read beyond a row does not end there.
func TestCheckOfLogThatCannotBeRead(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url+"&enable_sort=off") // which would read all rows before the first is sent
	for id := range plantstore.ID(3) {
		apply(t, s, create(plant(id, "fern")))
	}
	query(t, url, `CREATE FUNCTION corrupt() RETURNS text[] STABLE LANGUAGE plpgsql AS $$BEGIN RAISE 'no such chunk' USING ERRCODE = 'XX001'; END$$`)
	query(t, url, "ALTER TABLE log RENAME TO whole")
	query(t, url, `CREATE VIEW log AS SELECT first, time, "by", type, id, CASE first WHEN 2 THEN corrupt() ELSE name END AS name, tag, bytes, plants, total_bytes FROM whole`)
	wantProblems(t, s, "ERROR: no such chunk (SQLSTATE XX001)")
}

// A check, or a command beside a server, migrates nothing. Once a server has, the store is intact.
func TestCheckOfAnOlderSchema(t *testing.T) {
	url := release020(t)
	before := dumpRows(t, url)
	command := mustOpenWith(t, url, Options{Alongside: true})
	defer command.Close()
	if got, err := command.Check(t.Context()); !errors.Is(err, ErrOlderSchema) {
		t.Errorf("Check: %q, %v, want ErrOlderSchema", got, err)
	}
	if _, err := command.Tokens(t.Context()); !errors.Is(err, ErrOlderSchema) {
		t.Errorf("Tokens: %v, want ErrOlderSchema", err)
	}
	if after := dumpRows(t, url); !slices.Equal(after, before) {
		t.Errorf("after a check, the store is\n%s\nwant\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	wantProblems(t, openReady(t, url))
}

func TestCheckOfAnEmptyDatabase(t *testing.T) {
	url := pgtest.Fresh(t)
	command := mustOpenWith(t, url, Options{Existing: true, Alongside: true})
	defer command.Close()
	if _, err := command.Check(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Check of an empty database: %v", err)
	}
	if tables := describeTables(t, url); len(tables) > 0 {
		t.Errorf("it now has %s", tables)
	}
}

// Everything is read from one snapshot.
func TestCheckBesideWriters(t *testing.T) {
	s := openReady(t, pgtest.Fresh(t))
	s.KeepLog(0, 20_000)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	writers.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			id := plantstore.ID(n % 100)
			apply(t, s, create(plant(id, "fern")), create(plant(id+1000, "fern")), replace(plant(id, fmt.Sprint("rose ", n)), nil))
			apply(t, s, remove(id+1000))
			apply(t, s, remove(id))
		}
	})
	writers.Go(func() {
		for ctx.Err() == nil {
			trimAll(t, s)
		}
	})
	for start := time.Now(); time.Since(start) < 500*time.Millisecond; {
		wantProblems(t, s)
	}
	stop()
	writers.Wait()
}
