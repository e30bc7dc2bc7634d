// Package postgres keeps the store in a PostgreSQL database, which any number of
// servers share: the store for when one machine is not enough.
//
// # Failover
//
// The store needs no server to be opened. It connects when it is used, always to
// one that takes writes, and connects again when a connection is lost, so a URL
// with several hosts follows the primary of a cluster. What is asked of it
// meanwhile waits, up to a bound.
//
// With synchronous replication nothing that was acknowledged is lost, whatever
// the order in which servers fail. A commit waits for the standby, a read does
// not; so Apply answers only after a commit that came after all that it read.
//
// # Tokens
//
// A revocation is effective everywhere because auth.Guard reads all tokens once a
// second. LISTEN would save that little query, and would need it again after
// every lost connection; it also needs a connection of its own, which poolers and
// the distributed engines do not give.
//
// # Other engines
//
// The SQL is such that CockroachDB, YugabyteDB and Citus, with plants distributed
// by id, accept it too: no advisory locks, and a row is locked by its id alone.
// A transaction that they give up with a serialization failure is repeated.
package postgres

import (
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
)

// The most connections that a store has. Those that write are apart, so that
// reads cannot keep them waiting; two are in use, and the others are for when a
// server hangs and its connections take their time to close. Of those that read,
// half may be taken by long reads.
const (
	writers = 6
	readers = 6
)

const (
	// connectTimeout is how long a host may take to answer, unless the URL says
	// otherwise.
	connectTimeout = 3 * time.Second
	// callTimeout is how long a server may take for a call before the store takes
	// it for dead and looks for another.
	callTimeout = 10 * time.Second
	// closeTimeout is how long Close waits for a server.
	closeTimeout = 5 * time.Second
	// pingTimeout is how long a connection may take to prove that it is alive.
	pingTimeout = 2 * time.Second
)

// Options adjust a [Store]. The zero value of a field stands for its default.
type Options struct {
	// Patience is how long a read, or a change of a token, waits for a server to
	// come back: 30 s. How long Apply waits is its caller's business.
	Patience time.Duration
	// Log is told by Run when the server cannot be used, and when it can again.
	Log *slog.Logger
}

// Store is a [plantstore.Store] in a PostgreSQL database. It never returns
// ErrUntrusted: a server that cannot sync its disk stops by itself.
type Store struct {
	name     string // the store as people may see it
	patience time.Duration
	timeout  time.Duration // of a call
	log      *slog.Logger
	write    *pgxpool.Pool
	read     *pgxpool.Pool
	scan     chan struct{} // holds a token for each long read under way
	lookups  lookups

	migrating chan struct{} // holds a token while the schema is being looked at
	migrated  atomic.Bool   // the schema is known to be ours
}

var _ plantstore.Store = (*Store)(nil)

// Open returns the store in the database at a postgres:// URL. It fails only if
// the URL makes no sense: it does not connect. The first use does, and makes or
// migrates the schema. No error that a store returns holds the URL's password.
//
// Of several hosts, the store uses the one that takes writes, also where the URL
// does not ask for target_session_attrs=read-write. The URL's pool_max_conns is
// the number of connections that read, 6; there are up to 6 more that write.
func Open(url string, opts Options) (*Store, error) {
	config, err := parse(url)
	if err != nil {
		return nil, err
	}
	if opts.Patience == 0 {
		opts.Patience = 30 * time.Second
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		name:      name(config.ConnConfig),
		patience:  opts.Patience,
		timeout:   callTimeout,
		log:       opts.Log,
		scan:      make(chan struct{}, max(1, config.MaxConns/2)),
		lookups:   newLookups(),
		migrating: make(chan struct{}, 1),
	}
	if s.read, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return nil, err
	}
	config = config.Copy()
	config.MaxConns = writers
	if s.write, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		s.read.Close()
		return nil, err
	}
	return s, nil
}

// String returns where the store is, without its user and password.
func (s *Store) String() string { return s.name }

// Close ends all connections. Where a server hangs it does not wait for long: all
// that was acknowledged is on disk without a goodbye.
func (s *Store) Close() error {
	closed := make(chan struct{})
	go func() {
		s.write.Close()
		s.read.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
	}
	return nil
}

// Ready returns nil if a server that takes writes answers now and has our schema.
func (s *Store) Ready(ctx context.Context) error {
	return s.using(ctx, s.write, s.timeout, func(ctx context.Context, c *pgx.Conn) error {
		return pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, c.PgConn())
	})
}

func parse(url string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil || isAmbiguous(url) {
		return nil, explainURL(url)
	}
	if !strings.Contains(url, "pool_max_conns=") {
		config.MaxConns = readers
	}
	if config.PingTimeout == 0 {
		config.PingTimeout = pingTimeout
	}
	conn := config.ConnConfig
	if conn.ValidateConnect == nil {
		conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = connectTimeout
	}
	conn.DialFunc = dialer(conn.ConnectTimeout).DialContext
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "plantstore"
	}
	conn.OnNotice = noteWarning
	config.AfterConnect = prepare
	return config, nil
}

// isAmbiguous reports whether a URL has an @ elsewhere than before its hosts. It
// is likely part of a password then, the rest of which has been taken for a host
// or a database, and would be named as such.
func isAmbiguous(url string) bool {
	_, rest, _ := strings.Cut(url, "://")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	return strings.Count(rest[:end], "@") > 1 || strings.Contains(rest[end:], "@")
}

// explainURL says what is wrong with a URL. The driver's own words may hold a
// password where that is what is malformed, so it is asked about the rest alone.
func explainURL(url string) error {
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
		// A host is there twice where TLS may but need not be used.
		if host := join(f.Host, f.Port); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return fmt.Sprintf("postgres://%s/%s", strings.Join(hosts, ","), c.Database)
}

// The settings of a session. A commit is to be on disk when it returns, also where
// the server, the database or the role has synchronous_commit=off. And rows are to
// come in the order of an index: to collect all of them and sort them, which looks
// cheap where the planner thinks that they are few, is not bounded. An engine that
// does not know these has no need of them.
const (
	neverAsynchronous = `SELECT set_config('synchronous_commit', 'on', false)
		WHERE current_setting('synchronous_commit', true) = 'off'`
	alwaysInOrder = `SELECT set_config('enable_bitmapscan', 'off', false), set_config('enable_sort', 'off', false)
		WHERE current_setting('enable_bitmapscan', true) = 'on'`
)

func prepare(ctx context.Context, c *pgx.Conn) error {
	_, err := c.Exec(ctx, neverAsynchronous+";"+alwaysInOrder)
	return err
}

// errNotReplicated says that a commit was not allowed to wait for the standbys.
var errNotReplicated = errors.New("the wait for a synchronous standby was cancelled")

// warned is the key under which a connection keeps a warning.
const warned = "warned"

// noteWarning takes down the warning with which a server tells that somebody
// cancelled a commit's wait for the standbys. The commit itself does not fail.
func noteWarning(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" && n.Code == "01000" {
		c.CustomData()[warned] = true
	}
}

func wasWarned(c *pgx.Conn) bool { return c.PgConn().CustomData()[warned] != nil }

// using runs f with a connection to a server that has our schema, for no longer
// than the limit, if that is not 0, and gives its error a name that the domain
// knows. What f left of a transaction is rolled back.
func (s *Store) using(ctx context.Context, pool *pgxpool.Pool, limit time.Duration, f func(context.Context, *pgx.Conn) error) error {
	limited := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	if err := s.migrate(ctx, limited); err != nil {
		return s.explain(ctx, err)
	}
	return s.explain(ctx, s.with(limited, pool, f))
}

// with runs f with a connection of the pool. An error that cost the connection
// is a [lostError].
func (s *Store) with(ctx context.Context, pool *pgxpool.Pool, f func(context.Context, *pgx.Conn) error) error {
	held, err := pool.Acquire(ctx)
	if err != nil {
		return lostError{err}
	}
	defer held.Release()
	c := held.Conn()
	clear(c.PgConn().CustomData())
	err = f(ctx, c)
	if err == nil && wasWarned(c) {
		err = errNotReplicated
	}
	if err != nil && !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
		c.Exec(ctx, "ROLLBACK") // or Release drops the connection
	}
	switch {
	case err == nil:
		return nil
	case c.IsClosed(), errors.Is(err, errNotReplicated):
		return lostError{err}
	case sqlState(err) == readOnly, errors.Is(err, pgconn.ErrReadOnlyConnection):
		// The primary has become a standby under our feet, so the other
		// connections are of no more use than this one.
		s.write.Reset()
		s.read.Reset()
		return lostError{err}
	}
	return err
}

// lostError says that there is no connection, or none any more. Whether the
// server did what it was asked for last is not known.
type lostError struct{ error }

func (e lostError) Unwrap() error { return e.error }

// isLost reports whether an error is a [lostError].
func isLost(err error) bool {
	var lost lostError
	return errors.As(err, &lost)
}

// The SQLSTATE codes that need to be told apart.
const (
	readOnly           = "25006"
	uniqueViolation    = "23505"
	undefinedTable     = "42P01"
	duplicateTable     = "42P07"
	tooManyConnections = "53300"
	lockNotAvailable   = "55P03"
	// statementCompletionUnknown is CockroachDB's for a commit with no known
	// outcome.
	statementCompletionUnknown = "40003"
)

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// explain gives an error of the engine a name that the domain knows.
func (s *Store) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", s.name, ctx.Err())
	}
	code := sqlState(err)
	class := code[:min(2, len(code))]
	switch {
	case isLost(err), errors.Is(err, errMoved),
		class == "08", // connection exceptions
		class == "40", // serialization failures, deadlocks
		class == "57", // cancelled, shutting down, starting up
		code == tooManyConnections, code == lockNotAvailable:
		return fmt.Errorf("%s: %w: %w: %w", s.name, plantstore.ErrRetry, plantstore.ErrUnavailable, err)
	case class == "53", class == "58": // out of disk or memory; the machine failed
		return fmt.Errorf("%s: %w: %w", s.name, plantstore.ErrUnavailable, err)
	case code != "":
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return err
}

// persist calls f again while it fails with ErrRetry and patience lasts.
func (s *Store) persist(ctx context.Context, f func() error) error {
	deadline := time.Now().Add(s.patience)
	for p := soon; ; {
		err := f()
		if !errors.Is(err, plantstore.ErrRetry) || time.Now().After(deadline) || !p.wait(ctx) {
			return err
		}
	}
}

// writing runs f with a connection, again if that gets lost.
func (s *Store) writing(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	return s.persist(ctx, func() error { return s.using(ctx, s.write, s.timeout, f) })
}

// reading runs f with a connection, again if that gets lost.
func (s *Store) reading(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	return s.persist(ctx, func() error { return s.using(ctx, s.read, s.timeout, f) })
}
