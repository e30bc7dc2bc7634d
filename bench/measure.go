package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sample is one measurement. Latencies are in microseconds.
type sample struct {
	Workload     string  `json:"workload"`
	Contender    string  `json:"contender"`
	Preloaded    int     `json:"preloaded"`
	Round        int     `json:"round"`
	Rate         float64 `json:"per_second"`
	Reference    float64 `json:"reference_per_second"`
	Ratio        float64 `json:"ratio"`
	P50          float64 `json:"p50"`
	P99          float64 `json:"p99"`
	Max          float64 `json:"max"`
	ReferenceP50 float64 `json:"reference_p50"`
	Sync         float64 `json:"fdatasync_p50"`
	CPU          float64 `json:"cpu_seconds_per_million"`
	Written      float64 `json:"bytes_written_per_request"`
	Memory       int64   `json:"memory"`
	// Backlog is how many plants had not reached their table at the end. Drain is how
	// many seconds that took afterwards, and DrainedCPU is CPU with it.
	Backlog    int64   `json:"backlog"`
	Drain      float64 `json:"drain_seconds"`
	DrainedCPU float64 `json:"drained_cpu_seconds_per_million"`
	Noise      noise   `json:"noise"`
}

// A measurement on a busy machine is repeated until retryTimeout, with pauses of
// retryPause.
const (
	retryTimeout = 10 * time.Minute
	retryPause   = 5 * time.Second
)

// measure measures until the machine was not busy with anything else.
func (b *bench) measure(c *contender, w workload, preloaded, seconds int) (sample, error) {
	for began := time.Now(); ; time.Sleep(retryPause) {
		s, err := b.send(c, w, preloaded, seconds)
		if err != nil || b.noisy || !s.Noise.isTooHigh() {
			return s, err
		}
		if time.Since(began) > retryTimeout {
			return sample{}, fmt.Errorf("the machine is too busy to measure %s (%s): nothing is reported", c.name, s.Noise)
		}
		fmt.Printf("     %s: measuring again, %s\n", c.name, s.Noise)
	}
}

// loadResult is what load.lua prints at the end.
type loadResult struct {
	Requests, Micros, Errors int64
	P50, P99, Max            float64
}

// send sends the workload for this many seconds. A response without success makes
// the run invalid.
func (b *bench) send(c *contender, w workload, preloaded, seconds int) (sample, error) {
	syscall.Sync() // do not count what others have written before
	written0 := diskWritten(b.dir)
	usage0, err := usageOf(c.processes...)
	if err != nil {
		return sample{}, err
	}
	clock0, err := readClock()
	if err != nil {
		return sample{}, err
	}
	self0 := selfTime()
	total, load, err := b.sendAll(c, w, preloaded, seconds)
	if err != nil {
		return sample{}, err
	}
	clock1, err := readClock()
	if err != nil {
		return sample{}, err
	}
	usage1, err := usageOf(c.processes...)
	if err != nil {
		return sample{}, err
	}
	spent := usage1.minus(usage0)
	if (w.work == "create" || w.work == "paced") && c.stores() {
		c.acknowledged += total.Requests
		c.maybeStored += int64(max(w.connections, len(c.addrs))) // each server gets at least one connection
	}
	if w.work == "mixed" && c.stores() {
		// wrk does not report how many of the responses were to creates.
		c.maybeStored += total.Requests
	}
	requests := float64(total.Requests)
	s := sample{
		Workload: w.name, Contender: c.name, Preloaded: preloaded,
		Rate: requests / (float64(total.Micros) / 1e6),
		P50:  total.P50, P99: total.P99, Max: total.Max,
		CPU:     spent.cpu.Seconds() / requests * 1e6,
		Written: float64(diskWritten(b.dir)-written0) / requests,
		Memory:  spent.memory,
		Noise:   noiseBetween(clock0, clock1, spent.cpu+load+selfTime()-self0),
	}
	s.DrainedCPU = s.CPU
	if c.backlog == nil || w.work != "create" {
		return s, nil
	}
	if s.Backlog, err = c.backlog(); err != nil {
		return s, err
	}
	drain, err := c.drain()
	if err != nil {
		return s, err
	}
	usage2, err := usageOf(c.processes...)
	s.Drain, s.DrainedCPU = drain.Seconds(), usage2.minus(usage0).cpu.Seconds()/requests*1e6
	return s, err
}

// drainTimeout is how long a server may take to bring its table up to date when it has
// nothing else to do.
const drainTimeout = 10 * time.Minute

// drain waits until every plant has reached its table, and returns how long that took.
func (c *contender) drain() (time.Duration, error) {
	began := time.Now()
	for time.Since(began) < drainTimeout {
		n, err := c.backlog()
		if n == 0 || err != nil {
			return time.Since(began), err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return 0, fmt.Errorf("%s still has a backlog after %s", c.name, drainTimeout)
}

// sendAll runs a load generator for each address of the contender. It returns the
// total, and the CPU time of the load generators.
func (b *bench) sendAll(c *contender, w workload, preloaded, seconds int) (loadResult, time.Duration, error) {
	type part struct {
		loadResult
		cpu time.Duration
		err error
	}
	parts := make(chan part)
	for _, addr := range c.addrs {
		connections := max(1, w.connections/len(c.addrs))
		first := b.next
		b.next += 1_000_000_000
		cmd := exec.Command("wrk", "-t"+strconv.Itoa(min(b.threads, connections)), "-c"+strconv.Itoa(connections), fmt.Sprintf("-d%ds", seconds), "--timeout", "30s", "-s", "load.lua", "http://"+addr,
			"--", w.work, w.ids, strconv.FormatInt(first, 10), strconv.Itoa(max(preloaded, 1)), c.path, c.token, c.dialect)
		go func() {
			text, err := cmd.CombinedOutput()
			p := part{err: err}
			_, result, ok := strings.Cut(string(text), "RESULT ")
			switch {
			case err != nil || !ok:
				p.err = fmt.Errorf("wrk: %v\n%s", err, text)
			default:
				p.err = json.Unmarshal([]byte(result), &p.loadResult)
				p.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			}
			if p.err == nil && (p.Errors > 0 || p.Requests == 0) {
				p.err = fmt.Errorf("%s: the run is invalid: %d of %d requests failed\n%s", c.name, p.Errors, p.Requests, text)
			}
			parts <- p
		}()
	}
	var sum loadResult
	var cpu time.Duration
	var errs []error
	for range c.addrs {
		p := <-parts
		errs = append(errs, p.err)
		sum.Requests += p.Requests
		sum.Micros = max(sum.Micros, p.Micros)
		sum.P50, sum.P99, sum.Max = max(sum.P50, p.P50), max(sum.P99, p.P99), max(sum.Max, p.Max)
		cpu += p.cpu
	}
	return sum, cpu, errors.Join(errs...)
}

func selfTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// syncTime returns the median time of a 4 KiB write with fdatasync, in microseconds.
func syncTime(dir string) (float64, error) {
	file, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	page := make([]byte, 4096)
	const writes = 300
	for i := range writes {
		if _, err := file.WriteAt(page, int64(i*len(page))); err != nil {
			return 0, err
		}
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	var took []float64
	for i := range writes {
		began := time.Now()
		if _, err := file.WriteAt(page, int64(i*len(page))); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(file.Fd())); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(began).Nanoseconds())/1000)
	}
	slices.Sort(took)
	return took[writes/2], nil
}

func removeAll(dir string) { _ = os.RemoveAll(dir) }
