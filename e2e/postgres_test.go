package e2e

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
	"plantstore/internal/postgres/pgtest"
)

// TestTwoReplicas has 64 clients create, replace and delete through two servers on
// one database, while rivals create the same ids through both.
func TestTwoReplicas(t *testing.T) {
	url, seed := pgtest.Fresh(t), rand.Uint64()
	a, b := startOn(t, url), startOn(t, url)
	opts := client.Options{Retries: -1}
	clients := []*client.Client{a.client(opts), b.client(opts)}
	c := gather(t, 64, false, seed, clients...)
	ids := times(50, 5000)
	for i := range ids {
		compete(t, plantstore.ID(-1-i), clients)
	}
	c.await(int64(times(5000, 500_000)))
	plants := c.verify(clients[1])
	for _, err := range c.errors() {
		t.Error(err)
	}
	t.Logf("%d writes acknowledged, %d plants looked at, %d ids fought for, longest call %v", c.acknowledged.Load(), plants, ids, c.longest())
}

// compete creates an id through all clients at once, under three names. One name
// must win: all who sent it succeed, and all others hear that the id is taken. The
// plant is removed again.
func compete(t *testing.T, id plantstore.ID, clients []*client.Client) {
	t.Helper()
	const rivals = 6
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plant := func(i int) plantstore.Plant {
		// Each name comes through each client, and two go through the same.
		return plantstore.Plant{ID: id, Name: fmt.Sprint("rival ", i%3)}
	}
	errs := make([]error, rivals)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range rivals {
		wg.Go(func() {
			<-begin
			errs[i] = clients[i%len(clients)].Create(ctx, plant(i))
		})
	}
	close(begin)
	wg.Wait()
	won, err := clients[0].Get(ctx, id)
	if err != nil {
		t.Fatalf("get what rivals created: %v", err)
	}
	winners := 0
	for i, err := range errs {
		switch {
		case plant(i) == won && err == nil:
			winners++
		case plant(i) != won && errors.Is(err, plantstore.ErrIDTaken):
		default:
			t.Errorf("%+v is there, and %+v got %v", won, plant(i), err)
		}
	}
	if winners != rivals/3 {
		t.Errorf("of those who sent %+v, %d succeeded, want %d", won, winners, rivals/3)
	}
	if err := clients[1].Delete(ctx, id, nil); err != nil {
		t.Errorf("delete what rivals created: %v", err)
	}
}

// trickle has a new caller come every 50 ms, until stop is called, which waits for
// them and returns how many came. Each creates a plant of its own, reads it and
// deletes it. A crowd does not come while there is no database: it waits in calls
// that began before.
func trickle(t *testing.T, clients ...*client.Client) (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	came := 0
	var callers sync.WaitGroup
	callers.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ; ctx.Err() == nil; came++ {
			plant := plantstore.Plant{ID: plantstore.ID(-1 - came), Name: "late"}
			c := clients[came%len(clients)]
			callers.Go(func() {
				if err := comeAndGo(c, plant); err != nil {
					t.Errorf("a caller who came at any time: %v", err)
				}
			})
			<-tick.C
		}
	})
	stop = func() int {
		cancel()
		callers.Wait()
		return came
	}
	t.Cleanup(func() { stop() })
	return stop
}

func comeAndGo(c *client.Client, plant plantstore.Plant) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := c.Create(ctx, plant); err != nil {
		return err
	}
	if got, err := c.Get(ctx, plant.ID); err != nil || got != plant {
		return fmt.Errorf("get %+v: %+v, %w", plant, got, err)
	}
	return c.Delete(ctx, plant.ID, nil)
}

// TestPostgresIsKilled kills and restarts the PostgreSQL of two replicas under
// load. Nobody may see an error: calls wait.
func TestPostgresIsKilled(t *testing.T) {
	kills, seed := times(4, 100), rand.Uint64()
	db := pgtest.Start(t)
	a, b := startOn(t, db.URL()), startOn(t, db.URL())
	opts := client.Options{Retries: -1}
	clients := []*client.Client{a.client(opts), b.client(opts)}
	late := trickle(t, clients...)
	c := gather(t, 64, false, seed, clients...)
	for range kills {
		c.await(500)
		db.Kill(t)
		a.awaitReady(503)
		b.awaitReady(503)
		db.Restart(t)
		a.awaitReady(200)
		b.awaitReady(200)
	}
	c.await(500)
	visits := late()
	plants := c.verify(clients[1])
	for _, err := range c.errors() {
		t.Error(err)
	}
	t.Logf("%d kills, %d writes acknowledged, %d plants looked at, %d visits, longest call %v",
		kills, c.acknowledged.Load(), plants, visits, c.longest())
}

// TestStandbyTakesOver kills a primary under load and promotes its synchronous
// standby.
func TestStandbyTakesOver(t *testing.T) {
	for range times(1, 20) {
		primary := pgtest.Start(t)
		standby := primary.Standby(t, "heir")
		primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'heir'")
		primary.Exec(t, "SELECT pg_reload_conf()")
		primary.Exec(t, "CHECKPOINT") // by the process that puts the setting into effect
		url := strings.Replace(primary.URL(), primary.Addr(), primary.Addr()+","+standby.Addr(), 1) + "&target_session_attrs=read-write"
		a, b := startOn(t, url), startOn(t, url)
		opts := client.Options{Retries: -1}
		clients := []*client.Client{a.client(opts), b.client(opts)}
		late := trickle(t, clients...)
		c := gather(t, 64, false, rand.Uint64(), clients...)
		c.await(2000)
		primary.Kill(t)
		a.awaitReady(503)
		standby.Promote(t)
		c.await(2000)
		a.awaitReady(200)
		b.awaitReady(200)
		visits := late()
		plants := c.verify(clients[1])
		for _, err := range c.errors() {
			t.Error(err)
		}
		t.Logf("%d writes acknowledged, %d plants looked at, %d visits, longest call %v", c.acknowledged.Load(), plants, visits, c.longest())
		a.stop()
		b.stop()
	}
}

// TestTenReplicasStartAtOnce starts them on an empty database. One of them makes
// the schema, and all can be used.
func TestTenReplicasStartAtOnce(t *testing.T) {
	for range times(2, 20) {
		db := pgtest.Start(t)
		replicas := make([]*server, 10)
		var wg sync.WaitGroup
		for i := range replicas {
			s := &server{t: t, db: db.URL(), addr: "127.0.0.1:0"}
			replicas[i] = s
			t.Cleanup(s.stop)
			wg.Go(func() { s.run() })
		}
		wg.Wait()
		for i, s := range replicas {
			s.awaitReady(200)
			body := fmt.Sprintf(`{"id":%d,"name":"fern"}`, i)
			if status, answer := s.call(bootstrap, "POST", "/plants", body); status != 200 {
				t.Errorf("create through replica %d: %d %s", i, status, answer)
			}
		}
		for i, s := range replicas {
			s.stop()
			for _, line := range complaints(t, s.log.String()) {
				t.Errorf("replica %d complains: %s", i, line)
			}
		}
		if tokens := strings.Count(replicas[0].command("token", "list"), "bootstrap"); tokens != 1 {
			t.Errorf("the ten made %d first tokens", tokens)
		}
		// They look for the table that keeps the version, and several may try to
		// make it. What comes after that is the business of one.
		for _, entry := range strings.Split(db.Log(t), "ERROR: ")[1:] {
			if !strings.Contains(entry, "plantstore_schema") {
				t.Errorf("PostgreSQL complains: %s", entry)
			}
		}
	}
}

// complaints returns the lines of a log that are warnings or worse.
func complaints(t *testing.T, log string) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(log) {
		var l struct{ Level string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("a line of the log is no JSON: %q", line)
		}
		if l.Level != "INFO" {
			found = append(found, line)
		}
	}
	return found
}

// TestPostgresIsAbsentAtStart starts a server before its database.
func TestPostgresIsAbsentAtStart(t *testing.T) {
	db := pgtest.Start(t)
	db.Kill(t)
	s := startOn(t, db.URL(), "--patience", "1s")
	s.awaitReady(503)
	until(t, "the log says that PostgreSQL is absent", func() bool {
		return strings.Contains(s.log.String(), "PostgreSQL is unavailable, retrying")
	})
	wantNotNow(s)
	db.Restart(t)
	s.awaitReady(200)
	const fern = `{"id":1,"name":"fern"}`
	// The first token comes a moment after the database.
	until(t, "a plant is created", func() bool {
		status, _ := s.call(bootstrap, "POST", "/plants", fern)
		return status == 200
	})
	db.Kill(t)
	wantNotNow(s)
	db.Restart(t)
	s.awaitReady(200)
	if status, answer := s.call(bootstrap, "GET", "/plants/1", ""); status != 200 || !strings.Contains(answer, "fern") {
		t.Errorf("get what was created before: %d %s", status, answer)
	}
}

// wantNotNow fails unless a create is answered with 503, and when to come back.
func wantNotNow(s *server) {
	s.t.Helper()
	req, err := http.NewRequest("POST", s.api+"/plants", strings.NewReader(`{"id":2,"name":"rose"}`))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bootstrap)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct{ Error int }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		s.t.Fatal(err)
	}
	if res.StatusCode != 503 || answer.Error != 50301 || res.Header.Get("Retry-After") == "" {
		s.t.Errorf("create without PostgreSQL: %d, error %d, Retry-After %q", res.StatusCode, answer.Error, res.Header.Get("Retry-After"))
	}
}

// TestRevocationReachesEveryReplica uses a token at two replicas, revokes it, and
// holds them to their promise: two seconds later it is refused.
func TestRevocationReachesEveryReplica(t *testing.T) {
	url := pgtest.Fresh(t)
	a, b := startOn(t, url), startOn(t, url)
	for i := range times(3, 30) {
		name := fmt.Sprint("caller ", i)
		token := a.command("token", "create", "--name", name)
		for _, s := range []*server{a, b} {
			if status, answer := s.call(token, "GET", "/plants", ""); status != 200 {
				t.Fatalf("a new token: %d %s", status, answer)
			}
		}
		a.command("token", "revoke", name)
		revoked := time.Now()
		var last time.Duration // since the revocation, of a call that was let through
		for refused := 0; refused < 2; {
			refused = 0
			for _, s := range []*server{a, b} {
				sent := time.Since(revoked)
				status, answer := s.call(token, "GET", "/plants", "")
				switch {
				case status == 401:
					refused++
				case status != 200:
					t.Fatalf("a revoked token: %d %s", status, answer)
				case sent > 2*time.Second:
					t.Fatalf("a token is let through %v after its revocation", sent)
				default:
					last = sent
				}
			}
		}
		t.Logf("last let through %v after the revocation", last)
	}
}
