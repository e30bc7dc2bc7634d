// Command bench compares the rate of creates with that of a handler that does
// nothing, in turns on the same machine. Rates on their own say little: look at the
// ratios.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// token is the first one of the store under test.
const token = "bench-bootstrap-token-0123456789abcdef"

func main() {
	rounds := flag.Int("rounds", 3, "how many times each is measured")
	connections := flag.Int("connections", 256, "how many connections send at once")
	seconds := flag.Int("seconds", 5, "how long each measurement lasts")
	noop := flag.Bool("noop", false, "serve the handler that does nothing (bench starts itself with this)")
	flag.Parse()
	if *noop {
		fatal(serveNothing())
	}
	fatal(run(*rounds, *connections, *seconds))
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// serveNothing reads every body and gives the same answer.
func serveNothing() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("{\"addr\":%q}\n", listener.Addr())
	answer := []byte(`{"name":"Monstera deliciosa","tag":"tropical"}`)
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header()["Content-Type"] = []string{"application/json"}
		_, _ = w.Write(answer)
	}))
}

func run(rounds, connections, seconds int) error {
	if _, err := exec.LookPath("wrk"); err != nil {
		return errors.New("wrk is not installed: apt-get install wrk")
	}
	dir, err := os.MkdirTemp("", "plantstore-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "plantstore")
	build := exec.Command("go", "build", "-o", binary, "./cmd/plantstore")
	build.Dir, build.Stderr = "..", os.Stderr
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return fmt.Errorf("build plantstore: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	limit, err := start(exec.Command(self, "-noop"))
	if err != nil {
		return err
	}
	defer limit.stop()
	ours, err := start(exec.Command(binary, "serve", "--addr", "127.0.0.1:0", "--db", filepath.Join(dir, "plants.db")))
	if err != nil {
		return err
	}
	defer ours.stop()

	fmt.Printf("creates with sequential ids, %d connections, SQLite\n", connections)
	fmt.Printf("%5s  %10s  %10s  %5s  %8s\n", "round", "no-op/s", "creates/s", "ratio", "p99")
	var ratios []float64
	for round := 1; round <= rounds; round++ {
		base, err := limit.measure(round, connections, seconds)
		if err != nil {
			return err
		}
		got, err := ours.measure(round, connections, seconds)
		if err != nil {
			return err
		}
		ratio := got.rate / base.rate
		ratios = append(ratios, ratio)
		fmt.Printf("%5d  %10.0f  %10.0f  %5.2f  %8s\n", round, base.rate, got.rate, ratio, got.p99)
	}
	slices.Sort(ratios)
	fmt.Printf("median ratio %.2f, spread %.2f to %.2f\n", ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
	fmt.Printf("most memory that plantstore had: %s\n", ours.memory())
	return nil
}

// contender is a server that runs.
type contender struct {
	cmd  *exec.Cmd
	addr string
}

// start starts a server, which says where it listens in a line of JSON.
func start(cmd *exec.Cmd) (*contender, error) {
	cmd.Env = append(os.Environ(), "PLANTSTORE_BOOTSTRAP_TOKEN="+token)
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var line struct{ Addr string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Addr != "" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return &contender{cmd, line.Addr}, nil
		}
	}
	return nil, fmt.Errorf("%s did not say where it listens", cmd.Path)
}

func (c *contender) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	_ = c.cmd.Wait()
}

type result struct {
	rate float64
	p99  string
}

var (
	rateLine = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	p99Line  = regexp.MustCompile(`(?m)^\s+99%\s+(\S+)`)
)

// measure sends creates for so many seconds. An answer that is no success makes
// the run invalid.
func (c *contender) measure(round, connections, seconds int) (result, error) {
	out, err := exec.Command("wrk", "-t1", "-c"+strconv.Itoa(connections), fmt.Sprintf("-d%ds", seconds), "--latency",
		"-s", "create.lua", "http://"+c.addr, "--", strconv.Itoa(round), token).CombinedOutput()
	text := string(out)
	rate, p99 := rateLine.FindStringSubmatch(text), p99Line.FindStringSubmatch(text)
	if err != nil || rate == nil || p99 == nil || strings.Contains(text, "Non-2xx") || strings.Contains(text, "Socket errors") {
		return result{}, fmt.Errorf("the run is not valid: %v\n%s", err, text)
	}
	n, err := strconv.ParseFloat(rate[1], 64)
	return result{n, p99[1]}, err
}

// memory returns the most memory that the process had, as Linux tells it.
func (c *contender) memory() string {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if m := regexp.MustCompile(`VmHWM:\s+(.*)`).FindSubmatch(status); m != nil {
		return string(m[1])
	}
	return "unknown"
}
