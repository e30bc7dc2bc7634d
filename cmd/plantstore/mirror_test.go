package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/rules"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
	"plantstore/internal/testenv"
)

// mirrorOnce runs the command and returns its exit code and its output.
func mirrorOnce(ctx context.Context, from, to *servertest.Server, args ...string) (int, string) {
	return mirrorURLs(ctx, from.URL, to.URL, args...)
}

func mirrorURLs(ctx context.Context, from, to string, args ...string) (int, string) {
	var out bytes.Buffer
	code := run(ctx, append([]string{"mirror", "--from", from, "--to", to}, args...), streams{strings.NewReader(""), &out, &out})
	return code, out.String()
}

func startPair(t *testing.T) (from, to *servertest.Server) {
	t.Helper()
	from, to = servertest.Start(t, servertest.Options{}), servertest.Start(t, servertest.Options{})
	t.Setenv("PLANTSTORE_FROM_TOKEN", from.Token)
	t.Setenv("PLANTSTORE_TO_TOKEN", to.Token)
	return from, to
}

func TestMirrorMakesTheCopyExact(t *testing.T) {
	from, to := startPair(t)
	var old, copied []plantstore.Plant
	for i := range plantstore.ID(2500) {
		same := plantstore.Plant{ID: 3 * i, Name: "same"}
		old = append(old, same, plantstore.Plant{ID: 3*i + 1, Name: "new", Tag: plantstore.NewTag("x")})
		copied = append(copied, same, plantstore.Plant{ID: 3*i + 2, Name: "extra"})
		if i%2 == 0 {
			copied = append(copied, plantstore.Plant{ID: 3*i + 1, Name: "new"}) // without the tag
		}
	}
	from.Fill(t, old...)
	to.Fill(t, copied...)
	state := filepath.Join(t.TempDir(), "state.json")
	code, said := mirrorOnce(t.Context(), from, to, "--state", state, "--verify")
	if code != exitOK || !strings.Contains(said, "both stores have the same 5000 plants") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if got, want := to.Plants(t), from.Plants(t); !slices.Equal(got, want) {
		t.Errorf("the copy has %d plants, want %d", len(got), len(want))
	}

	// The state says where to resume. --verify finds what is not in the log.
	from.Fill(t, plantstore.Plant{ID: 0, Name: "replaced"})
	from.Clear(t)
	to.Fill(t, plantstore.Plant{ID: -1, Name: "stray"})
	code, said = mirrorOnce(t.Context(), from, to, "--state", state, "--verify")
	if code != exitFailure || strings.Contains(said, "compared,") || !strings.Contains(said, "plant -1 differs") || !strings.Contains(said, "1 of 1 plants differ") || !strings.Contains(said, "delete "+state+" and run") {
		t.Errorf("with a stray plant: exit code %d: %s", code, said)
	}

	// If the cursor is refused, the stores are compared again.
	rewrite(t, state, `"cursor":"`, `"cursor":"x`)
	code, said = mirrorOnce(t.Context(), from, to, "--state", state, "--verify")
	if code != exitOK || !strings.Contains(said, "comparing the stores again") || len(to.Plants(t)) != 0 {
		t.Errorf("with a refused cursor: exit code %d: %s", code, said)
	}

	code, said = mirrorOnce(t.Context(), to, from, "--state", state)
	if code != exitFailure || !strings.Contains(said, "use another file") {
		t.Errorf("with the state of another copy: exit code %d: %s", code, said)
	}
	if code, _ := mirrorOnce(t.Context(), from, to, "--follow", "--verify"); code != exitUsage {
		t.Errorf("--follow --verify: exit code %d", code)
	}
}

// rewrite replaces a text in the state file.
func rewrite(t *testing.T, state, old, replacement string) {
	t.Helper()
	text, err := os.ReadFile(state)
	if err != nil || !bytes.Contains(text, []byte(old)) {
		t.Fatalf("the state is %s, %v, without %s", text, err, old)
	}
	if err := os.WriteFile(state, bytes.Replace(text, []byte(old), []byte(replacement), 1), 0o600); err != nil {
		t.Fatal(err)
	}
}

// comparisonEnded reports whether the first comparison is in the state file.
func comparisonEnded(state string) bool {
	text, err := os.ReadFile(state)
	return err == nil && !bytes.Contains(text, []byte(`"cursor":""`))
}

func TestMirrorNoticesThatTheTargetIsAnotherStore(t *testing.T) {
	from, to := startPair(t)
	fern := plantstore.Plant{ID: 1, Name: "Fern"}
	from.Fill(t, fern)
	state := filepath.Join(t.TempDir(), "state.json")
	t.Setenv("PLANTSTORE_TO_TOKEN", to.NewToken(plantstore.ScopeRead, plantstore.ScopeWrite))
	if code, said := mirrorOnce(t.Context(), from, to, "--state", state); code != exitOK {
		t.Fatalf("exit code %d: %s", code, said)
	}
	if code, said := mirrorOnce(t.Context(), from, to, "--state", state); code != exitOK || strings.Contains(said, "compar") {
		t.Errorf("with the same store: exit code %d: %s", code, said)
	}

	restored := servertest.Start(t, servertest.Options{}) // from a backup without the plant
	t.Setenv("PLANTSTORE_TO_TOKEN", restored.NewToken(plantstore.ScopeRead, plantstore.ScopeWrite))
	rewrite(t, state, to.URL, restored.URL)
	for _, want := range []bool{true, false} {
		code, said := mirrorOnce(t.Context(), from, restored, "--state", state)
		if code != exitOK || strings.Contains(said, "the target has another store") != want || !slices.Equal(restored.Plants(t), []plantstore.Plant{fern}) {
			t.Errorf("with another store: exit code %d: %s", code, said)
		}
	}
}

func TestMirrorAcceptsAStateWithoutTheTargetsStore(t *testing.T) {
	from, to := startPair(t)
	state := filepath.Join(t.TempDir(), "state.json")
	if code, said := mirrorOnce(t.Context(), from, to, "--state", state); code != exitOK {
		t.Fatalf("exit code %d: %s", code, said)
	}
	rewrite(t, state, `,"to_store":`, `,"unknown":`)
	if code, said := mirrorOnce(t.Context(), from, to, "--state", state); code != exitOK || strings.Contains(said, "compar") {
		t.Errorf("exit code %d: %s", code, said)
	}
	rewrite(t, state, `,"to_store":`, `,"to_store":`) // it is known now
}

func TestMirrorRefusesACopyOntoItself(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	t.Setenv("PLANTSTORE_TOKEN", s.Token)
	for _, to := range []string{s.URL, s.URL + "/", strings.Replace(s.URL, "127.0.0.1", "localhost", 1)} {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		if code, said := mirrorURLs(ctx, s.URL, to, "--follow"); code != exitUsage {
			t.Errorf("from %s to %s: exit code %d: %s", s.URL, to, code, said)
		}
		cancel()
	}
}

func TestMirrorStateIsOfTheSameServersWithASlash(t *testing.T) {
	from, to := startPair(t)
	state := filepath.Join(t.TempDir(), "state.json")
	for _, slash := range []string{"", "/", ""} {
		if code, said := mirrorURLs(t.Context(), from.URL+slash, to.URL+slash, "--state", state); code != exitOK {
			t.Errorf("with %q: exit code %d: %s", slash, code, said)
		}
	}
}

func TestMirrorNeedsEventsOfTheSourceBeforeItCopies(t *testing.T) {
	from, to := startPair(t)
	from.Fill(t, plantstore.Plant{ID: 1, Name: "Fern"})
	t.Setenv("PLANTSTORE_FROM_TOKEN", from.NewToken(plantstore.ScopeRead))
	if code, said := mirrorOnce(t.Context(), from, to); code != exitFailure || !strings.Contains(said, "events:read") || len(to.Plants(t)) > 0 {
		t.Errorf("exit code %d: %s", code, said)
	}
}

func TestMirrorNeedsItsStateFileBeforeItCopies(t *testing.T) {
	from, to := startPair(t)
	from.Fill(t, plantstore.Plant{ID: 1, Name: "Fern"})
	state := filepath.Join(t.TempDir(), "missing", "state.json")
	want := "plantstore: cannot write the state file: open " + state + ": no such file or directory\n"
	for _, args := range [][]string{{"--state", state}, {"--state", state, "--follow"}} {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		if code, said := mirrorOnce(ctx, from, to, args...); code != exitFailure || said != want || len(to.Plants(t)) > 0 {
			t.Errorf("%v: exit code %d: got %q, want %q", args, code, said, want)
		}
		cancel()
	}
}

func TestMirrorWritesItsStateAgainIfThatFailed(t *testing.T) {
	from, to := startPair(t)
	dir := filepath.Join(t.TempDir(), "state")
	state := filepath.Join(dir, "state.json")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var said servertest.Log
	done := make(chan int)
	go func() {
		args := []string{"mirror", "--from", from.URL, "--to", to.URL, "--follow", "--state", state}
		done <- run(ctx, args, streams{strings.NewReader(""), &said, &said})
	}()
	waitFor := func(what string, holds func() bool) {
		t.Helper()
		testenv.Eventually(t, func() error {
			if !holds() {
				return fmt.Errorf("still waiting for %s: %s", what, &said)
			}
			return nil
		})
	}
	waitFor("the copy to end", func() bool { return comparisonEnded(state) })
	waitFor("the directory to go", func() bool { return os.RemoveAll(dir) == nil })
	from.Fill(t, plantstore.Plant{ID: 1, Name: "Fern"})
	waitFor("the failure to be reported", func() bool { return strings.Contains(said.String(), "cannot write the state file") })
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	waitFor("the state to be written again", func() bool { _, err := os.Stat(state); return err == nil })
	stop()
	if code := <-done; code != exitOK {
		t.Errorf("exit code %d: %s", code, &said)
	}
	if code, said := mirrorOnce(t.Context(), from, to, "--state", state, "--verify"); code != exitOK || strings.Contains(said, "compared,") {
		t.Errorf("exit code %d: %s", code, said)
	}
}

func TestMirrorSaysWhichServerFailed(t *testing.T) {
	from, to := startPair(t)
	from.Fill(t, plantstore.Plant{ID: 7, Name: "Fern"})
	for _, tt := range []struct{ variable, token, want string }{
		{"PLANTSTORE_FROM_TOKEN", from.NewToken(plantstore.ScopeEvents), "source " + from.URL + ": this needs the scope plants:read"},
		{"PLANTSTORE_FROM_TOKEN", from.NewToken(plantstore.ScopeRead), "source " + from.URL + ": this needs the scope events:read"},
		{"PLANTSTORE_TO_TOKEN", to.NewToken(plantstore.ScopeWrite), "target " + to.URL + ": this needs the scope plants:read"},
		{"PLANTSTORE_TO_TOKEN", to.NewToken(plantstore.ScopeRead), "target " + to.URL + ": plant 7: this needs the scope plants:write"},
	} {
		t.Setenv("PLANTSTORE_FROM_TOKEN", from.Token)
		t.Setenv("PLANTSTORE_TO_TOKEN", to.Token)
		t.Setenv(tt.variable, tt.token)
		if code, said := mirrorOnce(t.Context(), from, to); code != exitFailure || !strings.Contains(said, tt.want) {
			t.Errorf("exit code %d: %s, want %s", code, said, tt.want)
		}
	}
}

func TestMirrorThatIsKilledFollowsWriters(t *testing.T) {
	from, to := startPair(t)
	c := from.Client(client.Options{})
	var first []plantstore.Plant
	for id := range plantstore.ID(800) { // so that the first comparison takes a while
		first = append(first, plantstore.Plant{ID: -id, Name: "first"})
	}
	from.Fill(t, first...)
	state := filepath.Join(t.TempDir(), "state.json")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				p := plantstore.Plant{ID: plantstore.ID(rand.IntN(100)), Name: fmt.Sprint(w, " ", n)}
				if n%3 == 1 {
					p.ID = plantstore.ID(1000*n + w) // never written again, so a lost event shows
				}
				err := c.Replace(t.Context(), p, nil)
				if n%3 == 0 {
					err = c.Delete(t.Context(), p.ID, nil)
				}
				if err != nil && !errors.Is(err, plantstore.ErrNoPlant) {
					t.Error(err)
				}
			}
		})
	}
	followed := 0
	for lives := 1; followed < 5; lives++ { // longer and longer, for slow machines
		life, kill := context.WithTimeout(ctx, time.Duration(rand.IntN(50*lives))*time.Millisecond)
		if code, said := mirrorOnce(life, from, to, "--follow", "--state", state); code != exitOK {
			t.Errorf("exit code %d: %s", code, said)
		}
		kill()
		if comparisonEnded(state) {
			followed++
		}
	}
	stop()
	writers.Wait()
	code, said := mirrorOnce(t.Context(), from, to, "--state", state, "--verify")
	if code != exitOK || strings.Contains(said, "compared,") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if got, want := to.Plants(t), from.Plants(t); !slices.Equal(got, want) {
		t.Errorf("the copy has %v, want %v", got, want)
	}
}

// brokenLog is a store whose log of changes cannot be followed.
type brokenLog struct {
	*storetest.Model
	err error // of Events, or nil if there are events of an unknown type
}

func (l brokenLog) Events(ctx context.Context, q plantstore.EventQuery) (plantstore.EventPage, error) {
	if q.After == plantstore.LatestCursor {
		return l.Model.Events(ctx, q)
	}
	at := plantstore.Position{Store: "broken", Seq: 1}.Cursor()
	e := plantstore.Event{Cursor: at, Time: time.Now(), Type: "plant.eaten", Plant: plantstore.Plant{ID: 1, Name: "Fern"}}
	return plantstore.EventPage{Events: []plantstore.Event{e}, Next: at}, l.err
}

func TestMirrorOfALogThatCannotBeFollowedFails(t *testing.T) {
	for _, tt := range []struct {
		err  error
		args []string
		want string
	}{
		{rules.ErrorGone("it is trimmed"), nil, "after 3 comparisons: keep them longer with --log-keep"},
		{nil, nil, `unknown event type: use the same version of plantstore as the server: "plant.eaten"`},
		{nil, []string{"--follow"}, `"plant.eaten"`},
	} {
		from := servertest.Start(t, servertest.Options{Store: brokenLog{storetest.NewModel(), tt.err}})
		to := servertest.Start(t, servertest.Options{})
		t.Setenv("PLANTSTORE_FROM_TOKEN", from.Token)
		t.Setenv("PLANTSTORE_TO_TOKEN", to.Token)
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		code, said := mirrorOnce(ctx, from, to, tt.args...)
		cancel()
		if code != exitFailure || !strings.Contains(said, tt.want) || len(to.Plants(t)) > 0 {
			t.Errorf("%v: exit code %d: %s", tt.args, code, said)
		}
	}
}

func TestMirrorFollowsOneStream(t *testing.T) {
	var pages, streams atomic.Int64
	from := servertest.Start(t, servertest.Options{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/events" && r.Header.Get("Accept") == "text/event-stream" {
				streams.Add(1)
			} else if r.URL.Path == "/events" && r.URL.Query().Get("after") != "latest" {
				pages.Add(1)
			}
			h.ServeHTTP(w, r)
		})
	}})
	to := servertest.Start(t, servertest.Options{})
	t.Setenv("PLANTSTORE_FROM_TOKEN", from.Token)
	t.Setenv("PLANTSTORE_TO_TOKEN", to.Token)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan string)
	go func() { _, said := mirrorOnce(ctx, from, to, "--follow"); done <- said }()
	c := from.Client(client.Options{})
	deadline := time.Now().Add(timeout)
	for id := range plantstore.ID(20) {
		if err := c.Create(t.Context(), plantstore.Plant{ID: id, Name: "Fern"}); err != nil {
			t.Fatal(err)
		}
		for len(to.Plants(t)) <= int(id) && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
	}
	stop()
	said := <-done
	if !slices.Equal(to.Plants(t), from.Plants(t)) || pages.Load() > 0 || streams.Load() != 1 {
		t.Errorf("%d plants, %d pages, %d streams: %s", len(to.Plants(t)), pages.Load(), streams.Load(), said)
	}
}

func TestCountsAreNotShownAsBytes(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, verb: "compared", noun: "plant", bar: newBar(&out, -1, false), started: time.Now()}
	defer p.finish()
	p.update(5000, 5000)
	_ = p.bar.RenderBlank()
	if text := out.String(); !strings.Contains(text, "compared 5000 plants") || strings.Contains(text, "B") {
		t.Errorf("the bar is %q", text)
	}
}
