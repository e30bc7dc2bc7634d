package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
)

// startReplicas runs two servers on the database, one near and one at a distance, which has
// several batches in flight, and returns them, with a client of each
// that does not retry. In the short form both wait longer than usual: Patroni alone takes
// 20 of the usual 30 seconds, and the machine may be busy.
func startReplicas(t *testing.T, db string) (a, b *harness.Server, clients []*client.Client) {
	t.Helper()
	var flags []string
	opts := client.Options{Retries: -1}
	if !harness.Torture() {
		flags = []string{"--store-timeout", "90s", "--write-timeout", "3m"}
		opts.HTTP = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	}
	a, b = harness.StartOn(t, db, flags...), harness.StartOn(t, pgtest.Distant(t, db, time.Millisecond), flags...)
	return a, b, []*client.Client{a.Client(opts), b.Client(opts)}
}

// startStandby starts a primary and its synchronous standby.
func startStandby(t *testing.T) (primary, standby *pgtest.Server) {
	t.Helper()
	primary = pgtest.Start(t)
	standby = primary.Standby(t, "standby1")
	primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'standby1'")
	primary.Exec(t, "SELECT pg_reload_conf()")
	primary.Exec(t, "CHECKPOINT") // by the process that puts the setting into effect
	return primary, standby
}

// readWriteURL returns a URL that finds which of the two accepts writes.
func readWriteURL(primary, standby *pgtest.Server) string {
	return strings.Replace(primary.URL(), primary.Addr(), primary.Addr()+","+standby.Addr(), 1) + "&target_session_attrs=read-write"
}

// startArrivals has a new client arrive every 50 ms, until stop is called, which returns
// how many did. Each creates a plant, reads it and deletes it. The writers of a workload
// do not arrive while the database is down: they wait in calls that began before.
func startArrivals(t *testing.T, clients ...*client.Client) (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ; ctx.Err() == nil; n++ {
			plant := plantstore.Plant{ID: plantstore.ID(-1 - n), Name: "arrival"}
			c := clients[n%len(clients)]
			wg.Go(func() {
				if err := createReadDelete(c, plant); err != nil {
					t.Errorf("a client that arrived at any time: %v", err)
				}
			})
			<-tick.C
		}
	})
	stop = func() int {
		cancel()
		wg.Wait()
		return n
	}
	t.Cleanup(func() { stop() })
	return stop
}

func createReadDelete(c *client.Client, plant plantstore.Plant) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := c.Create(ctx, plant); err != nil {
		return err
	}
	if got, err := c.Get(ctx, plant.ID); err != nil || got.Plant != plant {
		return fmt.Errorf("get %+v: %+v, %w", plant, got, err)
	}
	return c.Delete(ctx, plant.ID, nil)
}

// PostgreSQL is killed and restarted under load.
func TestCallsWaitWhilePostgresRestarts(t *testing.T) {
	t.Parallel()
	kills := harness.Times(4, 100)
	db := pgtest.Start(t)
	a, b, clients := startReplicas(t, db.URL())
	arrivals := startArrivals(t, clients...)
	w := harness.StartWorkload(t, 64, harness.AllWrites, rand.Uint64(), clients...)
	for range kills {
		w.AwaitAcked(500)
		db.Kill(t)
		a.AwaitReady(503)
		b.AwaitReady(503)
		db.Restart(t)
		a.AwaitReady(200)
		b.AwaitReady(200)
	}
	w.AwaitAcked(500)
	harness.Report(t, "%d kills, %d arrivals, %s", kills, arrivals(), w.Finish(clients[1]))
}

// The primary is killed under load, and its synchronous standby promoted.
func TestCallsWaitForThePromotionOfAStandby(t *testing.T) {
	t.Parallel()
	for range harness.Times(1, 20) {
		primary, standby := startStandby(t)
		a, b, clients := startReplicas(t, readWriteURL(primary, standby))
		arrivals := startArrivals(t, clients...)
		w := harness.StartWorkload(t, 64, harness.AllWrites, rand.Uint64(), clients...)
		w.AwaitAcked(2000)
		primary.Kill(t)
		a.AwaitReady(503)
		standby.Promote(t)
		w.AwaitAcked(2000)
		a.AwaitReady(200)
		b.AwaitReady(200)
		harness.Report(t, "%d arrivals, %s", arrivals(), w.Finish(clients[1]))
		a.Stop()
		b.Stop()
	}
}

// Clients compete for the same few plants while the primary is killed and its
// synchronous standby promoted. In every other history the primary loses the standby
// first, so that what it commits then is lost, and must not have been acknowledged.
func TestHistoriesWithFailoversAreLinearizable(t *testing.T) {
	t.Parallel()
	histories, seed := harness.Times(2, 30), rand.Uint64()
	t.Logf("%d histories, seed %#x", histories, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var tally harness.Tally
	for n := range histories {
		t.Run(fmt.Sprint("history ", n+1), func(t *testing.T) {
			primary, standby := startStandby(t)
			db := strings.Replace(primary.URL(), primary.Addr(), standby.Addr()+","+primary.Addr(), 1)
			a, b, clients := startReplicas(t, db)
			h := &harness.History{
				Seed: seed, Number: n, Groups: 6, Workers: 16, Clients: clients,
				FaultAfter: 1 + random.IntN(1000), CreatesMayRepeat: true,
			}
			h.Fault = func() {
				if n%2 == 0 {
					stopReplication(t, primary)
					h.AwaitAllWriting() // none of these writes can be acknowledged
				}
				primary.Kill(t)
				// What is left of it may serve for a moment, and must not once there is
				// another primary.
				a.AwaitReady(503)
				b.AwaitReady(503)
				standby.Promote(t)
			}
			h.Run(t, 150, &tally)
		})
	}
	harness.Report(t, "%v", &tally)
}

// stopReplication keeps the primary from sending anything to its standby.
func stopReplication(t *testing.T, primary *pgtest.Server) {
	t.Helper()
	sender, err := os.FindProcess(pgtest.QueryInt(t, primary.URL(), "SELECT pid FROM pg_stat_replication"))
	if err == nil {
		err = sender.Signal(syscall.SIGSTOP)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sender.Kill() }) // a stopped process outlives its server
}
