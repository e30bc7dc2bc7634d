package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// imported is the number of plants in a measured import.
const imported = 1_000_000

// importSequential measures imports in order of id into an empty store.
func importSequential(b *bench, c *contender) error {
	return b.timeImports(c, "import, sequential ids, empty store", func(n int64) int64 { return n })
}

// measureLarge measures what depends on a large store.
func measureLarge(b *bench, c *contender) error {
	now, err := usageOf(c.processes...)
	if err != nil {
		return err
	}
	b.note("memory after all workloads, large store", float64(now.memory)/1e6, "MB")
	err = b.timeImports(c, "import, random ids, large store", func(n int64) int64 { return scatter(uint64(n)) })
	if err != nil {
		return err
	}
	for range b.rounds {
		took, err := timeRestart(c)
		if err != nil {
			return err
		}
		b.note("ready after kill -9, large store", took.Seconds(), "s")
	}
	return nil
}

func (b *bench) note(name string, value float64, unit string) {
	b.facts = append(b.facts, fact{name, value, unit})
	fmt.Printf("%s: %.3g %s\n", name, value, unit)
}

// timeImports imports a million new plants in each round.
func (b *bench) timeImports(c *contender, name string, id func(int64) int64) error {
	for range b.rounds {
		first := b.next
		b.next += imported
		path := filepath.Join(b.dir, "import.ndjson")
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		err = writeLines(file, func(yield func(plant) bool) {
			for n := first; n < first+imported; n++ {
				if !yield(newPlant(id(n), n)) {
					return
				}
			}
		})
		if err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
		began := time.Now()
		if _, err := b.plantstore(c, nil, "import", path); err != nil {
			return err
		}
		b.note(name, imported/time.Since(began).Seconds(), "plants/s")
		c.acknowledged += imported
	}
	now, err := usageOf(c.processes...)
	if err != nil {
		return err
	}
	b.note("memory after "+name, float64(now.memory)/1e6, "MB")
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
