package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/rules"
	"plantstore/internal/testenv"
)

// TestUpkeepShowsWhatHoldsItBack has everything that can do so, beside a store whose role has no
// privileges.
func TestUpkeepShowsWhatHoldsItBack(t *testing.T) {
	server := pgtest.Start(t, "max_prepared_transactions=1", "wal_level=logical", "archive_mode=on", "archive_command=false")
	server.Exec(t, "CREATE ROLE plantstore LOGIN")
	server.Exec(t, "CREATE DATABASE plants OWNER plantstore")
	admin := strings.Replace(server.URL(), "/postgres?", "/plants?", 1)
	s := openReady(t, strings.Replace(admin, "postgres@", "plantstore@", 1))
	upkeep := func() rules.Upkeep {
		t.Helper()
		u, err := s.Upkeep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	id := plantstore.ID(0)
	write := func() {
		for range 3 { // transactions
			id++
			apply(t, s, create(plant(id, "fern")))
		}
	}
	write()
	if u := upkeep(); u.Snapshots["session"]+u.Snapshots["prepared"]+u.Snapshots["slot"] != 0 || u.Transaction != 0 || u.WAL["slot"] != 0 || len(u.DeadRows) < 5 {
		t.Errorf("with nothing to hold it back: %+v", u)
	}

	other, err := pgx.Connect(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	exec := func(statement string) {
		t.Helper()
		if _, err := other.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for _, c := range []struct{ holder, begin, end string }{
		{"session", "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1", "ROLLBACK"},
		{"session", "BEGIN; SELECT pg_current_xact_id()", "ROLLBACK"},
		{"prepared", "BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'forgotten'", "ROLLBACK PREPARED 'forgotten'"},
		{"slot", "SELECT pg_create_logical_replication_slot('forgotten', 'pgoutput')", "SELECT pg_drop_replication_slot('forgotten')"},
	} {
		exec(c.begin)
		write()
		u := upkeep()
		if u.Snapshots[c.holder] < 3 {
			t.Errorf("%s: %+v, want 3 transactions or more of a %s", c.begin, u, c.holder)
		}
		switch c.holder {
		case "session":
			if u.Transaction != 0 {
				t.Errorf("%s: PostgreSQL says when the transaction of another role began", c.begin)
			}
			server.Exec(t, "GRANT pg_read_all_stats TO plantstore")
			if u := upkeep(); u.Transaction <= 0 {
				t.Errorf("%s: %+v, want the age of the transaction", c.begin, u)
			}
			server.Exec(t, "REVOKE pg_read_all_stats FROM plantstore")
		case "prepared":
			if u.Transaction <= 0 {
				t.Errorf("%s: %+v, want the age of the transaction", c.begin, u)
			}
		case "slot":
			if u.WAL["slot"] <= 0 {
				t.Errorf("%s: %+v, want the WAL since then", c.begin, u)
			}
		}
		exec(c.end)
		if u := upkeep(); u.Snapshots[c.holder] != 0 || u.Transaction != 0 || u.WAL["slot"] != 0 {
			t.Errorf("after %s: %+v", c.end, u)
		}
	}

	exec("SELECT pg_switch_wal()")
	apply(t, s, remove(1), remove(2), remove(3))
	testenv.Eventually(t, func() error {
		if u := upkeep(); u.WAL["archiver"] <= 0 || u.WAL["archiver"] > 1<<30 || u.DeadRows["stored_plants"] < 3 {
			return fmt.Errorf("%+v, want WAL that is not archived, and 3 dead rows", u)
		}
		return nil
	})
}
