package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/testenv"
)

// awaitHealth waits until the health of a webhook is as wanted, as this server sees it.
func (s *service) awaitHealth(id string, want func(plantstore.WebhookHealth) bool) (h plantstore.WebhookHealth) {
	s.t.Helper()
	testenv.Eventually(s.t, func() error {
		if h = s.get(id).Health; !want(h) {
			return fmt.Errorf("the health is %+v, failing %+v", h, h.Failing)
		}
		return nil
	})
	return h
}

func isFailing(h plantstore.WebhookHealth) bool { return h.Failing != nil }

func isHealthy(h plantstore.WebhookHealth) bool {
	return h.Failing == nil && !h.Delivered.IsZero() && h.Pending == 0 && h.Lag == 0
}

// The server that asks is not the one that delivers.
func TestEveryServerSeesThatAWebhookFails(t *testing.T) {
	store := newStore(t)
	shared := func(o *Options) { o.Shared = true }
	a := run(t, store, shared)
	other := &service{Sender: New(store, Options{Shared: true}), t: t, store: store}
	var fails atomic.Bool
	e := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, _ message) {
		if fails.Load() {
			http.Error(w, "confidential", http.StatusInternalServerError)
		}
	})
	w := a.create(e)
	if w.Health != (plantstore.WebhookHealth{State: plantstore.Healthy}) {
		t.Errorf("a new webhook has %+v", w.Health)
	}
	a.write(plantstore.Create, fern(1))
	before := other.awaitHealth(w.ID, isHealthy)
	if time.Since(before.Delivered).Abs() > time.Minute {
		t.Errorf("delivered %v", before.Delivered)
	}

	fails.Store(true)
	start := time.Now()
	a.write(plantstore.Create, fern(2))
	first := other.awaitHealth(w.ID, isFailing)
	if f := first.Failing; f.Since.Before(start) || f.Since.After(time.Now()) || f.Attempts < 1 || f.Error != "the endpoint responded 500" {
		t.Errorf("got %+v", f)
	}
	if first.Pending != 1 || first.Lag <= 0 || first.Lag > time.Since(start) || first.Delivered != before.Delivered {
		t.Errorf("got %+v", first)
	}
	a.write(plantstore.Create, fern(3))
	later := other.awaitHealth(w.ID, func(h plantstore.WebhookHealth) bool { return isFailing(h) && h.Failing.Attempts > 2 && h.Pending == 2 })
	if later.Failing.Since != first.Failing.Since {
		t.Errorf("failing since %v, then since %v", first.Failing.Since, later.Failing.Since)
	}
	all, err := other.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Health.Failing == nil || all[0].Health.Pending != 2 {
		t.Errorf("got %+v, %v", all, err)
	}

	// A server that takes over goes on from what was saved.
	a.stop()
	stopped := other.get(w.ID).Health
	run(t, store, shared)
	again := other.awaitHealth(w.ID, func(h plantstore.WebhookHealth) bool { return h.Failing.Attempts > stopped.Failing.Attempts })
	if again.Delivered != before.Delivered || again.Failing.Since != first.Failing.Since {
		t.Errorf("got %+v, failing %+v, after %+v", again, again.Failing, stopped.Failing)
	}
	fails.Store(false)
	if h := other.awaitHealth(w.ID, isHealthy); !h.Delivered.After(before.Delivered) {
		t.Errorf("delivered %v, want a time after %v", h.Delivered, before.Delivered)
	}
}

func TestResumedAndMovedWebhooksAreNotFailing(t *testing.T) {
	s := run(t, newStore(t))
	e := newEndpoint(t, status(http.StatusGone))
	w := s.create(e)
	s.write(plantstore.Create, ferns(1, 3)...)
	s.awaitDisabled(w.ID, "410 Gone")
	disabled := s.awaitHealth(w.ID, isFailing)
	if disabled.Pending != 3 || disabled.Lag <= 0 || disabled.Failing.Error != "the endpoint responded 410" {
		t.Errorf("disabled: got %+v, failing %+v", disabled, disabled.Failing)
	}
	s.stop() // so that nothing is attempted again
	resumed, err := s.Resume(t.Context(), w.ID, plantstore.Actor{})
	if h := resumed.Health; err != nil || h.Failing != nil || h.Pending != 3 || h.Lag < disabled.Lag {
		t.Errorf("resumed: got %+v, %v", h, err)
	}
	moved, err := s.Replay(t.Context(), w.ID, plantstore.LatestCursor, time.Time{}, plantstore.Actor{})
	if err != nil || moved.Health != (plantstore.WebhookHealth{State: plantstore.Healthy, LastError: moved.Health.LastError}) || moved.Health.LastError.URL != w.URL {
		t.Errorf("moved: got %+v, %v", moved.Health, err)
	}
}

// An event that fails is the oldest, and later ones of other plants arrive.
func TestHealthIsThatOfTheOldestEvent(t *testing.T) {
	s := run(t, newStore(t))
	e := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, m message) {
		if m.Data.ID == 1 {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	w := s.create(e, plantstore.PlantCreated)
	s.write(plantstore.Create, ferns(1, 5)...)
	s.write(plantstore.Delete, ferns(2, 5)...) // events that it does not send
	h := s.awaitHealth(w.ID, func(h plantstore.WebhookHealth) bool { return isFailing(h) && h.Pending == 1 })
	if h.Delivered.IsZero() || !strings.HasSuffix(h.Failing.Error, "418") || h.Lag <= 0 {
		t.Errorf("got %+v, failing %+v", h, h.Failing)
	}
}

// The progress is saved after every attempt, while an endpoint that is down makes a thousand
// events pending.
func TestErrorIsSavedOnceAndBounded(t *testing.T) {
	d := &delivery{sender: New(newStore(t), Options{}), queue: newTestQueue(plantstore.Progress{})}
	for i := range 10 {
		d.queue.add(eventAt(int64(i+1), plantstore.ID(i)))
		d.record(result{item: d.queue.next(time.Now()), attempt: plantstore.Delivery{Error: strings.Repeat("é", maxError)}})
	}
	saved, err := json.Marshal(d.progress())
	if got := strings.Count(string(saved), "é"); err != nil || got != maxReason/2 {
		t.Errorf("got %d letters, %v, want %d: %s", got, err, maxReason/2, saved)
	}
}

// failingAfterChange is a store that cannot read the log once a webhook was changed.
type failingAfterChange struct {
	plantstore.Store
	changed bool
}

func (s *failingAfterChange) UpdateWebhook(ctx context.Context, id string, by plantstore.Actor, change func(*plantstore.Webhook) error) (plantstore.Webhook, error) {
	s.changed = true
	return s.Store.UpdateWebhook(ctx, id, by, change)
}

func (s *failingAfterChange) Backlogs(ctx context.Context, hooks []plantstore.Webhook) ([]plantstore.Backlog, error) {
	if s.changed {
		return nil, plantstore.ErrUnavailable
	}
	return s.Store.Backlogs(ctx, hooks)
}

func TestNewSecretIsNotLostWithTheHealth(t *testing.T) {
	store := &failingAfterChange{Store: newStore(t)}
	s := New(store, Options{Allow: loopback})
	w, _, err := s.Create(t.Context(), plantstore.Webhook{URL: "https://127.0.0.1:9/hook"}, plantstore.LatestCursor, plantstore.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	if _, secret, err := s.Rotate(t.Context(), w.ID, plantstore.Actor{}); err != nil || secret == "" {
		t.Errorf("got %q, %v", secret, err)
	}
}
