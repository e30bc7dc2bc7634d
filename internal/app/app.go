// Package app wires the parts of a server together and runs them. The command and the tests
// both run this server.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"plantstore"
	"plantstore/internal/auth"
	"plantstore/internal/commit"
	"plantstore/internal/console"
	"plantstore/internal/httpd"
	"plantstore/internal/postgres"
	"plantstore/internal/rules"
	"plantstore/internal/server"
	"plantstore/internal/sqlite"
	"plantstore/internal/tracing"
	"plantstore/internal/webhook"
)

// Options are the whole configuration of a server. The flags of plantstore serve have the
// same names, and say more.
type Options struct {
	// Version is the version of the program.
	Version string
	// OwnsProcess says that the process does nothing else. The server then fits Go's runtime
	// to itself, limits the memory of the process, and tells systemd about its state.
	OwnsProcess bool

	// Listener is where the server listens. Run closes it.
	Listener net.Listener
	// BaseURL is the public URL of the API. Its path is where the API is mounted.
	BaseURL *url.URL
	// Certificates, if set, are served to every connection: all of them have TLS.
	Certificates Certificates
	// Origins are the other origins whose web pages may call the API.
	Origins []string

	// Store has what the server serves. Run closes it.
	Store plantstore.Store
	// FirstToken, if set, creates the first token of the store. Run calls it while it serves:
	// it is for a store that could not be reached when the program started.
	FirstToken func(context.Context) error
	// StoreTimeout is how long a request waits for a store that cannot be reached.
	StoreTimeout time.Duration
	// MaxQueue is how many writes may be queued.
	MaxQueue int
	// LogKeep and LogMaxBytes limit how much of the log of changes is kept; 0 is no limit.
	LogKeep     time.Duration
	LogMaxBytes int64
	// SearchIndex says when there is an index of names.
	SearchIndex rules.IndexMode

	// RateLimit is how many requests each token may send, and AuthFailures how many each
	// address may without a valid one.
	RateLimit, AuthFailures plantstore.Rate
	// TrustedProxies are those whose Forwarded and X-Forwarded-For are believed.
	TrustedProxies []netip.Prefix
	// OIDC is the identity provider whose tokens are accepted too, if there is one.
	OIDC auth.OIDC

	// WebhookAllow are networks that webhooks may call although they are not public.
	WebhookAllow []netip.Prefix
	// SecretKey, if set, encrypts the secrets of webhooks in the store.
	SecretKey []byte

	// MaxConnections and MaxRequests are how many connections may be open, and how many
	// requests in flight; 0 is no limit.
	MaxConnections, MaxRequests int
	// MaxBody and MaxHeader are the largest body and header, in bytes.
	MaxBody, MaxHeader int64
	// The timeouts are those of [http.Server], and ExportTimeout is how long an export may take.
	ReadHeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout, ExportTimeout time.Duration
	// DrainDelay is how long the server keeps serving while /readyz already fails, and
	// ShutdownTimeout how long requests in flight may then take, and after that everything else.
	DrainDelay, ShutdownTimeout time.Duration

	Log *slog.Logger
	// AccessLog, if set, gets a line for every request. Run writes them.
	AccessLog *server.AccessLog
	// Tracer, if set, traces requests and commits. The caller closes it after Run.
	Tracer *tracing.Tracer

	// The rest is for tests. Clock shows the time to the server instead of the true one, Wrap
	// wraps the handler, and WebhookDelays replace the usual ones.
	Clock         func() time.Time
	Wrap          func(http.Handler) http.Handler
	WebhookDelays webhook.Delays
}

// App is a server, from its listener to its store.
type App struct {
	// Handler is the handler of the API and the pages.
	Handler *server.Server

	opts   Options
	web    *httpd.Server
	clock  *rules.Clock
	guard  *auth.Guard
	writer *commit.Writer
	hooks  *webhook.Sender
}

// upkeep is the background work of a store, which those of some tests do not have. Run is called
// last.
type upkeep interface {
	KeepLog(age time.Duration, bytes int64)
	IndexNames(when rules.IndexMode)
	Run(ctx context.Context) error
}

// New wires a server. It starts nothing, and takes nothing that has to be released: the
// listener and the store belong to the caller until [App.Run] is called.
func New(opts Options) (*App, error) {
	a := &App{opts: opts}
	kind := plantstore.StoreSQLite
	_, shared := opts.Store.(*postgres.Store)
	if shared {
		kind = plantstore.StorePostgres
	}
	now := opts.Clock
	if now == nil {
		now = time.Now
	}
	a.clock = rules.NewClock("server", now, opts.Log)
	if file, ok := opts.Store.(*sqlite.Store); ok {
		file.Clock = a.clock
	}
	if s, ok := opts.Store.(upkeep); ok {
		s.KeepLog(opts.LogKeep, opts.LogMaxBytes)
		s.IndexNames(opts.SearchIndex)
	}
	metrics := server.NewMetrics(opts.Version)
	writes := commit.Options{Queue: opts.MaxQueue, StoreTimeout: opts.StoreTimeout, Observe: metrics.Committed}
	var traceRequests server.Trace
	if opts.Tracer != nil {
		writes.Tracer, traceRequests = opts.Tracer, opts.Tracer.Request
	}
	a.writer = commit.New(opts.Store, writes)
	a.guard = auth.New(opts.Store, auth.Options{
		StoreTimeout: opts.StoreTimeout, Log: opts.Log,
		RateLimit: opts.RateLimit, AuthFailures: opts.AuthFailures, TrustedProxies: opts.TrustedProxies, OIDC: opts.OIDC,
	})
	a.hooks = webhook.New(opts.Store, webhook.Options{
		Allow: opts.WebhookAllow, Key: opts.SecretKey, Shared: shared, Log: opts.Log, Clock: a.clock, Observe: metrics.Delivered, Delays: opts.WebhookDelays,
	})
	pages, err := console.New(opts.BaseURL)
	if err != nil {
		return nil, err
	}
	web := &http.Server{
		ReadHeaderTimeout: opts.ReadHeaderTimeout,
		ReadTimeout:       opts.ReadTimeout,
		WriteTimeout:      opts.WriteTimeout,
		IdleTimeout:       opts.IdleTimeout,
		// Beyond twice the limit net/http refuses a header by itself; up to that
		// point the handler does, with an Error.
		MaxHeaderBytes: int(2 * opts.MaxHeader),
		ErrorLog:       slog.NewLogLogger(opts.Log.Handler(), slog.LevelDebug),
	}
	var certificateExpires func() time.Time
	if c := opts.Certificates; c != nil {
		web.TLSConfig, certificateExpires = c.config(), c.expires
	}
	a.Handler = server.New(server.Options{
		Store: opts.Store, Writer: a.writer, Guard: a.guard, Webhooks: a.hooks, Metrics: metrics, Clock: a.clock,
		Log: opts.Log, AccessLog: opts.AccessLog, Trace: traceRequests, Pages: pages.Page,
		About: plantstore.About{
			Version: opts.Version, Store: kind, Limits: plantstore.Limits{LogKeep: opts.LogKeep, LogMaxBytes: opts.LogMaxBytes},
		},
		BaseURL: opts.BaseURL, Origins: opts.Origins, MaxRequests: opts.MaxRequests, MaxBody: opts.MaxBody, MaxHeader: opts.MaxHeader,
		StreamTimeout: opts.ReadTimeout, ExportTimeout: opts.ExportTimeout, CertificateExpires: certificateExpires,
	})
	web.Handler = a.Handler
	if opts.Wrap != nil {
		web.Handler = opts.Wrap(a.Handler)
	}
	a.web = httpd.New(web, a.Handler.IsFast)
	a.web.MaxConnections = opts.MaxConnections
	a.Handler.WatchConnections(a.web)
	return a, nil
}

// Run serves until ctx ends or a part of the server fails. It returns the first failure,
// whether that came before or while it stopped.
//
// The parts start in the order of serve, and the last one to start is the first to stop:
// HTTP, once the requests in flight have their responses, then everything that served them,
// and at last the store is closed and the access log written. If this takes longer than the
// ShutdownTimeout twice, Run returns without it: every acknowledged write is durable.
func (a *App) Run(ctx context.Context) error {
	if a.opts.AccessLog != nil {
		defer background(new(errgroup.Group), a.opts.AccessLog.Run)()
	}
	drained, ended := make(chan error, 1), make(chan error, 1)
	go func() { ended <- a.serve(ctx, drained) }()
	failure := <-drained
	select {
	case err := <-ended:
		return err
	case <-time.After(a.opts.ShutdownTimeout):
		return errors.Join(failure, fmt.Errorf("the store could not be closed within %s", a.opts.ShutdownTimeout))
	}
}

// serve runs the parts and stops them. When no more requests are served, it sends what has
// failed so far to drained.
func (a *App) serve(ctx context.Context, drained chan<- error) (err error) {
	parts, failed := errgroup.WithContext(context.Background())
	defer func() { err = errors.Join(parts.Wait(), err, a.opts.Store.Close()) }()

	defer background(parts, a.clock.Run)()
	if s, ok := a.opts.Store.(upkeep); ok {
		defer background(parts, s.Run)()
	}
	defer background(parts, a.guard.Run)()
	defer background(parts, a.writer.Run)()
	defer background(parts, a.hooks.Run)()
	if a.opts.FirstToken != nil {
		defer background(parts, a.firstToken)()
	}
	if c := a.opts.Certificates; c != nil {
		defer background(parts, func(ctx context.Context) error { return c.keepCurrent(ctx, a.opts.Log) })()
	}
	if a.opts.OwnsProcess {
		tuneRuntime(a.opts.Store)
		defer background(parts, feedWatchdog)()
		defer background(parts, func(ctx context.Context) error { return limitMemory(ctx, a.web.Connections) })()
	}
	parts.Go(func() error {
		if err := a.web.Serve(a.opts.Listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	a.notify(daemon.SdNotifyReady)

	timeout := time.Second // after a failure: waiting clients have their responses, and may read them
	select {
	case <-ctx.Done():
		a.opts.Log.Info("shutting down", "delay", a.opts.DrainDelay, "timeout", a.opts.ShutdownTimeout)
		a.notify(daemon.SdNotifyStopping)
		a.Handler.Drain()
		select {
		case <-time.After(a.opts.DrainDelay):
		case <-failed.Done():
		}
		timeout = a.opts.ShutdownTimeout
	case <-failed.Done():
	}
	err = a.drain(timeout)
	drained <- errors.Join(context.Cause(failed), err)
	return err
}

// firstToken creates the first token, unless the server ends before.
func (a *App) firstToken(ctx context.Context) error {
	if err := a.opts.FirstToken(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// drain stops HTTP once the requests in flight have their responses.
func (a *App) drain(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := a.web.Shutdown(ctx); err != nil {
		a.web.Close()
		return fmt.Errorf("requests still in flight after %s were cut off: %w", timeout, err)
	}
	return nil
}

// background runs f in the group until the returned function is called, which waits for f
// to return.
func background(group *errgroup.Group, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	group.Go(func() error {
		defer close(done)
		return f(ctx)
	})
	return func() {
		cancel()
		<-done
	}
}

// every runs f immediately and again after each interval, until ctx ends or f fails.
func every(ctx context.Context, interval time.Duration, f func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := f(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
