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
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &Pooler{dir: dir}
	if p.port, err = freePort(); err != nil {
		t.Fatal(err)
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
		t.Fatal(err)
	}
	if err := chown(dir); err != nil {
		t.Fatal(err)
	}
	p.start(t)
	t.Cleanup(func() { p.process.stop(syscall.SIGQUIT) })
	return p
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
	p.process.stop(syscall.SIGKILL)
	p.start(t)
}

func (p *Pooler) start(t testing.TB) {
	t.Helper()
	cmd := exec.Command("pgbouncer", p.config())
	cmd.Dir = p.dir
	var err error
	if cmd.SysProcAttr, err = attributes(); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(p.dir, "log")
	if p.process, err = run(cmd, log); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, p.URL())
		if err == nil {
			c.Close(ctx)
			return
		}
		select {
		case <-p.process.exited:
			text, _ := os.ReadFile(log)
			t.Fatalf("pgbouncer did not start:\n%s", text)
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
