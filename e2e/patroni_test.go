//go:build linux

package e2e

import (
	"math/rand/v2"
	"os"
	"regexp"
	"testing"
	"time"

	"plantstore/client"
	"plantstore/internal/postgres/pgtest"
)

// TestPatroni kills the leader of a Patroni cluster, PostgreSQL and Patroni, while
// 64 clients create plants through two replicas. They wait, and see no error.
func TestPatroni(t *testing.T) {
	kills, seed := times(3, 10), rand.Uint64()
	cluster := pgtest.StartCluster(t, patroniSettings(t))
	a, b := startOn(t, cluster.URL()), startOn(t, cluster.URL())
	opts := client.Options{Retries: -1}
	clients := []*client.Client{a.client(opts), b.client(opts)}
	late := trickle(t, clients...)
	c := gather(t, 64, true, seed, clients...)
	for range kills {
		c.await(1000)
		leader := cluster.AwaitWhole(t)
		began := time.Now()
		leader.Kill(t)
		a.awaitReady(503)
		b.awaitReady(503)
		c.await(1000) // of the new leader: what the old one answered is less
		served := time.Since(began)
		a.awaitReady(200)
		b.awaitReady(200)
		leader.Restart(t)
		next := cluster.AwaitWhole(t)
		if next == leader {
			t.Errorf("%v was killed and leads", leader)
		}
		t.Logf("%v killed, %v leads: creates again after %v, whole after %v", leader, next, served, time.Since(began))
	}
	c.await(1000)
	visits := late()
	plants := c.verify(clients[1])
	for _, err := range c.errors() {
		t.Error(err)
	}
	t.Logf("%d leaders killed, %d creates acknowledged, %d plants looked at, %d visits, longest call %v",
		kills, c.acknowledged.Load(), plants, visits, c.longest())
}

// patroniSettings returns the configuration that the operator's page recommends.
func patroniSettings(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```yaml\n(ttl:.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/operations.md has no settings for Patroni")
	}
	return string(found[1])
}
