package cluster

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
)

// The leader of a Patroni cluster is killed, PostgreSQL and Patroni, while 64 clients
// create plants through two replicas and mirrors follow them.
func TestCallsWaitForAPatroniFailover(t *testing.T) {
	t.Parallel()
	kills := harness.Times(2, 10)
	cluster := pgtest.StartCluster(t, patroniSettings(t))
	a, b, clients := startReplicas(t, cluster.URL())
	mirrors := []*harness.Mirror{harness.MirrorByStream(t, a), harness.MirrorByPolling(t, b)}
	arrivals := startArrivals(t, clients...)
	w := harness.StartWorkload(t, 64, harness.Creates, rand.Uint64(), clients...)
	for range kills {
		w.AwaitAcked(1000)
		leader := cluster.AwaitWhole(t)
		began := time.Now()
		leader.Kill(t)
		a.AwaitReady(503)
		b.AwaitReady(503)
		w.AwaitAcked(1000) // by the new leader: there are only 64 writers
		served := time.Since(began)
		a.AwaitReady(200)
		b.AwaitReady(200)
		leader.Restart(t)
		next := cluster.AwaitWhole(t)
		if next == leader {
			t.Errorf("%v was killed and leads", leader)
		}
		harness.Report(t, "%v killed, %v leads: creates served after %v, all members back after %v", leader, next, served, time.Since(began))
	}
	w.AwaitAcked(1000)
	arrived, written := arrivals(), w.Finish(clients[1])
	events := int(w.Acked()) + 2*arrived // each creates and deletes a plant
	harness.Report(t, "%d leaders killed, %d arrivals, %s, %s", kills, arrived, written, harness.VerifyMirrors(t, clients[0], events, mirrors...))
}

// patroniSettings returns the configuration that docs/operations/postgresql.md recommends.
func patroniSettings(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(harness.Root, "docs/operations/postgresql.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```yaml\n(ttl:.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/operations/postgresql.md has no settings for Patroni")
	}
	return string(found[1])
}
