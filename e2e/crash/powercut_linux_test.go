package crash

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// cutsPerStore is how many power cuts a store goes through before the next one begins
// empty.
func cutsPerStore() int { return harness.Times(10, 10) }

// The power is cut at random moments, even while the server starts, under clients that
// write and import, and under one that only imports.
func TestAcknowledgedWritesSurvivePowerCuts(t *testing.T) {
	builds := harness.Builds(t)
	for i := range harness.Times(2, 500) {
		for _, writers := range []int{32, 0} {
			build, seed := builds[i%len(builds)], rand.Uint64()
			t.Run(fmt.Sprintf("%d writers, %s, seed %#x", writers, build.Name, seed), func(t *testing.T) {
				w, err := cutPower(t, t, newDrive(t), build.Program, writers, seed, client.Options{})
				if err != nil {
					t.Fatal(err)
				}
				for _, err := range w.Errors() {
					t.Error(err)
				}
			})
		}
	}
}

// On a disk that does nothing on fsync, the same test must find that something is lost. A few
// cuts may lose nothing by chance, so several stores are tried.
func TestPowerCutsWithoutFsyncLoseWrites(t *testing.T) {
	const stores = 10
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	for i := range uint64(stores) {
		d := newDrive(t)
		d.unsafe = true
		d.insert(nil)
		r := &recorder{TB: t}
		err := r.run(func() error {
			_, err := cutPower(t, r, d, harness.Binary(), 32, seed+i, client.Options{RetryTimeout: time.Second})
			return err
		})
		if err != nil || len(r.failures) > 0 {
			t.Logf("found: %.300v %.300q", err, r.failures)
			return
		}
	}
	t.Fatalf("%d power cuts without fsync, and nothing is missing", stores*cutsPerStore())
}

// cutPower takes a new store through power cuts under load. It returns why the store
// could not be opened again. What is lost fails the test verdict.
func cutPower(t *testing.T, verdict testing.TB, d *drive, program string, writers int, seed uint64, opts client.Options) (*harness.Workload, error) {
	random := rand.New(rand.NewPCG(seed, 0))
	s := harness.New(t, d.path("plants.db"))
	s.Program = program
	s.Run()
	w := harness.StartWorkload(verdict, writers, harness.AllWrites, seed, s.Client(opts))
	imports := newImporter(w, s.Client(opts))
	defer imports.wait()
	for i := range cutsPerStore() {
		if i%4 == 0 || writers == 0 {
			imports.start()
		}
		if writers > 0 {
			w.AwaitAcked(random.Int64N(100))
			d.disk.cut(random.IntN(300), true)
		} else {
			// Without other writers, the log is checkpointed after an import and starts
			// over with the next one, which takes more than 80 operations.
			imports.wait()
			d.disk.cut(random.IntN(80), true)
			imports.start()
		}
		killAtCut(t, s, d.disk)
		d.insert(d.disk.survivors(random))
		if random.IntN(3) == 0 {
			if err := cutPowerAtStart(s, d, random); err != nil {
				return w, err
			}
		}
		files := d.disk.all()
		if _, err := s.TryCommand("check"); err != nil {
			return w, fmt.Errorf("after cut %d: %w", i+1, err)
		}
		d.insert(files) // the check has run the recovery, which is the server's to do
		if err := s.TryRun(); err != nil {
			return w, fmt.Errorf("after cut %d: %w", i+1, err)
		}
	}
	if writers > 0 {
		w.AwaitAcked(int64(writers))
	}
	imports.wait()
	summary := w.Verify(s.Client(client.Options{}))
	s.Stop()
	if _, err := s.TryCommand("check"); err != nil {
		return w, err
	}
	harness.Report(t, "%d cuts, %s", cutsPerStore(), summary)
	return w, nil
}

// killAtCut waits for the cut and kills the server before it notices.
func killAtCut(t *testing.T, s *harness.Server, d *disk) {
	t.Helper()
	select {
	case <-d.dark:
	case <-time.After(testenv.Timeout):
		d.release()
		t.Fatalf("the server wrote nothing for %v", testenv.Timeout)
	}
	if err := s.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	d.release()
	_ = s.Wait() // it was killed
}

// cutPowerAtStart cuts the power while the server starts, or soon after.
func cutPowerAtStart(s *harness.Server, d *drive, random *rand.Rand) error {
	d.disk.cut(random.IntN(60), false)
	err := s.TryRun()
	if err != nil && !d.disk.isDark() {
		return err
	}
	if err == nil {
		_ = s.Signal(syscall.SIGKILL) // unless the cut has ended it
		_ = s.Wait()
	}
	d.insert(d.disk.survivors(random))
	return nil
}

// recorder keeps the failures of a test that is meant to fail.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

// run runs f until it ends or calls Fatalf.
func (r *recorder) run(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil && p != r {
			panic(p)
		}
	}()
	return f()
}
