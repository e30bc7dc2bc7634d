//go:build torture

package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// litestream is Litestream, which copies a store to a folder. It has the configuration of
// docs/operations/backup.md.
type litestream struct {
	t       testing.TB
	program string
	db      string
	replica string // the folder
	config  string // a file, as is the log
	log     string
	cmd     *exec.Cmd // nil while it does not run
}

// newLitestream builds Litestream, which stops when the test ends.
func newLitestream(t testing.TB, db string) *litestream {
	t.Helper()
	build := exec.Command("go", "-C", "../tools/litestream", "tool", "-n", "litestream")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	program, err := build.Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l := &litestream{
		t: t, program: strings.TrimSpace(string(program)), db: db,
		replica: filepath.Join(dir, "replica"), config: filepath.Join(dir, "litestream.yml"), log: filepath.Join(dir, "log"),
	}
	page, err := os.ReadFile("../../docs/operations/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile("(?s)```yaml\n(dbs:.*?)```").FindSubmatch(page)
	if documented == nil {
		t.Fatal("the documentation has no configuration of Litestream")
	}
	config := string(documented[1])
	for there, here := range map[string]string{
		"path: /var/lib/plantstore/plants.db": "path: " + db,
		"url: s3://bucket/plants":             "url: file://" + l.replica,
	} {
		if strings.Count(config, there) != 1 {
			t.Fatalf("the documented configuration lacks %s:\n%s", there, config)
		}
		config = strings.Replace(config, there, here, 1)
	}
	if err := os.WriteFile(l.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Stop()
		if t.Failed() {
			t.Logf("Litestream logged:\n%s", l.logged())
		}
	})
	return l
}

// Start runs Litestream and waits until it copies what is being written.
func (l *litestream) Start() {
	l.t.Helper()
	log, err := os.Create(l.log)
	if err != nil {
		l.t.Fatal(err)
	}
	defer log.Close()
	before := l.newest()
	l.cmd = exec.Command(l.program, "replicate", "-config", l.config)
	l.cmd.Stdout, l.cmd.Stderr = log, log
	if err := l.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	testenv.Eventually(l.t, func() error {
		if l.newest() == before {
			return errors.New("Litestream has copied nothing")
		}
		return nil
	})
}

// newest returns the name of the newest file of the copy, or "" if there is none.
func (l *litestream) newest() string {
	files, err := filepath.Glob(filepath.Join(l.replica, "ltx", "0", "*"))
	if err != nil {
		l.t.Fatal(err)
	}
	return slices.Max(append(files, ""))
}

func (l *litestream) logged() string {
	text, err := os.ReadFile(l.log)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(text)
}

// Stop has Litestream copy the rest, and end, if it runs.
func (l *litestream) Stop() {
	l.t.Helper()
	if l.cmd == nil {
		return
	}
	if err := errors.Join(l.cmd.Process.Signal(syscall.SIGTERM), l.cmd.Wait()); err != nil {
		l.t.Errorf("Litestream: %v", err)
	}
	l.cmd = nil
}

// Restore restores the copy in the documented way, and serves it.
func (l *litestream) Restore() *harness.Server {
	l.t.Helper()
	dir := l.t.TempDir()
	copied := filepath.Join(dir, "copy.db")
	out, err := exec.Command(l.program, "restore", "-config", l.config, "-o", copied, l.db).CombinedOutput()
	if err != nil {
		l.t.Fatalf("litestream restore: %v\n%s", err, out)
	}
	s := harness.New(l.t, filepath.Join(dir, "plants.db"))
	s.Command("restore", copied)
	s.Run()
	return s
}

// Five clients write while the server is killed, after which Litestream is restarted with it, and
// Litestream stops for a while. A copy has the
// first plants that each of them has created, soon all that were acknowledged, and in the end
// exactly those.
func TestLitestreamCopiesWhatWasAcknowledged(t *testing.T) {
	s := harness.Start(t)
	copies := newLitestream(t, s.DB)
	w := harness.StartWorkload(t, 5, harness.Creates, rand.Uint64(), s.Client(client.Options{}))
	copies.Start()
	const some = 5000
	var behind time.Duration // at most, in the worst of the rounds
	for range 10 {
		w.AwaitAcked(some)
		s.Kill()
		copies.Stop()
		s.Run()
		copies.Start()
		w.AwaitAcked(some)
		acked, then := w.Acked(), time.Now()
		testenv.Eventually(t, func() error {
			asked := time.Now()
			restored := copies.Restore()
			defer restored.Stop()
			if copied := countFirst(t, w, restored.Client(client.Options{})); copied < acked {
				return fmt.Errorf("the copy has %d of %d plants", copied, acked)
			}
			behind = max(behind, asked.Sub(then))
			return nil
		})
	}
	watched := walSize(t, s)

	copies.Stop()
	missed := w.Acked()
	w.AwaitAcked(100_000) // the write-ahead log starts over, again and again
	missed = w.Acked() - missed
	copies.Start()
	w.AwaitAcked(some)
	w.Stop()
	copies.Stop()
	restored := copies.Restore()
	if problems := restored.Command("check"); problems != "ok" {
		t.Errorf("check of what Litestream restored: %s", problems)
	}
	harness.Report(t, "while writing at most %v behind, with a write-ahead log of %d KiB; %d plants were created while Litestream did not run; %s",
		behind, watched>>10, missed, w.Finish(restored.Client(client.Options{})))
}

// countFirst returns how many plants a store has, and checks that they are the first that each
// writer has created.
func countFirst(t *testing.T, w *harness.Workload, store *client.Client) (plants int64) {
	t.Helper()
	next := make([]plantstore.ID, len(w.Writers))
	for got, err := range store.Export(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		i := got.ID >> 32
		if want := w.Writers[i].First + next[i]; got.ID != want || got.Name != fmt.Sprintf("%x written %d", w.Seed, next[i]) {
			t.Fatalf("the copy has %+v, want plant %d", got, want)
		}
		next[i]++
		plants++
	}
	return plants
}

// walSize returns how long the write-ahead log has been: its file does not become shorter.
func walSize(t *testing.T, s *harness.Server) int64 {
	t.Helper()
	info, err := os.Stat(s.DB + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
