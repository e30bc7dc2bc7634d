package postgres

import (
	"context"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/rules"
)

// documentedSQL returns the statements of each block of SQL in the documentation.
func documentedSQL(t *testing.T) (blocks [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations/postgresql.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllSubmatch(page, -1) {
		blocks = append(blocks, strings.SplitAfter(strings.TrimSpace(string(block[1])), ";\n"))
	}
	return blocks
}

// The documented roles: one that serves, and one that reads the views and nothing else.
func TestDocumentedRolesAreEnough(t *testing.T) {
	blocks := documentedSQL(t)
	if len(blocks) != 2 {
		t.Fatalf("the documentation has %d blocks of SQL, want one for the server and one for readers", len(blocks))
	}
	shared, err := url.Parse(pgtest.Fresh(t))
	if err != nil {
		t.Fatal(err)
	}
	shared.RawQuery = "sslmode=disable"
	as := func(role, database string) string {
		u := *shared
		u.User, u.Path = url.User(role), "/"+database
		return u.String()
	}
	connect := func(url string) *pgx.Conn {
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(context.Background()) })
		return c
	}
	exec := func(c *pgx.Conn, statements ...string) {
		for _, statement := range statements {
			if _, err := c.Exec(context.Background(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	admin := connect(as("postgres", "postgres"))
	exec(admin, blocks[0]...)
	t.Cleanup(func() {
		exec(admin, "DROP DATABASE plantstore WITH (FORCE)", "DROP ROLE IF EXISTS gardener", "DROP ROLE plantstore")
	})
	s := openReady(t, as("plantstore", "plantstore"))
	s.IndexNames(rules.IndexOn)
	settle(t, s, plantstore.SearchReady)
	apply(t, s, create(plant(1, "fern")))
	wantProblems(t, s)

	exec(connect(as("postgres", "plantstore")), blocks[1]...)
	reader := as("gardener", "plantstore")
	if n := pgtest.QueryInt(t, reader, "SELECT count(*) FROM plants JOIN events USING (id)"); n != 1 {
		t.Errorf("a reader sees %d plants with an event, want 1", n)
	}
	c := connect(reader)
	for _, statement := range []string{"SELECT * FROM tokens", "INSERT INTO plants (id, name) VALUES (2, 'rose')", "DELETE FROM stored_plants"} {
		if _, err := c.Exec(t.Context(), statement); err == nil {
			t.Errorf("a reader may %s", statement)
		}
	}
}
