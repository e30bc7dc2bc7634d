// Package servertest runs one real server in a test: a store, its writer, its guard,
// the web pages and HTTP, wired as plantstore serve wires them. It is for tests only.
package servertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/auth"
	"plantstore/internal/commit"
	"plantstore/internal/console"
	"plantstore/internal/http1"
	"plantstore/internal/postgres"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/rules"
	"plantstore/internal/server"
	"plantstore/internal/sqlite"
	"plantstore/internal/testenv"
	"plantstore/internal/webhook"
)

// Options say how a [Server] differs from plantstore serve without flags. The zero
// value of a field means the default.
type Options struct {
	// Store is closed when the server stops. The default is an empty SQLite store in a
	// temporary directory; [Postgres] returns another.
	Store plantstore.Store
	// Listener is where the server listens. The default is a free loopback port.
	Listener net.Listener
	// BaseURL is the public URL of the API, or only its path, such as /v1.
	BaseURL string
	// Origins are the other origins whose web pages may call the API.
	Origins []string
	// WebhookAllow are networks that webhooks may call although they are not public.
	WebhookAllow []netip.Prefix
	// Wrap, if set, wraps the handler.
	Wrap func(http.Handler) http.Handler

	// Auth has the limits of callers, none by default. Its StoreTimeout and Log are not
	// used.
	Auth           auth.Options
	MaxConnections int
	// MaxRequests is how many requests may be in flight. The default is no limit.
	MaxRequests int
	// AccessLog is run by the server.
	AccessLog *server.AccessLog
	// Clock shows the time to the server, by default the true one.
	Clock func() time.Time
	// CertificateExpires returns when a certificate expires; by default the server has none.
	CertificateExpires func() time.Time
	// Quiet turns the log off, for benchmarks.
	Quiet bool

	MaxBody                   int64
	MaxQueue                  int
	StoreTimeout, ReadTimeout time.Duration
	ExportTimeout             time.Duration
}

// Server is a running server.
type Server struct {
	// URL is the API's URL on the listener, whose address is Addr. BaseURL is its
	// public URL.
	URL     string
	Addr    string
	BaseURL *url.URL
	// Token is the secret of a token with all scopes.
	Token string
	Store plantstore.Store
	// Handler is the server's handler, for tests that call it without its listener.
	Handler *server.Server
	Log     *Log

	opts    server.Options // what Handler is made of
	clients []*client.Client
	stops   []func() error // in the order of the calls
}

// Main is for a TestMain. It runs the tests and fails if a goroutine is left over.
func Main(m *testing.M) {
	code := pgtest.Main(m)
	if err := testenv.Leaks(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// OnEveryStore runs a test in parallel with a server on each kind of store. The
// package's TestMain must call [Main].
func OnEveryStore(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, Start(t, Options{}))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, Start(t, Options{Store: Postgres(t)}))
	})
}

// Postgres returns an empty PostgreSQL store for a server, which closes it. The
// package's TestMain must call [Main].
func Postgres(t testing.TB) plantstore.Store {
	t.Helper()
	OfOneServer(t)
	store, err := postgres.Open(pgtest.Fresh(t), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// Start starts a server that stops when the test ends. The test fails if a part of
// the server does, or if the secret of a token is in its log.
func Start(t testing.TB, opts Options) *Server {
	t.Helper()
	OfOneServer(t)
	s := Launch(opts)
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// OfOneServer skips a test of one server if those of two are run. [Start] calls it.
func OfOneServer(t testing.TB) {
	t.Helper()
	if testenv.TwoServers() {
		t.Skip("not a test of two servers")
	}
}

// Launch starts a server for an example, which has no [testing.TB]. The caller stops
// it. It panics if it fails.
func Launch(opts Options) *Server {
	s := &Server{Log: new(Log), Store: opts.Store}
	if opts.Listener == nil {
		opts.Listener = must(net.Listen("tcp", "127.0.0.1:0"))
	}
	if s.Store == nil {
		s.openSQLite()
	}
	s.Addr = opts.Listener.Addr().String()
	s.BaseURL = must((&url.URL{Scheme: "http", Host: s.Addr}).Parse(opts.BaseURL))
	s.URL = (&url.URL{Scheme: "http", Host: s.Addr, Path: s.BaseURL.Path, RawPath: s.BaseURL.RawPath}).String()
	s.run(opts)
	s.Token = s.NewToken(plantstore.AllScopes()...)
	return s
}

func (s *Server) openSQLite() {
	dir := must(os.MkdirTemp("", "plantstore-"))
	s.Store = must(sqlite.Open(filepath.Join(dir, "plants.db"), sqlite.Serve))
	s.onStop(func() error { return os.RemoveAll(dir) })
}

// run wires and runs the components as plantstore serve does. Its timeouts are longer, so
// that a machine that is slow for a moment does not end a connection.
func (s *Server) run(opts Options) {
	const (
		maxHeader   = 32 << 10
		logKeep     = 7 * 24 * time.Hour
		logMaxBytes = 1 << 30
	)
	readTimeout := cmp.Or(opts.ReadTimeout, 5*time.Minute)
	maxBody := cmp.Or(opts.MaxBody, 1<<20)
	kind := plantstore.StoreSQLite
	_, shared := s.Store.(*postgres.Store)
	if shared {
		kind = plantstore.StorePostgres
	}
	log := slog.New(slog.NewJSONHandler(s.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if opts.Quiet {
		log = slog.New(slog.DiscardHandler)
	}
	wall := opts.Clock
	if wall == nil {
		wall = time.Now
	}
	clock := rules.NewClock("server", wall, log)
	if file, ok := s.Store.(*sqlite.Store); ok {
		file.Clock = clock
	}
	metrics := server.NewMetrics("test")
	writer := commit.New(s.Store, commit.Options{
		Queue: opts.MaxQueue, StoreTimeout: opts.StoreTimeout, Observe: metrics.Committed,
	})
	opts.Auth.StoreTimeout, opts.Auth.Log = opts.StoreTimeout, log
	guard := auth.New(s.Store, opts.Auth)
	hooks := webhook.New(s.Store, webhook.Options{Allow: opts.WebhookAllow, Shared: shared, Log: log, Clock: clock, Observe: metrics.Delivered})
	s.opts = server.Options{
		Store: s.Store, Writer: writer, Guard: guard, Webhooks: hooks, Metrics: metrics, Clock: clock, Log: log, AccessLog: opts.AccessLog,
		About: plantstore.About{
			Version: "test", Store: kind, Limits: plantstore.Limits{LogKeep: logKeep, LogMaxBytes: logMaxBytes},
		},
		BaseURL: s.BaseURL, MaxRequests: opts.MaxRequests, MaxBody: maxBody, MaxHeader: maxHeader, StreamTimeout: readTimeout, ExportTimeout: cmp.Or(opts.ExportTimeout, time.Hour),
		Pages: must(console.New(s.BaseURL)).Page, Origins: opts.Origins, CertificateExpires: opts.CertificateExpires,
	}
	s.Handler = server.New(s.opts)
	var handler http.Handler = s.Handler
	if opts.Wrap != nil {
		handler = opts.Wrap(handler)
	}
	web := http1.New(&http.Server{
		Handler:           handler,
		ReadHeaderTimeout: time.Minute,
		ReadTimeout:       readTimeout,
		WriteTimeout:      5 * time.Minute,
		IdleTimeout:       120 * time.Second,
		MaxHeaderBytes:    2 * maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}, s.Handler.IsFast)
	web.MaxConnections = opts.MaxConnections
	s.Handler.WatchConnections(web)

	if opts.AccessLog != nil {
		s.onStop(background(opts.AccessLog.Run))
	}
	s.onStop(s.Store.Close)
	if store, ok := s.Store.(interface {
		KeepLog(time.Duration, int64)
		Run(context.Context) error
	}); ok {
		store.KeepLog(logKeep, logMaxBytes)
		s.onStop(background(store.Run))
	}
	s.onStop(background(clock.Run))
	s.onStop(background(guard.Run))
	s.onStop(background(hooks.Run))
	s.onStop(background(writer.Run))
	s.onStop(background(func(context.Context) error {
		if err := web.Serve(opts.Listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}))
	s.onStop(func() error { return shutdown(web) })
}

// onStop adds a function that stop calls before those added earlier.
func (s *Server) onStop(f func() error) { s.stops = slices.Insert(s.stops, 0, f) }

// background runs f until the returned function is called, which waits for f.
func background(f func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

func shutdown(web *http1.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := web.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests are still in flight: %w", err), web.Close())
	}
	return nil
}

// Stop stops a server that Launch started, and panics if it fails.
func (s *Server) Stop() {
	if err := s.stop(); err != nil {
		panic(err)
	}
}

// stop stops the components in order, and returns what went wrong.
func (s *Server) stop() error {
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
	var err error
	for _, stop := range s.stops {
		err = errors.Join(err, stop())
	}
	if s.Log.leaked() {
		err = errors.Join(err, errors.New("the secret of a token is in the log"))
	}
	return err
}

// NewToken adds a token with the scopes to the store and returns its secret.
func (s *Server) NewToken(scopes ...plantstore.Scope) string {
	return s.AddToken(plantstore.Token{Scopes: scopes})
}

// AddToken adds a token to the store, with a new secret, and returns that. It panics
// if it fails.
func (s *Server) AddToken(token plantstore.Token) (secret string) {
	secret = plantstore.NewSecret()
	s.Log.addSecret(secret)
	token.Hash, token.Name, token.Created = plantstore.HashSecret(secret), "test", cmp.Or(token.Created, time.Now())
	if err := s.Store.CreateToken(context.Background(), token, plantstore.Actor{Name: plantstore.Operator}); err != nil {
		panic(err)
	}
	return secret
}

// HasSecret reports whether the text contains the secret of a token.
func (s *Server) HasSecret(text []byte) bool { return s.Log.hasSecret(text) }

// Client returns a client with all scopes.
func (s *Server) Client(opts client.Options) *client.Client {
	c := must(client.New(s.URL, s.Token, opts))
	s.clients = append(s.clients, c)
	return c
}

// At returns another handler of the server, for another public URL.
func (s *Server) At(base *url.URL) *server.Server {
	opts := s.opts
	opts.BaseURL, opts.Metrics = base, server.NewMetrics("test")
	return server.New(opts)
}

// Plants returns all plants in the store.
func (s *Server) Plants(t testing.TB) []plantstore.Plant {
	t.Helper()
	var all []plantstore.Plant
	retry(t, func() error {
		all = nil
		for plant, err := range s.Store.Scan(t.Context(), plantstore.Query{}, nil) {
			if err != nil {
				return err
			}
			all = append(all, plant)
		}
		return nil
	})
	return all
}

// Fill adds plants to the store, without HTTP, or replaces those with their ids.
func (s *Server) Fill(t testing.TB, plants ...plantstore.Plant) {
	t.Helper()
	s.apply(t, plantstore.Replace, plants)
}

// Clear deletes all plants in the store, without HTTP.
func (s *Server) Clear(t testing.TB) {
	t.Helper()
	s.apply(t, plantstore.Delete, s.Plants(t))
}

func (s *Server) apply(t testing.TB, op plantstore.Op, plants []plantstore.Plant) {
	t.Helper()
	var batch []plantstore.Write
	for _, plant := range plants {
		batch = append(batch, plantstore.Write{Op: op, Plant: plant})
	}
	retry(t, func() error {
		_, err := s.Store.Apply(t.Context(), batch)
		return err
	})
}

// retry calls f again while it fails with ErrRetry, as the server does. The test fails with any
// other error.
func retry(t testing.TB, f func() error) {
	t.Helper()
	var err error
	testenv.Eventually(t, func() error {
		if err = f(); errors.Is(err, plantstore.ErrRetry) {
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
