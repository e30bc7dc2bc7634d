// Package postgres keeps the store in a PostgreSQL database, which any number of
// servers share: the store for when one machine is not enough.
//
// # Failover
//
// Opening the store needs no database server. The store connects when it is used,
// always to a server that accepts writes, and reconnects when a connection is lost,
// so a URL with several hosts follows the primary of a cluster. Requests that arrive
// in the meantime wait, up to a bound.
//
// With synchronous replication no acknowledged write is lost, whatever the order in
// which servers fail. A commit waits for the standby but a read does not, so Apply
// returns only after a commit that follows everything it read.
//
// # Tokens
//
// A revocation takes effect everywhere because auth.Guard reads the active tokens once a
// second. LISTEN would save that small query, but would need it again after every
// lost connection. It also needs a dedicated connection, which poolers do not provide.
//
// # Connections
//
// The store opens no more than it was given. Four pools share them, each with a part of its own,
// so that short calls never wait for long ones. Which connection a call gets does not
// matter: idle ones are there for all pools. If the server refuses to open another one, a call
// waits for one that is open.
//
// # Poolers
//
// Nothing outlives a transaction, so that a pooler may give each to another connection:
// settings are local to theirs, and what has to be locked is a row. Only the names of
// prepared statements would, so the store uses none if it finds a pooler.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"plantstore"
	"plantstore/internal/rules"
)

const (
	// connectTimeout is how long a host may take to accept a connection, unless
	// the URL says otherwise.
	connectTimeout = 3 * time.Second
	// callTimeout is how long a server may take for a call before the store assumes
	// that it is dead and looks for another.
	callTimeout = 10 * time.Second
	// closeTimeout is how long Close waits for the connections to close.
	closeTimeout = 5 * time.Second
	// pingTimeout is how long an idle connection may take to prove that it is alive.
	pingTimeout = 2 * time.Second
	// idleTimeout is how long a connection may be idle before it is given back, and idleCheck
	// how often that is checked.
	idleTimeout = 30 * time.Second
	idleCheck   = 5 * time.Second
)

// Options adjust a [Store]. The zero value of a field stands for its default.
type Options struct {
	// StoreTimeout is how long a read, or a change to a token or webhook, waits for a
	// server to come back: 30 s. The caller of Apply sets its own timeout.
	StoreTimeout time.Duration
	// Connections is how many connections the store may open: 19, and 4 at least.
	Connections int
	// Existing requires that the database has a store. If it has none, every call fails
	// with fs.ErrNotExist and creates nothing.
	Existing bool
	// Alongside is for commands beside a server: they migrate no store. Every call fails with
	// ErrOlderSchema if that is needed.
	Alongside bool
	// Log receives a record of each step of a migration, one when a newer release has made
	// the store refuse everything, and from Run when the server becomes unavailable, and
	// when it is available again.
	Log *slog.Logger
	// Trace, if set, is called before every statement, every batch of statements and
	// every wait for a connection, with its name and, for a single statement, its text,
	// which has placeholders for values. It returns a context for the operation, and a
	// function to call at its end, or nil if the context is not traced.
	Trace func(ctx context.Context, name, sql string) (context.Context, func(error))
}

// Store is a [plantstore.Store] in a PostgreSQL database. It never returns
// ErrUntrusted: a server that cannot sync its disk stops by itself.
type Store struct {
	opts        Options
	name        string // where the store is, without user and password
	callTimeout time.Duration
	conns       *pgxpool.Pool
	write       *pool         // for everything that writes
	lookups     *pool         // for short calls: single plants, tokens, webhooks, readiness
	list        *pool         // for lists, searches and pages of events
	export      *pool         // for scans
	pools       []*pool       // all of them
	released    chan struct{} // receives when a connection is released, if a call waits for that
	reads       coalescer
	pooled      atomic.Bool // the connections are those of a pooler

	migrating chan struct{}         // holds a token while a call checks or migrates the schema
	migrated  atomic.Bool           // the schema was found to be one that this release may use
	used      atomic.Bool           // it was so at some time
	newer     atomic.Pointer[error] // why this release may not use it

	roundTrip atomic.Int64 // see RoundTrip

	lastTime  atomic.Int64 // the time of the last event that this server knows
	foundText atomic.Int64 // bytes of text of each plant that the last plan found, on average
	idsTaken  atomic.Bool  // the last batch of creates had an id that was taken
	changes   rules.Notifier

	// logAge and logBytes say how much of the log is kept.
	logAge   time.Duration
	logBytes int64

	indexNames rules.IndexMode // when there is an index of names
	indexed    atomic.Bool     // there is one, or a part of it
	building   atomic.Bool     // this server builds it
	unmerged   atomic.Int64    // bytes of names that this server has added to it since they were merged last

	clock      *rules.Clock // of the database's server
	selectTime string       // reads it

	// trimSize is how many events the next transaction trims, and the rest of the last
	// one's row, and trimFails says that the last transaction failed. Only the trimmer
	// uses them.
	trimSize  int64
	trimFails bool
}

var _ plantstore.Store = (*Store)(nil)

// Open returns the store in the database at a postgres:// URL. It does not connect,
// so it fails only if the URL is invalid. The first use connects, and creates or
// migrates the schema. No error that a store returns contains the URL's password.
//
// Of several hosts, the store uses the one that accepts writes, even if the URL does not set
// target_session_attrs=read-write. Statements are prepared by name unless there is a pooler in
// between, or the URL sets default_query_exec_mode.
func Open(url string, opts Options) (*Store, error) {
	config, err := parse(url)
	if err != nil {
		return nil, err
	}
	if opts.Trace != nil {
		config.ConnConfig.Tracer = tracer(opts.Trace)
	}
	opts.StoreTimeout = cmp.Or(opts.StoreTimeout, 30*time.Second)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	s := &Store{
		opts:        opts,
		name:        name(config.ConnConfig),
		callTimeout: callTimeout,
		released:    make(chan struct{}),
		reads:       coalescer{inFlight: make(chan struct{}, maxReadsInFlight)},
		migrating:   make(chan struct{}, 1),
		clock:       rules.NewClock("database", nil, opts.Log),
		selectTime:  "SELECT clock_timestamp()",
		trimSize:    maxTrim,
	}
	s.KeepLog(0, 0)
	if !strings.Contains(url, "default_query_exec_mode=") {
		config.BeforeConnect, config.AfterConnect = s.chooseMode, s.findPooler
	}
	connections := max(minConnections, cmp.Or(opts.Connections, defaultConnections))
	s.pools = newPools(connections)
	s.write, s.lookups, s.list, s.export = s.pools[0], s.pools[1], s.pools[2], s.pools[3]
	config.MaxConns = int32(connections)
	if s.conns, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return nil, err
	}
	return s, nil
}

// String returns where the store is, without its user and password.
func (s *Store) String() string { return s.name }

// Close closes all connections. It does not wait long for a server that hangs:
// everything that was acknowledged is on disk.
func (s *Store) Close() error {
	closed := make(chan struct{})
	go func() {
		s.conns.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
	}
	return nil
}

// Ready returns nil if a server that accepts writes responds and has a schema that this
// release may write to.
func (s *Store) Ready(ctx context.Context) error {
	return s.withConn(ctx, s.lookups, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, fence)
		return err
	})
}

// CheckAccess connects, and returns PostgreSQL's reason if it refuses the user or has no such
// database. If it cannot be reached, that is no error yet: every call tries again.
func (s *Store) CheckAccess(ctx context.Context) error {
	err := s.withPooledConn(ctx, s.write, func(context.Context, *pgx.Conn) error { return nil })
	if reason := refusal(err); reason != nil {
		return fmt.Errorf("%s: %w", s.name, reason)
	}
	return nil
}

func parse(url string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil || isAmbiguous(url) {
		return nil, urlError(url)
	}
	config.MaxConnIdleTime, config.HealthCheckPeriod = idleTimeout, idleCheck
	config.PingTimeout = cmp.Or(config.PingTimeout, pingTimeout)
	conn := config.ConnConfig
	if conn.ValidateConnect == nil {
		conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	conn.ConnectTimeout = cmp.Or(conn.ConnectTimeout, connectTimeout)
	// A machine that loses power neither responds nor closes its connections: keep-alive
	// probes find that out within ten seconds. They are not sent while a request is
	// unacknowledged, so every call has a timeout too.
	dialer := net.Dialer{
		Timeout:         conn.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 4 * time.Second, Interval: 2 * time.Second, Count: 3},
	}
	conn.DialFunc = dialer.DialContext
	conn.RuntimeParams["application_name"] = cmp.Or(conn.RuntimeParams["application_name"], "plantstore")
	conn.OnNotice = recordWarning
	return config, nil
}

// isAmbiguous reports whether a URL has an @ anywhere but in front of its hosts. It
// is then likely part of a password, and the rest of the password would be taken
// for a host or a database and shown as such.
func isAmbiguous(url string) bool {
	_, rest, _ := strings.Cut(url, "://")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	return strings.Count(rest[:end], "@") > 1 || strings.Contains(rest[end:], "@")
}

// urlError says what is wrong with a URL. The driver's message may contain a
// malformed password, so the driver is given only the part after it.
func urlError(url string) error {
	const shape = "the store's URL must look like postgres://user:password@host:5432/database; " +
		"in a password, write %25 for %, %2F for /, %3A for : and %40 for @"
	i := strings.LastIndex(url, "@")
	if i < 0 || strings.Contains(url[i:], "password") {
		return errors.New(shape)
	}
	if _, err := pgxpool.ParseConfig("postgres://" + url[i+1:]); err != nil {
		return errors.New(strings.Replace(err.Error(), "postgres://", "postgres://…@", 1))
	}
	return errors.New(shape)
}

func name(c *pgx.ConnConfig) string {
	join := func(host string, port uint16) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
	hosts := []string{join(c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		// A host is listed twice where TLS is optional.
		if host := join(f.Host, f.Port); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return fmt.Sprintf("postgres://%s/%s", strings.Join(hosts, ","), c.Database)
}

// errPooled says that a connection was found to be a pooler's, and is not used.
var errPooled = errors.New("the connection is that of a pooler")

// chooseMode has a new connection prepare statements by name, unless a pooler was found:
// the next transaction may be on another connection, which does not know the name.
func (s *Store) chooseMode(_ context.Context, c *pgx.ConnConfig) error {
	if s.pooled.Load() {
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return nil
}

// findPooler returns errPooled if a new connection would prepare statements by name and is
// that of a pooler. Each pooler gives its clients keys of its own to cancel statements with,
// because they share connections, and a key begins with the number of a process.
func (s *Store) findPooler(ctx context.Context, c *pgx.Conn) error {
	if c.Config().DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		return nil
	}
	var pid int32
	if err := c.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return err
	}
	if uint32(pid) == c.PgConn().PID() {
		return nil
	}
	s.pooled.Store(true)
	return errPooled
}

// errNotReplicated says that a commit did not wait for the standbys.
var errNotReplicated = errors.New("the wait for a synchronous standby was cancelled")

// warned is the key of a warning in a connection's custom data.
const warned = "warned"

// recordWarning records the warning that a server sends when a commit's wait for
// the standbys is cancelled. The commit itself does not fail.
func recordWarning(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" && n.Code == "01000" {
		c.CustomData()[warned] = true
	}
}

// withConn runs f with a connection to a server that has the current schema, for no
// longer than the limit, unless that is 0, and classifies its error. A transaction
// that f leaves open is rolled back.
func (s *Store) withConn(ctx context.Context, p *pool, limit time.Duration, f func(context.Context, *pgx.Conn) error) error {
	if err := s.migrate(ctx); err != nil {
		return s.classify(ctx, err)
	}
	limited := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	err := s.withPooledConn(limited, p, f)
	if meetsOtherSchema(err) {
		err = s.checkSchema(ctx, err)
	}
	return s.classify(ctx, err)
}

// withPooledConn runs f with a connection of the pool. An error that cost the
// connection is a [connError].
func (s *Store) withPooledConn(ctx context.Context, p *pool, f func(context.Context, *pgx.Conn) error) error {
	acquired, err := s.acquire(ctx, p)
	if err != nil {
		return connError{err}
	}
	defer s.release(acquired, p)
	c := acquired.Conn()
	clear(c.PgConn().CustomData())
	err = f(ctx, c)
	if err == nil && c.PgConn().CustomData()[warned] != nil {
		err = errNotReplicated
	}
	if !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
		c.Exec(ctx, "ROLLBACK") // if it fails, Release drops the connection
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, plantstore.ErrTooManyToSort):
		return err // not that of a connection, which may have been closed to read no more of what is large
	case c.IsClosed(), errors.Is(err, errNotReplicated),
		errors.Is(err, context.DeadlineExceeded): // between two statements, which leaves the connection as it is
		return connError{err}
	case sqlState(err) == readOnly, errors.Is(err, pgconn.ErrReadOnlyConnection):
		// The primary has become a standby, so the other connections are as useless
		// as this one.
		s.conns.Reset()
		return connError{err}
	}
	return err
}

// connError says that there is no connection, or that it was lost. Whether the
// server executed the last statement is unknown.
type connError struct{ error }

func (e connError) Unwrap() error { return e.error }

// The SQLSTATE codes that the store acts on.
const (
	readOnly           = "25006"
	uniqueViolation    = "23505"
	notNullViolation   = "23502"
	deadlockDetected   = "40P01"
	noSuchDatabase     = "3D000"
	noPrivilege        = "42501"
	undefinedTable     = "42P01"
	duplicateTable     = "42P07"
	tooManyConnections = "53300"
	lockNotAvailable   = "55P03"
	queryCanceled      = "57014"
)

func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// refusal returns why PostgreSQL refused a connection: it does not let the user in, or has no
// such database. The driver's error begins with the ways that it tried before, such as TLS.
func refusal(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && (strings.HasPrefix(pg.Code, "28") || pg.Code == noSuchDatabase || pg.Code == noPrivilege) {
		return pg
	}
	return nil
}

// classify wraps an error of the engine in the domain's errors.
func (s *Store) classify(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", s.name, ctx.Err())
	}
	_, noConn := errors.AsType[connError](err)
	code := sqlState(err)
	class := code[:min(2, len(code))]
	switch {
	case errors.Is(err, ErrNewerSchema):
		return err
	case noConn && refusal(err) != nil:
		return fmt.Errorf("%s: %w: %w: %w", s.name, refusal(err), plantstore.ErrUnavailable, plantstore.ErrRetry)
	case noConn, errors.Is(err, errConflict),
		class == "08", // connection exceptions
		class == "40", // serialization failures, deadlocks
		class == "57", // cancelled, shutting down, starting up
		code == tooManyConnections, code == lockNotAvailable:
		return fmt.Errorf("%s: %w: %w: %w", s.name, plantstore.ErrRetry, plantstore.ErrUnavailable, err)
	case class == "53", class == "58": // out of disk or memory, I/O errors
		return fmt.Errorf("%s: %w: %w", s.name, plantstore.ErrUnavailable, err)
	case code != "":
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return err
}

// retry calls f again while it fails with ErrRetry, until the store timeout.
func (s *Store) retry(ctx context.Context, f func() error) error {
	deadline := time.Now().Add(s.opts.StoreTimeout)
	for delays := fastDelays; ; {
		err := f()
		if !errors.Is(err, plantstore.ErrRetry) || time.Now().After(deadline) || !delays.Wait(ctx) {
			return err
		}
	}
}

// retryCall runs f with a connection of the pool, again if the connection is lost.
func (s *Store) retryCall(ctx context.Context, p *pool, f func(context.Context, *pgx.Conn) error) error {
	return s.retry(ctx, func() error { return s.withConn(ctx, p, s.callTimeout, f) })
}

// read returns what f reads with a connection of the pool. It calls f again if the connection is
// lost.
func read[T any](ctx context.Context, s *Store, p *pool, f func(context.Context, *pgx.Conn) (T, error)) (found T, err error) {
	err = s.retryCall(ctx, p, func(ctx context.Context, c *pgx.Conn) (err error) {
		found, err = f(ctx, c)
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return found, nil
}

// queryAll returns the rows of a query about tokens or webhooks.
func queryAll[T any](ctx context.Context, s *Store, decode pgx.RowToFunc[T], query string, args ...any) ([]T, error) {
	return read(ctx, s, s.lookups, func(ctx context.Context, c *pgx.Conn) ([]T, error) {
		rows, _ := c.Query(ctx, query, args...) // CollectRows returns the error
		return pgx.CollectRows(rows, decode)
	})
}

// queryOne returns the only row of a query. If there is no row, it returns the error none, which
// may be nil.
func queryOne[T any](ctx context.Context, c *pgx.Conn, decode pgx.RowToFunc[T], none error, query string, args ...any) (T, error) {
	rows, _ := c.Query(ctx, query, args...) // CollectExactlyOneRow returns the error
	one, err := pgx.CollectExactlyOneRow(rows, decode)
	if errors.Is(err, pgx.ErrNoRows) {
		err = none
	}
	return one, err
}
