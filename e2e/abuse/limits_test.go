package abuse

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/e2e/harness"
)

// hammer has clients send requests, many before they read a response, for some time, and on a
// busy machine until each of the statuses was seen. It returns how many responses had each
// status, and how long that took.
func (a *target) hammer(t *testing.T, clients int, duration time.Duration, request func() string, want ...int) (map[int]int, time.Duration) {
	t.Helper()
	const burst = 50
	began := time.Now()
	var mu sync.Mutex // guards statuses, conns
	statuses := map[int]int{}
	var conns []*net.TCPConn
	var over atomic.Bool
	tryEnd := func() {
		mu.Lock()
		defer mu.Unlock()
		missing := slices.ContainsFunc(want, func(status int) bool { return statuses[status] == 0 })
		if missing && time.Since(began) < duration+time.Minute {
			return
		}
		over.Store(true)
		for _, conn := range conns {
			conn.SetDeadline(time.Now())
		}
	}
	var ending sync.WaitGroup
	ending.Go(func() {
		for time.Sleep(duration); !over.Load(); time.Sleep(10 * time.Millisecond) {
			tryEnd()
		}
	})
	harness.Parallel(t, clients, func(int) error {
		conn, err := a.dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		mu.Lock()
		conns = append(conns, conn)
		mu.Unlock()
		in := bufio.NewReader(conn)
		for !over.Load() {
			var out strings.Builder
			for range burst {
				out.WriteString(request())
			}
			if _, err = io.WriteString(conn, out.String()); err != nil {
				break
			}
			for range burst {
				var status int
				if status, _, err = skimResponse(in); err != nil {
					break
				}
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			}
			if err != nil {
				break
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
		return err
	})
	ending.Wait()
	return statuses, time.Since(began)
}

// reportHammer reports the statuses and fails unless they are those wanted.
func reportHammer(t *testing.T, name string, statuses map[int]int, duration time.Duration, want ...int) {
	t.Helper()
	total := 0
	for _, n := range statuses {
		total += n
	}
	for _, status := range want {
		if statuses[status] == 0 {
			t.Errorf("%s: no response had the status %d: %v", name, status, statuses)
		}
		delete(statuses, status)
	}
	if len(statuses) > 0 {
		t.Errorf("%s: some responses had the statuses %v", name, statuses)
	}
	harness.Report(t, "%s: %.0f responses a second", name, float64(total)/duration.Seconds())
}

// The default limit holds back an address that guesses tokens. A valid token from the
// same address is served.
func TestGuessersAreHeldBack(t *testing.T) {
	a := startTarget(t, timeouts{})
	duration := time.Duration(harness.Times(3, 30)) * time.Second
	for name, token := range map[string]func() string{
		"unknown": plantstore.NewSecret, "malformed": malformed,
		"foreign": func() string { return fmt.Sprintf("%016x-%016x", rand.Uint64(), rand.Uint64()) },
	} {
		a.withProber(t, func() {
			statuses, took := a.hammer(t, 8, duration, func() string {
				return "GET /plants/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token() + "\r\n\r\n"
			}, 401, 429)
			reportHammer(t, name+" tokens", statuses, took, 401, 429)
		})
	}
}
