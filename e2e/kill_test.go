package e2e

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"plantstore/client"
)

// TestKill kills the server at random moments while 64 clients create, replace and
// delete. What they were told must be so.
func TestKill(t *testing.T) { bothBuilds(t, testKill) }

func testKill(t *testing.T, program string) {
	kills, seed := times(20, 1000), rand.Uint64()
	t.Logf("%d kills, seed %#x", kills, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := startProgram(t, program, filepath.Join(t.TempDir(), "plants.db"))
	c := gather(t, 64, false, seed, s.client(client.Options{}))
	for range kills {
		c.await(random.Int64N(300))
		time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond)))) // any moment will do
		s.kill()
		s.run()
	}
	c.await(64)
	plants := c.verify(s.client(client.Options{}))
	for _, err := range c.errors() {
		t.Error(err)
	}
	s.stop()
	s.command("check")
	t.Logf("%d kills, %d writes acknowledged, %d plants looked at, longest call %v", kills, c.acknowledged.Load(), plants, c.longest())
}
