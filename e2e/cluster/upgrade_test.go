package cluster

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
)

// A server of the release before goes on serving while a newer one migrates the database.
// What it acknowledged is there, and it acknowledges nothing afterwards.
func TestOlderReleaseIsFencedOff(t *testing.T) {
	t.Parallel()
	old := harness.New(t, pgtest.Start(t).URL())
	old.Program = harness.Earlier(t, harness.Before020)
	old.Run()
	old.AwaitToken()
	w := harness.StartWorkload(t, 16, harness.AllWrites, rand.Uint64(), old.Client(client.Options{
		Retries: -1, HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
	}))
	w.AwaitAcked(int64(harness.Times(1000, 100_000)))

	s := harness.StartOn(t, old.DB)
	s.AwaitReady(200)
	// An older release may still answer 404 for a plant that does not exist, so each request
	// has something to write.
	if status, body := s.Call(harness.Token, "POST", "/plants", `{"id":-1,"name":"early"}`); status != 200 {
		t.Fatalf("a create after the migration: %d %s", status, body)
	}
	for _, late := range []struct{ method, path, body string }{
		{"POST", "/plants", `{"id":-2,"name":"late"}`}, {"PUT", "/plants/-1", `{"id":-1,"name":"late"}`}, {"DELETE", "/plants/-1", ""},
	} {
		if status, body := old.Call(harness.Token, late.method, late.path, late.body); status < 500 {
			t.Errorf("%s %s of the older release after the migration: %d %s", late.method, late.path, status, body)
		}
	}
	if status, body := s.Call(harness.Token, "DELETE", "/plants/-1", ""); status != 204 {
		t.Errorf("the plant that the older release did not change: %d %s", status, body)
	}
	testenv.Eventually(t, func() error { // its cache of tokens expires
		if status, body := old.Call(harness.Token, "GET", "/plants", ""); status != 503 {
			return fmt.Errorf("a list of the older release: %d %s", status, body)
		}
		return nil
	})
	if len(w.Errors()) == 0 {
		t.Error("no write of the older release failed")
	}
	if !strings.Contains(s.Log(), "servers of earlier releases can no longer write") {
		t.Errorf("the newer release logged:\n%s", s.Log())
	}
	if got := s.Command("check"); got != "ok" {
		t.Errorf("check: %s", got)
	}
	harness.Report(t, "%s", w.Verify(s.Client(client.Options{})))
}

// A server meets a schema that it may not write to, while it runs and when it starts.
func TestServerThatMeetsANewerSchemaSaysWhy(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t)
	s := harness.StartOn(t, db.URL())
	s.AwaitReady(200)
	db.Exec(t, "BEGIN; UPDATE plantstore_schema SET version = 99; UPDATE log_state SET oldest_writer = 99; COMMIT")
	const why = "a newer Plantstore wrote this store: its schema is version 99, this release supports schemas up to "
	for _, request := range []struct{ method, path, body string }{
		{"POST", "/plants", `{"id":1,"name":"late"}`},
		{"GET", "/plants/1", ""},
		{"GET", "/plants", ""},
		{"POST", "/tokens", `{"name":"late","scopes":["plants:read"]}`},
		{"GET", "/readyz", ""},
	} {
		status, body := s.Call(harness.Token, request.method, request.path, request.body)
		if status != 503 || !strings.Contains(body, why) {
			t.Errorf("%s %s: %d %s", request.method, request.path, status, body)
		}
	}
	if n := pgtest.QueryInt(t, db.URL(), "SELECT count(*) FROM plants"); n != 0 {
		t.Errorf("%d plants were written", n)
	}
	s.Stop()
	if n := strings.Count(s.Log(), "this server refuses everything from now on"); n != 1 {
		t.Errorf("the server said %d times that it refuses everything:\n%s", n, s.Log())
	}
	if out, err := s.TryCommand("check"); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("check: %s, %v", out, err)
	}
	s.Run()
	<-s.Exited()
	if err := s.Wait(); err == nil || !strings.Contains(s.Log(), why) {
		t.Errorf("started again, it ended: %v; it logged:\n%s", err, s.Log())
	}
}
