// Package e2e tests the real binary from outside.
package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
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
	t    *testing.T
	cmd  *exec.Cmd
	db   string
	addr string // HOST:PORT
	api  string // the URL of the API on that address
	done chan error
}

// start runs a server on a new store until the test ends.
func start(t *testing.T, flags ...string) *server {
	t.Helper()
	return startOn(t, filepath.Join(t.TempDir(), "plants.db"), flags...)
}

// startOn runs a server on the store, a file or a URL, until the test ends.
func startOn(t *testing.T, db string, flags ...string) *server {
	t.Helper()
	s := &server{t: t, db: db, addr: "127.0.0.1:0"}
	s.run(flags...)
	t.Cleanup(s.stop)
	return s
}

// run starts the process and waits until it serves. A server that was stopped
// comes back with the same store, at the same address.
func (s *server) run(flags ...string) {
	s.t.Helper()
	s.cmd = exec.Command(binary, append([]string{"serve", "--addr", s.addr, "--db", s.db, "--log-format", "json"}, flags...)...)
	s.cmd.Env = append(os.Environ(), "PLANTSTORE_BOOTSTRAP_TOKEN="+bootstrap)
	log, err := s.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	serving, said := make(chan struct{}), new(bytes.Buffer)
	s.done = make(chan error, 1)
	go func() {
		s.readLog(io.TeeReader(log, said), serving)
		s.done <- s.cmd.Wait()
	}()
	select {
	case <-serving:
	case err := <-s.done:
		s.t.Fatalf("the server ended: %v\n%s", err, said)
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

// command runs another command of the binary on the server's store and returns
// what it prints.
func (s *server) command(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(binary, append(args, "--db", s.db)...)
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("plantstore %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
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
