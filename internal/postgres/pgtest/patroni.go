//go:build linux

package pgtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// clusterSize is how many PostgreSQL servers a cluster has, and how many etcd
	// servers.
	clusterSize = 3
	// wholeTimeout is how long a cluster may take to become whole: a member that
	// was killed has to recover, and to rewind to where its timeline forked.
	wholeTimeout = 5 * time.Minute
)

// Cluster is three PostgreSQL servers under Patroni, and the three etcd servers by
// which they elect a leader. It may be used by one goroutine at a time.
type Cluster struct {
	dir     string // contains everything; the processes work in folders below it
	etcds   []etcd
	members []*Member
	reap    io.Closer     // kills and removes everything, even if this process dies
	reaped  chan struct{} // closed when that is done
}

// etcd is an etcd server of a cluster, with its addresses.
type etcd struct{ name, client, peer string }

// Member is one PostgreSQL server of a [Cluster], with its Patroni.
type Member struct {
	name    string
	dir     string   // contains its configuration, its data and its log
	addr    string   // of PostgreSQL
	api     string   // of Patroni
	patroni *process // nil while it is down
}

// StartCluster starts a cluster and waits until it is whole. The configuration is
// Patroni's dynamic configuration, in YAML. The cluster is removed when the test
// ends.
func StartCluster(t testing.TB, configuration string) *Cluster {
	t.Helper()
	_, noPatroni := exec.LookPath("patroni")
	_, noEtcd := exec.LookPath("etcd")
	if noPatroni != nil || noEtcd != nil {
		check(t, errNoCluster)
	}
	c, err := newCluster(configuration)
	check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			c.logMembers(t)
		}
		c.remove()
	})
	for _, e := range c.etcds {
		if _, err := c.runEtcd(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range c.members {
		m.Restart(t)
	}
	c.AwaitWhole(t)
	return c
}

// newCluster returns a cluster with its own folder and ports. Only the process that
// will kill the others is running.
func newCluster(configuration string) (_ *Cluster, err error) {
	bin, err := program("postgres")
	if err != nil {
		return nil, err
	}
	c := &Cluster{reaped: make(chan struct{})}
	if c.dir, err = os.MkdirTemp("", "pgtest-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(c.dir)
		}
	}()
	addrs, err := freeAddrs(4 * clusterSize)
	if err != nil {
		return nil, err
	}
	for i := range clusterSize {
		own := addrs[4*i:]
		c.etcds = append(c.etcds, etcd{fmt.Sprint("etcd", i+1), own[0], own[1]})
		name := fmt.Sprint("member", i+1)
		c.members = append(c.members, &Member{name: name, dir: filepath.Join(c.dir, name), addr: own[2], api: own[3]})
	}
	for _, e := range c.etcds {
		if err := makeDir(filepath.Join(c.dir, e.name)); err != nil {
			return nil, err
		}
	}
	for _, m := range c.members {
		if err := makeDir(m.dir); err != nil {
			return nil, err
		}
		text := c.memberConfiguration(m, filepath.Dir(bin), configuration)
		if err := os.WriteFile(m.config(), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if err := chown(c.dir); err != nil {
		return nil, err
	}
	return c, c.startReaper()
}

// freeAddrs returns unused addresses.
func freeAddrs(n int) (addrs []string, err error) {
	for range n {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return addrs, nil
}

func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return chown(dir)
}

// reaper waits until its input ends, at the latest with the process at the other
// end, and kills every process that works below a folder: Patroni puts PostgreSQL
// into a session of its own, which would outlive it. Once may not be enough, since
// a process may start another before it is killed.
const reaper = `cat >/dev/null
for round in 1 2 3; do
	for process in /proc/[0-9]*; do
		case $(readlink "$process/cwd") in
		"$1"/*) kill -KILL "${process#/proc/}" ;;
		esac
	done
done 2>/dev/null
rm -rf "$1"`

func (c *Cluster) startReaper() error {
	cmd := exec.Command("sh", "-c", reaper, "sh", c.dir)
	cmd.Dir = os.TempDir()
	var err error
	if cmd.SysProcAttr, err = attributes(); err != nil {
		return err
	}
	// It must outlive the signal that kills the others.
	cmd.SysProcAttr.Pdeathsig = 0
	cmd.SysProcAttr.Setsid = true
	if c.reap, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		cmd.Wait() // nothing can be done if it fails
		close(c.reaped)
	}()
	return nil
}

// remove kills all processes and removes all files.
func (c *Cluster) remove() {
	c.reap.Close()
	<-c.reaped
	os.RemoveAll(c.dir)
}

// memberConfiguration returns the configuration file of a member's Patroni. fsync is
// off because a test cannot cut the power.
func (c *Cluster) memberConfiguration(m *Member, bin, dynamic string) string {
	var hosts []string
	for _, e := range c.etcds {
		hosts = append(hosts, e.client)
	}
	return fmt.Sprintf(`
scope: plants
name: %[1]s
restapi: {listen: '%[2]s', connect_address: '%[2]s'}
etcd3: {hosts: '%[3]s'}
bootstrap:
  initdb: [encoding: UTF8, locale: C, no-sync, data-checksums]
  dcs:
    %[4]s
postgresql:
  listen: '%[5]s'
  connect_address: '%[5]s'
  data_dir: %[6]s
  bin_dir: %[7]s
  pgpass: %[8]s
  authentication:
    superuser: {username: postgres}
    replication: {username: postgres}
  pg_hba: [host all all 127.0.0.1/32 trust, host replication all 127.0.0.1/32 trust]
  parameters: {fsync: 'off', shared_buffers: 64MB, unix_socket_directories: ''}
watchdog: {mode: 'off'}
`, m.name, m.api, strings.Join(hosts, ","), strings.ReplaceAll(strings.TrimSpace(dynamic), "\n", "\n    "),
		m.addr, filepath.Join(m.dir, "data"), bin, filepath.Join(m.dir, "pgpass"))
}

// runEtcd starts an etcd server. Its timeouts are long, because the servers share a
// machine with the tests.
func (c *Cluster) runEtcd(e etcd) (*process, error) {
	var all []string
	for _, e := range c.etcds {
		all = append(all, fmt.Sprintf("%s=http://%s", e.name, e.peer))
	}
	return runIn(filepath.Join(c.dir, e.name), "etcd",
		"--name", e.name, "--data-dir", "data",
		"--listen-client-urls", "http://"+e.client, "--advertise-client-urls", "http://"+e.client,
		"--listen-peer-urls", "http://"+e.peer, "--initial-advertise-peer-urls", "http://"+e.peer,
		"--initial-cluster", strings.Join(all, ","), "--heartbeat-interval", "300", "--election-timeout", "3000")
}

// URL returns a URL that finds the member that accepts writes.
func (c *Cluster) URL() string {
	var hosts []string
	for _, m := range c.members {
		hosts = append(hosts, m.addr)
	}
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&target_session_attrs=read-write", strings.Join(hosts, ","))
}

// AwaitWhole waits until one member leads, the others stream from it, and one of
// them is a synchronous standby. It returns the leader.
func (c *Cluster) AwaitWhole(t testing.TB) *Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wholeTimeout)
	defer cancel()
	for {
		leader, err := c.leader(ctx)
		if err == nil {
			return leader
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the cluster is not whole after %v: %v", wholeTimeout, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// leader returns the leader of a whole cluster, or an error that says what is missing.
func (c *Cluster) leader(ctx context.Context) (*Member, error) {
	var missing error
	for _, m := range c.members {
		roles, err := m.roles(ctx)
		switch {
		case err != nil:
		case roles[m.name] != "leader":
			err = fmt.Errorf("it is a %s", roles[m.name])
		case !hasValue(roles, "sync_standby"):
			err = errors.New("there is no synchronous standby")
		default:
			if err = m.checkStandbys(ctx); err == nil {
				return m, nil
			}
		}
		missing = errors.Join(missing, fmt.Errorf("%s: %w", m.name, err))
	}
	return nil, missing
}

func hasValue(m map[string]string, want string) bool {
	for _, v := range m {
		if v == want {
			return true
		}
	}
	return false
}

// logMembers logs the end of each member's log.
func (c *Cluster) logMembers(t testing.TB) {
	for _, m := range c.members {
		log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
		t.Logf("%s, Patroni and PostgreSQL:\n%s", m.name, log[max(0, len(log)-8<<10):])
	}
}

func (m *Member) config() string { return filepath.Join(m.dir, "patroni.yml") }

// String returns the member's name.
func (m *Member) String() string { return m.name }

// Kill kills PostgreSQL with all its processes, and its Patroni, as a crash of their
// machine would.
func (m *Member) Kill(t testing.TB) {
	t.Helper()
	m.patroni.stop(syscall.SIGKILL)
	m.patroni = nil
	deadline := time.Now().Add(startTimeout)
	for killBelow(m.dir) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("processes of %s do not exit", m.name)
		}
		time.Sleep(time.Millisecond)
	}
}

// killBelow kills all processes that work in the folder or below it, and returns
// how many there were.
func killBelow(dir string) (found int) {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		cwd, err := os.Readlink(filepath.Join(p, "cwd"))
		if err != nil || (cwd != dir && !strings.HasPrefix(cwd, dir+"/")) {
			continue // another process, or one that has exited
		}
		if pid, err := strconv.Atoi(filepath.Base(p)); err == nil {
			syscall.Kill(pid, syscall.SIGKILL)
			found++
		}
	}
	return found
}

// Restart starts the Patroni of a killed member, which does the rest.
func (m *Member) Restart(t testing.TB) {
	t.Helper()
	var err error
	if m.patroni, err = runIn(m.dir, "patroni", m.config()); err != nil {
		t.Fatal(err)
	}
}

// roles returns the role of each member according to this member's Patroni.
func (m *Member) roles(ctx context.Context) (map[string]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.api+"/cluster", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var cluster struct{ Members []struct{ Name, Role string } }
	if err := json.NewDecoder(res.Body).Decode(&cluster); err != nil {
		return nil, err
	}
	roles := make(map[string]string)
	for _, other := range cluster.Members {
		roles[other.Name] = other.Role
	}
	return roles, nil
}

// checkStandbys fails unless all other members stream from this one, at least one of
// them synchronously.
func (m *Member) checkStandbys(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&target_session_attrs=read-write", m.addr))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var streaming, synchronous int
	const count = `SELECT count(*), count(*) FILTER (WHERE sync_state = 'sync')
		FROM pg_stat_replication WHERE state = 'streaming' AND application_name LIKE 'member%'`
	if err := conn.QueryRow(ctx, count).Scan(&streaming, &synchronous); err != nil {
		return err
	}
	if streaming != clusterSize-1 || synchronous == 0 {
		return fmt.Errorf("%d members stream from it, %d of them synchronously", streaming, synchronous)
	}
	return nil
}

// runIn starts a program in the folder, where it writes its log.
func runIn(dir, name string, args ...string) (*process, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var err error
	if cmd.SysProcAttr, err = attributes(); err != nil {
		return nil, err
	}
	return run(cmd, filepath.Join(dir, "log"))
}
