package listen_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// proxy is a reverse proxy that runs until the test ends.
type proxy struct {
	url    string         // its address
	roots  *x509.CertPool // who signed its certificate; nil for plain HTTP
	hidden bool           // it forwards the base path only
}

// proxies start a reverse proxy in front of a server, with a configuration that is documented or
// deployed. Only addresses and paths are replaced.
var proxies = map[string]func(t *testing.T, server string) proxy{
	"nginx":   startNginx,
	"HAProxy": startHAProxy,
	"Caddy":   startCaddy,
	"balancer": func(t *testing.T, server string) proxy {
		return proxy{url: "http://" + startBalancer(t, server)}
	},
	"nginx and balancer": func(t *testing.T, server string) proxy {
		return startNginx(t, startBalancer(t, server))
	},
}

func startNginx(t *testing.T, server string) proxy {
	t.Helper()
	dir, addr := t.TempDir(), harness.ReserveAddr(t)
	p := newPair(t, dir, 1)
	config := "daemon off; master_process off; pid nginx.pid; events {} http { access_log off;\n"
	for _, module := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config += module + "_temp_path " + module + ";\n"
	}
	config += adapt(t, block(t, "nginx"), "127.0.0.1:8080", server, "listen 443", "listen "+addr,
		"/etc/ssl/example.com/cert.pem", p.cert, "/etc/ssl/example.com/key.pem", p.key) + "}"
	launch(t, dir, "nginx", "-p", dir, "-e", "stderr", "-c", write(t, dir, "nginx.conf", config))
	return proxy{"https://" + addr, p.roots, true}
}

func startHAProxy(t *testing.T, server string) proxy {
	t.Helper()
	dir, addr := t.TempDir(), harness.ReserveAddr(t)
	p := newPair(t, dir, 1)
	if err := os.Rename(p.key, p.cert+".key"); err != nil {
		t.Fatal(err)
	}
	config := adapt(t, block(t, "haproxy"), "127.0.0.1:8080", server, "bind :443", "bind "+addr, "/etc/ssl/example.com/cert.pem", p.cert)
	launch(t, dir, "haproxy", "-db", "-f", write(t, dir, "haproxy.cfg", config))
	return proxy{"https://" + addr, p.roots, true}
}

// startCaddy starts Caddy with a certificate authority of its own in place of the public one.
func startCaddy(t *testing.T, server string) proxy {
	t.Helper()
	dir, addr := t.TempDir(), harness.ReserveAddr(t)
	config := "{\nadmin off\nlocal_certs\nskip_install_trust\nauto_https disable_redirects\ndefault_bind 127.0.0.1\nstorage file_system " + dir + "\n}\n" +
		adapt(t, block(t, "caddyfile"), "127.0.0.1:8080", server, "example.com {", "https://"+addr+" {")
	launch(t, dir, "caddy", "run", "--adapter", "caddyfile", "--config", write(t, dir, "Caddyfile", config))
	roots := x509.NewCertPool()
	testenv.WaitFor(t, "Caddy's certificate authority", func() bool {
		root, err := os.ReadFile(filepath.Join(dir, "pki/authorities/local/root.crt"))
		return err == nil && roots.AppendCertsFromPEM(root)
	})
	return proxy{"https://" + addr, roots, true}
}

// startBalancer starts the load balancer of compose.yaml and returns its address.
func startBalancer(t *testing.T, server string) (addr string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	dir, addr := t.TempDir(), harness.ReserveAddr(t)
	config := adapt(t, string(text), "plantstore:8080", server, "bind :8080", "bind "+addr)
	launch(t, dir, "haproxy", "-db", "-f", write(t, dir, "haproxy.cfg", config))
	return addr
}

// documented returns what the pattern's group matches in the documentation, once.
func documented(t *testing.T, pattern string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations/run.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(page), -1)
	if len(found) != 1 {
		t.Fatalf("docs/operations/run.md has %d of %q, want 1", len(found), pattern)
	}
	return found[0][1]
}

// block returns the block of a language.
func block(t *testing.T, language string) string {
	t.Helper()
	return documented(t, "(?ms)^```"+language+"\n(.*?)^```$")
}

// adapt replaces texts by others, given in turn.
func adapt(t *testing.T, config string, texts ...string) string {
	t.Helper()
	for i := 0; i < len(texts); i += 2 {
		if !strings.Contains(config, texts[i]) {
			t.Fatalf("there is no %q in\n%s", texts[i], config)
		}
		config = strings.ReplaceAll(config, texts[i], texts[i+1])
	}
	return config
}

func write(t *testing.T, dir, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// launch runs a program of one process until the test ends. It writes below home only.
func launch(t *testing.T, home, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(testenv.NeedsProgram(t, name), args...)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended, which the test has noticed
		_ = cmd.Wait()
	})
}

// client returns an HTTP client at an address of this machine.
func (p proxy) client(t *testing.T, addr string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: p.roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestDocumentedProxiesPassOnAddressesEventsAndImports(t *testing.T) {
	t.Parallel()
	flags := strings.Fields(documented(t, `(?m)^plantstore serve (--base-url .* --trusted-proxies .*)$`))
	for name, start := range proxies {
		t.Run(name, func(t *testing.T) {
			s := harness.Start(t, append(slices.Clone(flags), "--access-log", "--auth-failures", "3/h")...)
			p := start(t, s.Addr)
			web := p.client(t, "127.0.0.2")
			testenv.Eventually(t, func() error {
				got, err := harness.Send(web, harness.Token, "GET", p.url+"/v1/about", "")
				if err == nil && got.Status != http.StatusOK {
					err = fmt.Errorf("got %d %s", got.Status, got.Body)
				}
				return err
			})
			checkAddresses(t, s, p)
			for _, path := range []string{"/metrics", "/healthz", "/plants"} {
				got, err := harness.Send(web, harness.Token, "GET", p.url+path, "")
				if ours := got.Header.Get("X-Request-Id") != ""; err != nil || p.hidden && (ours || got.Status < 400) {
					t.Errorf("GET %s: %d %s, %v", path, got.Status, got.Body, err)
				}
			}
			checkEventArrives(t, s, web, p.url)
			checkImport(t, s, web, p.url)
		})
	}
}

// checkAddresses checks that a client cannot choose its address, neither for the limit of failures
// nor for the access log.
func checkAddresses(t *testing.T, s *harness.Server, p proxy) {
	want := map[string]int{}
	for i, spoof := range []func(addr string) []string{
		func(string) []string { return nil },
		func(addr string) []string { return []string{"X-Forwarded-For", addr} },
		func(addr string) []string { return []string{"Forwarded", "for=" + addr} },
		func(addr string) []string { return []string{"X-Forwarded-For", addr, "Forwarded", "for=" + addr} },
	} {
		addr := fmt.Sprintf("127.0.0.%d", 3+i)
		web := p.client(t, addr)
		for attempt, status := range []int{401, 401, 401, 429} {
			header := spoof(fmt.Sprintf("203.0.113.%d", 10*i+attempt))
			got, err := harness.Send(web, "wrong", "GET", p.url+"/v1/token", "", header...)
			if err != nil || got.Status != status {
				t.Errorf("attempt %d from %s with %q: %d %s, %v, want %d", attempt+1, addr, header, got.Status, got.Body, err, status)
			}
			want[addr]++
		}
	}
	testenv.Eventually(t, func() error {
		got := map[string]int{}
		for line := range strings.Lines(s.Log()) {
			var access struct{ Msg, Operation, From string }
			if json.Unmarshal([]byte(line), &access) == nil && access.Msg == "access" && access.Operation == "getOwnToken" {
				got[access.From]++
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("the access log has requests from %v, want %v", got, want)
		}
		return nil
	})
}

// checkEventArrives checks that an event arrives although nothing follows it.
func checkEventArrives(t *testing.T, s *harness.Server, web *http.Client, url string) {
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", url+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+harness.Token)
	r.Header.Set("Accept", "text/event-stream")
	response, err := web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for i, lines := 0, bufio.NewScanner(response.Body); !strings.Contains(lines.Text(), `"moss"`); i++ {
		if !lines.Scan() {
			t.Fatalf("the event has not arrived: %s, %v", response.Status, lines.Err())
		}
		if i > 0 {
			continue
		}
		if status, body := s.Call(harness.Token, "POST", "/plants", `{"id":0,"name":"moss"}`); status != http.StatusOK {
			t.Fatalf("create: %d %s", status, body)
		}
	}
}

// checkImport imports 100 MB, the second half of which is sent when plants of the first one are
// in the store.
func checkImport(t *testing.T, s *harness.Server, web *http.Client, url string) {
	const plants = 100_000
	name := strings.Repeat("fern", 250)
	body, input := io.Pipe()
	defer input.Close()
	type result struct {
		harness.Response
		err error
	}
	done := make(chan result, 1)
	go func() {
		r, err := http.NewRequestWithContext(t.Context(), "POST", url+"/v1/plants/import", body)
		if err != nil {
			done <- result{err: err}
			return
		}
		r.Header.Set("Authorization", "Bearer "+harness.Token)
		r.Header.Set("Content-Type", "application/x-ndjson")
		response, err := web.Do(r)
		if err != nil {
			done <- result{err: err}
			return
		}
		defer response.Body.Close()
		report, err := io.ReadAll(response.Body)
		done <- result{harness.Response{Status: response.StatusCode, Body: string(report)}, err}
	}()
	lines := bufio.NewWriterSize(input, 64<<10)
	for id := range plants {
		if _, err := fmt.Fprintf(lines, `{"id":%d,"name":"%s"}`+"\n", id+1, name); err != nil {
			got := <-done
			t.Fatalf("after %d plants: %d %s, %v", id, got.Status, got.Body, got.err)
		}
		if id == plants/2 {
			testenv.Eventually(t, func() error {
				if status, body := s.Call(harness.Token, "GET", "/plants/1", ""); status != http.StatusOK {
					return fmt.Errorf("the first plant: %d %s", status, body)
				}
				return nil
			})
		}
	}
	if err := lines.Flush(); err != nil {
		t.Error(err)
	}
	input.Close()
	got := <-done
	if want := fmt.Sprintf(`"created":%d`, plants); got.err != nil || got.Status != http.StatusOK || !strings.Contains(got.Body, want) {
		t.Errorf("import: %d %s, %v, want %s", got.Status, got.Body, got.err, want)
	}
}
