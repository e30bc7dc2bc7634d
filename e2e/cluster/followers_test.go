package cluster

import (
	"math/rand/v2"
	"testing"
	"time"

	"plantstore/client"
	"plantstore/e2e/harness"
)

// Mirrors follow the log of changes through two servers while 64 clients write through
// both, the servers are killed in turn, and the primary is killed and its synchronous
// standby promoted. Every acknowledged write changes something, so it has one event.
func TestFollowersMissNothing(t *testing.T) {
	t.Parallel()
	kills, interval := harness.Times(4, 20), 1500*time.Millisecond
	if harness.Torture() {
		interval = 3 * time.Second
	}
	primary, standby := startStandby(t)
	a, b, _ := startReplicas(t, readWriteURL(primary, standby))
	mirrors := []*harness.Mirror{harness.MirrorByStream(t, a), harness.MirrorByPolling(t, b)}
	clients := []*client.Client{a.Client(client.Options{}), b.Client(client.Options{})}
	w := harness.StartWorkload(t, 64, harness.AllWrites, rand.Uint64(), clients...)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for i := range kills {
		<-tick.C
		if i == kills/2 {
			primary.Kill(t)
			a.AwaitReady(503)
			b.AwaitReady(503)
			standby.Promote(t)
			mirrors = append(mirrors, harness.MirrorFromExport(t, b))
		}
		s := []*harness.Server{a, b}[i%2]
		s.Kill()
		s.Run()
	}
	w.AwaitAcked(64)
	written := w.Finish(clients[1])
	harness.Report(t, "%d kills, %s, %s", kills, written, harness.VerifyMirrors(t, clients[0], int(w.Acked()), mirrors...))
}
