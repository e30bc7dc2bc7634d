package pgtest

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// QueryInt returns the one number that a query yields in the database at the URL.
func QueryInt(t testing.TB, url, query string) (n int) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if err := c.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}
