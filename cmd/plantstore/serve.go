package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/term"

	"plantstore"
	"plantstore/internal/auth"
	"plantstore/internal/commit"
	"plantstore/internal/console"
	"plantstore/internal/http1"
	"plantstore/internal/server"
	"plantstore/internal/sqlite"
)

// serveCommand is the whole configuration of a server.
type serveCommand struct {
	Addr    string   `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where to listen (${default})."`
	BaseURL *url.URL `name:"base-url" placeholder:"URL" help:"Where callers find the API; its path is where it is mounted (http://ADDR)."`
	storeFlags
	CORSOrigin []string `name:"cors-origin" placeholder:"ORIGIN" help:"Another origin whose web pages may call the API, such as https://example.com; several are separated by commas."`

	MaxBody   int64         `default:"1048576" placeholder:"BYTES" help:"The largest body of a request (${default})."`
	MaxHeader int64         `default:"32768" placeholder:"BYTES" help:"The largest header of a request (${default})."`
	Patience  time.Duration `default:"30s" placeholder:"TIME" help:"How long a request waits for a store that cannot be reached, before it gets 503 (${default})."`

	MaxQueue int `default:"8192" placeholder:"N" help:"How many writes may wait before callers are told to come back later (${default})."`

	ReadHeaderTimeout time.Duration `default:"5s" placeholder:"TIME" help:"How long a request's header may take to arrive (${default})."`
	ReadTimeout       time.Duration `default:"30s" placeholder:"TIME" help:"How long a whole request may take to arrive (${default})."`
	WriteTimeout      time.Duration `default:"90s" placeholder:"TIME" help:"How long a request may take from its header to the end of its answer (${default})."`
	IdleTimeout       time.Duration `default:"120s" placeholder:"TIME" help:"How long a connection may stay idle (${default})."`
	DrainDelay        time.Duration `default:"0s" placeholder:"TIME" help:"How long to go on after SIGTERM while /readyz says no, so that a load balancer turns away first (${default})."`
	ShutdownTimeout   time.Duration `default:"10s" placeholder:"TIME" help:"How long requests under way may take to end after SIGTERM (${default})."`

	LogLevel  string `default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" help:"debug logs every request; or info, warn, error (${default})."`
	LogFormat string `default:"auto" enum:"auto,text,json" placeholder:"FORMAT" help:"text, json, or auto: text on a terminal (${default})."`
}

// Help is the long part of the help page.
func (serveCommand) Help() string {
	return `On an empty store, serve makes a first token and prints it, once. Where PLANTSTORE_BOOTSTRAP_TOKEN is set, that is the first token instead, and nothing secret is printed.

SIGTERM and SIGINT end the server in order: it says that it is not ready, finishes the requests under way, commits what waits and closes the store. A second signal ends it at once.

Examples:
  plantstore serve
  plantstore serve --addr :80 --db /var/lib/plantstore/plants.db --base-url https://example.com/v1`
}

// Run serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context, std streams) error {
	if err := c.check(); err != nil {
		return err
	}
	tuneRuntime()
	log := newLogger(std.err, c.LogFormat, c.LogLevel)
	// The listener comes first: a port that is taken must not cost a first token.
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return fmt.Errorf("cannot listen: %w: is another server running, or may this user not use the port?", err)
	}
	defer listener.Close()
	base := c.baseURL(listener.Addr())
	store, err := c.open(sqlite.Serve, c.Patience, log)
	if err != nil {
		return err
	}
	first, unseen := newFirstToken(log)
	greet := func(ctx context.Context) error {
		made, err := giveFirstToken(ctx, store, first)
		if made && unseen != "" {
			welcome(std.out, localURL(listener.Addr(), base), unseen)
		}
		return err
	}
	// A store that cannot be reached yet is greeted when it can.
	soon, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err = greet(soon); err == nil {
		greet = func(context.Context) error { return nil }
	} else if !c.isPostgres() {
		return errors.Join(err, store.Close())
	}
	log.Info("serving", "url", base.String(), "addr", listener.Addr().String(), "db", c.name(store), "version", version)
	err = c.serve(ctx, listener, base, store, greet, log)
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// tuneRuntime fits Go's runtime to what a server does, unless the environment says
// otherwise. A commit blocks a thread in fsync, and Go takes that thread's share of
// the processors away only after a while: with one more, the others stay busy. The
// heap is small next to the engine's memory, so collecting it less often is cheap.
func tuneRuntime() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
}

// serve wires the parts together, runs them, and ends them in order.
func (c *serveCommand) serve(ctx context.Context, listener net.Listener, base *url.URL, store openedStore, greet func(context.Context) error, log *slog.Logger) error {
	inFlight := 1
	if c.isPostgres() {
		inFlight = 2 // measured best
	}
	var metrics *server.Metrics
	writer := commit.New(store, commit.Options{
		Queue: c.MaxQueue, InFlight: inFlight, StoreTimeout: c.Patience,
		Observe: func(size int, took time.Duration) { metrics.Committed(size, took) },
	})
	metrics = server.NewMetrics(version, writer.Depth)
	guard := auth.New(store, log)
	pages, err := console.New(base)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	handler, err := server.New(server.Options{
		Store: store, Writer: writer, Guard: guard, Metrics: metrics, Log: log,
		BaseURL: base, MaxBody: c.MaxBody, MaxHeader: c.MaxHeader, StreamTimeout: c.ReadTimeout,
		Pages: pages.Page, Origins: c.CORSOrigin,
	})
	if err != nil {
		return errors.Join(err, store.Close())
	}
	web := http1.New(&http.Server{
		Handler:           handler,
		ReadHeaderTimeout: c.ReadHeaderTimeout,
		ReadTimeout:       c.ReadTimeout,
		WriteTimeout:      c.WriteTimeout,
		IdleTimeout:       c.IdleTimeout,
		// Beyond twice the limit net/http refuses a header by itself; up to
		// there the server does, with an Error.
		MaxHeaderBytes: int(2 * c.MaxHeader),
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	})

	failed := make(chan error, 5)
	stopStore := background(store.Run, failed)
	stopGuard := background(guard.Run, failed)
	stopWriter := background(writer.Run, failed)
	stopGreeting := background(func(ctx context.Context) error {
		if err := greet(ctx); ctx.Err() == nil {
			return err
		}
		return nil
	}, failed)
	go func() {
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}()

	select {
	case <-ctx.Done():
		log.Info("shutting down", "delay", c.DrainDelay, "timeout", c.ShutdownTimeout)
		handler.Drain()
		time.Sleep(c.DrainDelay)
		err = drain(web, c.ShutdownTimeout)
	case err = <-failed:
		// Those who wait have their answers by now; let them read them.
		err = errors.Join(err, drain(web, time.Second))
	}
	closed := make(chan error, 1)
	go func() {
		closed <- errors.Join(stopGreeting(), stopWriter(), stopGuard(), stopStore(), store.Close())
	}()
	select {
	case closing := <-closed:
		return errors.Join(err, closing)
	case <-time.After(c.ShutdownTimeout):
		// What was answered is durable without it.
		return errors.Join(err, fmt.Errorf("the store could not be closed within %s", c.ShutdownTimeout))
	}
}

// drain ends the HTTP server when the requests under way have been answered.
func drain(web *http1.Server, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := web.Shutdown(ctx); err != nil {
		web.Close()
		return fmt.Errorf("requests were still under way after %s and were cut off: %w", timeout, err)
	}
	return nil
}

// background runs f until the returned function is called, which waits for it.
// An error that comes before is sent to failed.
func background(f func(context.Context) error, failed chan<- error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := f(ctx)
		if err != nil && ctx.Err() == nil {
			failed <- err
			err = nil // once is enough
		}
		done <- err
	}()
	return func() error {
		cancel()
		return <-done
	}
}

// baseURL returns where callers find the API, without a slash at its end.
func (c *serveCommand) baseURL(addr net.Addr) *url.URL {
	if c.BaseURL == nil {
		return localURL(addr, &url.URL{})
	}
	base := *c.BaseURL
	base.Path, base.RawPath = strings.TrimRight(base.Path, "/"), strings.TrimRight(base.RawPath, "/")
	return &base
}

// check refuses settings that make no sense, before anything is touched.
func (c *serveCommand) check() error {
	if c.MaxBody <= 0 || c.MaxHeader <= 0 || c.MaxQueue <= 0 {
		return usage("--max-body, --max-header and --max-queue must be greater than 0")
	}
	if err := c.storeFlags.check(); err != nil {
		return err
	}
	if b := c.BaseURL; b != nil && ((b.Scheme != "http" && b.Scheme != "https") || b.Host == "" || b.RawQuery != "" || b.Fragment != "" || b.User != nil) {
		return usage("--base-url must look like https://example.com or https://example.com/path")
	}
	if b := c.BaseURL; b != nil {
		// Requests are not cleaned, so nothing would ever be found below such a path.
		if at := strings.TrimRight(b.Path, "/"); at != "" && path.Clean(at) != at {
			return usage("--base-url must have no //, /./ or /../ in its path, got %q", b.Path)
		}
	}
	for _, text := range c.CORSOrigin {
		// What no browser would send would never match. There is no way to allow
		// all origins.
		if !isOrigin(text) {
			return usage("--cors-origin must look like https://example.com or http://localhost:3000, got %q", text)
		}
	}
	if secret, given := os.LookupEnv(bootstrapEnv); given {
		if err := plantstore.CheckSecret(secret); err != nil {
			return usage("%s: %w", bootstrapEnv, err)
		}
	}
	return nil
}

// isOrigin reports whether a browser would send this text as an origin: in lower
// case, with no path, and with no port that the scheme has anyway.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || text != strings.ToLower(u.Scheme+"://"+u.Host) {
		return false
	}
	return u.Scheme == "http" && u.Port() != "80" || u.Scheme == "https" && u.Port() != "443"
}

// localURL returns where this machine finds the API: the listener's address and
// the path of the base URL.
func localURL(addr net.Addr, base *url.URL) *url.URL {
	host := addr.String()
	if at, err := netip.ParseAddrPort(host); err == nil && at.Addr().IsUnspecified() {
		host = fmt.Sprintf("127.0.0.1:%d", at.Port())
	}
	return &url.URL{Scheme: "http", Host: host, Path: base.Path, RawPath: base.RawPath}
}

const bootstrapEnv = "PLANTSTORE_BOOTSTRAP_TOKEN"

// newFirstToken returns the token that an empty store gets, and its secret if that
// is a new one that nobody has seen.
func newFirstToken(log *slog.Logger) (token plantstore.Token, unseen string) {
	now := time.Now().UTC()
	token = plantstore.Token{Name: "first", Scopes: plantstore.AllScopes(), Created: now, Expires: now.Add(defaultLifetime)}
	if secret, given := os.LookupEnv(bootstrapEnv); given {
		if len(secret) < 32 {
			log.Warn(bootstrapEnv + " is short enough to be guessed: use 32 random characters or more")
		}
		token.Name, token.Expires, token.Hash = "bootstrap", time.Time{}, plantstore.HashSecret(secret)
		return token, ""
	}
	unseen = plantstore.NewSecret()
	token.Hash = plantstore.HashSecret(unseen)
	return token, unseen
}

// giveFirstToken gives the token to the store if it never had one, and reports
// whether the store has it now. Where an earlier try was lost, it may be there
// already.
func giveFirstToken(ctx context.Context, store plantstore.Store, token plantstore.Token) (bool, error) {
	for {
		made, err := store.CreateFirstToken(ctx, token)
		if err == nil && !made {
			_, err = store.Token(ctx, token.Hash)
			made = err == nil
		}
		switch {
		case err == nil, errors.Is(err, plantstore.ErrNoSuchToken):
			return made, nil
		case !errors.Is(err, plantstore.ErrRetry) || ctx.Err() != nil:
			return false, fmt.Errorf("make the first token: %w", err)
		}
	}
}

func welcome(out io.Writer, api *url.URL, secret string) {
	fmt.Fprintf(out, `Plantstore is ready at %[1]s

This store is new. Here is its first token, shown only now; it is good for 90 days:

  %[2]s

Open %[3]s in a browser and paste it there, or create a plant from here:

  curl -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{"id":1,"name":"Monstera","tag":"tropical"}' %[1]s/plants

`, api, secret, &url.URL{Scheme: api.Scheme, Host: api.Host, Path: "/"})
}

func newLogger(out io.Writer, format, levelName string) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(levelName)); err != nil {
		panic("a level that the flag allows: " + err.Error())
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: readableTimes}
	if format == "text" || format == "auto" && isTerminal(out) {
		return slog.New(slog.NewTextHandler(out, opts))
	}
	return slog.New(slog.NewJSONHandler(out, opts))
}

// readableTimes writes durations as people do; JSON would have nanoseconds.
func readableTimes(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
