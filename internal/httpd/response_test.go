package httpd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// result is everything that the client, the handler and the log see of a response.
type result struct {
	Err      string // there is no response
	Proto    string
	Status   string
	Header   http.Header
	Close    bool // the header says so
	Encoding []string
	Length   int64
	Body     string
	BodyErr  string
	Reusable bool        // the connection
	Next     http.Header // of the response to the next request
	Returned string      // by the handler
	Logged   string      // the kind of the log line about the connection
}

// exchangeCase is a handler, and a request to it.
type exchangeCase struct {
	handle  func(w http.ResponseWriter, r *http.Request) error
	request string
	// sized says that the body has a Content-Length on the fast path, and is chunked
	// by net/http.
	sized bool
	// differs says how else the response differs from that of net/http. The test
	// fails if it does not.
	differs string
}

var page = "<!DOCTYPE html><p>" + strings.Repeat("0123456789abcdef", 64<<10)

func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

func set(w http.ResponseWriter, header ...string) {
	for i := 0; i < len(header); i += 2 {
		w.Header().Add(header[i], header[i+1])
	}
}

// status returns a handler that responds without a body.
func status(code int, header ...string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, _ *http.Request) error {
		set(w, header...)
		w.WriteHeader(code)
		return nil
	}
}

// parts returns a handler that writes a body in parts.
func parts(of []string, header ...string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, _ *http.Request) error {
		set(w, append([]string{"Content-Type", "text/plain"}, header...)...)
		var err error
		for _, part := range of {
			err = errors.Join(err, write(w, part))
		}
		return err
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
	"nothing to a POST":          {handle: parts(nil), request: post("Content-Length: 2\r\n", "{}")},
	"200":                        {handle: status(200)},
	"204":                        {handle: status(204)},
	"204 with a type and length": {handle: status(204, "Content-Type", "text/plain", "Content-Length", "5")},
	"304": {handle: status(304, "Content-Type", "text/plain", "Content-Length", "5",
		"Etag", `"1"`)},
	"404":                     {handle: status(404)},
	"404 with a type":         {handle: status(404, "Content-Type", "text/plain")},
	"500":                     {handle: status(500)},
	"status without a name":   {handle: status(599), differs: "it has no reason phrase"},
	"status that is invalid":  {handle: status(0)},
	"status that is too high": {handle: status(1000)},
	"body":                    {handle: parts(one("a plant"))},
	"body in parts":           {handle: parts([]string{"a ", "", "plant"})},
	"encoded":                 {handle: parts(one("a plant"), "Content-Encoding", "gzip")},
	"no type": {
		handle:  func(w http.ResponseWriter, _ *http.Request) error { return write(w, "a plant") },
		differs: "the type is not detected",
	},
	"2 KiB":                     {handle: parts(one(page[:2<<10]))},
	"2 KiB + 1":                 {handle: parts(one(page[:2<<10+1])), sized: true},
	"4 KiB":                     {handle: parts(one(page[:bufferSize])), sized: true},
	"4 KiB + 1":                 {handle: parts(one(page[:bufferSize+1])), sized: true},
	"1 MiB":                     {handle: parts(one(page)), sized: true},
	"1 MiB in parts":            {handle: parts(split(page, 1000)), sized: true},
	"Content-Length":            {handle: parts(one("a plant"), "Content-Length", "7")},
	"Content-Length in parts":   {handle: parts([]string{"a ", "plant"}, "Content-Length", "7")},
	"Content-Length of 0":       {handle: parts(nil, "Content-Length", "0")},
	"Content-Length of 1 MiB":   {handle: parts(split(page, 1000), "Content-Length", strconv.Itoa(len(page)))},
	"Content-Length of all":     {handle: parts(one(page), "Content-Length", strconv.Itoa(len(page)))},
	"Content-Length of a part":  {handle: parts([]string{page, "more"}, "Content-Length", strconv.Itoa(len(page)))},
	"Content-Length too small":  {handle: parts(one("a plant"), "Content-Length", "6"), differs: "nothing is sent"},
	"Content-Length too large":  {handle: parts(one("a plant"), "Content-Length", "8"), differs: "nothing is sent"},
	"Content-Length and empty":  {handle: parts(nil, "Content-Length", "8"), differs: "nothing is sent"},
	"Content-Length of letters": {handle: parts(one("a plant"), "Content-Length", "seven"), differs: "nothing is sent"},
	"line break in a value":     {handle: parts(nil, "X-Evil", "a\r\nX-Worse: b\nX-Worst: c\r\n\r\nd")},
	"line break in the type":    {handle: status(200, "Content-Type", "text/plain\r\n\r\nb")},
	"line break in a name":      {handle: parts(one("a plant"), "X-Evil: a\r\nX-Worse", "b")},
	"header changed after the status": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		set(w, "Content-Type", "text/plain", "X-Before", "1")
		w.WriteHeader(201)
		set(w, "X-Before", "2", "X-After", "1", "Content-Length", "1", "Connection", "close")
		return write(w, "a plant")
	}},
	"header changed after a write": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		set(w, "Content-Type", "text/plain")
		err := write(w, "a ")
		set(w, "X-After", "1")
		w.WriteHeader(404)
		return errors.Join(err, write(w, "plant"))
	}},
	"two statuses": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		set(w, "Content-Type", "text/plain")
		w.WriteHeader(404)
		w.WriteHeader(500)
		return write(w, "a plant")
	}},
	"body of 204": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(204)
		return errors.Join(write(w, ""), write(w, "a plant"))
	}},
	"body of 304": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(304)
		return errors.Join(write(w, ""), write(w, "a plant"))
	}},
	"close":                 {handle: parts(one("a plant"), "Connection", "close")},
	"close without a body":  {handle: status(204, "Connection", "close")},
	"close a long one":      {handle: parts(one(page), "Connection", "close"), sized: true},
	"keep-alive":            {handle: parts(one("a plant"), "Connection", "keep-alive")},
	"date":                  {handle: parts(nil, "Date", "Sun, 06 Nov 1994 08:49:37 GMT")},
	"no date":               {handle: func(w http.ResponseWriter, _ *http.Request) error { w.Header()["Date"] = nil; return nil }},
	"fields of many values": {handle: parts(nil, "Vary", "Accept", "Vary", "Origin", "X-Empty", "")},
	"chunked":               {handle: parts(one("a plant"), "Transfer-Encoding", "chunked"), sized: true},
	"abort":                 {handle: func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) }},
	"abort after a write": {handle: func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(500)
		write(w, "a plant")
		panic(http.ErrAbortHandler)
	}},
	"panic": {handle: func(http.ResponseWriter, *http.Request) error { panic("a bug") }},
	"flush": {
		handle: func(w http.ResponseWriter, _ *http.Request) error {
			return http.NewResponseController(w).Flush()
		},
		differs: "it is not supported",
	},
	"informational status": {
		handle: func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusEarlyHints)
			return nil
		},
		differs: "it panics",
	},
	"unread body": {handle: parts(one("a plant")), request: post("Content-Length: 7\r\n", "a plant")},
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
			set(w, "Content-Type", "text/plain")
			_, err := io.Copy(w, r.Body)
			return errors.Join(err, r.Body.Close())
		},
		request: post("Content-Length: 7\r\n", "a plant"),
	},
}

// logBuffer is a log that is written and read by different goroutines.
type logBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// run sends the request of the case and another one, to the fast path or to net/http.
func (x exchangeCase) run(t *testing.T, fast bool) result {
	t.Helper()
	var logged logBuffer
	returned := make(chan string, 1)
	web := &http.Server{ErrorLog: log.New(&logged, "", 0)}
	web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := w.(*response); ok != fast {
			t.Errorf("%s is served by the other one", r.URL)
		}
		if r.URL.Path == "/again" {
			return
		}
		defer close(returned)
		if err := x.handle(w, r); err != nil {
			returned <- err.Error()
		}
	})
	var s server = web
	if fast {
		s = New(web, always)
	}
	c := dialTCP(t, serveTCP(t, s))
	if x.request == "" {
		x.request = fastRequest
	}
	c.send(x.request)
	got := c.read()
	got.Returned = <-returned
	c.send("GET /again HTTP/1.1\r\nHost: localhost\r\n\r\n")
	next := c.read()
	got.Reusable, got.Next = next.Err == "", next.Header
	for _, kind := range []string{"panic serving ", "response not sent to "} {
		if strings.Contains(logged.String(), kind+c.LocalAddr().String()) {
			got.Logged = kind
		}
	}
	return got
}

// read reads a response.
func (c *client) read() result {
	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return result{Err: err.Error()}
	}
	got := result{
		Proto: r.Proto, Status: r.Status, Header: r.Header, Close: r.Close, Encoding: r.TransferEncoding,
		Length: r.ContentLength,
	}
	body, err := io.ReadAll(r.Body)
	if got.Body = string(body); err != nil {
		got.BodyErr = err.Error()
	}
	if dates := r.Header["Date"]; len(dates) == 1 {
		date, err := http.ParseTime(dates[0])
		if err != nil {
			c.t.Errorf("Date: %v", err)
		}
		if time.Since(date).Abs() < time.Minute {
			dates[0] = "now"
		}
	}
	return got
}

func TestResponsesAreThoseOfNetHTTP(t *testing.T) {
	for name, x := range exchanges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, want := x.run(t, true), x.run(t, false)
			if x.sized {
				if got.Length != int64(len(got.Body)) || want.Length != -1 {
					t.Errorf("the length is %d, that of net/http %d", got.Length, want.Length)
				}
				got.Header.Del("Content-Length")
				got.Length, got.Encoding = want.Length, want.Encoding
			}
			switch same := reflect.DeepEqual(got, want); {
			case x.differs != "" && same:
				t.Errorf("it should differ: %s", x.differs)
			case x.differs == "" && !same:
				t.Errorf("got\n%.1000s\nwith net/http\n%.1000s", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
			}
		})
	}
}

// Part of a response with the wrong length would be taken for the next response.
func TestResponseOfTheWrongLengthIsNotSent(t *testing.T) {
	for _, length := range []string{"6", "8", "seven"} {
		got := exchangeCase{handle: parts(one("a plant"), "Content-Length", length)}.run(t, true)
		if got.Err == "" || got.Reusable || got.Logged != "response not sent to " {
			t.Errorf("%s: got %+v", length, got)
		}
	}
}
