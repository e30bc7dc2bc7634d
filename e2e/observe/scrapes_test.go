package observe_test

import (
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
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

// A healthy server of each kind, scraped while it works, has every metric that the dashboard and
// the alerts name, or one with TLS or a backup's textfile has it. deploy/monitoring evaluates them
// on the scrapes of the first two.
func TestScrapes(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	dir := t.TempDir()
	file := filepath.Join(dir, "plants.db")
	for name, db := range map[string]string{"sqlite": file, "postgres": pgtest.Fresh(t)} {
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
	textfile := filepath.Join(dir, "backup.prom")
	if out, err := exec.Command(harness.Binary(), "backup", "--db", file, file+".copy", "--textfile", textfile).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(textfile)
	if err != nil {
		t.Fatal(err)
	}
	all.Write(text)
	all.WriteString(scrapeTLS(t))
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
				t.Errorf("%s names %s, which neither a server nor a backup has", file, name)
			}
		}
	}
}

// scrapeTLS returns the metrics of a server with a certificate.
func scrapeTLS(t *testing.T) string {
	t.Helper()
	web := httptest.NewTLSServer(nil) // for its certificate
	defer web.Close()
	pair := web.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := harness.Start(t, "--tls-cert", certFile, "--tls-key", keyFile)
	got, err := harness.Send(web.Client(), harness.Token, "GET", "https://"+s.Addr+"/metrics", "")
	if err != nil || got.Status != http.StatusOK {
		t.Fatalf("GET /metrics: %d %s, %v", got.Status, got.Body, err)
	}
	return got.Body
}

// scrape returns the metrics of a server that does a bit of everything in between.
func scrape(t *testing.T, db string) (texts []string) {
	s := harness.StartOn(t, db, "--webhook-allow", "127.0.0.0/8")
	receiver := harness.NewReceiver(t)
	receiver.Recover() // it is healthy
	receiver.Register(s.Client(client.Options{}))
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
