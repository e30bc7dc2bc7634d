package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// holders are what keeps a snapshot open in the database of a contender, until stop is called.
var holders = []struct {
	name  string
	start func(b *bench, c *contender) (stop func(), err error)
}{
	{"held snapshot", holdSnapshot},
	{"pg_dump in a loop", dumpInALoop},
	{"slow exports", exportSlowly},
}

// measureHeld measures creates before start, and at the end of the time for which its snapshot
// stays open, with two webhooks and one follower.
func measureHeld(connections int, name string, start func(*bench, *contender) (func(), error)) func(*bench, *contender) error {
	return func(b *bench, c *contender) error {
		for range 2 {
			r := newReceiver(false)
			at, err := r.listen()
			if err != nil {
				return err
			}
			defer r.Close()
			text, err := b.plantstore(c, nil, "webhook", "create", "http://"+at+"/hook")
			if err != nil {
				return err
			}
			var hook struct{ ID string }
			if err := json.Unmarshal([]byte(text), &hook); err != nil {
				return err
			}
			defer b.plantstore(c, nil, "webhook", "delete", hook.ID)
		}
		following, err := follow(c)
		if err != nil {
			return err
		}
		defer following.Close()

		load := workload{fmt.Sprintf("creates, %d connections, %s", connections, name), "create", "sequential", connections}
		if _, err := b.send(c, load, 0, b.seconds); err != nil { // warms up
			return err
		}
		before, err := b.measure(c, load, 0, b.seconds)
		if err != nil {
			return err
		}
		dead, err := c.database.dead()
		if err != nil {
			return err
		}
		stop, err := start(b, c)
		if err != nil {
			return err
		}
		defer stop()
		began := time.Now()
		if _, err := b.send(c, load, 0, int(b.held.Seconds())-b.seconds); err != nil {
			return err
		}
		during, err := b.measure(c, load, 0, b.seconds)
		if err != nil {
			return err
		}
		b.note(c, load.name+", before", before.Rate, "creates/s")
		b.note(c, fmt.Sprintf("%s for %s", load.name, b.held), during.Rate, "creates/s")
		b.note(c, load.name+", of the rate before", during.Rate/before.Rate, "")
		b.note(c, load.name+", p99 before", before.P99/1000, "ms")
		b.note(c, load.name+", p99", during.P99/1000, "ms")
		now, err := c.database.dead()
		for table, n := range now {
			if more := n - dead[table]; more > 0 {
				b.note(c, load.name+", dead rows of "+table, float64(more)/time.Since(began).Seconds(), "a second")
			}
		}
		return err
	}
}

// holdSnapshot opens a transaction that has a snapshot and sleeps.
func holdSnapshot(b *bench, c *contender) (stop func(), err error) {
	holder := exec.Command("psql", c.database.arguments("-X", "-c",
		fmt.Sprintf("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_sleep(%f)", 2*b.held.Seconds()))...)
	if err := holder.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = holder.Process.Signal(syscall.SIGINT) // cancels the query, too
		_ = holder.Wait()
	}, nil
}

// dumpInALoop dumps the database, again and again.
func dumpInALoop(b *bench, c *contender) (stop func(), err error) {
	return again(func(ctx context.Context) error {
		return exec.CommandContext(ctx, "pg_dump", c.database.arguments("-f", os.DevNull)...).Run()
	}), nil
}

// exportSlowly exports all plants at 600 kB/s, again and again.
func exportSlowly(b *bench, c *contender) (stop func(), err error) {
	return again(func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.addrs[0]+"/plants", nil)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+c.token)
		r.Header.Set("Accept", "application/x-ndjson")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: export: %s", c.name, response.Status)
		}
		for {
			if _, err := io.CopyN(io.Discard, response.Body, 60_000); err != nil {
				return nil // the end, or the server closed it
			}
			time.Sleep(100 * time.Millisecond)
		}
	}), nil
}

// again calls a function until stop is called. A failure ends the benchmark: what it measures
// would not be true.
func again(do func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				log.Fatal(err)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// follow follows the events of a contender until what it returns is closed.
func follow(c *contender) (io.Closer, error) {
	r, err := http.NewRequest(http.MethodGet, "http://"+c.addrs[0]+"/events?after=latest", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Accept", "text/event-stream")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("%s: follow: %s", c.name, response.Status)
	}
	go io.Copy(io.Discard, response.Body)
	return response.Body, nil
}

// dead returns how many dead rows each table has.
func (db *postgres) dead() (map[string]int64, error) {
	text, err := db.query("SELECT relname || ' ' || n_dead_tup FROM pg_stat_user_tables", nil)
	if err != nil {
		return nil, err
	}
	tables := map[string]int64{}
	for line := range strings.Lines(text) {
		table, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		if tables[table], err = strconv.ParseInt(n, 10, 64); err != nil {
			return nil, err
		}
	}
	return tables, nil
}
