package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
)

// page returns a handler that always sends the same response.
func page(status int, media, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", media)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// newFake returns a client of a server that is only a handler.
func newFake(t *testing.T, handler http.HandlerFunc, opts client.Options) *client.Client {
	t.Helper()
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	return newClient(t, web.URL, secret, opts)
}

func TestErrorsOfAProxyHaveTheCodeOfTheirStatus(t *testing.T) {
	codes := map[int]plantstore.Code{
		400: 0, 401: plantstore.ErrBadToken, 402: 0, 403: plantstore.ErrScope, 404: plantstore.ErrNoPath,
		405: plantstore.ErrMethod, 408: plantstore.ErrTimeout, 409: 0, 410: plantstore.ErrGone, 412: plantstore.ErrPrecondition,
		413: plantstore.ErrTooLarge, 415: plantstore.ErrMediaType, 429: plantstore.ErrRate,
		431: plantstore.ErrHeaders, 451: 0, 500: plantstore.ErrInternal, 501: 0,
		502: plantstore.ErrUnavailable, 503: plantstore.ErrUnavailable, 504: plantstore.ErrUnavailable, 507: 0,
	}
	for status, want := range codes {
		for _, response := range []struct{ media, body string }{
			{"text/html", "<h1>no</h1>"},
			{"application/json", `{"error":"no","message":"no"}`},
			{"application/json", `{"error":5,"message":"no"}`},
			{"application/json", fmt.Sprintf(`{"error":%d01}`, status)},
			{"application/json", `{"message":"no"}`},
			{"application/json", `{"error":4294967296,"message":"no"}`},
			{"application/problem+json", fmt.Sprintf(`{"error":%d01,"message":"no"}`, status)},
			{"", ""},
		} {
			c := newFake(t, page(status, response.media, response.body), client.Options{Retries: -1})
			for _, op := range operations() {
				err := op.call(t.Context(), c)
				if err == nil || !strings.Contains(err.Error(), fmt.Sprint(status)) || !strings.Contains(err.Error(), "not from a Plant Store") {
					t.Errorf("%s: %d %s: %v does not say so", op.name, status, response, err)
				}
				if got, _ := errors.AsType[plantstore.Code](err); got != want {
					t.Errorf("%s: %d %s: code %d, want %d", op.name, status, response, got, want)
				}
			}
		}
	}
}

// The server below would write for ever.
func TestEndlessErrorResponseIsCutOff(t *testing.T) {
	c := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusForbidden)
		for {
			if _, err := io.WriteString(w, strings.Repeat("no ", 10_000)); err != nil {
				return
			}
		}
	}, client.Options{})
	for _, op := range operations() {
		// The context does not end these calls.
		if err := op.call(context.Background(), c); !errors.Is(err, plantstore.ErrScope) {
			t.Errorf("%s: %v, want ErrScope", op.name, err)
		}
	}
}

func TestResponseThatIsTooLargeIsNotRead(t *testing.T) {
	mebibyte := strings.Repeat(" ", 1<<20)
	c := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for range 65 {
			_, _ = io.WriteString(w, mebibyte)
		}
	}, client.Options{})
	if _, err := c.Page(t.Context(), plantstore.Query{}); err == nil || !strings.Contains(err.Error(), "larger than the limit of 64 MiB") {
		t.Errorf("got %v, want an error about the size", err)
	}
}

func TestUnexpectedResponseIsNotASuccess(t *testing.T) {
	for _, response := range []struct {
		status      int
		media, body string
	}{
		{200, "text/html", "<h1>Welcome to the hotel</h1>"},
		{200, "text/html", `{"name":"Oak"}`},
		{200, "text/html", ""},
		{200, "application/json", ""},
		{200, "application/json", "null"},
		{200, "application/json", "{}"},
		{200, "application/json", "[1]"},
		{200, "application/json", `{"name":"Oak"`},
		{200, "application/json", `{"name":"Oak"} x`},
		{200, "application/json", `{"name":1,"created":"1"}`},
		{200, "application/json", `{"name":"Oak","name":"Elm"}`},
		{200, "application/json", `{"created":1,"unchanged":0,"failed":0}`},
		{200, "application/json", `{"created":1,"unchanged":0,"errors":[]}`},
		{200, "application/json", `{"created":1,"unchanged":0,"failed":1,"errors":[{"line":1}]}`},
		{200, "application/x-ndjson", "<h1>Welcome</h1>"},
		{200, "application/x-ndjson", `{"id":1}` + "\n"},
		{200, "application/x-ndjson", `{"name":"Oak"}` + "\n"},
		{200, "application/x-ndjson", `{"id":1.5,"name":"Oak"}` + "\n"},
		{200, "application/x-ndjson", `{"id":9223372036854775808,"name":"Oak"}` + "\n"},
		{201, "application/json", `{"name":"Oak"}`},
		{202, "application/x-ndjson", ""},
		{206, "application/x-ndjson", `{"id":1,"name":"Oak"}` + "\n"},
	} {
		c := newFake(t, page(response.status, response.media, response.body), client.Options{Retries: -1})
		for _, op := range operations() {
			if op.name == "export lines" && response.media == "application/x-ndjson" {
				continue // the lines are passed on as they are
			}
			if err := op.call(t.Context(), c); err == nil || errors.Is(err, errWrong) {
				t.Errorf("%s treats %v as a success: %v", op.name, response, err)
			}
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var reached atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		handler := func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, status)
		}
		for _, given := range []*http.Client{nil, {Transport: &http.Transport{DisableKeepAlives: true}}} {
			c := newFake(t, handler, client.Options{HTTP: given})
			for _, op := range operations() {
				err := op.call(t.Context(), c)
				if err == nil || !strings.Contains(err.Error(), "redirect") || !strings.Contains(err.Error(), elsewhere.URL) {
					t.Errorf("%s: %d: %v does not mention the redirect", op.name, status, err)
				}
			}
			if given != nil && given.CheckRedirect != nil {
				t.Error("the caller's HTTP client was changed")
			}
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

// Only the id of the link with rel="next" is used, and not its host.
func TestNextPageComesFromTheLink(t *testing.T) {
	id := func(n plantstore.ID) *plantstore.ID { return &n }
	for _, test := range []struct {
		link []string
		want *plantstore.ID
		fail bool
	}{
		{link: nil},
		{link: []string{`<http://elsewhere.test/plants?limit=1&after=9223372036854775807>; rel="next"`}, want: id(1<<63 - 1)},
		{link: []string{`</plants?after=-9223372036854775808>;rel=next`}, want: id(-1 << 63)},
		{link: []string{`<?after=9007199254740993&tag=a,b;c%3E> ; title="x" ; REL="prefetch NEXT"`}, want: id(1<<53 + 1)},
		{link: []string{`</a>; rel="prev", <?after=5>; rel="next"`}, want: id(5)},
		{link: []string{`</a>; rel="prev"`, `<?after=5>; rel="next"`}, want: id(5)},
		{link: []string{`<?after=5>; rel="nextish"`}},
		{link: []string{`<?after=5>; title="next"`}},
		{link: []string{`<?after=5`}},
		{link: []string{`<?limit=5>; rel="next"`}, fail: true},
		{link: []string{`<?after=x>; rel="next"`}, fail: true},
		{link: []string{`<?after=9223372036854775808>; rel="next"`}, fail: true},
		{link: []string{"<%zz?after=5>; rel=\"next\""}, fail: true},
	} {
		c := newFake(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Link"] = test.link
			page(200, "application/json", "[]")(w, r)
		}, client.Options{})
		got, err := c.Page(t.Context(), plantstore.Query{})
		if (err != nil) != test.fail || (got.Next == nil) != (test.want == nil) || got.Next != nil && *got.Next != *test.want {
			t.Errorf("link %q: %+v, %v", test.link, got, err)
		}
	}
}

const twoLines = `{"id":1,"name":"Oak"}` + "\n" + `{"id":2,"name":"Elm"}` + "\n"

func TestAbortedExportEndsInAnError(t *testing.T) {
	chunked := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		whole   int
	}{
		"after a line":     {chunked(twoLines), 2},
		"within a line":    {chunked(twoLines[:30]), 1},
		"within a length":  {raw("Content-Length: 100\r\n\r\n" + twoLines), 2},
		"without a length": {raw("Connection: close\r\n\r\n" + twoLines), 0},
		"no last LF":       {page(200, "application/x-ndjson", twoLines[:len(twoLines)-1]), 2},
		"half a line":      {page(200, "application/x-ndjson", twoLines[:30]), 1},
		"within a chunk":   {raw("Transfer-Encoding: chunked\r\n\r\n100\r\n" + twoLines), 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFake(t, test.handler, client.Options{Retries: -1})
			plants, err := collect(c.Export(t.Context(), plantstore.Query{}))
			want := "export plants: the response was cut off: "
			if test.whole == 0 {
				want = "export plants: cannot tell whether the response is complete: "
			}
			if err == nil || !strings.HasPrefix(err.Error(), want) || len(plants) != test.whole {
				t.Errorf("export: %d plants, then %v", len(plants), err)
			}
			lines, err := c.ExportLines(t.Context(), plantstore.Query{})
			if err != nil {
				return
			}
			defer lines.Close()
			if text, err := io.ReadAll(lines); err == nil || !strings.HasPrefix(err.Error(), "export plants: ") {
				t.Errorf("export lines: %q, then %v", text, err)
			}
			if n, err := lines.Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
				t.Errorf("export lines, later: %d bytes, then %v", n, err)
			}
		})
	}
}

// raw sends a header and a body as they are, and closes the connection.
func raw(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		must(err)
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n"+text)
	}
}

// The server below would write for ever.
func TestAbandonedExportEnds(t *testing.T) {
	c := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for {
			if _, err := io.WriteString(w, twoLines); err != nil {
				return
			}
		}
	}, client.Options{})
	ctx := context.Background() // which does not end the exports
	for _, err := range c.Export(ctx, plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	lines, err := c.ExportLines(ctx, plantstore.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if err := lines.Close(); err != nil {
		t.Error(err)
	}
}

func TestCancelledExportEndsInAnError(t *testing.T) {
	c := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, twoLines)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, client.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	plants := 0
	var last error
	for _, err := range c.Export(ctx, plantstore.Query{}) {
		if last = err; err != nil {
			break
		}
		if plants++; plants == 2 {
			cancel()
		}
	}
	if plants != 2 || !errors.Is(last, context.Canceled) {
		t.Errorf("%d plants, then %v, want 2, then context.Canceled", plants, last)
	}
}

func TestCallsSurviveAConnectionReset(t *testing.T) {
	s := start(t)
	target := strings.TrimSuffix(strings.TrimPrefix(s.URL, "http://"), "/v1")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	var resets atomic.Int64
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { relay(near, target, resets.Add(-1) >= 0) })
		}
	})
	defer relays.Wait()
	defer listener.Close()
	for _, op := range operations() {
		s.Clear(t)
		s.Fill(t, op.before...)
		c := newClient(t, "http://"+listener.Addr().String()+"/v1", s.Token, client.Options{})
		resets.Store(1)
		err := op.call(t.Context(), c)
		if op.name == "import" && err != nil && strings.Contains(err.Error(), "importing the same lines again is safe") {
			err = nil
		}
		if err != nil {
			t.Errorf("%s: %v", op.name, err)
		}
		if got := s.Plants(t); !slices.Equal(got, op.after) {
			t.Errorf("%s: the store has %#v, want %#v", op.name, got, op.after)
		}
		c.CloseIdleConnections()
	}
}

// relay copies between near and the target until one of them ends. If it is to reset
// the connection, it does so after ten bytes of the response.
func relay(near net.Conn, target string, reset bool) {
	defer near.Close()
	far, err := net.Dial("tcp", target)
	must(err)
	defer far.Close()
	var request sync.WaitGroup
	defer request.Wait()
	request.Go(func() {
		_, _ = io.Copy(far, near)
		_ = far.(*net.TCPConn).CloseWrite()
	})
	if !reset {
		_, _ = io.Copy(near, far)
		near.Close()
		return
	}
	_, _ = io.CopyN(near, far, 10)
	_ = near.(*net.TCPConn).SetLinger(0)
	near.Close()
}

func TestFailedHandshakeIsNotRetried(t *testing.T) {
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(nil)
	defer plain.Close()
	for name, test := range map[string]struct{ url, want string }{
		"unknown certificate": {secure.URL, "certificate"},
		"no TLS":              {strings.Replace(plain.URL, "http:", "https:", 1), "HTTP response to HTTPS client"},
	} {
		err := newClient(t, test.url, secret, client.Options{}).Create(t.Context(), oak)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "attempts failed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCallsWorkOverHTTP2(t *testing.T) {
	s := servertest.Start(t, servertest.Options{Certificates: servertest.Certificate()})
	over := &http.Transport{TLSClientConfig: servertest.Trust(), ForceAttemptHTTP2: true}
	defer over.CloseIdleConnections()
	var versions sync.Map
	given := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := over.RoundTrip(r)
		if err == nil {
			versions.Store(resp.Proto, true)
		}
		return resp, err
	})}
	c := newClient(t, s.URL, s.Token, client.Options{HTTP: given})
	for _, op := range operations() {
		s.Clear(t)
		s.Fill(t, op.before...)
		if err := op.call(t.Context(), c); err != nil {
			t.Errorf("%s: %v", op.name, err)
		}
		if got := s.Plants(t); !slices.Equal(got, op.after) {
			t.Errorf("%s: the store has %#v, want %#v", op.name, got, op.after)
		}
	}
	for version := range versions.Range {
		if version != "HTTP/2.0" {
			t.Errorf("a response came over %s", version)
		}
	}
}

func TestTokenIsInNoError(t *testing.T) {
	echo := func(status int, media, format string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			w.Header().Set("Content-Type", strings.ReplaceAll(media, "%", token))
			if status/100 == 3 {
				w.Header().Set("Location", "http://elsewhere.test/"+token)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.ReplaceAll(format, "%", token))
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"error":      echo(400, "application/json", `{"error":40006,"message":"what is %?"}`),
		"media":      echo(400, "text/html; token=%", ""),
		"redirect":   echo(307, "text/html", ""),
		"line":       echo(200, "application/x-ndjson", `{"id":1,"name":"%","name":"%"}`),
		"later":      echo(503, "application/json", `{"error":50301,"message":"what is %?"}`),
		"status":     malformed("HTTP/1.1 400 you sent %\r\nContent-Length: 0\r\n\r\n"),
		"no HTTP":    malformed("you sent %\r\n\r\n"),
		"bad header": malformed("HTTP/1.1 200 OK\r\nyou sent %\r\n\r\n"),
		"bad link": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", `<?after=`+secret+`>; rel="next"`)
			page(200, "application/json", "[]")(w, r)
		},
	} {
		withFake(t, handler, client.Options{Retries: 1}, func(t *testing.T, c *client.Client) {
			for _, op := range operations() {
				err := op.call(t.Context(), c)
				if err == nil || strings.Contains(fmt.Sprintf("%v %+v %s %q", err, err, err, err), secret) {
					t.Errorf("%s: %s: %v", name, op.name, err)
				}
			}
		})
	}

	report := `{"created":0,"unchanged":0,"failed":1,"errors":[{"line":1,"error":40001,"message":"` + secret + `"}]}`
	c := newFake(t, page(200, "application/json", report), client.Options{})
	got, err := c.ImportLines(t.Context(), strings.NewReader("{}\n"))
	if err != nil || len(got.Errors) != 1 || strings.Contains(got.Errors[0].Err.Message, secret) {
		t.Errorf("import: %+v, %v", got, err)
	}
}

// malformed sends a text in which % stands for the token.
func malformed(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		must(err)
		defer conn.Close()
		_, _ = io.WriteString(conn, strings.ReplaceAll(text, "%", secret))
	}
}

func TestConnectionsAreReused(t *testing.T) {
	s := start(t)
	s.Fill(t, oak)
	var dials atomic.Int64
	c := s.Client(client.Options{})
	c.DialWith(func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	})
	ctx := t.Context()
	for range 10 {
		_ = c.Create(ctx, oak)
		_ = c.Create(ctx, elm) // taken
		_, _ = c.Get(ctx, 2)   // none
		_, _ = c.Page(ctx, plantstore.Query{})
		_ = c.Replace(ctx, plantstore.Plant{ID: 3}, nil)
		_ = c.Delete(ctx, 3, nil)
		_ = c.Delete(ctx, 3, nil) // none
	}
	// net/http may give up a connection when the machine stalls. A call of which no
	// connection is used again takes ten.
	const few = 5
	if n := dials.Swap(0); n == 0 || n > few {
		t.Errorf("70 calls took %d connections, want 1", n)
	}
	for range 10 {
		if _, err := collect(c.Export(ctx, plantstore.Query{})); err != nil {
			t.Fatal(err)
		}
	}
	if n := dials.Swap(0); n == 0 || n > few {
		t.Errorf("10 exports took %d connections, want 1", n)
	}
	for range 10 {
		if _, err := c.ImportLines(ctx, strings.NewReader(`{"id":1,"name":"Oak"}`)); err != nil {
			t.Fatal(err)
		}
	}
	// The server closes a connection after a chunked body.
	if n := dials.Load(); n > 10 {
		t.Errorf("10 imports took %d connections", n)
	}
}

func TestManyIdleConnectionsAreKept(t *testing.T) {
	const calls = 200
	var dials atomic.Int64
	var arrived sync.WaitGroup
	c := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		arrived.Done()
		arrived.Wait()
		page(200, "application/json", `{"name":"Oak"}`)(w, r)
	}, client.Options{})
	c.DialWith(func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	})
	for range 3 {
		arrived.Add(calls)
		var group sync.WaitGroup
		for range calls {
			group.Go(func() {
				if _, err := c.Get(t.Context(), 1); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
	// net/http may give up some when the machine stalls.
	if n := dials.Load(); n < calls || n > calls+calls/4 {
		t.Errorf("%d connections for %d concurrent calls", n, calls)
	}
}
