package abuse

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// startSecure starts a server with TLS, and returns a client of it.
func startSecure(t *testing.T, db string, flags ...string) (*harness.Server, *http.Client) {
	t.Helper()
	harness.NeedProc(t)
	other := httptest.NewUnstartedServer(nil) // which has a certificate
	other.EnableHTTP2 = true
	other.StartTLS()
	t.Cleanup(other.Close)
	pair := other.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	s := harness.StartOn(t, db, append(flags, "--tls-cert", certFile, "--tls-key", keyFile)...)
	s.API = strings.Replace(s.API, "http:", "https:", 1)
	web := other.Client()
	testenv.Eventually(t, func() error { return get(web, harness.Token, s.API+"/token") })
	return s, web
}

// get sends a request, which must be served.
func get(web *http.Client, token, url string) error {
	res, err := harness.Send(web, token, "GET", url, "")
	if err == nil && res.Status != 200 {
		err = fmt.Errorf("GET %s: %d %.200s", url, res.Status, res.Body)
	}
	return err
}

// flood is requests on streams of HTTP/2, on many connections.
type flood struct {
	connections, streams int // of each connection
	fields               []hpack.HeaderField
	// unread opens all streams, as many as the server may allow, with a window of zero, so that
	// no body can be sent. Otherwise the streams are opened when the server allows it, and read.
	unread bool

	mu       sync.Mutex // guards what follows
	conns    []*tls.Conn
	statuses map[string]int // of the responses; "reset" is that of a stream that got none
}

// open opens the streams, from an address of their own, and waits until each has a response or
// was reset. An unread body is left out.
func (f *flood) open(t *testing.T, s *harness.Server) {
	t.Helper()
	f.statuses = map[string]int{}
	f.fields = append([]hpack.HeaderField{{Name: ":scheme", Value: "https"}, {Name: ":authority", Value: s.Addr}}, f.fields...)
	harness.Parallel(t, f.connections, func(int) error {
		dialer := tls.Dialer{
			NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}},
			Config:    &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}},
		}
		for tries := 1; ; tries++ {
			conn, err := dialer.DialContext(t.Context(), "tcp", s.Addr)
			if err != nil {
				return err
			}
			f.mu.Lock()
			f.conns = append(f.conns, conn.(*tls.Conn))
			f.mu.Unlock()
			conn.SetDeadline(time.Now().Add(testenv.Timeout))
			// On a busy machine the settings may not arrive in the two seconds that net/http gives them.
			if ended, err := f.send(conn); err == nil || ended > 0 || tries == 20 {
				return err
			}
		}
	})
}

// send sends the requests, and reads until all have been responded to. It returns how many were.
func (f *flood) send(conn net.Conn) (ended int, err error) {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return 0, err
	}
	frames := http2.NewFramer(conn, conn)
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	window := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 64<<10 - 1}
	if f.unread {
		window.Val = 0
	}
	if err := frames.WriteSettings(window); err != nil {
		return 0, err
	}
	frame, err := frames.ReadFrame()
	if err != nil {
		return 0, err
	}
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		return 0, fmt.Errorf("the first frame is %v", frame)
	}
	atOnce := uint32(f.streams)
	if limit, ok := settings.Value(http2.SettingMaxConcurrentStreams); ok && !f.unread {
		atOnce = min(atOnce, limit)
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	encoder.SetMaxDynamicTableSize(0) // all streams send the same block
	for _, field := range f.fields {
		if err := encoder.WriteField(field); err != nil {
			return 0, err
		}
	}
	opened := 0
	open := func() error {
		if opened == f.streams {
			return nil
		}
		opened++
		return frames.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*opened - 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true,
		})
	}
	err = frames.WriteSettingsAck()
	for range atOnce {
		err = errors.Join(err, open())
	}
	for ended < f.streams && err == nil {
		if frame, err = frames.ReadFrame(); err != nil {
			break
		}
		status, over := "", false
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			status, over = frame.PseudoValue("status"), f.unread || frame.StreamEnded()
		case *http2.DataFrame:
			over = frame.StreamEnded()
		case *http2.RSTStreamFrame:
			status, over = "reset", true
		case *http2.GoAwayFrame:
			return ended, fmt.Errorf("the server ended the connection: %v", frame.ErrCode)
		}
		if status != "" {
			f.mu.Lock()
			f.statuses[status]++
			f.mu.Unlock()
		}
		if over {
			ended++
			err = open()
		}
	}
	return ended, err
}

func (f *flood) close() {
	for _, conn := range f.conns {
		conn.Close()
	}
}

// asks returns the header of a request for a path.
func asks(path string, header ...string) []hpack.HeaderField {
	fields := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":path", Value: path}}
	for i := 0; i < len(header); i += 2 {
		fields = append(fields, hpack.HeaderField{Name: header[i], Value: header[i+1]})
	}
	return fields
}

// Clients open as many streams of HTTP/2 as they like and read nothing. Others are served
// meanwhile, and the memory is returned afterwards.
func TestUnreadStreamsTakeLittleMemory(t *testing.T) {
	s, web := startSecure(t, filepath.Join(t.TempDir(), "plants.db"))
	var lines strings.Builder
	fmt.Fprintf(&lines, "{\"id\":0,\"name\":\"small\"}\n{\"id\":1,\"name\":\"%s\"}\n", strings.Repeat("n", 63<<10))
	for id := 2; id <= 1001; id++ {
		fmt.Fprintf(&lines, "{\"id\":%d,\"name\":\"a plant with the number %d\"}\n", id, id)
	}
	if res, err := harness.Send(web, harness.Token, "POST", s.API+"/plants/import", lines.String(), "Content-Type", "application/x-ndjson"); err != nil || res.Status != 200 {
		t.Fatalf("import: %d %s, %v", res.Status, res.Body, err)
	}
	docs, err := harness.Send(web, "", "GET", s.API+"/docs", "")
	asset := "/" + regexp.MustCompile(`assets/[^"]+/swagger-ui-bundle\.js`).FindString(docs.Body)
	if err != nil || asset == "/" {
		t.Fatalf("/docs: %d %s, %v", docs.Status, docs.Body, err)
	}
	token := strings.TrimSpace(s.Command("token", "create", "--name", "flood"))
	with := []string{"authorization", "Bearer " + token}
	before := s.Memory("VmRSS")
	maximum := map[int]int64{100: maxMemory, 200: 320 << 20} // by connections
	for _, tt := range []struct {
		name   string
		fields []hpack.HeaderField
		long   bool // only in the long form
	}{
		{"largest asset", asks(asset), false},
		{"compressed asset", asks(asset, "accept-encoding", "gzip"), true},
		{"document", asks("/openapi.json"), true},
		{"readiness", asks("/readyz"), false},
		{"no such page", asks("/" + strings.Repeat("a", 15<<10)), true},
		{"no token", asks("/plants/1"), true},
		{"plant of 63 KB", asks("/plants/1", with...), false},
		{"page of 1,000 plants", asks("/plants?limit=1000&after=1", with...), true},
	} {
		if tt.long && !harness.Torture() {
			continue
		}
		f := &flood{connections: harness.Times(100, 200), streams: 250, fields: tt.fields, unread: true}
		s.ResetPeakMemory()
		served := whileServing(t, s, web, func() { f.open(t, s) })
		peak := s.Memory("VmHWM")
		f.close()
		ended := time.Now()
		if most := maximum[f.connections]; peak > most {
			t.Errorf("%s: the server had %d MB resident, at most %d are allowed", tt.name, peak>>20, most>>20)
		}
		testenv.Eventually(t, func() error {
			if now := s.Memory("VmRSS"); now > before+(48<<20) {
				return fmt.Errorf("%s: %d MB are resident afterwards, %d before", tt.name, now>>20, before>>20)
			}
			return nil
		})
		harness.Report(t, "%s: %d connections, responses %v; %d MB before, at most %d MB, %d MB %.1f s afterwards; %d calls of another client",
			tt.name, f.connections, f.statuses, before>>20, peak>>20, s.Memory("VmRSS")>>20, time.Since(ended).Seconds(), served)
	}
}

// An address gets three quarters of the requests that may be in flight, until the responses
// have been sent. Others are served, and so is the address afterwards.
func TestUnreadStreamsOfOneAddressLeaveRoomForOthers(t *testing.T) {
	const limit, share = 200, 150
	s, web := startSecure(t, filepath.Join(t.TempDir(), "plants.db"), "--max-requests", strconv.Itoa(limit))
	if res, err := harness.Send(web, harness.Token, "POST", s.API+"/plants", `{"id":0,"name":"small"}`); err != nil || res.Status != 200 {
		t.Fatalf("create: %d %s, %v", res.Status, res.Body, err)
	}
	f := &flood{connections: 16, streams: 20, fields: asks("/readyz"), unread: true}
	whileServing(t, s, web, func() { f.open(t, s) })
	if f.statuses["200"] != share || f.statuses["503"] != f.connections*f.streams-share {
		t.Errorf("the responses are %v", f.statuses)
	}
	f.close()
	testenv.Eventually(t, func() error { // the server notices
		f := &flood{connections: 1, streams: 1, fields: asks("/readyz")}
		f.open(t, s)
		f.close()
		if f.statuses["200"] == 0 {
			return fmt.Errorf("the response is %v", f.statuses)
		}
		return nil
	})
}

// Thousands of gets, and of checks, come at once. Every check succeeds.
func TestReadinessSurvivesBursts(t *testing.T) {
	eachStore(t, func(t *testing.T, db string) {
		s, web := startSecure(t, db)
		if res, err := harness.Send(web, harness.Token, "POST", s.API+"/plants", `{"id":0,"name":"small"}`); err != nil || res.Status != 200 {
			t.Fatalf("create: %d %s, %v", res.Status, res.Body, err)
		}
		for _, tt := range []struct {
			path        string
			connections int
		}{{"/plants/0", 40}, {"/readyz", 100}} {
			f := &flood{connections: tt.connections, streams: 250, fields: asks(tt.path, "authorization", "Bearer "+harness.Token)}
			calls := whileServing(t, s, web, func() { f.open(t, s) })
			f.close()
			if f.statuses["200"] != tt.connections*f.streams {
				t.Errorf("%s: the responses are %v", tt.path, f.statuses)
			}
			harness.Report(t, "%d gets of %s on %d connections; %d calls of another client", tt.connections*f.streams, tt.path, tt.connections, calls)
		}
	})
}

// whileServing has a well-behaved client read a plant and the readiness again and again while f
// runs, and once more. All its calls must succeed. It returns how many there were.
func whileServing(t *testing.T, s *harness.Server, web *http.Client, f func()) int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var calls atomic.Int64
	var ended sync.WaitGroup
	ended.Go(func() {
		for last := false; !last; {
			last = ctx.Err() != nil
			for _, path := range []string{"/plants/0", "/readyz"} {
				if err := get(web, harness.Token, s.API+path); err != nil {
					t.Error(err)
					return
				}
				calls.Add(1)
			}
		}
	})
	f()
	cancel()
	ended.Wait()
	return calls.Load()
}
