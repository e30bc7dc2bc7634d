package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/sqlite"
	"plantstore/internal/testenv"
)

// twice is a store that changes a webhook twice, as one may that lost its connection.
type twice struct{ *sqlite.Store }

func (s twice) UpdateWebhook(ctx context.Context, id string, by plantstore.Actor, change func(*plantstore.Webhook) error) (plantstore.Webhook, error) {
	if w, err := s.Store.UpdateWebhook(ctx, id, by, change); err != nil {
		return w, err
	}
	return s.Store.UpdateWebhook(ctx, id, by, change)
}

// However often a secret is rotated, the one that the receiver knows signs for 24 hours.
func TestOldSecretsSignForADay(t *testing.T) {
	store := newStore(t)
	for name, s := range map[string]plantstore.Store{"a store": store, "a store that lost its connection": twice{store}} {
		t.Run(name, func(t *testing.T) {
			m := New(s, Options{Key: []byte("a key"), Allow: loopback})
			e := newEndpoint(t, nil)
			w, first, err := m.Create(t.Context(), plantstore.Webhook{URL: e.URL}, "", plantstore.Actor{})
			if err != nil {
				t.Fatal(err)
			}
			known := []string{first}
			for range 3 {
				_, secret, err := m.Rotate(t.Context(), w.ID, plantstore.Actor{})
				if err != nil {
					t.Fatal(err)
				}
				known = append(known, secret)
				e.trust(known...)
				if a, err := m.Test(t.Context(), w.ID); err != nil || a.Status != 200 {
					t.Fatalf("got %+v, %v", a, err)
				}
			}
			m.client.CloseIdleConnections()
			for range 2 * maxSecrets {
				if w, _, err = m.Rotate(t.Context(), w.ID, plantstore.Actor{}); err != nil {
					t.Fatal(err)
				}
			}
			if len(w.Secrets) != maxSecrets {
				t.Errorf("there are %d secrets, want %d", len(w.Secrets), maxSecrets)
			}
			for i, s := range w.Secrets {
				if s.Expires.IsZero() != (i == 0) {
					t.Errorf("secret %d expires at %s", i, s.Expires)
				}
			}
		})
	}
}

// Types that are no longer wanted are not sent, not even if an attempt failed before.
func TestTypesAreReplacedWhileEventsArePending(t *testing.T) {
	s := run(t, newStore(t))
	var fails atomic.Bool
	fails.Store(true)
	e := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, _ message) {
		if fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	w := s.create(e)
	s.write(plantstore.Create, fern(1))
	s.write(plantstore.Delete, fern(1))
	e.awaitMessages(2)
	if _, err := s.Replace(t.Context(), w.ID, plantstore.Webhook{URL: e.URL + "/hook", Types: []plantstore.EventType{plantstore.PlantDeleted}}, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() error {
		if got := e.messages(); got[len(got)-1].Type != plantstore.PlantDeleted {
			return errors.New("the deletion was not sent")
		}
		return nil
	})
	fails.Store(false)
	testenv.Eventually(t, func() error {
		if p := s.get(w.ID).Progress.Pending; len(p) > 0 {
			return errors.New("events are pending")
		}
		return nil
	})
}

// A webhook that names what it may not call is refused, and so is a change to that.
func TestRefusedURLIsNotStored(t *testing.T) {
	m := New(newStore(t), Options{})
	const private = "https://10.0.0.1/hook"
	if _, _, err := m.Create(t.Context(), plantstore.Webhook{URL: private}, "", plantstore.Actor{}); !errors.Is(err, plantstore.ErrParameter) {
		t.Errorf("got %v", err)
	}
	w, _, err := m.Create(t.Context(), plantstore.Webhook{URL: "https://example.com/"}, "", plantstore.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Replace(t.Context(), w.ID, plantstore.Webhook{URL: private}, plantstore.Actor{}); !errors.Is(err, plantstore.ErrParameter) {
		t.Errorf("got %v", err)
	}
	all, err := m.List(t.Context())
	if err != nil || len(all) != 1 || all[0].URL != w.URL {
		t.Errorf("got %v, %v", all, err)
	}
}

// failing is a store that fails while it is told to.
type failing struct {
	*sqlite.Store
	now      atomic.Bool
	failures atomic.Int64
}

func (s *failing) err() error {
	if s.now.Load() {
		s.failures.Add(1)
		return errors.New("the disk is on fire")
	}
	return nil
}

func (s *failing) Events(ctx context.Context, q plantstore.EventQuery) (plantstore.EventPage, error) {
	if err := s.err(); err != nil {
		return plantstore.EventPage{}, err
	}
	return s.Store.Events(ctx, q)
}

func (s *failing) Webhooks(ctx context.Context) ([]plantstore.Webhook, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Store.Webhooks(ctx)
}

func (s *failing) UpdateWebhook(ctx context.Context, id string, by plantstore.Actor, change func(*plantstore.Webhook) error) (plantstore.Webhook, error) {
	if err := s.err(); err != nil {
		return plantstore.Webhook{}, err
	}
	return s.Store.UpdateWebhook(ctx, id, by, change)
}

func (s *failing) SaveWebhook(ctx context.Context, id string, change func(*plantstore.Webhook) error) error {
	if err := s.err(); err != nil {
		return err
	}
	return s.Store.SaveWebhook(ctx, id, change)
}

func (s *failing) SaveDeliveries(ctx context.Context, id string, attempts []plantstore.Delivery) error {
	if err := s.err(); err != nil {
		return err
	}
	return s.Store.SaveDeliveries(ctx, id, attempts)
}

// While the store fails, what is sent is bounded, and nothing is lost or disabled.
func TestStoreFailsForAWhile(t *testing.T) {
	store := &failing{Store: newStore(t)}
	s := run(t, store)
	e := newEndpoint(t, nil)
	w := s.create(e)
	s.write(plantstore.Create, fern(1))
	e.awaitMessages(1)
	start := time.Now()
	store.now.Store(true)
	s.write(plantstore.Create, ferns(2, 1000)...)
	s.wake()
	time.Sleep(2 * storeDelay) // so that every part fails at least once
	testenv.Eventually(t, func() error {
		if store.failures.Load() == 0 {
			return errors.New("nothing has failed")
		}
		return nil
	})
	if n := len(e.messages()); n > maxUnsaved+maxInFlight+1 {
		t.Errorf("%d messages were sent, although it could not be saved that they were", n)
	}
	store.now.Store(false)
	most := 10 * int(time.Since(start)/storeDelay) // warnings
	e.awaitMessages(1000)
	s.stop()
	if got := s.get(w.ID); got.Disabled != "" {
		t.Errorf("the webhook is disabled: %s", got.Disabled)
	}
	ids := make(map[plantstore.ID]bool)
	for _, m := range e.messages() {
		ids[m.Data.ID] = true
	}
	if len(ids) != 1000 {
		t.Errorf("messages about %d plants were received, want 1000", len(ids))
	}
	if n := strings.Count(s.log.String(), "level=WARN"); n == 0 || n > most {
		t.Errorf("%d warnings were logged:\n%s", n, s.log)
	}
}

// A webhook with as many pending events as it may have is read and saved as any other.
func TestManyPendingEvents(t *testing.T) {
	s := run(t, newStore(t), func(o *Options) { o.Delays.First = time.Hour })
	e := newEndpoint(t, status(http.StatusInternalServerError))
	w := s.create(e)
	s.write(plantstore.Create, ferns(1, 2000)...)
	testenv.Eventually(t, func() error {
		if n := len(s.get(w.ID).Progress.Pending); n < maxHeld {
			return fmt.Errorf("%d events are pending", n)
		}
		return nil
	})
	s.stop()
	got := s.get(w.ID).Progress
	if n := len(got.Pending); n < maxHeld || n > maxHeld+maxReady+maxInFlight {
		t.Errorf("%d events are pending, want %d", n, maxHeld)
	}
	if !slices.IsSortedFunc(got.Pending, func(a, b plantstore.PendingEvent) int {
		return int(seqOf(t, a.Event) - seqOf(t, b.Event))
	}) {
		t.Error("the pending events are not in order")
	}
	if at, n := seqOf(t, got.Position), int64(len(got.Pending)); at != n {
		t.Errorf("the position is %d although %d events are pending and none was delivered", at, n)
	}
}

// counting is a store that counts how often progress is saved.
type counting struct {
	*sqlite.Store
	saves atomic.Int64
}

func (s *counting) SaveWebhook(ctx context.Context, id string, change func(*plantstore.Webhook) error) error {
	s.saves.Add(1)
	return s.Store.SaveWebhook(ctx, id, change)
}

// A webhook that is sent nothing costs other writes next to nothing.
func TestEventsThatAreNotSentAreSavedRarely(t *testing.T) {
	store := &counting{Store: newStore(t)}
	s := run(t, store)
	s.create(newEndpoint(t, nil), plantstore.PlantDeleted)
	start := time.Now()
	for id := plantstore.ID(1); id <= 200; id++ {
		s.write(plantstore.Create, fern(id))
		time.Sleep(time.Millisecond) // the webhook reads each event on its own
	}
	if n, most := store.saves.Load(), 1+int64(time.Since(start)/moveInterval); n > most {
		t.Errorf("the position was saved %d times in %s, want %d", n, time.Since(start), most)
	}
}

// In a store that servers share, every save leaves an old row.
func TestProgressInASharedStoreIsSavedRarely(t *testing.T) {
	const webhooks, events = 3, 500
	store := &counting{Store: newStore(t)}
	s := run(t, store, func(o *Options) { o.Shared = true })
	var endpoints []*endpoint
	for range webhooks {
		e := newEndpoint(t, nil)
		s.create(e)
		endpoints = append(endpoints, e)
	}
	start, before := time.Now(), store.saves.Load()
	for id := range plantstore.ID(events) {
		s.write(plantstore.Create, fern(id))
	}
	for _, e := range endpoints {
		e.awaitMessages(events)
	}
	if n, most := store.saves.Load()-before, webhooks*(1+int64(time.Since(start)/sharedInterval)); n > most {
		t.Errorf("the progress was saved %d times in %s, want %d at most", n, time.Since(start), most)
	}
	s.stop()
	all, err := store.Webhooks(t.Context())
	for _, w := range all {
		if at, bad := w.Progress.Position.Position(); err != nil || bad != nil || at.Seq != events || len(w.Progress.Pending) > 0 {
			t.Errorf("at the end the progress is %+v, %v", w.Progress, cmp.Or(err, bad))
		}
	}
}

// Many webhooks of one server share its saves, and keep their leases.
func TestManyWebhooksShareTheirSaves(t *testing.T) {
	s := New(newStore(t), Options{Shared: true})
	d := &delivery{sender: s}
	for active, want := range map[int64]time.Duration{1: sharedInterval, 10: sharedInterval, 50: 2500 * time.Millisecond, plantstore.MaxWebhooks: 5 * time.Second} {
		s.active.Store(active)
		if got := d.saveInterval(); got != want || got > leaseTimeout-pollInterval {
			t.Errorf("%d webhooks: each saves every %s, want %s", active, got, want)
		}
	}
}

// However many webhooks there are, their saves leave time for other writes.
func TestSavesTakeTurns(t *testing.T) {
	const saves, took = 40, 2 * time.Millisecond
	m := New(nil, Options{})
	var inside, most atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range saves {
		all.Go(func() {
			err := m.limitSave(t.Context(), func() error {
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(took)
				inside.Add(-1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if least := (saves/maxSaves - 1) * (1 + savePause) * took; time.Since(start) < least || most.Load() > maxSaves {
		t.Errorf("%d saves took %s, %d at once, want at least %s and at most %d", saves, time.Since(start), most.Load(), least, maxSaves)
	}
}
