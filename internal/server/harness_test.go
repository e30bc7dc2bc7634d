package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"plantstore"
	"plantstore/internal/auth"
	"plantstore/internal/commit"
	"plantstore/internal/http1"
	"plantstore/internal/postgres"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/sqlite"
)

// stores are the stores that the service is tested on.
var stores = []struct {
	name string
	open func(t testing.TB) plantstore.Store
}{
	{"sqlite", openSQLite},
	{"postgres", openPostgres},
}

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func openPostgres(t testing.TB) plantstore.Store {
	t.Helper()
	store, err := postgres.Open(pgtest.Fresh(t), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func openSQLite(t testing.TB) plantstore.Store {
	t.Helper()
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "plants.db"), sqlite.Serve)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// onEveryStore runs a test with a service on each of the stores. Where the store
// cannot matter, a test starts a service on the first one itself.
func onEveryStore(t *testing.T, test func(t *testing.T, s *service)) {
	t.Parallel()
	for _, kind := range stores {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t, setup{store: kind.open(t)}))
		})
	}
}

// setup says in what a service differs from one that is started without flags.
type setup struct {
	store       plantstore.Store // closed at the end
	base        string           // the base URL, or its path alone
	maxBody     int64
	queue       int
	readTimeout time.Duration
}

// service is a server that listens, with all that stands behind it. Whatever is
// exchanged with it is judged by the contract.
type service struct {
	store   plantstore.Store
	handler *Server
	addr    string
	base    *url.URL
	token   string // the secret of a token that may do everything
	secrets []string
	log     *logBook
	judge   *judge
	client  *http.Client
}

// start starts a service that is stopped when the test ends.
func start(t testing.TB, with setup) *service {
	t.Helper()
	if with.store == nil {
		with.store = stores[0].open(t)
	}
	if with.maxBody == 0 {
		with.maxBody = 1 << 20
	}
	if with.readTimeout == 0 {
		with.readTimeout = 30 * time.Second
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	base, err := (&url.URL{Scheme: "http", Host: addr}).Parse(with.base)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{
		store: with.store, addr: addr, base: base, log: new(logBook), judge: newJudge(t, base),
		client: &http.Client{
			Transport:     &http.Transport{DisableCompression: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	s.run(t, with, listener)
	s.token = s.newToken(t, plantstore.Token{Scopes: plantstore.AllScopes()})
	return s
}

// run wires the service as plantstore serve does, and ends it in the same order.
func (s *service) run(t testing.TB, with setup, listener net.Listener) {
	t.Helper()
	const maxHeader = 32 << 10
	log := slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var metrics *Metrics
	writer := commit.New(s.store, commit.Options{
		Queue:   with.queue,
		Observe: func(size int, took time.Duration) { metrics.Committed(size, took) },
	})
	metrics = NewMetrics("test", writer.Depth)
	guard := auth.New(s.store, log)
	handler, err := New(Options{
		Store: s.store, Writer: writer, Guard: guard, Metrics: metrics, Log: log,
		BaseURL: s.base, MaxBody: with.maxBody, MaxHeader: maxHeader, StreamTimeout: with.readTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.handler = handler
	web := http1.New(&http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       with.readTimeout,
		WriteTimeout:      90 * time.Second,
		IdleTimeout:       120 * time.Second,
		MaxHeaderBytes:    2 * maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	})
	runs := []func(context.Context) error{writer.Run, guard.Run}
	if store, ok := s.store.(interface{ Run(context.Context) error }); ok {
		runs = append(runs, store.Run)
	}
	var stops []func()
	for _, run := range runs {
		stops = append(stops, background(t, run))
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		web.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
		for _, stop := range stops {
			stop()
		}
		if err := s.store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		s.wantNoSecretsLogged(t)
	})
}

// background runs f until the returned function is called, which waits for it.
func background(t testing.TB, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func (s *service) wantNoSecretsLogged(t testing.TB) {
	for _, secret := range s.secrets {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the secret of a token is in the log")
		}
	}
}

// newToken adds a token to the store and returns its secret.
func (s *service) newToken(t testing.TB, token plantstore.Token) string {
	t.Helper()
	secret := plantstore.NewSecret()
	token.Hash = plantstore.HashSecret(secret)
	token.Name = "test"
	token.Created = time.Now()
	if err := s.store.CreateToken(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	s.secrets = append(s.secrets, secret)
	return secret
}

// plants returns the path of the collection.
func (s *service) plants() string { return strings.TrimRight(s.base.EscapedPath(), "/") + "/plants" }

// create sends a createPlant. Lines of header stand in for those that it would
// send itself; one that ends in a colon is left out.
func (s *service) create(t *testing.T, body string, header ...string) reply {
	t.Helper()
	return s.send(t, "POST", s.plants(), body, s.withDefaults(header)...)
}

func (s *service) withDefaults(header []string) []string {
	header = slices.Clone(header)
	for _, line := range []string{"Authorization: Bearer " + s.token, "Content-Type: application/json"} {
		name, _, _ := strings.Cut(line, ":")
		given := func(h string) bool { return strings.HasPrefix(h, name+":") }
		if !slices.ContainsFunc(header, given) {
			header = append(header, line)
		}
	}
	return slices.DeleteFunc(header, func(h string) bool { return strings.HasSuffix(h, ":") })
}

// send sends a request with these lines of header, and has the exchange judged.
func (s *service) send(t *testing.T, method, path, body string, header ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	response, err := s.client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return s.receive(t, r, []byte(body), response)
}

// receive reads the rest of an answer and has the exchange judged.
func (s *service) receive(t *testing.T, r *http.Request, sent []byte, response *http.Response) reply {
	t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: read the answer: %v", r.Method, r.URL, err)
	}
	got := reply{response.StatusCode, response.Header, body, response.Close}
	if err := s.judge.check(exchange{r, sent, got}); err != nil {
		t.Errorf("%s %s with %.200q was answered %d %.200q: %v", r.Method, r.URL, sent, got.status, body, err)
	}
	for _, secret := range s.secrets {
		if bytes.Contains(body, []byte(secret)) {
			t.Errorf("%s %s: the secret of a token is in the answer %q", r.Method, r.URL, body)
		}
	}
	return got
}

// connection is one to the service that carries requests byte for byte as the
// test writes them, one after the other.
type connection struct {
	net.Conn
	service *service
	sent    bytes.Buffer // since the last answer
	in      *bufio.Reader
}

func (s *service) dial(t *testing.T) *connection {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	// A server that never answers fails the test instead of hanging it.
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &connection{Conn: conn, service: s, in: bufio.NewReader(conn)}
}

// dialCreate opens a connection and sends the header of a createPlant.
func (s *service) dialCreate(t *testing.T, header ...string) *connection {
	t.Helper()
	c := s.dial(t)
	c.sendHeader(t, header...)
	return c
}

// sendHeader sends the header of a createPlant.
func (c *connection) sendHeader(t *testing.T, header ...string) {
	t.Helper()
	lines := append([]string{"POST " + c.service.plants() + " HTTP/1.1", "Host: " + c.service.addr}, c.service.withDefaults(header)...)
	c.send(t, strings.Join(lines, "\r\n")+"\r\n\r\n")
}

// send sends the text. Whether the server still reads it is its own business.
func (c *connection) send(t *testing.T, text string) {
	t.Helper()
	c.sent.WriteString(text)
	if _, err := io.WriteString(c, text); err != nil {
		t.Logf("send: %v", err)
	}
}

// endSending tells the server that nothing more will come.
func (c *connection) endSending(t *testing.T) {
	t.Helper()
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

// reply reads an answer and has the exchange judged by what was sent so far. An
// interim answer such as 100 is no exchange yet.
func (c *connection) reply(t *testing.T) reply {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(c.sent.Bytes())))
	if err != nil {
		t.Fatalf("read what was sent: %v", err)
	}
	body, _ := io.ReadAll(r.Body) // it may be cut off
	response, err := http.ReadResponse(c.in, r)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	if response.StatusCode < 200 {
		return reply{status: response.StatusCode, header: response.Header}
	}
	c.sent.Reset()
	return c.service.receive(t, r, body, response)
}

// wantClosed fails unless the server ends the connection when the caller does.
func (c *connection) wantClosed(t *testing.T) {
	t.Helper()
	_ = c.Conn.(*net.TCPConn).CloseWrite() // which fails where the server was first
	if rest, err := io.ReadAll(c.in); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the answer came %q, %v; want the end of the connection", rest, err)
	}
}

// reply is an answer that has been read.
type reply struct {
	status int
	header http.Header
	body   []byte
	closes bool // whether the connection ends with it
}

// wantPlant fails unless the answer is a Plant and nothing else.
func (r reply) wantPlant(t *testing.T, want plantstore.Plant) {
	t.Helper()
	members := map[string]any{"name": want.Name}
	if text, ok := want.Tag.Text(); ok {
		members["tag"] = text
	}
	if r.status != http.StatusOK || !equalJSON(r.body, members) {
		t.Fatalf("answered %d %.300q, want 200 %.300s", r.status, r.body, fmt.Sprint(members))
	}
}

// wantError fails unless the answer is an Error with that code, whose message
// has all these parts.
func (r reply) wantError(t *testing.T, code plantstore.Code, parts ...string) {
	t.Helper()
	var got struct {
		Error   plantstore.Code
		Message string
	}
	if err := json.Unmarshal(r.body, &got); err != nil || got.Error != code || r.status != int(code)/100 {
		t.Fatalf("answered %d %.300q, want the error %d", r.status, r.body, code)
	}
	for _, part := range parts {
		if !strings.Contains(got.Message, part) {
			t.Errorf("error %d says %q, want %q in it", code, got.Message, part)
		}
	}
}

// wantHeader fails unless the header has exactly these values.
func (r reply) wantHeader(t *testing.T, name string, want ...string) {
	t.Helper()
	if got := r.header.Values(name); !slices.Equal(got, want) {
		t.Errorf("%s is %q, want %q", name, got, want)
	}
}

// equalJSON reports whether text is JSON for an object with exactly these members.
func equalJSON(text []byte, want map[string]any) bool {
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil || len(got) != len(want) {
		return false
	}
	for name, value := range want {
		if got[name] != value {
			return false
		}
	}
	return true
}

// wantStored fails unless these plants are all that the store holds.
func (s *service) wantStored(t *testing.T, want ...plantstore.Plant) {
	t.Helper()
	var got []plantstore.Plant
	for plant, err := range s.store.Scan(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, plant)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the store holds %.300s, want %.300s", fmt.Sprint(got), fmt.Sprint(want))
	}
}

// clear removes all plants, past the service.
func (s *service) clear(t *testing.T) {
	t.Helper()
	var batch []plantstore.Write
	for plant, err := range s.store.Scan(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, plantstore.Write{Op: plantstore.Delete, Plant: plant})
	}
	if _, err := s.store.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

// logBook keeps what is logged.
type logBook struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logBook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
