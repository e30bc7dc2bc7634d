package harness

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/testenv"
	"plantstore/internal/wire"
)

// Receiver receives the messages of one webhook, and fails at random until it is told
// to stop that.
type Receiver struct {
	URL string // where it listens, on loopback

	t testing.TB

	mu       sync.Mutex // guards what follows
	verify   *standardwebhooks.Webhook
	failing  bool
	seen     map[string]string       // the body of every message, accepted or not
	accepted map[string]int          // how often each message was accepted
	latest   map[plantstore.ID]int64 // the position of the last message about each plant
	failures map[string]int          // by kind
	problems []string
}

// NewReceiver starts a receiver that runs until the test ends. It accepts nothing
// before [Receiver.Register] has returned.
func NewReceiver(t testing.TB) *Receiver {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Receiver{
		URL: "http://" + listener.Addr().String() + "/hook", t: t, failing: true,
		seen: make(map[string]string), accepted: make(map[string]int), latest: make(map[plantstore.ID]int64), failures: make(map[string]int),
	}
	web := &http.Server{Handler: r}
	go web.Serve(listener)
	t.Cleanup(func() { web.Close() })
	return r
}

// Register creates a webhook that calls the receiver, for all events.
func (r *Receiver) Register(c *client.Client) plantstore.Webhook {
	r.t.Helper()
	hook, secret, err := c.CreateWebhook(r.t.Context(), plantstore.Webhook{URL: r.URL}, "")
	if err != nil {
		r.t.Fatal(err)
	}
	verify, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	r.verify = verify
	r.mu.Unlock()
	return hook
}

// Recover makes the receiver accept everything from now on.
func (r *Receiver) Recover() {
	r.mu.Lock()
	r.failing = false
	r.mu.Unlock()
}

// ServeHTTP receives a message.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the sender was killed
	}
	switch fate := r.take(request.Header, body); fate {
	case "accepted":
		w.WriteHeader(http.StatusNoContent)
	case "status 500":
		http.Error(w, "out of order", http.StatusInternalServerError)
	case "hung":
		select {
		case <-request.Context().Done():
		case <-time.After(10 * time.Second):
		}
	case "refused", "lost":
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		if fate == "lost" {
			_, _ = conn.Write([]byte("HTTP/1.1 20"))
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

// take records a message and returns what is to become of it. One that is lost was
// accepted, but the sender does not get to know.
func (r *Receiver) take(header http.Header, body []byte) (fate string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.verify == nil {
		return "status 500"
	}
	if err := r.verify.Verify(body, header); err != nil {
		r.problem("the outside library does not verify a message: %v", err)
	}
	r.record(header.Get("webhook-id"), body)
	fate = "accepted"
	if r.failing {
		switch n := rand.IntN(100); {
		case n < 8:
			fate = "status 500"
		case n < 16:
			fate = "refused"
		case n < 24:
			fate = "lost"
		case n < 25:
			fate = "hung"
		}
	}
	if fate != "accepted" {
		r.failures[fate]++
	}
	if fate == "accepted" || fate == "lost" {
		r.accepted[header.Get("webhook-id")]++
	}
	return fate
}

// record checks that a message is the same as before, if it was seen before, and that
// nothing later about its plant was seen, if it was not.
func (r *Receiver) record(id string, body []byte) {
	if was, ok := r.seen[id]; ok {
		if was != string(body) {
			r.problem("message %s was %s and is %s", id, was, body)
		}
		return
	}
	r.seen[id] = string(body)
	at, err := positionOf(id)
	if err != nil {
		r.problem("message %s: %v", id, err)
		return
	}
	_, data, ok := bytes.Cut(body, []byte(`"data":`))
	plant, err := wire.DecodeNewPlant(bytes.NewBuffer(bytes.TrimSuffix(data, []byte("}"))))
	if !ok || err != nil {
		r.problem("message %s has the body %s: %v", id, body, err)
		return
	}
	if last := r.latest[plant.ID]; last > at {
		r.problem("plant %d: event %d arrived after event %d", plant.ID, at, last)
	}
	r.latest[plant.ID] = max(at, r.latest[plant.ID])
}

func (r *Receiver) problem(format string, args ...any) {
	if len(r.problems) < 10 {
		r.problems = append(r.problems, fmt.Sprintf(format, args...))
	}
}

// positionOf returns the position of the event that a message is about.
func positionOf(messageID string) (int64, error) {
	cursor := strings.ReplaceAll(strings.TrimPrefix(messageID, "evt_"), "_", ".")
	p, err := plantstore.Cursor(cursor).Position()
	return p.Seq, err
}

// Verify waits until the receiver has accepted a message for each of the events, and
// checks that they are these events and that they arrived in order. It returns a
// summary. The mirror has seen every event since the webhook was registered.
func (r *Receiver) Verify(m *Mirror) string {
	r.t.Helper()
	want := make(map[string]string, len(m.events))
	for _, e := range m.events {
		body, err := wire.EncodeMessage(e)
		if err != nil {
			r.t.Fatal(err)
		}
		want["evt_"+strings.ReplaceAll(string(e.Cursor), ".", "_")] = string(body)
	}
	testenv.Eventually(r.t, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.accepted) < len(want) {
			return fmt.Errorf("%d of %d events were accepted", len(r.accepted), len(want))
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, problem := range r.problems {
		r.t.Error(problem)
	}
	total := 0
	for id, n := range r.accepted {
		total += n
		if want[id] != r.seen[id] {
			r.t.Errorf("message %s: got %s, want %s", id, r.seen[id], want[id])
		}
	}
	return fmt.Sprintf("%d events accepted, %d repeats, failures %v", len(r.accepted), total-len(r.accepted), r.failures)
}

// Accepted returns how many events were accepted.
func (r *Receiver) Accepted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.accepted)
}

// Repeats returns how many messages were accepted again although their response had
// arrived.
func (r *Receiver) Repeats() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	total := 0
	for _, n := range r.accepted {
		total += n - 1
	}
	return max(0, total-r.failures["lost"])
}
