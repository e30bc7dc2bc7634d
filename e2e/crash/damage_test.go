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
		s.Stop()
	}
	if _, err := s.TryCommand("check"); err == nil {
		t.Error("check finds nothing")
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
