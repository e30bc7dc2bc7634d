package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
)

// cutsPerStore is how many power cuts a store goes through before the next one
// begins empty.
const cutsPerStore = 10

// TestPowerCut cuts the power at random moments, also while the server starts, under
// clients that create, replace, delete and import, and under one that only imports.
// What they were told must be so.
func TestPowerCut(t *testing.T) {
	programs := []string{binary, restless(t)}
	for i := range times(2, 50) {
		for _, writers := range []int{32, 0} {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("%d writers, restless %t, seed %#x", writers, i%2 == 1, seed), func(t *testing.T) {
				c, err := cutPower(t, t, programs[i%2], writers, seed, client.Options{})
				if err != nil {
					t.Fatal(err)
				}
				for _, err := range c.errors() {
					t.Error(err)
				}
			})
		}
	}
}

// TestPowerCutIsSeen takes the fsyncs out of the server. The same test must find
// that something is lost.
func TestPowerCutIsSeen(t *testing.T) {
	careless := buildPatched(t, "internal/sqlite/sqlite.go", `"synchronous=FULL"`, `"synchronous=OFF"`)
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	w := &witness{TB: t}
	err := w.watch(func() error {
		_, err := cutPower(t, w, careless, 32, seed, client.Options{Patience: time.Second})
		return err
	})
	if err == nil && len(w.saw) == 0 {
		t.Fatalf("%d power cuts and no fsync, and nothing is missing", cutsPerStore)
	}
	t.Logf("seen: %.300v %.300q", err, w.saw)
}

// cutPower takes a store of its own through power cuts under load. It returns why
// the store did not come back, and tells judge what the crowd misses.
func cutPower(t *testing.T, judge testing.TB, program string, writers int, seed uint64, opts client.Options) (*crowd, error) {
	random := rand.New(rand.NewPCG(seed, 0))
	d := newDrive(t)
	s := &server{t: t, program: program, db: d.path("plants.db"), addr: "127.0.0.1:0"}
	t.Cleanup(s.stop)
	s.run()
	c := gather(judge, writers, false, seed, s.client(opts))
	bulk := newCarrier(c, s.client(opts))
	defer bulk.stop()
	for i := range cutsPerStore {
		if i%4 == 0 || writers == 0 {
			bulk.start()
		}
		if writers > 0 {
			c.await(random.Int64N(100))
			d.disk.cut(random.IntN(300), true)
		} else {
			// With nobody else about, the log is in the file after an import, and
			// starts over with the next one. That one takes more than 80 operations.
			bulk.stop()
			d.disk.cut(random.IntN(80), true)
			bulk.start()
		}
		s.endWithPower(d.disk)
		d.insert(d.disk.survivors(random))
		if random.IntN(3) == 0 {
			if err := cutStart(s, d, random); err != nil {
				return c, err
			}
		}
		files := d.disk.all()
		if _, err := s.tryCommand("check"); err != nil {
			return c, fmt.Errorf("after cut %d: %w", i+1, err)
		}
		d.insert(files) // which the check has mended
		if err := s.try(); err != nil {
			return c, fmt.Errorf("after cut %d: %w", i+1, err)
		}
	}
	if writers > 0 {
		c.await(int64(writers))
	}
	bulk.stop()
	plants := c.verify(s.client(client.Options{}))
	s.stop()
	if _, err := s.tryCommand("check"); err != nil {
		return c, err
	}
	t.Logf("%d cuts, %d writes acknowledged, %d plants looked at, longest call %v", cutsPerStore, c.acknowledged.Load(), plants, c.longest())
	return c, nil
}

// endWithPower waits for the cut and kills the server before it learns of it.
func (s *server) endWithPower(d *disk) {
	s.t.Helper()
	select {
	case <-d.dark:
	case <-time.After(time.Minute):
		d.release()
		s.t.Fatal("the server wrote nothing for a minute")
	}
	s.signal(syscall.SIGKILL)
	d.release()
	<-s.done
	s.cmd = nil
}

// cutStart cuts the power while the server starts, or soon after.
func cutStart(s *server, d *drive, random *rand.Rand) error {
	d.disk.cut(random.IntN(60), false)
	err := s.try()
	if err != nil && !d.disk.isDark() {
		return err
	}
	if err == nil {
		s.cmd.Process.Kill() // unless the cut has ended it
		<-s.done
		s.cmd = nil
	}
	d.insert(d.disk.survivors(random))
	return nil
}

// carrier is a member of a crowd that imports, enough at once for the log to be
// moved into the file.
type carrier struct {
	*writer
	wg sync.WaitGroup
}

// load is how many plants a carrier imports. Each counts as a page, and a checkpoint
// is due after 4096.
const load = 4200

// newCarrier adds a carrier to a crowd that has not stopped.
func newCarrier(c *crowd, with *client.Client) *carrier {
	w := &writer{crowd: c, client: with, first: plantstore.ID(len(c.writers)) << 32}
	c.writers = append(c.writers, w)
	return &carrier{writer: w}
}

// start begins another import after the last one has ended.
func (c *carrier) start() {
	c.wg.Wait()
	c.wg.Go(func() {
		if err := c.carry(); err != nil {
			c.errs = append(c.errs, err)
		}
	})
}

// stop waits until the import has ended.
func (c *carrier) stop() { c.wg.Wait() }

// carry imports plants. If that fails, each of them may be there or not.
func (c *carrier) carry() error {
	lines, from := new(strings.Builder), len(c.fates)
	for i := range load {
		plant := plantstore.Plant{ID: c.first + plantstore.ID(from+i), Name: fmt.Sprintf("%x carried", c.crowd.seed)}
		c.fates = append(c.fates, fate{unanswered: &plantstore.Write{Op: plantstore.Create, Plant: plant}})
		fmt.Fprintf(lines, "{\"id\":%d,\"name\":%q}\n", plant.ID, plant.Name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	report, err := c.client.ImportLines(ctx, strings.NewReader(lines.String()))
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	if report.Failed > 0 {
		return fmt.Errorf("import: %d lines were refused: %v", report.Failed, report.Errors)
	}
	for i := range load {
		c.fates[from+i] = fate{is: &c.fates[from+i].unanswered.Plant}
	}
	c.crowd.acknowledged.Add(load)
	return nil
}

// witness hears what a test complains of, and does not make it fail.
type witness struct {
	testing.TB
	saw []string
}

func (w *witness) Errorf(format string, args ...any) {
	w.saw = append(w.saw, fmt.Sprintf(format, args...))
}

func (w *witness) Fatalf(format string, args ...any) {
	w.Errorf(format, args...)
	panic(w)
}

// watch runs f until it ends or complains for the last time.
func (w *witness) watch(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil && r != w {
			panic(r)
		}
	}()
	return f()
}
