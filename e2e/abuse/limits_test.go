package abuse

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore"
	"plantstore/e2e/harness"
)

// hammer has clients send requests, many before they read a response, for some time. It
// returns how many responses had each status.
func (a *target) hammer(t *testing.T, clients int, duration time.Duration, request func() string) map[int]int {
	t.Helper()
	const burst = 50
	end := time.Now().Add(duration)
	var mu sync.Mutex
	statuses := map[int]int{}
	harness.Parallel(t, clients, func(int) error {
		conn, err := a.dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(end)
		in := bufio.NewReader(conn)
		for time.Now().Before(end) {
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
	return statuses
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
	a := startTarget(t)
	duration := time.Duration(harness.Times(3, 30)) * time.Second
	for name, token := range map[string]func() string{
		"unknown": plantstore.NewSecret, "malformed": malformed,
		"foreign": func() string { return fmt.Sprintf("%016x-%016x", rand.Uint64(), rand.Uint64()) },
	} {
		a.withProber(t, func() {
			statuses := a.hammer(t, 8, duration, func() string {
				return "GET /plants/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token() + "\r\n\r\n"
			})
			reportHammer(t, name+" tokens", statuses, duration, 401, 429)
		})
	}
}

// A rate limit holds back a token that sends as fast as it can.
func TestGreedyTokenIsHeldBack(t *testing.T) {
	a := startTarget(t, "--rate-limit", "3000/s,burst=3000")
	greedy := strings.TrimSpace(a.Command("token", "create", "--name", "greedy"))
	duration := time.Duration(harness.Times(3, 30)) * time.Second
	a.withProber(t, func() {
		statuses := a.hammer(t, 64, duration, func() string {
			return "GET /plants/-1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + greedy + "\r\n\r\n"
		})
		reportHammer(t, "a greedy token", statuses, duration, 200, 429)
	})
}
