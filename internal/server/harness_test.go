package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/servertest"
	"plantstore/internal/testenv"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// service is a running server. Every exchange with it is validated against
// openapi.yaml.
type service struct {
	*servertest.Server
	validator *validator
	http      *http.Client
}

// start starts a service that stops when the test ends.
func start(t testing.TB, opts servertest.Options) *service {
	t.Helper()
	return newService(t, servertest.Start(t, opts))
}

// startDefault starts a service with the default options. If [testenv.TwoServers], it is two.
func startDefault(t testing.TB) *service {
	t.Helper()
	if testenv.TwoServers() {
		return newService(t, servertest.StartTwo(t))
	}
	return start(t, servertest.Options{})
}

func newService(t testing.TB, s *servertest.Server) *service {
	t.Helper()
	web := &http.Client{
		Transport:     &http.Transport{DisableCompression: true, TLSClientConfig: servertest.Trust()},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(web.CloseIdleConnections)
	return &service{s, newValidator(t, s.BaseURL), web}
}

// onEveryStore runs a test with a service on each kind of store. If [testenv.TwoServers],
// the service is two servers.
func onEveryStore(t *testing.T, test func(t *testing.T, s *service)) {
	t.Helper()
	if testenv.TwoServers() {
		t.Parallel()
		test(t, newService(t, servertest.StartTwo(t)))
		return
	}
	servertest.OnEveryStore(t, func(t *testing.T, s *servertest.Server) { test(t, newService(t, s)) })
}

// plant returns a plant, with a tag if one is given.
func plant(id plantstore.ID, name string, tag ...string) plantstore.Plant {
	p := plantstore.Plant{ID: id, Name: name}
	if len(tag) > 0 {
		p.Tag = plantstore.NewTag(tag[0])
	}
	return p
}

func fern(id plantstore.ID) plantstore.Plant { return plant(id, "Fern") }

// plantsPath returns the path of the collection.
func (s *service) plantsPath() string {
	return strings.TrimRight(s.BaseURL.EscapedPath(), "/") + "/plants"
}

// create sends a createPlant request. The header lines replace the default ones; a
// line that ends in a colon removes one.
func (s *service) create(t *testing.T, body string, header ...string) reply {
	t.Helper()
	return s.call(t, "POST", "", body, header...)
}

// call sends a request with the service's token to a path below the collection.
func (s *service) call(t *testing.T, method, path, body string, header ...string) reply {
	t.Helper()
	return s.send(t, method, s.plantsPath()+path, body, s.withDefaults(header)...)
}

func (s *service) withDefaults(header []string) []string {
	header = slices.Clone(header)
	for _, line := range []string{"Authorization: Bearer " + s.Token, "Content-Type: application/json"} {
		name, _, _ := strings.Cut(line, ":")
		given := func(h string) bool { return strings.HasPrefix(h, name+":") }
		if !slices.ContainsFunc(header, given) {
			header = append(header, line)
		}
	}
	return slices.DeleteFunc(header, func(h string) bool { return strings.HasSuffix(h, ":") })
}

// send sends a request with these header lines, and validates the exchange.
func (s *service) send(t *testing.T, method, path, body string, header ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.Origin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	for {
		response, err := s.http.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		received, err := io.ReadAll(response.Body)
		response.Body.Close()
		// An export breaks off if its connection to PostgreSQL does.
		if method == "GET" && testenv.Pooled() && errors.Is(err, io.ErrUnexpectedEOF) {
			continue
		}
		return s.received(t, r, []byte(body), response, received, err)
	}
}

// receive reads the rest of a response, and validates the exchange.
func (s *service) receive(t *testing.T, r *http.Request, sent []byte, response *http.Response) reply {
	t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return s.received(t, r, sent, response, body, err)
}

// received is receive for a response whose body was read, or could not be.
func (s *service) received(t *testing.T, r *http.Request, sent []byte, response *http.Response, body []byte, err error) reply {
	t.Helper()
	if err != nil {
		t.Fatalf("%s %s: read the response: %v", r.Method, r.URL, err)
	}
	got := reply{response.StatusCode, response.Header, body, response.Close}
	if err := s.validator.check(exchange{r, sent, got}); err != nil {
		t.Errorf("%s %s with %.200q: got %d %.200q: %v", r.Method, r.URL, sent, got.status, body, err)
	}
	if s.HasSecret(body) {
		t.Errorf("%s %s: the secret of a token is in the response %q", r.Method, r.URL, body)
	}
	return got
}

// connection sends requests byte for byte as the test writes them, one after the other.
type connection struct {
	net.Conn
	service *service
	sent    bytes.Buffer // since the last response
	in      *bufio.Reader
}

func (s *service) dial(t *testing.T) *connection {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	// A server that never responds fails the test instead of hanging it.
	if err := conn.SetDeadline(time.Now().Add(testenv.Timeout)); err != nil {
		t.Fatal(err)
	}
	return &connection{Conn: conn, service: s, in: bufio.NewReader(conn)}
}

// dialCreate opens a connection and sends the header of a createPlant request.
func (s *service) dialCreate(t *testing.T, header ...string) *connection {
	t.Helper()
	c := s.dial(t)
	c.sendHeader(t, header...)
	return c
}

// sendHeader sends the header of a createPlant request.
func (c *connection) sendHeader(t *testing.T, header ...string) {
	t.Helper()
	lines := append([]string{"POST " + c.service.plantsPath() + " HTTP/1.1", "Host: " + c.service.Addr}, c.service.withDefaults(header)...)
	c.send(t, strings.Join(lines, "\r\n")+"\r\n\r\n")
}

// send sends the text. The server need not read it.
func (c *connection) send(t *testing.T, text string) {
	t.Helper()
	c.sent.WriteString(text)
	if _, err := io.WriteString(c, text); err != nil {
		t.Logf("send: %v", err)
	}
}

// closeWrite tells the server that nothing more will come.
func (c *connection) closeWrite(t *testing.T) {
	t.Helper()
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

// reply reads a response and validates the exchange with what was sent so far. An
// interim response such as 100 does not end the exchange.
func (c *connection) reply(t *testing.T) reply {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(c.sent.Bytes())))
	if err != nil {
		t.Fatalf("read what was sent: %v", err)
	}
	body, _ := io.ReadAll(r.Body) // it may be cut off
	response, err := http.ReadResponse(c.in, r)
	if err != nil {
		t.Fatalf("read the response: %v", err)
	}
	if response.StatusCode < 200 {
		return reply{status: response.StatusCode, header: response.Header}
	}
	c.sent.Reset()
	return c.service.receive(t, r, body, response)
}

// wantClosed fails unless the server closes the connection once the client does.
func (c *connection) wantClosed(t *testing.T) {
	t.Helper()
	_ = c.Conn.(*net.TCPConn).CloseWrite() // fails if the server was first
	if rest, err := io.ReadAll(c.in); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v after the response; want the end of the connection", rest, err)
	}
}

// reply is a response that has been read.
type reply struct {
	status int
	header http.Header
	body   []byte
	closes bool // says that the connection ends
}

// wantPlant fails unless the response is exactly this Plant.
func (r reply) wantPlant(t *testing.T, want plantstore.Plant) {
	t.Helper()
	members := map[string]any{"name": want.Name}
	if text, ok := want.Tag.Text(); ok {
		members["tag"] = text
	}
	if r.status != http.StatusOK || !equalJSON(r.body, members) {
		t.Fatalf("got %d %.300q, want 200 %.300s", r.status, r.body, fmt.Sprint(members))
	}
}

// wantPlants fails unless the response is an array of exactly these plants.
func (r reply) wantPlants(t *testing.T, want ...plantstore.Plant) {
	t.Helper()
	var rows []struct {
		ID   int64
		Name string
		Tag  *string
	}
	if err := json.Unmarshal(r.body, &rows); err != nil || r.status != http.StatusOK || rows == nil {
		t.Fatalf("got %d %.300q, want an array", r.status, r.body)
	}
	var got []plantstore.Plant
	for _, row := range rows {
		p := plant(plantstore.ID(row.ID), row.Name)
		if row.Tag != nil {
			p.Tag = plantstore.NewTag(*row.Tag)
		}
		got = append(got, p)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got %.300q, want %.300s", r.body, fmt.Sprint(want))
	}
}

// wantLines fails unless the response is an export of exactly these plants.
func (r reply) wantLines(t *testing.T, want ...plantstore.Plant) {
	t.Helper()
	text, whole := bytes.CutSuffix(r.body, []byte("\n"))
	if r.header.Get("Content-Type") != "application/x-ndjson" || !whole && len(text) > 0 {
		t.Fatalf("got %d %.300q, want whole lines", r.status, r.body)
	}
	r.body = slices.Concat([]byte("["), bytes.ReplaceAll(text, []byte("\n"), []byte(",")), []byte("]"))
	r.wantPlants(t, want...)
}

// importReport is the contract's ImportReport.
type importReport struct {
	Created, Unchanged, Failed int
	Errors                     []struct {
		Line    int
		Error   plantstore.Code
		Message string
	}
}

func (r reply) report(t *testing.T) importReport {
	t.Helper()
	var got importReport
	if err := json.Unmarshal(r.body, &got); err != nil || r.status != http.StatusOK || got.Errors == nil {
		t.Fatalf("got %d %.300q, want a report: %v", r.status, r.body, err)
	}
	return got
}

// wantReport fails unless the response is a report with these counts, and with errors
// such as "4:40010": the line and the code.
func (r reply) wantReport(t *testing.T, created, unchanged, failed int, want ...string) {
	t.Helper()
	got := r.report(t)
	if testenv.Pooled() { // a batch whose outcome was unknown finds its own plants
		created, unchanged = created+unchanged, 0
		got.Created, got.Unchanged = got.Created+got.Unchanged, 0
	}
	var lines []string
	for _, e := range got.Errors {
		lines = append(lines, fmt.Sprintf("%d:%d", e.Line, e.Error))
	}
	if got.Created != created || got.Unchanged != unchanged || got.Failed != failed || !slices.Equal(lines, want) {
		t.Fatalf("got %.500s, want %d, %d, %d, %q", r.body, created, unchanged, failed, want)
	}
}

// wantStatus fails unless the response has the status and no body.
func (r reply) wantStatus(t *testing.T, want int) {
	t.Helper()
	if r.status != want || len(r.body) > 0 {
		t.Fatalf("got %d %.300q, want %d without a body", r.status, r.body, want)
	}
}

// wantError fails unless the response is an Error with that code, whose message
// contains all these texts.
func (r reply) wantError(t *testing.T, code plantstore.Code, texts ...string) {
	t.Helper()
	var got struct {
		Error   plantstore.Code
		Message string
	}
	if err := json.Unmarshal(r.body, &got); err != nil || got.Error != code || r.status != int(code)/100 {
		t.Fatalf("got %d %.300q, want the error %d", r.status, r.body, code)
	}
	for _, text := range texts {
		if !strings.Contains(got.Message, text) {
			t.Errorf("error %d says %q, want %q in it", code, got.Message, text)
		}
	}
}

// wantHeader fails unless the header has exactly these values.
func (r reply) wantHeader(t *testing.T, name string, want ...string) {
	t.Helper()
	if got := r.header.Values(name); !slices.Equal(got, want) {
		t.Errorf("%s is %q, want %q", name, got, want)
	}
}

// equalJSON reports whether text is JSON for an object with exactly these members.
func equalJSON(text []byte, want map[string]any) bool {
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil || len(got) != len(want) {
		return false
	}
	for name, value := range want {
		if got[name] != value {
			return false
		}
	}
	return true
}

// wantStored fails unless these are the only plants in the store.
func (s *service) wantStored(t *testing.T, want ...plantstore.Plant) {
	t.Helper()
	if got := s.Plants(t); !slices.Equal(got, want) {
		t.Fatalf("the store has %.300s, want %.300s", fmt.Sprint(got), fmt.Sprint(want))
	}
}
