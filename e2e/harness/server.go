package harness

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
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/client"
	"plantstore/internal/testenv"
)

// Server is a plantstore process on one store. It can be started again after it has
// ended, at the same address.
type Server struct {
	Program string     // runs in place of the binary under test, if set
	Flags   []string   // of serve
	Env     []string   // added to the environment
	Files   []*os.File // inherited as file 3 and those that follow
	DB      string     // a file or a URL
	Addr    string     // HOST:PORT, its own until the test ends
	API     string     // base URL of the API at that address

	t       testing.TB
	cmd     *exec.Cmd // nil while it does not run
	log     *log
	exited  chan struct{} // closed when the process has ended
	exitErr error         // why, valid after that
}

// log collects what a server writes. It can be read while the server is running.
type log struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// New returns a server that does not run yet. It is stopped when the test ends.
func New(t testing.TB, db string, flags ...string) *Server {
	t.Helper()
	s := &Server{t: t, DB: db, Flags: flags, Addr: ReserveAddr(t)}
	t.Cleanup(s.Stop)
	return s
}

// Start runs a server on a new SQLite store until the test ends.
func Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	return StartOn(t, filepath.Join(t.TempDir(), "plants.db"), flags...)
}

// StartOn runs a server on a store until the test ends.
func StartOn(t testing.TB, db string, flags ...string) *Server {
	t.Helper()
	s := New(t, db, flags...)
	s.Run()
	s.AwaitToken()
	return s
}

// AwaitToken waits until the server knows [Token]. If PostgreSQL is slow, the server creates
// its first token a moment after it serves. One that is unavailable is not waited for.
func (s *Server) AwaitToken() {
	s.t.Helper()
	if !strings.HasPrefix(s.DB, "postgres") {
		return
	}
	testenv.Eventually(s.t, func() error {
		if status, body := s.Call(Token, "GET", "/token", ""); status == http.StatusUnauthorized {
			return fmt.Errorf("the first token got %d %s", status, body)
		}
		return nil
	})
}

// relaxedTimeouts are settings for a busy machine, on which a process may stand still for seconds at
// any moment. The long form has a machine of its own, and the defaults.
func relaxedTimeouts() []string {
	if Torture() {
		return nil
	}
	return []string{"PLANTSTORE_READ_HEADER_TIMEOUT=1m", "PLANTSTORE_SHUTDOWN_TIMEOUT=1m"}
}

// Run starts the process and waits until it serves.
func (s *Server) Run() {
	s.t.Helper()
	if err := s.TryRun(); err != nil {
		s.t.Fatal(err)
	}
}

// TryRun is Run for a server that may end before it serves. It may be called by
// another goroutine than the test's.
func (s *Server) TryRun() error {
	args := []string{"serve", "--addr", s.Addr, "--db", s.DB, "--log-format", "json"}
	cmd := exec.Command(cmp.Or(s.Program, binary), append(args, s.Flags...)...)
	cmd.Env = slices.Concat(os.Environ(), relaxedTimeouts(), []string{"PLANTSTORE_BOOTSTRAP_TOKEN=" + Token}, s.Env)
	cmd.ExtraFiles = s.Files
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	serving := make(chan struct{})
	s.cmd, s.log, s.exited = cmd, new(log), make(chan struct{})
	go func() {
		s.readLog(io.TeeReader(stderr, s.log), serving)
		s.exitErr = cmd.Wait()
		close(s.exited)
	}()
	select {
	case <-serving:
		return nil
	case <-s.exited:
		return fmt.Errorf("the server ended before it served: %w\n%s", s.Wait(), s.log)
	}
}

// readLog reads the log to its end. It closes serving when it knows the address.
func (s *Server) readLog(log io.Reader, serving chan<- struct{}) {
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
		s.Addr, s.API = line.Addr, "http://"+line.Addr+path
		close(serving)
	}
}

// Log returns what the server has logged since it was last started.
func (s *Server) Log() string { return s.log.String() }

// PID returns the id of the running process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Exited returns a channel that is closed when the process has ended. Call Wait then.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Wait waits until the process has ended and returns why.
func (s *Server) Wait() error {
	<-s.exited
	s.cmd = nil
	return s.exitErr
}

// Stop shuts the server down if it runs. It must exit with code 0.
func (s *Server) Stop() {
	s.t.Helper()
	s.StopWith(0)
}

// StopWith is Stop with another exit code.
func (s *Server) StopWith(code int) {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	// A test may have failed while it was paused.
	if err := errors.Join(s.Signal(syscall.SIGCONT), s.Signal(syscall.SIGTERM)); err != nil {
		s.t.Errorf("stop the server: %v", err)
	}
	select {
	case <-s.exited:
	case <-time.After(testenv.Timeout):
		s.t.Errorf("the server has not ended %v after SIGTERM; it logged:\n%s", testenv.Timeout, s.log)
		_ = s.Signal(syscall.SIGKILL) // it may end in the meantime
	}
	err := s.Wait()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if code == 0 && err != nil || code != 0 && (exit == nil || exit.ExitCode() != code) {
		s.t.Errorf("the server ended: %v, want exit code %d; it logged:\n%s", err, code, s.log)
	}
}

// Kill ends the server as a crash would.
func (s *Server) Kill() {
	s.t.Helper()
	if err := s.Signal(syscall.SIGKILL); err != nil {
		s.t.Fatalf("kill the server: %v; it logged:\n%s", err, s.log)
	}
	_ = s.Wait() // it was killed
}

// Pause makes the server do nothing until Resume.
func (s *Server) Pause() {
	s.t.Helper()
	if err := s.Signal(syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
}

// Resume ends a Pause.
func (s *Server) Resume() {
	s.t.Helper()
	if err := s.Signal(syscall.SIGCONT); err != nil {
		s.t.Fatal(err)
	}
}

// Signal sends a signal to the process. It fails if the process has ended.
func (s *Server) Signal(sig syscall.Signal) error { return s.cmd.Process.Signal(sig) }

// Client returns a client of the server with [Token]. Unless the options say otherwise, it
// retries for longer than usual: on a busy machine a server takes long to start again.
func (s *Server) Client(opts client.Options) *client.Client {
	s.t.Helper()
	if opts.Retries == 0 && opts.RetryTimeout == 0 {
		opts.Retries, opts.RetryTimeout = 1000, callTimeout
	}
	c, err := client.New(s.API, Token, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.CloseIdleConnections)
	return c
}

// AwaitReady waits until /readyz returns the status.
func (s *Server) AwaitReady(want int) {
	s.t.Helper()
	testenv.Eventually(s.t, func() error {
		if status, body := s.Call("", "GET", "/readyz", ""); status != want {
			return fmt.Errorf("/readyz returned %d, want %d: %s", status, want, body)
		}
		return nil
	})
}

// Command runs another command of the binary on the server's store and returns its
// output.
func (s *Server) Command(args ...string) string {
	s.t.Helper()
	out, err := s.TryCommand(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// TryCommand is Command for one that may fail.
func (s *Server) TryCommand(args ...string) (string, error) {
	cmd := exec.Command(binary, append(args, "--db", s.DB)...)
	stderr := new(bytes.Buffer)
	cmd.Stderr = stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("plantstore %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr)
	}
	return strings.TrimSpace(string(out)), nil
}

// Response is an HTTP response that was read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Send sends a request with the token and a JSON body. The header is given as names and
// values in turn.
func Send(c *http.Client, token, method, url, body string, header ...string) (Response, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := c.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return Response{res.StatusCode, res.Header, string(text)}, err
}

// Call sends a request to a path of the API and returns status and body.
func (s *Server) Call(token, method, path, body string, header ...string) (int, string) {
	s.t.Helper()
	res, err := Send(http.DefaultClient, token, method, s.API+path, body, header...)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.Status, res.Body
}

// Import imports plants, one per line, all of which must be accepted.
func (s *Server) Import(lines string) {
	s.t.Helper()
	status, body := s.Call(Token, "POST", "/plants/import", lines, "Content-Type", "application/x-ndjson")
	if status != http.StatusOK || !strings.Contains(body, `"failed":0`) {
		s.t.Fatalf("import: %d %s", status, body)
	}
	http.DefaultClient.CloseIdleConnections()
}

// NeedProc is for tests that use [Server.Memory] or [Server.OpenFiles], which read /proc.
func NeedProc(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		testenv.Missing(t, "this system has no /proc: "+err.Error())
	}
}

// Memory returns a figure of the server's memory in bytes: VmRSS is the resident
// memory, VmHWM its peak.
func (s *Server) Memory(figure string) int64 {
	s.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), figure+":")
	line, _, _ := strings.Cut(rest, " kB")
	kilobytes, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		s.t.Fatalf("%s of process %d: %v", figure, s.PID(), err)
	}
	return kilobytes << 10
}

// ResetPeakMemory has the kernel measure VmHWM anew.
func (s *Server) ResetPeakMemory() {
	s.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.PID()), []byte("5"), 0); err != nil {
		s.t.Fatal(err)
	}
}

// OpenFiles returns the sorted names of everything that the server has open.
func (s *Server) OpenFiles() []string {
	s.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", s.PID())
	files, err := os.ReadDir(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	var open []string
	for _, f := range files {
		if name, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil { // otherwise it was closed in the meantime
			open = append(open, name)
		}
	}
	slices.Sort(open)
	return open
}

// AwaitFlushed waits until the table of plants has everything that the log has.
func (s *Server) AwaitFlushed() {
	s.t.Helper()
	testenv.Eventually(s.t, func() error {
		status, body := s.Call(Token, "GET", "/metrics", "")
		if status != 200 || !strings.Contains(body, "\nplantstore_log_unflushed_events 0\n") {
			return errors.New("some plants have not been flushed")
		}
		return nil
	})
}
