package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/auth"
	"plantstore/internal/postgres/pgtest"
)

// honestBound is what no call of an honest caller may take, whatever goes on
// beside it. It is generous: how long they do take is logged.
const honestBound = 5 * time.Second

// mostMemory is what a server under abuse may have resident, in bytes.
const mostMemory = 256 << 20

// abused is a server whose limits of time are short, so that the test is.
type abused struct {
	*server
	header, request, idle time.Duration // the limits
	plants                int64         // how many ids honest callers have used
}

func startAbused(t *testing.T) *abused {
	t.Helper()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("this system does not show a process's memory: ", err)
	}
	a := &abused{header: time.Second, request: 2 * time.Second, idle: 2 * time.Second}
	if torture() { // the defaults
		a.header, a.request, a.idle = 5*time.Second, 30*time.Second, 2*time.Minute
	}
	a.server = start(t, "--read-header-timeout", a.header.String(), "--read-timeout", a.request.String(), "--idle-timeout", a.idle.String())
	return a
}

// beside lets an honest caller go about its business, alone at first and then while
// the abuse goes on. The caller must be served well, and the server must stay small.
func (a *abused) beside(t *testing.T, abuse func()) {
	t.Helper()
	quiet := a.converse(t, times(200, 5000), func() {})
	before := a.resetPeak(t)
	loud := a.converse(t, 50, func() {
		if torture() { // in the short form other tests may need all of the machine
			defer setApart(t)()
		}
		abuse()
	})
	peak := memory(t, a.cmd.Process.Pid, "VmHWM")
	if peak > mostMemory {
		t.Errorf("the server had %d MB resident, and may have %d", peak>>20, mostMemory>>20)
	}
	ratio := float64(percentile(loud, 99)) / float64(percentile(quiet, 99))
	t.Logf("honest calls: quiet %s (%d calls); beside it %s (%d calls); p99 %.1f times; memory %d MB before, %d MB at most",
		latencies(quiet), len(quiet), latencies(loud), len(loud), ratio, before>>20, peak>>20)
}

// converse has an honest caller make at least so many calls while f runs, and
// returns how long each of them took.
func (a *abused) converse(t *testing.T, least int, f func()) []time.Duration {
	t.Helper()
	business, err := json.Marshal(honest{API: a.api, Used: a.plants, Least: least})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), honestVariable+"="+string(business))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var h honest
	said := json.NewDecoder(out)
	func() {
		defer func() {
			in.Close()
			err = errors.Join(err, said.Decode(&h), cmd.Wait())
		}()
		if err = said.Decode(&h); err == nil { // it is there
			f()
		}
	}()
	if err != nil {
		t.Fatalf("the honest caller: %v", err)
	}
	if h.Failed != "" {
		t.Error("an honest " + h.Failed)
	}
	a.plants = h.Used
	return h.Took
}

// honestVariable makes the test binary an honest caller. It is a process of its own,
// because the abusers may have less of the processor than it has.
const honestVariable = "PLANTSTORE_TEST_HONEST"

// honest is an honest caller: first its business, and then what came of it.
type honest struct {
	API    string          // where to call
	Used   int64           // how many ids are used up
	Least  int             // how many calls to make, also if they should end
	Took   []time.Duration // how long each call took
	Failed string          // the call that was not answered well, after which there is none
}

// mainHonest says that it is there, does the business until its input ends, and says
// what came of it. It returns how the process should exit.
func mainHonest(business string) int {
	var h honest
	if err := json.Unmarshal([]byte(business), &h); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", honestVariable, err)
		return 1
	}
	var ended atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	say := json.NewEncoder(os.Stdout)
	err := say.Encode(h)
	h.converse(&ended)
	if err = errors.Join(err, say.Encode(h)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// converse creates and reads plants, one after the other, on one connection and on
// new ones in turns.
func (h *honest) converse(ended *atomic.Bool) {
	kept := &http.Client{Transport: &http.Transport{}, Timeout: honestBound}
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: honestBound}
	for calls := 0; calls < h.Least || !ended.Load(); calls++ {
		method, path, body := "GET", "/plants/"+strconv.FormatInt(-h.Used, 10), ""
		if calls%2 == 0 {
			h.Used++
			method, path, body = "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"honest"}`, -h.Used)
		}
		by := kept
		if calls%4 > 1 {
			by = fresh
		}
		began := time.Now()
		err := h.once(by, method, path, body)
		h.Took = append(h.Took, time.Since(began))
		if err != nil {
			h.Failed = fmt.Sprintf("%s %s: %v", method, path, err)
			return
		}
	}
}

// once makes one call, which must be answered 200 and with the honest plant.
func (h *honest) once(by *http.Client, method, path, body string) error {
	req, err := http.NewRequest(method, h.API+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+bootstrap)
	req.Header.Set("Content-Type", "application/json")
	res, err := by.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode != 200 || !bytes.Contains(answer, []byte(`"name":"honest"`))) {
		err = fmt.Errorf("answered %d %s", res.StatusCode, answer)
	}
	return err
}

// percentile returns the time that so many of a hundred calls did not exceed.
func percentile(took []time.Duration, percent int) time.Duration {
	if len(took) == 0 {
		return 0
	}
	took = slices.Sorted(slices.Values(took))
	return took[(len(took)-1)*percent/100]
}

func latencies(took []time.Duration) string {
	return fmt.Sprintf("p50 %v, p99 %v, most %v", percentile(took, 50).Round(time.Microsecond),
		percentile(took, 99).Round(time.Microsecond), percentile(took, 100).Round(time.Microsecond))
}

// memory returns a figure of a process's memory in bytes: VmRSS is what it has
// resident, VmHWM the most that it had.
func memory(t *testing.T, pid int, figure string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), figure+":")
	line, _, _ := strings.Cut(rest, " kB")
	kilobytes, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		t.Fatalf("%s of process %d: %v", figure, pid, err)
	}
	return kilobytes << 10
}

// resetPeak forgets the most memory that the server had, where the system lets it,
// and returns what it has now.
func (s *server) resetPeak(t *testing.T) int64 {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Log("the most memory is that since the start of the server: ", err)
	}
	return memory(t, s.cmd.Process.Pid, "VmRSS")
}

// allowFiles lets the test have n connections open and returns how many it can.
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
			t.Logf("ONLY %d CONNECTIONS: the limit of open files cannot be raised: %v", n, err)
		}
	}
	return n
}

// rawRequest writes a request down as it goes over the wire.
func rawRequest(method, path, body string, header ...string) string {
	lines := slices.Concat([]string{
		method + " " + path + " HTTP/1.1", "Host: x", "Authorization: Bearer " + bootstrap,
		"Content-Type: application/json", "Content-Length: " + strconv.Itoa(len(body)),
	}, header)
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

// dial connects to the server. What happens on the connection must be over soon
// after the server should have ended it.
func (a *abused) dial() (*net.TCPConn, error) {
	conn, err := net.Dial("tcp", a.addr)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(a.borne() + 10*time.Second))
	return conn.(*net.TCPConn), nil
}

// borne is the longest that the server should bear with anybody, and some.
func (a *abused) borne() time.Duration { return a.header + 4*a.request + a.idle + 15*time.Second }

// all runs f n times at once and reports what goes wrong, the first few times.
func all(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	var failed atomic.Int64
	for i := range n {
		wg.Go(func() {
			if err := f(i); err != nil && failed.Add(1) <= 5 {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if n := failed.Load(); n > 5 {
		t.Errorf("%d connections failed", n)
	}
}

// drip sends the head at once and then a byte ten times a second, or nothing if
// there is no byte, until the server ends the connection. It returns all that the
// server said, and fails if the server bears it for longer than the limit and some.
func (a *abused) drip(head, then string, limit time.Duration) (string, error) {
	conn, err := a.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, head); err != nil {
		return "", err
	}
	began := time.Now()
	said := make(chan string, 1)
	go func() {
		answer, _ := io.ReadAll(conn)
		said <- string(answer)
	}()
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case answer := <-said:
			if lasted := time.Since(began); lasted > limit+10*time.Second {
				return answer, fmt.Errorf("the server bore it for %v, and should for %v", lasted, limit)
			}
			return answer, nil
		case <-pace.C:
			_, _ = io.WriteString(conn, then) // what comes of it, the answer says
		}
	}
}

func TestSlowCallers(t *testing.T) {
	a := startAbused(t)
	n := times(200, 2000)
	t.Run("header", func(t *testing.T) {
		a.beside(t, func() {
			all(t, n, func(int) error {
				answer, err := a.drip("GET /plants HTTP/1.1\r\nHost: x\r\nX-Slow: ", "a", a.header)
				if err == nil && answer != "" {
					err = fmt.Errorf("answered %q, want nothing", answer)
				}
				return err
			})
		})
	})
	t.Run("body", func(t *testing.T) {
		a.beside(t, func() {
			all(t, n, func(i int) error {
				head, then := rawRequest("POST", "/plants", "", "Content-Length: 1000"), " "
				head = strings.Replace(head, "Content-Length: 0\r\n", "", 1)
				if i%2 == 0 {
					head = strings.Replace(head, "Content-Length: 1000", "Transfer-Encoding: chunked", 1)
					then = "1\r\n \r\n"
				}
				answer, err := a.drip(head, then, a.request)
				tooSlow := strings.HasPrefix(answer, "HTTP/1.1 408 ") && strings.Contains(answer, "40801")
				// A body of unknown length may be large, and of those too many are
				// on their way.
				tooMany := i%2 == 0 && strings.HasPrefix(answer, "HTTP/1.1 503 ") && strings.Contains(answer, "50301")
				if err == nil && !tooSlow && !tooMany {
					err = fmt.Errorf("answered %q, want 408", answer)
				}
				return err
			})
		})
	})
	t.Run("reader", func(t *testing.T) {
		a.slowReaders(t, times(16, 32))
	})
}

// slowReaders ask for an export and read nothing of it. The server must give up on
// them, and they must not take what they have for all of it.
func (a *abused) slowReaders(t *testing.T, n int) {
	const plants, length = 400, 64 << 10
	name := strings.Repeat("n", length)
	var lines strings.Builder
	for id := range plants {
		lines.WriteString(fmt.Sprintf(`{"id":%d,"name":"`, id+1) + name + "\"}\n")
	}
	if status, answer := a.call(bootstrap, "POST", "/plants/import", lines.String(), "Content-Type", "application/x-ndjson"); status != 200 {
		t.Fatalf("import: %d %s", status, answer)
	}
	http.DefaultClient.CloseIdleConnections()
	a.beside(t, func() {
		conns, answers := make([]*net.TCPConn, n), make([]*bufio.Reader, n)
		began := time.Now()
		all(t, n, func(i int) (err error) {
			if conns[i], err = a.dial(); err != nil {
				return err
			}
			answers[i] = bufio.NewReader(conns[i])
			if err := conns[i].SetReadBuffer(64 << 10); err != nil {
				return err
			}
			if _, err := io.WriteString(conns[i], rawRequest("GET", "/plants", "", "Accept: application/x-ndjson")); err != nil {
				return err
			}
			_, err = answers[i].Peek(1) // its export has begun
			return err
		})
		a.awaitSockets(t, 4) // the listener's and those of the honest caller
		t.Logf("%d readers were given up after %v", n, time.Since(began))
		all(t, n, func(i int) error {
			defer conns[i].Close()
			res, err := http.ReadResponse(answers[i], nil)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			got, err := io.Copy(io.Discard, res.Body)
			if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET) {
				return fmt.Errorf("got %d bytes of an export that nobody read for long, and then %v, want a break", got, err)
			}
			return nil
		})
	})
}

// awaitSockets waits until the server has no more than so many sockets open.
func (a *abused) awaitSockets(t *testing.T, most int) {
	t.Helper()
	for deadline := time.Now().Add(a.borne()); ; {
		sockets := 0
		for _, name := range descriptors(t, a.cmd.Process.Pid) {
			if strings.HasPrefix(name, "socket:") {
				sockets++
			}
		}
		if sockets <= most {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the server still has %d sockets open", sockets)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestIdleConnections opens connections and leaves them alone: some say nothing,
// some had an answer before, some are closed on one side only, and of some the
// other side is gone without a word. The server must be rid of all in time.
func TestIdleConnections(t *testing.T) {
	a := startAbused(t)
	n := allowFiles(t, times(1000, 5000))
	a.beside(t, func() {
		conns := make([]*net.TCPConn, n)
		var vanished atomic.Int64
		var places sync.WaitGroup
		place := make(chan int)
		for range 32 {
			places.Go(func() {
				for i := range place {
					var err error
					if conns[i], err = a.dial(); err == nil {
						err = a.leave(conns[i], i, &vanished)
					}
					if err != nil {
						t.Errorf("connection %d: %v", i, err)
					}
				}
			})
		}
		for i := range n {
			place <- i
		}
		close(place)
		places.Wait()
		open := len(descriptors(t, a.cmd.Process.Pid))
		a.awaitSockets(t, 4)
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
		t.Logf("%d connections, %d of them vanished without a word; the server had %d descriptors open when all were there", n, vanished.Load(), open)
		if vanished.Load() == 0 {
			t.Log("NO CONNECTION VANISHED: the system does not let this test drop one in silence")
		}
	})
}

// leave uses a connection in one of some ways, and leaves it open.
func (a *abused) leave(conn *net.TCPConn, i int, vanished *atomic.Int64) error {
	switch i % 5 {
	case 0: // says nothing
		return nil
	case 1: // is idle after an answer
		if _, err := io.WriteString(conn, rawRequest("GET", "/healthz", "")); err != nil {
			return err
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return err
	case 2: // stops in the header
		_, err := io.WriteString(conn, "GET /plants HTTP/1.1\r\nHos")
		return err
	case 3: // stops in the header, and will say no more
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

// vanish closes a connection without a word to the other side, as a machine does
// that loses its power. It needs Linux, and rights.
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

// TestPipelining sends many requests before it reads an answer. The answers must
// come in order, each to its own request.
func TestPipelining(t *testing.T) {
	a := startAbused(t)
	n := times(2000, 100_000)
	a.beside(t, func() {
		all(t, 4, func(c int) error {
			conn, err := a.dial()
			if err != nil {
				return err
			}
			defer conn.Close()
			go func() {
				out := bufio.NewWriter(conn)
				for i := range n {
					id := "X-Request-Id: " + strconv.Itoa(i)
					switch plant := c*n + i/3 + 1; i % 3 {
					case 0:
						out.WriteString(rawRequest("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"plant %d"}`, plant, plant), id))
					case 1:
						out.WriteString(rawRequest("GET", fmt.Sprint("/plants/", plant), "", id))
					case 2:
						out.WriteString(rawRequest("POST", "/plants", "{", id))
					}
				}
				out.Flush()
			}()
			in := bufio.NewReader(conn)
			for i := range n {
				status, body, header, err := readAnswer(in)
				if err != nil {
					return fmt.Errorf("answer %d: %w", i, err)
				}
				want, text := 200, fmt.Sprintf(`"name":"plant %d"`, c*n+i/3+1)
				if i%3 == 2 {
					want, text = 400, "40001"
				}
				if status != want || !strings.Contains(body, text) || header.Get("X-Request-Id") != strconv.Itoa(i) {
					return fmt.Errorf("answer %d is %d %s to request %s, want %d with %s", i, status, body, header.Get("X-Request-Id"), want, text)
				}
			}
			return nil
		})
	})
}

func readAnswer(in *bufio.Reader) (status int, body string, header http.Header, err error) {
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0, "", nil, err
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	return res.StatusCode, string(all), res.Header, err
}

// pour sends the head, and then the part again and again until the server stops
// it. It returns the status and how much the server, with the buffers between,
// has taken. More than most it never sends.
func (a *abused) pour(head, part string, most int) (status, taken int, err error) {
	conn, err := a.dial()
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	if err := conn.SetWriteBuffer(64 << 10); err != nil {
		return 0, 0, err
	}
	answered := make(chan int, 1)
	go func() {
		status, _, _, _ := readAnswer(bufio.NewReader(conn))
		answered <- status
	}()
	n, err := io.WriteString(conn, head)
	for taken = n; err == nil && taken < most; taken += n {
		n, err = io.WriteString(conn, part)
	}
	if err == nil {
		return 0, taken, fmt.Errorf("it took %d bytes", taken)
	}
	return <-answered, taken, nil
}

// TestEndlessRequests sends headers and bodies that have no end. The server must
// refuse them early.
func TestEndlessRequests(t *testing.T) {
	const (
		tenGigabytes = "10737418240"
		most         = 64 << 20 // that is sent, if nobody stops it
		enough       = 16 << 20 // that the server and the buffers between may take
	)
	a := startAbused(t)
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
		{"body without a token", strings.Replace(create("Content-Length: "+tenGigabytes), bootstrap, "wrong", 1), strings.Repeat("x", 64<<10), 401},
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
	a.beside(t, func() {
		all(t, times(1, 8)*len(cases), func(i int) error {
			tt := cases[i%len(cases)]
			status, taken, err := a.pour(tt.head, tt.part, most)
			switch {
			case err != nil:
				return fmt.Errorf("%s: %w", tt.name, err)
			case status != tt.status:
				return fmt.Errorf("%s: answered %d, want %d", tt.name, status, tt.status)
			case taken > enough:
				return fmt.Errorf("%s: %d bytes were taken", tt.name, taken)
			}
			if i < len(cases) {
				t.Logf("%s: answered %d after at most %d KB", tt.name, status, taken>>10)
			}
			return nil
		})
	})
	// An import may be of any length. A line of it may not.
	line := strings.Repeat("x", most)
	a.beside(t, func() {
		status, answer := a.call(bootstrap, "POST", "/plants/import", line, "Content-Type", "application/x-ndjson")
		if status != 200 || !strings.Contains(answer, `"failed":1,"errors":[{"line":1,"error":41301`) {
			t.Errorf("a line of %d MB was answered %d %s", most>>20, status, answer)
		}
		http.DefaultClient.CloseIdleConnections()
	})
}

// TestCompressedBomb sends a small body that would be large if somebody
// decompressed it. Nobody may.
func TestCompressedBomb(t *testing.T) {
	var part bytes.Buffer
	w := gzip.NewWriter(&part)
	io.WriteString(w, `{"id":1,"name":"`+strings.Repeat("a", 1<<20))
	w.Close()
	bomb := strings.Repeat(part.String(), 900) // parts may follow each other
	a := startAbused(t)
	a.beside(t, func() {
		all(t, times(16, 200), func(i int) error {
			conn, err := a.dial()
			if err != nil {
				return err
			}
			defer conn.Close()
			path, header, want := "/plants", []string{"Content-Encoding: gzip"}, 415
			switch i % 4 {
			case 1: // what it is, is for the server to find out
				header, want = nil, 400
			case 2:
				path = "/plants/import"
			case 3:
				header = []string{"Content-Encoding: identity, gzip"}
			}
			if _, err := io.WriteString(conn, rawRequest("POST", path, bomb, header...)); err != nil {
				return err
			}
			status, body, _, err := readAnswer(bufio.NewReader(conn))
			if err == nil && status != want {
				err = fmt.Errorf("answered %d %s, want %d", status, body, want)
			}
			return err
		})
	})
	t.Logf("%d KB that would be 900 MB", len(bomb)>>10)
}

// TestResets connects, sends half a request and resets the connection, again and
// again.
func TestResets(t *testing.T) {
	a := startAbused(t)
	n := times(4000, 100_000)
	whole := rawRequest("POST", "/plants", `{"id":1,"name":"reset"}`)
	a.beside(t, func() {
		all(t, 8, func(worker int) error {
			for i := range n / 8 {
				conn, err := a.dial()
				if err != nil {
					return err
				}
				// Every place in the request has its turn, its end too.
				_, err = io.WriteString(conn, whole[:(i*8+worker)%(len(whole)+1)])
				if err = errors.Join(err, conn.SetLinger(0), conn.Close()); err != nil {
					return err
				}
			}
			return nil
		})
		a.awaitSockets(t, 4)
	})
}

// TestWrongTokens tries many tokens that are none. The server must refuse each and
// remember none.
func TestWrongTokens(t *testing.T) {
	a := startAbused(t)
	a.guess(t, times(20_000, 1_000_000))
}

// TestWrongTokensOnPostgres does the same where the tokens are in a database. What
// can be no token must not be looked for there.
func TestWrongTokensOnPostgres(t *testing.T) {
	db := pgtest.Fresh(t)
	a := startAbused(t)
	a.stop()
	a.server = startOn(t, db)
	n := times(4000, 100_000)
	a.guess(t, n)
	// A connection's figures are complete when it has ended.
	looks := func() int {
		a.stop()
		for askNumber(t, db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plantstore' AND datname = current_database()") > 0 {
			time.Sleep(time.Millisecond)
		}
		return askNumber(t, db, "SELECT (seq_scan + idx_scan)::int FROM pg_stat_user_tables WHERE relname = 'tokens'")
	}
	before := looks()
	if before < n/2 {
		t.Fatalf("the server looked %d times for %d tokens: what does it count?", before, n)
	}
	a.run()
	a.try401(t, n, malformed)
	more := looks() - before
	t.Logf("%d tokens that can be none made the server look %d times", n, more)
	if more > n/10 { // it reads all of them every second
		t.Error("it should have refused them by itself")
	}
}

func malformed() string {
	secret := []byte(plantstore.NewSecret())
	last := &secret[len(secret)-1]
	if *last++; *last == '9'+1 || *last == 'Z'+1 || *last > 'z' {
		*last = '0'
	}
	return string(secret)
}

// guess sends n wrong tokens beside an honest caller, and looks at
// what is left of them in the server's memory.
func (a *abused) guess(t *testing.T, n int) {
	t.Helper()
	kinds := []struct {
		name  string
		n     int
		token func() string
	}{
		{"unknown", n / 2, plantstore.NewSecret},
		{"foreign", n / 4, func() string { return fmt.Sprintf("%016x-%016x", rand.Uint64(), rand.Uint64()) }},
		{"malformed", n / 8, malformed},
		{"near", n / 8, func() string { return bootstrap[:len(bootstrap)-1] + string("ABCDEFGH"[rand.IntN(8)]) }},
	}
	a.try401(t, 1000, plantstore.NewSecret) // brings all to life that is kept
	before := a.liveHeap(t)
	for _, k := range kinds {
		a.beside(t, func() {
			began := time.Now()
			a.try401(t, k.n, k.token)
			t.Logf("%d %s tokens, %.0f a second", k.n, k.name, float64(k.n)/time.Since(began).Seconds())
		})
	}
	after := a.liveHeap(t)
	t.Logf("%d wrong tokens: %d KB of live heap before, %d KB after", n, before>>10, after>>10)
	// Three of four could be known to a cache, and a hash alone has 32 bytes.
	if most := int64(12*n) + 128<<10; after-before > most {
		t.Errorf("after %d wrong tokens the server keeps %d bytes more than before, and may %d", n, after-before, most)
	}
}

// try401 sends requests with wrong tokens, many before it reads an answer.
func (a *abused) try401(t *testing.T, n int, token func() string) {
	t.Helper()
	const workers, burst = 8, 50
	all(t, workers, func(int) error {
		conn, err := a.dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for range n / workers / burst {
			conn.SetDeadline(time.Now().Add(time.Minute))
			var out strings.Builder
			for range burst {
				out.WriteString("GET /plants/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token() + "\r\n\r\n")
			}
			if _, err := io.WriteString(conn, out.String()); err != nil {
				return err
			}
			for range burst {
				if status, body, _, err := readAnswer(in); err != nil || status != 401 {
					return fmt.Errorf("a wrong token was answered %d %s, %w", status, body, err)
				}
			}
		}
		return nil
	})
}

var heapAlloc = regexp.MustCompile(`# HeapAlloc = (\d+)`)

// liveHeap returns how many bytes of the server's heap are in use, after the
// collector has been twice: what pools hold outlives it once.
func (a *abused) liveHeap(t *testing.T) (n int64) {
	t.Helper()
	for range 2 {
		status, text := a.call(bootstrap, "GET", "/debug/pprof/heap?gc=1&debug=1", "")
		found := heapAlloc.FindStringSubmatch(text)
		if status != 200 || found == nil {
			t.Fatalf("the heap's profile: %d %s", status, text)
		}
		n, _ = strconv.ParseInt(found[1], 10, 64)
	}
	http.DefaultClient.CloseIdleConnections()
	return n
}

// tokenShelf is a store of one token that notes what it is asked for.
type tokenShelf struct {
	token plantstore.Token
	asked []plantstore.TokenHash
}

func (s *tokenShelf) Tokens(context.Context) ([]plantstore.Token, error) {
	return []plantstore.Token{s.token}, nil
}

func (s *tokenShelf) Token(_ context.Context, hash plantstore.TokenHash) (plantstore.Token, error) {
	s.asked = append(s.asked, hash)
	if hash != s.token.Hash {
		return plantstore.Token{}, plantstore.ErrNoSuchToken
	}
	return s.token, nil
}

func (s *tokenShelf) TouchTokens(context.Context, map[plantstore.TokenHash]time.Time) error {
	return nil
}

// TestNearTokens has a guard judge tokens that share all but their end with a real
// one, and tokens that share nothing with it, in random order. The guard must deal
// with both by their SHA-256 alone, and take as long for the ones as for the others:
// of a near and a far one, either is the slower one about as often. Ranks do not
// mind a busy machine, which slows both.
func TestNearTokens(t *testing.T) {
	real := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	// The far ones are as like each other as the near ones are, and have digits where
	// those have digits: a processor is quicker with what it has just seen.
	far := strings.Map(func(c rune) rune {
		if c <= '9' {
			return '0' + (c-'0'+5)%10
		}
		return 'a' + (c-'a'+3)%6
	}, real)
	shelf := &tokenShelf{token: plantstore.Token{Hash: plantstore.HashSecret(real), Scopes: plantstore.AllScopes()}}
	guard := auth.New(shelf, slog.New(slog.DiscardHandler))
	check := func(secret string) error {
		_, err := guard.Check(t.Context(), []string{"Bearer " + secret}, plantstore.ScopeRead)
		return err
	}
	if err := check(real); err != nil { // from now on the guard knows it
		t.Fatal(err)
	}
	type guess struct {
		near bool
		text string
		took time.Duration
	}
	guesses := make([]guess, times(10_000, 200_000))
	for i := range guesses {
		g := &guesses[i]
		g.near, g.text = rand.IntN(2) == 0, far[:len(far)-1]
		if g.near {
			g.text = real[:len(real)-1]
		}
		g.text += string("GHIJKLMNOPQRSTUVWXYZ"[rand.IntN(20)])
	}
	for i := range guesses {
		g := &guesses[i]
		shelf.asked = shelf.asked[:0]
		began := time.Now()
		err := check(g.text)
		g.took = time.Since(began)
		if !errors.Is(err, plantstore.ErrBadToken) {
			t.Fatalf("the token %q was answered %v", g.text, err)
		}
		if want := plantstore.TokenHash(sha256.Sum256([]byte(g.text))); !slices.Equal(shelf.asked, []plantstore.TokenHash{want}) {
			t.Fatalf("for the token %q the store was asked for %x, want its SHA-256 once", g.text, shelf.asked)
		}
	}
	slices.SortFunc(guesses, func(a, b guess) int { return int(a.took - b.took) })
	// The share of pairs in which the near one is slower; a tie counts half.
	var pairs, slower float64
	nears, fars := 0, 0
	for begin := 0; begin < len(guesses); {
		tiedNear, end := 0, begin
		for ; end < len(guesses) && guesses[end].took == guesses[begin].took; end++ {
			if guesses[end].near {
				tiedNear++
			}
		}
		tiedFar := end - begin - tiedNear
		slower += float64(tiedNear) * (float64(fars) + float64(tiedFar)/2)
		nears, fars, begin = nears+tiedNear, fars+tiedFar, end
	}
	pairs = float64(nears) * float64(fars)
	t.Logf("%d near and %d far tokens: a near one is slower in %.2f %% of all pairs", nears, fars, 100*slower/pairs)
	if share := slower / pairs; share < 0.4 || share > 0.6 {
		t.Errorf("a near token is slower than a far one in %.1f %% of all pairs, want about 50", 100*share)
	}
}

// TestAmbiguousRequests sends requests about whose end two readers could differ,
// each with a create behind it. Where the first is refused, the connection must
// end, and nothing behind it may be taken for a request.
func TestAmbiguousRequests(t *testing.T) {
	s := start(t)
	const (
		post = "POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + bootstrap + "\r\nContent-Type: application/json\r\n"
		get  = "GET /healthz HTTP/1.1\r\nHost: x\r\n"
		one  = `{"id":1,"name":"1"}` // 19 bytes, in hex 13
		two  = "13\r\n" + one + "\r\n0\r\n\r\n"
	)
	for i, tt := range []struct {
		name, request string
		// want are the statuses of the answers before that to the create behind, and
		// next says that this one is answered too.
		want string
		next bool
	}{
		{"chunked", post + "Transfer-Encoding: chunked\r\n\r\n" + two, "200", false},
		{"of a length", post + "Content-Length: 19\r\n\r\n" + one, "200", true},
		// These are read as chunks, whatever the length says, and the connection ends, as
		// RFC 9112 wants it. net/http does not show the length, so chunks alone have to
		// be enough for that.
		{"length and chunks", post + "Content-Length: 19\r\nTransfer-Encoding: chunked\r\n\r\n" + two, "200", false},
		{"chunks and length", post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + two, "200", false},
		{"length 0 and chunks", post + "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n" + two, "200", false},
		{"length that is none, and chunks", post + "Content-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n" + two, "400", false},
		{"two lengths", post + "Content-Length: 19\r\nContent-Length: 20\r\n\r\n" + one, "400", false},
		{"two lengths, one of them 0", post + "Content-Length: 19\r\nContent-Length: 0\r\n\r\n" + one, "400", false},
		{"the same length twice", post + "Content-Length: 19\r\nContent-Length: 19\r\n\r\n" + one, "200", true},
		{"a list of lengths", post + "Content-Length: 19, 19\r\n\r\n" + one, "400", false},
		{"length with a plus", post + "Content-Length: +19\r\n\r\n" + one, "400", false},
		{"length below 0", post + "Content-Length: -19\r\n\r\n" + one, "400", false},
		{"length in hex", post + "Content-Length: 0x13\r\n\r\n" + one, "400", false},
		{"length beyond 64 bits", post + "Content-Length: 18446744073709551635\r\n\r\n" + one, "400", false},
		{"empty length", post + "Content-Length:\r\n\r\n" + one, "400", false},
		{"length with a space inside", post + "Content-Length: 1 9\r\n\r\n" + one, "400", false},
		{"xchunked", post + "Transfer-Encoding: xchunked\r\n\r\n" + two, "501", false},
		{"xchunked and a length", post + "Content-Length: 19\r\nTransfer-Encoding: xchunked\r\n\r\n" + one, "501", false},
		{"identity", post + "Transfer-Encoding: identity\r\nContent-Length: 19\r\n\r\n" + one, "501", false},
		{"gzip, chunked", post + "Transfer-Encoding: gzip, chunked\r\n\r\n" + two, "501", false},
		{"chunked, identity", post + "Transfer-Encoding: chunked, identity\r\n\r\n" + two, "501", false},
		{"chunked twice", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + two, "501", false},
		{"chunked and then identity", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + two, "501", false},
		{"quoted chunked", post + "Transfer-Encoding: \"chunked\"\r\n\r\n" + two, "501", false},
		{"chunked with a vertical tab", post + "Transfer-Encoding: \vchunked\r\n\r\n" + two, "400", false},
		{"Chunked", post + "transfer-encoding: Chunked\r\n\r\n" + two, "200", false},
		{"empty encoding", post + "Transfer-Encoding:\r\nContent-Length: 19\r\n\r\n" + one, "501", false},
		{"space before the colon of a length", post + "Content-Length : 19\r\n\r\n" + one, "400", false},
		{"space before the colon of an encoding", post + "Transfer-Encoding : chunked\r\n\r\n" + two, "400", false},
		{"tab before the colon", post + "Transfer-Encoding\t: chunked\r\n\r\n" + two, "400", false},
		{"space before a name", "POST /plants HTTP/1.1\r\n Host: x\r\nContent-Length: 19\r\n\r\n" + one, "400", false},
		{"folded length", post + "Content-Length:\r\n 19\r\n\r\n" + one, "200", true},
		{"folded encoding", post + "Transfer-Encoding:\r\n chunked\r\n\r\n" + two, "200", false},
		{"folded away encoding", post + "X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 19\r\n\r\n" + one, "200", true},
		{"line without a colon", post + "Content-Length\r\n\r\n" + one, "400", false},
		{"empty name", post + ": 19\r\n\r\n" + one, "400", false},
		{"underscore", post + "Content_Length: 4\r\nContent-Length: 19\r\n\r\n" + one, "200", true},
		{"bare LF", strings.ReplaceAll(post, "\r\n", "\n") + "Content-Length: 19\n\n" + one, "200", true},
		{"bare LF inside a header", post + "X: y\nContent-Length: 19\r\n\r\n" + one, "200", true},
		{"CR without LF", post + "X: y\rContent-Length: 19\r\n\r\n" + one, "400", false},
		{"CR without LF at the end", post + "Content-Length: 19\r\r\n\r\n" + one, "400", false},
		{"NUL in a value", post + "X: y\x00z\r\nContent-Length: 19\r\n\r\n" + one, "400", false},
		{"NUL in a name", post + "X\x00Y: z\r\nContent-Length: 19\r\n\r\n" + one, "400", false},
		{"NUL in the target", "GET /heal\x00thz HTTP/1.1\r\nHost: x\r\n\r\n", "400", false},
		{"byte beyond ASCII in a name", post + "Content-Length\xa0: 19\r\n\r\n" + one, "400", false},
		{"chunk size beyond 64 bits", post + "Transfer-Encoding: chunked\r\n\r\n10000000000000013\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk size below 0", post + "Transfer-Encoding: chunked\r\n\r\n-13\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk size with a plus", post + "Transfer-Encoding: chunked\r\n\r\n+13\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk size with 0x", post + "Transfer-Encoding: chunked\r\n\r\n0x13\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk size with an underscore", post + "Transfer-Encoding: chunked\r\n\r\n1_3\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk size after a space", post + "Transfer-Encoding: chunked\r\n\r\n 13\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"empty chunk size", post + "Transfer-Encoding: chunked\r\n\r\n\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk larger than its size", post + "Transfer-Encoding: chunked\r\n\r\n12\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk smaller than its size", post + "Transfer-Encoding: chunked\r\n\r\n14\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk size that ends with a bare LF", post + "Transfer-Encoding: chunked\r\n\r\n13\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk that ends with a bare LF", post + "Transfer-Encoding: chunked\r\n\r\n13\r\n" + one + "\n0\r\n\r\n", "400", false},
		{"chunk extension", post + "Transfer-Encoding: chunked\r\n\r\n13;a=b\r\n" + one + "\r\n0\r\n\r\n", "200", false},
		{"chunk extension of garbage", post + "Transfer-Encoding: chunked\r\n\r\n13;\x00;;=\"\r\n" + one + "\r\n0\r\n\r\n", "200", false},
		{"chunk extension with a bare LF", post + "Transfer-Encoding: chunked\r\n\r\n13;a\nb\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk extension with a bare CR", post + "Transfer-Encoding: chunked\r\n\r\n13;a\rb\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"trailer with a length", post + "Transfer-Encoding: chunked\r\n\r\n13\r\n" + one + "\r\n0\r\nContent-Length: 4\r\n\r\n", "200", false},
		{"HTTP/1.0 with chunks", strings.Replace(post, "1.1", "1.0", 1) + "Transfer-Encoding: chunked\r\n\r\n" + two, "400", false},
		{"HTTP/1.0 with chunks, kept alive", strings.Replace(post, "1.1", "1.0", 1) + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + two, "400 400", false},
		{"HTTP/1.0 with a length and chunks, kept alive", strings.Replace(post, "1.1", "1.0", 1) + "Connection: keep-alive\r\nContent-Length: 19\r\nTransfer-Encoding: chunked\r\n\r\n" + one, "200", false},
		{"HTTP/1.2", strings.Replace(post, "1.1", "1.2", 1) + "Content-Length: 19\r\n\r\n" + one, "200", true},
		{"HTTP/2.0", strings.Replace(post, "1.1", "2.0", 1) + "Content-Length: 19\r\n\r\n" + one, "505", false},
		{"HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "404", false},
		{"HTTP/0.9", "GET /healthz\r\n", "400", false},
		{"no host", "GET /healthz HTTP/1.1\r\n\r\n", "400", false},
		{"two hosts", get + "Host: y\r\n\r\n", "400", false},
		{"absolute target", strings.Replace(post, "/plants", "http://x/plants", 1) + "Content-Length: 19\r\n\r\n" + one, "200", true},
		{"absolute target elsewhere", strings.Replace(post, "/plants", "http://elsewhere/plants", 1) + "Content-Length: 19\r\n\r\n" + one, "200", true},
		{"CONNECT", "CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", "404", true},
		{"space in the target", "GET /healthz /x HTTP/1.1\r\nHost: x\r\n\r\n", "400", false},
		{"two spaces in the line", "GET  /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "400", false},
		{"body of a GET", get + "Content-Length: 19\r\n\r\n" + one, "200", true},
		{"chunked body of a GET", get + "Transfer-Encoding: chunked\r\n\r\n" + two, "200", false},
		{"create as the body of a GET", get + "Content-Length: BEHIND\r\n\r\n", "200", false},
		{"create as the body of a caller without a token", "POST /plants HTTP/1.1\r\nHost: x\r\nContent-Length: BEHIND\r\n\r\n", "401", false},
		{"create as the body of a body that is too large", post + "Content-Length: 1048577\r\n\r\n", "413", false},
		{"create in place of a body that was not asked for", post + "Content-Length: 1048577\r\nExpect: 100-continue\r\n\r\n", "413", false},
		{"create in place of a small body that was not asked for", "POST /plants HTTP/1.1\r\nHost: x\r\nContent-Length: 19\r\nExpect: 100-continue\r\n\r\n", "401", false},
		{"upgrade", get + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", "200", true},
		{"empty lines before", "\r\n\r\n" + get + "\r\n", "400", false},
		{"create behind the end of the connection", get + "Connection: close\r\n\r\n", "200", false},
	} {
		hidden := plantstore.ID(1000 + i)
		behind := rawRequest("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"behind"}`, hidden))
		request := strings.Replace(tt.request, "BEHIND", strconv.Itoa(len(behind)), 1)
		answers, closes := s.exchange(t, request+behind)
		want, status := tt.want, 404
		if tt.next {
			want, status = want+" 200", 200
		}
		if answers != want {
			t.Errorf("%s: answered %s, want %s", tt.name, answers, want)
		}
		if got, _ := s.call(bootstrap, "GET", fmt.Sprint("/plants/", hidden), ""); got != status {
			t.Errorf("%s: the plant of the create behind it is answered %d, want %d", tt.name, got, status)
		}
		if !tt.next && !closes && !strings.Contains(tt.request, "BEHIND") {
			t.Errorf("%s: the connection does not end", tt.name)
		}
	}
}

// exchange sends the bytes and returns the statuses of all answers, and whether the
// last one says that the connection ends.
func (s *server) exchange(t *testing.T, request string) (statuses string, closes bool) {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	var all []string
	for in := bufio.NewReader(conn); ; {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return strings.Join(all, " "), closes
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
		all, closes = append(all, strconv.Itoa(res.StatusCode)), res.Close
	}
}
