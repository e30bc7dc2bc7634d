package observe_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
)

var scrapesDir = flag.String("scrapes", "", "the directory to which TestScrapes writes what it has scraped")

// scrapes is how often TestScrapes scrapes each server.
const scrapes = 30

// A healthy server of each kind, scraped while it works, has every metric that the
// dashboard and the alerts name. deploy/monitoring evaluates them on these scrapes.
func TestScrapes(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for name, db := range map[string]string{"sqlite": filepath.Join(t.TempDir(), "plants.db"), "postgres": pgtest.Fresh(t)} {
		for i, text := range scrape(t, db) {
			all.WriteString(text)
			if *scrapesDir == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(*scrapesDir, fmt.Sprintf("%s-%02d.txt", name, i)), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, file := range []string{"dashboard.json", "alerts.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../deploy/monitoring", file))
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\b(plantstore|process|go)_\w+`).FindAllString(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, name := range names {
			if !strings.Contains(all.String(), "\n"+name+" ") && !strings.Contains(all.String(), "\n"+name+"{") {
				t.Errorf("%s names %s, which no server has", file, name)
			}
		}
	}
}

// scrape returns the metrics of a server that does a bit of everything in between.
func scrape(t *testing.T, db string) (texts []string) {
	s := harness.StartOn(t, db, "--webhook-allow", "127.0.0.0/8")
	harness.NewReceiver(t).Register(s.Client(client.Options{}))
	call := func(want int, method, path, body string, header ...string) string {
		status, got := s.Call(harness.Token, method, path, body, header...)
		if status != want {
			t.Fatalf("%s %s: %d %s", method, path, status, got)
		}
		return got
	}
	for i := range scrapes {
		for id := range 10 {
			call(http.StatusOK, "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"fern"}`, i*100+id))
		}
		s.Import(fmt.Sprintf(`{"id":%d,"name":"moss"}`+"\n", i*100+50))
		call(http.StatusOK, "GET", fmt.Sprintf("/plants/%d", i*100), "")
		call(http.StatusOK, "GET", "/plants", "", "Accept", "application/x-ndjson")
		call(http.StatusNotFound, "GET", "/plants/-1", "")
		texts = append(texts, call(http.StatusOK, "GET", "/metrics", ""))
	}
	return texts
}
