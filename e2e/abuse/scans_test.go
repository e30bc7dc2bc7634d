//go:build torture

package abuse

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/e2e/harness"
)

// startFilled starts a server with the default flags on a store of n small plants.
func startFilled(t *testing.T, db string, n int) *target {
	t.Helper()
	harness.NeedProc(t)
	a := &target{Server: harness.StartOn(t, db)}
	var lines strings.Builder
	for id := 1; id <= n; id++ {
		fmt.Fprintf(&lines, "{\"id\":%d,\"name\":\"plant number %d\"}\n", id, id)
	}
	a.Import(lines.String())
	a.Stop() // the import's memory must not count
	a.Run()
	return a
}

// search is the most expensive read: it finds nothing among all plants.
const search = "/plants?q=zzzz"

// outcome is the status of one response, and when its request was sent.
type outcome struct {
	sent   time.Time
	status int
}

// floodSearches searches on several connections, without a pause between a response
// and the next request, until done returns true for a connection.
func (a *target) floodSearches(t *testing.T, token string, connections int, done func(outcome) bool) {
	t.Helper()
	harness.Parallel(t, connections, func(int) error {
		conn, err := net.Dial("tcp", a.Addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for {
			last := outcome{sent: time.Now()}
			conn.SetDeadline(last.sent.Add(2 * time.Minute))
			if _, err := io.WriteString(conn, request(token, "GET", search)); err != nil {
				return err
			}
			if last.status, _, err = skimResponse(in); err != nil {
				return err
			}
			if last.status != 200 && last.status != 503 && last.status != 401 && last.status != 429 {
				return fmt.Errorf("a search got %d", last.status)
			}
			if done(last) {
				return nil
			}
		}
	})
}

const (
	// revocation is the promise: the maximum time that a revoked token still works.
	revocation = 2 * time.Second
	// busyMargin is for a machine that runs other tests at the same time.
	busyMargin = time.Second
)

func TestSearchFloodIsContained(t *testing.T) {
	eachStore(t, func(t *testing.T, db string) {
		const plants = 300_000
		a := startFilled(t, db, plants)
		t.Run("other tokens are served", func(t *testing.T) { testReaderFlood(t, a, plants) })
		t.Run("revoked token is refused", func(t *testing.T) { testRevokedFlood(t, a, plants) })
	})
}

// testReaderFlood: a token that may only read floods the server with searches. The
// gets and searches of other tokens, and /readyz, still work.
func testReaderFlood(t *testing.T, a *target, plants int) {
	const connections = 100
	secret := a.Command("token", "create", "--name", "reader", "--scopes", "plants:read")
	searchOnce := func() (took time.Duration, refused int) {
		for began := time.Now(); ; refused++ {
			res, err := harness.Send(http.DefaultClient, harness.Token, "GET", a.API+search, "")
			switch {
			case err == nil && res.Status == 200:
				return time.Since(began), refused
			case err != nil || res.Status != 503 || time.Since(began) > probeTimeout:
				t.Errorf("for %v the search of another token got %d %s, %v", time.Since(began), res.Status, res.Body, err)
				return time.Since(began), refused
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	quietSearch, _ := searchOnce()
	quiet := a.probeReads(t, "/plants/7", 2000, noTime)

	var ready []time.Duration
	var duringSearch time.Duration
	var duringRefused int
	var searched, refused atomic.Int64
	during := a.probeReads(t, "/plants/7", 1, func() (from, to time.Time) {
		ready = a.probeReads(t, "/readyz", 1, func() (time.Time, time.Time) {
			defer lowerPriority(t)()
			const ends = 20 * time.Second
			from = time.Now()
			to = from.Add(ends)
			var honest sync.WaitGroup
			var found atomic.Bool
			honest.Go(func() {
				time.Sleep(ends / 3)
				duringSearch, duringRefused = searchOnce()
				found.Store(true)
			})
			a.floodSearches(t, secret, connections, func(got outcome) bool {
				if got.status == 503 {
					refused.Add(1)
				} else {
					searched.Add(1)
				}
				return time.Now().After(to) && found.Load()
			})
			honest.Wait()
			return from, to
		})
		return from, to
	})
	http.DefaultClient.CloseIdleConnections()
	slower := float64(percentile(during, 99)) / float64(percentile(quiet, 99))
	row{
		attack: fmt.Sprintf("%d searches at once over %d plants by a read-only token", connections, plants),
		quiet:  fmt.Sprintf("get %s; search %v", latencies(quiet), quietSearch.Round(time.Millisecond)),
		during: fmt.Sprintf("get %s, p99 %.1f × quiet; /readyz %s; search of another token %v after %d refusals; flooder: %d searches, %d refused",
			latencies(during), slower, latencies(ready),
			duringSearch.Round(time.Millisecond), duringRefused, searched.Load(), refused.Load()),
		memory: a.Memory("VmHWM"),
		slower: slower,
	}.report(t)
}

// testRevokedFlood: a token floods the server with searches and is revoked in the
// meantime. Two seconds later it is refused, however busy the server is.
func testRevokedFlood(t *testing.T, a *target, plants int) {
	const connections = 150
	a.resetPeak(t)
	secret := a.Command("token", "create", "--name", "flooder")
	create := func(id int) (outcome, error) {
		sent := time.Now()
		res, err := harness.Send(http.DefaultClient, secret, "POST", a.API+"/plants", fmt.Sprintf(`{"id":%d,"name":"flooder"}`, -id))
		return outcome{sent, res.Status}, err
	}
	if got, err := create(1); err != nil || got.status != 200 {
		t.Fatalf("a create with the new token got %d, %v", got.status, err)
	}

	var over atomic.Bool
	var mu sync.Mutex // guards revoked, accepted, refused
	var revoked time.Time
	var accepted, refused time.Duration // from there to the last request that was accepted, and to the first 401 to a create
	record := func(got outcome) {
		mu.Lock()
		defer mu.Unlock()
		if !revoked.IsZero() && got.status == 200 {
			accepted = max(accepted, got.sent.Sub(revoked))
		}
	}
	var flood sync.WaitGroup
	flood.Go(func() {
		a.floodSearches(t, secret, connections, func(got outcome) bool {
			record(got)
			return got.status == 401 || over.Load()
		})
	})
	time.Sleep(10 * time.Second) // the flood saturates the server
	a.Command("token", "revoke", "flooder")
	mu.Lock()
	revoked = time.Now()
	mu.Unlock()
	// The flooder continues by creating plants, several at a time, because each may
	// take long. It ends when the promise has been kept.
	harness.Parallel(t, 4, func(worker int) error {
		for n := worker + 2; time.Since(revoked) < time.Minute; n += 4 {
			got, err := create(n)
			if err != nil {
				return err
			}
			record(got)
			if since := time.Since(revoked); got.status == 401 {
				mu.Lock()
				refused = cmp.Or(refused, since)
				mu.Unlock()
				if since > revocation+busyMargin {
					return nil
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	})
	over.Store(true)
	flood.Wait()
	http.DefaultClient.CloseIdleConnections()
	if accepted > revocation+busyMargin {
		t.Errorf("the token was accepted %v after it was revoked", accepted)
	}
	if refused == 0 || refused > revocation+busyMargin {
		t.Errorf("the first create was refused with 401 %v after the token was revoked (0s: never)", refused)
	}
	row{
		attack: fmt.Sprintf("%d searches at once over %d plants by a token that is revoked", connections, plants),
		during: fmt.Sprintf("last request accepted %.1f s after, first create refused with 401 %.1f s after", accepted.Seconds(), refused.Seconds()),
		memory: a.Memory("VmHWM"),
	}.report(t)
}
