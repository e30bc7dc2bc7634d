package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"plantstore"
	"plantstore/internal/rules"
	"plantstore/internal/sqlite"
	"plantstore/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discardLog = log.New(io.Discard, "", 0)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// service is a sender on a store.
type service struct {
	*Sender
	t     testing.TB
	store plantstore.Store
	log   *bytes.Buffer // complete when the sender has stopped
	stop  func()
}

// newStore opens a store in a new file, and closes it when the test ends.
func newStore(t testing.TB) *sqlite.Store {
	t.Helper()
	return openStore(t, filepath.Join(t.TempDir(), "plants.db"))
}

func openStore(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(path, sqlite.Serve)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// run runs a sender that may call loopback addresses and retries quickly, until stop is
// called or the test ends.
func run(t testing.TB, store plantstore.Store, configure ...func(*Options)) *service {
	t.Helper()
	s := prepare(t, store, configure...)
	s.run()
	return s
}

// prepare returns a sender that does not run yet.
func prepare(t testing.TB, store plantstore.Store, configure ...func(*Options)) *service {
	s := &service{t: t, store: store, log: new(bytes.Buffer)}
	opts := Options{
		Allow: loopback, Log: slog.New(slog.NewTextHandler(s.log, nil)), Clock: rules.NewClock("server", time.Now, nil),
		// What hangs does so throughout, and what is slow is not sent twice.
		Delays: Delays{Attempt: 5 * time.Minute, First: 20 * time.Millisecond, Max: time.Hour},
	}
	opts.Clock.Wait = 0
	for _, c := range configure {
		c(&opts)
	}
	s.Sender = New(store, opts)
	return s
}

func (s *service) run() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			s.t.Error(err)
		}
	}()
	s.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		if strings.Contains(s.log.String(), "whsec_") || strings.Contains(s.log.String(), "/hook") {
			s.t.Errorf("the log has a secret or a URL:\n%s", s.log)
		}
	})
	s.t.Cleanup(s.stop)
}

// create creates a webhook for the endpoint, whose secret the endpoint learns.
func (s *service) create(e *endpoint, types ...plantstore.EventType) plantstore.Webhook {
	s.t.Helper()
	w, secret, err := s.Create(s.t.Context(), plantstore.Webhook{URL: e.URL + "/hook", Types: types}, "", plantstore.Actor{})
	if err != nil {
		s.t.Fatal(err)
	}
	e.trust(secret)
	return w
}

// write applies a write for each plant in one batch.
func (s *service) write(op plantstore.Op, plants ...plantstore.Plant) {
	s.t.Helper()
	var batch []plantstore.Write
	for _, p := range plants {
		batch = append(batch, plantstore.Write{Op: op, Plant: p, By: "test"})
	}
	results, err := s.store.Apply(s.t.Context(), batch)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			s.t.Fatal(r.Err)
		}
	}
}

func (s *service) get(id string) plantstore.Webhook {
	s.t.Helper()
	w, err := s.Webhook(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

// awaitDisabled waits until a webhook is disabled with a reason that has the text.
func (s *service) awaitDisabled(id, reason string) {
	s.t.Helper()
	testenv.Eventually(s.t, func() error {
		if w := s.get(id); w.Disabled == "" || !strings.Contains(w.Disabled, reason) {
			return fmt.Errorf("the webhook is disabled because of %q, want %q", w.Disabled, reason)
		}
		return nil
	})
}

func fern(id plantstore.ID) plantstore.Plant { return plantstore.Plant{ID: id, Name: "Fern"} }

func ferns(from, to plantstore.ID) (all []plantstore.Plant) {
	for id := from; id <= to; id++ {
		all = append(all, fern(id))
	}
	return all
}

// message is what an endpoint has received.
type message struct {
	ID     string      `json:"-"` // webhook-id
	Header http.Header `json:"-"`
	Body   []byte      `json:"-"`
	Type   plantstore.EventType
	Data   struct {
		ID   plantstore.ID
		Name string
	}
}

// endpoint receives messages, and verifies them with the library of Standard Webhooks.
type endpoint struct {
	*httptest.Server
	t testing.TB

	// respond, if set before anything is received, responds to a message.
	respond func(w http.ResponseWriter, r *http.Request, m message)

	mu       sync.Mutex // guards what follows
	verify   []*standardwebhooks.Webhook
	received []message
}

func newEndpoint(t testing.TB, respond func(w http.ResponseWriter, r *http.Request, m message)) *endpoint {
	t.Helper()
	e := &endpoint{t: t, respond: respond}
	e.Server = httptest.NewServer(e)
	t.Cleanup(func() {
		e.Listener.Close()
		e.CloseClientConnections() // those that hang
		e.Close()
	})
	return e
}

// hang responds when the sender has gone.
func hang(_ http.ResponseWriter, r *http.Request, _ message) { <-r.Context().Done() }

// status responds with a status.
func status(code int) func(http.ResponseWriter, *http.Request, message) {
	return func(w http.ResponseWriter, _ *http.Request, _ message) { w.WriteHeader(code) }
}

// trust makes the endpoint accept only what is signed with each of the secrets.
func (e *endpoint) trust(secrets ...string) {
	e.t.Helper()
	var verify []*standardwebhooks.Webhook
	for _, secret := range secrets {
		v, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			e.t.Fatal(err)
		}
		verify = append(verify, v)
	}
	e.mu.Lock()
	e.verify = verify
	e.mu.Unlock()
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender gave up
	}
	m := message{ID: r.Header.Get("webhook-id"), Header: r.Header, Body: body}
	if err := json.Unmarshal(body, &m); err != nil {
		e.t.Errorf("%s: %v", body, err)
	}
	e.mu.Lock()
	for _, v := range e.verify {
		if err := v.Verify(body, r.Header); err != nil {
			e.t.Errorf("%.200s: %v", body, err)
		}
	}
	e.received = append(e.received, m)
	e.mu.Unlock()
	if e.respond != nil {
		e.respond(w, r, m)
	}
}

// messages returns what was received so far.
func (e *endpoint) messages() []message {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.received)
}

// awaitMessages waits for that many messages.
func (e *endpoint) awaitMessages(n int) []message {
	e.t.Helper()
	testenv.Eventually(e.t, func() error {
		if got := len(e.messages()); got < n {
			return fmt.Errorf("%d messages were received, want %d", got, n)
		}
		return nil
	})
	return e.messages()
}

// awaitEvents waits for messages about that many events.
func (e *endpoint) awaitEvents(n int) []message {
	e.t.Helper()
	testenv.Eventually(e.t, func() error {
		if got := len(withoutRepeats(e.messages())); got < n {
			return fmt.Errorf("messages about %d events were received, want %d", got, n)
		}
		return nil
	})
	return e.messages()
}

// withoutRepeats returns the first message about each event.
func withoutRepeats(messages []message) (once []message) {
	seen := make(map[string]bool)
	for _, m := range messages {
		if !seen[m.ID] {
			once = append(once, m)
		}
		seen[m.ID] = true
	}
	return once
}

// onceIf returns the messages as they are if each must have been sent once, and otherwise
// without repeats.
func onceIf(once bool, messages []message) []message {
	if once {
		return messages
	}
	return withoutRepeats(messages)
}

// wantPlants fails unless the messages are about these plants, one each, in any order.
func wantPlants(t testing.TB, messages []message, plants ...plantstore.Plant) {
	t.Helper()
	var got, want []plantstore.ID
	for _, m := range messages {
		got = append(got, m.Data.ID)
	}
	for _, p := range plants {
		want = append(want, p.ID)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got messages about %v, want %v", got, want)
	}
}

func TestEndpointThatHangsDelaysNothing(t *testing.T) {
	s := run(t, newStore(t))
	hanging, fast := newEndpoint(t, hang), newEndpoint(t, nil)
	s.create(hanging)
	s.create(fast)
	for id := plantstore.ID(1); id <= 300; id++ {
		s.write(plantstore.Create, fern(id))
	}
	wantPlants(t, fast.awaitMessages(300), ferns(1, 300)...)
	if got := len(hanging.awaitMessages(1)); got != 1 {
		t.Errorf("%d messages are in flight, want 1", got)
	}
	start := time.Now()
	s.stop()
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it took %s to stop", took)
	}
}

func TestEventThatFailsHoldsBackOnlyItsPlant(t *testing.T) {
	s := run(t, newStore(t))
	accept := make(chan struct{})
	e := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, m message) {
		select {
		case <-accept:
		default:
			if m.Data.ID == 1 {
				http.Error(w, "not yet", http.StatusInternalServerError)
			}
		}
	})
	s.create(e)
	s.write(plantstore.Create, ferns(1, 20)...)
	s.write(plantstore.Replace, plantstore.Plant{ID: 1, Name: "Moss"}, plantstore.Plant{ID: 2, Name: "Moss"})
	s.write(plantstore.Delete, fern(1), fern(2))
	others := func() (others, attempts int) {
		ids := make(map[string]bool)
		for _, m := range e.messages() {
			if m.Data.ID != 1 {
				others++
				continue
			}
			attempts++
			ids[m.ID] = true
		}
		if len(ids) > 1 {
			t.Fatal("a later event of the plant was sent")
		}
		return others, attempts
	}
	testenv.Eventually(t, func() error {
		if n, attempts := others(); n < 21 || attempts < 3 {
			return fmt.Errorf("%d messages about other plants, %d attempts at the one that fails", n, attempts)
		}
		return nil
	})
	close(accept)
	testenv.Eventually(t, func() error {
		if n := len(s.get(s.only()).Progress.Pending); n > 0 {
			return fmt.Errorf("%d events are pending", n)
		}
		return nil
	})
	var got []string
	for _, m := range e.messages() {
		if text := string(m.Type); m.Data.ID == 1 && !slices.Contains(got, text) {
			got = append(got, text)
		}
	}
	if want := "[plant.created plant.replaced plant.deleted]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// only returns the id of the only webhook.
func (s *service) only() string {
	s.t.Helper()
	all, err := s.List(s.t.Context())
	if err != nil || len(all) != 1 {
		s.t.Fatalf("got %d webhooks, %v, want one", len(all), err)
	}
	return all[0].ID
}

func TestGoneDisablesAtOnce(t *testing.T) {
	s := run(t, newStore(t))
	var gone atomic.Bool
	e := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, m message) {
		if gone.Load() && m.Data.ID > 1 {
			w.WriteHeader(http.StatusGone)
		}
	})
	w := s.create(e)
	s.write(plantstore.Create, fern(1))
	e.awaitMessages(1)
	gone.Store(true)
	s.write(plantstore.Create, fern(2))
	s.awaitDisabled(w.ID, "410")
	s.write(plantstore.Create, fern(3))
	s.awaitHealth(w.ID, func(h plantstore.WebhookHealth) bool { return h.Pending == 2 })
	if n := len(e.messages()); n != 2 {
		t.Errorf("%d messages were sent, want 2", n)
	}
	gone.Store(false)
	if w, err := s.Resume(t.Context(), w.ID, plantstore.Actor{}); err != nil || w.Disabled != "" {
		t.Fatalf("got %+v, %v", w, err)
	}
	e.awaitMessages(4)
	s.stop()
	wantPlants(t, e.messages(), fern(1), fern(2), fern(2), fern(3))
	if !strings.Contains(s.log.String(), "level=ERROR") || !strings.Contains(s.log.String(), w.ID) {
		t.Errorf("the log does not say that it was disabled:\n%s", s.log)
	}
}

func TestGivesUpAfterThreeDays(t *testing.T) {
	store := newStore(t)
	s := run(t, store)
	e := newEndpoint(t, status(http.StatusServiceUnavailable))
	w := s.create(e)
	s.write(plantstore.Create, fern(1))
	testenv.Eventually(t, func() error {
		if p := s.get(w.ID).Progress.Pending; len(p) != 1 || p[0].Attempts < 2 {
			return fmt.Errorf("%v is pending", p)
		}
		return nil
	})
	s.stop()
	for _, ago := range []time.Duration{71 * time.Hour, 73 * time.Hour} {
		if got := s.get(w.ID).Disabled; got != "" {
			t.Fatalf("disabled too early: %s", got)
		}
		s = run(t, store)
		s.stop() // it has no lease now
		_, err := store.UpdateWebhook(t.Context(), w.ID, plantstore.Actor{}, func(w *plantstore.Webhook) error {
			w.Progress.Pending[0].First = time.Now().Add(-ago)
			w.Progress.Pending[0].Next = time.Time{}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		sent := len(e.messages())
		s = run(t, store)
		e.awaitMessages(sent + 1)
		if ago < giveUpAfter {
			s.stop()
		}
	}
	s.awaitDisabled(w.ID, "72 hours: the endpoint responded 503")
	s.stop()
}

// A clock that is ahead for a moment disables no webhook, and costs it no secret.
func TestClockThatIsAheadForAMomentDisablesNothing(t *testing.T) {
	store := newStore(t)
	var ahead atomic.Int64
	clock := rules.NewClock("server", func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }, nil)
	jumping := func(o *Options) { o.Clock = clock }
	s := run(t, store, jumping)
	e := newEndpoint(t, status(http.StatusServiceUnavailable))
	w := s.create(e)
	if _, _, err := s.Rotate(t.Context(), w.ID, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	e.trust()
	s.write(plantstore.Create, fern(1))
	testenv.Eventually(t, func() error {
		if p := s.get(w.ID).Progress.Pending; len(p) != 1 || p[0].Attempts < 2 {
			return fmt.Errorf("%v is pending", p)
		}
		return nil
	})
	s.stop()
	s = run(t, store, jumping) // it reads the times from the store
	ahead.Store(int64(10 * 24 * time.Hour))
	e.awaitMessages(len(e.messages()) + 3)
	s.stop()
	got := s.get(w.ID)
	if got.Disabled != "" || len(got.Secrets) != 2 {
		t.Errorf("during the jump: disabled: %q, and it has %d secrets", got.Disabled, len(got.Secrets))
	}
	if clock.Jumps() != 1 {
		t.Errorf("%d jumps, want 1", clock.Jumps())
	}
	clock.Wait = 0 // it is ahead for good
	s = run(t, store, jumping)
	s.awaitDisabled(w.ID, "72 hours: the endpoint responded 503")
	s.stop()
	if got := s.get(w.ID).Secrets; len(got) != 1 {
		t.Errorf("when the clock is believed it has %d secrets, want 1", len(got))
	}
}

// What a clock that was ahead has written holds up nothing once it is right again.
func TestTimesThatAreAheadAreNotWaitedFor(t *testing.T) {
	now := time.Now()
	pending := plantstore.PendingEvent{ID: 1, Attempts: 1, First: now.AddDate(0, 0, 10), Next: now.AddDate(0, 0, 10)}
	q := newTestQueue(plantstore.Progress{Pending: []plantstore.PendingEvent{pending}})
	got := q.progress().Pending[0]
	if got.First.After(time.Now()) || got.Next.After(time.Now().Add(defaultDelays.Max)) {
		t.Errorf("failing since %v, and attempted again at %v", got.First, got.Next)
	}
}

func TestWebhookBehindTheLogIsDisabled(t *testing.T) {
	store := newStore(t)
	store.KeepLog(time.Nanosecond, 0)
	s := run(t, store)
	var fails atomic.Bool
	e := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, _ message) {
		if fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	pending, behind := s.create(e), s.create(e)
	e.trust() // neither
	fails.Store(true)
	_, err := store.UpdateWebhook(t.Context(), behind.ID, plantstore.Actor{}, func(w *plantstore.Webhook) error {
		w.Disabled = "for the test"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.write(plantstore.Create, ferns(1, 3)...)
	ctx, cancel := context.WithCancel(t.Context())
	trimmed := make(chan error, 1)
	go func() { trimmed <- store.Run(ctx) }()
	stopTrimming := sync.OnceFunc(func() { cancel(); <-trimmed })
	defer stopTrimming()
	s.awaitDisabled(pending.ID, "it is behind what the log keeps")
	if _, err := s.Resume(t.Context(), behind.ID, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	s.awaitDisabled(behind.ID, "it is behind what the log keeps")

	stopTrimming() // or the next event would be gone soon
	fails.Store(false)
	before := len(e.messages())
	for _, id := range []string{pending.ID, behind.ID} {
		if _, err := s.Replay(t.Context(), id, "", time.Unix(1, 0), plantstore.Actor{}); err != nil {
			t.Fatal(err)
		}
		if w, err := s.Resume(t.Context(), id, plantstore.Actor{}); err != nil || w.Disabled != "" {
			t.Fatalf("got %+v, %v", w, err)
		}
	}
	s.write(plantstore.Create, fern(4))
	for _, m := range e.awaitMessages(before + 2)[before:] {
		if m.Data.ID != 4 {
			t.Errorf("got a message about %d", m.Data.ID)
		}
	}
}

func TestReplaySendsAgain(t *testing.T) {
	s := run(t, newStore(t))
	e := newEndpoint(t, nil)
	w := s.create(e)
	s.write(plantstore.Create, fern(1))
	s.write(plantstore.Create, fern(2))
	s.write(plantstore.Create, fern(3))
	first := e.awaitMessages(3)
	page, err := s.store.Events(t.Context(), plantstore.EventQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Replay(t.Context(), w.ID, page.Events[1].Cursor, time.Time{}, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	wantPlants(t, e.awaitMessages(4)[3:], fern(3))
	if _, err := s.Replay(t.Context(), w.ID, "", page.Events[1].Time, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	again := e.awaitMessages(6)[4:]
	wantPlants(t, again, fern(2), fern(3))
	ids := make(map[string]bool)
	for _, m := range append(first, again...) {
		ids[m.ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("got the ids %v, want the same ones again", ids)
	}
	if _, err := s.Replay(t.Context(), w.ID, "latest", time.Time{}, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	s.write(plantstore.Create, fern(4))
	// It is sent twice if it was read before the position changed.
	wantPlants(t, e.awaitMessages(7)[6:7], fern(4))
}

func TestBothSecretsSignWhileOneIsRotated(t *testing.T) {
	s := run(t, newStore(t))
	e := newEndpoint(t, nil)
	w, old, err := s.Create(t.Context(), plantstore.Webhook{URL: e.URL + "/hook"}, "", plantstore.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	_, secret, err := s.Rotate(t.Context(), w.ID, plantstore.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	e.trust(old, secret)
	// The sender may not have noticed yet. A test always has the newest secrets.
	if a, err := s.Test(t.Context(), w.ID); err != nil || a.Status != 200 {
		t.Fatalf("got %+v, %v", a, err)
	}
	id := plantstore.ID(0)
	awaitSignatures := func(want int) {
		t.Helper()
		testenv.Eventually(t, func() error {
			id++
			before := len(e.messages())
			s.write(plantstore.Create, fern(id))
			got := e.awaitMessages(before + 1)
			if n := len(strings.Fields(got[len(got)-1].Header.Get("webhook-signature"))); n != want {
				return fmt.Errorf("got %d signatures, want %d", n, want)
			}
			return nil
		})
	}
	e.trust()
	awaitSignatures(2)
	e.trust(old, secret)
	awaitSignatures(2)
	_, err = s.store.UpdateWebhook(t.Context(), w.ID, plantstore.Actor{}, func(w *plantstore.Webhook) error {
		if until := time.Until(w.Secrets[1].Expires); until < 23*time.Hour || until > 24*time.Hour {
			t.Errorf("the old secret expires in %s", until)
		}
		w.Secrets[1].Expires = time.Now().Add(-time.Second)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	e.trust(secret)
	s.wake()
	awaitSignatures(1)
	if got := s.get(w.ID).Secrets; len(got) != 1 {
		t.Errorf("the expired secret is still stored: %d", len(got))
	}
}

func TestRedirectIsAFailure(t *testing.T) {
	s := run(t, newStore(t))
	target := newEndpoint(t, nil)
	e := newEndpoint(t, func(w http.ResponseWriter, r *http.Request, _ message) {
		http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
	})
	w := s.create(e)
	s.write(plantstore.Create, fern(1))
	e.awaitMessages(2)
	testenv.Eventually(t, func() error {
		attempts, err := s.store.Deliveries(t.Context(), w.ID)
		if err != nil || len(attempts) == 0 || attempts[0].Status != http.StatusTemporaryRedirect {
			return fmt.Errorf("got %+v, %v", attempts, err)
		}
		return nil
	})
	if n := len(target.messages()); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

func TestOnlySomeTypesAreSent(t *testing.T) {
	s := run(t, newStore(t))
	e := newEndpoint(t, nil)
	w := s.create(e, plantstore.PlantDeleted)
	s.write(plantstore.Create, ferns(1, 50)...)
	s.write(plantstore.Delete, fern(7))
	if got := e.awaitMessages(1); got[0].Type != plantstore.PlantDeleted || got[0].Data.ID != 7 {
		t.Errorf("got %+v", got[0])
	}
	s.write(plantstore.Create, ferns(51, 60)...)
	testenv.Eventually(t, func() error { // what is not sent counts as done
		latest, err := s.store.Events(t.Context(), plantstore.EventQuery{After: plantstore.LatestCursor, Limit: 1})
		if err != nil {
			return err
		}
		if got := s.get(w.ID).Progress.Position; got != latest.Next {
			return fmt.Errorf("the position is %s, want %s", got, latest.Next)
		}
		return nil
	})
	if n := len(e.messages()); n != 1 {
		t.Errorf("%d messages were sent", n)
	}
}

// After a graceful stop nothing is sent again, not even what was in flight.
func TestPositionSurvivesAStop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.db")
	e := newEndpoint(t, func(http.ResponseWriter, *http.Request, message) { time.Sleep(5 * time.Millisecond) })
	var last plantstore.ID
	stopped := true // gracefully, each time
	for range 3 {
		store := openStore(t, path)
		s := run(t, store)
		if last == 0 {
			s.create(e)
		}
		s.write(plantstore.Create, ferns(last+1, last+200)...)
		last += 200
		e.awaitMessages(int(last) - 100)
		stopped = s.stopInTime() && stopped
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	run(t, openStore(t, path))
	wantPlants(t, onceIf(stopped, e.awaitEvents(int(last))), ferns(1, last)...)
}

// stopInTime stops the sender, and reports whether that was so quick that nothing was
// abandoned. A machine that stalls may take longer.
func (s *service) stopInTime() bool {
	start := time.Now()
	s.stop()
	return time.Since(start) < stopGrace
}

// fileContains reports whether a file of the store has the text.
func fileContains(t *testing.T, path, text string) bool {
	t.Helper()
	for _, name := range []string{path, path + "-wal"} {
		content, err := os.ReadFile(name)
		if err == nil && bytes.Contains(content, []byte(text)) {
			return true
		}
	}
	return false
}

func TestSecretsAreSealed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.db")
	store := openStore(t, path)
	e := newEndpoint(t, nil)
	withKey := func(key string) func(*Options) { return func(o *Options) { o.Key = []byte(key) } }

	plain := run(t, store)
	w, old, err := plain.Create(t.Context(), plantstore.Webhook{URL: e.URL + "/hook"}, "", plantstore.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	if !fileContains(t, path, old) {
		t.Fatal("without a key, the secret is not in the file")
	}
	plain.stop()
	sealed := run(t, store, withKey("a key"))
	testenv.Eventually(t, func() error {
		if s := sealed.get(w.ID).Secrets[0].Secret; !strings.HasPrefix(s, sealPrefix) {
			return errors.New("the secret is stored as it was")
		}
		return nil
	})
	e.trust(old)
	sealed.write(plantstore.Create, fern(1))
	e.awaitMessages(1)
	_, rotated, err := sealed.Rotate(t.Context(), w.ID, plantstore.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	_, created, err := sealed.Create(t.Context(), plantstore.Webhook{URL: e.URL + "/hook", Types: []plantstore.EventType{plantstore.PlantReplaced}}, "", plantstore.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	if fileContains(t, path, rotated) || fileContains(t, path, created) {
		t.Error("with a key, a secret is in the file")
	}
	sealed.stop()
	for key, reason := range map[string]string{"another key": "a key other than", "": "--secret-key-file"} {
		other := run(t, store, func(o *Options) {
			if key != "" {
				o.Key = []byte(key)
			}
		})
		other.awaitDisabled(w.ID, reason)
		other.stop()
		if _, err := other.Resume(t.Context(), w.ID, plantstore.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
	e.trust(old, rotated)
	again := run(t, store, withKey("a key"))
	again.write(plantstore.Create, fern(2))
	e.awaitMessages(2)
}

func TestLargeEventsAreDelivered(t *testing.T) {
	s := run(t, newStore(t))
	fast, hanging := newEndpoint(t, nil), newEndpoint(t, hang)
	s.create(fast)
	s.create(hanging)
	large, huge := strings.Repeat("x", maxBytes/4), strings.Repeat("y", maxBytes+1)
	for id := plantstore.ID(1); id <= 15; id++ {
		s.write(plantstore.Create, plantstore.Plant{ID: id, Name: large})
	}
	s.write(plantstore.Create, plantstore.Plant{ID: 16, Name: huge})
	got := fast.awaitMessages(16)
	wantPlants(t, got, ferns(1, 16)...)
	for _, m := range got {
		if m.Data.Name != large && (m.Data.ID != 16 || m.Data.Name != huge) {
			t.Errorf("plant %d has a name of %d bytes", m.Data.ID, len(m.Data.Name))
		}
	}
	if n := len(hanging.awaitMessages(1)); n != 1 {
		t.Errorf("%d large events were sent to an endpoint that hangs, want 1", n)
	}
}

// However many endpoints hang, and however large the events are, the others get theirs.
func TestEndpointsThatHangStarveNoOther(t *testing.T) {
	s := run(t, newStore(t))
	release := make(chan struct{})
	defer close(release)
	hanging := newEndpoint(t, func(http.ResponseWriter, *http.Request, message) { <-release })
	fast := newEndpoint(t, nil)
	const hooks = 17
	for range hooks {
		s.create(hanging)
	}
	hanging.trust()
	s.create(fast)
	huge := strings.Repeat("x", maxBytes)
	s.write(plantstore.Create, plantstore.Plant{ID: 1, Name: huge})
	hanging.awaitMessages(hooks)
	s.write(plantstore.Create, plantstore.Plant{ID: 2, Name: huge})
	s.write(plantstore.Create, plantstore.Plant{ID: 3, Name: huge})
	wantPlants(t, fast.awaitMessages(3), ferns(1, 3)...)
}

func TestDeliveriesAreTheLastAttempts(t *testing.T) {
	s := run(t, newStore(t))
	e := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, m message) {
		if m.Data.ID == 150 {
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, "short and stout")
		}
	})
	w := s.create(e)
	s.write(plantstore.Create, ferns(1, 149)...)
	testenv.Eventually(t, func() error {
		if p := s.get(w.ID).Progress; len(p.Pending) > 0 || seqOf(t, p.Position) != 149 {
			return fmt.Errorf("at %s, %d events are pending", p.Position, len(p.Pending))
		}
		return nil
	})
	s.write(plantstore.Create, fern(150))
	testenv.Eventually(t, func() error {
		if got, err := s.store.Deliveries(t.Context(), w.ID); err != nil || len(got) == 0 || got[0].Attempt < 3 {
			return fmt.Errorf("the last of %d attempts is %+v, %v", len(got), got[:min(1, len(got))], err)
		}
		return nil
	})
	s.stop()
	got, err := s.store.Deliveries(t.Context(), w.ID)
	if err != nil || len(got) != plantstore.MaxDeliveries {
		t.Fatalf("got %d attempts, %v", len(got), err)
	}
	first := got[0]
	for i, a := range got {
		if i < first.Attempt && (a.Event != first.Event || a.Attempt != first.Attempt-i) || i >= first.Attempt && a.Attempt != 1 {
			t.Errorf("%d attempts after %+v is %+v", i, first, a)
		}
	}
	if first.Attempt < 3 || first.Status != http.StatusTeapot || first.Response != "short and stout" || first.Type != plantstore.PlantCreated || first.Error != "" {
		t.Errorf("got %+v", first)
	}
}

func TestWebhookIsDeletedAndReplacedWhileItDelivers(t *testing.T) {
	s := run(t, newStore(t))
	before, after := newEndpoint(t, hang), newEndpoint(t, nil)
	deleted, replaced := s.create(before), s.create(before)
	before.trust()
	s.write(plantstore.Create, ferns(1, 100)...)
	before.awaitMessages(2)
	if err := s.Delete(t.Context(), deleted.ID, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	w, err := s.Replace(t.Context(), replaced.ID, plantstore.Webhook{URL: after.URL + "/hook"}, plantstore.Actor{})
	if err != nil || w.URL != after.URL+"/hook" {
		t.Fatalf("got %+v, %v", w, err)
	}
	after.awaitMessages(100)
	wantPlants(t, after.messages(), ferns(1, 100)...)
	s.awaitHealth(w.ID, func(h plantstore.WebhookHealth) bool { return h.Pending == 0 && h.Lag == 0 })
	if n := len(before.messages()); n != 2 {
		t.Errorf("%d messages went to the old URL", n)
	}
}

// Each webhook is delivered by one of the servers that share a store. The other takes
// over when the lease is no longer renewed.
func TestServersTakeTurns(t *testing.T) {
	store := newStore(t)
	shared := func(o *Options) { o.Shared = true }
	e := newEndpoint(t, nil)
	a := run(t, store, shared)
	w := a.create(e)
	testenv.Eventually(t, func() error {
		if got := a.get(w.ID).Lease.Owner; got != a.owner {
			return fmt.Errorf("the lease belongs to %q", got)
		}
		return nil
	})
	start := time.Now()
	b := prepare(t, store, shared)
	b.poll(t.Context()) // sees the lease
	b.run()
	a.write(plantstore.Create, ferns(1, 100)...)
	messages, owner := e.awaitEvents(100), a.get(w.ID).Lease.Owner
	// If it took longer, b may have reason to take over.
	once := time.Since(start) < leaseTimeout
	wantPlants(t, onceIf(once, messages), ferns(1, 100)...)
	if once && owner != a.owner {
		t.Fatalf("the lease belongs to %q", owner)
	}

	// A graceful stop gives the lease back.
	once = a.stopInTime() && once
	b.wake()
	b.write(plantstore.Create, fern(101))
	wantPlants(t, onceIf(once, e.awaitEvents(101)), ferns(1, 101)...)

	// A lease that is not renewed is taken, but not at once.
	b.stop()
	_, err := store.UpdateWebhook(t.Context(), w.ID, plantstore.Actor{}, func(w *plantstore.Webhook) error {
		w.Lease.Owner = "a server that was killed"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	before := len(e.messages())
	c := prepare(t, store, shared)
	c.write(plantstore.Create, fern(102))
	c.poll(t.Context())
	sighted, ok := c.seen[w.ID]
	if !ok || len(c.running) > 0 {
		t.Errorf("the lease was taken before it expired, or not seen: %v", c.seen)
	}
	sighted.since = sighted.since.Add(-leaseTimeout)
	c.seen[w.ID] = sighted
	c.run()
	e.awaitMessages(before + 1)
}

// A retry that is due and cannot be sent must not keep the processor busy: something
// else wakes the delivery when it can be sent.
func TestDeliveryWaitsUntilARetryCanBeSent(t *testing.T) {
	newDelivery := func(pending ...plantstore.PendingEvent) *delivery {
		p := plantstore.Progress{Position: plantstore.Position{Store: "s", Seq: 100}.Cursor()}
		for i := range pending {
			pending[i].Event, pending[i].ID = plantstore.Position{Store: "s", Seq: int64(i + 1)}.Cursor(), plantstore.ID(i)
			pending[i].Attempts, pending[i].Next = 1, time.Now().Add(-time.Minute)
		}
		p.Pending = pending
		return &delivery{sender: new(Sender), queue: newTestQueue(p), changed: make(chan struct{})}
	}
	full := newDelivery(make([]plantstore.PendingEvent, maxInFlight+1)...)
	large := newDelivery(plantstore.PendingEvent{Size: maxBytes}, plantstore.PendingEvent{Size: maxBytes})
	unsaved := newDelivery(make([]plantstore.PendingEvent, 1)...)
	unsaved.version, unsaved.saving = maxUnsaved, true
	unread := newDelivery(make([]plantstore.PendingEvent, maxHeld+maxInFlight)...)
	unread.changed, unread.readAt = nil, time.Now().Add(-time.Minute)
	for name, d := range map[string]*delivery{"all are in flight": full, "it is too large": large, "much is unsaved": unsaved, "too many to read more": unread} {
		for d.version < maxUnsaved && d.queue.next(time.Now()) != nil {
		}
		if got := d.wait(); got <= 0 {
			t.Errorf("%s: it waits for %s", name, got)
		}
	}
	if due := newDelivery(make([]plantstore.PendingEvent, 1)...); due.wait() > 0 {
		t.Errorf("it waits for %s although a retry can be sent", due.wait())
	}
}
