package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
)

// 64 clients write through two servers on one database, while others compete for the
// same ids through both.
func TestReplicasAgree(t *testing.T) {
	t.Parallel()
	_, _, clients := startReplicas(t, pgtest.Fresh(t))
	w := harness.StartWorkload(t, 64, harness.AllWrites, rand.Uint64(), clients...)
	ids := harness.Times(50, 5000)
	for i := range ids {
		compete(t, plantstore.ID(-1-i), clients)
	}
	w.AwaitAcked(int64(harness.Times(5000, 500_000)))
	harness.Report(t, "%d contested ids, %s", ids, w.Finish(clients[1]))
}

// Nobody's increment is lost, and none counts twice, while one server after the other is killed.
func TestConditionsCountExactlyOnReplicas(t *testing.T) {
	t.Parallel()
	a, b, clients := startReplicas(t, pgtest.Fresh(t))
	servers, n := []*harness.Server{a, b}, 0
	harness.Count(t, clients, 64, harness.Times(6, 600), func() {
		s := servers[n%len(servers)]
		n++
		s.Kill()
		s.Run()
	})
}

// compete creates an id through all clients at once, under three names. One name must
// win: all clients that sent it succeed, and all others get ErrIDTaken. The plant is
// deleted again.
func compete(t *testing.T, id plantstore.ID, clients []*client.Client) {
	t.Helper()
	const competitors = 6
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	plant := func(i int) plantstore.Plant {
		// Each name is sent through each client.
		return plantstore.Plant{ID: id, Name: fmt.Sprint("name ", i%3)}
	}
	errs := make([]error, competitors)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range competitors {
		wg.Go(func() {
			<-begin
			errs[i] = clients[i%len(clients)].Create(ctx, plant(i))
		})
	}
	close(begin)
	wg.Wait()
	won, err := clients[0].Get(ctx, id)
	if err != nil {
		t.Fatalf("get the contested plant: %v", err)
	}
	winners := 0
	for i, err := range errs {
		switch {
		case plant(i) == won.Plant && err == nil:
			winners++
		case plant(i) != won.Plant && errors.Is(err, plantstore.ErrIDTaken):
		default:
			t.Errorf("the store has %+v, and the create of %+v got %v", won, plant(i), err)
		}
	}
	if winners != competitors/3 {
		t.Errorf("%d creates of %+v succeeded, want %d", winners, won, competitors/3)
	}
	if err := clients[1].Delete(ctx, id, nil); err != nil {
		t.Errorf("delete the contested plant: %v", err)
	}
}

// Ten replicas start at once on an empty database. One of them creates the schema, and
// all can be used.
func TestOneOfManyReplicasCreatesTheSchema(t *testing.T) {
	t.Parallel()
	for range harness.Times(2, 20) {
		db := pgtest.Start(t)
		replicas := make([]*harness.Server, 10)
		for i := range replicas {
			// A connection that takes longer than usual would be worth a warning.
			replicas[i] = harness.New(t, db.URL()+"&connect_timeout=60")
		}
		harness.Parallel(t, len(replicas), func(i int) error { return replicas[i].TryRun() })
		if t.Failed() {
			return
		}
		for i, s := range replicas {
			s.AwaitReady(200)
			s.AwaitToken()
			if status, body := s.Call(harness.Token, "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"fern"}`, i)); status != 200 {
				t.Errorf("create through replica %d: %d %s", i, status, body)
			}
		}
		// All look for the table of the version, and several may try to create it. What
		// follows is done by one. A replica that waits for it for two seconds starts to serve
		// and tries again.
		for _, entry := range strings.Split(db.Log(t), "ERROR: ")[1:] {
			if !strings.Contains(entry, "plantstore_schema") && !strings.Contains(entry, "canceling statement due to user request") {
				t.Errorf("PostgreSQL logged: %s", entry)
			}
		}
		for i, s := range replicas {
			s.Stop()
			for _, line := range warnings(t, s.Log()) {
				t.Errorf("replica %d logged: %s", i, line)
			}
		}
		if tokens := strings.Count(replicas[0].Command("token", "list"), "bootstrap"); tokens != 1 {
			t.Errorf("there are %d first tokens", tokens)
		}
	}
}

// warnings returns the lines of a log above the level INFO.
func warnings(t *testing.T, log string) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(log) {
		var l struct{ Level string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("a line of the log is not JSON: %q", line)
		}
		if l.Level != "INFO" {
			found = append(found, line)
		}
	}
	return found
}

func TestServerStartsBeforePostgres(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t)
	db.Kill(t)
	s := harness.StartOn(t, db.URL(), "--store-timeout", "1s")
	s.AwaitReady(503)
	testenv.Eventually(t, func() error {
		if !strings.Contains(s.Log(), "PostgreSQL is unavailable, retrying") {
			return fmt.Errorf("the log does not say that PostgreSQL is down: %s", s.Log())
		}
		return nil
	})
	wantUnavailable(t, s)
	db.Restart(t)
	s.AwaitReady(200)
	// The first token is created a moment after the database is reached.
	testenv.Eventually(t, func() error {
		if status, body := s.Call(harness.Token, "POST", "/plants", `{"id":1,"name":"fern"}`); status != 200 {
			return fmt.Errorf("create: %d %s", status, body)
		}
		return nil
	})
	db.Kill(t)
	wantUnavailable(t, s)
	db.Restart(t)
	s.AwaitReady(200)
	testenv.Eventually(t, func() error { // its timeout is a second
		if status, body := s.Call(harness.Token, "GET", "/plants/1", ""); status != 200 || !strings.Contains(body, "fern") {
			return fmt.Errorf("get what was created before: %d %s", status, body)
		}
		return nil
	})
}

// wantUnavailable fails unless a create returns 503 and Retry-After.
func wantUnavailable(t *testing.T, s *harness.Server) {
	t.Helper()
	res, err := harness.Send(http.DefaultClient, harness.Token, "POST", s.API+"/plants", `{"id":2,"name":"rose"}`)
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != 503 || !strings.Contains(res.Body, "50301") || res.Header.Get("Retry-After") == "" {
		t.Errorf("create without PostgreSQL: %d %v %s", res.Status, res.Header, res.Body)
	}
}

// PostgreSQL counts the sessions whose client vanished.
func TestShutdownClosesItsSessions(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t).URL()
	harness.RestartUnderLoad(t, harness.StartOn(t, db), func() {
		testenv.Eventually(t, func() error {
			if n := pgtest.QueryInt(t, db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plantstore'"); n > 0 {
				return fmt.Errorf("%d sessions of the server are still open", n)
			}
			return nil
		})
		if n := pgtest.QueryInt(t, db, "SELECT sessions_abandoned FROM pg_stat_database WHERE datname = current_database()"); n > 0 {
			t.Errorf("%d sessions were abandoned", n)
		}
	})
}
