package abuse

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// allowFiles raises the limit on open files for n connections, and returns how many it
// allows.
func allowFiles(t *testing.T, n int) int {
	t.Helper()
	const spare = 500
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if want := uint64(n + spare); limit.Cur < want {
		raised := syscall.Rlimit{Cur: want, Max: max(limit.Max, want)}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised); err != nil {
			n = int(limit.Cur) - spare
			t.Logf("ONLY %d CONNECTIONS: the limit on open files cannot be raised: %v", n, err)
		}
	}
	return n
}

// rawRequest returns a request as it is sent.
func rawRequest(method, path, body string, header ...string) string {
	lines := slices.Concat([]string{
		method + " " + path + " HTTP/1.1", "Host: x", "Authorization: Bearer " + harness.Token,
		"Content-Type: application/json", "Content-Length: " + strconv.Itoa(len(body)),
	}, header)
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

// dial connects to the server. The deadline of the connection is long after the server
// should have closed it.
func (a *target) dial() (*net.TCPConn, error) {
	conn, err := net.Dial("tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(a.header + 4*a.request + a.idle + time.Minute))
	return conn.(*net.TCPConn), nil
}

// drip sends the head immediately and then, slowly on purpose, the part ten times a
// second until the server closes the connection. It returns what the server sent.
func (a *target) drip(head, part string) (string, error) {
	conn, err := a.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, head); err != nil {
		return "", err
	}
	type result struct {
		text string
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		response, err := io.ReadAll(conn)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil // the server ended it
		}
		ended <- result{string(response), err}
	}()
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case r := <-ended:
			return r.text, r.err
		case <-pace.C:
			_, _ = io.WriteString(conn, part) // fails once the server has closed it
		}
	}
}

func TestSlowHeadersAreCutOff(t *testing.T) {
	a := startTarget(t, timeouts{header: time.Second})
	a.withProber(t, func() {
		harness.Parallel(t, harness.Times(50, 2000), func(int) error {
			response, err := a.drip("GET /plants HTTP/1.1\r\nHost: x\r\nX-Slow: ", "a")
			if err == nil && response != "" {
				err = fmt.Errorf("got %q, want nothing", response)
			}
			return err
		})
	})
}

func TestSlowBodiesAreCutOff(t *testing.T) {
	a := startTarget(t, timeouts{request: 2 * time.Second})
	a.withProber(t, func() {
		harness.Parallel(t, harness.Times(50, 2000), func(i int) error {
			head, part := rawRequest("POST", "/plants", "", "Content-Length: 1000"), " "
			head = strings.Replace(head, "Content-Length: 0\r\n", "", 1)
			if i%2 == 0 {
				head = strings.Replace(head, "Content-Length: 1000", "Transfer-Encoding: chunked", 1)
				part = "1\r\n \r\n"
			}
			response, err := a.drip(head, part)
			if err == nil && (!strings.HasPrefix(response, "HTTP/1.1 408 ") || !strings.Contains(response, "40801")) {
				err = fmt.Errorf("got %q, want 408", response)
			}
			return err
		})
	})
}

// awaitClosed waits until the server has closed its side of all connections.
func (a *target) awaitClosed(t *testing.T, conns []*net.TCPConn) {
	t.Helper()
	_, server, _ := strings.Cut(a.Addr, ":")
	ports := make(map[string]bool)
	for _, c := range conns {
		if c != nil {
			_, port, _ := strings.Cut(c.LocalAddr().String(), ":")
			ports[port] = true
		}
	}
	testenv.Eventually(t, func() error {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		open := 0
		for line := range strings.Lines(string(table)) {
			// The fields are number, local and remote address in hex, and more. A socket
			// that its process has closed has the inode 0.
			const local, remote, inode = 1, 2, 9
			f := strings.Fields(line)
			if port(f[local]) == server && ports[port(f[remote])] && f[inode] != "0" {
				open++
			}
		}
		if open > 0 {
			return fmt.Errorf("the server has not closed %d of %d connections", open, len(conns))
		}
		return nil
	})
}

// port returns the port of an address in /proc/net/tcp.
func port(address string) string {
	_, hex, _ := strings.Cut(address, ":")
	n, _ := strconv.ParseUint(hex, 16, 16)
	return strconv.FormatUint(n, 10)
}

func countSockets(files []string) (n int) {
	for _, name := range files {
		if strings.HasPrefix(name, "socket:") {
			n++
		}
	}
	return n
}

// Connections are opened and left idle: some send nothing, some have had a response,
// some are half closed, and some have lost their other side.
func TestIdleConnectionsAreClosed(t *testing.T) {
	a := startTarget(t, timeouts{header: time.Second, idle: 2 * time.Second})
	n := allowFiles(t, harness.Times(50, 5000))
	a.withProber(t, func() {
		conns := make([]*net.TCPConn, n)
		var vanished atomic.Int64
		next := make(chan int, n)
		for i := range n {
			next <- i
		}
		close(next)
		harness.Parallel(t, 32, func(int) error {
			for i := range next {
				var err error
				for again := true; again; {
					began := time.Now()
					if conns[i], err = a.dial(); err == nil {
						err = leaveIdle(conns[i], i, &vanished)
					}
					// The server closes one that stands still for too long in between.
					again = err != nil && conns[i] != nil && a.cut > 0 && time.Since(began) >= a.cut
				}
				if err != nil {
					return fmt.Errorf("connection %d: %w", i, err)
				}
			}
			return nil
		})
		open := len(a.OpenFiles())
		a.awaitClosed(t, conns)
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
		t.Logf("%d connections, %d of them vanished; the server had %d files open at once", n, vanished.Load(), open)
		if vanished.Load() == 0 {
			t.Log("NO CONNECTION VANISHED: the system does not let this test drop one silently")
		}
	})
}

// leaveIdle uses a connection in one of several ways, and leaves it open.
func leaveIdle(conn *net.TCPConn, i int, vanished *atomic.Int64) error {
	switch i % 5 {
	case 0: // sends nothing
		return nil
	case 1: // is idle after a response
		if _, err := io.WriteString(conn, rawRequest("GET", "/healthz", "")); err != nil {
			return err
		}
		_, _, _, err := readResponse(bufio.NewReader(conn))
		return err
	case 2: // stops in the header
		_, err := io.WriteString(conn, "GET /plants HTTP/1.1\r\nHos")
		return err
	case 3: // stops in the header, and half closes
		if _, err := io.WriteString(conn, "GET /plants HTTP/1.1\r\nHos"); err != nil {
			return err
		}
		return conn.CloseWrite()
	}
	if _, err := io.WriteString(conn, "POST /plants HTTP/1.1\r\nHos"); err != nil {
		return err
	}
	if vanish(conn) == nil {
		vanished.Add(1)
	}
	return nil
}

// vanish closes a connection without notifying the other side, like a machine that
// loses power. It needs Linux, and privileges.
func vanish(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	const tcpRepair = 19
	var refused error
	if err := raw.Control(func(fd uintptr) {
		refused = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpRepair, 1)
	}); err != nil || refused != nil {
		return errors.Join(err, refused)
	}
	return conn.Close()
}

func readResponse(in *bufio.Reader) (status int, body string, header http.Header, err error) {
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0, "", nil, err
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	return res.StatusCode, string(all), res.Header, err
}

// flood sends the head, and then the part again and again until the server closes the
// connection. It returns the status, and how much the server and the buffers in between
// have taken. It sends no more than limit.
func (a *target) flood(head, part string, limit int) (status, taken int, err error) {
	conn, err := a.dial()
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	if err := conn.SetWriteBuffer(64 << 10); err != nil {
		return 0, 0, err
	}
	responded := make(chan int, 1)
	go func() {
		status, _, _, _ := readResponse(bufio.NewReader(conn))
		responded <- status
	}()
	n, err := io.WriteString(conn, head)
	for taken = n; err == nil && taken < limit; taken += n {
		n, err = io.WriteString(conn, part)
	}
	if err == nil {
		return 0, taken, fmt.Errorf("the server took %d bytes", taken)
	}
	return <-responded, taken, nil
}

// Endless headers and bodies are refused early.
func TestEndlessRequestsAreRefused(t *testing.T) {
	const (
		tenGigabytes = "10737418240"
		sent         = 64 << 20 // if the server does not stop it
		allowed      = 16 << 20 // for the server and the buffers in between
	)
	a := startTarget(t, timeouts{})
	create := func(header ...string) string {
		return strings.Replace(rawRequest("POST", "/plants", "", header...), "Content-Length: 0\r\n", "", 1)
	}
	chunk := "10000\r\n" + strings.Repeat("x", 64<<10) + "\r\n"
	cases := []struct {
		name, head, part string
		status           int
	}{
		{"declared body", create("Content-Length: " + tenGigabytes), strings.Repeat("x", 64<<10), 413},
		{"chunked body", create("Transfer-Encoding: chunked"), chunk, 413},
		{"chunked body of a string", create("Transfer-Encoding: chunked") + "10\r\n{\"id\":1,\"name\":\"\r\n", chunk, 413},
		{"body of small chunks", create("Transfer-Encoding: chunked"), strings.Repeat("1\r\n \r\n", 10_000), 413},
		{"chunk extension", create("Transfer-Encoding: chunked") + "1;", strings.Repeat("x", 64<<10), 400},
		{"body without a token", strings.Replace(create("Content-Length: "+tenGigabytes), harness.Token, "wrong", 1), strings.Repeat("x", 64<<10), 401},
		{"import without a token", "POST /plants/import HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", chunk, 401},
		{"body of another path", "POST /nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", chunk, 404},
		{"compressed body", create("Content-Length: "+tenGigabytes, "Content-Encoding: gzip"), strings.Repeat("x", 64<<10), 415},
		{"header", "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Bomb: ", strings.Repeat("x", 64<<10), 431},
		{"number of headers", "GET /healthz HTTP/1.1\r\nHost: x\r\n", strings.Repeat("X-Bomb: x\r\n", 1000), 431},
		{"folded header", "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Bomb: x", strings.Repeat("\r\n x", 1000), 431},
		{"request line", "GET /", strings.Repeat("x", 64<<10), 431},
		{"trailer", create("Transfer-Encoding: chunked") + "2\r\n{}\r\n0\r\n", strings.Repeat("X-Bomb: x\r\n", 1000), 400},
		{"empty lines", "", strings.Repeat("\r\n", 1000), 400},
	}
	a.withProber(t, func() {
		harness.Parallel(t, harness.Times(1, 8)*len(cases), func(i int) error {
			tt := cases[i%len(cases)]
			status, taken, err := a.flood(tt.head, tt.part, sent)
			switch {
			case err != nil:
				return fmt.Errorf("%s: %w", tt.name, err)
			case status != tt.status:
				return fmt.Errorf("%s: got %d, want %d", tt.name, status, tt.status)
			case taken > allowed:
				return fmt.Errorf("%s: %d bytes were taken", tt.name, taken)
			}
			if i < len(cases) {
				t.Logf("%s: got %d after at most %d KB", tt.name, status, taken>>10)
			}
			return nil
		})
	})
	// An import may have any length, but not a line of it.
	line := strings.Repeat("x", sent)
	a.withProber(t, func() {
		status, response := a.Call(harness.Token, "POST", "/plants/import", line, "Content-Type", "application/x-ndjson")
		if status != 200 || !strings.Contains(response, `"failed":1,"errors":[{"line":1,"error":41301`) {
			t.Errorf("a line of %d MB got %d %s", sent>>20, status, response)
		}
		http.DefaultClient.CloseIdleConnections()
	})
}

// Clients connect, send a part of a request and reset the connection, again and again.
func TestResetConnectionsAreReleased(t *testing.T) {
	a := startTarget(t, timeouts{})
	a.withProber(t, func() {
		a.resetConnections(t, harness.Times(4000, 100_000))
		// The sockets of the listener and of the prober stay open.
		testenv.Eventually(t, func() error {
			if n := countSockets(a.OpenFiles()); n > 1+3 {
				return fmt.Errorf("the server still has %d sockets open", n)
			}
			return nil
		})
	})
}

// resetConnections has clients connect n times, send a part of a request and reset the
// connection. The request is cut at each byte in turn, including its end.
func (a *target) resetConnections(t *testing.T, n int) {
	t.Helper()
	whole := rawRequest("POST", "/plants", `{"id":1,"name":"reset"}`)
	start := time.Now()
	harness.Parallel(t, 8, func(worker int) error {
		for i := range n / 8 {
			conn, err := a.dial()
			if err != nil {
				return err
			}
			_, err = io.WriteString(conn, whole[:(i*8+worker)%(len(whole)+1)])
			if err = errors.Join(err, conn.SetLinger(0), conn.Close()); err != nil {
				return err
			}
		}
		return nil
	})
	harness.Report(t, "%.0f resets a second", float64(n)/time.Since(start).Seconds())
}
