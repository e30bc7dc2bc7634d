// Package pgtest starts real PostgreSQL servers for tests, on loopback ports and in
// temporary folders. They stop with the test.
//
// If PostgreSQL is not installed, a test that needs it is skipped, or fails if all tests
// must run. The package's TestMain must call [Main].
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/jackc/pgx/v5"

	"plantstore/internal/testenv"
)

// startTimeout is how long a server may take to start, including recovery.
const startTimeout = 3 * time.Minute

// Server is one PostgreSQL server. It may be used by one goroutine at a time.
type Server struct {
	dir      string // contains its data and its log
	port     int
	settings []string
	process  *process // nil while the server is down
}

// shared is the server of [Fresh], which [Main] removes.
var shared struct {
	sync.Mutex // guards what follows
	server     *Server
	restarting *restarting // in front of it, if [testenv.Pooled]
	err        error
	schemas    int // created so far
}

// Main is for a TestMain: it runs the tests, stops the server that they share, and
// returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	if shared.restarting != nil {
		if err := shared.restarting.end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if shared.server != nil {
		shared.server.remove()
	}
	if template != nil {
		template.remove()
	}
	return code
}

// Fresh returns the URL of an empty schema on a server that all tests of a package
// share. A schema is created faster than a database. If [testenv.Pooled], it is a
// database, because PgBouncer does not pass on search_path, and the URL leads
// through a pooler that is killed and restarted all the time. The package's TestMain
// must call [Main].
func Fresh(t testing.TB) string {
	t.Helper()
	if testenv.Pooled() {
		testenv.NeedsProgram(t, "pgbouncer")
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = launch(nil)
		if testenv.Pooled() && shared.err == nil {
			shared.restarting, shared.err = shared.server.restartingPooler()
		}
	}
	check(t, shared.err)
	shared.schemas++
	name := fmt.Sprintf("test%d", shared.schemas)
	if testenv.Pooled() {
		shared.server.Exec(t, "CREATE DATABASE "+name)
		return shared.restarting.pooler.Database(name)
	}
	shared.server.Exec(t, "CREATE SCHEMA "+name)
	return shared.server.URL() + "&search_path=" + name
}

// Limited returns the URL of an empty schema like [Fresh], as a role that may have only so many
// connections, and as a superuser whose connections do not count and who acts as that role.
func Limited(t testing.TB, connections int) (url, uncounted string) {
	t.Helper()
	url = Fresh(t)
	schema := url[strings.LastIndex(url, "=")+1:]
	role := "limited_" + schema
	shared.Lock()
	defer shared.Unlock()
	shared.server.Exec(t, fmt.Sprintf("CREATE ROLE %s LOGIN CONNECTION LIMIT %d", role, connections))
	shared.server.Exec(t, fmt.Sprintf("ALTER SCHEMA %s OWNER TO %s", schema, role))
	return strings.Replace(url, "postgres@", role+"@", 1), url + "&role=" + role
}

// Start starts a server for this test alone, which is removed when the test ends. A
// setting looks like "deadlock_timeout=100ms".
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := launch(settings)
	check(t, err)
	t.Cleanup(s.remove)
	return s
}

var (
	errNoPostgres = errors.New("PostgreSQL is not installed")
	errNoCluster  = errors.New("etcd or Patroni is not installed")
)

func check(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errNoPostgres) || errors.Is(err, errNoCluster) {
		testenv.Missing(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// launch creates a server's files and starts it.
func launch(settings []string) (_ *Server, err error) {
	s, err := newServer(settings)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.remove()
		}
	}()
	if err := initialize(); err != nil {
		return nil, err
	}
	if err := s.command("cp", "-a", template.data(), s.data()); err != nil {
		return nil, err
	}
	return s, s.start()
}

// template has the data of a new server, which initdb takes a second to create. [Main] removes it.
var template *Server

var initialize = sync.OnceValue(func() (err error) {
	if template, err = newServer(nil); err != nil {
		return err
	}
	return template.command("initdb", "-D", template.data(), "-U", "postgres", "-A", "trust", "--no-sync", "--encoding=UTF8", "--locale=C", "--lc-ctype=C.UTF-8")
})

// newServer returns a server without data, with its own folder and port.
func newServer(settings []string) (*Server, error) {
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err == nil {
		err = chown(dir)
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return &Server{dir: dir, port: port, settings: settings}, nil
}

// A process takes its ports from a range of its own, below those that the kernel gives to
// connections: a server may need its port seconds later, and again after a restart.
const (
	firstPort       = 15000
	portsPerProcess = 64
	portRanges      = 256
)

var (
	portsTaken atomic.Int32
	portsLock  *flock.Flock // held until this process ends
)

// takePorts returns the first port of a range that no other process has.
var takePorts = sync.OnceValues(func() (int, error) {
	for i := range portRanges {
		n := (os.Getpid() + i) % portRanges
		portsLock = flock.New(filepath.Join(os.TempDir(), fmt.Sprintf("pgtest-ports-%d.lock", n)))
		if taken, err := portsLock.TryLock(); err == nil && taken {
			return firstPort + n*portsPerProcess, nil
		}
	}
	return 0, errors.New("other processes have all ports for tests")
})

// freePort returns a port on which nobody listens.
func freePort() (int, error) {
	first, err := takePorts()
	if err != nil {
		return 0, err
	}
	for range portsPerProcess {
		port := first + int(portsTaken.Add(1))%portsPerProcess
		var free net.Listener
		if free, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, free.Close()
		}
	}
	return 0, err
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) log() string { return filepath.Join(s.dir, "log") }

// Addr returns the host and port on which the server listens.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// URL returns the URL of the server's database.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", s.Addr())
}

// Exec executes a statement in the server's database.
func (s *Server) Exec(t testing.TB, statement string) {
	t.Helper()
	// The test's own context has ended when cleanups run.
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// Log returns what the server has logged since it started.
func (s *Server) Log(t testing.TB) string {
	t.Helper()
	log, err := os.ReadFile(s.log())
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// Kill stops the server as a crash would: with the processes that serve its sessions,
// which would otherwise finish what they are doing.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if s.process == nil {
		return
	}
	pid := s.process.cmd.Process.Pid
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // on Linux
	s.stop(syscall.SIGKILL)
	for child := range strings.FieldsSeq(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL) // unless it has ended by itself
		}
	}
}

// Restart starts a killed server, and waits until it has recovered.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// Standby starts a second server that replicates this one, under a name for
// synchronous_standby_names.
func (s *Server) Standby(t testing.TB, name string) *Server {
	t.Helper()
	standby, err := newServer(s.settings)
	check(t, err)
	t.Cleanup(standby.remove)
	primary := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=%s", s.port, name)
	err = standby.command("pg_basebackup", "-d", primary, "-D", standby.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	if err != nil {
		t.Fatal(err)
	}
	if err := standby.start(); err != nil {
		t.Fatal(err)
	}
	return standby
}

// Promote makes a standby a primary, and waits until it accepts writes. It does so by a
// signal: the snapshot of SELECT pg_promote() can block the recovery that it waits for.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if err := s.command("pg_ctl", "promote", "-D", s.data(), "-w", "-t", fmt.Sprint(startTimeout.Seconds())); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) start() error {
	for deadline := time.Now().Add(startTimeout); ; {
		err := s.startOnce(deadline)
		// After a crash, some of the old processes may still be running.
		if err == nil || !strings.Contains(err.Error(), "shared memory block") || time.Now().After(deadline) {
			return err
		}
	}
}

func (s *Server) startOnce(deadline time.Time) error {
	// A test cannot cut the power, so nothing is lost by not syncing the disk.
	args := []string{"-D", s.data(), "-p", fmt.Sprint(s.port)}
	for _, setting := range slices.Concat([]string{
		"fsync=off", "listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200", "shared_buffers=64MB",
	}, s.settings) {
		args = append(args, "-c", setting)
	}
	cmd, err := command("postgres", args...)
	if err != nil {
		return err
	}
	if s.process, err = run(cmd, s.log()); err != nil {
		return err
	}
	return s.await(deadline)
}

// process is a running program.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has exited
}

// run starts a process that writes to its own log.
func run(cmd *exec.Cmd, logFile string) (*process, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd, make(chan struct{})}
	go func() {
		cmd.Wait() // the log has the reason
		close(p.exited)
	}()
	return p, nil
}

// stop sends the process a signal and waits for its exit.
func (p *process) stop(signal os.Signal) {
	p.cmd.Process.Signal(signal)
	<-p.exited
}

// await waits until the server accepts connections.
func (s *Server) await(deadline time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, s.URL())
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case <-s.process.exited:
			s.process = nil
			log, _ := os.ReadFile(s.log())
			return fmt.Errorf("postgres did not start:\n%s", log)
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop sends the server a signal and waits for its exit.
func (s *Server) stop(signal os.Signal) {
	if s.process == nil {
		return
	}
	s.process.stop(signal)
	s.process = nil
}

// remove stops the server immediately and removes its files.
func (s *Server) remove() {
	s.stop(syscall.SIGQUIT)
	os.RemoveAll(s.dir)
}

// command runs one of PostgreSQL's programs.
func (s *Server) command(name string, args ...string) error {
	cmd, err := command(name, args...)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// command returns one of PostgreSQL's programs, run by a user that may run it.
func command(name string, args ...string) (*exec.Cmd, error) {
	path, err := program(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = os.TempDir()
	cmd.SysProcAttr, err = attributes()
	return cmd, err
}

// program finds the newest version of one of PostgreSQL's programs.
func program(name string) (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		// Two-digit versions sort as text does.
		return slices.Max(found), nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", errNoPostgres
	}
	return path, nil
}
