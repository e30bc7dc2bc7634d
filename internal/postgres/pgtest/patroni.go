//go:build linux

package pgtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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
	// clusterSize is how many PostgreSQL servers a cluster has, and how many etcd.
	clusterSize = 3
	// wholeTimeout is how long a cluster may take to become whole: a member that
	// was killed has to recover, and to go back to where the others part from it.
	wholeTimeout = 2 * time.Minute
)

// Cluster is three PostgreSQL servers under Patroni, and the three etcd by which
// they agree on who leads. It may be used by one goroutine at a time.
type Cluster struct {
	dir     string // holds everything; its processes work in folders below it
	etcds   []etcd
	members []*Member
	bury    io.Closer // has everything ended and removed, also if this process dies
	buried  chan struct{}
}

// etcd is one of those of a cluster. These are its addresses.
type etcd struct{ name, client, peer string }

// Member is one PostgreSQL server of a [Cluster], with its Patroni.
type Member struct {
	name    string
	dir     string   // holds its configuration, its data and its log
	addr    string   // of PostgreSQL
	api     string   // of Patroni
	patroni *process // nil while it is down
}

// StartCluster starts a cluster and waits until it is whole. The configuration is
// what Patroni calls the dynamic one, in YAML. The cluster is removed when the
// test ends.
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
			c.tell(t)
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

// newCluster returns a cluster in a folder and on ports of its own. Nothing of it
// runs but the process that will end the others.
func newCluster(configuration string) (_ *Cluster, err error) {
	bin, err := program("postgres")
	if err != nil {
		return nil, err
	}
	c := &Cluster{buried: make(chan struct{})}
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
	if err := giveAway(c.dir); err != nil {
		return nil, err
	}
	return c, c.startBurial()
}

// freeAddrs returns addresses on which nobody listens.
func freeAddrs(n int) (addrs []string, err error) {
	for range n {
		free, listenErr := net.Listen("tcp", "127.0.0.1:0")
		if listenErr != nil {
			return nil, listenErr
		}
		// Only at the end, so that each is another.
		defer func() { err = errors.Join(err, free.Close()) }()
		addrs = append(addrs, free.Addr().String())
	}
	return addrs, nil
}

func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return giveAway(dir)
}

// burial waits until its input ends, which it does with the process that has the
// other end, and kills all that works below a folder: Patroni puts its PostgreSQL
// into a session of its own, which would go on without it. Once may not be enough,
// as one that is killed may have started another.
const burial = `cat >/dev/null
for round in 1 2 3; do
	for process in /proc/[0-9]*; do
		case $(readlink "$process/cwd") in
		"$1"/*) kill -KILL "${process#/proc/}" ;;
		esac
	done
done 2>/dev/null
rm -rf "$1"`

func (c *Cluster) startBurial() error {
	cmd := exec.Command("sh", "-c", burial, "sh", c.dir)
	cmd.Dir = os.TempDir()
	var err error
	if cmd.SysProcAttr, err = attributes(); err != nil {
		return err
	}
	// It outlives what kills the others.
	cmd.SysProcAttr.Pdeathsig = 0
	cmd.SysProcAttr.Setsid = true
	if c.bury, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		cmd.Wait() // there is nothing to be done if it fails
		close(c.buried)
	}()
	return nil
}

// remove ends all processes at once and removes all files.
func (c *Cluster) remove() {
	c.bury.Close()
	<-c.buried
	os.RemoveAll(c.dir)
}

// memberConfiguration returns what Patroni reads. Of PostgreSQL's parameters it
// has only those that suit a test, which cannot cut the power.
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

// runEtcd starts an etcd. It is patient with the others, because they share a
// machine that tests keep busy.
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

// URL returns a URL that finds the member that takes writes.
func (c *Cluster) URL() string {
	var hosts []string
	for _, m := range c.members {
		hosts = append(hosts, m.addr)
	}
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&target_session_attrs=read-write", strings.Join(hosts, ","))
}

// AwaitWhole waits until a member leads, the others stream from it, and one of
// them is the synchronous standby that would be next. It returns the leader.
func (c *Cluster) AwaitWhole(t testing.TB) *Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wholeTimeout)
	defer cancel()
	for {
		leader, err := c.look(ctx)
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

// look returns the leader of a cluster that is whole, or says what is amiss.
func (c *Cluster) look(ctx context.Context) (*Member, error) {
	var amiss error
	for _, m := range c.members {
		roles, err := m.roles(ctx)
		switch {
		case err != nil:
		case roles[m.name] != "leader":
			err = fmt.Errorf("it is a %s", roles[m.name])
		case !hasValue(roles, "sync_standby"):
			err = errors.New("there is no synchronous standby")
		default:
			if err = m.isFollowed(ctx); err == nil {
				return m, nil
			}
		}
		amiss = errors.Join(amiss, fmt.Errorf("%s: %w", m.name, err))
	}
	return nil, amiss
}

func hasValue(m map[string]string, want string) bool {
	for _, v := range m {
		if v == want {
			return true
		}
	}
	return false
}

// tell logs the end of what the members said.
func (c *Cluster) tell(t testing.TB) {
	for _, m := range c.members {
		log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
		t.Logf("%s, Patroni and PostgreSQL:\n%s", m.name, log[max(0, len(log)-8<<10):])
	}
}

func (m *Member) config() string { return filepath.Join(m.dir, "patroni.yml") }

// String returns the member's name.
func (m *Member) String() string { return m.name }

// Kill ends PostgreSQL with all its processes, and its Patroni, as the end of
// their machine would.
func (m *Member) Kill(t testing.TB) {
	t.Helper()
	m.patroni.end(syscall.SIGKILL)
	m.patroni = nil
	deadline := time.Now().Add(startTimeout)
	for killBelow(m.dir) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("processes of %s do not end", m.name)
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
			continue // or it has ended
		}
		if pid, err := strconv.Atoi(filepath.Base(p)); err == nil {
			syscall.Kill(pid, syscall.SIGKILL)
			found++
		}
	}
	return found
}

// Restart starts the Patroni of a member that was killed, which does the rest.
func (m *Member) Restart(t testing.TB) {
	t.Helper()
	var err error
	if m.patroni, err = runIn(m.dir, "patroni", m.config()); err != nil {
		t.Fatal(err)
	}
}

// roles returns which role each member has, as this one's Patroni knows it.
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

// isFollowed fails unless all other members stream from this one, which waits for
// one of them.
func (m *Member) isFollowed(ctx context.Context) error {
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

// runIn starts a program that works in the folder and writes its log there.
func runIn(dir, name string, args ...string) (*process, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var err error
	if cmd.SysProcAttr, err = attributes(); err != nil {
		return nil, err
	}
	return run(cmd, filepath.Join(dir, "log"))
}
