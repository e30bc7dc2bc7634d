package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"plantstore"
	"plantstore/internal/app"
	"plantstore/internal/auth"
	"plantstore/internal/cli"
	"plantstore/internal/postgres"
	"plantstore/internal/rules"
	"plantstore/internal/server"
	"plantstore/internal/sqlite"
	"plantstore/internal/tracing"
)

const bootstrapEnv = "PLANTSTORE_BOOTSTRAP_TOKEN"

// serveCommand is the whole configuration of a server.
type serveCommand struct {
	Addr    string   `default:"127.0.0.1:8080" env:"PLANTSTORE_ADDR" placeholder:"HOST:PORT" help:"Where to listen (${default}), or unix:PATH for a Unix socket."`
	BaseURL *url.URL `name:"base-url" env:"PLANTSTORE_BASE_URL" placeholder:"URL" help:"The public URL of the API; its path is where the API is mounted (http://ADDR)."`
	storeFlags
	tlsFlags
	CORSOrigin []string `name:"cors-origin" env:"PLANTSTORE_CORS_ORIGIN" placeholder:"ORIGIN" help:"Another origin whose web pages may call the API, such as https://example.com; separate several with commas."`

	// A larger body than the largest MaxBody would not fit the memory that all bodies share.
	MaxBody      int64         `type:"size" default:"1MiB" min:"1" max:"64MiB" env:"PLANTSTORE_MAX_BODY" placeholder:"SIZE" help:"The largest request body, at most 64MiB (${default})."`
	MaxHeader    int64         `type:"size" default:"32KiB" min:"1KiB" max:"1MiB" env:"PLANTSTORE_MAX_HEADER" placeholder:"SIZE" help:"The largest request header (${default})."`
	MaxQueue     int           `default:"8192" min:"1" env:"PLANTSTORE_MAX_QUEUE" placeholder:"N" help:"How many writes may be queued before clients get 503 (${default})."`
	StoreTimeout time.Duration `default:"30s" min:"1ms" env:"PLANTSTORE_STORE_TIMEOUT" placeholder:"TIME" help:"How long a request waits for a store that cannot be reached before it gets 503 (${default})."`

	DBConnections int `default:"19" min:"4" env:"PLANTSTORE_DB_CONNECTIONS" placeholder:"N" help:"How many connections to PostgreSQL this server may open, 4 at least (${default}). A file needs none."`

	RateLimit      plantstore.Rate `default:"off" env:"PLANTSTORE_RATE_LIMIT" placeholder:"RATE" help:"How many requests each token may send before it gets 429, such as 200/s or 200/s,burst=400 (${default})."`
	AuthFailures   plantstore.Rate `default:"20/s,burst=200" env:"PLANTSTORE_AUTH_FAILURES" placeholder:"RATE" help:"How many requests without a valid token each address may send before they get 429; off for no limit (${default})."`
	MaxConnections int             `default:"16384" min:"0" env:"PLANTSTORE_MAX_CONNECTIONS" placeholder:"N" help:"How many connections may be open before further ones get 503; 0 for no limit (${default})."`
	MaxRequests    int             `default:"8192" min:"0" env:"PLANTSTORE_MAX_REQUESTS" placeholder:"N" help:"How many requests may be in flight before further ones get 503, three quarters of them from one address; 0 for no limit (${default})."`
	TrustedProxies []netip.Prefix  `env:"PLANTSTORE_TRUSTED_PROXIES" placeholder:"CIDR" help:"The addresses of proxies whose Forwarded and X-Forwarded-For are believed, such as 10.0.0.1 or 10.0.0.0/8; separate several with commas."`

	OIDCIssuer      string   `name:"oidc-issuer" env:"PLANTSTORE_OIDC_ISSUER" placeholder:"URL" help:"An identity provider whose access tokens are accepted too, such as https://login.example.com/realms/garden."`
	OIDCAudience    string   `name:"oidc-audience" env:"PLANTSTORE_OIDC_AUDIENCE" placeholder:"TEXT" help:"The audience that its tokens must have."`
	OIDCScopePrefix string   `name:"oidc-scope-prefix" env:"PLANTSTORE_OIDC_SCOPE_PREFIX" placeholder:"TEXT" help:"The prefix of the scopes in its tokens."`
	OIDCGrant       []string `name:"oidc-grant" sep:";" env:"PLANTSTORE_OIDC_GRANT" placeholder:"CLAIM=VALUE:SCOPES" help:"Scopes for callers whose claim has a value, such as groups=gardeners:plants:read,plants:write; repeat it, or separate several with semicolons."`

	LogKeep     time.Duration `default:"7d" env:"PLANTSTORE_LOG_KEEP" placeholder:"TIME" help:"How long events are kept; 0 for no limit (${default})."`
	LogMaxBytes int64         `type:"size" default:"1GiB" env:"PLANTSTORE_LOG_MAX_BYTES" placeholder:"SIZE" help:"How large the log of changes may become before the oldest events are removed; 0 for no limit (${default})."`

	SearchIndex rules.IndexMode `default:"auto" enum:"auto,on,off" env:"PLANTSTORE_SEARCH_INDEX" placeholder:"MODE" help:"Whether there is an index that makes searches quick: on, off, or auto: once there are a million plants (${default})."`

	WebhookAllow  []netip.Prefix `env:"PLANTSTORE_WEBHOOK_ALLOW" placeholder:"CIDR" help:"A network that webhooks may call even though it is not public, by plain http too, such as 10.0.0.0/8; separate several with commas."`
	SecretKeyFile string         `env:"PLANTSTORE_SECRET_KEY_FILE" placeholder:"FILE" help:"A file with a key, at least 32 characters, that encrypts the secrets of webhooks in the store."`

	ReadHeaderTimeout time.Duration `default:"5s" min:"1ms" env:"PLANTSTORE_READ_HEADER_TIMEOUT" placeholder:"TIME" help:"How long a request header may take to arrive (${default})."`
	ReadTimeout       time.Duration `default:"30s" min:"1ms" env:"PLANTSTORE_READ_TIMEOUT" placeholder:"TIME" help:"How long a whole request may take to arrive (${default})."`
	WriteTimeout      time.Duration `default:"90s" min:"1ms" env:"PLANTSTORE_WRITE_TIMEOUT" placeholder:"TIME" help:"How long a request may take from its header to the end of its response (${default})."`
	ExportTimeout     time.Duration `default:"1h" min:"1ms" env:"PLANTSTORE_EXPORT_TIMEOUT" placeholder:"TIME" help:"How long an export may take (${default})."`
	IdleTimeout       time.Duration `default:"120s" min:"1ms" env:"PLANTSTORE_IDLE_TIMEOUT" placeholder:"TIME" help:"How long a connection may stay idle (${default})."`
	DrainDelay        time.Duration `default:"0s" env:"PLANTSTORE_DRAIN_DELAY" placeholder:"TIME" help:"How long to keep serving after SIGTERM while /readyz returns 503, so that a load balancer stops sending requests first (${default})."`
	ShutdownTimeout   time.Duration `default:"10s" min:"1ms" env:"PLANTSTORE_SHUTDOWN_TIMEOUT" placeholder:"TIME" help:"How long requests in flight may take to finish after SIGTERM (${default})."`

	// Set by check.
	grants    []auth.Grant
	secretKey []byte

	LogLevel  string `default:"info" enum:"debug,info,warn,error" env:"PLANTSTORE_LOG_LEVEL" placeholder:"LEVEL" help:"debug (logs every request), info, warn or error (${default})."`
	AccessLog bool   `env:"PLANTSTORE_ACCESS_LOG" help:"Log a line for every request: its id, token, operation, status, bytes, duration and address."`
	LogFormat string `default:"auto" enum:"auto,text,json" env:"PLANTSTORE_LOG_FORMAT" placeholder:"FORMAT" help:"text, json, or auto: text on a terminal (${default})."`

	PrintConfig bool `help:"Check the settings, print them as a configuration file with secrets masked, and exit."`
}

func (serveCommand) Help() string {
	return `On an empty store, serve creates a first token and prints it once. If PLANTSTORE_BOOTSTRAP_TOKEN is set, it becomes the first token instead, and no secret is printed.

SIGTERM and SIGINT shut the server down gracefully: /readyz returns 503, requests in flight are finished, queued writes are committed and the store is closed. A second signal ends it immediately.

SIGHUP changes the level of the log: to the one in the configuration file, or else to debug and back.

Examples:
  plantstore serve
  plantstore serve --addr :80 --db /var/lib/plantstore/plants.db --base-url https://example.com/v1`
}

func (c *serveCommand) Run(ctx context.Context, parser *kong.Kong, std streams) error {
	text := c.LogFormat == "text" || c.LogFormat == "auto" && cli.IsTerminal(std.err)
	level := new(slog.LevelVar)
	level.Set(parseLevel(c.LogLevel))
	log := app.NewLogger(std.err, text, level)
	for _, warning := range cli.UnknownVariables(parser.Model.Node, os.Environ(), flaglessVariables...) {
		log.Warn(warning) // before what a misspelt variable may cause
	}
	if err := c.check(); err != nil {
		return err
	}
	if c.PrintConfig {
		return cli.PrintSettings(std.out, settingsOf(parser.Model.Node))
	}
	slog.SetDefault(log) // net/http's client logs there
	tracer, err := tracing.New(buildVersion(), log)
	if err != nil {
		return usage("%w", err)
	}
	defer tracer.Close()
	if !cli.IsTerminal(std.err) {
		defer c.changeLevelOnHangup(level, parser.Model.Node, log)()
	}
	opts := c.options()
	opts.Log, opts.Tracer = log, tracer
	if c.AccessLog {
		opts.AccessLog = server.NewAccessLog(std.err, text)
	}
	return c.serve(ctx, opts, std.out)
}

// serve listens, opens the store, creates its first token, and serves.
func (c *serveCommand) serve(ctx context.Context, opts app.Options, out io.Writer) error {
	// The listener comes first: if the port is in use, no first token may be created.
	listener, err := app.Listen(c.Addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	base := c.baseURL(listener.Addr())
	// A PostgreSQL server that cannot be reached yet gets its first token later.
	startCtx := ctx
	if c.isPostgres() {
		limited, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		startCtx = limited
	}
	database := postgres.Options{Connections: c.DBConnections, StoreTimeout: c.StoreTimeout, Log: opts.Log}
	if opts.Tracer != nil {
		database.Trace = opts.Tracer.Statement
	}
	store, err := c.open(startCtx, sqlite.Serve, database)
	if err != nil {
		return err
	}
	bootstrap := os.Getenv(bootstrapEnv)
	if bootstrap != "" && len(bootstrap) < 32 {
		opts.Log.Warn(bootstrapEnv + " is short enough to be guessed: use at least 32 random characters")
	}
	firstToken := app.FirstToken(store, bootstrap, func(secret string) {
		printFirstToken(out, app.LocalURL(listener.Addr(), base, c.tlsFlags.enabled()), listener.Addr(), secret)
	})
	err = firstToken(startCtx)
	switch {
	case err == nil, errors.Is(err, plantstore.ErrDamaged): // the server says so, and does not end
		firstToken = nil
	case !c.isPostgres():
		return errors.Join(err, store.Close())
	}
	opts.Listener, opts.BaseURL, opts.Store, opts.FirstToken = listener, base, store, firstToken
	served, err := app.New(opts)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	opts.Log.Info("serving", "url", base.String(), "addr", listener.Addr().String(), "db", c.name(store), "version", buildVersion())
	err = served.Run(ctx)
	if file, ok := store.(*sqlite.Store); ok && err == nil {
		err = file.Damaged()
	}
	if err == nil {
		opts.Log.Info("stopped")
	}
	return err
}

// options returns the options of the server that come from flags alone.
func (c *serveCommand) options() app.Options {
	return app.Options{
		Version: buildVersion(), OwnsProcess: true,
		Certificates: c.tlsFlags.certificates(c.storeFlags), Origins: c.CORSOrigin,
		StoreTimeout: c.StoreTimeout, MaxQueue: c.MaxQueue, LogKeep: c.LogKeep, LogMaxBytes: c.LogMaxBytes, SearchIndex: c.SearchIndex,
		RateLimit: c.RateLimit, AuthFailures: c.AuthFailures, TrustedProxies: c.TrustedProxies,
		OIDC:         auth.OIDC{Issuer: c.OIDCIssuer, Audience: c.OIDCAudience, ScopePrefix: c.OIDCScopePrefix, Grants: c.grants},
		WebhookAllow: c.WebhookAllow, SecretKey: c.secretKey,
		MaxConnections: c.MaxConnections, MaxRequests: c.MaxRequests, MaxBody: c.MaxBody, MaxHeader: c.MaxHeader,
		ReadHeaderTimeout: c.ReadHeaderTimeout, ReadTimeout: c.ReadTimeout, WriteTimeout: c.WriteTimeout, IdleTimeout: c.IdleTimeout,
		ExportTimeout: c.ExportTimeout, DrainDelay: c.DrainDelay, ShutdownTimeout: c.ShutdownTimeout,
	}
}

// baseURL returns the URL of the API, without a trailing slash.
func (c *serveCommand) baseURL(addr net.Addr) *url.URL {
	if c.BaseURL == nil && len(c.ACMEDomain) > 0 {
		host := c.ACMEDomain[0]
		if _, port, _ := net.SplitHostPort(addr.String()); port != "443" && port != "" {
			host = net.JoinHostPort(host, port)
		}
		return &url.URL{Scheme: "https", Host: host}
	}
	if c.BaseURL == nil {
		return app.LocalURL(addr, &url.URL{}, c.tlsFlags.enabled())
	}
	base := *c.BaseURL
	base.Path, base.RawPath = strings.TrimRight(base.Path, "/"), strings.TrimRight(base.RawPath, "/")
	return &base
}

// check refuses invalid settings before anything is touched.
func (c *serveCommand) check() error {
	if err := app.CheckAddr(c.Addr); err != nil {
		return usage("--addr %w", err)
	}
	if err := cmp.Or(c.storeFlags.check(), c.tlsFlags.check()); err != nil {
		return err
	}
	if b := c.BaseURL; b != nil {
		if b.Scheme != "http" && b.Scheme != "https" || b.Host == "" || b.RawQuery != "" || b.Fragment != "" || b.User != nil {
			return usage("--base-url must look like https://example.com or https://example.com/path")
		}
		// Paths are not cleaned, so no request would ever match such a path.
		if at := strings.TrimRight(b.Path, "/"); at != "" && path.Clean(at) != at {
			return usage("--base-url must not have //, /./ or /../ in its path, got %q", b.Path)
		}
	}
	for _, text := range c.CORSOrigin {
		// An origin that no browser sends would never match. Allowing all origins is not
		// offered.
		if !server.IsOrigin(text) {
			return usage("--cors-origin must look like https://example.com or http://localhost:3000, got %q", text)
		}
	}
	if err := cmp.Or(c.readSecretKey(), c.checkOIDC()); err != nil {
		return err
	}
	if _, err := tracing.Wanted(); err != nil {
		return usage("%w", err)
	}
	if secret, given := os.LookupEnv(bootstrapEnv); given {
		if err := plantstore.CheckSecret(secret); err != nil {
			return usage("%s: %w", bootstrapEnv, err)
		}
	}
	return nil
}

// readSecretKey reads the key that encrypts the secrets of webhooks, if there is one.
func (c *serveCommand) readSecretKey() error {
	if c.SecretKeyFile == "" {
		return nil
	}
	text, err := os.ReadFile(c.SecretKeyFile)
	if err != nil {
		return usage("--secret-key-file: %w", err)
	}
	const minSecretKey = 32
	if c.secretKey = bytes.TrimSpace(text); len(c.secretKey) < minSecretKey {
		return usage("--secret-key-file: %s must have at least %d random characters: write them with openssl rand -base64 32", c.SecretKeyFile, minSecretKey)
	}
	return nil
}

func (c *serveCommand) checkOIDC() error {
	if c.OIDCIssuer == "" {
		if c.OIDCAudience != "" || c.OIDCScopePrefix != "" || len(c.OIDCGrant) > 0 {
			return usage("--oidc-audience, --oidc-scope-prefix and --oidc-grant need --oidc-issuer")
		}
		return nil
	}
	if err := auth.CheckIssuer(c.OIDCIssuer); err != nil {
		return usage("--oidc-issuer %w", err)
	}
	if c.OIDCAudience == "" {
		return usage("--oidc-issuer needs --oidc-audience: without it, tokens for other services would be accepted")
	}
	for _, text := range c.OIDCGrant {
		grant, err := auth.ParseGrant(text)
		if err != nil {
			return usage("--oidc-grant: %w", err)
		}
		c.grants = append(c.grants, grant)
	}
	return nil
}

// printFirstToken prints a token that was generated, and what to do with it.
func printFirstToken(out io.Writer, api *url.URL, listener net.Addr, secret string) {
	place, curl := api.String(), "curl"
	create := fmt.Sprintf("Open %s in a browser and paste it there, or create", &url.URL{Scheme: api.Scheme, Host: api.Host, Path: "/"})
	if listener.Network() == "unix" { // no browser opens it
		place, curl = "the socket "+listener.String(), "curl --unix-socket "+listener.String()
		create = "Create"
	}
	fmt.Fprintf(out, `Plantstore is ready at %s

This store is new. Here is its first token. It will not be shown again and expires in 90 days:

  %[2]s

%[3]s a plant from the command line:

  %[4]s -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{"id":1,"name":"Monstera","tag":"tropical"}' %[5]s/plants

`, place, secret, create, curl, api)
}
