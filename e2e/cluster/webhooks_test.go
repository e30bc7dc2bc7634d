package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
)

// A receiver fails at random while 64 clients write through two servers, and the servers
// are killed in turn.
func TestWebhooksMissNothing(t *testing.T) {
	t.Parallel()
	kills, interval := harness.Times(4, 12), 2*time.Second
	if harness.Torture() {
		interval = 5 * time.Second
	}
	servers := startWithWebhooks(t, pgtest.Fresh(t))
	clients := []*client.Client{servers[0].Client(client.Options{}), servers[1].Client(client.Options{})}
	r := harness.NewReceiver(t)
	r.Register(clients[0])
	mirror := harness.MirrorByStream(t, servers[1])
	w := harness.StartWorkload(t, 64, harness.AllWrites, rand.Uint64(), clients...)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for i := range kills {
		<-tick.C
		servers[i%2].Kill()
		servers[i%2].Run()
	}
	w.AwaitAcked(64)
	written := w.Finish(clients[0])
	testenv.Eventually(t, func() error { // the lease of a killed server has to expire
		if got, want := r.Accepted(), min(2000, int(w.Acked())/2); got < want {
			return fmt.Errorf("%d events were accepted, want %d before it recovers", got, want)
		}
		return nil
	})
	r.Recover()
	followed := harness.VerifyMirrors(t, clients[0], int(w.Acked()), mirror)
	harness.Report(t, "%d kills, %s, %s, webhook: %s", kills, written, followed, r.Verify(mirror))
	if got, most := r.Repeats(), kills*(16+4096); got > most {
		t.Errorf("%d repeats after %d kills, want at most %d", got, kills, most)
	}
}

// The server that delivers for a webhook is killed for good. It is one of the two.
func TestWebhookIsTakenOver(t *testing.T) {
	t.Parallel()
	servers := startWithWebhooks(t, pgtest.Fresh(t))
	r := harness.NewReceiver(t)
	r.Register(servers[0].Client(client.Options{}))
	r.Recover()
	create := func(s *harness.Server, id plantstore.ID) {
		t.Helper()
		if err := s.Client(client.Options{}).Create(t.Context(), plantstore.Plant{ID: id, Name: "Fern"}); err != nil {
			t.Fatal(err)
		}
	}
	awaitAccepted := func(want int) time.Duration {
		t.Helper()
		start := time.Now()
		testenv.Eventually(t, func() error {
			if got := r.Accepted(); got < want {
				return fmt.Errorf("%d events were accepted, want %d", got, want)
			}
			return nil
		})
		return time.Since(start)
	}
	create(servers[0], 1)
	awaitAccepted(1)
	var longest time.Duration
	for i, killed := range servers {
		other := servers[1-i]
		killed.Kill()
		create(other, plantstore.ID(i+2))
		longest = max(longest, awaitAccepted(i+2))
		killed.Run()
	}
	harness.Report(t, "a webhook was taken over after %s", longest.Round(time.Millisecond))
	limit := 15 * time.Second
	if !harness.Torture() {
		limit = time.Minute // the machine may be busy
	}
	if longest > limit {
		t.Errorf("a webhook was taken over after %s, want within %s", longest, limit)
	}
}

// startWithWebhooks starts two servers on one new database.
func startWithWebhooks(t *testing.T, url string) [2]*harness.Server {
	t.Helper()
	program := harness.Eager(t)
	var servers [2]*harness.Server
	for i := range servers {
		servers[i] = harness.New(t, url, "--webhook-allow", "127.0.0.0/8")
		servers[i].Program = program
		servers[i].Run()
		servers[i].AwaitToken()
	}
	return servers
}
