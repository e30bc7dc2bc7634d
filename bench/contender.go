package main

import (
	"database/sql"
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
	"time"

	_ "modernc.org/sqlite"
)

// token is the token of every contender that lets us choose it.
const token = "bench-bootstrap-token-0123456789abcdef"

// contender is a server that is measured.
type contender struct {
	name      string
	addrs     []string // one per replica
	path      string   // where the plants are
	token     string
	dialect   string
	servers   []*process
	dir       string
	processes []*process // the servers, and the database if there is one
	database  *postgres  // nil if there is none

	// count returns how many plants are in the store, after the servers have stopped.
	// It is nil if the contender stores nothing.
	count func() (int64, error)
	// fill puts the first n random plants into the store.
	fill func(n int) error
	// backlog returns how many plants have not reached their table yet. It is nil if
	// plants go there at once.
	backlog func() (int64, error)
	// restart starts the servers again, with other flags.
	restart func(flags ...string) error

	preloaded    int64
	acknowledged int64
	maybeStored  int64 // requests for which no response was counted
}

// kind says how to start a contender.
type kind struct {
	name  string
	start func(b *bench, c *contender) error
}

// reference is the handler that does nothing, with which everything is compared.
var reference = kind{"no-op net/http handler", startNoop}

const (
	ours         = "Plantstore, SQLite"
	oursPostgres = "Plantstore, PostgreSQL"
	oursReplicas = "Plantstore, PostgreSQL, two replicas"

	oursBare     = "Plantstore, SQLite, bare"
	oursObserved = "Plantstore, SQLite, observed"

	plainSQLite   = "plain Go, SQLite"
	plainPostgres = "plain Go, PostgreSQL"
)

// kinds lists everything that is compared with the reference.
var kinds = []kind{
	{"nginx, constant response", startNginx},
	{ours, func(b *bench, c *contender) error { return startOurs(b, c, current) }},
	{oursPostgres, func(b *bench, c *contender) error { return startOursPostgres(b, c, current, 1) }},
	{oursReplicas, func(b *bench, c *contender) error { return startOursPostgres(b, c, current, 2) }},
	{plainSQLite, startPlain},
	{plainPostgres, startPlainPostgres},
	{"Fastify, better-sqlite3", startFastify},
	{"PocketBase, default", func(b *bench, c *contender) error { return startPocketBase(b, c, false) }},
	{"PocketBase, synchronous FULL", func(b *bench, c *contender) error { return startPocketBase(b, c, true) }},
}

// observedKinds shows what it costs to watch and to limit: without any limit, and with an
// access log, a limit for each token, and a scrape of the metrics every second.
var observedKinds = []kind{
	{oursBare, func(b *bench, c *contender) error {
		return startOurs(b, c, current, "--auth-failures", "off", "--max-connections", "0")
	}},
	{oursObserved, func(b *bench, c *contender) error {
		if err := startOurs(b, c, current, "--access-log", "--rate-limit", "1000000/s"); err != nil {
			return err
		}
		go scrape(c.addrs[0], c.token, c.servers[0].exited)
		return nil
	}},
}

// scrape gets the metrics every second until the server has ended.
func scrape(addr, token string, exited <-chan struct{}) {
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-exited:
			tick.Stop()
			return
		case <-tick.C:
		}
		r, err := http.NewRequest(http.MethodGet, "http://"+addr+"/metrics", nil)
		if err != nil {
			panic(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		if response, err := http.DefaultClient.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
	}
}

// The binaries of Plantstore: of this checkout, and of an earlier commit.
const (
	current = "plantstore"
	earlier = "plantstore-earlier"
)

// earlierKinds returns the contenders that run the binary of an earlier commit, by the
// names of those that they are compared with.
func earlierKinds(commit string) map[string]kind {
	named := func(name string, start func(*bench, *contender) error) kind {
		return kind{strings.Replace(name, "Plantstore", "Plantstore at "+commit, 1), start}
	}
	return map[string]kind{
		ours:         named(ours, func(b *bench, c *contender) error { return startOurs(b, c, earlier) }),
		oursPostgres: named(oursPostgres, func(b *bench, c *contender) error { return startOursPostgres(b, c, earlier, 1) }),
		oursReplicas: named(oursReplicas, func(b *bench, c *contender) error { return startOursPostgres(b, c, earlier, 2) }),
	}
}

// stores reports whether the contender stores plants.
func (c *contender) stores() bool { return c.count != nil }

// serve starts a server of the contender, which prints where it listens.
func (c *contender) serve(cmd *exec.Cmd) error {
	cmd.Env = append(os.Environ(), "TOKEN="+token, "PLANTSTORE_BOOTSTRAP_TOKEN="+token, "PLANTSTORE_WEBHOOK_ALLOW=127.0.0.0/8")
	p, err := launch(filepath.Join(c.dir, fmt.Sprintf("server-%d.log", len(c.servers))), cmd)
	if err != nil {
		return err
	}
	c.servers, c.processes = append(c.servers, p), append(c.processes, p)
	at, err := p.waitForEndpoint()
	if err != nil {
		return err
	}
	c.addrs = append(c.addrs, at.Addr)
	if at.Token != "" {
		c.token = at.Token
	}
	return nil
}

// stop stops all processes of the contender, the servers first.
func (c *contender) stop(signal os.Signal) {
	for _, p := range c.processes {
		p.stop(signal)
	}
}

// verify stops the contender and compares what it stored with what it acknowledged.
func (c *contender) verify() error {
	for _, p := range c.servers {
		p.stop(syscall.SIGTERM)
	}
	defer c.stop(syscall.SIGINT)
	if !c.stores() {
		return nil
	}
	n, err := c.count()
	if err != nil {
		return fmt.Errorf("count the plants of %s: %w", c.name, err)
	}
	// At the end, wrk does not wait for the responses to requests in flight.
	want := c.preloaded + c.acknowledged
	if n < want || n > want+c.maybeStored {
		return fmt.Errorf("%s has %d plants, but acknowledged %d", c.name, n, want)
	}
	return nil
}

func startNoop(b *bench, c *contender) error {
	return c.serve(exec.Command(b.built("noop")))
}

func startNginx(b *bench, c *contender) error {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		nginx = "/usr/sbin/nginx"
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := free.Addr().String()
	free.Close()
	config := filepath.Join(c.dir, "nginx.conf")
	err = os.WriteFile(config, []byte(fmt.Sprintf(`daemon off;
worker_processes 2;
pid %[1]s/nginx.pid;
error_log stderr crit;
events { worker_connections 4096; }
http {
	access_log off;
	client_body_temp_path %[1]s;
	proxy_temp_path %[1]s;
	fastcgi_temp_path %[1]s;
	uwsgi_temp_path %[1]s;
	scgi_temp_path %[1]s;
	keepalive_requests 1000000000;
	server {
		listen %[2]s backlog=4096;
		default_type application/json;
		location / { return 200 '{"name":"Monstera deliciosa","tag":"tropical"}'; }
	}
}
`, c.dir, addr)), 0o600)
	if err != nil {
		return err
	}
	p, err := launch(filepath.Join(c.dir, "nginx.log"), exec.Command(nginx, "-c", config, "-p", c.dir))
	if err != nil {
		return err
	}
	c.servers, c.processes, c.addrs = []*process{p}, []*process{p}, []string{addr}
	for range 100 {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			return conn.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return p.failed()
}

func startOurs(b *bench, c *contender, binary string, flags ...string) error {
	db := filepath.Join(c.dir, "plants.db")
	addr := "127.0.0.1:0"
	start := func(flags ...string) error {
		args := append([]string{"serve", "--addr", addr, "--db", db, "--log-format", "json"}, flags...)
		return c.serve(exec.Command(b.built(binary), args...))
	}
	if err := start(flags...); err != nil {
		return err
	}
	c.count = func() (int64, error) { return countSQLite(db, "SELECT count(*) FROM plants") }
	c.backlog = func() (int64, error) {
		return countSQLite(db, "SELECT max(0, coalesce((SELECT max(seq) FROM log), 0) - flushed) FROM log_state")
	}
	c.fill = func(n int) error { return c.importPlants(b, preload(n)) }
	c.restart = func(flags ...string) error {
		c.stop(syscall.SIGTERM)
		addr, c.servers, c.processes, c.addrs = c.addrs[0], nil, nil, nil
		return start(flags...)
	}
	return nil
}

func startOursPostgres(b *bench, c *contender, binary string, replicas int) error {
	db, err := startPostgres(c.dir)
	if err != nil {
		return err
	}
	c.processes, c.database = []*process{db.process}, db
	url, err := b.distantURL(db)
	if err != nil {
		return err
	}
	c.count = db.count
	c.fill = func(n int) error { return c.importPlants(b, preload(n)) }
	c.restart = func(flags ...string) error {
		for _, p := range c.servers {
			p.stop(syscall.SIGTERM)
		}
		c.servers, c.processes, c.addrs = nil, []*process{db.process}, nil
		for range replicas {
			args := append([]string{"serve", "--addr", "127.0.0.1:0", "--db", url, "--log-format", "json"}, flags...)
			if err := c.serve(exec.Command(b.built(binary), args...)); err != nil {
				return err
			}
		}
		return nil
	}
	return c.restart()
}

// importPlants fills a Plantstore the way a user would.
func (c *contender) importPlants(b *bench, plants func(yield func(plant) bool)) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	go func() {
		_ = writeLines(write, plants) // an import that fails reports that itself
		write.Close()
	}()
	_, err = b.plantstore(c, read, "import", "-")
	return err
}

func startPlain(b *bench, c *contender) error {
	db := filepath.Join(c.dir, "plants.db")
	if err := c.serve(exec.Command(b.built("plain"), "-db", db)); err != nil {
		return err
	}
	c.count = func() (int64, error) { return countSQLite(db, "SELECT count(*) FROM plants") }
	c.fill = func(n int) error {
		return c.refill(db, n, "INSERT INTO plants (id, name, tag) VALUES (?, ?, ?)", func(p plant) any { return p.id },
			func() error { return c.serve(exec.Command(b.built("plain"), "-db", db)) })
	}
	return nil
}

func startPlainPostgres(b *bench, c *contender) error {
	db, err := startPostgres(c.dir)
	if err != nil {
		return err
	}
	c.processes = []*process{db.process}
	c.count, c.fill = db.count, db.fill
	url, err := b.distantURL(db)
	if err != nil {
		return err
	}
	return c.serve(exec.Command(b.built("plain"), "-db", url))
}

func startFastify(b *bench, c *contender) error {
	db := filepath.Join(c.dir, "plants.db")
	start := func() error {
		return c.serve(exec.Command("node", filepath.Join(b.fastify, "server.js"), db))
	}
	if err := start(); err != nil {
		return err
	}
	c.count = func() (int64, error) { return countSQLite(db, "SELECT count(*) FROM plants") }
	c.fill = func(n int) error {
		return c.refill(db, n, "INSERT INTO plants (id, name, tag) VALUES (?, ?, ?)", func(p plant) any { return p.id }, start)
	}
	return nil
}

func startPocketBase(b *bench, c *contender, full bool) error {
	c.path, c.dialect = "/api/collections/plants/records", "pocketbase"
	db := filepath.Join(c.dir, "data.db")
	start := func() error {
		return c.serve(exec.Command(b.built("pocketbase"), "-dir", c.dir, "-full="+strconv.FormatBool(full)))
	}
	if err := start(); err != nil {
		return err
	}
	c.count = func() (int64, error) { return countSQLite(db, "SELECT count(*) FROM plants") }
	c.fill = func(n int) error {
		return c.refill(db, n, "INSERT INTO plants (id, name, tag) VALUES (?, ?, ?)", func(p plant) any { return strconv.FormatInt(p.id, 10) }, start)
	}
	return nil
}

// refill stops the server, puts plants into its SQLite file, and starts it again.
func (c *contender) refill(db string, n int, insert string, id func(plant) any, start func() error) error {
	c.stop(syscall.SIGTERM)
	c.servers, c.processes, c.addrs = nil, nil, nil
	if err := fillSQLite(db, n, insert, id); err != nil {
		return err
	}
	return start()
}

func fillSQLite(path string, n int, insert string, id func(plant) any) error {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(OFF)&_pragma=cache_size(-200000)")
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	stmt, err := tx.Prepare(insert)
	if err != nil {
		return err
	}
	for p := range preload(n) {
		if _, err := stmt.Exec(id(p), p.name, p.tag); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func countSQLite(path, query string) (n int64, err error) {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	err = db.QueryRow(query).Scan(&n)
	return n, err
}

// plantstore runs the plantstore command as a client of the contender, and returns its
// output.
func (b *bench) plantstore(c *contender, in *os.File, args ...string) (string, error) {
	cmd := exec.Command(b.built(current), args...)
	cmd.Env = append(os.Environ(), "PLANTSTORE_URL=http://"+c.addrs[0], "PLANTSTORE_TOKEN="+c.token)
	if in == nil {
		return output(cmd, strings.NewReader(""))
	}
	return output(cmd, in)
}
