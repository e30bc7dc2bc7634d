// Package e2e tests the real binary from outside.
package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"plantstore/client"
	"plantstore/internal/postgres/pgtest"
)

// binary is the plantstore under test, built once.
var binary string

// atEnd is what must happen after the last test.
var atEnd []func()

// bootstrap is the first token of every store.
const bootstrap = "e2e-bootstrap-token-0123456789abcdef"

func TestMain(m *testing.M) {
	if business := os.Getenv(honestVariable); business != "" {
		os.Exit(mainHonest(business))
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "plantstore-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "plantstore")
	build := exec.Command("go", "build", "-o", binary, "plantstore/cmd/plantstore")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the binary:", err)
		return 1
	}
	defer func() {
		for _, f := range atEnd {
			f()
		}
		http.DefaultClient.CloseIdleConnections()
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	return pgtest.Main(m)
}

// torture reports whether the long forms of the tests are asked for.
func torture() bool { return os.Getenv("PLANTSTORE_TORTURE") == "1" }

// times returns how often a test does what it does: the first number, or the
// second in the long form.
func times(short, long int) int {
	if torture() {
		return long
	}
	return short
}

// server is a plantstore that runs.
type server struct {
	program string   // what runs in place of the binary under test
	env     []string // more of its environment

	t    *testing.T
	cmd  *exec.Cmd
	db   string
	addr string // HOST:PORT
	api  string // the URL of the API on that address
	done chan error
	log  *text // what it has logged since it was started
}

// text gathers what is written to it, also while somebody reads it.
type text struct {
	mu  sync.Mutex // guards all
	all bytes.Buffer
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.String()
}

// start runs a server on a new store until the test ends.
func start(t *testing.T, flags ...string) *server {
	t.Helper()
	return startOn(t, filepath.Join(t.TempDir(), "plants.db"), flags...)
}

// startOn runs a server on the store, a file or a URL, until the test ends.
func startOn(t *testing.T, db string, flags ...string) *server {
	t.Helper()
	return startProgram(t, binary, db, flags...)
}

// startProgram is startOn for another program than the binary under test.
func startProgram(t *testing.T, program, db string, flags ...string) *server {
	t.Helper()
	s := &server{t: t, program: program, db: db, addr: "127.0.0.1:0"}
	s.run(flags...)
	t.Cleanup(s.stop)
	return s
}

// run starts the process and waits until it serves. A server that was stopped
// comes back with the same store, at the same address.
func (s *server) run(flags ...string) {
	s.t.Helper()
	if err := s.try(flags...); err != nil {
		s.t.Fatal(err)
	}
}

// try is run for a server that may have a reason to end before it serves.
func (s *server) try(flags ...string) error {
	s.t.Helper()
	s.cmd = exec.Command(cmp.Or(s.program, binary), append([]string{"serve", "--addr", s.addr, "--db", s.db, "--log-format", "json"}, flags...)...)
	s.cmd.Env = slices.Concat(os.Environ(), []string{"PLANTSTORE_BOOTSTRAP_TOKEN=" + bootstrap}, s.env)
	log, err := s.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	serving := make(chan struct{})
	s.done, s.log = make(chan error, 1), new(text)
	go func() {
		s.readLog(io.TeeReader(log, s.log), serving)
		s.done <- s.cmd.Wait()
	}()
	select {
	case <-serving:
		return nil
	case err := <-s.done:
		s.cmd = nil
		return fmt.Errorf("the server ended: %w\n%s", err, s.log)
	}
}

// readLog reads the log to its end. It closes serving when it knows the address.
func (s *server) readLog(log io.Reader, serving chan<- struct{}) {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct{ Msg, Addr, URL string }
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Msg != "serving" {
			continue
		}
		path := ""
		if _, rest, ok := strings.Cut(line.URL, "://"); ok {
			if at := strings.IndexByte(rest, '/'); at >= 0 {
				path = strings.TrimRight(rest[at:], "/")
			}
		}
		s.addr, s.api = line.Addr, "http://"+line.Addr+path
		close(serving)
	}
}

// stop ends the server in order. It may be called again.
func (s *server) stop() {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	s.resume() // a test may have ended while it was paused
	s.signal(syscall.SIGTERM)
	if err := <-s.done; err != nil {
		s.t.Errorf("the server ended: %v", err)
	}
	s.cmd = nil
}

// kill ends the server as a crash would. It can be run again.
func (s *server) kill() {
	s.t.Helper()
	s.signal(syscall.SIGKILL)
	<-s.done
	s.cmd = nil
}

// client returns a client of the server with the first token.
func (s *server) client(opts client.Options) *client.Client {
	s.t.Helper()
	c, err := client.New(s.api, bootstrap, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.CloseIdleConnections)
	return c
}

// pause makes the server do nothing until resume.
func (s *server) pause() { s.signal(syscall.SIGSTOP) }

func (s *server) resume() { s.signal(syscall.SIGCONT) }

func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// awaitReady waits until the server's /readyz answers with that status.
func (s *server) awaitReady(want int) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		status, answer := s.call("", "GET", "/readyz", "")
		if status == want {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("/readyz says %d after a minute, want %d: %s", status, want, answer)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// command runs another command of the binary on the server's store and returns
// what it prints.
func (s *server) command(args ...string) string {
	s.t.Helper()
	out, err := s.tryCommand(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// tryCommand is command for one that may have a reason to fail.
func (s *server) tryCommand(args ...string) (string, error) {
	cmd := exec.Command(binary, append(args, "--db", s.db)...)
	complaint := new(bytes.Buffer)
	cmd.Stderr = complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("plantstore %s: %w\n%s%s", strings.Join(args, " "), err, out, complaint)
	}
	return strings.TrimSpace(string(out)), nil
}

// call sends a request to the API with the token and returns status and body.
func (s *server) call(token, method, path, body string, header ...string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.api+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}
