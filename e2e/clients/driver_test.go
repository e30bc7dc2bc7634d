package clients

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// client is a driver with a name for the table.
type client struct {
	name string
	driver
}

// drivers returns all clients whose tools are installed.
func drivers(t *testing.T) []client {
	t.Helper()
	return []client{
		{"go", newGoDriver(t)},
		{"python", startProcess(t, []string{pythonPath(t)}, need(t, "python3"), "testdata/driver.py")},
		{"python asyncio", startProcess(t, []string{pythonPath(t)}, need(t, "python3"), "testdata/driver.py", "async")},
		{"typescript", startProcess(t, []string{typescriptClient(t)}, need(t, "node"), "testdata/driver.mjs")},
	}
}

// pythonPath is the variable with which Python finds the client.
func pythonPath(t testing.TB) string {
	t.Helper()
	source, err := filepath.Abs(harness.Root + "/clients/python/src")
	if err != nil {
		t.Fatal(err)
	}
	return "PYTHONPATH=" + source
}

// need returns the path of a program, or skips or fails the test.
func need(t testing.TB, program string) string {
	t.Helper()
	// Debian's packages, even if there are others.
	if path := "/usr/bin/" + program; exec.Command(path, "--version").Run() == nil {
		return path
	}
	return testenv.NeedsProgram(t, program)
}

// process drives a client in another process: it writes calls as JSON lines and reads
// outcomes, in any order.
type process struct {
	mu      sync.Mutex // guards the following, and writes
	in      io.WriteCloser
	last    int
	pending map[int]chan outcome
	err     error // why the process has ended
}

// startProcess runs a driver until the test ends.
func startProcess(t testing.TB, env []string, program string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(program, args...)
	// Without a buffer Python loses the rest of a long line if a signal interrupts its write.
	cmd.Env = append(append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED="), env...)
	in, out := harness.StartPiped(t, cmd)
	p := &process{in: in, pending: map[int]chan outcome{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.read(out)
	}()
	t.Cleanup(func() {
		in.Close()
		<-done
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", program, err)
		}
	})
	return p
}

func (p *process) read(out io.Reader) {
	lines := json.NewDecoder(bufio.NewReader(out))
	for {
		var line struct {
			ID int `json:"id"`
			outcome
		}
		err := lines.Decode(&line)
		p.mu.Lock()
		if err != nil {
			p.err = fmt.Errorf("the driver has ended: %w", err)
			for _, reply := range p.pending {
				close(reply)
			}
			p.pending = nil
			p.mu.Unlock()
			return
		}
		reply := p.pending[line.ID]
		delete(p.pending, line.ID)
		p.mu.Unlock()
		if reply != nil {
			reply <- line.outcome
		}
	}
}

func (p *process) do(j job) (outcome, error) {
	reply, err := p.send(j)
	if err != nil {
		return outcome{}, err
	}
	got, ok := <-reply
	if !ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		return outcome{}, fmt.Errorf("during a call: %w", p.err)
	}
	return got, nil
}

func (p *process) send(j job) (<-chan outcome, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	p.last++
	line, err := json.Marshal(struct {
		ID int `json:"id"`
		job
	}{p.last, j})
	if err != nil {
		return nil, err
	}
	reply := make(chan outcome, 1)
	p.pending[p.last] = reply
	_, err = p.in.Write(append(line, '\n'))
	return reply, err
}
