package crash

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// While every fsync hangs, nothing is acknowledged: the queue fills up, more creates are
// refused, and reads still work. When the disk recovers, so does the server.
func TestStalledDiskFillsTheQueueAndReadsContinue(t *testing.T) {
	const queue, clients = 100, 50
	const maxMemory = 512 << 20
	d := newDrive(t)
	// The queued creates wait until the others have been refused.
	const timeout = 10 * time.Minute // longer than the disk is stalled
	s := harness.StartOn(t, d.path("plants.db"), "--max-queue", strconv.Itoa(queue), "--write-timeout", timeout.String())
	c := &stallClients{
		t: t, s: s, acked: make(map[plantstore.ID]bool),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: queue + clients}, Timeout: timeout},
	}
	defer c.http.CloseIdleConnections()
	if err := c.create(0, "before"); err != nil {
		t.Fatal(err)
	}
	c.openReaders(clients)

	resume := d.disk.stall()
	responded := make(chan struct{})
	go func() {
		defer close(responded)
		harness.Parallel(t, queue, func(i int) error { return c.create(plantstore.ID(i+1), "queued") })
	}()
	defer func() { resume(); <-responded }()
	c.awaitQueueDepth(queue)
	rounds := harness.Times(20, 500)
	harness.Parallel(t, clients, func(n int) error {
		for i := range rounds {
			if err := c.create(plantstore.ID(n+1)<<32+plantstore.ID(i), "too many"); err != nil {
				return err
			}
			for path, want := range map[string]string{"/plants/0": `"name":"before"`, "/healthz": "ok"} {
				if body, err := c.get(path); err != nil || !strings.Contains(body, want) {
					return fmt.Errorf("%s while the disk hangs: %q, %v", path, body, err)
				}
			}
		}
		return nil
	})
	c.awaitQueueDepth(queue)
	if acked, refused := c.counts(); acked != 1 || refused != clients*rounds {
		t.Errorf("while the disk hung, %d creates were acknowledged, and %d of %d refused", acked-1, refused, clients*rounds)
	}

	resume()
	<-responded
	if acked, _ := c.counts(); acked != 1+queue {
		t.Errorf("of %d queued creates, %d were acknowledged", queue, acked-1)
	}
	began := time.Now()
	testenv.Eventually(t, func() error {
		if status, body := s.Call(harness.Token, "POST", "/plants", `{"id":-1,"name":"after"}`); status != http.StatusOK {
			return fmt.Errorf("a create after the stall got %d %s", status, body)
		}
		return nil
	})
	peak := s.Memory("VmHWM")
	harness.Report(t, "%d queued, %d refused; a create was served after %v; peak memory %d MB", queue, clients*rounds, time.Since(began), peak>>20)
	if peak > maxMemory {
		t.Errorf("the server had %d MB resident, at most %d are allowed", peak>>20, maxMemory>>20)
	}
	for p, err := range s.Client(client.Options{}).Export(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		delete(c.acked, p.ID)
	}
	if len(c.acked) > 0 {
		t.Errorf("%d acknowledged plants are lost", len(c.acked))
	}
	c.http.CloseIdleConnections()
	s.Stop()
	s.Command("check")
}

// stallClients are the clients of a server whose disk stalls.
type stallClients struct {
	t    *testing.T
	s    *harness.Server
	http *http.Client

	mu      sync.Mutex // guards what follows
	acked   map[plantstore.ID]bool
	refused int
}

// create creates a plant. The response must be 200, or 503 with Retry-After.
func (c *stallClients) create(id plantstore.ID, name string) error {
	body := fmt.Sprintf(`{"id":%d,"name":%q}`, id, name)
	res, err := harness.Send(c.http, harness.Token, "POST", c.s.API+"/plants", body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case res.Status == http.StatusOK:
		c.acked[id] = true
	case res.Status == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != "":
		c.refused++
	default:
		return fmt.Errorf("create: %d %v %s", res.Status, res.Header, res.Body)
	}
	return nil
}

func (c *stallClients) counts() (acked, refused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acked), c.refused
}

// get returns the body of a response, which must be 200.
func (c *stallClients) get(path string) (string, error) {
	res, err := harness.Send(c.http, harness.Token, "GET", c.s.API+path, "")
	if err == nil && res.Status != http.StatusOK {
		err = fmt.Errorf("GET %s: %d %s", path, res.Status, res.Body)
	}
	return res.Body, err
}

// openReaders reads until the server has opened all its connections to the store. As
// root, SQLite sets the owner of the log whenever it opens it, and that may have to wait
// for an fsync of the log.
func (c *stallClients) openReaders(clients int) {
	c.t.Helper()
	const connections = 2 + 8 + 2 // writer, checkpointer, readers of plants, of webhooks and for readiness
	testenv.Eventually(c.t, func() error {
		harness.Parallel(c.t, clients, func(int) error {
			_, err := c.get("/plants/0")
			return err
		})
		if _, err := c.get("/metrics"); err != nil { // which reads the webhooks, with another connection
			return err
		}
		logs := 0
		for _, file := range c.s.OpenFiles() {
			if file == c.s.DB+"-wal" {
				logs++
			}
		}
		if logs < connections {
			return fmt.Errorf("the server has opened its log %d times, want %d", logs, connections)
		}
		return nil
	})
}

// awaitQueueDepth waits until this many creates are queued.
func (c *stallClients) awaitQueueDepth(want int) {
	c.t.Helper()
	testenv.Eventually(c.t, func() error {
		metrics, err := c.get("/metrics")
		if err != nil {
			return err
		}
		if !strings.Contains(metrics, fmt.Sprintf("\nplantstore_queue_depth %d\n", want)) {
			_, depth, _ := strings.Cut(metrics, "\nplantstore_queue_depth ")
			return fmt.Errorf("%.5q creates are queued, want %d", depth, want)
		}
		return nil
	})
}
