package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program that runs until it is stopped.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has exited
	log    string        // the file with its output
}

// endpoint is the address of a server, and its token if it chose one. Every server
// prints it as a line of JSON.
type endpoint struct{ Addr, Token string }

// launch starts a program and writes its output to a file.
func launch(log string, cmd *exec.Cmd) (*process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd, make(chan struct{}), log}
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// waitForEndpoint waits until the server has printed its endpoint.
func (p *process) waitForEndpoint() (endpoint, error) {
	for range 600 {
		file, err := os.Open(p.log)
		if err != nil {
			return endpoint{}, err
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			var at endpoint
			if json.Unmarshal(lines.Bytes(), &at) == nil && at.Addr != "" {
				file.Close()
				return at, nil
			}
		}
		file.Close()
		select {
		case <-p.exited:
			return endpoint{}, p.failed()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return endpoint{}, fmt.Errorf("%s did not print where it listens", p.cmd)
}

func (p *process) failed() error {
	log, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s exited: %s\n%s", p.cmd.Path, p.cmd.ProcessState, log)
}

// stop stops the program with a signal, and kills it if that takes too long.
func (p *process) stop(signal os.Signal) {
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// usage is the resources that processes have used.
type usage struct {
	cpu    time.Duration
	memory int64 // bytes, resident now
}

func (u usage) minus(v usage) usage {
	return usage{u.cpu - v.cpu, u.memory}
}

// tick is the unit of time in /proc. It is the same on every Linux.
const tick = 10 * time.Millisecond

// usageOf returns the usage of the processes and all their descendants.
func usageOf(roots ...*process) (usage, error) {
	parents, cpu := make(map[int]int), make(map[int]time.Duration)
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return usage{}, err
	}
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has exited in the meantime
		}
		// The name of the program is in parentheses and may contain anything.
		head, rest, _ := strings.Cut(string(text), " (")
		fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:])
		pid, _ := strconv.Atoi(head)
		parents[pid], _ = strconv.Atoi(fields[1])
		for _, i := range []int{11, 12, 13, 14} { // user and system time, of the process and of its exited children
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			cpu[pid] += time.Duration(n) * tick
		}
	}
	var sum usage
	for pid := range parents {
		if !descends(pid, parents, roots) {
			continue
		}
		sum.cpu += cpu[pid]
		// Count shared memory only once, for the roots.
		if anon := field(pid, "status", "RssAnon:"); anon > 0 {
			sum.memory += anon << 10
		}
	}
	for _, root := range roots {
		sum.memory += field(root.cmd.Process.Pid, "status", "RssFile:") << 10
		sum.memory += field(root.cmd.Process.Pid, "status", "RssShmem:") << 10
	}
	return sum, nil
}

func descends(pid int, parents map[int]int, roots []*process) bool {
	for ; pid > 1; pid = parents[pid] {
		for _, root := range roots {
			if root.cmd.Process.Pid == pid {
				return true
			}
		}
	}
	return false
}

// field returns a number from a file in the process's /proc directory, or 0.
func field(pid int, file, name string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n
		}
	}
	return 0
}

// run runs a program and waits for it.
func run(dir string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// output runs a program and returns its standard output.
func output(cmd *exec.Cmd, in io.Reader) (string, error) {
	cmd.Stdin = in
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
