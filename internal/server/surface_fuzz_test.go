package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
)

// responseTimeout is how long a response may take before the server counts as hung.
const responseTimeout = time.Minute

// fuzzStore returns the store of a fuzzed service. With the fuzzer's instrumentation
// SQLite takes ten times as long as everything else, so the fuzzer gets the model. The
// corpus runs on SQLite.
func fuzzStore() plantstore.Store {
	if fuzzing := flag.Lookup("test.fuzz"); fuzzing != nil && fuzzing.Value.String() != "" {
		return storetest.NewModel()
	}
	return nil
}

// secrets are the tokens of fuzzed requests, by their placeholders in an Authorization
// header.
type secrets map[string]string

func newSecrets(s *service) secrets {
	return secrets{
		"BOTH":  s.NewToken(plantstore.ScopeRead, plantstore.ScopeWrite),
		"READ":  s.NewToken(plantstore.ScopeRead),
		"LATE":  s.AddToken(plantstore.Token{Scopes: plantstore.AllScopes(), Expires: time.Now().Add(-time.Hour)}),
		"AWAY":  s.AddToken(plantstore.Token{Scopes: plantstore.AllScopes(), Revoked: time.Now().Add(-time.Hour)}),
		"WRITE": s.NewToken(plantstore.ScopeWrite),
		"OPS":   s.NewToken(plantstore.ScopeOps),
		"HOOKS": s.NewToken(plantstore.ScopeWebhooksRead), // a fuzzer that could create webhooks would call them
	}
}

var authorization = regexp.MustCompile(`(?im)^(Authorization:.*?)\b(BOTH|READ|WRITE|LATE|AWAY|OPS|HOOKS)\b`)

// replace replaces the placeholders in a header. The secrets are in no other place, so
// that one in a response or in the log is a leak.
func (all secrets) replace(header string) string {
	return authorization.ReplaceAllStringFunc(header, func(line string) string {
		parts := authorization.FindStringSubmatch(line)
		return parts[1] + all[parts[2]]
	})
}

// restore makes testPlants the only plants in the store.
func (s *service) restore(t *testing.T) {
	t.Helper()
	if !slices.Equal(s.Plants(t), testPlants) {
		s.Clear(t)
		s.Fill(t, testPlants...)
	}
}

// profiles are the paths whose responses take as long as the client asks for.
var profiles = regexp.MustCompile(`/debug/pprof/`)

var (
	methodToken = regexp.MustCompile("\\A[!#$%&'*+.^_`|~0-9A-Za-z-]{1,40}\\z")
	headerLine  = regexp.MustCompile("\\A([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([^\\x00-\\x08\\x0a-\\x1f\\x7f]*)\\z")
)

// framing are the headers that frame a request on its connection. FuzzConnection has
// them.
var framing = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Expect", "Trailer", "Te", "Upgrade", "Keep-Alive", "Proxy-Connection", "User-Agent", "Accept-Encoding", "Http2-Settings"}

// requestOf returns a valid HTTP request, or nil if the parts do not make one.
func requestOf(s *service, tokens secrets, method, target, header, body string) *http.Request {
	address, err := url.ParseRequestURI(wireSafe(target))
	if err != nil || !strings.HasPrefix(target, "/") || !methodToken.MatchString(method) || method == http.MethodConnect || len(target)+len(header) > 40<<10 {
		return nil
	}
	address.Scheme, address.Host = "http", s.Addr
	r := &http.Request{Method: method, URL: address, Header: http.Header{}}
	for line := range strings.SplitSeq(tokens.replace(header), "\n") {
		parts := headerLine.FindStringSubmatch(line)
		if parts == nil {
			continue
		}
		name := http.CanonicalHeaderKey(parts[1])
		if !slices.Contains(framing, name) {
			r.Header.Add(name, strings.Trim(parts[2], " \t"))
		}
	}
	if body != "" {
		r.Body = io.NopCloser(strings.NewReader(body))
		r.ContentLength = int64(len(body))
	}
	return r
}

// surfaceSeeds are requests that reach every route and every error.
var surfaceSeeds = []struct{ method, target, header, body string }{
	{"POST", "/plants", "Authorization: Bearer BOTH\nContent-Type: application/json", `{"id":7,"name":"Fern","tag":"x"}`},
	{"POST", "/plants", "Authorization: bearer  BOTH \nContent-Type: Application/JSON; charset=utf-8", `{"id":1,"name":"other"}`},
	{"POST", "/plants", "Authorization: Bearer BOTH\nContent-Type: text/plain", `{"id":7,"name":"Fern"}`},
	{"POST", "/plants", "Authorization: Bearer BOTH\nContent-Type: application/json\nContent-Type: application/json", `{}`},
	{"POST", "/plants", "Authorization: Bearer BOTH\nContent-Type: application/json\nContent-Encoding: gzip", "\x1f\x8b"},
	{"POST", "/plants", "Authorization: Bearer BOTH\nContent-Type: application/json\nContent-Encoding: identity", `[]`},
	{"POST", "/plants", "Authorization: Bearer BOTH\nContent-Type: application/json", `{"id":"1","name":null`},
	{"POST", "/plants", "Authorization: Bearer BOTH\nContent-Type: application/json", ""},
	{"POST", "/plants", "Authorization: Bearer BOTH\nContent-Type: application/json", strings.Repeat("x", 5000)},
	{"POST", "/plants?limit=1", "Authorization: Bearer READ\nContent-Type: application/json", `{"id":7,"name":"Fern"}`},
	{"POST", "/plants", "Content-Type: application/json", `{"id":7,"name":"Fern"}`},
	{"POST", "/plants", "Authorization: Basic BOTH\nContent-Type: application/json", `{"id":7,"name":"Fern"}`},
	{"POST", "/plants", "Authorization: Bearer BOTH\nAuthorization: Bearer BOTH", `{"id":7,"name":"Fern"}`},
	{"POST", "/plants", "Authorization: Bearer LATE", ""},
	{"POST", "/plants", "Authorization: Bearer AWAY", ""},
	{"POST", "/plants", "Authorization: Bearer plt_000000000000000000000000000000000000", ""},
	{"POST", "/plants", "Authorization: Bearer \xff", ""},
	{"GET", "/plants", "Authorization: Bearer BOTH", ""},
	{"GET", "/plants?limit=1&tag=tropical&q=o", "Authorization: Bearer READ\nAccept: application/json;q=0.5, */*", ""},
	{"GET", "/plants?tag=tropical", "Authorization: Bearer READ\nAccept: application/x-ndjson;q=NaN, application/x-ndjson;q=1e999", ""},
	{"GET", "/plants?limit=1", "Authorization: Bearer READ\nAccept: application/x-ndjson", ""},
	{"GET", "/plants?limit=0&x=%zz", "Authorization: Bearer WRITE", ""},
	{"GET", "/plants?after=%ff;", "Authorization: Bearer READ", ""},
	{"HEAD", "/plants?limit=2", "Authorization: Bearer READ\nX-Request-Id: abc-1", "body"},
	{"HEAD", "/plants", "Authorization: Bearer READ\nAccept: application/x-ndjson", ""},
	{"POST", "/plants/import", "Authorization: Bearer BOTH\nContent-Type: application/x-ndjson", "{\"id\":8,\"name\":\"a\"}\n{\"id\":1,\"name\":\"b\"}\nx"},
	{"POST", "/plants/import", "Authorization: Bearer BOTH\nContent-Type: application/json", "{}"},
	{"POST", "/plants/import", "Authorization: Bearer BOTH\nContent-Type: application/json; charset=utf-8", `[{"id":8,"name":"a"},1,[],{"id":8,"id":8}] x`},
	{"POST", "/plants/import", "Authorization: Bearer BOTH\nContent-Type: text/csv", "sep=|\nid|name|x\n8|a|\n\"9|b"},
	{"POST", "/plants/import", "Authorization: Bearer BOTH\nContent-Type: Text/CSV;header=present", "name,tag\na,b"},
	{"POST", "/plants/import?dry_run=true", "Authorization: Bearer BOTH\nContent-Type: application/x-ndjson", "{\"id\":8,\"name\":\"a\"}"},
	{"POST", "/plants/import?dryrun=true", "Authorization: Bearer BOTH\nContent-Type: text/csv", "id,name\n8,a\n"},
	{"GET", "/plants?tag=tropical", "Authorization: Bearer READ\nAccept: text/csv", ""},
	{"HEAD", "/plants", "Authorization: Bearer READ\nAccept: text/*;q=0.1, text/csv", ""},
	{"GET", "/plants/import", "Authorization: Bearer BOTH", ""},
	{"GET", "/plants/1", "Authorization: Bearer READ\nIf-None-Match: *", ""},
	{"GET", "/plants/1", "Authorization: Bearer READ\nIf-Match: \"a,b\", W/\"c\"", ""},
	{"GET", "/plants/2", "Authorization: Bearer READ\nIf-Match: x", ""},
	{"GET", "/plants/2", "Authorization: Bearer READ\nIf-Match: W/", ""},
	{"GET", "/plants/2", "Authorization: Bearer READ\nIf-None-Match: \"a\" W/\"", ""},
	{"GET", "/plants/2", "Authorization: Bearer READ\nIf-None-Match: **\"\"", ""},
	{"GET", "/plants/-9223372036854775808", "Authorization: Bearer READ\nIf-Match: \nIf-None-Match: ,,", ""},
	{"GET", "/plants/%31", "Authorization: Bearer READ", ""},
	{"GET", "/plants/01", "Authorization: Bearer READ", ""},
	{"GET", "/plants/9223372036854775808", "Authorization: Bearer READ", ""},
	{"GET", "/plants/1%2F2", "Authorization: Bearer READ", ""},
	{"GET", "/plants/%ff", "Authorization: Bearer READ", ""},
	{"GET", "/plants/%00", "Authorization: Bearer READ", ""},
	{"PUT", "/plants/5", "Authorization: Bearer BOTH\nContent-Type: application/json\nIf-None-Match: *", `{"name":"new","id":"x"}`},
	{"PUT", "/plants/1", "Authorization: Bearer BOTH\nContent-Type: application/json\nIf-Match: \"old\"", `{"name":"new"}`},
	{"PUT", "/plants/1", "Authorization: Bearer BOTH\nContent-Type: application/json", `{"name":"\u0000","tag":""}`},
	{"DELETE", "/plants/1", "Authorization: Bearer BOTH", ""},
	{"DELETE", "/plants/4", "Authorization: Bearer WRITE\nIf-Match: *", "x"},
	{"DELETE", "/plants", "Authorization: Bearer BOTH", ""},
	{"PATCH", "/plants/1", "Authorization: Bearer BOTH", "x"},
	{"PATCH", "/plants/1", "Authorization: Bearer BOTH\nContent-Type: application/merge-patch+json", `{"tag":null}`},
	{"PATCH", "/plants/1", "Authorization: Bearer WRITE\nContent-Type: application/json\nIf-Match: *", `{"name":"new","id":"x"}`},
	{"GET", "/webhooks", "Authorization: Bearer HOOKS", ""},
	{"POST", "/webhooks", "Authorization: Bearer HOOKS\nContent-Type: application/json", `{"url":"https://example.com"}`},
	{"GET", "/webhooks/wh_1", "Authorization: Bearer HOOKS", ""},
	{"GET", "/webhooks/%ff/deliveries", "Authorization: Bearer HOOKS", ""},
	{"POST", "/webhooks/wh_1/test", "Authorization: Bearer BOTH", ""},
	{"OPTIONS", "/plants", "Origin: https://example.com\nAccess-Control-Request-Method: POST", ""},
	{"TRACE", "/plants", "Authorization: Bearer BOTH", ""},
	{"get", "/plants", "Authorization: Bearer BOTH", ""},
	{"GET", "/", "", ""},
	{"GET", "//plants", "", ""},
	{"GET", "/plants/", "", ""},
	{"GET", "/./plants", "", ""},
	{"GET", "/plants/../plants", "", ""},
	{"GET", "/plants/..%2f", "", ""},
	{"GET", "/docs", "", ""},
	{"GET", "/docs/", "", ""},
	{"GET", "/assets/x.js", "", ""},
	{"GET", "/openapi.yaml", "", ""},
	{"HEAD", "/openapi.json", "", ""},
	{"GET", "/healthz?x", "", ""},
	{"POST", "/readyz", "", "x"},
	{"GET", "/readyz", "X-Request-Id: a b\nX-Request-Id: c", ""},
	{"GET", "/metrics", "Authorization: Bearer READ", ""},
	{"GET", "/metrics", "Authorization: Bearer OPS\nAccept: application/openmetrics-text", ""},
	{"GET", "/metrics?name[]=x", "Authorization: Bearer OPS\nAccept: text/plain;version=1.0.0", ""},
	{"GET", "/debug/pprof/", "", ""},
	{"GET", "/debug/pprof/profile", "Authorization: Bearer BOTH", ""},
	{"GET", "/debug/pprof", "", ""},
	{"GET", "/%", "", ""},
	{"GET", "/\xff\x00", "", ""},
	{"GET", "/plants\u2028", "Cookie: a=b\nRange: bytes=0-1\nIf-Modified-Since: x\nForwarded: for=x\nX-Http-Method-Override: DELETE", ""},
	{"GET", "/plants", "Authorization: Bearer READ\nX: " + strings.Repeat("x", 33<<10), ""},
}

// FuzzRequest sends any valid HTTP request. The server always responds, never with 500
// or 503, and as the contract says. No secret is in a response or in the log.
func FuzzRequest(f *testing.F) {
	for _, seed := range surfaceSeeds {
		f.Add(seed.method, seed.target, seed.header, seed.body)
	}
	s := start(f, servertest.Options{Store: fuzzStore(), MaxBody: 4 << 10})
	tokens := newSecrets(s)
	f.Fuzz(func(t *testing.T, method, target, header, body string) {
		r := requestOf(s, tokens, method, target, header, body)
		if r == nil || strings.Contains(r.Header.Get("Authorization"), tokens["OPS"]) && profiles.MatchString(r.URL.Path) {
			t.Skip("not fuzzed here")
		}
		s.restore(t)
		ctx, cancel := context.WithTimeout(t.Context(), responseTimeout)
		defer cancel()
		start := time.Now()
		response, err := s.http.Do(r.WithContext(ctx))
		if err != nil {
			t.Fatalf("%s %q: %v", method, target, err)
		}
		got := s.receive(t, forValidator(r.WithContext(ctx)), []byte(body), response)
		if got.status == http.StatusServiceUnavailable && r.URL.Path == "/readyz" && time.Since(start) >= 2*time.Second {
			s.awaitReady(t) // the machine was slow
		} else if err := got.check(); err != nil {
			t.Errorf("%s %q with %q and %q: got %d %q: %v", method, target, header, body, got.status, got.body, err)
		}
		s.Log.Reset()
	})
}

// forValidator returns the request in a form that the validator understands. It does
// not know that media types are case-insensitive (RFC 9110, 8.3.1) and that integers
// have no limit (JSON Schema).
func forValidator(r *http.Request) *http.Request {
	r = r.Clone(r.Context())
	if media := r.Header.Get("Content-Type"); media != "" {
		r.Header.Set("Content-Type", strings.ToLower(strings.TrimSpace(media)))
	}
	query := r.URL.Query()
	if digits := strings.TrimLeft(query.Get("limit"), "0"); len(digits) > 18 {
		query.Set("limit", digits[:18])
		r.URL.RawQuery = query.Encode()
	}
	return r
}

// check returns what is wrong with a response of the handler, apart from the contract.
func (r reply) check() error {
	_, undated := http.ParseTime(r.header.Get("Date"))
	switch id := r.header.Values("X-Request-Id"); {
	case r.status >= 500:
		return errors.New("a client can make the server fail")
	case len(id) != 1 || !requestID.MatchString(id[0]):
		return fmt.Errorf("the request id is %q", id)
	case undated != nil:
		return fmt.Errorf("the response has no date: %w", undated)
	case 300 <= r.status && r.status < 400 && r.status != http.StatusNotModified && r.header.Get("Location") != "../docs":
		return errors.New("the response is a redirect")
	case (r.status == 401 || r.status == 403) != (r.header.Get("WWW-Authenticate") != ""):
		return fmt.Errorf("the challenge is %q", r.header.Get("WWW-Authenticate"))
	case r.status == 405 && r.header.Get("Allow") == "":
		return errors.New("the response does not list the allowed methods")
	}
	return nil
}

// byNetHTTP are the bodies that net/http sends by itself, before a handler runs.
var byNetHTTP = map[int]*regexp.Regexp{
	400: regexp.MustCompile(`\A400 Bad Request(: (missing required Host header|too many Host headers|malformed Host header|invalid header name|invalid header value))?\z`),
	417: regexp.MustCompile(`\A\z`), // an Expect that is not 100-continue
	431: regexp.MustCompile(`\A431 Request Header Fields Too Large\z`),
	501: regexp.MustCompile(`\AUnsupported transfer encoding\z`),
	505: regexp.MustCompile(`\A505 HTTP Version Not Supported: unsupported protocol version\z`),
	200: regexp.MustCompile(`\A\z`), // OPTIONS *
}

// rawServer is a service on a Unix socket that records which requests reach the
// handler.
type rawServer struct {
	*service
	mu      sync.Mutex // guards methods
	methods []string   // of the requests that reached the handler, in order
}

func startRaw(f *testing.F) *rawServer {
	f.Helper()
	// The path of a socket must be short, and that of f.TempDir is not.
	dir, err := os.MkdirTemp("", "plants")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		f.Fatal(err)
	}
	raw := new(rawServer)
	raw.service = start(f, servertest.Options{
		Store: fuzzStore(), MaxBody: 4 << 10, Listener: listener, BaseURL: servertest.URL("http://plants.test"), Wrap: raw.record,
	})
	return raw
}

// record records requests. When the client has sent everything, net/http may cancel a
// request before or after its response, so here it never does.
func (raw *rawServer) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw.mu.Lock()
		raw.methods = append(raw.methods, r.Method)
		raw.mu.Unlock()
		next.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
	})
}

// exchange sends the bytes, and returns all that came back and the methods of the
// requests that reached the handler.
func (raw *rawServer) exchange(t *testing.T, sent string) ([]byte, []string) {
	t.Helper()
	raw.mu.Lock()
	raw.methods = nil
	raw.mu.Unlock()
	conn, err := net.Dial("unix", raw.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(responseTimeout)); err != nil {
		t.Fatal(err)
	}
	go func() {
		// The server may close the connection before it has read everything.
		_, _ = io.WriteString(conn, sent)
		_ = conn.(*net.UnixConn).CloseWrite()
	}()
	received, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%q: the responses do not end: %q", sent, received)
	}
	raw.mu.Lock()
	defer raw.mu.Unlock()
	return received, raw.methods
}

// check reads one response after the other. Each comes from the handler and conforms
// to the contract, or is one that net/http writes itself.
func (raw *rawServer) check(received []byte, methods []string) error {
	in := bufio.NewReader(bytes.NewReader(received))
	for {
		if _, err := in.Peek(1); err == io.EOF {
			break
		}
		method := "GET"
		if len(methods) > 0 {
			method = methods[0]
		}
		got, err := readReply(in, method)
		if err != nil {
			return err
		}
		if got.status == http.StatusContinue {
			continue
		}
		if len(got.header.Values("X-Request-Id")) == 0 {
			if own := byNetHTTP[got.status]; own == nil || !own.Match(got.body) {
				return fmt.Errorf("net/http wrote %d %q", got.status, got.body)
			}
			continue
		}
		if len(methods) == 0 {
			return fmt.Errorf("%d %q is a response to no request", got.status, got.body)
		}
		methods = methods[1:]
		if err := got.check(); err != nil {
			return fmt.Errorf("%d %q: %w", got.status, got.body, err)
		}
		if got.status >= 400 && method != "HEAD" {
			if err := raw.validator.checkError(got); err != nil {
				return fmt.Errorf("%d %q: %w", got.status, got.body, err)
			}
		}
	}
	if len(methods) > 0 {
		return fmt.Errorf("the requests %q got no response", methods)
	}
	return nil
}

func readReply(in *bufio.Reader, method string) (reply, error) {
	response, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		return reply{}, fmt.Errorf("read a response: %w", err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, fmt.Errorf("read the body of a response: %w", err)
	}
	return reply{response.StatusCode, response.Header, body, response.Close}, nil
}

// FuzzConnection sends any bytes. The server responds to each request in them and ends
// the connection in time. No secret is in a response or in the log.
func FuzzConnection(f *testing.F) {
	const create = `{"id":7,"name":"Fern"}`
	head := func(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }
	auth, host, plain := "Authorization: Bearer BOTH", "Host: x", "Content-Type: application/json"
	length := "Content-Length: " + strconv.Itoa(len(create))
	for _, raw := range []string{
		"", "\r\n", "\n\n", "\x00", "\x16\x03\x01\x00", "GET", "GET /plants", "GET /plants HTTP/1.1\r\n", "GET /plants\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		head("POST /plants HTTP/1.1", host, auth, plain, length) + create,
		head("POST /plants HTTP/1.1", host, auth, plain, length) + create + head("GET /plants/7 HTTP/1.1", host, auth),
		head("POST /plants HTTP/1.1", host, auth, plain, length) + create[:5],
		head("POST /plants HTTP/1.1", host, auth, plain, "Content-Length: 5", "Content-Length: 6") + create,
		head("POST /plants HTTP/1.1", host, auth, plain, "Content-Length: 22, 22") + create,
		head("POST /plants HTTP/1.1", host, auth, plain, "Content-Length: -1") + create,
		head("POST /plants HTTP/1.1", host, auth, plain, "Content-Length: +22") + create,
		head("POST /plants HTTP/1.1", host, auth, plain, "Content-Length: 9999999999999999999999") + create,
		head("POST /plants HTTP/1.1", host, auth, plain, "Content-Length: 99999999") + create,
		head("POST /plants HTTP/1.1", host, auth, plain, "Transfer-Encoding: chunked") + chunked(create) + "0\r\n\r\n",
		head("POST /plants HTTP/1.1", host, auth, plain, "Transfer-Encoding: chunked", "Trailer: X") + chunked(create) + "0\r\nX: y\r\n\r\n" + head("GET / HTTP/1.1", host),
		head("POST /plants HTTP/1.1", host, auth, plain, "Transfer-Encoding: chunked", length) + chunked(create) + "0\r\n\r\n",
		head("POST /plants HTTP/1.1", host, auth, plain, "Transfer-Encoding: chunked, identity") + create,
		head("POST /plants HTTP/1.1", host, auth, plain, "Transfer-Encoding: gzip, chunked") + create,
		head("POST /plants HTTP/1.1", host, auth, plain, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + create,
		head("POST /plants HTTP/1.1", host, auth, plain, "Transfer-Encoding:\vchunked") + create,
		head("POST /plants HTTP/1.1", host, auth, plain, "Transfer-Encoding: chunked") + "16;x=y\r\n" + create + "\r\n0\r\n\r\n",
		head("POST /plants HTTP/1.1", host, auth, plain, "Transfer-Encoding: chunked") + "fffffffffffffffff\r\n" + create,
		head("POST /plants HTTP/1.1", host, auth, plain, "Transfer-Encoding: chunked") + "-1\r\n" + create,
		head("POST /plants HTTP/1.1", host, auth, plain, "Transfer-Encoding: chunked") + "16\n" + create + "\n0\n\n",
		head("POST /plants HTTP/1.1", host, auth, plain, "Transfer-Encoding: chunked") + "16\r\n" + create + "0\r\n\r\n",
		head("POST /plants HTTP/1.1", host, auth, plain, "Transfer-Encoding: chunked") + "16",
		head("POST /plants HTTP/1.1", host, auth, plain, length, "Expect: 100-continue") + create,
		head("POST /plants HTTP/1.1", host, plain, length, "Expect: 100-continue") + create,
		head("POST /plants HTTP/1.1", host, auth, plain, length, "Expect: 200-ok") + create,
		head("POST /plants/import HTTP/1.1", host, auth, "Content-Type: application/x-ndjson", length) + create,
		head("POST /plants/import HTTP/1.1", host, auth, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked") + chunked(create+"\n") + "5\r\n{",
		head("GET /plants HTTP/1.0", auth), head("GET /plants HTTP/1.0", auth, "Accept: application/x-ndjson"), head("GET /plants HTTP/1.1", host, auth, "Accept: application/x-ndjson"),
		head("GET /plants HTTP/1.1", auth), head("GET /plants HTTP/1.1", host, host, auth), head("GET /plants HTTP/1.1", "Host: a b", auth), head("GET /plants HTTP/1.1", "Host:", auth),
		head("GET /plants HTTP/0.9", host), head("GET /plants HTTP/1.2", host), head("GET /plants HTTP/2.0", host), head("GET /plants HTTP/11", host), head("GET /plants http/1.1", host),
		head("GET  /plants HTTP/1.1", host), head("GET /plants x HTTP/1.1", host), head("GET plants HTTP/1.1", host), head("GET http://y/plants HTTP/1.1", host, auth), head("GET http:plants HTTP/1.1", host),
		head("GET * HTTP/1.1", host), head("OPTIONS * HTTP/1.1", host) + head("GET / HTTP/1.1", host), head("CONNECT x:1 HTTP/1.1", host), head("CONNECT /plants HTTP/1.1", host), head("GET /%zz HTTP/1.1", host),
		head("GET /plants HTTP/1.1", host, " folded: x"), head("GET /plants HTTP/1.1", host, "X: y", " z"), head("GET /plants HTTP/1.1", host, "X : y"), head("GET /plants HTTP/1.1", host, ": y"),
		head("GET /plants HTTP/1.1", host, "X: \x00"), head("GET /plants HTTP/1.1", host, "X"), "GET /plants HTTP/1.1\nHost: x\n\n", "GET /plants HTTP/1.1\rHost: x\r\r", "\r\n\r\n" + head("GET / HTTP/1.1", host),
		head("HEAD /plants HTTP/1.1", host, auth) + head("HEAD /x HTTP/1.1", host) + head("GET /healthz HTTP/1.1", host, "Connection: close") + head("GET /healthz HTTP/1.1", host),
		head("GET /plants HTTP/1.1", host, auth, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"),
		head("GET /plants HTTP/1.1", host, auth, "Connection: Upgrade", "Upgrade: websocket"), head("GET /plants HTTP/1.1", host, "X: "+strings.Repeat("x", 40<<10)),
		strings.Repeat(head("GET /plants/1 HTTP/1.1", host, auth), 20), head("DELETE /plants/1 HTTP/1.1", host, auth, "Content-Length: 3") + "abc" + head("GET /plants/1 HTTP/1.1", host, auth),
	} {
		f.Add(raw)
	}
	s := startRaw(f)
	tokens := newSecrets(s.service)
	f.Fuzz(func(t *testing.T, raw string) {
		if profiles.MatchString(raw) && strings.Contains(raw, "OPS") {
			t.Skip("not fuzzed here")
		}
		s.restore(t)
		received, methods := s.exchange(t, tokens.replace(raw))
		if err := s.check(received, methods); err != nil {
			t.Errorf("%q: got %q: %v", raw, received, err)
		}
		if s.HasSecret(received) {
			t.Errorf("%q: a secret is in the response: %q", raw, received)
		}
		s.Log.Reset()
	})
}
