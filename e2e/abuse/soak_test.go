//go:build torture

package abuse

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

const (
	soakWriters   = 16
	soakReaders   = 16
	soakFollowers = 3
	soakBase      = 10_000 // plants with the ids 0, 1, … that are only read
	soakImport    = 500    // plants of an import
	soakVisits    = 20     // connections a second that are cut off
	soakWindow    = 1000   // plants that a writer keeps
)

// soak is a mixed load at a fixed rate. Every writer has plants of its own, so the
// content of the store is known.
type soak struct {
	*harness.Server
	t    *testing.T
	ctx  context.Context // ends with the load
	http *http.Client    // for everything but requests on one plant

	writers, readers            pace
	requests, refused, failures atomic.Int64
	acked                       atomic.Int64 // acknowledged changes, each of them an event
	followed                    [soakFollowers]atomic.Int64

	mu            sync.Mutex // guards what follows
	creates, gets []time.Duration
	delays        []time.Duration          // of the load's own timers
	plants        map[plantstore.ID]string // names, after the writers have ended
}

// pace is that of several workers, which send at a fixed rate, or as fast as they get
// responses.
type pace struct {
	sent  atomic.Int64
	pause atomic.Int64 // of a worker between two requests, in nanoseconds; 0 for none
}

// halve sets the pace to half of the requests that n workers sent in a time.
func (p *pace) halve(n int, sent int64, in time.Duration) {
	p.pause.Store(2 * int64(n) * int64(in) / max(sent, 1))
}

// await waits until a worker's next request is due. It returns how late that is because of
// the previous one, which counts as response time.
func (p *pace) await(due *time.Time) (late time.Duration) {
	p.sent.Add(1)
	pause := time.Duration(p.pause.Load())
	if pause == 0 {
		*due = time.Now()
		return 0
	}
	*due = due.Add(pause)
	if early := time.Until(*due); early > 0 {
		time.Sleep(early)
		return 0
	}
	return time.Since(*due)
}

// A mixed load at half of the peak rate. Memory, descriptors, goroutines, the write-ahead
// log and the response times stay level, and nothing acknowledged is missing.
func TestSoakStaysLevel(t *testing.T) {
	harness.NeedProc(t)
	const length, every, peakTime = time.Hour, 10 * time.Second, 20 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &soak{
		// A short log, so that old events are removed all the time.
		Server: harness.Start(t, "--log-max-bytes", strconv.Itoa(64<<20)),
		t:      t, ctx: ctx, http: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute},
		plants: make(map[plantstore.ID]string),
	}
	defer s.http.CloseIdleConnections()
	s.importPlants(0, soakBase)
	ctx, stopFollowing := context.WithCancel(t.Context())
	var load, followers sync.WaitGroup
	defer followers.Wait()
	defer stopFollowing()
	for i := range soakFollowers {
		followers.Go(func() { s.follow(ctx, i) })
	}
	for i := range soakWriters {
		load.Go(func() { s.write(plantstore.ID(i+1) << 32) })
	}
	for range soakReaders {
		load.Go(s.read)
	}
	load.Go(s.measureDelays)
	load.Go(func() { s.importAll(time.Second) })
	load.Go(func() { s.repeat(time.Second/2, s.search) })
	load.Go(func() { s.repeat(5*time.Second, s.export) })
	load.Go(func() { s.repeat(10*time.Second, s.useToken) })
	load.Go(func() {
		s.repeat(time.Second/soakVisits, func(n int) error { return visit(s.Addr, n%soakBase) })
	})

	time.Sleep(peakTime) // the windows fill
	before, written, read := s.requests.Load(), s.writers.sent.Load(), s.readers.sent.Load()
	time.Sleep(peakTime)
	s.writers.halve(soakWriters, s.writers.sent.Load()-written, peakTime)
	s.readers.halve(soakReaders, s.readers.sent.Load()-read, peakTime)
	peak := float64(s.requests.Load()-before) / peakTime.Seconds()

	curve := &curve{every: every}
	s.sample(every) // discards the times of the peak
	for range int(length / every) {
		time.Sleep(every)
		curve.add(t, s.sample(every))
	}
	curve.check(t)

	cancel()
	load.Wait()
	s.verify(ctx)
	stopFollowing()
	followers.Wait()
	s.Stop()
	s.Command("check")
	summary := fmt.Sprintf("%v at half of the peak of %.0f requests a second: %d requests, %d refused, %d failed, %d changes acknowledged and followed",
		length, peak, s.requests.Load(), s.refused.Load(), s.failures.Load(), s.acked.Load())
	harness.Report(t, "%s\n%s", summary, curve.table())
	if err := os.WriteFile(filepath.Join(harness.Root, "docs/images/soak.svg"), curve.svg(), 0o644); err != nil {
		t.Error(err)
	}
}

// fail records a response that should not be. The first few are reported.
func (s *soak) fail(err error) {
	if s.failures.Add(1) <= 5 {
		s.t.Error(err)
	}
}

// repeat calls f at an interval until the load ends.
func (s *soak) repeat(interval time.Duration, f func(n int) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		if err := f(n); err != nil {
			s.fail(err)
		}
	}
}

// send sends a request that is not on one plant. Such a request may be refused.
func (s *soak) send(method, path, body string, header ...string) (string, error) {
	s.requests.Add(1)
	res, err := harness.Send(s.http, harness.Token, method, s.API+path, body, header...)
	switch {
	case err != nil:
		return "", err
	case res.Status == 503 && res.Header.Get("Retry-After") != "":
		s.refused.Add(1)
		return "", nil
	case res.Status != 200:
		return "", fmt.Errorf("%s %s got %d %.200s", method, path, res.Status, res.Body)
	}
	return res.Body, nil
}

func (s *soak) search(n int) error {
	_, err := s.send("GET", []string{"/plants?limit=100&q=zzzz", "/plants?limit=100&q=version+7", "/plants?limit=100"}[n%3], "")
	return err
}

func (s *soak) export(n int) error {
	_, err := s.send("GET", "/plants", "", "Accept", []string{"application/x-ndjson", "text/csv"}[n%2])
	return err
}

// useToken makes a token, uses it and revokes it. Soon it must be refused.
func (s *soak) useToken(n int) error {
	name := fmt.Sprint("soak ", n)
	secret, err := s.TryCommand("token", "create", "--name", name)
	if err != nil {
		return err
	}
	get := func() int {
		s.requests.Add(1)
		res, err := harness.Send(s.http, secret, "GET", s.API+"/plants/1", "")
		if err != nil {
			s.fail(err)
		}
		return res.Status
	}
	if status := get(); status != 200 {
		return fmt.Errorf("a get with a new token got %d", status)
	}
	if _, err := s.TryCommand("token", "revoke", name); err != nil {
		return err
	}
	// The response may come late, so what counts is when the request was sent.
	for revoked := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		sent := time.Since(revoked)
		if get() == 401 {
			return nil
		}
		if sent > revocation+busyMargin {
			return fmt.Errorf("a revoked token still works after %v", sent)
		}
	}
}

// follow follows the log of changes from its beginning, and disconnects from time to
// time. It must not miss an event.
func (s *soak) follow(ctx context.Context, follower int) {
	c := s.Client(client.Options{})
	var last plantstore.Position
	var at plantstore.Cursor
	const stay = time.Minute
	for ctx.Err() == nil {
		visit, leave := context.WithTimeout(ctx, stay/2+rand.N(stay))
		for e, err := range c.Events(visit, plantstore.EventQuery{After: at, WithTokens: true}) {
			var next plantstore.Position
			if err == nil {
				next, err = e.Cursor.Position()
			}
			if err == nil && next.Seq != last.Seq+1 {
				err = fmt.Errorf("event %d follows event %d", next.Seq, last.Seq)
			}
			if err != nil && visit.Err() == nil {
				s.fail(fmt.Errorf("follower %d: %w", follower, err))
			}
			if err != nil {
				break
			}
			last, at = next, e.Cursor
			if e.Token == nil {
				s.followed[follower].Add(1)
			}
		}
		leave()
	}
}

// importPlants imports plants with the names that writers give to new ones.
func (s *soak) importPlants(first plantstore.ID, n int) {
	var lines strings.Builder
	names := make(map[plantstore.ID]string)
	for id := first; id < first+plantstore.ID(n); id++ {
		names[id] = soakName(id, 0)
		lines.WriteString(soakPlant(id, 0) + "\n")
	}
	for {
		body, err := s.send("POST", "/plants/import", lines.String(), "Content-Type", "application/x-ndjson")
		switch {
		case err != nil:
			s.fail(err)
			return
		case body == "": // refused
			time.Sleep(100 * time.Millisecond)
			continue
		case !strings.Contains(body, `"failed":0`):
			s.fail(fmt.Errorf("an import: %s", body))
			return
		}
		s.acked.Add(int64(n))
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.Copy(s.plants, names)
		return
	}
}

// importAll imports plants at an interval and deletes those of the import before the
// last one.
func (s *soak) importAll(interval time.Duration) {
	w := &soakWorker{soak: s}
	defer w.close()
	s.repeat(interval, func(n int) error {
		first := func(n int) plantstore.ID { return plantstore.ID(n*soakImport) + soakBase }
		s.importPlants(first(n), soakImport)
		for id := first(n - 2); n >= 2 && id < first(n-1); id++ {
			if _, err := w.do("DELETE", id, "", 204); err != nil {
				return err
			}
			s.acked.Add(1)
			s.mu.Lock()
			delete(s.plants, id)
			s.mu.Unlock()
		}
		return nil
	})
}

func soakName(id plantstore.ID, version int) string {
	return fmt.Sprintf("plant %d, version %d", id, version)
}

func soakPlant(id plantstore.ID, version int) string {
	return fmt.Sprintf(`{"id":%d,"name":%q}`, id, soakName(id, version))
}

// soakWorker sends requests on one plant at a time over a connection of its own, which it replaces
// from time to time.
type soakWorker struct {
	*soak
	conn net.Conn
	in   *bufio.Reader
	left int // requests until the next connection
}

func (w *soakWorker) close() {
	if w.conn != nil {
		w.conn.Close()
	}
}

// do sends a request on a plant and returns how long the response took.
func (w *soakWorker) do(method string, id plantstore.ID, body string, want int) (time.Duration, error) {
	if w.left == 0 {
		w.close()
		conn, err := net.Dial("tcp", w.Addr)
		if err != nil {
			return 0, err
		}
		w.conn, w.in, w.left = conn, bufio.NewReader(conn), 1+rand.IntN(2000)
	}
	w.left--
	w.requests.Add(1)
	path := "/plants"
	if method != "POST" {
		path += "/" + strconv.FormatInt(int64(id), 10)
	}
	text := request(harness.Token, method, path)
	if body != "" {
		text = rawRequest(method, path, body)
	}
	began := time.Now()
	w.conn.SetDeadline(began.Add(time.Minute))
	if _, err := io.WriteString(w.conn, text); err != nil {
		return 0, err
	}
	status, _, err := skimResponse(w.in)
	if err == nil && status != want {
		err = fmt.Errorf("%s %s got %d, want %d", method, path, status, want)
	}
	return time.Since(began), err
}

// read gets plants that are never written, until the load ends or a request fails. It has
// its own connections, so that its times are not those of writes.
func (s *soak) read() {
	w := &soakWorker{soak: s}
	defer w.close()
	for due := time.Now(); s.ctx.Err() == nil; {
		late := s.readers.await(&due)
		took, err := w.do("GET", rand.N(plantstore.ID(soakBase)), "", 200)
		if err != nil {
			s.fail(err)
			return
		}
		s.record(&s.gets, late+took)
	}
}

// write creates, replaces, gets and deletes the plants from first on, until the load ends
// or a request fails.
func (s *soak) write(first plantstore.ID) {
	w := &soakWorker{soak: s}
	defer w.close()
	versions := make(map[plantstore.ID]int) // of the plants that exist
	oldest, next := first, first
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for id, version := range versions {
			s.plants[id] = soakName(id, version)
		}
	}()
	for due := time.Now(); s.ctx.Err() == nil; {
		late := s.writers.await(&due)
		random := oldest + rand.N(max(next-oldest, 1))
		kind := rand.IntN(10)
		var took time.Duration
		var err error
		switch {
		case next == oldest || kind < 6 && int(next-oldest) < soakWindow:
			if took, err = w.do("POST", next, soakPlant(next, 0), 200); err == nil {
				versions[next] = 0
				next++
				s.record(&s.creates, late+took)
			}
		case kind < 6:
			if _, err = w.do("DELETE", oldest, "", 204); err == nil {
				delete(versions, oldest)
				oldest++
			}
		case kind < 8:
			if _, err = w.do("PUT", random, soakPlant(random, versions[random]+1), 200); err == nil {
				versions[random]++
			}
		default:
			if _, err = w.do("GET", random, "", 200); err == nil {
				continue
			}
		}
		if err != nil {
			s.fail(err)
			return
		}
		s.acked.Add(1)
	}
}

// measureDelays records how late the load's own timers are. On a machine that is busy with
// other work, response times grow with these delays.
func (s *soak) measureDelays() {
	const pause = 5 * time.Millisecond
	for s.ctx.Err() == nil {
		began := time.Now()
		time.Sleep(pause)
		s.record(&s.delays, time.Since(began)-pause)
	}
}

func (s *soak) record(times *[]time.Duration, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*times = append(*times, took)
}

var goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// sample measures the server, and sums up what happened since the last sample.
func (s *soak) sample(every time.Duration) (m [soakMetrics]float64) {
	s.t.Helper()
	status, text := s.Call(harness.Token, "GET", "/metrics", "")
	found := goroutines.FindStringSubmatch(text)
	if status != 200 || found == nil {
		s.t.Fatalf("metrics: %d %s", status, text)
	}
	m[goroutineCount], _ = strconv.ParseFloat(found[1], 64)
	m[memory] = float64(s.Memory("VmRSS")) / (1 << 20)
	m[descriptors] = float64(len(s.OpenFiles()))
	m[walSize] = fileMegabytes(s.DB + "-wal")
	m[storeSize] = fileMegabytes(s.DB)
	s.mu.Lock()
	creates, gets, delays := s.creates, s.gets, s.delays
	s.creates, s.gets, s.delays = nil, nil, nil
	s.mu.Unlock()
	m[createTime] = percentile(creates, 99).Seconds() * 1000
	m[getTime] = percentile(gets, 99).Seconds() * 1000
	m[delay] = percentile(delays, 99).Seconds() * 1000
	m[rate] = float64(len(creates)+len(gets)) / every.Seconds()
	return m
}

func fileMegabytes(name string) float64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0 // a log that has been removed
	}
	return float64(info.Size()) / (1 << 20)
}

// verify compares the store with what was acknowledged, and waits until the followers
// have seen as many events.
func (s *soak) verify(ctx context.Context) {
	s.t.Helper()
	wrong := 0
	for p, err := range s.Client(client.Options{}).Export(ctx, plantstore.Query{}) {
		if err != nil {
			s.t.Fatalf("export: %v", err)
		}
		if name, found := s.plants[p.ID]; !found || p.Name != name {
			if wrong++; wrong <= 5 {
				s.t.Errorf("the store has %+v, acknowledged is %q (%t)", p, name, found)
			}
		}
		delete(s.plants, p.ID)
	}
	if wrong > 0 || len(s.plants) > 0 {
		s.t.Errorf("%d plants are wrong, %d are missing", wrong, len(s.plants))
	}
	testenv.Eventually(s.t, func() error {
		for i := range s.followed {
			if got, want := s.followed[i].Load(), s.acked.Load(); got != want {
				return fmt.Errorf("follower %d has seen %d events of %d", i, got, want)
			}
		}
		return nil
	})
}

// The metrics of a sample.
const (
	memory = iota
	descriptors
	goroutineCount
	walSize
	storeSize
	createTime
	getTime
	delay
	rate
	soakMetrics
)

// soakTitles name the metrics and their units. A metric is level if its median in the
// last quarter of the time is at most growth times that of the second quarter. Response
// times may also grow as much as the delay of the load's own timers, which has no limit:
// that is the machine's.
var soakTitles = [soakMetrics]struct {
	title, unit string
	growth      float64
}{
	memory:         {"resident memory", "MB", 1.25},
	descriptors:    {"open descriptors", "", 1.25},
	goroutineCount: {"goroutines", "", 1.25},
	walSize:        {"write-ahead log", "MB", 1.25},
	storeSize:      {"store", "MB", 1.25},
	createTime:     {"p99 of creates", "ms", 1.5},
	getTime:        {"p99 of gets", "ms", 1.5},
	delay:          {"p99 of timer delays", "ms", math.Inf(1)},
	rate:           {"creates and gets/s", "", 1.25},
}

// curve is the samples of a soak.
type curve struct {
	every   time.Duration
	samples [][soakMetrics]float64
}

// add adds a sample, and saves it in case the test does not reach its end.
func (c *curve) add(t *testing.T, sample [soakMetrics]float64) {
	t.Helper()
	c.samples = append(c.samples, sample)
	harness.Report(t, "%d %.1f", len(c.samples), sample)
}

// quarter returns the median of a metric in a quarter of the time, counted from 0.
func (c *curve) quarter(metric, number int) float64 {
	n := len(c.samples)
	values := c.values(metric)[n*number/4 : n*(number+1)/4]
	slices.Sort(values)
	return values[len(values)/2]
}

func (c *curve) values(metric int) (values []float64) {
	for _, s := range c.samples {
		values = append(values, s[metric])
	}
	return values
}

func (c *curve) check(t *testing.T) {
	t.Helper()
	for metric, m := range soakTitles {
		second, last, limit := c.quarter(metric, 1), c.quarter(metric, 3), m.growth*c.quarter(metric, 1)
		if metric == createTime || metric == getTime {
			limit *= max(1, c.quarter(delay, 3)/max(c.quarter(delay, 1), 0.1))
		}
		if last > limit {
			t.Errorf("%s: the median was %.1f %s in the second quarter and %.1f in the last one, at most %.1f is level", m.title, second, m.unit, last, limit)
		}
	}
	if peak := slices.Max(c.values(memory)); peak > maxMemory>>20 {
		t.Errorf("the server had %.0f MB resident, at most %d are allowed", peak, maxMemory>>20)
	}
}

// table returns a table for docs/reliability.md.
func (c *curve) table() string {
	var b strings.Builder
	b.WriteString("| | median of the second quarter | of the last quarter | largest |\n|---|---:|---:|---:|\n")
	for metric, m := range soakTitles {
		fmt.Fprintf(&b, "| %s | %.1f %s | %.1f %s | %.1f %s |\n", m.title, c.quarter(metric, 1), m.unit,
			c.quarter(metric, 3), m.unit, slices.Max(c.values(metric)), m.unit)
	}
	return b.String()
}

// svg draws the curve, a panel for each metric.
func (c *curve) svg() []byte {
	const columns, width, height, left, top, cellWidth, cellHeight = 3, 960, 440, 16, 34, 316, 140
	const panelWidth, panelHeight = 296, 88
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12">
<style>text { fill: #1f2420 } .quiet { fill: #5d665f } .line { stroke: #c9cfca } .page { fill: #ffffff } path { fill: none; stroke: #2a7d4f; stroke-linejoin: round }
@media (prefers-color-scheme: dark) { text { fill: #e6ebe7 } .quiet { fill: #a3ada6 } .line { stroke: #4a524c } .page { fill: #15191a } path { stroke: #5fbf8a } }</style>
<rect class="page" width="%d" height="%d"/>
`, width, height, width, height)
	minutes := (c.every * time.Duration(len(c.samples))).Minutes()
	for metric, m := range soakTitles {
		x, y := left+metric%columns*cellWidth, top+metric/columns*cellHeight
		values := c.values(metric)
		largest := slices.Max(values)
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\">%s</text>\n", x, y-8, m.title)
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" class=\"quiet\" font-size=\"11\">max %s</text>\n", x+panelWidth, y-8, strings.TrimSpace(soakNumber(largest)+" "+m.unit))
		fmt.Fprintf(&b, "<line class=\"line\" x1=\"%[1]d\" y1=\"%[3]d\" x2=\"%[2]d\" y2=\"%[3]d\"/>\n<line class=\"line\" x1=\"%[1]d\" y1=\"%[4]d\" x2=\"%[2]d\" y2=\"%[4]d\" stroke-dasharray=\"2 3\"/>\n",
			x, x+panelWidth, y+panelHeight, y)
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" class=\"quiet\" font-size=\"11\">0</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\" class=\"quiet\" font-size=\"11\">%.0f min</text>\n<path d=\"M",
			x, y+panelHeight+14, x+panelWidth, y+panelHeight+14, minutes)
		for i, v := range values {
			fmt.Fprintf(&b, "%.1f %.1f ", float64(x)+panelWidth*float64(i+1)/float64(len(values)), float64(y)+panelHeight*(1-v/max(largest, 1e-9)))
		}
		b.WriteString("\"/>\n")
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

func soakNumber(v float64) string {
	if v < 10 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}
