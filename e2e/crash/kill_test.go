package crash

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"plantstore/client"
	"plantstore/e2e/harness"
)

// killsPerStore is how many kills a store goes through before the next one begins
// empty.
const killsPerStore = 250

// The server is killed at random moments while 64 clients write.
func TestAcknowledgedWritesSurviveKills(t *testing.T) {
	harness.EachBuild(t, func(t *testing.T, program string) {
		for left := harness.Times(20, 10_000); left > 0; left -= killsPerStore {
			kill(t, program, min(left, killsPerStore))
		}
	})
}

// kill takes a new store through a number of kills under load.
func kill(t *testing.T, program string, kills int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("%d kills, seed %#x", kills, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := startProgram(t, program)
	w := harness.StartWorkload(t, 64, harness.AllWrites, seed, s.Client(client.Options{}))
	for range kills {
		w.AwaitAcked(random.Int64N(300))
		time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond)))) // any moment may be the last
		s.Kill()
		s.Run()
	}
	w.AwaitAcked(64)
	harness.Report(t, "%d kills, %s", kills, w.Finish(s.Client(client.Options{})))
	s.Stop()
	s.Command("check")
}

// startProgram runs a server of that program on a new store.
func startProgram(t *testing.T, program string) *harness.Server {
	t.Helper()
	s := harness.New(t, filepath.Join(t.TempDir(), "plants.db"))
	s.Program = program
	s.Run()
	return s
}

// A dozen clients compete for the same few plants while the server is killed.
func TestHistoriesWithKillsAreLinearizable(t *testing.T) {
	harness.EachBuild(t, func(t *testing.T, program string) {
		histories, seed := harness.Times(12, 600), rand.Uint64()
		t.Logf("%d histories, seed %#x", histories, seed)
		random := rand.New(rand.NewPCG(seed, 0))
		s := startProgram(t, program)
		var tally harness.Tally
		for n := range histories {
			h := &harness.History{
				Seed: seed, Number: n, Groups: 2, Workers: 12,
				Clients:           []*client.Client{s.Client(client.Options{Retries: -1})},
				FaultAfter:        1 + random.IntN(600),
				Fault:             func() { s.Kill(); s.Run() },
				FaultKillsServers: true,
			}
			h.Run(t, 60, &tally)
		}
		s.Stop()
		s.Command("check")
		harness.Report(t, "%v", &tally)
	})
}

// Only the files remain that docs/operations/run.md says are always there: the log has been
// checkpointed.
func TestShutdownUnderLoadRemovesTheLog(t *testing.T) {
	s := harness.Start(t)
	dir, base := filepath.Split(s.DB)
	harness.RestartUnderLoad(t, s, func() {
		var names []string
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			names = append(names, f.Name())
		}
		if want := []string{base, base + ".lock"}; !slices.Equal(names, want) {
			t.Errorf("the server left %q, want %q", names, want)
		}
	})
	s.Stop()
	s.Command("check")
}

// Nobody's increment is lost, and none counts twice, while the server is killed.
func TestConditionsCountExactlyAcrossKills(t *testing.T) {
	harness.EachBuild(t, func(t *testing.T, program string) {
		s := startProgram(t, program)
		clients := []*client.Client{s.Client(client.Options{Retries: -1})}
		harness.Count(t, clients, 64, harness.Times(10, 1000), func() { s.Kill(); s.Run() })
		s.Stop()
		s.Command("check")
	})
}
