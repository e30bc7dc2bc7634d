package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/server"
	"plantstore/internal/servertest"
	"plantstore/internal/testenv"
)

var requestID = regexp.MustCompile(`\A[0-9A-Za-z._-]{1,64}\z`)

// bodyOf returns a createPlant body of that size.
func bodyOf(size int) string {
	const head, tail = `{"id":1,"name":"`, `"}`
	return head + strings.Repeat("f", size-len(head)-len(tail)) + tail
}

// chunked returns the text as one chunk, without the final empty one.
func chunked(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

func TestBodyMayBeAsLargeAsTheLimit(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	const limit = 1 << 20
	if got := s.create(t, bodyOf(limit)); got.status != 200 {
		t.Errorf("a body of %d bytes: got %d %s", limit, got.status, got.body)
	}
	c := s.dialCreate(t, "Transfer-Encoding: chunked")
	c.send(t, chunked(bodyOf(limit)[:limit/2])+chunked(bodyOf(limit)[limit/2:])+"0\r\n\r\n")
	if got := c.reply(t); got.status != 200 {
		t.Errorf("a chunked body of %d bytes: got %d %s", limit, got.status, got.body)
	}
}

func TestLargerBodyIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{MaxBody: 1000})

	t.Run("by its length before it is sent", func(t *testing.T) {
		c := s.dialCreate(t, "Content-Length: 1001")
		got := c.reply(t)
		got.wantError(t, plantstore.ErrTooLarge, "1000 bytes")
		if !got.closes {
			t.Error("the response does not say that the connection ends")
		}
		c.wantClosed(t)
	})
	t.Run("by an enormous length", func(t *testing.T) {
		for _, length := range []string{"1048577", "4294967297", "9223372036854775807"} {
			s.dialCreate(t, "Content-Length: "+length).reply(t).wantError(t, plantstore.ErrTooLarge)
		}
	})
	t.Run("by its chunks", func(t *testing.T) {
		c := s.dialCreate(t, "Transfer-Encoding: chunked")
		c.send(t, chunked(bodyOf(1001)))
		got := c.reply(t)
		got.wantError(t, plantstore.ErrTooLarge, "1000 bytes")
		if !got.closes {
			t.Error("the response does not say that the connection ends")
		}
		c.wantClosed(t)
	})
	t.Run("even if the JSON ends before the limit", func(t *testing.T) {
		body := bodyOf(900) + strings.Repeat(" ", 101)
		s.create(t, body).wantError(t, plantstore.ErrTooLarge)
		c := s.dialCreate(t, "Transfer-Encoding: chunked")
		c.send(t, chunked(body))
		c.reply(t).wantError(t, plantstore.ErrTooLarge)
	})
	// Clients such as curl drop a response when their stream or connection ends while
	// they are still sending.
	t.Run("in HTTP/2 while it is still being sent", func(t *testing.T) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/plants", strings.NewReader(bodyOf(1001)))
		r.ProtoMajor, r.ProtoMinor = 2, 0
		r.Header.Set("Authorization", "Bearer "+s.Token)
		r.Header.Set("Content-Type", "application/json")
		sent, body := "", r.Body
		r.Body = io.NopCloser(readerFunc(func(b []byte) (int, error) {
			if w.Flushed {
				sent = w.Body.String()
			}
			return body.Read(b)
		}))
		s.Handler.ServeHTTP(w, r)
		if w.Code != 413 || !strings.Contains(sent, `"error":41301`) {
			t.Errorf("%d %q is sent while the client sends", w.Code, sent)
		}
		if rest, _ := io.ReadAll(body); len(rest) > 0 {
			t.Errorf("%d bytes of the body are left, so the stream is reset", len(rest))
		}
		if got := w.Header()["Connection"]; got != nil {
			t.Errorf("Connection: %q ends the connection", got)
		}
	})
	t.Run("but a smaller one is not", func(t *testing.T) {
		if got := s.create(t, bodyOf(1000)); got.status != 200 {
			t.Errorf("got %d %s", got.status, got.body)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestWrongFramingIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	const body = `{"id":1,"name":"Fern"}`

	t.Run("length too short", func(t *testing.T) {
		c := s.dialCreate(t, "Content-Length: "+strconv.Itoa(len(body)-1))
		c.send(t, body)
		c.reply(t).wantError(t, plantstore.ErrNotJSON, "unexpected end")
		s.wantStored(t)
	})
	t.Run("length too long", func(t *testing.T) {
		c := s.dialCreate(t, "Content-Length: "+strconv.Itoa(len(body)+1))
		c.send(t, body)
		c.closeWrite(t)
		c.reply(t).wantError(t, plantstore.ErrNotJSON, "could not be read")
		s.wantStored(t)
	})
	t.Run("no body", func(t *testing.T) {
		c := s.dialCreate(t, "Content-Length: 5")
		c.closeWrite(t)
		c.reply(t).wantError(t, plantstore.ErrNotJSON)
		s.wantStored(t)
	})
	t.Run("no final chunk", func(t *testing.T) {
		c := s.dialCreate(t, "Transfer-Encoding: chunked")
		c.send(t, chunked(body))
		c.closeWrite(t)
		c.reply(t).wantError(t, plantstore.ErrNotJSON)
		s.wantStored(t)
	})
	t.Run("not chunks", func(t *testing.T) {
		c := s.dialCreate(t, "Transfer-Encoding: chunked")
		c.send(t, body+"\r\n")
		c.reply(t).wantError(t, plantstore.ErrNotJSON)
		s.wantStored(t)
	})
	t.Run("garbage after the body", func(t *testing.T) {
		c := s.dialCreate(t, "Content-Length: "+strconv.Itoa(len(body)))
		c.send(t, body+"garbage\r\n\r\n")
		c.reply(t).wantPlant(t, fern(1))
		second, err := http.ReadResponse(c.in, nil)
		if err != nil || second.StatusCode != 400 || !second.Close {
			t.Errorf("the garbage got %v, %v", second, err)
		}
	})
}

func TestSlowBodyIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{ReadTimeout: 100 * time.Millisecond})
	for _, c := range []*connection{
		s.dialCreate(t, "Content-Length: 22"),
		s.dialCreate(t, "Transfer-Encoding: chunked"),
	} {
		c.send(t, `{"id":1`[:5])
		got := c.reply(t)
		got.wantError(t, plantstore.ErrTimeout, "in time")
		if !got.closes {
			t.Error("the response does not say that the connection ends")
		}
		c.wantClosed(t)
	}
	s.wantStored(t)
}

func TestTooLargeHeaderIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	const body = `{"id":1,"name":"Fern"}`
	s.create(t, body, "X-Padding: "+strings.Repeat("p", 31<<10)).wantPlant(t, fern(1))

	got := s.create(t, body, "X-Padding: "+strings.Repeat("p", 32<<10))
	got.wantError(t, plantstore.ErrHeaders, "32768 bytes")
	if got := s.send(t, "GET", "/healthz?"+strings.Repeat("p", 32<<10), ""); got.status != 431 {
		t.Errorf("a long query: got %d", got.status)
	}
	var lines []string
	for i := range 4000 {
		lines = append(lines, fmt.Sprintf("X-%d: p", i))
	}
	s.create(t, body, lines...).wantError(t, plantstore.ErrHeaders)

	// Beyond twice the limit net/http responds.
	c := s.dial(t)
	c.send(t, "POST "+s.plantsPath()+" HTTP/1.1\r\nHost: x\r\nX-Padding: "+strings.Repeat("p", 80<<10)+"\r\n\r\n")
	response, err := http.ReadResponse(c.in, nil)
	if err != nil || response.StatusCode != 431 || !response.Close {
		t.Errorf("an enormous header: got %v, %v", response, err)
	}
}

// A client that sends Expect is told to continue only if the body will be read.
func TestBodyIsRequestedOnlyWhenItIsNeeded(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	reader := s.NewToken(plantstore.ScopeRead, plantstore.ScopeOps)
	const body = `{"id":1,"name":"Fern"}`
	length := "Content-Length: " + strconv.Itoa(len(body))
	const expect = "Expect: 100-continue"

	s.dialCreate(t, length, expect, "Authorization:").reply(t).wantError(t, plantstore.ErrNoToken)
	s.dialCreate(t, length, expect, "Authorization: Bearer unknown").reply(t).wantError(t, plantstore.ErrBadToken)
	s.dialCreate(t, length, expect, "Authorization: Bearer "+reader).reply(t).wantError(t, plantstore.ErrScope)
	s.dialCreate(t, length, expect, "Content-Type: text/plain").reply(t).wantError(t, plantstore.ErrMediaType)
	s.dialCreate(t, "Content-Length: 1048577", expect).reply(t).wantError(t, plantstore.ErrTooLarge)

	c := s.dialCreate(t, length, expect)
	if got := c.reply(t); got.status != 100 {
		t.Fatalf("got %d %s, want 100", got.status, got.body)
	}
	c.send(t, body)
	c.reply(t).wantPlant(t, fern(1))
}

// Without Expect, the response does not wait for a body that need not be read.
func TestLargeBodyWithoutATokenIsNotRead(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	c := s.dialCreate(t, "Content-Length: 1000000", "Authorization:")
	c.reply(t).wantError(t, plantstore.ErrNoToken)
	c.wantClosed(t)
}

func TestUnknownPathsAreRefusedAndNeverRedirected(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	for _, path := range []string{
		"/plant", "/Plants", "/PLANTS", "/plants/", "//plants", "/plants//", "/./plants", "/x/../plants", "/plants/.", "/plants/..", "/plants;x=1",
		"/plants%2F", "/plants%20", "/plants%00", "/v1/plants", "/openapi", "/openapi.yml", "/healthz/", "/debug", "/favicon.ico", "/.env",
	} {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			got := s.send(t, method, path, "", s.withDefaults(nil)...)
			got.wantError(t, plantstore.ErrNoPath, "/openapi.yaml")
			got.wantHeader(t, "Location")
		}
	}
	// If only a slash is missing, net/http would redirect.
	got := s.send(t, "GET", "/debug/pprof", "")
	got.wantError(t, plantstore.ErrNoPath)
	got.wantHeader(t, "Location")
}

func TestMethodThatIsNotAllowedIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	doc := loadContract(t, plantstore.OpenAPI)
	known := map[string][]string{"/healthz": {"GET"}, "/readyz": {"GET"}, "/openapi.yaml": {"GET"}, "/openapi.json": {"GET"}, "/metrics": {"GET"}}
	for method := range doc.Paths.Value("/plants").Operations() {
		known["/plants"] = append(known["/plants"], method)
	}
	for path, methods := range known {
		if slices.Contains(methods, "GET") {
			methods = append(methods, "HEAD")
		}
		slices.Sort(methods)
		allow := strings.Join(methods, ", ")
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "post"} {
			if slices.Contains(methods, method) {
				continue
			}
			got := s.send(t, method, path, "", s.withDefaults(nil)...)
			got.wantError(t, plantstore.ErrMethod, path, method, allow)
			got.wantHeader(t, "Allow", allow)
		}
	}
}

func TestHeadIsGetWithoutTheBody(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	for _, tt := range []struct {
		path   string
		status int
		header []string
	}{
		{"/healthz", 200, nil},
		{"/readyz", 200, nil},
		{"/openapi.json", 200, nil},
		{"/nothing", 404, nil},
		{"/metrics", 401, nil},
	} {
		send := func(method string) reply {
			// While the store is slow, the server is not ready.
			return eventually(t, tt.status, func() reply { return s.send(t, method, tt.path, "", tt.header...) })
		}
		get, head := send("GET"), send("HEAD")
		if get.status != tt.status || head.status != tt.status || len(head.body) != 0 {
			t.Errorf("%s: GET got %d, HEAD %d with %d bytes; want %d", tt.path, get.status, head.status, len(head.body), tt.status)
		}
		head.wantHeader(t, "Content-Type", get.header.Get("Content-Type"))
		head.wantHeader(t, "Content-Length", get.header.Values("Content-Length")...)
	}
}

func TestEveryResponseHasTheRequestID(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	const body = `{"id":1,"name":"Fern"}`
	for _, id := range []string{"a", "A.b-c_9", strings.Repeat("x", 64)} {
		s.create(t, body, "X-Request-Id: "+id).wantHeader(t, "X-Request-Id", id)
		s.create(t, "", "X-Request-Id: "+id).wantHeader(t, "X-Request-Id", id)
		s.create(t, body, "Authorization:", "X-Request-Id: "+id).wantHeader(t, "X-Request-Id", id)
		s.send(t, "GET", "/nothing", "", "X-Request-Id: "+id).wantHeader(t, "X-Request-Id", id)
		if line := `"request":"` + id + `"`; strings.Count(s.Log.String(), line) != 4 {
			t.Errorf("the log does not have 4 lines with %s", line)
		}
	}
	seen := map[string]bool{}
	for _, header := range [][]string{
		nil, nil,
		{"X-Request-Id: " + strings.Repeat("x", 65)},
		{"X-Request-Id: a b"},
		{"X-Request-Id: a\tb"},
		{"X-Request-Id: é"},
		{`X-Request-Id: a"b`},
		{"X-Request-Id: a", "X-Request-Id: a"},
		{"X-Request-Id: <script>"},
	} {
		got := s.create(t, body, header...).header.Values("X-Request-Id")
		if len(got) != 1 || !requestID.MatchString(got[0]) || got[0] == "a" || seen[got[0]] {
			t.Errorf("with %q the id is %q, want a new one", header, got)
			continue
		}
		seen[got[0]] = true
	}
}

func TestConnectionIsReused(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	c := s.dial(t)
	for _, tt := range []struct {
		body string
		code plantstore.Code
	}{
		{`{"id":1,"name":"Fern"}`, 0},
		{`{`, plantstore.ErrNotJSON},
		{`{"id":1,"name":"Oak"}`, plantstore.ErrIDTaken},
		{`{"id":1,"name":"Fern"}`, 0},
	} {
		c.sendHeader(t, "Content-Length: "+strconv.Itoa(len(tt.body)))
		c.send(t, tt.body)
		if got := c.reply(t); tt.code == 0 {
			got.wantPlant(t, fern(1))
		} else {
			got.wantError(t, tt.code)
		}
	}
}

// A request that a proxy may frame differently must be the last one on its connection.
func TestConnectionEndsAfterAmbiguousFraming(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	const body = `{"id":1,"name":"Fern"}`
	chunk := chunked(body) + "0\r\n\r\n"
	length := "Content-Length: " + strconv.Itoa(len(body))
	for name, tt := range map[string]struct {
		version, header, body string
		ends                  bool
	}{
		"length":                  {"1.1", length, body, false},
		"chunks":                  {"1.1", "Transfer-Encoding: chunked", chunk, true},
		"length and chunks":       {"1.1", length + "\r\nTransfer-Encoding: chunked", chunk, true},
		"HTTP/1.0":                {"1.0", "Connection: keep-alive\r\n" + length, body, true},
		"HTTP/1.0, chunks":        {"1.0", "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n" + length, body, true},
		"HTTP/1.0 without a body": {"1.0", "Connection: keep-alive", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := s.dial(t)
			c.send(t, "POST /plants HTTP/"+tt.version+"\r\nHost: x\r\nAuthorization: Bearer "+s.Token+
				"\r\nContent-Type: application/json\r\n"+tt.header+"\r\n\r\n"+tt.body+"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
			first, err := http.ReadResponse(c.in, nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, first.Body)
			if first.Close != tt.ends {
				t.Errorf("the response says that the connection ends: %t", first.Close)
			}
			if _, err := http.ReadResponse(c.in, nil); (err != nil) != tt.ends {
				t.Errorf("the next request got a response: %t", err == nil)
			}
		})
	}
}

func TestAPIIsMountedAtTheBaseURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		base, plants string
		not          []string
	}{
		{"", "/plants", []string{"/v1/plants"}},
		{"/", "/plants", []string{"//plants"}},
		{"/v1", "/v1/plants", []string{"/plants", "/V1/plants", "/v1/v1/plants", "/v1plants", "/v1", "/v1/", "/v1/healthz", "/v1/openapi.yaml"}},
		{"/v1/", "/v1/plants", []string{"/plants", "/v1//plants"}},
		{"/shop/garden", "/shop/garden/plants", []string{"/plants", "/shop/plants", "/garden/plants"}},
		{"/my%20shop", "/my%20shop/plants", []string{"/plants", "/my/plants", "/my+shop/plants"}},
		{"/%7Bid%7D", "/%7Bid%7D/plants", []string{"/1/plants", "/plants"}},
		{"https://plants.example", "/plants", []string{"/v1/plants"}},
		{"https://plants.example/v1", "/v1/plants", []string{"/plants"}},
	} {
		s := start(t, servertest.Options{BaseURL: servertest.URL(tt.base)})
		const body = `{"id":1,"name":"Fern"}`
		s.send(t, "POST", tt.plants, body, s.withDefaults(nil)...).wantPlant(t, fern(1))
		for _, path := range tt.not {
			s.send(t, "POST", path, body, s.withDefaults(nil)...).wantError(t, plantstore.ErrNoPath)
		}
		if got := s.send(t, "GET", "/healthz", ""); got.status != 200 {
			t.Errorf("with %s, /healthz: got %d", tt.base, got.status)
		}
	}
}

// There is room for one large body, which stalls. A body counts as large once enough
// of it has arrived, whatever length was announced.
func TestLargeBodiesShareALimit(t *testing.T) {
	s := start(t, servertest.Options{MaxBody: server.MemoryBytes})
	large := `{"id":1,"name":"Fern","more":"` + strings.Repeat("x", server.MediumBody) + `"}`
	length := fmt.Sprintf("Content-Length: %d", len(large))
	announced := s.dialCreate(t, length)
	announced.send(t, large[:10])
	first := s.dialCreate(t, length)
	const sent = server.MediumBody + 10
	first.send(t, large[:sent])
	testenv.WaitFor(t, "the server to read it", func() bool { return s.Handler.Used("memory") > 2*server.MediumBody })
	s.create(t, large).wantError(t, plantstore.ErrUnavailable, "large bodies")
	unknown := s.dialCreate(t, "Transfer-Encoding: chunked")
	unknown.send(t, chunked(large)+"0\r\n\r\n")
	unknown.reply(t).wantError(t, plantstore.ErrUnavailable, "large bodies")
	small := s.dialCreate(t, "Transfer-Encoding: chunked")
	small.send(t, chunked(`{"id":3,"name":"Fern"}`)+"0\r\n\r\n")
	small.reply(t).wantPlant(t, fern(3))
	s.create(t, `{"id":2,"name":"Fern"}`).wantPlant(t, fern(2))
	first.send(t, large[sent:])
	first.reply(t).wantPlant(t, fern(1))
	announced.send(t, large[10:])
	announced.reply(t).wantPlant(t, fern(1))
	s.create(t, large).wantPlant(t, fern(1))
}

// A path is matched segment by segment, whatever is escaped in it.
func TestEscapesInAPathMakeNoDifference(t *testing.T) {
	s := start(t, servertest.Options{BaseURL: servertest.URL("/a%20b")})
	s.Fill(t, fern(1))
	for _, path := range []string{"/a%20b/plants/1", "/%61%20b/plants/1", "/a%20b/plants/%31"} {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Authorization", "Bearer "+s.Token)
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, r)
		if w.Code != 200 || w.Body.String() != `{"name":"Fern"}`+"\n" {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"//", "/a%20b//plants/1", "/a%20b/plants/1/..", "/a%2520b/plants/1", "/a%20b/plants%2F1"} {
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, httptest.NewRequest("GET", "http://plants.test"+path, nil))
		if w.Code != 404 {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
}
