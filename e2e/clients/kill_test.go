package clients

import (
	"errors"
	"testing"

	"plantstore"
	goclient "plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// TestAnImportSurvivesAKilledServer kills the real server in the middle of an import.
// Lines that can be sent again are, and nothing is lost; others are an error that says
// what to do.
func TestAnImportSurvivesAKilledServer(t *testing.T) {
	for _, d := range drivers(t) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			// On a busy machine an import may be over before the server is killed. The next
			// one is longer.
			for plants := 200_000; !importSurvives(t, d, plants); plants *= 2 {
				t.Logf("an import of %d plants was over too early", plants)
				if plants > 2_000_000 {
					t.Fatal("no server was killed during an import")
				}
			}
		})
	}
}

// importSurvives kills a new server during each of two imports. It reports whether it came
// early enough.
func importSurvives(t *testing.T, d driver, plants int) bool {
	t.Helper()
	server := harness.Start(t)
	defer func() {
		if _, err := d.do(jobClose(server.API)); err != nil {
			t.Error(err)
		}
	}()
	job := job{URL: server.API, Token: token, Op: "importLines", Args: map[string]any{"count": float64(plants)}}

	got := importAndKill(t, server, d, job, 0)
	before := count(t, server)
	if before > plants-2 { // the next import waits for one more
		return false
	}
	if err := (&call{Error: &wantError{Text: "importing the same lines again is safe"}}).check(got); err != nil {
		t.Errorf("lines that cannot be sent again: %v", err)
	}

	job.Args["seekable"] = true
	got = importAndKill(t, server, d, job, before)
	value, _ := got.Value.(map[string]any)
	if got.Error != nil || value["failed"] != 0. {
		t.Fatalf("lines that can be sent again: got %s, %+v", render(got.Value), got.Error)
	}
	created, _ := value["created"].(float64)
	unchanged, _ := value["unchanged"].(float64)
	if created+unchanged != float64(plants) {
		t.Errorf("%v plants were created and %v unchanged, of %d", created, unchanged, plants)
	}
	if n := count(t, server); n != plants {
		t.Errorf("the store has %d plants, want %d", n, plants)
	}
	return int(unchanged) > before // if nothing was sent again, the ones before are unchanged
}

// importAndKill kills the server when the import has created the plant with an id, and
// starts it again.
func importAndKill(t *testing.T, server *harness.Server, d driver, j job, id int) outcome {
	t.Helper()
	done := make(chan outcome, 1)
	failed := make(chan error, 1)
	go func() {
		got, err := d.do(j)
		failed <- err
		done <- got
	}()
	c := server.Client(goclient.Options{})
	testenv.Eventually(t, func() error {
		_, err := c.Get(t.Context(), plantstore.ID(id+1))
		if err != nil && !errors.Is(err, plantstore.ErrNoPlant) {
			t.Fatal(err)
		}
		return err
	})
	server.Kill()
	c.CloseIdleConnections()
	server.Run()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	return <-done
}

func count(t *testing.T, server *harness.Server) (n int) {
	t.Helper()
	for _, err := range server.Client(goclient.Options{}).Export(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func jobClose(url string) job { return job{URL: url, Op: "close"} }
