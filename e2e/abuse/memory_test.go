//go:build torture

package abuse

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// startLarge starts a server on a store of n plants with names of almost 1 MiB, and a
// small one with the id 0.
func startLarge(t *testing.T, db string, n int) *target {
	t.Helper()
	harness.NeedProc(t)
	a := &target{Server: harness.StartOn(t, db)}
	a.Import("{\"id\":0,\"name\":\"small\"}\n")
	name := strings.Repeat("n", 1<<20-100)
	for id := 1; id <= n; {
		var lines strings.Builder
		for ; id <= n && lines.Len() < 16<<20; id++ {
			fmt.Fprintf(&lines, "{\"id\":%d,\"name\":\"%s\"}\n", id, name)
		}
		a.Import(lines.String())
	}
	a.Stop() // the import's memory must not count
	a.Run()
	return a
}

// page is the response to a list, of which only the plants are counted.
type page struct {
	status, plants int
	next           string // URL of the next page, if there is one
	took           time.Duration
}

// objectCounter counts the objects in JSON whose strings have no braces.
type objectCounter int

func (c *objectCounter) Write(p []byte) (int, error) {
	*c += objectCounter(bytes.Count(p, []byte("{")))
	return len(p), nil
}

func readPage(url string) (p page, err error) {
	began := time.Now()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return p, err
	}
	req.Header.Set("Authorization", "Bearer "+harness.Token)
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return p, err
	}
	defer res.Body.Close()
	var count objectCounter
	_, err = io.Copy(&count, res.Body)
	if link, ok := strings.CutSuffix(res.Header.Get("Link"), `>; rel="next"`); ok {
		p.next = strings.TrimPrefix(link, "<")
	}
	p.status, p.plants, p.took = res.StatusCode, int(count), time.Since(began)
	return p, err
}

// walk follows the links from a page to the last one, and returns how many plants and
// pages there are.
func walk(t *testing.T, url string) (plants, pages int) {
	t.Helper()
	for ; url != ""; pages++ {
		p, err := readPage(url)
		if err != nil || p.status != 200 {
			t.Fatalf("GET %s: %d, %v", url, p.status, err)
		}
		plants, url = plants+p.plants, p.next
	}
	return plants, pages
}

// A page is limited by its bytes, not only by the number of its plants.
func TestReadsOfLargePlantsTakeLittleMemory(t *testing.T) {
	eachStore(t, func(t *testing.T, db string) {
		const n = 400
		a := startLarge(t, db, n)
		quiet := a.probeReads(t, "/plants/0", 2000, noTime)
		for _, attack := range []struct {
			name, path string
			plants     int
		}{
			{"lists", "/plants?limit=1000", n + 1},
			{"searches", "/plants?limit=1000&q=zzzz", 0},
		} {
			t.Run(attack.name, func(t *testing.T) {
				var slowest time.Duration
				during := a.probeReads(t, "/plants/0", 1, func() (from, to time.Time) {
					from = time.Now()
					var mu sync.Mutex // guards slowest
					harness.Parallel(t, 4, func(int) error {
						p, err := readPage(a.API + attack.path)
						if err == nil && p.status != 200 && p.status != 503 {
							err = fmt.Errorf("%s got %d", attack.name, p.status)
						}
						mu.Lock()
						defer mu.Unlock()
						slowest = max(slowest, p.took)
						return err
					})
					return from, time.Now()
				})
				memory := a.Memory("VmHWM")
				plants, pages := walk(t, a.API+attack.path)
				if plants != attack.plants {
					t.Errorf("all pages of %s have %d plants, want %d", attack.path, plants, attack.plants)
				}
				slower := float64(percentile(during, 99)) / float64(percentile(quiet, 99))
				row{
					attack: fmt.Sprintf("4 %s at once, %d names of 1 MiB", attack.name, n),
					quiet:  "get " + latencies(quiet),
					during: fmt.Sprintf("get %s, p99 %.1f × quiet; the slowest took %v; %d pages in all", latencies(during), slower, slowest.Round(time.Millisecond), pages),
					memory: memory,
					slower: slower,
				}.report(t)
			})
			a.Stop() // the next attack starts with a small heap
			a.Run()
		}
	})
}

// Every line of the imports is wrong, and short, so that the errors are larger than the
// lines.
func TestImportsOfWrongLinesTakeLittleMemory(t *testing.T) {
	const imports, lines = 20, 200_000
	a := startTarget(t, timeouts{})
	body := strings.Repeat("x\n", lines)
	var mu sync.Mutex // guards statuses
	statuses := make(map[int]int)
	began := time.Now()
	harness.Parallel(t, imports, func(int) error {
		res, err := harness.Send(http.DefaultClient, harness.Token, "POST", a.API+"/plants/import", body, "Content-Type", "application/x-ndjson")
		if err != nil {
			return err
		}
		mu.Lock()
		statuses[res.Status]++
		mu.Unlock()
		switch {
		case res.Status == 503 && res.Header.Get("Retry-After") != "":
		case res.Status != 200 || !strings.Contains(res.Body, `"failed":`+strconv.Itoa(lines)):
			return fmt.Errorf("an import got %d %.200s", res.Status, res.Body)
		}
		return nil
	})
	took := time.Since(began)
	http.DefaultClient.CloseIdleConnections()
	if statuses[200] == 0 {
		t.Error("no import was served")
	}
	row{
		attack: fmt.Sprintf("%d imports at once of %d wrong lines", imports, lines),
		during: fmt.Sprintf("%d served, %d refused, in %v", statuses[200], statuses[503], took.Round(time.Millisecond)),
		memory: a.Memory("VmHWM"),
	}.report(t)
}

// Imports send almost a window each, and then nothing.
func TestStalledImportsTakeLittleMemory(t *testing.T) {
	const imports, size = 60, 15 << 20
	harness.NeedProc(t)
	a := harness.Start(t)
	release := make(chan struct{})
	var sent, ended sync.WaitGroup
	var mu sync.Mutex // guards refused, taken
	refused, taken := 0, 0
	sent.Add(imports)
	ended.Go(func() {
		harness.Parallel(t, imports, func(i int) error {
			conn, err := net.Dial("tcp", a.Addr)
			if err != nil {
				sent.Done()
				return err
			}
			defer conn.Close()
			status, n := sendImport(conn, i, size)
			sent.Done()
			<-release
			mu.Lock()
			defer mu.Unlock()
			taken += n
			switch status {
			case 0, 408:
			case 503:
				refused++
			default:
				return fmt.Errorf("an incomplete import got %d", status)
			}
			return nil
		})
	})
	sent.Wait()
	began := time.Now()
	create, _ := a.Call(harness.Token, "POST", "/plants", `{"id":-1,"name":"next to them"}`)
	took := time.Since(began)
	if create != 200 {
		t.Errorf("a create next to stalled imports got %d", create)
	}
	memory := a.Memory("VmHWM")
	close(release)
	ended.Wait()
	testenv.Eventually(t, func() error { // the server notices that the others are disconnected
		status, body := a.Call(harness.Token, "POST", "/plants/import", "{\"id\":-2,\"name\":\"after\"}\n", "Content-Type", "application/x-ndjson")
		if status != 200 {
			return fmt.Errorf("an import after the attack got %d %s", status, body)
		}
		return nil
	})
	http.DefaultClient.CloseIdleConnections()
	row{
		attack: fmt.Sprintf("%d imports at once that send 15 MB and stall", imports),
		during: fmt.Sprintf("%d MB sent, %d imports refused; a create took %v", taken>>20, refused, took.Round(time.Millisecond)),
		memory: memory,
	}.report(t)
}

// stuckAfter is how long the server may read nothing before the client stops sending.
const stuckAfter = 2 * time.Second

// sendImport sends size bytes of an import that is one byte longer, until it gets a
// response or the server stops reading. It returns the status, or 0, and how many
// bytes it sent.
func sendImport(conn net.Conn, client, size int) (status, taken int) {
	responded := make(chan int, 1)
	go func() { // ends with the connection
		status, _, _, _ := readResponse(bufio.NewReader(conn))
		responded <- status
	}()
	_, err := io.WriteString(conn, request(harness.Token, "POST", "/plants/import",
		"Content-Type: application/x-ndjson", "Content-Length: "+strconv.Itoa(size+1)))
	name := strings.Repeat("n", 1000)
	for id := client << 32; err == nil && taken < size; id++ {
		line := fmt.Sprintf("{\"id\":%d,\"name\":\"%s\"}\n", id, name)
		conn.SetWriteDeadline(time.Now().Add(stuckAfter))
		var n int
		n, err = io.WriteString(conn, line[:min(len(line), size-taken)])
		taken += n
	}
	select {
	case status = <-responded:
	case <-time.After(100 * time.Millisecond): // it stalls
	}
	return status, taken
}

// A response does not grow with the number of errors in a request.
func TestManyErrorsGiveAShortResponse(t *testing.T) {
	const parameters, limit = 3000, 8 << 10
	harness.NeedProc(t)
	s := harness.Start(t)
	var query strings.Builder
	for i := range parameters {
		fmt.Fprintf(&query, "&p%d=1", i)
	}
	status, body := s.Call(harness.Token, "GET", "/plants?"+query.String()[1:], "")
	http.DefaultClient.CloseIdleConnections()
	if status != 400 {
		t.Errorf("%d unknown parameters got %d, want 400", parameters, status)
	}
	if len(body) >= limit {
		t.Errorf("the response has %d bytes, want less than %d", len(body), limit)
	}
	row{
		attack: fmt.Sprintf("%d unknown query parameters", parameters),
		during: fmt.Sprintf("%d bytes sent, %d received", query.Len(), len(body)),
		memory: s.Memory("VmHWM"),
	}.report(t)
}
