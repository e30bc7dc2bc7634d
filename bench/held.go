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

// heldConnections is how many connections create plants beside a snapshot that is held.
var heldConnections = []int{1, 4, 16, 64}

// measureHeld measures creates before start, and at the end of the time for which its snapshot
// stays open, with two webhooks and one follower.
func measureHeld(name string, start func(*bench, *contender) (func(), error)) func(*bench, *contender) error {
	return func(b *bench, c *contender) error {
		if err := c.leaveOutIndex(); err != nil {
			return err
		}
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

		load := func(connections int) workload {
			return workload{fmt.Sprintf("%s, creates, %d connections", name, connections), "create", "sequential", connections}
		}
		measureAll := func() (all []sample, err error) {
			for _, connections := range heldConnections {
				s, err := b.measure(c, load(connections), 0, b.seconds)
				if err != nil {
					return nil, err
				}
				all = append(all, s)
			}
			return all, nil
		}
		if _, err := b.send(c, load(16), 0, b.seconds); err != nil { // warms up
			return err
		}
		before, err := measureAll()
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
		if rest := int(b.held.Seconds()) - len(heldConnections)*b.seconds; rest > 0 {
			if _, err := b.send(c, load(16), 0, rest); err != nil {
				return err
			}
		}
		during, err := measureAll()
		if err != nil {
			return err
		}
		held := time.Since(began).Round(time.Second)
		now, err := c.database.dead()
		if err != nil {
			return err
		}
		for i, s := range during {
			b.note(c, s.Workload+", before", before[i].Rate, "creates/s")
			b.note(c, fmt.Sprintf("%s, at the end of %s", s.Workload, held), s.Rate, "creates/s")
			b.note(c, s.Workload+", of the rate before", s.Rate/before[i].Rate, "")
			b.note(c, s.Workload+", p99 before", before[i].P99/1000, "ms")
			b.note(c, s.Workload+", p99", s.P99/1000, "ms")
		}
		for table, n := range now {
			if more := n - dead[table]; more > 0 {
				b.note(c, name+", dead rows of "+table, float64(more)/held.Seconds(), "a second")
			}
		}
		return nil
	}
}

// holdSnapshot opens a transaction that has a snapshot and sleeps.
func holdSnapshot(b *bench, c *contender) (stop func(), err error) {
	holder := exec.Command("psql", c.database.arguments("-X", "-c",
		fmt.Sprintf("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_sleep(%f)", 2*b.held.Seconds()+600))...)
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
