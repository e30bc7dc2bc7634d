package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore"
)

// mostOverloaded is what a server under too much load may have resident, in bytes.
// With large bodies it may have more: beside the queue's 64 MiB there are those on
// their way into it, which only the number of connections bounds.
const (
	mostOverloaded = 512 << 20
	mostWithBodies = 1 << 30
)

// press puts a load on a server. Who is served sends the next request at once; so
// does who is refused, unless the press is polite.
type press struct {
	*server
	most   int64 // bytes that the server may have resident
	polite bool  // who is refused waits for as long as Retry-After says
	end    time.Time

	mu              sync.Mutex // guards what follows
	acknowledged    map[plantstore.ID]bool
	served, refused []time.Duration // how long the answers took
}

func newPress(s *server, most int64) *press {
	return &press{server: s, most: most, acknowledged: make(map[plantstore.ID]bool)}
}

func (p *press) over() bool { return time.Now().After(p.end) }

// note remembers an answer to a create. It must be 200, or 503 with Retry-After.
func (p *press) note(id plantstore.ID, status int, retryAfter string, took time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case status == 200:
		p.acknowledged[id] = true
		p.served = append(p.served, took)
	case status == 503 && retryAfter != "":
		p.refused = append(p.refused, took)
	default:
		return fmt.Errorf("plant %d was answered %d with Retry-After %q", id, status, retryAfter)
	}
	return nil
}

// wait waits for as long as Retry-After says and up to a second more, so that not
// all come back in step, but not beyond the end of the press.
func (p *press) wait(retryAfter string) error {
	seconds, err := strconv.Atoi(retryAfter)
	if err != nil {
		return err
	}
	wait := time.Duration(seconds)*time.Second + rand.N(time.Second)
	time.Sleep(min(wait, time.Until(p.end)))
	return nil
}

// run has n callers do the work until it is over, and looks at what is left: the
// server must be small, and itself again soon, and have all that it acknowledged.
// It returns the rate of those served.
func (p *press) run(t *testing.T, what string, n int, while time.Duration, work func(caller int) error) float64 {
	t.Helper()
	began := time.Now()
	p.end = began.Add(while)
	all(t, n, work)
	rate := float64(len(p.served)) / time.Since(began).Seconds()
	p.reckon(t, fmt.Sprintf("%s: %.0f served a second", what, rate))
	return rate
}

// reckon looks at what the load has left of the server.
func (p *press) reckon(t *testing.T, what string) {
	t.Helper()
	recovery := p.recovery(t)
	peak := memory(t, p.cmd.Process.Pid, "VmHWM")
	t.Logf("%s, %s; %d refused, %s; recovery after %v; memory %d MB at most", what,
		latencies(p.served), len(p.refused), latencies(p.refused), recovery, peak>>20)
	if slowest := percentile(p.refused, 100); slowest > honestBound {
		t.Errorf("a refusal took %v", slowest)
	}
	if peak > p.most {
		t.Errorf("the server had %d MB resident, and may have %d", peak>>20, p.most>>20)
	}
	p.verify(t)
}

// recovery waits until a create is served and returns how long that took.
func (p *press) recovery(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		status, answer := p.call(bootstrap, "POST", "/plants", `{"id":-1,"name":"after the storm"}`)
		took := time.Since(began)
		if took > honestBound {
			t.Fatalf("%v after the load has ended, a create is answered %d %s", took, status, answer)
		}
		if status == 200 {
			return took
		}
	}
}

// verify looks for all that was acknowledged. It does not decode the plants, which
// are many or large.
func (p *press) verify(t *testing.T) {
	t.Helper()
	status, export := p.call(bootstrap, "GET", "/plants", "", "Accept", "application/x-ndjson")
	if status != 200 {
		t.Fatalf("export: %d", status)
	}
	known := len(p.acknowledged)
	for line := range strings.Lines(export) {
		number, _, _ := strings.Cut(strings.TrimPrefix(line, `{"id":`), ",")
		id, err := strconv.ParseInt(number, 10, 64)
		if err != nil || !strings.HasSuffix(line, "\"}\n") {
			t.Fatalf("the export has the line %.60q", line)
		}
		delete(p.acknowledged, plantstore.ID(id))
	}
	t.Logf("%d acknowledged, %d of them lost", known, len(p.acknowledged))
	if len(p.acknowledged) > 0 {
		t.Errorf("of %d acknowledged plants, %d are lost", known, len(p.acknowledged))
	}
}

// create sends creates on a connection until the press is over, some at once so that
// the load costs less than the work. Who is polite sends one at a time.
func (p *press) create(caller int) error {
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	burst := plantstore.ID(8)
	if p.polite {
		burst = 1
	}
	in := bufio.NewReader(conn)
	for next := plantstore.ID(caller) << 32; !p.over(); next += burst {
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
			status, retryAfter, err := skimAnswer(in)
			if err != nil {
				return err
			}
			now := time.Now()
			if err := p.note(id, status, retryAfter, now.Sub(began)); err != nil {
				return err
			}
			if p.polite && status == 503 {
				if err := p.wait(retryAfter); err != nil {
					return err
				}
			}
			began = now // the server begins with one when it is done with the one before
		}
	}
	return nil
}

// skimAnswer reads an answer and returns no more of it than a load needs.
func skimAnswer(in *bufio.Reader) (status int, retryAfter string, err error) {
	length := 0
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, "", err
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		switch {
		case first:
			status, err = strconv.Atoi(string(value[:min(3, len(value))]))
		case string(name) == "Content-Length:":
			length, err = strconv.Atoi(string(value))
		case string(name) == "Retry-After:":
			retryAfter = string(value)
		case len(name) == 0:
			_, err := in.Discard(length)
			return status, retryAfter, err
		}
		if err != nil {
			return 0, "", err
		}
	}
}

// TestOverload gives a server more than it can take. With its default limits the
// number of connections bounds what waits, and nobody is refused; with a short
// queue most are, and what is served depends on their manners.
func TestOverload(t *testing.T) {
	while := time.Duration(times(2, 20)) * time.Second
	most := allowFiles(t, times(1000, 4000))
	short := []string{"--max-queue", strconv.Itoa(most / 8)}
	rates := map[string]float64{}
	for _, tt := range []struct {
		name    string
		callers int
		flags   []string
		polite  bool
		refuses bool
	}{
		{"peak", 64, nil, false, false},
		{"many connections", most, nil, false, false},
		{"short queue", most, short, false, true},
		{"polite peak", 64, nil, true, false},
		{"polite, short queue", most, short, true, true},
	} {
		p := newPress(start(t, tt.flags...), mostOverloaded)
		p.polite = tt.polite
		rates[tt.name] = p.run(t, fmt.Sprintf("%s, %d callers", tt.name, tt.callers), tt.callers, while, p.create)
		if (len(p.refused) > 0) != tt.refuses {
			t.Errorf("%s: %d were refused", tt.name, len(p.refused))
		}
		p.stop()
	}
	for name, rate := range rates {
		t.Logf("%s: %.2f of the peak rate", name, rate/rates["peak"])
	}
	// How near the peak it stays is logged. Those who are refused come again at once,
	// on the processors that the server has too, so this asks for little. It may ask
	// for more where they wait.
	if rates["many connections"] < rates["peak"]/10 || rates["short queue"] < rates["peak"]/50 ||
		rates["polite, short queue"] < rates["polite peak"]*0.3 {
		t.Error("the server gives way under the load")
	}
}

// TestLargeBodies has many callers send the largest bodies there may be. The bound
// of the queue is that of its bytes then.
func TestLargeBodies(t *testing.T) {
	p := newPress(start(t), mostWithBodies)
	by := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: time.Minute}
	defer by.CloseIdleConnections()
	name := strings.Repeat("n", 1<<20-100)
	p.run(t, "bodies of 1 MiB", 100, time.Duration(times(2, 5))*time.Second, func(caller int) error {
		for id := plantstore.ID(caller) << 32; !p.over(); id++ {
			if err := p.createOne(by, id, name); err != nil {
				return err
			}
		}
		return nil
	})
	if len(p.refused) == 0 {
		t.Error("nobody was refused, though the queue has no room for all")
	}
}

func (p *press) createOne(by *http.Client, id plantstore.ID, name string) error {
	head, tail := fmt.Sprintf(`{"id":%d,"name":"`, id), `"}`
	body := io.MultiReader(strings.NewReader(head), strings.NewReader(name), strings.NewReader(tail))
	req, err := http.NewRequest("POST", p.api+"/plants", body)
	if err != nil {
		return err
	}
	req.ContentLength = int64(len(head) + len(name) + len(tail))
	req.Header.Set("Authorization", "Bearer "+bootstrap)
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	res, err := by.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	took := time.Since(began)
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	return p.note(id, res.StatusCode, res.Header.Get("Retry-After"), took)
}
