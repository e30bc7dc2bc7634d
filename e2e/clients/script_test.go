package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// step is what the scripted server does with one request.
type step struct {
	Status int
	Header map[string]string
	Body   string
	// Framing is how the end of the body is marked: by its length unless it is
	// "chunked", or "close" for the end of the connection.
	Framing string
	// Cut, if set, closes the connection after so many bytes of the response.
	Cut *int
	// CutRequest, if set, closes it after so many bytes of the request.
	CutRequest *int
	// Early responds before the body of the request has been read.
	Early bool
}

// seen is a request as the scripted server read it.
type seen struct {
	method, uri string
	header      http.Header
	body        string
}

// script is a server that does what a scenario says, one step for each connection.
type script struct {
	steps  []step
	events []json.RawMessage // if set, GET /events sends those after the position
	cut    *int              // of the first response with events

	ctx      context.Context
	handlers sync.WaitGroup

	mu       sync.Mutex // guards the following
	attempts int
	requests []seen
}

// reserve returns a URL that nobody listens at until stop is called.
func reserve() (url string, stop func(), err error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	stop = func() { syscall.Close(socket) }
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		stop()
		return "", nil, err
	}
	bound, err := syscall.Getsockname(socket)
	if err != nil {
		stop()
		return "", nil, err
	}
	return fmt.Sprintf("http://127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port), stop, nil
}

// serve runs the server until stop is called.
func (s *script) serve() (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.ctx = ctx
	s.handlers.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.handlers.Go(func() { s.handle(conn) })
		}
	})
	stop = func() {
		cancel()
		listener.Close()
		s.handlers.Wait()
	}
	return "http://" + listener.Addr().String(), stop, nil
}

// next returns the step for a new connection. A connection without a request is not an
// attempt, unless it is to be closed before that.
func (s *script) next(in *bufio.Reader) (next step, first, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempts >= len(s.steps) || s.steps[s.attempts].CutRequest == nil {
		s.mu.Unlock()
		_, err := in.Peek(1)
		s.mu.Lock()
		if err != nil {
			return next, false, false
		}
	}
	s.attempts++
	if s.events == nil && s.attempts <= len(s.steps) {
		next = s.steps[s.attempts-1]
	}
	return next, s.attempts == 1, true
}

func (s *script) handle(conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(s.ctx, func() { conn.Close() })
	defer stop()
	limited := &io.LimitedReader{R: conn, N: 1 << 40}
	in := bufio.NewReader(limited)
	do, first, ok := s.next(in)
	if !ok {
		return
	}
	if do.CutRequest != nil {
		limited.N = int64(*do.CutRequest)
	}
	req, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	if req.Header.Get("Expect") == "100-continue" && !do.Early {
		// Proxies send further interim responses, and send this one twice where the server
		// behind them is slow.
		fmt.Fprint(conn, "HTTP/1.1 103 Early Hints\r\n\r\n", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 2))
	}
	var body []byte
	if !do.Early {
		body, err = io.ReadAll(req.Body)
	}
	if err != nil || do.CutRequest != nil {
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, seen{req.Method, req.RequestURI, req.Header, string(body)})
	s.mu.Unlock()
	switch {
	case s.events != nil:
		s.sendEvents(conn, req, first)
	case do.Status != 0:
		conn.Write(cutTo(do.render(), do.Cut))
	}
	if do.Early {
		<-s.ctx.Done() // closing a connection with unread bytes would reset it
	}
}

func cutTo(response []byte, cut *int) []byte {
	if cut == nil {
		return response
	}
	return response[:min(*cut, len(response))]
}

// relative is a date that depends on when a response is sent, such as {date+3600}.
var relative = regexp.MustCompile(`\{date([+-]\d+)\}`)

func fillDate(text string) string {
	return relative.ReplaceAllStringFunc(text, func(found string) string {
		seconds, _ := strconv.Atoi(relative.FindStringSubmatch(found)[1])
		return time.Now().Add(time.Duration(seconds) * time.Second).UTC().Format(http.TimeFormat)
	})
}

func (do *step) render() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", do.Status, http.StatusText(do.Status))
	if do.Framing != "chunked" {
		b.WriteString("Connection: close\r\n")
	}
	for _, name := range slices.Sorted(maps.Keys(do.Header)) {
		fmt.Fprintf(&b, "%s: %s\r\n", name, fillDate(do.Header[name]))
	}
	if _, ok := do.Header["Content-Type"]; !ok && do.Body != "" {
		b.WriteString("Content-Type: application/json\r\n")
	}
	switch {
	case do.Framing == "chunked":
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		for chunk := range strings.SplitAfterSeq(do.Body, "\n") {
			if chunk != "" {
				fmt.Fprintf(&b, "%x\r\n%s\r\n", len(chunk), chunk)
			}
		}
		b.WriteString("0\r\n\r\n")
	case do.Framing == "close":
		b.WriteString("\r\n" + do.Body)
	case do.Status == http.StatusNoContent:
		b.WriteString("\r\n")
	default:
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(do.Body), do.Body)
	}
	return b.Bytes()
}

// renderEvents returns a live stream of the events after a position.
func (s *script) renderEvents(after string) []byte {
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n: comment\n\n")
	past := after == ""
	for _, data := range s.events {
		var event struct{ Cursor string }
		if err := json.Unmarshal(data, &event); err != nil {
			panic(err)
		}
		if past {
			fmt.Fprintf(&b, "id: %s\ndata: %s\n\n", event.Cursor, data)
		}
		past = past || event.Cursor == after
	}
	return b.Bytes()
}

// sendEvents sends a live stream, which ends when the client disconnects.
func (s *script) sendEvents(conn net.Conn, req *http.Request, first bool) {
	response := s.renderEvents(req.URL.Query().Get("after"))
	if first && s.cut != nil {
		conn.Write(cutTo(response, s.cut))
		return
	}
	conn.Write(response)
	io.Copy(io.Discard, conn)
}

// checkRequests compares what the server has seen with what it should have.
func (s *script) checkRequests(want []wantRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) != len(want) {
		return fmt.Errorf("the server saw %d requests, want %d", len(s.requests), len(want))
	}
	for i, w := range want {
		if err := w.check(s.requests[i]); err != nil {
			return fmt.Errorf("request %d: %w", i+1, err)
		}
	}
	return nil
}

// wantRequest says what a request must be. What is empty does not matter; a header
// that is empty must be absent.
type wantRequest struct {
	Method, Path string
	Header       map[string]string
	Body         *string
}

func (w *wantRequest) check(got seen) error {
	if w.Method != "" && (w.Method != got.method || !sameTarget(w.Path, got.uri)) {
		return fmt.Errorf("got %s %s, want %s %s", got.method, got.uri, w.Method, w.Path)
	}
	if auth := got.header.Get("Authorization"); auth != "Bearer "+token {
		return fmt.Errorf("got the Authorization %q", auth)
	}
	for name, value := range w.Header {
		if got.header.Get(name) != value {
			return fmt.Errorf("got the %s %q, want %q", name, got.header.Get(name), value)
		}
	}
	if w.Body != nil && *w.Body != got.body {
		return fmt.Errorf("got the body %s, want %s", short(got.body), short(*w.Body))
	}
	return nil
}

// sameTarget compares URLs, whatever the order of their parameters.
func sameTarget(a, b string) bool {
	left, errLeft := url.Parse(a)
	right, errRight := url.Parse(b)
	return errLeft == nil && errRight == nil && left.EscapedPath() == right.EscapedPath() &&
		left.Query().Encode() == right.Query().Encode()
}

func short(text string) string {
	if len(text) > 300 {
		return text[:300] + "…"
	}
	return text
}
