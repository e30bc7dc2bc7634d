package crash

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
	"plantstore/e2e/harness"
)

// A page of the file is damaged. Clients that retry must not stop the server, before or
// after a restart.
func TestDamagedPageDoesNotStopTheServer(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	s := harness.StartOn(t, db)
	const plants = 400
	for id := range plants {
		status, body := s.Call(harness.Token, "PUT", fmt.Sprint("/plants/", id), fmt.Sprintf(`{"id":%d,"name":"plant %d %s"}`, id, id, strings.Repeat("x", 100)))
		if status != http.StatusOK {
			t.Fatalf("PUT: %d %s", status, body)
		}
	}
	s.AwaitFlushed()
	s.Stop()
	damagePageWith(t, db, "plant 200 ")
	for range 2 {
		s.Run()
		s.AwaitReady(http.StatusOK)
		for range 3 {
			if status, body := s.Call(harness.Token, "PUT", "/plants/200", `{"id":200,"name":"fern"}`); status != http.StatusServiceUnavailable {
				t.Errorf("PUT to a damaged page: %d %s", status, body)
			}
			if status, body := s.Call(harness.Token, "GET", "/plants/200", ""); status != http.StatusServiceUnavailable {
				t.Errorf("GET of a damaged page: %d %s", status, body)
			}
		}
		s.AwaitReady(http.StatusServiceUnavailable) // the result of a check is used again for a moment
		if status, body := s.Call("", "GET", "/readyz", ""); status != http.StatusServiceUnavailable || !strings.Contains(string(body), "plantstore check") {
			t.Errorf("/readyz: %d %s", status, body)
		}
		if status, body := s.Call(harness.Token, "PUT", "/plants/1", `{"id":1,"name":"fern"}`); status != http.StatusServiceUnavailable {
			t.Errorf("a write elsewhere: %d %s", status, body)
		}
		if status, body := s.Call(harness.Token, "GET", "/plants/1", ""); status != http.StatusOK {
			t.Errorf("GET of an intact page: %d %s", status, body)
		}
		if _, body := s.Call(harness.Token, "GET", "/metrics", ""); !strings.Contains(string(body), "plantstore_store_damaged 1") {
			t.Error("the metrics do not say that the store is damaged")
		}
		if n := strings.Count(s.Log(), "Until then it refuses writes"); n != 1 {
			t.Errorf("the log says %d times what to do, want once:\n%s", n, s.Log())
		}
		s.StopWith(1)
	}
	if _, err := s.TryCommand("check"); err == nil {
		t.Error("check finds nothing")
	}
}

// A page that the server needs to open the store is damaged, or one that it needs for its
// tokens. It must not end, or else it would be started again and again.
func TestServerStartsOnAStoreThatCannotBeRead(t *testing.T) {
	for _, table := range []string{"log_state", "tokens", "sqlite_autoindex_tokens_1"} {
		t.Run(table, func(t *testing.T) {
			db := filepath.Join(t.TempDir(), "plants.db")
			s := harness.StartOn(t, db)
			s.Stop()
			damageRoot(t, db, table)
			s.Run()
			for range 2 {
				if status, body := s.Call(harness.Token, "POST", "/plants", `{"id":1,"name":"fern"}`); status != http.StatusServiceUnavailable {
					t.Errorf("POST /plants: %d %s", status, body)
				}
				if status, body := s.Call("", "GET", "/readyz", ""); status != http.StatusServiceUnavailable || !strings.Contains(body, "plantstore check") {
					t.Errorf("/readyz: %d %s", status, body)
				}
			}
			if status, body := s.Call("", "GET", "/healthz", ""); status != http.StatusOK {
				t.Errorf("/healthz: %d %s", status, body)
			}
			if n := strings.Count(s.Log(), "Until then it refuses"); n != 1 {
				t.Errorf("the log says %d times what to do, want once:\n%s", n, s.Log())
			}
			s.StopWith(1)
			if _, err := s.TryCommand("check", "--json"); err == nil || !strings.Contains(err.Error(), `{"intact":false,"problems":["`) {
				t.Errorf("check: %v", err)
			}
		})
	}
}

// damageRoot overwrites the first page of a table or an index.
func damageRoot(t *testing.T, path, name string) {
	t.Helper()
	const pageSize = 4096
	c, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var root int64
	err = sqlitex.Execute(c, "SELECT rootpage FROM sqlite_schema WHERE name = ?", &sqlitex.ExecOptions{
		Args:       []any{name},
		ResultFunc: func(row *sqlite.Stmt) error { root = row.ColumnInt64(0); return nil },
	})
	if err != nil || root < 2 {
		t.Fatalf("%s has the first page %d, %v", name, root, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, pageSize), (root-1)*pageSize); err != nil {
		t.Fatal(err)
	}
}

// damagePageWith overwrites the head of every page of the table of plants that has the
// text. The pages of the log have the id of the token too.
func damagePageWith(t *testing.T, path, text string) {
	t.Helper()
	const pageSize = 4096
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found, token := false, []byte(plantstore.HashSecret(harness.Token).ID())
	for at := range slices.Chunk(content, pageSize) {
		if bytes.Contains(at, []byte(text)) && !bytes.Contains(at, token) {
			copy(at, bytes.Repeat([]byte{0xff}, 16))
			found = true
		}
	}
	if !found {
		t.Fatalf("no page has %q", text)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
