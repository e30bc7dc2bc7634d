package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/testenv"
)

// Pooler is a PgBouncer in front of a server. Each transaction may get another one of its
// few connections. It may be used by one goroutine at a time.
type Pooler struct {
	dir     string // contains its configuration and its log
	port    int
	process *process
}

// Pooler starts a pooler for all databases of the server, which is removed when the test
// ends.
func (s *Server) Pooler(t testing.TB) *Pooler {
	t.Helper()
	testenv.NeedsProgram(t, "pgbouncer")
	p, err := s.launchPooler()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.remove)
	return p
}

// launchPooler creates a pooler's files and starts it.
func (s *Server) launchPooler() (_ *Pooler, err error) {
	p := &Pooler{}
	if p.dir, err = os.MkdirTemp("", "pgtest-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.remove()
		}
	}()
	if p.port, err = freePort(); err != nil {
		return nil, err
	}
	config := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
`, s.port, p.port)
	if err := os.WriteFile(p.config(), []byte(config), 0o644); err != nil {
		return nil, err
	}
	if err := chown(p.dir); err != nil {
		return nil, err
	}
	return p, p.start()
}

// remove stops the pooler and removes its files.
func (p *Pooler) remove() {
	if p.process != nil {
		p.process.stop(syscall.SIGQUIT)
	}
	os.RemoveAll(p.dir)
}

func (p *Pooler) config() string { return filepath.Join(p.dir, "pgbouncer.ini") }

// URL returns the URL of the server's database, through the pooler.
func (p *Pooler) URL() string { return p.Database("postgres") }

// Database returns the URL of another database.
func (p *Pooler) Database(name string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", p.port, name)
}

// Restart ends all connections, whatever they are used for, and starts the pooler again.
func (p *Pooler) Restart(t testing.TB) {
	t.Helper()
	if err := p.restart(); err != nil {
		t.Fatal(err)
	}
}

func (p *Pooler) restart() error {
	p.process.stop(syscall.SIGKILL)
	return p.start()
}

func (p *Pooler) start() error {
	cmd := exec.Command("pgbouncer", p.config())
	cmd.Dir = p.dir
	var err error
	if cmd.SysProcAttr, err = attributes(); err != nil {
		return err
	}
	log := filepath.Join(p.dir, "log")
	if p.process, err = run(cmd, log); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, p.URL())
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case <-p.process.exited:
			text, _ := os.ReadFile(log)
			return fmt.Errorf("pgbouncer did not start:\n%s", text)
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// restarting is a pooler that is killed and restarted until end is called.
type restarting struct {
	pooler  *Pooler
	stop    chan struct{}
	stopped chan error
}

func (s *Server) restartingPooler() (*restarting, error) {
	p, err := s.launchPooler()
	if err != nil {
		return nil, err
	}
	r := &restarting{p, make(chan struct{}), make(chan error, 1)}
	go func() { r.stopped <- r.run() }()
	return r, nil
}

// run leaves the pooler alone for long enough that most transactions succeed, and now and then
// for long enough that the longest do on a busy machine.
func (r *restarting) run() error {
	for n := 0; ; n++ {
		alone := 500 * time.Millisecond
		if n%5 == 4 {
			alone = 3 * time.Second
		}
		select {
		case <-r.stop:
			fmt.Printf("PgBouncer was restarted %d times\n", n)
			return nil
		case <-time.After(alone):
		}
		if err := r.pooler.restart(); err != nil {
			fmt.Fprintln(os.Stderr, "no test can succeed any more:", err)
			return err
		}
	}
}

func (r *restarting) end() error {
	close(r.stop)
	defer r.pooler.remove()
	return <-r.stopped
}
