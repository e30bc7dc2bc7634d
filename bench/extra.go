package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// imported is the number of plants in a measured import.
const imported = 1_000_000

// importSequential measures imports in order of id into an empty store, with few tags
// and with many.
func importSequential(b *bench, c *contender) error {
	if err := c.leaveOutIndex(); err != nil {
		return err
	}
	err := b.timeImports(c, "import, sequential ids", func(n int64) plant { return newPlant(n, n) })
	if err != nil {
		return err
	}
	return b.timeImports(c, "import, sequential ids, 1,000 tags", func(n int64) plant {
		p := newPlant(n, n)
		p.tag = fmt.Sprintf("tropical %d", scatter(uint64(n))%1000)
		return p
	})
}

// leaveOutIndex restarts a contender without the index for searches, which it would begin to build
// when it has a million plants. measureIndexCosts measures what the index costs.
func (c *contender) leaveOutIndex() error {
	if strings.Contains(c.name, " at ") { // an earlier commit may not have one
		return nil
	}
	return c.restart("--search-index", "off")
}

// measureLarge measures what depends on a large SQLite store.
func measureLarge(b *bench, c *contender) error {
	if c.backlog == nil {
		return nil
	}
	now, err := usageOf(c.processes...)
	if err != nil {
		return err
	}
	b.note(c, "memory after all workloads, large store", float64(now.memory)/1e6, "MB")
	random := func(n int64) plant { return newPlant(scatter(uint64(n)), n) }
	if err := b.timeImports(c, "import, random ids, large store", random); err != nil {
		return err
	}
	for range b.rounds {
		// The backlog is as large as it gets.
		if _, err := b.importMore(c, random); err != nil {
			return err
		}
		n, err := c.backlog()
		if err != nil {
			return err
		}
		b.note(c, "backlog at kill -9, large store", float64(n), "plants")
		took, err := timeRestart(c)
		if err != nil {
			return err
		}
		b.note(c, "ready after kill -9, large store", took.Seconds(), "s")
	}
	return nil
}

// note records a measurement of a contender.
func (b *bench) note(c *contender, name string, value float64, unit string) {
	if c.name != ours {
		name += " (" + c.name + ")"
	}
	b.facts = append(b.facts, fact{name, value, unit})
	fmt.Printf("%s: %.3g %s\n", name, value, unit)
}

// timeImports imports a million new plants in each round.
func (b *bench) timeImports(c *contender, name string, numbered func(int64) plant) error {
	for range b.rounds {
		began, err := b.importMore(c, numbered)
		if err != nil {
			return err
		}
		b.note(c, name, imported/time.Since(began).Seconds(), "plants/s")
		if _, err := c.drain(); err != nil {
			return err
		}
		b.note(c, name+", until the backlog is drained", imported/time.Since(began).Seconds(), "plants/s")
	}
	now, err := usageOf(c.processes...)
	if err != nil {
		return err
	}
	b.note(c, "memory after "+name, float64(now.memory)/1e6, "MB")
	return nil
}

// importMore imports a million new plants, and returns when that began.
func (b *bench) importMore(c *contender, numbered func(int64) plant) (began time.Time, err error) {
	path, err := b.writeImport(b.next, numbered)
	if err != nil {
		return began, err
	}
	b.next += imported
	began = time.Now()
	_, err = b.plantstore(c, nil, "import", path)
	c.acknowledged += imported
	return began, err
}

// writeImport writes a million plants to a file.
func (b *bench) writeImport(first int64, numbered func(int64) plant) (path string, err error) {
	path = filepath.Join(b.dir, "import.ndjson")
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	err = writeLines(file, func(yield func(plant) bool) {
		for n := first; n < first+imported; n++ {
			if !yield(numbered(n)) {
				return
			}
		}
	})
	return path, errors.Join(err, file.Close())
}

// importModes creates a million plants in order of id, replaces them and deletes them.
func importModes(b *bench, c *contender) error {
	if err := c.leaveOutIndex(); err != nil {
		return err
	}
	for range b.rounds {
		first := b.next
		b.next += imported
		created := 0.0
		for i, mode := range []string{"create", "replace", "delete"} {
			path, err := b.writeImport(first, func(n int64) plant { return newPlant(n, n+int64(i)) })
			if err != nil {
				return err
			}
			began := time.Now()
			if _, err := b.plantstore(c, nil, "import", "--mode", mode, path); err != nil {
				return err
			}
			if c.backlog != nil {
				if _, err := c.drain(); err != nil {
					return err
				}
			}
			rate := imported / time.Since(began).Seconds()
			b.note(c, "import, mode "+mode+", until the backlog is drained", rate, "plants/s")
			if i == 0 {
				created = rate
			} else {
				b.note(c, "import, mode "+mode+", of the rate of create", rate/created, "")
			}
		}
	}
	return nil
}

// timeRestart kills the server and returns how long it takes until it is ready again.
func timeRestart(c *contender) (time.Duration, error) {
	c.stop(syscall.SIGKILL)
	began := time.Now()
	if err := c.restart(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.addrs[0]+"/readyz", nil)
		if err != nil {
			return 0, err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return time.Since(began), nil
		}
	}
}
