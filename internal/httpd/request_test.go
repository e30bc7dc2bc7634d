package httpd

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// usedRequest returns a request that a handler has changed in many ways.
func usedRequest(t testing.TB) *request {
	t.Helper()
	r := new(request)
	r.init(context.Background(), "192.0.2.1:1")
	const before = "PUT /before HTTP/1.1\r\nHost: old\r\nX-Old: 1\r\nX-Old: 2\r\nAccept: old\r\n" +
		"Connection: keep-alive\r\nContent-Length: 4\r\n\r\nbody"
	if n := r.parse([]byte(before), always); n != len(before) {
		t.Fatalf("parse returned %d for the request before", n)
	}
	if err := r.ParseForm(); err != nil {
		t.Fatal(err)
	}
	r.SetPathValue("id", "old")
	r.Pattern = "PUT /before"
	r.Header.Add("X-Old", "3")
	r.Header.Set("X-Added", "1")
	r.URL.Fragment, r.URL.RawPath, r.URL.RawQuery, r.URL.ForceQuery = "old", "/old", "old=1", true
	r.Body.Read(make([]byte, 1))
	return r
}

// meaning is everything that a handler can read from a request.
type meaning struct {
	Method, Target, Proto string
	Major, Minor          int
	URL                   url.URL
	Header, Trailer       http.Header
	Host                  string
	Length                int64
	Encoding              []string
	Close                 bool
	NoBody                bool
	Body                  string
	Form, PostForm        url.Values
	Pattern, PathValue    string
	Rest                  string // what follows the request
}

func meaningOf(t testing.TB, r *http.Request, rest io.Reader) meaning {
	t.Helper()
	m := meaning{
		Method: r.Method, Target: r.RequestURI, Proto: r.Proto, Major: r.ProtoMajor, Minor: r.ProtoMinor,
		URL: *r.URL, Header: r.Header, Trailer: r.Trailer, Host: r.Host, Length: r.ContentLength,
		Encoding: r.TransferEncoding, Close: r.Close, NoBody: r.Body == http.NoBody,
		Form: r.Form, PostForm: r.PostForm, Pattern: r.Pattern, PathValue: r.PathValue("id"),
	}
	m.Body = readAll(t, r.Body)
	m.Rest = readAll(t, rest)
	return m
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("after %q: %v", b, err)
	}
	return string(b)
}

// parse returns the size of the request at the start of b, and checks that net/http
// understands it in the same way.
func parse(t testing.TB, b []byte) int {
	t.Helper()
	return usedRequest(t).compare(t, b)
}

// compare is parse with a request that was used before.
func (r *request) compare(t testing.TB, b []byte) int {
	size := r.parse(b, always)
	if size == 0 {
		return 0
	}
	got := meaningOf(t, &r.Request, bytes.NewReader(b[size:]))
	from := bufio.NewReader(bytes.NewReader(b))
	judge, err := http.ReadRequest(from)
	if err != nil {
		t.Fatalf("the fast path accepts %q, but net/http says: %v", b, err)
	}
	if want := meaningOf(t, judge, from); !reflect.DeepEqual(got, want) {
		t.Errorf("%q is understood as\n%+v\nand by net/http as\n%+v", b, got, want)
	}
	return size
}

// with returns a request with more lines in its header.
func withHeaders(lines string) string {
	return "GET /plants HTTP/1.1\r\nHost: localhost\r\n" + lines + "\r\n"
}

// post returns a POST with more lines in its header and a body.
func post(lines, body string) string {
	return "POST /plants HTTP/1.1\r\nHost: localhost\r\n" + lines + "\r\n" + body
}

// to returns a request with another first line.
func to(line string) string { return line + "\r\nHost: localhost\r\n\r\n" }

var fastRequests = map[string]string{
	"the shortest":            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"usual fields":            withHeaders("User-Agent: curl/8.5.0\r\nAccept: */*\r\nAuthorization: Bearer a.b-c_d=\r\n"),
	"dots and slashes":        to("GET /a//b/../.~_-/ HTTP/1.1"),
	"delete":                  to("DELETE /plants/1 HTTP/1.1"),
	"post without a length":   post("", ""),
	"empty body":              post("Content-Length: 0\r\n", ""),
	"body":                    post("Content-Type: application/json\r\nContent-Length: 2\r\n", "{}"),
	"any byte in the body":    post("Content-Length: 5\r\n", "\r\n\r\n\x00"),
	"put":                     "PUT /plants/1 HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 2\r\n\r\n{}",
	"patch":                   "PATCH /plants/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
	"zeros before the length": post("Content-Length: 00002\r\n", "{}"),
	"field of two lines":      withHeaders("Accept: a\r\nX-Other: 1\r\naccept: b\r\nACCEPT: c\r\n"),
	"field without a value":   withHeaders("X-Empty:\r\nX-Blank: \t \r\n"),
	"space around a value":    withHeaders("X-Space: \t a \t b \t \r\n"),
	"no space":                withHeaders("X-Tight:a\r\n"),
	"odd name":                withHeaders("x!#$%&'*+.^_`|~9: a\r\n"),
	"keep-alive":              withHeaders("Connection: keep-alive\r\n"),
	"Keep-Alive in capitals":  withHeaders("connection: Keep-Alive\r\n"),
	"host at the end":         "GET / HTTP/1.1\r\nAccept: */*\r\nhOST: a.example:8080\r\n\r\n",
	"many fields":             withHeaders(strings.Repeat("X-Many: 1\r\n", maxFields-1)),
}

var fallbackRequests = map[string]string{
	"too many fields":               withHeaders(strings.Repeat("X-Many: 1\r\n", maxFields)),
	"nothing":                       "",
	"part of a header":              "GET / HTTP/1.1\r\nHost: localhost\r\n",
	"header but the last byte":      "GET / HTTP/1.1\r\nHost: localhost\r\n\r",
	"no header":                     "GET / HTTP/1.1\r\n\r\n",
	"part of a body":                post("Content-Length: 3\r\n", "{}"),
	"no body yet":                   post("Content-Length: 3\r\n", ""),
	"chunked":                       post("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
	"chunked with a length":         post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
	"length after chunked":          post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
	"identity":                      post("Transfer-Encoding: identity\r\nContent-Length: 2\r\n", "{}"),
	"same length twice":             post("Content-Length: 2\r\nContent-Length: 2\r\n", "{}"),
	"two lengths":                   post("Content-Length: 2\r\nContent-Length: 1\r\n", "{}"),
	"two lengths in a line":         post("Content-Length: 2, 2\r\n", "{}"),
	"length with a plus":            post("Content-Length: +2\r\n", "{}"),
	"length with a minus":           post("Content-Length: -2\r\n", "{}"),
	"length in hex":                 post("Content-Length: 0x2\r\n", "{}"),
	"length with a space":           post("Content-Length: 1 0\r\n", "0123456789"),
	"no length":                     post("Content-Length:\r\n", ""),
	"huge length":                   post("Content-Length: 99999999999999999999\r\n", "{}"),
	"length with an underscore":     post("Content-Length: 1_0\r\n", "0123456789"),
	"length of a full buffer":       post("Content-Length: 4096\r\n", strings.Repeat("a", 4096)),
	"get with a length":             withHeaders("Content-Length: 0\r\n"),
	"bare LF after the first line":  "GET / HTTP/1.1\nHost: localhost\r\n\r\n",
	"bare LF after a field":         "GET / HTTP/1.1\r\nHost: localhost\nX: 1\r\n\r\n",
	"bare LF at the end":            "GET / HTTP/1.1\r\nHost: localhost\n\n",
	"bare LF in the middle":         "GET / HTTP/1.1\r\nHost: localhost\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"bare CR":                       withHeaders("X-Broken: a\rb\r\n"),
	"two CR":                        withHeaders("X-Broken: a\r\r\n"),
	"folded line":                   withHeaders("X-Folded: a\r\n b\r\n"),
	"folded line with a tab":        withHeaders("X-Folded: a\r\n\tb: c\r\n"),
	"folded first line":             "GET / HTTP/1.1\r\n Host: localhost\r\nHost: localhost\r\n\r\n",
	"space before the colon":        withHeaders("Content-Type : a\r\n"),
	"no colon":                      withHeaders("Accept\r\n"),
	"no name":                       withHeaders(": a\r\n"),
	"NUL in a value":                withHeaders("X-Nul: a\x00b\r\n"),
	"control character in a value":  withHeaders("X-Bell: \a\r\n"),
	"DEL in a value":                withHeaders("X-Del: \x7f\r\n"),
	"8-bit byte in a value":         withHeaders("X-High: \xfc\r\n"),
	"UTF-8 in a value":              withHeaders("X-High: ü\r\n"),
	"8-bit byte in a name":          withHeaders("X-\xfc: a\r\n"),
	"no host":                       "GET / HTTP/1.1\r\nAccept: */*\r\n\r\n",
	"empty host":                    "GET / HTTP/1.1\r\nHost:\r\n\r\n",
	"two hosts":                     withHeaders("Host: localhost\r\n"),
	"second host is empty":          withHeaders("Host:\r\n"),
	"host with a user":              "GET / HTTP/1.1\r\nHost: me@localhost\r\n\r\n",
	"host with a path":              "GET / HTTP/1.1\r\nHost: localhost/x\r\n\r\n",
	"host with a space":             "GET / HTTP/1.1\r\nHost: local host\r\n\r\n",
	"absolute form":                 to("GET http://localhost/plants HTTP/1.1"),
	"authority form":                to("CONNECT localhost:80 HTTP/1.1"),
	"asterisk":                      to("OPTIONS * HTTP/1.1"),
	"asterisk to get":               to("GET * HTTP/1.1"),
	"path with two slashes first":   to("GET //plants HTTP/1.1"),
	"path without a slash":          to("GET plants HTTP/1.1"),
	"query only":                    to("GET ?a=1 HTTP/1.1"),
	"no target":                     to("GET HTTP/1.1"),
	"escape in the path":            to("GET /plants/%41 HTTP/1.1"),
	"escaped slash":                 to("GET /plants/a%2Fb HTTP/1.1"),
	"bad escape in the path":        to("GET /plants/% HTTP/1.1"),
	"semicolon in the path":         to("GET /plants;a=1 HTTP/1.1"),
	"fragment":                      to("GET /plants#a HTTP/1.1"),
	"8-bit byte in the path":        to("GET /\xfc HTTP/1.1"),
	"NUL in the path":               to("GET /\x00 HTTP/1.1"),
	"query":                         to("GET /plants?name=a HTTP/1.1"),
	"empty query":                   to("GET /plants? HTTP/1.1"),
	"HTTP/1.0":                      to("GET / HTTP/1.0"),
	"HTTP/2.0":                      to("GET / HTTP/2.0"),
	"HTTP/0.9":                      "GET /\r\n\r\n",
	"lower-case protocol":           to("GET / http/1.1"),
	"head":                          to("HEAD / HTTP/1.1"),
	"options":                       to("OPTIONS / HTTP/1.1"),
	"trace":                         to("TRACE / HTTP/1.1"),
	"lower-case method":             to("get / HTTP/1.1"),
	"no method":                     to("/ HTTP/1.1"),
	"start of HTTP/2":               "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"two spaces after the method":   to("GET  / HTTP/1.1"),
	"two spaces after the target":   to("GET /  HTTP/1.1"),
	"space after the protocol":      to("GET / HTTP/1.1 "),
	"space before the method":       to(" GET / HTTP/1.1"),
	"tab instead of a space":        to("GET\t/ HTTP/1.1"),
	"line break first":              "\r\n" + to("GET / HTTP/1.1"),
	"only line breaks":              "\r\n\r\n",
	"Expect":                        post("Expect: 100-continue\r\nContent-Length: 2\r\n", "{}"),
	"Upgrade":                       withHeaders("Upgrade: websocket\r\n"),
	"HTTP/2 upgrade":                withHeaders("HTTP2-Settings: AAMAAABk\r\n"),
	"Connection: close":             withHeaders("Connection: close\r\n"),
	"Connection: Upgrade":           withHeaders("Connection: Upgrade\r\n"),
	"Connection of two words":       withHeaders("Connection: keep-alive, close\r\n"),
	"two Connections":               withHeaders("Connection: keep-alive\r\nConnection: keep-alive\r\n"),
	"close after keep-alive":        withHeaders("Connection: keep-alive\r\nconnection: close\r\n"),
	"empty Connection":              withHeaders("Connection:\r\n"),
	"Te":                            withHeaders("TE: trailers\r\n"),
	"Trailer":                       post("Trailer: X-Sum\r\nContent-Length: 2\r\n", "{}"),
	"Pragma":                        withHeaders("Pragma: no-cache\r\n"),
	"length that counts two bodies": post("Content-Length: 9999\r\n", withHeaders("")),
}

func TestFastPathRequests(t *testing.T) {
	for name, text := range fastRequests {
		t.Run(name, func(t *testing.T) {
			for _, next := range []string{"", "GET /next", "\r\n"} {
				if size := parse(t, []byte(text+next)); size != len(text) {
					t.Errorf("%d bytes of %d before %q", size, len(text), next)
				}
			}
			for i := range len(text) {
				if size := parse(t, []byte(text[:i])); size != 0 {
					t.Errorf("%d bytes of a part, %q", size, text[:i])
				}
			}
		})
	}
}

func TestFallbackRequests(t *testing.T) {
	for name, text := range fallbackRequests {
		t.Run(name, func(t *testing.T) {
			if size := usedRequest(t).parse([]byte(text), always); size != 0 {
				t.Errorf("the fast path accepts %d bytes of %q", size, text)
			}
		})
	}
}

// A request that is not eligible is for the fallback, however ordinary it is.
func TestRequestsThatAreNotEligible(t *testing.T) {
	for name, text := range fastRequests {
		if size := usedRequest(t).parse([]byte(text), func(string, string) bool { return false }); size != 0 {
			t.Errorf("%s: the fast path accepts %d bytes", name, size)
		}
	}
}

// pieces are what mutate inserts.
var pieces = []string{
	"\r\n", "\n", "\r", " ", "\t", ":", ": ", ",", ";", "/", "?", "#", "%", "%2", "%2F", "*", "\x00", "\x7f", "\xff", "é", "a", "0", "1", "-", "+",
	"GET ", "POST ", "PUT ", "DELETE ", "HTTP/1.1", "HTTP/1.0", "Host: a\r\n", "Content-Length: 2\r\n", "Content-Length: 0\r\n", "content-length:2\r\n",
	"Transfer-Encoding: chunked\r\n", "Connection: close\r\n", "Connection: keep-alive\r\n", "Expect: 100-continue\r\n", "X-A: b\r\n", " folded\r\n", "\r\n\r\n", "{}",
}

// mutate returns one of the requests with a few pieces of it changed, and perhaps more
// bytes after it.
func mutate(random *rand.Rand, requests []string) []byte {
	pick := func() string { return requests[random.IntN(len(requests))] }
	b := []byte(pick())
	for range random.IntN(4) {
		from := random.IntN(len(b) + 1)
		to := min(from+random.IntN(4), len(b))
		piece := []byte(pieces[random.IntN(len(pieces))])
		switch random.IntN(6) {
		case 0:
			to = from
		case 1:
			piece = nil
		case 2:
			piece = []byte{byte(random.IntN(256))}
		case 3:
			piece = bytes.Clone(b[from:to])
			to = from
		case 4:
			from, to = len(b), len(b)
			piece = []byte(pick())
		}
		b = slices.Replace(b, from, to, piece...)
	}
	return b
}

// This is a small part of the fuzzer's work, in every run of the tests. The long form is
// faster than the fuzzer, because it does not measure coverage.
func TestFastPathAgreesWithNetHTTPOnMutatedRequests(t *testing.T) {
	n, accepted := 10_000, 0
	if os.Getenv("PLANTSTORE_TORTURE") == "1" {
		n = 80_000_000
	}
	var requests []string
	for _, table := range []map[string]string{fastRequests, fallbackRequests} {
		for _, text := range table {
			if len(text) < 2<<10 { // most of a mutation's work would be copying it
				requests = append(requests, text)
			}
		}
	}
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	var r *request // as on a connection, it has the leftovers of the requests before
	for i := range n {
		if i%100 == 0 {
			r = usedRequest(t)
		}
		if r.compare(t, mutate(random, requests)) > 0 {
			accepted++
		}
	}
	if accepted < n/100 || accepted > n*99/100 {
		t.Errorf("the fast path accepts %d of %d requests", accepted, n)
	}
	t.Logf("%d requests, %d accepted by the fast path", n, accepted)
}

// FuzzFastPathRequest checks that what the fast path accepts means the same to
// net/http.
func FuzzFastPathRequest(f *testing.F) {
	for _, table := range []map[string]string{fastRequests, fallbackRequests} {
		for _, text := range table {
			f.Add([]byte(text))
			f.Add([]byte(text + withHeaders("")))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) { parse(t, b) })
}
