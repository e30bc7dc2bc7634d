package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/rules"
	"plantstore/internal/storetest"
	"plantstore/internal/testenv"
)

func TestMain(m *testing.M) {
	examinedFirst = 50 // so that small stores ask the index
	code := pgtest.Main(m)
	if err := testenv.Leaks(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) func() plantstore.Store {
		url := pgtest.Fresh(t)
		return func() plantstore.Store { return mustOpen(t, url) }
	})
}

// mustOpen opens a store that the caller closes. Its timeouts are those of a test: its own are
// so short that a machine that stalls exceeds them.
func mustOpen(t testing.TB, url string) *Store {
	t.Helper()
	return mustOpenWith(t, url, Options{})
}

func mustOpenWith(t testing.TB, url string, opts Options) *Store {
	t.Helper()
	if !strings.Contains(url, "connect_timeout=") {
		url += fmt.Sprintf("&connect_timeout=%.0f&pool_ping_timeout=%s", testenv.Timeout.Seconds(), testenv.Timeout)
	}
	opts.StoreTimeout = testenv.Timeout
	s, err := Open(url, opts)
	if err != nil {
		t.Fatal(err)
	}
	s.callTimeout, s.clock.Wait = testenv.Timeout, 0
	return s
}

// openStore opens a store that is closed when the test ends.
func openStore(t testing.TB, url string) *Store {
	t.Helper()
	s := mustOpen(t, url)
	t.Cleanup(func() { s.Close() })
	return s
}

// query returns the first column of a query's rows as text.
func query(t testing.TB, url, sql string) []string {
	t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	rows, err := c.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		return string(row.RawValues()[0]), nil
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return texts
}

// inParallel calls do in n goroutines at once, and waits for all of them.
func inParallel(t testing.TB, n int, do func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func token(name string) plantstore.Token {
	return plantstore.Token{
		Hash: plantstore.HashSecret(name), Name: name, Scopes: plantstore.AllScopes(),
		Created: time.Unix(1_600_000_000, 0).UTC(),
	}
}

func TestTenReplicasStartTogether(t *testing.T) {
	const replicas = 10
	url := pgtest.Fresh(t)
	var stores []*Store
	for range replicas {
		stores = append(stores, openStore(t, url))
	}
	first := make([]bool, replicas)
	inParallel(t, replicas, func(i int) (err error) {
		first[i], err = stores[i].CreateFirstToken(t.Context(), token(fmt.Sprintf("replica %d", i)))
		return err
	})
	tokens, err := stores[0].Tokens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(tokens) != 1 {
		t.Fatalf("the store has %d first tokens", len(tokens))
	}
	for i, got := range first {
		if want := tokens[0].Name == fmt.Sprintf("replica %d", i); got != want {
			t.Errorf("CreateFirstToken of replica %d returned %v, want %v", i, got, want)
		}
	}
	if got := query(t, url, "SELECT version FROM plantstore_schema"); len(got) != 1 || got[0] != fmt.Sprint(Schema()) {
		t.Errorf("plantstore_schema has the versions %s, want one row with %d", got, Schema())
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	url := pgtest.Fresh(t)
	if err := openStore(t, url).Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	query(t, url, "UPDATE plantstore_schema SET version = 99; UPDATE log_state SET oldest_writer = 99")
	s := openStore(t, url)
	for what, err := range map[string]error{
		"Ready": s.Ready(t.Context()),
		"Run":   s.Run(t.Context()),
		"Plant": func() error { _, err := s.Plant(t.Context(), 1); return err }(),
	} {
		if !errors.Is(err, ErrNewerSchema) || !strings.Contains(err.Error(), "start the newer one") {
			t.Errorf("%s of a store with schema 99: %v", what, err)
		}
	}
	if got := query(t, url, "SELECT version FROM plantstore_schema"); got[0] != "99" {
		t.Errorf("the version of the schema changed to %s", got)
	}
}

// A schema of before the first release, whose tables nobody looks at.
func TestUnsupportedOlderSchemaIsRefused(t *testing.T) {
	for _, version := range []int{1, base - 1} {
		url := release020(t)
		query(t, url, fmt.Sprintf("UPDATE plantstore_schema SET version = %d", version))
		before := append(describeTables(t, url), dumpRows(t, url)...)
		want := fmt.Sprintf("an older Plantstore wrote this store: its schema is version %d, this release supports schemas from %d on; export the plants with the release that wrote it, and import them into a new store with this one", version, base)
		for _, opts := range []Options{{}, {Alongside: true}, {Existing: true, Alongside: true}} {
			s := mustOpenWith(t, url, opts)
			defer s.Close()
			for what, err := range map[string]error{
				"Ready": s.Ready(t.Context()),
				"Run":   s.Run(t.Context()),
				"Check": func() error { _, err := s.Check(t.Context()); return err }(),
				"Plant": func() error { _, err := s.Plant(t.Context(), 1); return err }(),
				"Apply": func() error { _, err := s.Apply(t.Context(), []plantstore.Write{remove(1)}); return err }(),
			} {
				if !errors.Is(err, ErrOlderSchema) || !errors.Is(err, plantstore.ErrUnavailable) || errors.Is(err, plantstore.ErrRetry) || err.Error() != want {
					t.Errorf("%s with %+v: %v, want %s", what, opts, err, want)
				}
			}
		}
		if after := append(describeTables(t, url), dumpRows(t, url)...); !slices.Equal(after, before) {
			t.Errorf("the store with schema %d was changed: %s", version, after)
		}
	}
}

func TestForeignTablesAreLeftAlone(t *testing.T) {
	url := pgtest.Fresh(t)
	query(t, url, "CREATE TABLE plants (watered date)")
	err := openStore(t, url).Ready(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("Ready: %v", err)
	}
	if got := query(t, url, "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = 'plants'"); len(got) != 1 {
		t.Errorf("the table has the columns %s", got)
	}
}

func TestTextIsReadableInTheDatabase(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openStore(t, url)
	apply(t, s, create(plantstore.Plant{ID: 1, Name: "caf\u00e9 \U0001f335", Tag: plantstore.NewTag("a\u2400b")}))
	if got := query(t, url, "SELECT name || ' ' || tag FROM plants"); got[0] != "caf\u00e9 \U0001f335 a\u2400b" {
		t.Errorf("the row contains %+q", got)
	}
}

// TestServerIsDownAtStart opens a store on a server that is down, uses the store,
// and starts the server.
func TestServerIsDownAtStart(t *testing.T) {
	server := pgtest.Start(t)
	server.Kill(t)
	var log syncBuffer
	s := mustOpenWith(t, server.URL(), Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	defer running.Wait()
	defer stop()

	if err := s.Ready(ctx); !errors.Is(err, plantstore.ErrUnavailable) || strings.Contains(err.Error(), "batch") { // there is none
		t.Errorf("Ready without a server: %v", err)
	}
	_, err := s.Apply(ctx, []plantstore.Write{create(plant(1, "fern"))})
	if !errors.Is(err, plantstore.ErrRetry) || !errors.Is(err, plantstore.ErrUnavailable) {
		t.Errorf("Apply without a server: %v", err)
	}
	testenv.WaitFor(t, "a warning in the log", func() bool { return strings.Contains(log.String(), "PostgreSQL is unavailable, retrying") })

	read := make(chan error, 1)
	go func() {
		_, err := s.Plant(ctx, 1)
		read <- err
	}()
	server.Restart(t)
	testenv.WaitFor(t, "the all-clear in the log", func() bool { return strings.Contains(log.String(), "PostgreSQL is available") })
	if err := s.Ready(ctx); err != nil {
		t.Errorf("Ready with a server: %v", err)
	}
	apply(t, s, create(plant(1, "fern")))
	if err := <-read; err != nil && !errors.Is(err, plantstore.ErrNoPlant) {
		t.Errorf("the read that waited for the server: %v", err)
	}
}

// The reason comes first: the driver's error begins with the TLS that it tried before.
func TestRefusalIsRetriedWhileRunning(t *testing.T) {
	server := pgtest.Start(t)
	server.Exec(t, "CREATE ROLE gardener LOGIN SUPERUSER")
	s := openStore(t, fmt.Sprintf("postgres://gardener@%s/postgres?sslmode=prefer", server.Addr()))
	if err := errors.Join(s.CheckAccess(t.Context()), s.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	server.Exec(t, "ALTER ROLE gardener NOLOGIN")
	server.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'gardener'")
	want := s.String() + `: FATAL: role "gardener" is not permitted to log in (SQLSTATE 28000)`
	testenv.Eventually(t, func() error {
		if err := s.Ready(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, plantstore.ErrRetry) {
			return fmt.Errorf("got %v, want %s, and to try again", err, want)
		}
		return nil
	})
	server.Exec(t, "ALTER ROLE gardener LOGIN")
	testenv.Eventually(t, func() error { return s.Ready(t.Context()) })
}

// syncBuffer is a buffer that is safe for concurrent use.
type syncBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestPasswordStaysSecret tries every kind of mistake in a URL.
func TestPasswordStaysSecret(t *testing.T) {
	const secret = "hunter2"
	for _, url := range []string{
		"postgres://gardener:hunter2@host:port/db",
		"postgres://gardener:hunter2@host/db?sslmode=sometimes",
		"postgres://gardener:hunter2@host/db?pool_max_conns=many",
		"postgres://gardener:hunter2@host/db?connect_timeout=soon",
		"postgres://gardener:hunter2@host/db?target_session_attrs=whatever",
		"postgres://gardener:hunter2%zz@host/db",
		"postgres://gardener:hunter2%@host:1:2/db",
		"postgres://gardener:hunter2/x@host/db",
		"postgres://gardener:hunter2?x@host/db",
		"postgres://gardener:hunter2#x@host/db",
		"postgres://gardener:x:hunter2@host/db",
		"postgres://gardener:x@hunter2:y@host/db",
		"postgres://gardener:1/hunter2@host/db",
		"postgres://gardener:1?hunter2=@host/db",
		"postgres://gardener:1@hunter2@host/db",
		"postgres://gardener:hunter2",
		"postgres://host/db?password=hunter2&sslmode=sometimes",
		"postgres://a@host/db?password=hunter2&sslmode=sometimes",
		"postgres://host:x/db?sslpassword=hunter2",
		"postgres://[::1:hunter2@host",
	} {
		s, err := Open(url, Options{})
		if err == nil {
			s.Close()
			err = errors.New(s.String())
		}
		if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret) {
			t.Errorf("Open(%q): %v", url, err)
		}
	}

	fresh := strings.Replace(pgtest.Fresh(t), "postgres@", "postgres:hunter2@", 1)
	for _, url := range []string{
		"postgres://gardener:hunter2@127.0.0.1:1/db",
		"postgres://gardener:hunter2@127.0.0.1:1,127.0.0.1:2/db",
		"postgres://gardener:hunter2@no.such.host.invalid/db",
		strings.Replace(fresh, "/postgres?", "/nosuchdatabase?", 1),
		strings.Replace(fresh, "postgres:hunter2", "gardener:hunter2", 1),
		strings.Replace(fresh, "disable", "require", 1),
	} {
		var log syncBuffer
		s, err := Open(url, Options{StoreTimeout: time.Nanosecond, Log: slog.New(slog.NewJSONHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		_, plant := s.Plant(t.Context(), 1)
		_, applied := s.Apply(t.Context(), []plantstore.Write{create(plantstore.Plant{})})
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- s.Run(ctx) }()
		testenv.WaitFor(t, "a record in the log", func() bool { return log.String() != "" })
		stop()
		<-stopped
		s.Close()
		for what, err := range map[string]error{"Plant": plant, "Apply": applied, "Run": errors.New(log.String()), "String": errors.New(s.String())} {
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("%s, %s: %v", url, what, err)
			}
		}
		if !errors.Is(plant, plantstore.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", url, plant)
		}
	}
}

// Two servers race for the last places, and for the last token that may create others.
func TestLimitsOfTokensHoldAcrossServers(t *testing.T) {
	url := pgtest.Fresh(t)
	const free = 5
	stores := []*Store{openStore(t, url), openStore(t, url)}
	if err := stores[0].Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	query(t, url, fmt.Sprintf(`INSERT INTO stored_tokens (hash, name, scopes, created)
		SELECT sha256(i::text::bytea), i, 'plants:read', 0 FROM generate_series(1, %d) AS i`, plantstore.MaxTokens-free))
	var created atomic.Int32
	inParallel(t, 4*free, func(i int) error {
		err := stores[i%2].CreateToken(t.Context(), token(fmt.Sprintf("new %d", i)), plantstore.Actor{Name: "a"})
		if err == nil {
			created.Add(1)
		} else if !errors.Is(err, plantstore.ErrTooMany) {
			return err
		}
		return nil
	})
	if created.Load() != free {
		t.Errorf("%d tokens were created, want %d", created.Load(), free)
	}
	if err := stores[1].CreateToken(t.Context(), token("one more"), plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Errorf("the operator: %v", err)
	}
	var refused atomic.Int32
	inParallel(t, 4*free+1, func(i int) error {
		hash := token(fmt.Sprintf("new %d", i)).Hash
		if i == 4*free {
			hash = token("one more").Hash
		}
		err := stores[i%2].RevokeToken(t.Context(), hash, time.Unix(1_800_000_001, 0), plantstore.Actor{Name: "a"})
		switch {
		case errors.Is(err, plantstore.ErrLastToken):
			refused.Add(1)
		case err != nil && !errors.Is(err, plantstore.ErrNoSuchToken):
			return err
		}
		return nil
	})
	left := query(t, url, "SELECT count(*) FROM stored_tokens WHERE revoked IS NULL AND scopes LIKE '%tokens:write%'")
	if refused.Load() != 1 || left[0] != "1" {
		t.Errorf("%d revocations were refused, and %s tokens are left, want 1 and 1", refused.Load(), left)
	}
	if got := query(t, url, "SELECT count(*) || ' ' || max(seq) || ' ' || min(seq) FROM events"); got[0] != fmt.Sprint(2*free+1, 2*free+1, 1) {
		t.Errorf("the log has %s rows, last and first, want %d", got, 2*free+1)
	}
}

// Tokens that have ended do not count, and those that ended last are kept.
func TestEndedTokensMakeRoom(t *testing.T) {
	url := pgtest.Fresh(t)
	s := openStore(t, url)
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := token("now").Created.Unix()
	const ended = plantstore.MaxEndedTokens + rules.MaxDeletedTokens + 500
	query(t, url, fmt.Sprintf(`INSERT INTO stored_tokens (hash, name, scopes, created, expires, revoked)
		SELECT sha256(i::text::bytea), i, 'plants:read', 0, CASE i %% 2 WHEN 1 THEN %d - i END, CASE i %% 2 WHEN 0 THEN %[1]d - i END
		FROM generate_series(1, %d) AS i`, now, ended))
	query(t, url, fmt.Sprintf(`INSERT INTO stored_tokens (hash, name, scopes, created, expires)
		SELECT sha256(('active' || i)::bytea), 'active', 'plants:read', 0, CASE i %% 2 WHEN 1 THEN %d + 1 END
		FROM generate_series(2, %d) AS i`, now, plantstore.MaxTokens))
	for _, tt := range []struct {
		by   string
		want error
		left int
	}{
		{"a", nil, ended - rules.MaxDeletedTokens},
		{"b", plantstore.ErrTooMany, ended - rules.MaxDeletedTokens},
		{plantstore.Operator, nil, plantstore.MaxEndedTokens},
	} {
		if err := s.CreateToken(t.Context(), token(tt.by), plantstore.Actor{Name: tt.by}); !errors.Is(err, tt.want) {
			t.Errorf("CreateToken by %s: %v, want %v", tt.by, err, tt.want)
		}
		got := query(t, url, "SELECT count(*) || ', the first ' || max(name::integer) FROM stored_tokens WHERE name ~ '^[0-9]'")
		if want := fmt.Sprintf("%d, the first %[1]d", tt.left); got[0] != want {
			t.Errorf("after CreateToken by %s there are %s, want %s", tt.by, got, want)
		}
	}
}
