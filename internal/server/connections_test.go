package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/postgres"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/servertest"
	"plantstore/internal/testenv"
)

// startOn starts a server on the database at a URL.
func startOn(t *testing.T, db string, timeout time.Duration) *service {
	t.Helper()
	store, err := postgres.Open(db, postgres.Options{StoreTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return start(t, servertest.Options{Store: store, StoreTimeout: timeout})
}

// Two servers that would like to open 38 connections make do with 6. Both have some before either
// has much to do: a server that uses all of them all the time leaves none for one that starts.
func TestTwoServersHaveTooFewConnections(t *testing.T) {
	t.Parallel()
	servertest.OfOneServer(t)
	db, _ := pgtest.Limited(t, 6)
	var callers sync.WaitGroup
	servers := []*service{startOn(t, db, testenv.Timeout), startOn(t, db, testenv.Timeout)}
	for n, s := range servers {
		c := s.Client(client.Options{Retries: -1})
		for i := range 8 {
			callers.Go(func() {
				for range 20 {
					id := plantstore.ID(10*n + i)
					_, got := c.Get(t.Context(), id)
					if errors.Is(got, plantstore.ErrNoPlant) {
						got = nil
					}
					_, listed := c.Page(t.Context(), plantstore.Query{Limit: 10})
					err := errors.Join(c.Create(t.Context(), fern(id)), got, listed, checkReady(s))
					if i == 0 { // many exports at once would be refused
						for _, failed := range c.Export(t.Context(), plantstore.Query{}) {
							err = errors.Join(err, failed)
						}
					}
					if err != nil {
						t.Errorf("server %d: %v", n, err)
					}
				}
			})
		}
	}
	callers.Wait()
}

// checkReady returns an error if a server is not ready.
func checkReady(s *service) error {
	response, err := s.http.Get("http://" + s.Addr + "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz returned %s", response.Status)
	}
	return nil
}

// Others have all connections of the role. The server says so, and does not hang.
func TestNoConnectionIsLeft(t *testing.T) {
	t.Parallel()
	servertest.OfOneServer(t)
	const limit = 4
	db, admin := pgtest.Limited(t, limit)
	s := startOn(t, db, time.Second)
	testenv.Eventually(t, func() error { return checkReady(s) })
	var others []*pgx.Conn
	t.Cleanup(func() {
		for _, c := range others {
			c.Close(context.Background())
		}
	})
	testenv.Eventually(t, func() error {
		pgtest.QueryInt(t, admin, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = current_user AND application_name = 'plantstore'")
		for len(others) < limit {
			c, err := pgx.Connect(t.Context(), db)
			if err != nil {
				return err
			}
			others = append(others, c)
		}
		return nil
	})
	// What the store said a moment ago may still be the answer.
	testenv.WaitFor(t, "/readyz to notice", func() bool { return s.send(t, "GET", "/readyz", "").status == http.StatusServiceUnavailable })
	for what, send := range map[string]func() reply{
		"a create": func() reply { return s.create(t, `{"id":1,"name":"Fern"}`) },
		"a get":    func() reply { return s.call(t, "GET", "/1", "") },
		"a list":   func() reply { return s.call(t, "GET", "", "") },
		"an export": func() reply {
			return s.call(t, "GET", "", "", "Accept: application/x-ndjson")
		},
		"/readyz": func() reply { return s.send(t, "GET", "/readyz", "") },
	} {
		got := send()
		if got.status != http.StatusServiceUnavailable {
			t.Errorf("%s: got %d %s", what, got.status, got.body)
			continue
		}
		got.wantHeader(t, "Retry-After", "1")
	}
	if err := others[0].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() error { return checkReady(s) })
	eventually(t, 200, func() reply { return s.create(t, `{"id":1,"name":"Fern"}`) })
}
