package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/auth"
	"plantstore/internal/commit"
	"plantstore/internal/server"
	"plantstore/internal/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// realServer is the whole service in this process: a store, its writer, its guard,
// and HTTP.
type realServer struct {
	URL   string
	Token string
	Stop  func()

	store   plantstore.Store
	handler http.Handler
}

// startServer starts a server over an empty SQLite store on the loopback. It
// panics where it cannot.
func startServer() *realServer {
	dir, err := os.MkdirTemp("", "plantstore-client-")
	must(err)
	store, err := sqlite.Open(filepath.Join(dir, "plants.db"), sqlite.Serve)
	must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	s := serve(store, listener, store.Run)
	stop := s.Stop
	s.Stop = func() {
		stop()
		must(errors.Join(store.Close(), os.RemoveAll(dir)))
	}
	return s
}

// serve wires a service together. The functions run while it does.
func serve(store plantstore.Store, listener net.Listener, run ...func(context.Context) error) *realServer {
	var metrics *server.Metrics
	writer := commit.New(store, commit.Options{
		Observe: func(size int, took time.Duration) { metrics.Committed(size, took) },
	})
	metrics = server.NewMetrics("test", writer.Depth)
	log := slog.New(slog.DiscardHandler)
	guard := auth.New(store, log)
	base := &url.URL{Scheme: "http", Host: listener.Addr().String(), Path: "/v1"}
	handler, err := server.New(server.Options{
		Store: store, Writer: writer, Guard: guard, Metrics: metrics, Log: log,
		BaseURL: base, MaxBody: 1 << 20, MaxHeader: 32 << 10, StreamTimeout: 30 * time.Second,
	})
	must(err)
	web := &http.Server{Handler: handler, ReadTimeout: 30 * time.Second, WriteTimeout: 90 * time.Second}

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range append(run, guard.Run, writer.Run) {
		running.Go(func() { must(run(ctx)) })
	}
	running.Go(func() {
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	})
	s := &realServer{URL: base.String(), store: store, handler: handler}
	s.Token = s.newToken(plantstore.AllScopes()...)
	s.Stop = func() {
		must(web.Shutdown(context.Background()))
		cancel()
		running.Wait()
	}
	return s
}

func (s *realServer) newToken(scopes ...plantstore.Scope) string {
	secret := plantstore.NewSecret()
	must(s.store.CreateToken(context.Background(), plantstore.Token{
		Hash: plantstore.HashSecret(secret), Name: fmt.Sprint(scopes), Scopes: scopes, Created: time.Now(),
	}))
	return secret
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// serving starts a server for one test.
func serving(t *testing.T) *realServer {
	t.Helper()
	s := startServer()
	t.Cleanup(s.Stop)
	return s
}

// calling returns a client for one test.
func calling(t *testing.T, baseURL, token string, opts client.Options) *client.Client {
	t.Helper()
	c, err := client.New(baseURL, token, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// garden fills the store without a client in between.
func (s *realServer) garden(t *testing.T, plants ...plantstore.Plant) {
	t.Helper()
	var batch []plantstore.Write
	for _, p := range plants {
		batch = append(batch, plantstore.Write{Op: plantstore.Replace, Plant: p})
	}
	if _, err := s.store.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

// clear takes all plants out of the store.
func (s *realServer) clear(t *testing.T) {
	t.Helper()
	var batch []plantstore.Write
	for _, p := range s.plants(t) {
		batch = append(batch, plantstore.Write{Op: plantstore.Delete, Plant: p})
	}
	if _, err := s.store.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

// plants returns all that the store holds.
func (s *realServer) plants(t *testing.T) []plantstore.Plant {
	t.Helper()
	var all []plantstore.Plant
	for p, err := range s.store.Scan(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// roundTrip is a transport made of a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
