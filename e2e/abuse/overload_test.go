//go:build torture

package abuse

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore"
	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// maxOverloaded is the maximum resident memory of an overloaded server, in bytes. It has
// thousands of connections.
const maxOverloaded = 512 << 20

// load is clients that create plants as fast as they get responses, for some time.
// They ignore Retry-After unless retryAfter is set.
type load struct {
	*harness.Server
	maxMemory  int64
	retryAfter bool // clients honour it
	end        time.Time

	mu              sync.Mutex // guards what follows
	acked           map[plantstore.ID]bool
	served, refused []time.Duration // how long the responses took
}

func newLoad(s *harness.Server, maxMemory int64) *load {
	return &load{Server: s, maxMemory: maxMemory, acked: make(map[plantstore.ID]bool)}
}

func (l *load) over() bool { return time.Now().After(l.end) }

// record records the response to a create. It must be 200, or 503 with Retry-After.
func (l *load) record(id plantstore.ID, status int, retryAfter string, took time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case status == 200:
		l.acked[id] = true
		l.served = append(l.served, took)
	case status == 503 && retryAfter != "":
		l.refused = append(l.refused, took)
	default:
		return fmt.Errorf("plant %d got %d with Retry-After %q", id, status, retryAfter)
	}
	return nil
}

// wait waits as Retry-After says and up to a second more, so that clients spread out,
// but not beyond the end of the load.
func (l *load) wait(retryAfter string) error {
	seconds, err := strconv.Atoi(retryAfter)
	if err != nil {
		return err
	}
	time.Sleep(min(time.Duration(seconds)*time.Second+rand.N(time.Second), time.Until(l.end)))
	return nil
}

// run has n clients do the work for some time. Then the server must serve again, have
// stayed within its memory, and have all that it acknowledged. It returns the rate of
// creates served.
func (l *load) run(t *testing.T, name string, n int, duration time.Duration, work func(client int) error) float64 {
	t.Helper()
	began := time.Now()
	l.end = began.Add(duration)
	harness.Parallel(t, n, work)
	rate := float64(len(l.served)) / time.Since(began).Seconds()
	if len(l.served) == 0 {
		t.Errorf("%s: nothing was served", name)
	}
	began = time.Now()
	testenv.Eventually(t, func() error {
		if status, body := l.Call(harness.Token, "POST", "/plants", `{"id":-1,"name":"after the load"}`); status != 200 {
			return fmt.Errorf("a create after the load got %d %s", status, body)
		}
		return nil
	})
	recovery, peak := time.Since(began), l.Memory("VmHWM")
	harness.Report(t, "%s: %.0f served a second, %s; %d refused, %s; recovered after %v; peak memory %d MB", name, rate,
		latencies(l.served), len(l.refused), latencies(l.refused), recovery, peak>>20)
	if peak > l.maxMemory {
		t.Errorf("the server had %d MB resident, at most %d are allowed", peak>>20, l.maxMemory>>20)
	}
	l.verify(t)
	return rate
}

// verify checks that everything that was acknowledged is there. It does not decode the
// plants, which are many or large.
func (l *load) verify(t *testing.T) {
	t.Helper()
	status, export := l.Call(harness.Token, "GET", "/plants", "", "Accept", "application/x-ndjson")
	if status != 200 {
		t.Fatalf("export: %d", status)
	}
	known := len(l.acked)
	for line := range strings.Lines(export) {
		number, _, _ := strings.Cut(strings.TrimPrefix(line, `{"id":`), ",")
		id, err := strconv.ParseInt(number, 10, 64)
		if err != nil || !strings.HasSuffix(line, "\"}\n") {
			t.Fatalf("the export has the line %.60q", line)
		}
		delete(l.acked, plantstore.ID(id))
	}
	if len(l.acked) > 0 {
		t.Errorf("of %d acknowledged plants, %d are lost", known, len(l.acked))
	}
}

// create sends creates on a connection until the load is over. Clients that ignore
// Retry-After pipeline them, so that sending costs less than serving.
func (l *load) create(client int) error {
	conn, err := net.Dial("tcp", l.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	burst := plantstore.ID(8)
	if l.retryAfter {
		burst = 1
	}
	in := bufio.NewReader(conn)
	for next := plantstore.ID(client) << 32; !l.over(); next += burst {
		conn.SetDeadline(time.Now().Add(time.Minute))
		var out bytes.Buffer
		for id := next; id < next+burst; id++ {
			out.WriteString(rawRequest("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"plant %d"}`, id, id)))
		}
		began := time.Now()
		if _, err := conn.Write(out.Bytes()); err != nil {
			return err
		}
		for id := next; id < next+burst; id++ {
			status, retryAfter, err := skimResponse(in)
			if err != nil {
				return err
			}
			now := time.Now()
			if err := l.record(id, status, retryAfter, now.Sub(began)); err != nil {
				return err
			}
			if l.retryAfter && status == 503 {
				if err := l.wait(retryAfter); err != nil {
					return err
				}
			}
			began = now // the server starts a request when the previous one is done
		}
	}
	return nil
}

// With the default queue the number of connections bounds what is queued, and none is
// refused. With a short queue most are, and the rate depends on whether they wait.
func TestOverloadedServerLosesNothing(t *testing.T) {
	harness.NeedProc(t)
	many := allowFiles(t, 4000)
	short := []string{"--max-queue", strconv.Itoa(many / 8)}
	rates := map[bool]float64{} // with 64 clients, by retryAfter
	for _, tt := range []struct {
		name       string
		clients    int
		flags      []string
		retryAfter bool
		refuses    bool
	}{
		{"peak", 64, nil, false, false},
		{"many connections", many, nil, false, false},
		{"short queue", many, short, false, true},
		{"peak, Retry-After honoured", 64, nil, true, false},
		{"short queue, Retry-After honoured", many, short, true, true},
	} {
		l := newLoad(harness.Start(t, tt.flags...), maxOverloaded)
		l.retryAfter = tt.retryAfter
		rate := l.run(t, fmt.Sprintf("%s, %d clients", tt.name, tt.clients), tt.clients, 20*time.Second, l.create)
		if (len(l.refused) > 0) != tt.refuses {
			t.Errorf("%s: %d were refused", tt.name, len(l.refused))
		}
		if tt.clients == 64 {
			rates[tt.retryAfter] = rate
		}
		harness.Report(t, "%s: %.2f of the peak rate", tt.name, rate/rates[tt.retryAfter])
		l.Stop()
	}
}

// Many clients send the largest bodies that are allowed. The first bodies are
// incomplete until the server has refused one, as it must, because it limits how many
// it receives concurrently.
func TestManyLargeBodiesAreRefused(t *testing.T) {
	harness.NeedProc(t)
	l := newLoad(harness.Start(t), maxMemory)
	name := strings.Repeat("n", 1<<20-100)
	refused := make(chan struct{})
	closeRefused := sync.OnceFunc(func() { close(refused) })
	l.run(t, "bodies of 1 MiB", 100, 5*time.Second, func(client int) error {
		for id := plantstore.ID(client) << 32; !l.over(); id++ {
			status, err := l.createLarge(id, name, refused)
			if err != nil {
				return err
			}
			if status == 503 {
				closeRefused()
			}
		}
		return nil
	})
	if len(l.refused) == 0 {
		t.Error("none was refused")
	}
}

// createLarge creates a plant on a new connection. It withholds the end of the body
// until the channel is closed, or the server has responded.
func (l *load) createLarge(id plantstore.ID, name string, hold <-chan struct{}) (int, error) {
	conn, err := net.Dial("tcp", l.Addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	var status int
	var retryAfter string
	responded := make(chan struct{})
	go func() {
		defer close(responded)
		status, retryAfter, err = skimResponse(bufio.NewReader(conn))
	}()
	request := rawRequest("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"`, id)+name+`"}`)
	began, end := time.Now(), len(request)-1
	// A write fails if the server refuses the body and closes the connection. Its response
	// can still be read.
	_, _ = io.WriteString(conn, request[:end])
	select {
	case <-hold:
	case <-responded:
	}
	_, _ = io.WriteString(conn, request[end:])
	<-responded
	if err != nil {
		return 0, err
	}
	return status, l.record(id, status, retryAfter, time.Since(began))
}
