package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
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
	"plantstore/internal/http1"
	"plantstore/internal/storetest"
)

// hang is how long an answer may take before the server counts as hanging. Nothing
// of what is fuzzed takes a hundredth of it.
const hang = 20 * time.Second

// fuzzStore returns the store that a service is fuzzed on. Under the fuzzer's
// counters SQLite takes ten times as long as all the rest, so the model stands in
// while inputs are searched. Every input that is kept runs on SQLite.
func fuzzStore() plantstore.Store {
	if searching := flag.Lookup("test.fuzz"); searching != nil && searching.Value.String() != "" {
		return storetest.NewModel()
	}
	return nil
}

// callers are the tokens that fuzzed requests may carry, by the words that stand
// for them in an Authorization header. None has the scope of operators, because a
// profile takes as long as it is asked to; see [profiles].
type callers map[string]string

func newCallers(f *testing.F, s *service) callers {
	return callers{
		"BOTH":  s.newToken(f, plantstore.Token{Scopes: []plantstore.Scope{plantstore.ScopeRead, plantstore.ScopeWrite}}),
		"READ":  s.newToken(f, plantstore.Token{Scopes: []plantstore.Scope{plantstore.ScopeRead}}),
		"LATE":  s.newToken(f, plantstore.Token{Scopes: plantstore.AllScopes(), Expires: time.Now().Add(-time.Hour)}),
		"AWAY":  s.newToken(f, plantstore.Token{Scopes: plantstore.AllScopes(), Revoked: time.Now().Add(-time.Hour)}),
		"WRITE": s.newToken(f, plantstore.Token{Scopes: []plantstore.Scope{plantstore.ScopeWrite}}),
		"OPS":   s.newToken(f, plantstore.Token{Scopes: []plantstore.Scope{plantstore.ScopeOps}}),
	}
}

var authorization = regexp.MustCompile(`(?im)^(Authorization:.*?)\b(BOTH|READ|WRITE|LATE|AWAY|OPS)\b`)

// introduce puts the tokens into a header. They stand nowhere else, so that one in
// an answer or in the log is a leak, and not what the caller said.
func (c callers) introduce(header string) string {
	return authorization.ReplaceAllStringFunc(header, func(line string) string {
		parts := authorization.FindStringSubmatch(line)
		return parts[1] + c[parts[2]]
	})
}

// restore makes the store hold the garden and nothing else. It writes only where
// that is not so.
func (s *service) restore(t *testing.T) {
	t.Helper()
	var there []plantstore.Plant
	for plant, err := range s.store.Scan(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		there = append(there, plant)
	}
	if !slices.Equal(there, garden) {
		s.clear(t)
		s.fill(t, garden...)
	}
}

// profiles are the paths whose answers may take as long as they are asked to.
var profiles = regexp.MustCompile(`/debug/pprof/`)

var (
	methodToken = regexp.MustCompile("\\A[!#$%&'*+.^_`|~0-9A-Za-z-]{1,40}\\z")
	headerLine  = regexp.MustCompile("\\A([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([^\\x00-\\x08\\x0a-\\x1f\\x7f]*)\\z")
)

// framing are the headers with which a request is cut out of its connection. They
// belong to the second target.
var framing = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Expect", "Trailer", "Te", "Upgrade", "Keep-Alive", "Proxy-Connection", "User-Agent", "Accept-Encoding", "Http2-Settings"}

// requestOf makes a request that any HTTP server must read. It returns nil where
// the parts make none.
func requestOf(s *service, who callers, method, target, header, body string) *http.Request {
	address, err := url.ParseRequestURI(wireSafe(target))
	if err != nil || !strings.HasPrefix(target, "/") || !methodToken.MatchString(method) || method == http.MethodConnect || len(target)+len(header) > 40<<10 {
		return nil
	}
	address.Scheme, address.Host = "http", s.addr
	r := &http.Request{Method: method, URL: address, Header: http.Header{}}
	for line := range strings.SplitSeq(who.introduce(header), "\n") {
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

// surfaceSeeds are requests that reach every route and every refusal.
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

// FuzzRequest sends any method, target, header and body that make an HTTP request.
// The server always answers, never with 500 or 503, and as the contract says: the
// judge has looked at every answer. No token is in an answer or in the log.
func FuzzRequest(f *testing.F) {
	for _, seed := range surfaceSeeds {
		f.Add(seed.method, seed.target, seed.header, seed.body)
	}
	s := start(f, setup{store: fuzzStore(), maxBody: 4 << 10})
	who := newCallers(f, s)
	f.Fuzz(func(t *testing.T, method, target, header, body string) {
		r := requestOf(s, who, method, target, header, body)
		if r == nil || strings.Contains(r.Header.Get("Authorization"), who["OPS"]) && profiles.MatchString(r.URL.Path) {
			t.Skip("no request that is fuzzed here")
		}
		s.restore(t)
		ctx, cancel := context.WithTimeout(t.Context(), hang)
		defer cancel()
		response, err := s.client.Do(r.WithContext(ctx))
		if err != nil {
			t.Fatalf("%s %q was not answered: %v", method, target, err)
		}
		got := s.receive(t, forJudge(r.WithContext(ctx)), []byte(body), response)
		if err := aboutAnswer(got.status, got.header); err != nil {
			t.Errorf("%s %q with %q and %q was answered %d %q: %v", method, target, header, body, got.status, got.body, err)
		}
		s.forgetLog(t)
	})
}

// forJudge returns the request as the outside judge can read it. Media types are
// the same in any case, and integers have no end (RFC 9110, 8.3.1; JSON Schema): it
// knows neither, so it gets them as it likes them.
func forJudge(r *http.Request) *http.Request {
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

// aboutAnswer says what is wrong with an answer of ours, beside what the contract
// has to say.
func aboutAnswer(status int, header http.Header) error {
	_, dated := http.ParseTime(header.Get("Date"))
	switch id := header.Values("X-Request-Id"); {
	case status >= 500:
		return errors.New("a caller can make the server fail")
	case len(id) != 1 || !isRequestID(id[0]):
		return fmt.Errorf("the request has the id %q", id)
	case dated != nil:
		return fmt.Errorf("the answer is not dated: %w", dated)
	case 300 <= status && status < 400 && status != http.StatusNotModified:
		return errors.New("the answer is a redirect")
	case (status == 401 || status == 403) != (header.Get("WWW-Authenticate") != ""):
		return fmt.Errorf("the challenge is %q", header.Get("WWW-Authenticate"))
	case status == 405 && header.Get("Allow") == "":
		return errors.New("the answer does not say which methods there are")
	}
	return nil
}

// before are the answers that net/http gives before a handler runs, with all that
// they say. After each but the last it ends the connection.
var before = map[int]*regexp.Regexp{
	400: regexp.MustCompile(`\A400 Bad Request(: (missing required Host header|too many Host headers|malformed Host header|invalid header name|invalid header value))?\z`),
	417: regexp.MustCompile(`\A\z`), // an Expect that is not 100-continue
	431: regexp.MustCompile(`\A431 Request Header Fields Too Large\z`),
	501: regexp.MustCompile(`\AUnsupported transfer encoding\z`),
	505: regexp.MustCompile(`\A505 HTTP Version Not Supported: unsupported protocol version\z`),
	200: regexp.MustCompile(`\A\z`), // OPTIONS *
}

// lineServer serves a service on a socket of its own, and remembers which requests
// of each connection reached the handler.
type lineServer struct {
	service *service
	path    string

	mu      sync.Mutex // guards handled
	handled []string   // the methods, in order
}

func newLineServer(f *testing.F, s *service) *lineServer {
	f.Helper()
	// The name of a socket must be short, and that of a test's folder is not.
	dir, err := os.MkdirTemp("", "plants")
	if err != nil {
		f.Fatal(err)
	}
	l := &lineServer{service: s, path: filepath.Join(dir, "s")}
	listener, err := net.Listen("unix", l.path)
	if err != nil {
		f.Fatal(err)
	}
	web := http1.New(&http.Server{
		Handler: l, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 90 * time.Second, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.handler.log.Handler(), slog.LevelDebug),
	})
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	f.Cleanup(func() {
		web.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			f.Errorf("Serve: %v", err)
		}
		os.RemoveAll(dir)
	})
	return l
}

// ServeHTTP hands a request on. net/http takes the end of what a caller sends for
// the end of the caller, and cancels the request; whether it does so before the
// answer is a matter of luck, so here it never does.
func (l *lineServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.handled = append(l.handled, r.Method)
	l.mu.Unlock()
	l.service.handler.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
}

// exchange sends the bytes, and returns all that came back and the methods of the
// requests that were handled.
func (l *lineServer) exchange(t *testing.T, sent string) ([]byte, []string) {
	t.Helper()
	l.mu.Lock()
	l.handled = nil
	l.mu.Unlock()
	conn, err := net.Dial("unix", l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(hang)); err != nil {
		t.Fatal(err)
	}
	go func() {
		// The server may end the connection before it has read all.
		_, _ = io.WriteString(conn, sent)
		_ = conn.(*net.UnixConn).CloseWrite()
	}()
	answer, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%q was not answered to its end: %q", sent, answer)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return answer, l.handled
}

// check reads answers one after the other. Each is the handler's, as the contract
// says, or net/http's own, of which there is a list.
func (l *lineServer) check(answers []byte, handled []string) error {
	in := bufio.NewReader(bytes.NewReader(answers))
	for {
		if _, err := in.Peek(1); err == io.EOF {
			break
		}
		method := "GET"
		if len(handled) > 0 {
			method = handled[0]
		}
		got, err := readReply(in, method)
		if err != nil {
			return err
		}
		if got.status == http.StatusContinue {
			continue
		}
		if len(got.header.Values("X-Request-Id")) == 0 {
			if own := before[got.status]; own == nil || !own.Match(got.body) {
				return fmt.Errorf("net/http answered %d %q", got.status, got.body)
			}
			continue
		}
		if len(handled) == 0 {
			return fmt.Errorf("%d %q is an answer to nothing", got.status, got.body)
		}
		handled = handled[1:]
		if err := aboutAnswer(got.status, got.header); err != nil {
			return fmt.Errorf("%d %q: %w", got.status, got.body, err)
		}
		if got.status >= 400 && method != "HEAD" {
			if err := l.service.judge.checkError(got); err != nil {
				return fmt.Errorf("%d %q: %w", got.status, got.body, err)
			}
		}
	}
	if len(handled) > 0 {
		return fmt.Errorf("%q were handled and not answered", handled)
	}
	return nil
}

func readReply(in *bufio.Reader, method string) (reply, error) {
	response, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		return reply{}, fmt.Errorf("read an answer: %w", err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, fmt.Errorf("read the body of an answer: %w", err)
	}
	return reply{response.StatusCode, response.Header, body, response.Close}, nil
}

// FuzzConnection writes any bytes to a connection. The server answers each request
// that it sees in them, as the contract says where the handler is reached, and ends
// the connection in time. No token is in an answer or in the log.
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
	s := start(f, setup{store: fuzzStore(), maxBody: 4 << 10})
	who, l := newCallers(f, s), newLineServer(f, s)
	f.Fuzz(func(t *testing.T, raw string) {
		if profiles.MatchString(raw) && strings.Contains(raw, "OPS") {
			t.Skip("no request that is fuzzed here")
		}
		s.restore(t)
		sent := who.introduce(raw)
		answers, handled := l.exchange(t, sent)
		if err := l.check(answers, handled); err != nil {
			t.Errorf("%q was answered %q: %v", raw, answers, err)
		}
		for _, secret := range s.secrets {
			if bytes.Contains(answers, []byte(secret)) {
				t.Errorf("%q was answered with a token: %q", raw, answers)
			}
		}
		s.forgetLog(t)
	})
}
