package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// measureHeld measures creates before a transaction with a snapshot is opened in the database,
// and at the end of the time for which it stays open, with two webhooks and one follower.
func measureHeld(b *bench, c *contender) error {
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
	for _, connections := range []int{1, 4, 16, 64} {
		if err := b.measureHeldWith(c, connections); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) measureHeldWith(c *contender, connections int) error {
	load := workload{fmt.Sprintf("creates, %d connections, a snapshot is held", connections), "create", "sequential", connections}
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
	// It has a snapshot as long as it sleeps.
	holder := exec.Command("psql", "-X", "-h", "127.0.0.1", "-p", strconv.Itoa(c.database.port), "-U", "postgres",
		"-c", fmt.Sprintf("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_sleep(%f)", 2*b.held.Seconds()))
	if err := holder.Start(); err != nil {
		return err
	}
	defer func() {
		_ = holder.Process.Signal(syscall.SIGINT) // cancels the query, too
		_ = holder.Wait()
	}()
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
