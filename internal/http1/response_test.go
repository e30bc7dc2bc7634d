package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// answer is all that a caller, the handler and the log learn of an answer.
type answer struct {
	Err       string // there is none
	Proto     string
	Status    string
	Header    http.Header
	Close     bool // the header says so
	Encoding  []string
	Length    int64
	Body      string
	BodyErr   string
	StaysOpen bool
	Next      http.Header // of the answer that follows
	Told      string      // what the handler got to know
	Logged    bool
}

// exchangeCase is a handler, and a request to it.
type exchangeCase struct {
	// handle may return an error that it got.
	handle  func(w http.ResponseWriter, r *http.Request) error
	request string
	// given says that the body has a length here, and comes in chunks from net/http.
	given bool
	// differs says how the answer differs from net/http's in another way. If it does
	// not any more, the test fails, too.
	differs string
}

const askPlain = "GET /plants HTTP/1.1\r\nHost: localhost\r\n\r\n"

var page = "<!DOCTYPE html><p>" + strings.Repeat("0123456789abcdef", 20<<10)

func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

func flush(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() }

// status returns a handler that answers with a status only.
func status(code int, header ...string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, _ *http.Request) error {
		set(w, header...)
		w.WriteHeader(code)
		return nil
	}
}

func set(w http.ResponseWriter, header ...string) {
	for i := 0; i < len(header); i += 2 {
		w.Header().Add(header[i], header[i+1])
	}
}

// parts returns a handler that writes the parts of a body.
func parts(of []string, header ...string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, _ *http.Request) error {
		set(w, header...)
		for _, part := range of {
			if err := write(w, part); err != nil {
				return err
			}
		}
		return nil
	}
}

func one(part string) []string { return []string{part} }

func split(text string, size int) (parts []string) {
	for len(text) > size {
		parts, text = append(parts, text[:size]), text[size:]
	}
	return append(parts, text)
}

var exchanges = map[string]exchangeCase{
	"nothing":                    {handle: parts(nil)},
	"nothing to a post":          {handle: parts(nil), request: post("Content-Length: 2\r\n", "{}")},
	"200":                        {handle: status(200)},
	"204":                        {handle: status(204)},
	"204 with a type and length": {handle: status(204, "Content-Type", "text/plain", "Content-Length", "5")},
	"304": {handle: status(304, "Content-Type", "text/plain", "Content-Length", "5",
		"Etag", `"1"`)},
	"404":                   {handle: status(404)},
	"404 with a type":       {handle: status(404, "Content-Type", "text/plain")},
	"500":                   {handle: status(500)},
	"status without a name": {handle: status(599), differs: "it has no reason phrase"},
	"text":                  {handle: parts(one("a plant"))},
	"bytes":                 {handle: parts(one("\x00\x01\x02"))},
	"typed":                 {handle: parts(one("{}"), "Content-Type", "application/json")},
	"type taken away": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		w.Header()["Content-Type"] = nil
		return write(w, "a plant")
	}},
	"encoded":          {handle: parts(one("a plant"), "Content-Encoding", "gzip")},
	"2 KiB":            {handle: parts(one(page[:2<<10]))},
	"2 KiB + 1":        {handle: parts(one(page[:2<<10+1])), given: true},
	"32 KiB":           {handle: parts(one(page[:keepWhole])), given: true},
	"32 KiB in parts":  {handle: parts(split(page[:keepWhole], 1000)), given: true},
	"32 KiB + 1":       {handle: parts(one(page[:keepWhole+1]))},
	"32 KiB, then 1":   {handle: parts([]string{page[:keepWhole], "!"})},
	"200 KiB":          {handle: parts(one(page[:200<<10]))},
	"200 KiB in parts": {handle: parts(split(page[:200<<10], 1000))},
	"200 KiB of own type": {handle: parts(split(page[:200<<10], 50_000), "Content-Type", "image/png",
		"X-More", "1")},
	"start that is too short to tell the type": {
		handle:  parts([]string{"<!DOCTYPE", page[len("<!DOCTYPE"):]}),
		differs: "the type is told by the first write alone",
	},
	"own length":            {handle: parts(one("a plant"), "Content-Length", "7")},
	"own length in parts":   {handle: parts([]string{"a ", "plant"}, "Content-Length", "7")},
	"own length of 0":       {handle: parts(nil, "Content-Length", "0")},
	"own length of 200 KiB": {handle: parts(split(page[:200<<10], 1000), "Content-Length", strconv.Itoa(200<<10))},
	"own length, flushed": {handle: func(w http.ResponseWriter, r *http.Request) error {
		set(w, "Content-Length", "7")
		return errors.Join(write(w, "a "), flush(w), write(w, "plant"))
	}},
	"own length too small": {handle: parts(one("a plant"), "Content-Length", "6")},
	"own length too small later": {
		handle:  parts([]string{"a plan", "t"}, "Content-Length", "6"),
		differs: "the connection stays open, since what was promised was sent",
	},
	"own length too large":          {handle: parts(one("a plant"), "Content-Length", "8")},
	"own length too large and long": {handle: parts(one(page), "Content-Length", strconv.Itoa(len(page)+1))},
	"own length and nothing":        {handle: parts(nil, "Content-Length", "8")},
	"own length that is none":       {handle: parts(one("a plant"), "Content-Length", "seven"), given: true},
	"flush in the middle": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		return errors.Join(write(w, "a "), flush(w), write(w, "plant"), flush(w), flush(w))
	}},
	"flush first": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		return errors.Join(flush(w), write(w, "a plant"))
	}},
	"flush only": {handle: func(w http.ResponseWriter, _ *http.Request) error { return flush(w) }},
	"flush of 204": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(204)
		return flush(w)
	}},
	"empty writes": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		return errors.Join(write(w, ""), flush(w), write(w, ""), write(w, "a plant"), write(w, ""))
	}},
	"empty write of 204": {
		handle: func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(204)
			return write(w, "")
		},
		differs: "a write of nothing fails",
	},
	"line break in a value":  {handle: parts(nil, "X-Evil", "a\r\nX-Worse: b\nX-Worst: c\r\n\r\nd")},
	"line break in the type": {handle: parts(one("a"), "Content-Type", "text/plain\r\n\r\nb")},
	"header changed after the status": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		set(w, "X-Before", "1")
		w.WriteHeader(201)
		set(w, "X-Before", "2", "X-After", "1", "Content-Length", "1", "Connection", "close")
		return write(w, "a plant")
	}},
	"header changed after a write": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		err := write(w, "a ")
		set(w, "X-After", "1")
		w.WriteHeader(404)
		return errors.Join(err, write(w, "plant"))
	}},
	"two statuses": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(404)
		w.WriteHeader(500)
		return write(w, "a plant")
	}},
	"body of 204": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(204)
		return write(w, "a plant")
	}},
	"body of 304": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(304)
		return write(w, "a plant")
	}},
	"close":                 {handle: parts(one("a plant"), "Connection", "close")},
	"close a long one":      {handle: parts(one(page), "Connection", "close")},
	"date":                  {handle: parts(nil, "Date", "Sun, 06 Nov 1994 08:49:37 GMT")},
	"no date":               {handle: func(w http.ResponseWriter, _ *http.Request) error { w.Header()["Date"] = nil; return nil }},
	"fields of many values": {handle: parts(nil, "Vary", "Accept", "Vary", "Origin", "X-Empty", "")},
	"abort":                 {handle: func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) }},
	"abort after a write": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(500)
		write(w, "a plant")
		panic(http.ErrAbortHandler)
	}},
	"abort after a flush": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		write(w, "a plant")
		flush(w)
		panic(http.ErrAbortHandler)
	}},
	"panic": {handle: func(http.ResponseWriter, *http.Request) error { panic("a bug") }},
	"panic after a flush": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		write(w, "a plant")
		flush(w)
		panic(errors.New("a bug"))
	}},
	"deadlines": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		c := http.NewResponseController(w)
		soon := time.Now().Add(time.Hour)
		return errors.Join(c.SetWriteDeadline(soon), c.SetReadDeadline(soon), write(w, page))
	}},
	"blank encoding": {
		handle:  parts(one("a plant"), "Content-Encoding", ""),
		differs: "the type is not told",
	},
	"line break in a name": {handle: parts(one("a plant"), "X-Evil: a\r\nX-Worse", "b")},
	"informational status": {
		handle: func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusEarlyHints)
			return write(w, "a plant")
		},
		differs: "it is not sent",
	},
	"status that is none": {handle: status(0), differs: "it does not panic"},
	"trailer": {
		handle: func(w http.ResponseWriter, _ *http.Request) error {
			set(w, "Trailer", "X-Sum")
			err := write(w, "a plant")
			set(w, "X-Sum", "7")
			return err
		},
		differs: "it is announced, and not sent",
	},
	"identity":         {handle: parts(one("a plant"), "Transfer-Encoding", "identity"), differs: "the connection stays open"},
	"connection field": {handle: parts(one("a plant"), "Connection", "keep-alive"), differs: "it is not sent"},
	"flusher": {
		handle: func(w http.ResponseWriter, _ *http.Request) error {
			w.(http.Flusher).Flush()
			return nil
		},
		differs: "there is none but that of the http.ResponseController",
	},
	"body over a limit": {
		handle: func(w http.ResponseWriter, r *http.Request) error {
			_, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1))
			return err
		},
		request: post("Content-Length: 7\r\n", "a plant"),
		differs: "the connection stays open",
	},
	"echo": {
		handle: func(w http.ResponseWriter, r *http.Request) error {
			_, err := io.Copy(w, r.Body)
			return errors.Join(err, r.Body.Close())
		},
		request: post("Content-Length: 7\r\n", "a plant"),
	},
}

// lines is a log that is written and read by different goroutines.
type lines struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// server is what this package and net/http have in common.
type server interface {
	Serve(net.Listener) error
	Close() error
}

// serve serves until the test ends, and returns where.
func serve(t testing.TB, s server) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

// ask has the case's request answered, by net/http alone or by this package.
func (x exchangeCase) ask(t *testing.T, alone bool) answer {
	t.Helper()
	var logged lines
	told := make(chan string, 1)
	web := &http.Server{ErrorLog: log.New(&logged, "", 0)}
	web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, isPlain := w.(*response); isPlain == alone {
			t.Errorf("%s is served by the other one", r.URL)
		}
		if r.URL.Path == "/again" {
			return
		}
		defer close(told)
		if err := x.handle(w, r); err != nil {
			told <- err.Error()
		}
	})
	var s server = web
	if !alone {
		s = New(web)
	}
	c := dial(t, serve(t, s))
	if x.request == "" {
		x.request = askPlain
	}
	c.send(x.request)
	a := c.read()
	a.Told = <-told
	c.send("GET /again HTTP/1.1\r\nHost: localhost\r\n\r\n")
	next := c.read()
	a.StaysOpen, a.Next = next.Err == "", next.Header
	a.Logged = strings.Contains(logged.String(), "panic serving "+c.LocalAddr().String())
	return a
}

// caller is the other end of a connection.
type caller struct {
	net.Conn
	in *bufio.Reader
	t  testing.TB
}

func dial(t testing.TB, addr string) *caller {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(10 * time.Second))
	t.Cleanup(func() { c.Close() })
	return &caller{c, bufio.NewReader(c), t}
}

// send sends a request, and leaves it to read to see that nobody took it.
func (c *caller) send(text string) { io.WriteString(c, text) }

// read reads an answer.
func (c *caller) read() answer { return c.readTo(http.MethodGet) }

func (c *caller) readTo(method string) answer {
	r, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		return answer{Err: fmt.Sprint(err)}
	}
	a := answer{
		Proto: r.Proto, Status: r.Status, Header: r.Header, Close: r.Close, Encoding: r.TransferEncoding,
		Length: r.ContentLength,
	}
	body, err := io.ReadAll(r.Body)
	if a.Body = string(body); err != nil {
		a.BodyErr = err.Error()
	}
	if said := r.Header["Date"]; len(said) == 1 {
		date, err := http.ParseTime(said[0])
		if err != nil {
			c.t.Errorf("date: %v", err)
		}
		if time.Since(date).Abs() < time.Minute {
			said[0] = "now"
		}
	}
	return a
}

func TestAnswersAreThoseOfNetHTTP(t *testing.T) {
	for name, x := range exchanges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, want := x.ask(t, false), x.ask(t, true)
			if x.given {
				if got.Length != int64(len(got.Body)) || want.Length != -1 {
					t.Errorf("the length is %d, that of net/http %d", got.Length, want.Length)
				}
				got.Header.Del("Content-Length")
				got.Length, got.Encoding = want.Length, want.Encoding
			}
			isSame := reflect.DeepEqual(got, want)
			if x.differs != "" {
				if isSame {
					t.Errorf("not so any more: %s", x.differs)
				}
				return
			}
			if !isSame {
				t.Errorf("the answer is\n%.1000s\nand that of net/http\n%.1000s", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
			}
		})
	}
}

// A caller who does not read keeps nobody for longer than the deadline.
func TestWriteDeadlineEndsAnAnswerThatNobodyReads(t *testing.T) {
	const soon = 100 * time.Millisecond
	long := strings.Repeat("a plant ", 4<<20)
	later := func(w http.ResponseWriter) error {
		return http.NewResponseController(w).SetWriteDeadline(time.Now().Add(soon))
	}
	for name, x := range map[string]struct {
		timeout time.Duration
		handle  func(w http.ResponseWriter) error
	}{
		"one write":     {0, func(w http.ResponseWriter) error { return errors.Join(later(w), write(w, long)) }},
		"after a flush": {0, func(w http.ResponseWriter) error { return errors.Join(flush(w), later(w), write(w, long)) }},
		"many writes":   {0, func(w http.ResponseWriter) error { return errors.Join(later(w), writeParts(w, long)) }},
		"own length": {0, func(w http.ResponseWriter) error {
			set(w, "Content-Length", strconv.Itoa(len(long)))
			return errors.Join(later(w), writeParts(w, long))
		}},
		"timeout of the server": {soon, func(w http.ResponseWriter) error { return write(w, long) }},
		"sooner than that":      {time.Hour, func(w http.ResponseWriter) error { return errors.Join(later(w), write(w, long)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			c := dial(t, serve(t, New(&http.Server{
				WriteTimeout: x.timeout,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					ended <- x.handle(w)
				}),
			})))
			c.send(askPlain)
			select {
			case err := <-ended:
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the answer ended with %v", err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the answer is still being written")
			}
			if a := c.read(); a.Err == "" && a.BodyErr == "" {
				t.Error("all of the answer came")
			}
		})
	}
}

func writeParts(w io.Writer, text string) error {
	for _, part := range split(text, 100_000) {
		if err := write(w, part); err != nil {
			return err
		}
	}
	return nil
}
