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
	exited chan struct{} // closed when it has ended
	log    string        // the file with all that it said
}

// greeting is the line in which a server says where it listens, and with which
// token it is to be used.
type greeting struct{ Addr, Token string }

// launch starts a program whose words go to a file.
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

// greeted waits for the greeting.
func (p *process) greeted() (greeting, error) {
	for range 600 {
		file, err := os.Open(p.log)
		if err != nil {
			return greeting{}, err
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			var g greeting
			if json.Unmarshal(lines.Bytes(), &g) == nil && g.Addr != "" {
				file.Close()
				return g, nil
			}
		}
		file.Close()
		select {
		case <-p.exited:
			return greeting{}, p.failed()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return greeting{}, fmt.Errorf("%s did not say where it listens", p.cmd)
}

func (p *process) failed() error {
	log, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s ended: %s\n%s", p.cmd.Path, p.cmd.ProcessState, log)
}

// stop ends the program in order.
func (p *process) stop(signal os.Signal) {
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// usage is what processes have used so far.
type usage struct {
	cpu    time.Duration
	memory int64 // bytes, resident now
}

func (u usage) minus(v usage) usage {
	return usage{u.cpu - v.cpu, u.memory}
}

// tick is the unit of time in /proc, which is the same on every Linux.
const tick = 10 * time.Millisecond

// used adds up what the processes and all that come from them have used.
func used(roots ...*process) (usage, error) {
	parents, cpu := make(map[int]int), make(map[int]time.Duration)
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return usage{}, err
	}
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended meanwhile
		}
		// The name of the program stands in parentheses and may hold anything.
		head, rest, _ := strings.Cut(string(text), " (")
		fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:])
		pid, _ := strconv.Atoi(head)
		parents[pid], _ = strconv.Atoi(fields[1])
		for _, i := range []int{11, 12, 13, 14} { // user, system, and both of ended children
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
		// Shared memory would count once for each process that uses it.
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

// field returns a number that a file of a process has, or 0.
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

// run runs a program to its end.
func run(dir string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// output runs a program to its end and returns what it prints.
func output(cmd *exec.Cmd, in io.Reader) (string, error) {
	cmd.Stdin = in
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
