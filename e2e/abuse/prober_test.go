package abuse

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
)

// maxMemory is the maximum resident memory of a server under abuse, in bytes.
const maxMemory = 256 << 20

// probeTimeout ends a call of the prober that hangs. How long calls take is
// reported.
const probeTimeout = time.Minute

// timeouts are those of a server.
type timeouts struct{ header, request, idle, export time.Duration }

// target is a server under abuse.
type target struct {
	*harness.Server
	timeouts
	// cut is after how long the server may close a connection without a request, even of a
	// client that behaves well, if the machine stands still; 0 for never.
	cut    time.Duration
	plants int64 // how many ids the prober has used
}

// startTarget starts a server. In the short form the timeouts that a test waits for are short,
// and the others so long that they do not matter on a busy machine.
func startTarget(t *testing.T, short timeouts, flags ...string) *target {
	t.Helper()
	harness.NeedProc(t)
	a := &target{timeouts: timeouts{
		header: cmp.Or(short.header, time.Minute), request: cmp.Or(short.request, time.Minute),
		idle: cmp.Or(short.idle, 2*time.Minute), export: cmp.Or(short.export, 10*time.Minute),
	}}
	a.cut = min(a.header, a.idle)
	if harness.Torture() { // the defaults, except for exports
		a.timeouts, a.cut = timeouts{5 * time.Second, 30 * time.Second, 2 * time.Minute, time.Minute}, 0
	}
	flags = append(flags, "--read-header-timeout", a.header.String(), "--read-timeout", a.request.String(), "--idle-timeout", a.idle.String(), "--export-timeout", a.export.String())
	a.Server = harness.Start(t, flags...)
	return a
}

// withProber runs a well-behaved client, alone at first and then during the abuse. All
// its calls must succeed, and the server must stay within its memory.
func (a *target) withProber(t *testing.T, abuse func()) {
	t.Helper()
	alone := a.probe(t, harness.Times(200, 5000), func() {})
	before := a.resetPeak(t)
	during := a.probe(t, 50, func() {
		if harness.Torture() { // in the short form other tests may need the whole machine
			defer lowerPriority(t)()
		}
		abuse()
	})
	peak := a.Memory("VmHWM")
	if peak > maxMemory {
		t.Errorf("the server had %d MB resident, at most %d are allowed", peak>>20, maxMemory>>20)
	}
	ratio := float64(percentile(during, 99)) / float64(percentile(alone, 99))
	harness.Report(t, "calls alone %s (%d calls); during the abuse %s (%d calls); p99 %.1f times; memory %d MB before, peak %d MB",
		latencies(alone), len(alone), latencies(during), len(during), ratio, before>>20, peak>>20)
}

// probe has the prober make at least atLeast calls while f runs, and returns how long
// each of them took.
func (a *target) probe(t *testing.T, atLeast int, f func()) []time.Duration {
	t.Helper()
	p := runProber(t, prober{API: a.API, Cut: a.cut, Used: a.plants, AtLeast: atLeast}, f)
	a.plants = p.Used
	return p.Took
}

// probeReads has a prober of its own read the path while f runs. It returns how long the
// reads took that began in the time that f returns.
func (a *target) probeReads(t *testing.T, path string, atLeast int, f func() (from, to time.Time)) (took []time.Duration) {
	t.Helper()
	var from, to time.Time
	p := runProber(t, prober{API: a.API, Cut: a.cut, Reads: path, AtLeast: atLeast}, func() { from, to = f() })
	for i, began := range p.Began {
		if !began.Before(from) && (to.IsZero() || began.Before(to)) {
			took = append(took, p.Took[i])
		}
	}
	return took
}

// runProber runs the process while f runs, and returns it with the results.
func runProber(t *testing.T, p prober, f func()) prober {
	t.Helper()
	job, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), proberVariable+"="+string(job))
	in, out := harness.StartPiped(t, cmd)
	results := json.NewDecoder(out)
	func() {
		defer func() {
			in.Close()
			err = errors.Join(err, results.Decode(&p), cmd.Wait())
		}()
		if err = results.Decode(&p); err == nil { // it has started
			f()
		}
	}()
	if err != nil {
		t.Fatalf("the prober: %v", err)
	}
	if p.Failed != "" {
		t.Error("a call of the prober failed: " + p.Failed)
	}
	return p
}

// resetPeak resets the peak of the server's memory where the system allows it, and
// returns what it has resident.
func (a *target) resetPeak(t *testing.T) int64 {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", a.PID()), []byte("5"), 0); err != nil {
		t.Log("the peak memory is counted since the start of the server: ", err)
	}
	return a.Memory("VmRSS")
}

// proberVariable makes the test binary a prober. It is a process of its own, because the
// abusers may have a lower priority.
const proberVariable = "PLANTSTORE_TEST_PROBER"

// prober is a well-behaved client. It is sent to the process as a job, and returned
// with the results.
type prober struct {
	API     string
	Cut     time.Duration   // as in target
	Reads   string          // the path of its only call, if set
	Used    int64           // how many ids are used
	AtLeast int             // how many calls to make at least
	Began   []time.Time     // when each call began
	Took    []time.Duration // how long it took
	Failed  string          // the call that failed, which was the last
}

// proberMain prints the job when it has started, makes calls until its input ends, and
// prints the results. It returns the exit code.
func proberMain(job string) int {
	var p prober
	if err := json.Unmarshal([]byte(job), &p); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", proberVariable, err)
		return 1
	}
	var ended atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	out := json.NewEncoder(os.Stdout)
	err := out.Encode(p)
	p.run(&ended)
	if err = errors.Join(err, out.Encode(p)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// run creates and reads plants, or reads one path, one call after the other, on one connection and on new
// ones in turn.
func (p *prober) run(ended *atomic.Bool) {
	kept := &http.Client{Transport: &http.Transport{}, Timeout: probeTimeout}
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: probeTimeout}
	var keptUsed time.Time
	repeats := 0 // of the same call
	for calls := 0; calls < p.AtLeast || !ended.Load(); calls++ {
		method, path, body, want := "GET", "/plants/"+strconv.FormatInt(-p.Used, 10), "", `"name":"probe"`
		switch {
		case p.Reads != "":
			path, want = p.Reads, ""
		case calls%2 == 0:
			p.Used++
			method, path, body = "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"probe"}`, -p.Used)
		}
		began := time.Now()
		c, used := kept, keptUsed
		if calls%4 > 1 {
			c, used = fresh, began
		} else {
			keptUsed = began
		}
		p.Began = append(p.Began, began)
		res, err := harness.Send(c, harness.Token, method, p.API+path, body)
		p.Took = append(p.Took, time.Since(began))
		if err == nil && res.Status == 200 && strings.Contains(res.Body, want) {
			repeats = 0
			continue
		}
		// A machine that stands still can be the reason, but not again and again.
		cut := err != nil && p.Cut > 0 && time.Since(used) >= p.Cut
		unready := err == nil && path == "/readyz" && res.Status == 503 && time.Since(began) >= readyTimeout
		if repeats++; repeats > maxRepeats || !cut && !unready {
			p.Failed = fmt.Sprintf("%s %s: %d %s, %v", method, path, res.Status, res.Body, err)
			return
		}
		calls--
		if method == "POST" {
			p.Used-- // the same plant again
		}
	}
}

const (
	// readyTimeout is how long the server waits for the store before /readyz fails.
	readyTimeout = 2 * time.Second
	// maxRepeats is how often the prober repeats a call.
	maxRepeats = 5
)

// percentile returns the time that percent of the calls did not exceed.
func percentile(took []time.Duration, percent int) time.Duration {
	if len(took) == 0 {
		return 0
	}
	took = slices.Sorted(slices.Values(took))
	return took[((len(took)-1)*percent+99)/100]
}

func latencies(took []time.Duration) string {
	return fmt.Sprintf("p50 %v, p99 %v, max %v", percentile(took, 50).Round(time.Microsecond),
		percentile(took, 99).Round(time.Microsecond), percentile(took, 100).Round(time.Microsecond))
}

// noTime selects the whole time that a prober ran.
func noTime() (from, to time.Time) { return from, to }

// row is a line of the table in docs/reliability.md: an attack, what a well-behaved
// client sees without and with it, and the server's peak memory during it.
type row struct {
	attack, quiet, during string
	memory                int64
	slower                float64 // p99 during the attack, as a multiple of quiet, if measured
}

// maxSlower is the goal for row.slower. It is not asserted: the machine may be busy.
const maxSlower = 10

// report checks the memory and reports the row.
func (r row) report(t *testing.T) {
	t.Helper()
	if r.memory > maxMemory {
		t.Errorf("the server had %d MB resident, at most %d are allowed", r.memory>>20, maxMemory>>20)
	}
	verdict := "held"
	switch {
	case t.Failed():
		verdict = "FAILED"
	case r.slower > maxSlower:
		verdict = "passed, but slow"
	}
	harness.Report(t, "| %s | %s | %s | %d MB | %s |", r.attack, cmp.Or(r.quiet, "-"), r.during, r.memory>>20, verdict)
}

// eachStore runs a test on both kinds of store.
func eachStore(t *testing.T, test func(t *testing.T, db string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, filepath.Join(t.TempDir(), "plants.db")) })
	t.Run("postgres", func(t *testing.T) { test(t, pgtest.Fresh(t)) })
}

// request returns a request without a body as it is sent.
func request(token, method, path string, header ...string) string {
	lines := append([]string{method + " " + path + " HTTP/1.1", "Host: x", "Authorization: Bearer " + token}, header...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// skimResponse reads a response and returns only what a load needs.
func skimResponse(in *bufio.Reader) (status int, retryAfter string, err error) {
	length := 0
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, "", err
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		switch {
		case first:
			status, err = strconv.Atoi(string(value[:min(3, len(value))]))
		case string(name) == "Content-Length:":
			length, err = strconv.Atoi(string(value))
		case string(name) == "Retry-After:":
			retryAfter = string(value)
		case len(name) == 0:
			_, err := in.Discard(length)
			return status, retryAfter, err
		}
		if err != nil {
			return 0, "", err
		}
	}
}
