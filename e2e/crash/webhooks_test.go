package crash

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"plantstore/client"
	"plantstore/e2e/harness"
)

// A receiver fails at random while 64 clients write and the server is killed every few
// seconds.
func TestWebhooksMissNothing(t *testing.T) {
	kills, interval := harness.Times(4, 12), 2*time.Second
	if harness.Torture() {
		interval = 5 * time.Second
	}
	s := harness.New(t, filepath.Join(t.TempDir(), "plants.db"), "--webhook-allow", "127.0.0.0/8")
	s.Program = harness.Eager(t)
	s.Run()
	c := s.Client(client.Options{})
	r := harness.NewReceiver(t)
	r.Register(c)
	mirror := harness.MirrorByStream(t, s)
	w := harness.StartWorkload(t, 64, harness.AllWrites, rand.Uint64(), c)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for range kills {
		<-tick.C
		s.Kill()
		s.Run()
	}
	w.AwaitAcked(64)
	written := w.Finish(c)
	r.Recover()
	followed := harness.VerifyMirrors(t, c, int(w.Acked()), mirror)
	harness.Report(t, "%d kills, %s, %s, webhook: %s", kills, written, followed, r.Verify(mirror))
	// What is in flight, and what was delivered and not saved yet, is sent again.
	if got, most := r.Repeats(), kills*(16+256); got > most {
		t.Errorf("%d repeats after %d kills, want at most %d", got, kills, most)
	}
}
