package abuse

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/e2e/harness"
)

// Chunked bodies of which one byte has arrived do not count as large.
func TestStalledChunkedBodiesRefuseNoOthers(t *testing.T) {
	const bodies = 64
	harness.NeedProc(t)
	s := harness.Start(t)
	head := request(harness.Token, "POST", "/plants", "Content-Type: application/json", "Transfer-Encoding: chunked")
	for range bodies {
		conn, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, head+"1\r\n{\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	// The server may not have started on all of them when the first is created.
	var took []time.Duration
	for id := 1; id <= harness.Times(50, 500); id++ {
		conn, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		began := time.Now()
		conn.SetDeadline(began.Add(time.Minute))
		plant := fmt.Sprintf(`{"id":%d,"name":"chunked"}`, id)
		if _, err := fmt.Fprintf(conn, "%s%x\r\n%s\r\n0\r\n\r\n", head, len(plant), plant); err != nil {
			t.Fatal(err)
		}
		status, body, _, err := readResponse(bufio.NewReader(conn))
		if err != nil || status != 200 {
			t.Errorf("create %d, next to %d chunked bodies of one byte, got %d %s, %v", id, bodies, status, body, err)
			break
		}
		took = append(took, time.Since(began))
	}
	row{
		attack: fmt.Sprintf("%d chunked bodies that stall after one byte", bodies),
		during: fmt.Sprintf("%d chunked creates, %s", len(took), latencies(took)),
		memory: s.Memory("VmHWM"),
	}.report(t)
}

// slowReader reads an export at 75 KB a second, as long as the server sends it.
type slowReader struct {
	conn *net.TCPConn
	body io.ReadCloser
}

// newSlowReader requests an export. It returns nil if the server refuses it.
func (a *target) newSlowReader(token string) (*slowReader, error) {
	conn, err := a.dial()
	if err != nil {
		return nil, err
	}
	if err := conn.SetReadBuffer(64 << 10); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, request(token, "GET", "/plants", "Accept: application/x-ndjson")); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	switch {
	case err == nil && res.StatusCode == 200:
		return &slowReader{conn, res.Body}, nil
	case err == nil && res.StatusCode != 503:
		err = fmt.Errorf("an export got %d", res.StatusCode)
	}
	return nil, errors.Join(err, conn.Close())
}

// read reads slowly until closed is closed, and then what is left. The end must be
// missing.
func (r *slowReader) read(closed <-chan struct{}) error {
	defer r.conn.Close()
	defer r.body.Close()
	const part, pause = 7500, 100 * time.Millisecond
	pace := time.NewTicker(pause)
	defer pace.Stop()
	for {
		_, err := io.CopyN(io.Discard, r.body, part)
		switch {
		case err == io.EOF:
			return errors.New("a slow reader was served to the end")
		case errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case err != nil:
			return nil // cut off
		}
		select {
		case <-closed:
		case <-pace.C:
		}
	}
}

// Clients read exports and send imports, slowly on purpose, but without stopping.
// Others are served in the meantime, and in the end the server gives up on the slow
// ones.
func TestSlowStreamsAreCutOff(t *testing.T) {
	const plants, length = 400, 64 << 10
	const exports, imports = 8, 8
	// An export of another token must not be cut off because the machine is busy.
	a := startTarget(t, timeouts{request: 10 * time.Second, export: 10 * time.Second})
	var lines strings.Builder
	name := strings.Repeat("n", length)
	for id := range plants {
		fmt.Fprintf(&lines, "{\"id\":%d,\"name\":\"%s\"}\n", id+1, name)
	}
	a.Import(lines.String())
	a.Stop()
	a.Run()
	slow := a.Command("token", "create", "--name", "slow")
	quietGets := a.probeReads(t, "/plants/7", harness.Times(100, 2000), noTime)
	quietLists := a.probeReads(t, "/plants?limit=10", harness.Times(100, 2000), noTime)

	var lists []time.Duration
	var started, ninth int
	var ninthTook, exportsTook, importsTook time.Duration
	gets := a.probeReads(t, "/plants/7", 1, func() (from, to time.Time) {
		lists = a.probeReads(t, "/plants?limit=10", 1, func() (time.Time, time.Time) {
			from = time.Now()
			var ended sync.WaitGroup
			var readers []*slowReader
			var conns []*net.TCPConn
			for range exports {
				r, err := a.newSlowReader(slow)
				if err != nil {
					t.Error(err)
				}
				if r != nil {
					readers, conns = append(readers, r), append(conns, r.conn)
				}
			}
			if started = len(readers); started == 0 {
				t.Error("no export has begun")
			}
			closed := make(chan struct{})
			ended.Go(func() {
				harness.Parallel(t, started, func(i int) error { return readers[i].read(closed) })
			})
			ended.Go(func() {
				defer close(closed)
				a.awaitClosed(t, conns)
				exportsTook = time.Since(from)
			})
			ended.Go(func() {
				head := request(slow, "POST", "/plants/import", "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked")
				harness.Parallel(t, imports, func(int) error {
					response, err := a.drip(head, "1\r\n \r\n")
					if err == nil && !strings.HasPrefix(response, "HTTP/1.1 408 ") && !strings.HasPrefix(response, "HTTP/1.1 503 ") {
						err = fmt.Errorf("a trickling import got %q, want 408 or 503", response)
					}
					return err
				})
				importsTook = time.Since(from)
			})
			began := time.Now()
			one := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
			res, err := harness.Send(one, harness.Token, "GET", a.API+"/plants", "", "Accept", "application/x-ndjson")
			ninth, ninthTook = res.Status, time.Since(began)
			if err != nil || ninth != 200 && ninth != 503 {
				t.Errorf("an export of another token got %d after %v, %v", ninth, ninthTook, err)
			}
			ended.Wait()
			to = time.Now()
			return from, to
		})
		return from, to
	})
	slower := float64(percentile(gets, 99)) / float64(percentile(quietGets, 99))
	row{
		attack: fmt.Sprintf("%d exports read at 75 KB/s, %d imports that trickle", exports, imports),
		quiet:  fmt.Sprintf("get %s; list %s", latencies(quietGets), latencies(quietLists)),
		during: fmt.Sprintf("get %s, p99 %.1f × quiet; list %s; %d exports begun; export of another token: %d after %v; slow exports over after %.1f s, imports after %.1f s",
			latencies(gets), slower, latencies(lists), started, ninth, ninthTook.Round(time.Millisecond), exportsTook.Seconds(), importsTook.Seconds()),
		memory: a.Memory("VmHWM"),
		slower: slower,
	}.report(t)
}
