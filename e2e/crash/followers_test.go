package crash

import (
	"math/rand/v2"
	"testing"
	"time"

	"plantstore/client"
	"plantstore/e2e/harness"
)

// Mirrors follow the log of changes while 64 clients write and the server is killed
// every few seconds. Every acknowledged write changes something, so it has one event.
func TestFollowersMissNothing(t *testing.T) {
	harness.EachBuild(t, func(t *testing.T, program string) {
		kills, interval := harness.Times(4, 20), 1500*time.Millisecond
		if harness.Torture() {
			interval = 3 * time.Second
		}
		s := startProgram(t, program)
		mirrors := []*harness.Mirror{harness.MirrorByStream(t, s), harness.MirrorByPolling(t, s)}
		c := s.Client(client.Options{})
		w := harness.StartWorkload(t, 64, harness.AllWrites, rand.Uint64(), c)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for i := range kills {
			<-tick.C
			if i == kills/2 {
				mirrors = append(mirrors, harness.MirrorFromExport(t, s))
			}
			s.Kill()
			s.Run()
		}
		w.AwaitAcked(64)
		written := w.Finish(c)
		harness.Report(t, "%d kills, %s, %s", kills, written, harness.VerifyMirrors(t, c, int(w.Acked()), mirrors...))
	})
}
