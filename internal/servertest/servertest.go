// Package servertest runs one real server in a test: that of internal/app, as plantstore
// serve does. It is for tests only.
package servertest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/app"
	"plantstore/internal/postgres"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/rules"
	"plantstore/internal/server"
	"plantstore/internal/sqlite"
	"plantstore/internal/testenv"
)

// Options are those of the server that is shipped. The zero value of a field means the
// default: the limits of callers and connections are off, the timeouts are longer than those
// of plantstore serve, so that a machine that is slow for a moment does not end a connection,
// and the log is a [Log]. The default Store is an empty SQLite store in a temporary
// directory; [Postgres] returns another. The default Listener is a free loopback port, to
// which BaseURL may be relative, such as URL("/v1"). Certificates are those of
// [Certificate].
type Options = app.Options

// Server is a running server.
type Server struct {
	// URL is the API's URL on the listener, whose address is Addr and whose origin is Origin.
	// BaseURL is its public URL.
	URL, Origin, Addr string
	BaseURL           *url.URL
	// Token is the secret of a token with all scopes.
	Token string
	Store plantstore.Store
	// Handler is the server's handler, for tests that call it without its listener.
	Handler *server.Server
	Log     *Log

	clients []*client.Client
	dir     string // of the default store
	stop    context.CancelFunc
	ended   chan error
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
	t.Cleanup(func() { check(t, s.end()) })
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
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
	s := launch(opts, new(Log))
	s.Token = s.NewToken(plantstore.AllScopes()...)
	return s
}

// launch starts a server without a token.
func launch(opts Options, log *Log) *Server {
	s := &Server{Log: log, ended: make(chan error, 1)}
	if opts.Listener == nil {
		opts.Listener = must(net.Listen("tcp", "127.0.0.1:0"))
	}
	if opts.Store == nil {
		s.dir = must(os.MkdirTemp("", "plantstore-"))
		opts.Store = must(sqlite.Open(filepath.Join(s.dir, "plants.db"), sqlite.Serve))
	}
	local := &url.URL{Scheme: "http", Host: opts.Listener.Addr().String()}
	if opts.Certificates != nil {
		local.Scheme = "https"
	}
	opts.BaseURL = local.ResolveReference(cmp.Or(opts.BaseURL, &url.URL{}))
	s.Store, s.Addr, s.Origin, s.BaseURL = opts.Store, local.Host, local.String(), opts.BaseURL
	local.Path, local.RawPath = s.BaseURL.Path, s.BaseURL.RawPath
	s.URL = local.String()
	server := must(app.New(withDefaults(opts, s.Log)))
	s.Handler = server.Handler
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.ended <- server.Run(ctx) }()
	return s
}

func withDefaults(opts Options, log *Log) Options {
	opts.Version = cmp.Or(opts.Version, "test")
	opts.SearchIndex = cmp.Or(opts.SearchIndex, rules.IndexAuto)
	opts.LogKeep, opts.LogMaxBytes = cmp.Or(opts.LogKeep, 7*24*time.Hour), cmp.Or(opts.LogMaxBytes, 1<<30)
	opts.MaxBody, opts.MaxHeader = cmp.Or(opts.MaxBody, 1<<20), cmp.Or(opts.MaxHeader, 32<<10)
	opts.ReadHeaderTimeout, opts.ReadTimeout = cmp.Or(opts.ReadHeaderTimeout, time.Minute), cmp.Or(opts.ReadTimeout, 5*time.Minute)
	opts.WriteTimeout, opts.IdleTimeout = cmp.Or(opts.WriteTimeout, 5*time.Minute), cmp.Or(opts.IdleTimeout, 2*time.Minute)
	opts.ExportTimeout, opts.ShutdownTimeout = cmp.Or(opts.ExportTimeout, time.Hour), cmp.Or(opts.ShutdownTimeout, time.Minute)
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return opts
}

// URL returns a BaseURL.
func URL(text string) *url.URL { return must(url.Parse(text)) }

// self is a certificate that is its own authority.
var self = sync.OnceValues(func() (tls.Certificate, *tls.Config) {
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	return web.TLS.Certificates[0], web.Client().Transport.(*http.Transport).TLSClientConfig
})

// Certificate returns a certificate for a server on this machine, which [Trust] trusts.
func Certificate() app.Certificates {
	pair, _ := self()
	return must(app.LoadCertificate(func() (*tls.Certificate, error) { return &pair, nil }))
}

// Trust returns the configuration of a client that trusts the [Certificate].
func Trust() *tls.Config {
	_, config := self()
	return config.Clone()
}

// Stop stops a server that Launch started, and panics if it fails.
func (s *Server) Stop() {
	if err := s.end(); err != nil {
		panic(err)
	}
}

// end stops the server, and returns what went wrong.
func (s *Server) end() error {
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
	var err error
	if s.stop != nil { // it has been launched
		s.stop()
		err = <-s.ended
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
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
	opts := s.Handler.Options
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
			all = append(all, plant.Plant)
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
		results, err := s.Store.Apply(t.Context(), batch)
		if batch = batch[len(results):]; err == nil && len(batch) > 0 {
			err = plantstore.ErrRetry
		}
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
