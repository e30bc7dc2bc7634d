package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/rules"
	"plantstore/internal/testenv"
)

// onOneAndOnTwo runs a test with a server that delivers, and another one that clients talk to:
// itself, or one that shares its store and does not deliver.
func onOneAndOnTwo(t *testing.T, configure func(*Options), test func(t *testing.T, s, other *service)) {
	t.Run("one server", func(t *testing.T) {
		s := run(t, newStore(t), configure)
		test(t, s, s)
	})
	t.Run("two servers", func(t *testing.T) {
		shared := func(o *Options) {
			configure(o)
			o.Shared = true
		}
		s := run(t, newStore(t), shared)
		test(t, s, prepare(t, s.store, shared))
	})
}

// hourLater makes the first retry wait for about an hour.
func hourLater(o *Options) { o.Delays.First = time.Hour }

// awaitRest waits until nobody delivers for a webhook.
func (s *service) awaitRest(id string) plantstore.Webhook {
	s.t.Helper()
	testenv.Eventually(s.t, func() error {
		if w := s.get(id); w.Lease.Owner != "" {
			return errors.New("somebody delivers for the webhook")
		}
		return nil
	})
	return s.get(id)
}

// A pause loses nothing, and nothing is sent twice, however far the sender was.
func TestPauseKeepsWhatWasDelivered(t *testing.T) {
	onOneAndOnTwo(t, func(*Options) {}, func(t *testing.T, s, other *service) {
		e := newEndpoint(t, nil)
		w := s.create(e)
		id := plantstore.ID(0)
		for pauses := range 3 {
			for last := id + 50; id < last; id++ {
				s.write(plantstore.Create, fern(id))
			}
			e.awaitMessages(50 * pauses)
			paused, err := other.Pause(t.Context(), w.ID, plantstore.Actor{})
			if err != nil || paused.Disabled != plantstore.Paused || paused.Health.State != plantstore.WebhookPaused {
				t.Fatalf("got %+v, %v", paused, err)
			}
			for s.get(w.ID).Lease.Owner != "" { // it is sending
				s.wake()
				s.write(plantstore.Create, fern(id))
				id++
			}
			sent := len(e.messages())
			before := s.get(w.ID)
			if sent < len(before.Progress.Pending) {
				t.Errorf("%d events are pending although %d were delivered", len(before.Progress.Pending), sent)
			}
			s.write(plantstore.Create, fern(id))
			id++
			s.wake()
			if _, err := other.Pause(t.Context(), w.ID, plantstore.Actor{}); err != nil {
				t.Fatal(err)
			}
			after := s.get(w.ID)
			if after.Health.Pending <= before.Health.Pending && before.Health.Pending < plantstore.MaxPending || len(e.messages()) != sent {
				t.Errorf("%d events were sent during the pause, %d are pending after %d", len(e.messages())-sent, after.Health.Pending, before.Health.Pending)
			}
			before.Health, after.Health = plantstore.WebhookHealth{}, plantstore.WebhookHealth{}
			if !reflect.DeepEqual(after, before) {
				t.Errorf("a second pause changes %+v to %+v", before, after)
			}
			resumed, err := other.Resume(t.Context(), w.ID, plantstore.Actor{})
			if err != nil || resumed.Disabled != "" {
				t.Fatalf("got %+v, %v", resumed, err)
			}
		}
		wantPlants(t, e.awaitMessages(int(id)), ferns(0, id-1)...)
	})
}

// A pause that ends before the sender has noticed it is none.
func TestShortPausesLoseNothing(t *testing.T) {
	s := run(t, newStore(t))
	e := newEndpoint(t, nil)
	w := s.create(e)
	for id := range plantstore.ID(300) {
		s.write(plantstore.Create, fern(id))
		if id%10 == 0 {
			if _, err := s.Pause(t.Context(), w.ID, plantstore.Actor{}); err != nil {
				t.Fatal(err)
			}
		}
		if id%10 < 2 {
			if _, err := s.Resume(t.Context(), w.ID, plantstore.Actor{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantPlants(t, e.awaitMessages(300), ferns(0, 299)...)
}

// A pause waits for what is in flight, and no other webhook waits for that.
func TestPausedEndpointThatHangsDelaysNothing(t *testing.T) {
	s := run(t, newStore(t))
	release := make(chan struct{})
	slow := newEndpoint(t, func(http.ResponseWriter, *http.Request, message) { <-release })
	paused := s.create(slow)
	s.write(plantstore.Create, fern(1))
	slow.awaitMessages(1)
	if _, err := s.Pause(t.Context(), paused.ID, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	fast := newEndpoint(t, nil)
	s.create(fast)
	s.write(plantstore.Create, fern(2))
	fast.awaitMessages(1)
	close(release)
	if w := s.awaitRest(paused.ID); len(w.Progress.Pending) > 0 {
		t.Errorf("what was in flight is pending: %+v", w.Progress)
	}
	if _, err := s.Resume(t.Context(), paused.ID, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	wantPlants(t, slow.awaitMessages(2), ferns(1, 2)...)
}

func TestRetryDoesNotWait(t *testing.T) {
	onOneAndOnTwo(t, hourLater, func(t *testing.T, s, other *service) {
		var code atomic.Int64
		code.Store(http.StatusInternalServerError)
		e := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, _ message) { w.WriteHeader(int(code.Load())) })
		w := s.create(e)
		s.write(plantstore.Create, ferns(1, 2)...)
		s.write(plantstore.Replace, plantstore.Plant{ID: 1, Name: "Oak"})
		e.awaitMessages(2)
		first := other.awaitHealth(w.ID, func(h plantstore.WebhookHealth) bool { return isFailing(h) && h.Pending == 3 })
		if wait := time.Until(first.NextAttempt); first.State != plantstore.WebhookFailing || wait < 20*time.Minute || wait > time.Hour {
			t.Errorf("got %+v", first)
		}
		if last := first.LastError; last == nil || last.URL != w.URL || time.Since(last.Time).Abs() > time.Minute || last.Error != "the endpoint responded 500" {
			t.Errorf("the last error is %+v", last)
		}

		// It fails again, and the next attempt is planned anew.
		code.Store(http.StatusBadGateway)
		asked, err := other.Retry(t.Context(), w.ID, plantstore.Actor{})
		if h := asked.Health; err != nil || !isFailing(h) || time.Until(h.NextAttempt) > 0 {
			t.Errorf("got %+v, %v", h, err)
		}
		s.wake()
		e.awaitMessages(4)
		second := other.awaitHealth(w.ID, func(h plantstore.WebhookHealth) bool {
			return isFailing(h) && h.Failing.Attempts == 2 && strings.Contains(h.Failing.Error, "502") && time.Until(h.NextAttempt) > 20*time.Minute
		})
		if second.Failing.Since != first.Failing.Since || !second.LastError.Time.After(first.LastError.Time) {
			t.Errorf("got %+v after %+v", second.Failing, first.Failing)
		}

		code.Store(http.StatusOK)
		if _, err := other.Retry(t.Context(), w.ID, plantstore.Actor{}); err != nil {
			t.Fatal(err)
		}
		s.wake()
		last := other.awaitHealth(w.ID, isHealthy)
		if last.State != plantstore.Healthy || !last.NextAttempt.IsZero() || !reflect.DeepEqual(last.LastError, second.LastError) {
			t.Errorf("got %+v, last error %+v", last, last.LastError)
		}
		wantPlants(t, e.messages()[4:], fern(1), fern(1), fern(2))
	})
}

// A receiver that takes long is not interrupted: it would process its events twice.
func TestRetryLeavesAttemptsInFlightAlone(t *testing.T) {
	s := run(t, newStore(t))
	e := newEndpoint(t, func(_ http.ResponseWriter, r *http.Request, _ message) {
		select {
		case <-r.Context().Done():
			t.Error("the attempt was abandoned")
		case <-time.After(stopGrace + time.Second):
		}
	})
	w := s.create(e)
	s.write(plantstore.Create, fern(1))
	e.awaitMessages(1)
	if _, err := s.Retry(t.Context(), w.ID, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	if h := s.awaitHealth(w.ID, isHealthy); h.Pending > 0 {
		t.Errorf("got %+v", h)
	}
	wantPlants(t, e.messages(), fern(1))
}

func TestChangedURLIsTriedAtOnce(t *testing.T) {
	onOneAndOnTwo(t, hourLater, func(t *testing.T, s, other *service) {
		broken := newEndpoint(t, status(http.StatusInternalServerError))
		w := s.create(broken)
		s.write(plantstore.Create, ferns(1, 2)...)
		broken.awaitMessages(2)
		before := other.awaitHealth(w.ID, isFailing)

		// Until the new URL has answered, it has not failed. What the old one said is history.
		reply := make(chan int)
		e := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, _ message) { w.WriteHeader(<-reply) })
		start := time.Now()
		changed, err := other.Replace(t.Context(), w.ID, plantstore.Webhook{URL: e.URL}, plantstore.Actor{})
		if err != nil {
			t.Fatal(err)
		}
		s.wake()
		e.awaitMessages(1)
		for what, h := range map[string]plantstore.WebhookHealth{"replaced": changed.Health, "attempted": other.get(w.ID).Health} {
			if h.Failing != nil || h.State == plantstore.WebhookFailing || !h.NextAttempt.IsZero() || h.LastError == nil || h.LastError.URL != w.URL {
				t.Errorf("%s: got %+v, failing %+v, last error %+v", what, h, h.Failing, h.LastError)
			}
		}
		reply <- http.StatusTeapot
		reply <- http.StatusTeapot
		h := other.awaitHealth(w.ID, isFailing)
		if h.LastError.URL != e.URL || !strings.Contains(h.Failing.Error, "418") || h.Failing.Since.Before(start) || !h.Failing.Since.After(before.Failing.Since) {
			t.Errorf("got %+v, failing %+v", h, h.Failing)
		}
		if _, err := other.Retry(t.Context(), w.ID, plantstore.Actor{}); err != nil {
			t.Fatal(err)
		}
		s.wake()
		reply <- http.StatusOK
		reply <- http.StatusOK
		other.awaitHealth(w.ID, isHealthy)
	})
}

// The time at the old URL does not count for the new one.
func TestChangedURLHasThreeDaysOfItsOwn(t *testing.T) {
	store := newStore(t)
	s := prepare(t, store, hourLater)
	e := newEndpoint(t, status(http.StatusInternalServerError))
	w := s.create(e)
	s.write(plantstore.Create, fern(1))
	page, err := store.Events(t.Context(), plantstore.EventQuery{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.UpdateWebhook(t.Context(), w.ID, plantstore.Actor{}, func(w *plantstore.Webhook) error {
		w.Progress = plantstore.Progress{
			Position: page.Events[0].Cursor, Failing: true, LastError: &plantstore.WebhookError{URL: w.URL, Time: time.Now(), Error: "refused"},
			Pending: []plantstore.PendingEvent{{Event: page.Events[0].Cursor, ID: 1, Attempts: 80, First: time.Now().Add(-giveUpAfter), Next: time.Now().Add(time.Hour)}},
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Replace(t.Context(), w.ID, plantstore.Webhook{URL: e.URL + "/new"}, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	s.run()
	h := s.awaitHealth(w.ID, isFailing)
	if h.State != plantstore.WebhookFailing || h.Failing.Attempts != 1 || time.Since(h.Failing.Since) > time.Hour {
		t.Errorf("got %+v, failing %+v", h, h.Failing)
	}
}

func TestDisabledWebhookIsNeitherPausedNorTried(t *testing.T) {
	s := run(t, newStore(t))
	e := newEndpoint(t, status(http.StatusGone))
	w := s.create(e)
	try := func(what string, call func() (plantstore.Webhook, error), wants string) {
		t.Helper()
		if _, err := call(); !errors.Is(err, plantstore.ErrDisabled) || !strings.Contains(err.Error(), wants) {
			t.Errorf("%s: got %v, want %q", what, err, wants)
		}
	}
	pause := func() (plantstore.Webhook, error) { return s.Pause(t.Context(), w.ID, plantstore.Actor{}) }
	retry := func() (plantstore.Webhook, error) { return s.Retry(t.Context(), w.ID, plantstore.Actor{}) }
	s.write(plantstore.Create, fern(1))
	s.awaitDisabled(w.ID, "410 Gone")
	try("pause of a disabled one", pause, "the webhook is disabled already: the endpoint responded 410 Gone")
	try("retry of a disabled one", retry, "the webhook is disabled: resume it instead")
	if got := s.get(w.ID); !strings.Contains(got.Disabled, "410") || got.Health.State != plantstore.WebhookDisabled || !got.Health.NextAttempt.IsZero() {
		t.Errorf("got %q, %+v", got.Disabled, got.Health)
	}
	if _, err := s.Replay(t.Context(), w.ID, plantstore.LatestCursor, time.Time{}, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resume(t.Context(), w.ID, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pause(); err != nil {
		t.Fatal(err)
	}
	try("retry of a paused one", retry, "the webhook is paused: resume it instead")
	for what, call := range map[string]func() (plantstore.Webhook, error){"pause": pause, "retry": retry} {
		w.ID = "wh_0"
		if _, err := call(); !errors.Is(err, plantstore.ErrNoWebhook) {
			t.Errorf("%s of none: got %v", what, err)
		}
	}
}

// Release 0.2.0 stored neither the URL nor the time of an error.
func TestErrorThatRelease020Stored(t *testing.T) {
	s := prepare(t, newStore(t))
	e := newEndpoint(t, status(http.StatusBadGateway))
	s.write(plantstore.Create, fern(1))
	page, err := s.store.Events(t.Context(), plantstore.EventQuery{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	const value = `{"id":"wh_1","url":%q,"created":"2026-01-31T12:00:00Z","secrets":[{"secret":"whsec_MDEyMzQ1Njc4OWFiY2RlZg=="}],"epoch":1,"lease":{},
		"progress":{"position":%q,"pending":[{"event":%[2]q,"id":1,"attempts":3,"first":"2026-01-31T12:00:00Z","next":"2026-01-31T13:00:00Z"}],"error":"the endpoint responded 500"}}`
	stored, err := rules.DecodeWebhook("wh_1", fmt.Sprintf(value, e.URL+"/hook", page.Events[0].Cursor))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.CreateWebhook(t.Context(), stored, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	h := s.get("wh_1").Health
	if h.State != plantstore.WebhookFailing || h.Failing == nil || h.Failing.Attempts != 3 || h.Failing.Error != "the endpoint responded 500" || h.LastError != nil {
		t.Errorf("got %+v, failing %+v, last error %+v", h, h.Failing, h.LastError)
	}
	if next := time.Date(2026, 1, 31, 13, 0, 0, 0, time.UTC); h.NextAttempt != next {
		t.Errorf("the next attempt is at %v, want %v", h.NextAttempt, next)
	}
	if _, err := s.Resume(t.Context(), "wh_1", plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	s.run()
	testenv.Eventually(t, func() error {
		if last := s.get("wh_1").Health.LastError; last == nil || last.URL != stored.URL || last.Error != "the endpoint responded 502" || last.Time.IsZero() {
			return fmt.Errorf("the last error is %+v", last)
		}
		return nil
	})
}

// The state follows from what is stored and from the time.
func TestStateOfAWebhook(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	backlog := func(age time.Duration) plantstore.Backlog {
		return plantstore.Backlog{Events: 3, Oldest: now.Add(-age)}
	}
	failed := plantstore.PendingEvent{First: now.Add(-time.Hour), Attempts: 9, Next: now.Add(time.Minute)}
	old := &plantstore.WebhookError{URL: "https://example.com/old", Time: now, Error: "refused"}
	here := &plantstore.WebhookError{URL: "https://example.com", Time: now, Error: "refused"}
	for name, tt := range map[string]struct {
		disabled string
		progress plantstore.Progress
		backlog  plantstore.Backlog
		want     plantstore.HealthState
		next     time.Time
	}{
		"new":                           {want: plantstore.Healthy},
		"delivering":                    {backlog: backlog(10 * time.Second), want: plantstore.Healthy},
		"behind":                        {backlog: backlog(10*time.Second + 1), want: plantstore.CatchingUp},
		"an event of a day ago":         {progress: plantstore.Progress{LastError: here, Delivered: now}, backlog: backlog(24 * time.Hour), want: plantstore.CatchingUp},
		"failing":                       {progress: plantstore.Progress{Failing: true, LastError: here, Pending: []plantstore.PendingEvent{failed}}, want: plantstore.WebhookFailing, next: failed.Next},
		"others are delivered":          {progress: plantstore.Progress{LastError: here, Pending: []plantstore.PendingEvent{failed}}, backlog: backlog(time.Hour), want: plantstore.CatchingUp, next: failed.Next},
		"failed before the URL changed": {progress: plantstore.Progress{Failing: true, LastError: old, Pending: []plantstore.PendingEvent{failed}}, backlog: backlog(time.Second), want: plantstore.Healthy},
		"asked to try":                  {progress: plantstore.Progress{Failing: true, LastError: here, Try: 1, Pending: []plantstore.PendingEvent{failed}}, want: plantstore.WebhookFailing, next: now},
		"the failed one is unwanted":    {progress: plantstore.Progress{Failing: true, LastError: here}, want: plantstore.Healthy},
		"paused":                        {disabled: plantstore.Paused, backlog: backlog(time.Hour), want: plantstore.WebhookPaused},
		"paused while failing":          {disabled: plantstore.Paused, progress: plantstore.Progress{Failing: true, LastError: here, Pending: []plantstore.PendingEvent{failed}}, want: plantstore.WebhookPaused},
		"disabled":                      {disabled: "410 Gone", progress: plantstore.Progress{Failing: true, LastError: here, Pending: []plantstore.PendingEvent{failed}}, want: plantstore.WebhookDisabled},
	} {
		w := plantstore.Webhook{URL: "https://example.com", Disabled: tt.disabled, Progress: tt.progress}
		got := health(&w, tt.backlog, now)
		if got.State != tt.want || got.NextAttempt != tt.next || got.LastError != tt.progress.LastError {
			t.Errorf("%s: got %+v, want %s and %v", name, got, tt.want, tt.next)
		}
		if failing := tt.progress.Failing && tt.progress.LastError == here && len(tt.progress.Pending) > 0; (got.Failing != nil) != failing {
			t.Errorf("%s: failing %+v", name, got.Failing)
		}
	}
}
