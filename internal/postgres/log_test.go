package postgres

import (
	"testing"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
)

// TestPageOfLargeEventsIsBounded counts what the server sends for a page of a log
// whose events have 1 MiB each.
func TestPageOfLargeEventsIsBounded(t *testing.T) {
	url := pgtest.Fresh(t)
	proxy, proxied := newProxy(t, addr(url), url)
	s := openReady(t, proxied)
	query(t, url, "INSERT INTO log SELECT i, i, '', 1, i, repeat('x', 1 << 20), NULL FROM generate_series(1, 200) AS i")
	query(t, url, "UPDATE log_state SET seq = 200, time = 200")
	none := plantstore.ID(-1)
	cases := []struct {
		what           string
		query          plantstore.EventQuery
		events, mostMB int
	}{
		{"a page of one", plantstore.EventQuery{Limit: 1}, 1, 3},
		{"a page that its text ends", plantstore.EventQuery{Limit: 1000}, 4, 20},
		{"a search", plantstore.EventQuery{Limit: 1, ID: &none}, 0, 50},
	}
	for _, c := range cases {
		before := proxy.received.Load()
		page, err := s.Events(t.Context(), c.query)
		if err != nil || len(page.Events) != c.events || !page.More {
			t.Errorf("%s: %d events, more: %t, %v", c.what, len(page.Events), page.More, err)
		}
		if got := proxy.received.Load() - before; got > int64(c.mostMB)<<20 {
			t.Errorf("%s: the server sent %d MiB, want at most %d", c.what, got>>20, c.mostMB)
		}
	}
}

// TestGapInTheLogIsAnError also checks that the connection is usable afterwards.
func TestGapInTheLogIsAnError(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openReady(t, url)
	query(t, url, "INSERT INTO log SELECT i, i, '', 1, i, 'fern', NULL FROM generate_series(1, 900) AS i WHERE i <> 2")
	query(t, url, "UPDATE log_state SET seq = 900, time = 900")
	for range 3 {
		if page, err := s.Events(t.Context(), plantstore.EventQuery{Limit: 1000}); err == nil {
			t.Fatalf("a page with a gap: %v", page)
		}
	}
	if n := s.list.Stat().NewConnsCount(); n > 1 {
		t.Errorf("%d connections were made, want 1", n)
	}
}
