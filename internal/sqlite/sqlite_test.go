package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
	"plantstore/internal/rules"
	"plantstore/internal/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) func() plantstore.Store {
		path := newPath(t)
		return func() plantstore.Store {
			s := mustOpen(t, path, Serve)
			s.Clock.Wait = 0
			return s
		}
	})
}

func newPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "plants.db")
}

// mustOpen opens a store that the caller closes.
func mustOpen(t *testing.T, path string, mode Mode) *Store {
	t.Helper()
	s, err := Open(path, mode)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// awaitLocks makes stores wait for each other's transactions longer than busyTimeout. On
// a slow machine one of them may not get its turn for that long.
func awaitLocks(stores ...*Store) {
	for _, s := range stores {
		s.mu.Lock()
		s.write.conn.SetBusyTimeout(5 * time.Minute)
		s.mu.Unlock()
	}
}

// openStore opens a store that is closed when the test ends.
func openStore(t *testing.T, path string, mode Mode) *Store {
	t.Helper()
	s := mustOpen(t, path, mode)
	t.Cleanup(func() { mustClose(t, s) })
	return s
}

func mustClose(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func fern(id plantstore.ID) plantstore.Plant {
	return plantstore.Plant{ID: id, Name: "fern", Tag: plantstore.NewTag("green")}
}

func create(t *testing.T, s *Store, plants ...plantstore.Plant) {
	t.Helper()
	batch := make([]plantstore.Write, len(plants))
	for i, p := range plants {
		batch[i] = plantstore.Write{Op: plantstore.Create, Plant: p}
	}
	results, err := s.Apply(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Err != nil || r.Outcome != plantstore.Created {
			t.Fatalf("create %v: %v", plants[i], r)
		}
	}
}

func wantPlant(t *testing.T, s *Store, want plantstore.Plant) {
	t.Helper()
	if got, err := s.Plant(t.Context(), want.ID); err != nil || got.Plant != want {
		t.Errorf("Plant(%d): %v, %v, want %v", want.ID, got, err, want)
	}
}

func newToken(name string) plantstore.Token {
	return plantstore.Token{
		Hash: plantstore.HashSecret(name), Name: name, Scopes: plantstore.AllScopes(),
		Created: time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

// openRaw opens the file as another program would, and closes it when the test ends.
func openRaw(t *testing.T, path string) *sqlite.Conn {
	t.Helper()
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// runRaw runs a script on the file as another program would.
func runRaw(t *testing.T, path, script string) {
	t.Helper()
	c := openRaw(t, path)
	if err := sqlitex.ExecuteScript(c, script, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// text returns a column of all rows, one line each.
func text(t *testing.T, c *sqlite.Conn, query string, column int) string {
	t.Helper()
	var lines []string
	args := make([]any, strings.Count(query, "?"))
	err := sqlitex.ExecuteTransient(c, query, &sqlitex.ExecOptions{Args: args, ResultFunc: func(row *sqlite.Stmt) error {
		lines = append(lines, row.ColumnText(column))
		return nil
	}})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return strings.Join(lines, "\n")
}

func TestSecondServerIsRefused(t *testing.T) {
	path := newPath(t)
	first := mustOpen(t, path, Serve)
	for range 2 {
		second, err := Open(path, Serve)
		if !errors.Is(err, ErrLocked) || second != nil {
			t.Fatalf("a second server: %v, %v, want ErrLocked", second, err)
		}
		if !strings.Contains(err.Error(), path) {
			t.Errorf("the error does not name the file: %v", err)
		}
	}
	create(t, first, fern(1))
	mustClose(t, first)
	third := openStore(t, path, Serve)
	wantPlant(t, third, fern(1))
}

// A link leads to the same store, which has one lock.
func TestSecondServerIsRefusedThroughALink(t *testing.T) {
	path, link := newPath(t), newPath(t)
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, path, Serve))
	for _, names := range [][2]string{{path, link}, {link, path}} {
		first := mustOpen(t, names[0], Serve)
		second, err := Open(names[1], Serve)
		if !errors.Is(err, ErrLocked) || second != nil {
			t.Errorf("a server on %s while one serves %s: %v, want ErrLocked", names[1], names[0], err)
		}
		mustClose(t, first)
	}
}

func TestRefusedServerReleasesItsLock(t *testing.T) {
	path := newPath(t)
	runRaw(t, path, "CREATE TABLE notes (text TEXT)")
	for range 2 {
		if _, err := Open(path, Serve); err == nil || errors.Is(err, ErrLocked) {
			t.Fatalf("Open: %v, want the refusal of a foreign file", err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	openStore(t, path, Serve)
}

func TestShareWhileServing(t *testing.T) {
	for _, mode := range []Mode{Share, Existing} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			path := newPath(t)
			server := openStore(t, path, Serve)
			create(t, server, fern(1))
			other := mustOpen(t, path, mode)
			wantPlant(t, other, fern(1))
			if _, err := other.Apply(t.Context(), []plantstore.Write{{Op: plantstore.Create, Plant: fern(2)}}); err == nil {
				t.Error("a store that is not opened to serve writes plants")
			}
			wantTokenSeen(t, other, server, newToken("by the other"))
			wantTokenSeen(t, server, other, newToken("by the server"))
			mustClose(t, other)
			create(t, server, fern(3))
			wantPlant(t, server, fern(3))
		})
	}
}

func wantTokenSeen(t *testing.T, writer, reader *Store, token plantstore.Token) {
	t.Helper()
	if err := writer.CreateToken(t.Context(), token, plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Token(t.Context(), token.Hash); err != nil {
		t.Fatal(err)
	}
	if err := writer.RevokeToken(t.Context(), token.Hash, time.Now(), plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Fatal(err)
	}
	if got, err := reader.Token(t.Context(), token.Hash); err != nil || got.Revoked.IsZero() {
		t.Errorf("a revoked token: %v, %v", got, err)
	}
}

func TestServeWhileSharing(t *testing.T) {
	path := newPath(t)
	other := openStore(t, path, Share)
	server := mustOpen(t, path, Serve)
	wantTokenSeen(t, other, server, newToken("by the other"))
	create(t, server, fern(2))
	mustClose(t, server)
	wantPlant(t, other, fern(2))
	if err := other.CreateToken(t.Context(), newToken("later"), plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Error(err)
	}
}

// Each waits for the other's transactions instead of failing.
func TestShareAndServerWriteConcurrently(t *testing.T) {
	path := newPath(t)
	server, other := openStore(t, path, Serve), openStore(t, path, Share)
	awaitLocks(server, other)
	var writers sync.WaitGroup
	writers.Go(func() {
		for i := range plantstore.ID(100) {
			create(t, server, fern(i))
		}
	})
	writers.Go(func() {
		for i := range 100 {
			if err := other.CreateToken(t.Context(), newToken(fmt.Sprint(i)), plantstore.Actor{Name: plantstore.Operator}); err != nil {
				t.Errorf("token %d: %v", i, err)
				return
			}
		}
	})
	writers.Wait()
	wantPlant(t, other, fern(99))
	page, err := server.Events(t.Context(), plantstore.EventQuery{WithTokens: true, Limit: 1000})
	if err != nil || len(page.Events) != 200 {
		t.Errorf("%d events, %v, want 200", len(page.Events), err)
	}
	if problems, err := server.Check(t.Context()); err != nil || len(problems) > 0 {
		t.Errorf("Check: %v, %v", problems, err)
	}
	if tokens, err := server.Tokens(t.Context()); err != nil || len(tokens) != 100 {
		t.Errorf("%d tokens, %v", len(tokens), err)
	}
}

// Two processes race for the last places, and for the last token that may create others.
func TestLimitsOfTokensHoldAcrossProcesses(t *testing.T) {
	path := newPath(t)
	stores := []*Store{openStore(t, path, Serve), openStore(t, path, Share)}
	awaitLocks(stores...)
	const free = 10
	runRaw(t, path, fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO tokens (hash, name, scopes, created) SELECT randomblob(32), i, 'plants:read', 0 FROM n`, plantstore.MaxTokens-free))
	var created [2]int
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() {
			for n := range free {
				token := newToken(fmt.Sprint(i, " ", n))
				token.Scopes = plantstore.AllScopes()
				err := s.CreateToken(t.Context(), token, plantstore.Actor{Name: "a"})
				switch {
				case err == nil:
					created[i]++
				case !errors.Is(err, plantstore.ErrTooMany):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := created[0] + created[1]; got != free {
		t.Errorf("%v tokens were created, want %d", created, free)
	}
	if err := stores[1].CreateToken(t.Context(), newToken("one more"), plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Errorf("the operator: %v", err)
	}
	for _, s := range stores {
		wg.Go(func() {
			for i := range 2 {
				for n := range free {
					err := s.RevokeToken(t.Context(), newToken(fmt.Sprint(i, " ", n)).Hash, time.Now(), plantstore.Actor{Name: "a"})
					if err != nil && !errors.Is(err, plantstore.ErrLastToken) && !errors.Is(err, plantstore.ErrNoSuchToken) {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := text(t, stores[0].write.conn, "SELECT count(*) FROM tokens WHERE revoked IS NULL AND scopes LIKE '%tokens:write%'", 0); got != "1" {
		t.Errorf("%s tokens that may create others are left, want 1", got)
	}
}

// Tokens that have ended do not count, and those that ended last are kept.
func TestEndedTokensMakeRoom(t *testing.T) {
	path := newPath(t)
	s := openStore(t, path, Serve)
	now := newToken("now").Created.Unix()
	const ended = plantstore.MaxEndedTokens + rules.MaxDeletedTokens + 500
	runRaw(t, path, fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO tokens (hash, name, scopes, created, expires, revoked)
		SELECT randomblob(32), i, 'plants:read', 0, iif(i %% 2, %d - i, NULL), iif(i %% 2, NULL, %[2]d - i) FROM n`, ended, now))
	runRaw(t, path, fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO tokens (hash, name, scopes, created, expires) SELECT randomblob(32), 'active', 'plants:read', 0, iif(i %% 2, %d + 1, NULL) FROM n`,
		plantstore.MaxTokens, now))
	const kept = "SELECT count(*) || ', the first ' || max(cast(name AS INTEGER)) FROM tokens WHERE name GLOB '[0-9]*'"
	for _, tt := range []struct {
		by   string
		want error
		left int
	}{
		{"a", nil, ended - rules.MaxDeletedTokens},
		{"b", plantstore.ErrTooMany, ended - rules.MaxDeletedTokens},
		{plantstore.Operator, nil, plantstore.MaxEndedTokens},
	} {
		if err := s.CreateToken(t.Context(), newToken(tt.by), plantstore.Actor{Name: tt.by}); !errors.Is(err, tt.want) {
			t.Errorf("CreateToken by %s: %v, want %v", tt.by, err, tt.want)
		}
		if got, want := text(t, s.write.conn, kept, 0), fmt.Sprintf("%d, the first %[1]d", tt.left); got != want {
			t.Errorf("after CreateToken by %s there are %s, want %s", tt.by, got, want)
		}
	}
}

// A file of another program is refused and not changed.
func TestForeignFileIsRefused(t *testing.T) {
	scripts := map[string]string{
		"tables":                   "CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('mine')",
		"tables with our names":    "CREATE TABLE plants (id INTEGER PRIMARY KEY, name TEXT); CREATE TABLE tokens (hash BLOB)",
		"its own application id":   "PRAGMA application_id=7; CREATE TABLE notes (text TEXT)",
		"an application id, empty": "PRAGMA application_id=7",
		"a version, empty":         "PRAGMA user_version=1",
	}
	for name, script := range scripts {
		for _, mode := range []string{"delete", "wal"} {
			t.Run(name+", journal mode "+mode, func(t *testing.T) {
				path := newPath(t)
				runRaw(t, path, script)
				c := openRaw(t, path)
				text(t, c, "PRAGMA journal_mode="+mode, 0)
				c.Close()
				wantForeign(t, path)
			})
		}
	}
}

func wantForeign(t *testing.T, path string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []Mode{Serve, Share, Existing} {
		_, err := Open(path, mode)
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "another program") {
			t.Fatalf("mode %d: %v, want a refusal that names the file", mode, err)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
}

func TestFileThatIsNotADatabaseIsRefused(t *testing.T) {
	contents := map[string]string{
		"a line":    "hello\n",
		"long text": strings.Repeat("All work and no play makes Jack a dull boy.\n", 200),
		"zeros":     strings.Repeat("\x00", 8192),
	}
	for name, content := range contents {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, mode := range []Mode{Serve, Share, Existing} {
				_, err := Open(path, mode)
				if err == nil || !strings.Contains(err.Error(), path+" is not a Plantstore store") {
					t.Fatalf("mode %d: %v, want a refusal that names the file", mode, err)
				}
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != content {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
}

func TestEmptyFileBecomesAStore(t *testing.T) {
	path := newPath(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	create(t, openStore(t, path, Serve), fern(1))
}

func TestDirectoryIsNotAStore(t *testing.T) {
	for _, mode := range []Mode{Serve, Share, Existing} {
		path := t.TempDir()
		if _, err := Open(path, mode); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("mode %d: %v, want an error that names the directory", mode, err)
		}
	}
}

func TestMissingDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	for _, mode := range []Mode{Serve, Share, Existing} {
		if _, err := Open(filepath.Join(dir, "plants.db"), mode); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("mode %d: %v, want fs.ErrNotExist", mode, err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was created: %v", err)
	}
}

func TestExistingCreatesNoFile(t *testing.T) {
	path := newPath(t)
	if _, err := Open(path, Existing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open: %v, want fs.ErrNotExist", err)
	}
	left, err := filepath.Glob(path + "*")
	if err != nil || len(left) != 0 {
		t.Errorf("Open left %q, %v", left, err)
	}
}

func TestOnlyTheOwnerCanReadTheStore(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	for _, mode := range []Mode{Serve, Share} {
		path := newPath(t)
		s := mustOpen(t, path, mode)
		if err := s.CreateToken(t.Context(), newToken("ci"), plantstore.Actor{Name: plantstore.Operator}); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(path + "*")
		if err != nil || len(files) < 3 {
			t.Fatalf("files %q, %v: want the store, its log and its index", files, err)
		}
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode(); got != 0o600 {
				t.Errorf("%s has the mode %o, want 600", filepath.Base(file), got)
			}
		}
		mustClose(t, s)
	}
}

func TestEveryConnectionIsDurable(t *testing.T) {
	path := newPath(t)
	s := openStore(t, path, Serve)
	scanner, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer scanner.Close()
	connections := map[string]*sqlite.Conn{
		"the writer": s.write.conn, "the checkpointer": s.checkpointer, "a scanner": scanner,
	}
	for i := range maxReaders {
		r, err := s.lookups.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer s.lookups.release(r)
		connections[fmt.Sprintf("reader %d", i)] = r
		if got := text(t, r, "PRAGMA query_only", 0); got != "1" {
			t.Errorf("reader %d: query_only is %s, want 1", i, got)
		}
	}
	for name, c := range connections {
		for pragma, want := range map[string]string{
			"synchronous": full, "journal_mode": "wal", "fullfsync": "1", "checkpoint_fullfsync": "1", "wal_autocheckpoint": "0",
		} {
			if got := text(t, c, "PRAGMA "+pragma, 0); got != want {
				t.Errorf("%s: %s is %s, want %s", name, pragma, got, want)
			}
		}
	}
}

// openRunning opens a store and calls its Run in the background. Both end with the
// test.
func openRunning(t *testing.T, path string) *Store {
	t.Helper()
	s := openStore(t, path, Serve)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s
}

// walLimit is how long the log may be, in bytes: it grows beyond maxLog while a
// checkpoint catches up.
const walLimit = 5 * maxLog * pageSize / 2

func walSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// wantBoundedLog runs a test that writes to a store and returns how long its log became.
// The log may grow too long while the machine runs the writer and not the checkpoint, so
// there are three attempts.
func wantBoundedLog(t *testing.T, write func(t *testing.T, s *Store, path string) (size int64)) {
	t.Helper()
	var size int64
	for attempt := range 3 {
		t.Run(fmt.Sprint(attempt), func(t *testing.T) {
			path := newPath(t)
			size = write(t, openRunning(t, path), path)
			t.Logf("the log grew to %d MiB", size>>20)
		})
		if size <= walLimit || t.Failed() {
			return
		}
	}
	t.Errorf("the log grew to %d MiB, want at most %d MiB", size>>20, walLimit>>20)
}

// Without checkpoints the log would grow to 190 MiB and more.
func TestLogStaysBounded(t *testing.T) {
	const plants, size, rounds = 8, 256 << 10, 95
	wantBoundedLog(t, func(t *testing.T, s *Store, path string) (peak int64) {
		batch := make([]plantstore.Write, plants)
		for round := range rounds {
			name := strings.Repeat(string(rune('a'+round%26)), size)
			for i := range batch {
				batch[i] = plantstore.Write{Op: plantstore.Replace, Plant: plantstore.Plant{ID: plantstore.ID(i), Name: name}}
			}
			if _, err := s.Apply(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			peak = max(peak, walSize(t, path))
		}
		return peak
	})
}

func TestCheckpointRunsWhenThereIsEnoughToCopy(t *testing.T) {
	s := openStore(t, newPath(t), Serve)
	large := fern(2)
	large.Name = strings.Repeat("x", checkpointEvery*pageSize)
	for want, plant := range []plantstore.Plant{fern(1), large} {
		create(t, s, plant)
		for range 2 {
			if err := s.checkpointIfDue(); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.checkpoints.Load(); got != int64(want) {
			t.Errorf("after plant %d there were %d checkpoints, want %d", plant.ID, got, want)
		}
	}
}

// Every token fills a page, so few writes fill the log: without checkpoints it would
// grow to 195 MiB.
func TestLogStaysBoundedWhenOnlyTokensAreUsed(t *testing.T) {
	const tokens, rounds = 400, 120
	wantBoundedLog(t, func(t *testing.T, s *Store, path string) int64 {
		used := map[plantstore.TokenHash]time.Time{}
		at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		for i := range tokens {
			token := newToken(fmt.Sprintf("%03000d", i))
			used[token.Hash] = at
			if err := s.CreateToken(t.Context(), token, plantstore.Actor{Name: plantstore.Operator}); err != nil {
				t.Fatal(err)
			}
		}
		for range rounds {
			at = at.Add(time.Second)
			for hash := range used {
				used[hash] = at
			}
			if err := s.TouchTokens(t.Context(), used); err != nil {
				t.Fatal(err)
			}
		}
		return walSize(t, path)
	})
}

// The scan is in the middle of its iteration, so a writer that waited for it would wait
// forever.
func TestScanBlocksNeitherWritersNorCheckpoints(t *testing.T) {
	path := newPath(t)
	s := openStore(t, path, Serve)
	var plants []plantstore.Plant
	for id := range plantstore.ID(1000) {
		plants = append(plants, fern(id))
	}
	create(t, s, plants...)
	var seen []plantstore.Plant
	for p, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, p.Plant)
		if len(seen)%100 != 0 {
			continue
		}
		create(t, s, fern(plantstore.ID(10_000+len(seen))))
		if err := s.checkpoint(); err != nil {
			t.Fatalf("checkpoint during a scan: %v", err)
		}
		wantPlant(t, s, fern(plantstore.ID(10_000+len(seen))))
	}
	if len(seen) != len(plants) {
		t.Errorf("the scan saw %d plants, want the %d that existed when it began", len(seen), len(plants))
	}
}

// The connection of a scan is used again, so its snapshot must have ended.
func TestPanicInAScanEndsItsSnapshot(t *testing.T) {
	s := openStore(t, newPath(t), Serve)
	create(t, s, fern(1), fern(2))
	for s.freezeRest() {
		if err := s.withWriter(t.Context(), s.flushWhileIdle); err != nil {
			t.Fatal(err)
		}
	}
	func() {
		defer func() { _ = recover() }()
		for range s.Scan(t.Context(), plantstore.Query{}, nil) {
			panic("in the consumer")
		}
	}()
	create(t, s, fern(3))
	n := 0
	for _, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 3 {
		t.Errorf("the next scan has %d plants, want 3", n)
	}
}

func TestScansAreLimited(t *testing.T) {
	s := openStore(t, newPath(t), Serve)
	create(t, s, fern(1))
	var nested func(depth int)
	nested = func(depth int) {
		for _, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
			if err != nil {
				t.Fatal(err)
			}
			if depth > 1 {
				nested(depth - 1)
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for _, err := range s.Scan(ctx, plantstore.Query{}, nil) {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("a cancelled scan beyond the limit: %v", err)
				}
			}
			wantPlant(t, s, fern(1))
		}
	}
	nested(maxScans)
}

// Every connection that reads pages or exports is in use, and those that read plants
// too when tokens are read and the readiness is checked.
func TestShortReadsDoNotWaitForLongOnes(t *testing.T) {
	s := openStore(t, newPath(t), Serve)
	create(t, s, fern(1))
	token := newToken("ci")
	if err := s.CreateToken(t.Context(), token, plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	occupy(t, s.lists)
	occupy(t, s.search)
	occupy(t, s.scans)
	if _, err := s.Plant(ctx, 1); err != nil {
		t.Errorf("Plant: %v", err)
	}
	occupy(t, s.lookups)
	if err := s.Ready(ctx); err != nil {
		t.Errorf("Ready: %v", err)
	}
	if _, err := s.Token(ctx, token.Hash); err != nil {
		t.Errorf("Token: %v", err)
	}
	if _, err := s.Tokens(ctx); err != nil {
		t.Errorf("Tokens: %v", err)
	}
}

// occupy acquires all connections of a pool until the test ends.
func occupy(t *testing.T, pool *readers) {
	t.Helper()
	for range cap(pool.inUse) {
		r, err := pool.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pool.release(r) })
	}
}

// Every query in the source that compares a tag reads the table of tagged plants, in its
// order, without sorting.
func TestTagQueriesUseTheTableOfTaggedPlants(t *testing.T) {
	s := openStore(t, newPath(t), Serve)
	queries := tagQueries(t)
	if len(queries) == 0 {
		t.Fatal("no query compares a tag")
	}
	for _, q := range []plantstore.Query{{Tags: []string{"a"}}, {Tags: []string{"a", "b", "c"}}, {Tags: []string{"a", "b", "c"}, Order: plantstore.ByIDDescending}} {
		text, _ := taggedQuery(&q, "name, stored.tag", 1)
		queries = append(queries, regexp.MustCompile(`\?\d`).ReplaceAllString(text, "1"))
	}
	r, err := s.lookups.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.lookups.release(r)
	for _, query := range queries {
		const detail = 3
		plan := text(t, r, "EXPLAIN QUERY PLAN "+query, detail)
		if !regexp.MustCompile(`SEARCH (t|stored_by_tag) USING PRIMARY KEY \(tag[=>]\?`).MatchString(plan) || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s\n%s", query, plan)
		}
	}
}

func TestTokenIsFoundByItsIDInTheIndex(t *testing.T) {
	s := openStore(t, newPath(t), Serve)
	const detail = 3
	if plan := text(t, s.write.conn, "EXPLAIN QUERY PLAN "+selectWithID, detail); !strings.Contains(plan, "(hash>? AND hash<?)") {
		t.Errorf("%s\n%s", selectWithID, plan)
	}
}

// tagQueries returns the SELECTs of this package that compare a tag.
func tagQueries(t *testing.T) (queries []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if query, err := strconv.Unquote(lit.Value); err == nil && strings.HasPrefix(query, "SELECT") && strings.Contains(query, "tag = ?") && !strings.Contains(query, "%") {
					queries = append(queries, query)
				}
			}
			return true
		})
	}
	return queries
}

// The log is left for the next start to recover: a store that cannot be trusted does
// not copy it into the file.
func TestUntrustedStoreWritesNothingWhenItCloses(t *testing.T) {
	path := newPath(t)
	s := mustOpen(t, path, Serve)
	create(t, s, fern(1))
	s.markUntrusted(plantstore.ErrUntrusted)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path + "-wal"); err != nil || info.Size() == 0 || !bytes.Equal(before, after) {
		t.Errorf("the log was copied into the file: %v, %v", info, err)
	}
	wantPlant(t, openStore(t, path, Serve), fern(1))
}

// An fsync of a token, or of a webhook, fails just before the server stops.
func TestRunReportsAnUntrustedStoreWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, newPath(t), Serve)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		s.markUntrusted(plantstore.ErrUntrusted)
		cancel()
		if err := <-ended; !errors.Is(err, plantstore.ErrUntrusted) {
			t.Errorf("Run: %v, want ErrUntrusted", err)
		}
	})
}

// A checkpoint that does not reach the end of the log is not synced. If a later sync fails,
// the disk may have lost it, and another process that has the file open must not believe
// that it was made.
func TestOthersCopyTheWholeLogOfAnUntrustedStore(t *testing.T) {
	path := newPath(t)
	s := mustOpen(t, path, Serve)
	for id := range plantstore.ID(20) {
		create(t, s, plantstore.Plant{ID: id, Name: strings.Repeat("x", 10_000)})
	}
	disk, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := openRaw(t, path)
	text(t, other, "BEGIN", 0)
	text(t, other, "SELECT count(*) FROM log", 0)
	create(t, s, fern(100))
	if _, _, err := walCheckpoint(s.checkpointer, "PASSIVE"); err != nil {
		t.Fatal(err)
	}
	text(t, other, "ROLLBACK", 0)
	if copied, err := os.ReadFile(path); err != nil || bytes.Equal(copied, disk) {
		t.Fatalf("nothing was copied: %v", err)
	}
	s.markUntrusted(plantstore.ErrUntrusted)
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	text(t, other, "PRAGMA wal_checkpoint(TRUNCATE)", 0)
	if info, err := os.Stat(path + "-wal"); err != nil || info.Size() > 0 {
		t.Fatalf("the log was not copied entirely: %v, %v", info, err)
	}
	if disk, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	alone := newPath(t)
	if err := os.WriteFile(alone, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	restored := openStore(t, alone, Serve)
	if problems, err := restored.Check(t.Context()); err != nil || len(problems) > 0 {
		t.Errorf("the file has problems: %q, %v", problems, err)
	}
	wantPlant(t, restored, fern(100))
	wantPlant(t, restored, plantstore.Plant{ID: 0, Name: strings.Repeat("x", 10_000)})
}

// The store refuses everything, even reads.
func TestUntrustedStoreRefusesEverything(t *testing.T) {
	s := openStore(t, newPath(t), Serve)
	create(t, s, fern(1))
	token := newToken("ci")
	if err := s.CreateToken(t.Context(), token, plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateWebhook(t.Context(), newWebhook("a"), plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	s.markUntrusted(plantstore.ErrUntrusted)
	ctx := t.Context()
	write := []plantstore.Write{{Op: plantstore.Create, Plant: fern(2)}}
	for name, call := range map[string]func() error{
		"Apply": func() error { _, err := s.Apply(ctx, write); return err },
		"Plant": func() error { _, err := s.Plant(ctx, 1); return err },
		"List":  func() error { _, err := s.List(ctx, plantstore.Query{Limit: 1}); return err },
		"Scan":  func() error { return scanError(s.Scan(ctx, plantstore.Query{}, nil)) },
		"CreateToken": func() error {
			return s.CreateToken(ctx, newToken("another"), plantstore.Actor{Name: plantstore.Operator})
		},
		"CreateFirstToken": func() error { _, err := s.CreateFirstToken(ctx, newToken("first")); return err },
		"Tokens":           func() error { _, err := s.Tokens(ctx); return err },
		"Token":            func() error { _, err := s.Token(ctx, token.Hash); return err },
		"RevokeToken": func() error {
			return s.RevokeToken(ctx, token.Hash, time.Now(), plantstore.Actor{Name: plantstore.Operator})
		},
		"TouchTokens": func() error {
			return s.TouchTokens(ctx, map[plantstore.TokenHash]time.Time{token.Hash: time.Now()})
		},
		"Webhooks":       func() error { _, err := s.Webhooks(ctx); return err },
		"CreateWebhook":  func() error { return s.CreateWebhook(ctx, newWebhook("b"), plantstore.Actor{}) },
		"UpdateWebhook":  func() error { _, err := s.UpdateWebhook(ctx, "a", plantstore.Actor{}, changeNothing); return err },
		"SaveWebhook":    func() error { return s.SaveWebhook(ctx, "a", changeNothing) },
		"DeleteWebhook":  func() error { return s.DeleteWebhook(ctx, "a", plantstore.Actor{}) },
		"Deliveries":     func() error { _, err := s.Deliveries(ctx, "a"); return err },
		"SaveDeliveries": func() error { return s.SaveDeliveries(ctx, "a", nil) },
		"Ready":          func() error { return s.Ready(ctx) },
	} {
		if err := call(); !errors.Is(err, plantstore.ErrUntrusted) {
			t.Errorf("%s: %v, want ErrUntrusted", name, err)
		}
	}
}

func scanError(scan func(func(plantstore.StoredPlant, error) bool)) error {
	for _, err := range scan {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestRunEndsWithItsContext(t *testing.T) {
	s := openStore(t, newPath(t), Serve)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// A statement that cannot be prepared is an error, not a panic.
func TestMissingTables(t *testing.T) {
	path := newPath(t)
	s := openStore(t, path, Serve)
	runRaw(t, path, "DROP VIEW plants; DROP TABLE log_state; DROP TABLE log; DROP TABLE tokens")
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"Apply":            func() error { _, err := s.Apply(ctx, []plantstore.Write{{Plant: fern(1)}}); return err },
		"List":             func() error { _, err := s.List(ctx, plantstore.Query{Limit: 1}); return err },
		"Scan":             func() error { return scanError(s.Scan(ctx, plantstore.Query{}, nil)) },
		"CreateFirstToken": func() error { _, err := s.CreateFirstToken(ctx, newToken("first")); return err },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "no such table") {
			t.Errorf("%s: %v, want an error about a missing table", name, err)
		}
	}
}

// The names come before the tags in the table, and may be large: plants are counted without them
// if possible, and otherwise their names count as examined.
func TestPlantsAreCountedWithoutTheirNames(t *testing.T) {
	l := newComparison(t, 1)
	var batch []plantstore.Write
	for id := range plantstore.ID(40) {
		p := plantstore.Plant{ID: id, Name: strings.Repeat("x", 1<<20)}
		if id%4 > 0 {
			p.Tag = plantstore.NewTag(fmt.Sprintf("t%d", id%4))
		}
		batch = append(batch, plantstore.Write{Op: plantstore.Create, Plant: p})
	}
	for chunk := range slices.Chunk(batch, 5) {
		l.apply(t, chunk)
	}
	for l.store.freezeRest() {
		l.flush(t, idleFlushSize)
	}
	for _, tt := range []struct {
		plantstore.Query
		want int // or -1 if it takes too much
	}{
		{plantstore.Query{}, 40},
		{plantstore.Query{Tag: plantstore.NewTag("t1")}, 10},
		{plantstore.Query{Tags: []string{"t1", "t3"}}, 20},
		{plantstore.Query{Untagged: true}, -1},
		{plantstore.Query{TagPrefix: new("t"), Untagged: true}, -1},
	} {
		tt.Count, tt.Limit = true, 1
		page, err := l.store.List(t.Context(), tt.Query)
		if err != nil || (page.Count == nil) != (tt.want < 0) || page.Count != nil && page.Count.Plants != tt.want {
			t.Errorf("%+v: it counts %v, %v, want %d", tt.Query, page.Count, err, tt.want)
		}
		if tt.want < 0 {
			continue
		}
		c := openRaw(t, l.path)
		defer c.Close()
		err = c.SetAuthorizer(sqlite.AuthorizeFunc(func(a sqlite.Action) sqlite.AuthResult {
			if a.Type() == sqlite.OpRead && a.Table() == "stored" && a.Column() != "id" && a.Column() != "" {
				return sqlite.AuthResultDeny
			}
			return sqlite.AuthResultOK
		}))
		n := 0
		if err == nil {
			err = l.store.inSnapshot(c, func(snap *snapshot) error {
				return snap.eachOf(tt.Query, false, func(plantstore.StoredPlant) bool { n++; return true })
			})
		}
		if err != nil || n != tt.want {
			t.Errorf("%+v: of the table it needs more than ids: %d plants, %v", tt.Query, n, err)
		}
	}
}
