package abuse

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"plantstore/e2e/harness"
)

// pageSize is that of the store's file.
const pageSize = 4096

// record returns a row of the table of plants as it is in the file, for a plant
// without a tag. The log has other columns. Its header has its own length and the type
// of each column: the id, which is not part of it, a text, and NULL.
func record(name string) []byte {
	return append([]byte{4, 0, byte(13 + 2*len(name)), 0}, name...)
}

// overwritePage overwrites the page of a stopped store's file that has the record.
func overwritePage(t *testing.T, file string, record []byte) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(content, record)
	if at < pageSize {
		t.Fatalf("the record is at %d in the file", at)
	}
	copy(content[at/pageSize*pageSize:], bytes.Repeat([]byte{0xff}, pageSize))
	if err := os.WriteFile(file, content, 0); err != nil {
		t.Fatal(err)
	}
}

// A page of the file is damaged. A client that keeps writing to it does not stop the
// server, before or after a restart. The server says what is wrong, refuses writes,
// and serves what is not damaged.
func TestDamagedPageStopsNothingElse(t *testing.T) {
	const plants, damaged, intact = 20_000, 10_000, 19_000
	harness.NeedProc(t)
	s := harness.Start(t)
	name := func(id int) string { return fmt.Sprintf("plant number %05d of many", id) }
	var lines strings.Builder
	for id := 1; id <= plants; id++ {
		fmt.Fprintf(&lines, "{\"id\":%d,\"name\":\"%s\"}\n", id, name(id))
	}
	s.Import(lines.String())
	s.AwaitFlushed()
	s.Stop()
	overwritePage(t, s.DB, record(name(damaged)))

	path := fmt.Sprintf("/plants/%d", damaged)
	defer http.DefaultClient.CloseIdleConnections()
	var memory int64
	for range 2 {
		s.Run()
		// want calls the server, whose response must have the status and the text.
		want := func(status int, text, method, path, body string) {
			t.Helper()
			res, err := harness.Send(http.DefaultClient, harness.Token, method, s.API+path, body)
			if err != nil {
				t.Errorf("%s %s: %v; the server logged:\n%s", method, path, err, s.Log())
				row{attack: "writes to a damaged page", during: "the server exited"}.report(t)
				t.FailNow()
			}
			if res.Status != status || !strings.Contains(res.Body, text) {
				t.Errorf("%s %s got %d %s, want %d and %q", method, path, res.Status, res.Body, status, text)
			}
		}
		for range 3 {
			want(503, "", "PUT", path, `{"name":"new"}`)
		}
		want(503, "damaged", "GET", "/readyz", "")
		want(200, "", "GET", "/healthz", "")
		want(503, "", "POST", "/plants", `{"id":-1,"name":"new"}`)
		want(200, name(intact), "GET", fmt.Sprintf("/plants/%d", intact), "")
		want(200, name(intact), "GET", fmt.Sprintf("/plants?limit=1&after=%d", intact-1), "")
		if status, body := s.Call(harness.Token, "GET", path, ""); status < 500 {
			t.Errorf("a get from the damaged page got %d %s", status, body)
		}
		// A refusal of /readyz may be in the log too, with the same reason.
		if said := strings.Count(s.Log(), `"level":"ERROR","msg":"the store is damaged: stop the server and run plantstore check`); said != 1 {
			t.Errorf("the log says %d times what to do, want once:\n%s", said, s.Log())
		}
		memory = s.Memory("VmHWM")
		s.Kill()
	}
	if out, err := s.TryCommand("check"); err == nil {
		t.Errorf("plantstore check finds no damage: %s", out)
	}
	row{attack: "writes to a damaged page", during: "/readyz 503, writes 503, intact plants served", memory: memory}.report(t)
}
