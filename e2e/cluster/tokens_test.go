package cluster

import (
	"strings"
	"testing"

	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
)

// A mistyped database does not become a new store.
func TestTokenCommandsCreateNoStore(t *testing.T) {
	t.Parallel()
	db := pgtest.Fresh(t)
	s := harness.New(t, db)
	for _, command := range [][]string{{"create", "--name", "ci"}, {"list"}, {"revoke", "ci"}} {
		out, err := s.TryCommand(append([]string{"token"}, command...)...)
		if err == nil {
			t.Errorf("token %q succeeded without a store: %s", command, out)
			continue
		}
		if want := "no store"; !strings.Contains(err.Error(), want) {
			t.Errorf("token %q: %v, want %q", command, err, want)
		}
		if tables := pgtest.QueryInt(t, db, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"); tables != 0 {
			t.Fatalf("token %q created %d tables", command, tables)
		}
	}
	secret := s.Command("token", "create", "--name", "ci", "--init")
	s.Command("token", "create", "--name", "second")
	s.Run()
	if status, body := s.Call(secret, "GET", "/plants", ""); status != 200 {
		t.Errorf("a list with the first token got %d %s", status, body)
	}
}
