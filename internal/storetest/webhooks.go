package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"plantstore"
)

var webhookBehaviours = []behaviour{
	{"NoWebhooks", noWebhooks},
	{"WebhookIsStoredUnchanged", webhookIsStoredUnchanged},
	{"WebhooksAreListedInOrderOfCreation", webhooksAreListedInOrderOfCreation},
	{"WebhookIDIsUnique", webhookIDIsUnique},
	{"WebhookSharesNoMemory", webhookSharesNoMemory},
	{"WebhooksAreLimited", webhooksAreLimited},
	{"LastWebhookIsCreatedOnce", lastWebhookIsCreatedOnce},
	{"UpdateChangesOneWebhook", updateChangesOneWebhook},
	{"FailedUpdateChangesNothing", failedUpdateChangesNothing},
	{"NoUpdateOfAWebhookIsLost", noUpdateOfAWebhookIsLost},
	{"DeletedWebhookIsGone", deletedWebhookIsGone},
	{"BacklogsAreCounted", backlogsAreCounted},
	{"DeliveriesAreReplaced", deliveriesAreReplaced},
	{"DeliveriesDoNotOutliveTheirWebhook", deliveriesDoNotOutliveTheirWebhook},
}

func webhook(id string) plantstore.Webhook {
	return plantstore.Webhook{
		ID:      id,
		URL:     "https://example.com/" + id,
		Created: noon,
		Secrets: []plantstore.WebhookSecret{{Secret: "whsec_" + id}},
	}
}

// progress returns a progress with that many pending events.
func progress(n int) plantstore.Progress {
	p := plantstore.Progress{Position: plantstore.Cursor(fmt.Sprint("position.", n))}
	for i := range n {
		p.Pending = append(p.Pending, plantstore.PendingEvent{
			Event: plantstore.Cursor(fmt.Sprint("event.", i)), ID: plantstore.ID(-i), Attempts: i,
			First: noon.Add(time.Duration(i)), Next: noon.Add(time.Duration(i) * time.Hour),
		})
	}
	if n > 0 {
		p.Delivered, p.Failing, p.Try = noon.Add(time.Nanosecond), true, int64(n)
		p.LastError = &plantstore.WebhookError{URL: "https://example.com/old", Time: noon.Add(time.Nanosecond), Error: "out of \x00 soil"}
	}
	return p
}

// deliveries returns n attempts, the newest first.
func deliveries(n int) (attempts []plantstore.Delivery) {
	for i := range n {
		attempts = append(attempts, plantstore.Delivery{
			Event: plantstore.Cursor(fmt.Sprint("event.", n-i)), Type: plantstore.PlantCreated, Attempt: n - i,
			Time: noon.Add(time.Duration(n-i) * time.Second), Status: 500, Duration: time.Millisecond,
			Error: "500 Internal Server Error", Response: "out of \x00 soil",
		})
	}
	return attempts
}

func addWebhooks(t tb, s plantstore.Store, hooks ...plantstore.Webhook) {
	t.Helper()
	for _, w := range hooks {
		if err := s.CreateWebhook(t.Context(), w, plantstore.Actor{}); err != nil {
			t.Fatalf("CreateWebhook(%q): %v", w.ID, err)
		}
	}
}

func saveDeliveries(t tb, s plantstore.Store, id string, attempts []plantstore.Delivery) {
	t.Helper()
	if err := s.SaveDeliveries(t.Context(), id, attempts); err != nil {
		t.Fatalf("SaveDeliveries(%q): %v", id, err)
	}
}

// wantWebhooks fails unless the store has exactly these webhooks in this order.
func wantWebhooks(t tb, s plantstore.Store, want ...plantstore.Webhook) {
	t.Helper()
	got, err := s.Webhooks(t.Context())
	if err != nil {
		t.Fatalf("Webhooks: %v", err)
	}
	if len(got) != len(want) {
		t.Fatalf("Webhooks: got %d, want %d", len(got), len(want))
	}
	for i, w := range want {
		if !reflect.DeepEqual(got[i], w) {
			t.Fatalf("Webhooks: webhook %d is\n%+v, want\n%+v", i, got[i], w)
		}
	}
}

// wantDeliveries fails unless these are the last attempts of the webhook.
func wantDeliveries(t tb, s plantstore.Store, id string, want []plantstore.Delivery) {
	t.Helper()
	got, err := s.Deliveries(t.Context(), id)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("Deliveries(%q): got\n%+v, %v, want\n%+v", id, got, err, want)
	}
}

// wantNoWebhook fails unless every method says that there is no webhook with this id.
func wantNoWebhook(t tb, s plantstore.Store, id string) {
	t.Helper()
	change := func(*plantstore.Webhook) error {
		t.Errorf("an unknown webhook, %q, is changed", id)
		return nil
	}
	_, updated := s.UpdateWebhook(t.Context(), id, plantstore.Actor{}, change)
	_, read := s.Deliveries(t.Context(), id)
	for what, err := range map[string]error{
		"UpdateWebhook": updated,
		"SaveWebhook":   s.SaveWebhook(t.Context(), id, change),
		"DeleteWebhook": s.DeleteWebhook(t.Context(), id, plantstore.Actor{}),
		"Deliveries":    read,
	} {
		if !errors.Is(err, plantstore.ErrNoWebhook) {
			t.Errorf("%s(%q): error %v, want ErrNoWebhook", what, id, err)
		}
	}
	saveDeliveries(t, s, id, deliveries(1))
}

// noWebhooks uses ids that clients may send, too.
func noWebhooks(t *testing.T, s *subject) {
	ids := []string{"", "wh_1", "WH_1", "wh_", "wh_11", "\x00", "wh_1\x00", "\xff", "wh_1\xff", "%00", "%", "'"}
	for range 2 {
		wantWebhooks(t, s)
		for _, id := range ids {
			wantNoWebhook(t, s, id)
		}
		s.reopen(t)
	}
	addWebhooks(t, s, webhook("wh_1"))
	for _, id := range ids {
		if id != "wh_1" {
			wantNoWebhook(t, s, id)
		}
	}
	wantWebhooks(t, s, webhook("wh_1"))
	wantDeliveries(t, s, "wh_1", nil)
}

func webhookIsStoredUnchanged(t *testing.T, s *subject) {
	full := webhook("full")
	full.Types = []plantstore.EventType{plantstore.PlantDeleted, plantstore.PlantCreated}
	full.Description, full.Disabled = "two\nlines", "\x00"
	for _, text := range texts {
		full.Secrets = append(full.Secrets, plantstore.WebhookSecret{Secret: text, Expires: noon.Add(time.Nanosecond)})
	}
	full.Epoch, full.Try = 1<<62+1, 1<<62+3
	full.Lease = plantstore.Lease{Owner: "server", Renewal: 1<<62 + 1}
	full.Progress = progress(1000)
	want := []plantstore.Webhook{webhook("a"), full, {}}
	addWebhooks(t, s, want...)
	attempts := deliveries(plantstore.MaxDeliveries)
	saveDeliveries(t, s, "full", attempts)
	for range 2 {
		wantWebhooks(t, s, want...)
		wantDeliveries(t, s, "full", attempts)
		wantDeliveries(t, s, "a", nil)
		s.reopen(t)
	}
}

// webhooksAreListedInOrderOfCreation deletes some webhooks, the last one among them,
// before it creates others.
func webhooksAreListedInOrderOfCreation(t *testing.T, s *subject) {
	var want []plantstore.Webhook
	for i := range 10 {
		want = append(want, webhook(fmt.Sprintf("wh_%d", (i*7+3)%10)))
	}
	addWebhooks(t, s, want[:6]...)
	for _, i := range []int{5, 2, 0} {
		if err := s.DeleteWebhook(t.Context(), want[i].ID, plantstore.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
	s.reopen(t)
	addWebhooks(t, s, want[6:]...)
	addWebhooks(t, s, want[0])
	if err := s.SaveWebhook(t.Context(), want[1].ID, func(*plantstore.Webhook) error { return nil }); err != nil {
		t.Fatal(err)
	}
	wantWebhooks(t, s, slices.Concat(want[1:2], want[3:5], want[6:], want[:1])...)
}

func webhookIDIsUnique(t *testing.T, s *subject) {
	addWebhooks(t, s, webhook("a"))
	other := webhook("a")
	other.URL = "https://example.com/other"
	if err := s.CreateWebhook(t.Context(), other, plantstore.Actor{}); err == nil {
		t.Error("CreateWebhook accepted another webhook with the same id")
	}
	wantWebhooks(t, s, webhook("a"))
}

func webhookSharesNoMemory(t *testing.T, s *subject) {
	given, attempts := webhook("a"), deliveries(1)
	addWebhooks(t, s, given)
	given.Secrets[0].Secret = "mine"
	saveDeliveries(t, s, "a", attempts)
	attempts[0].Attempt = 99
	var changed *plantstore.Webhook
	updated, err := s.UpdateWebhook(t.Context(), "a", plantstore.Actor{}, func(w *plantstore.Webhook) error {
		changed = w
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	changed.Secrets[0].Secret, updated.Secrets[0].Secret = "mine", "mine"
	listed, err := s.Webhooks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	listed[0].Secrets[0].Secret = "mine"
	read, err := s.Deliveries(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	read[0].Attempt = 99
	wantWebhooks(t, s, webhook("a"))
	wantDeliveries(t, s, "a", deliveries(1))
}

// manyWebhooks returns n webhooks.
func manyWebhooks(n int) (hooks []plantstore.Webhook) {
	for i := range n {
		hooks = append(hooks, webhook(fmt.Sprintf("wh_%03d", i)))
	}
	return hooks
}

func webhooksAreLimited(t *testing.T, s *subject) {
	want := manyWebhooks(plantstore.MaxWebhooks)
	addWebhooks(t, s, want...)
	more := func() error { return s.CreateWebhook(t.Context(), webhook("more"), plantstore.Actor{}) }
	for range 2 {
		if err := more(); !errors.Is(err, plantstore.ErrTooMany) {
			t.Fatalf("CreateWebhook after %d: %v, want ErrTooMany", len(want), err)
		}
		wantWebhooks(t, s, want...)
		wantNoWebhook(t, s, "more")
		s.reopen(t)
	}
	if err := s.DeleteWebhook(t.Context(), want[7].ID, plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	if err := more(); err != nil {
		t.Fatalf("CreateWebhook after one was deleted: %v", err)
	}
	wantWebhooks(t, s, append(slices.Delete(want, 7, 8), webhook("more"))...)
}

// lastWebhookIsCreatedOnce has several callers create the last webhook that there may
// be, several times.
func lastWebhookIsCreatedOnce(t *testing.T, s *subject) {
	const n, rounds = 8, 5
	others := manyWebhooks(plantstore.MaxWebhooks - 1)
	addWebhooks(t, s, others...)
	for range rounds {
		errs := make([]error, n)
		inParallel(t, n, func(i int) error {
			errs[i] = s.CreateWebhook(t.Context(), webhook(fmt.Sprint("caller ", i)), plantstore.Actor{})
			return nil
		})
		var won []plantstore.Webhook
		for i, err := range errs {
			switch {
			case err == nil:
				won = append(won, webhook(fmt.Sprint("caller ", i)))
			case !errors.Is(err, plantstore.ErrTooMany):
				t.Errorf("CreateWebhook: %v, want ErrTooMany", err)
			}
		}
		if len(won) != 1 {
			t.Fatalf("%d of %d calls of CreateWebhook succeeded", len(won), n)
		}
		wantWebhooks(t, s, slices.Concat(others, won)...)
		if err := s.DeleteWebhook(t.Context(), won[0].ID, plantstore.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
}

func updateChangesOneWebhook(t *testing.T, s *subject) {
	want := []plantstore.Webhook{webhook("a"), webhook("b"), webhook("c")}
	addWebhooks(t, s, want...)
	change := func(w *plantstore.Webhook) error {
		w.URL, w.Types, w.Disabled = "https://example.org/", []plantstore.EventType{plantstore.PlantDeleted}, "broken"
		w.Progress = progress(3)
		return nil
	}
	if err := change(&want[1]); err != nil {
		t.Fatal(err)
	}
	got, err := s.UpdateWebhook(t.Context(), "b", plantstore.Actor{}, change)
	if err != nil || !reflect.DeepEqual(got, want[1]) {
		t.Fatalf("UpdateWebhook: %+v, %v, want %+v", got, err, want[1])
	}
	wantWebhooks(t, s, want...)
	save := func(w *plantstore.Webhook) error {
		w.Disabled, w.Types = "", nil
		w.Lease.Renewal++
		w.Progress = progress(0)
		return nil
	}
	if err := save(&want[1]); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveWebhook(t.Context(), "b", save); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wantWebhooks(t, s, want...)
		s.reopen(t)
	}
}

// wantBacklogs compares the backlogs of webhooks after each of some events, with each of some
// sets of types, with the count of these events, which are all that the store keeps.
func wantBacklogs(t tb, s plantstore.Store, events []plantstore.Event, after ...plantstore.Cursor) {
	t.Helper()
	var hooks []plantstore.Webhook
	var want []plantstore.Backlog
	for _, at := range after {
		for _, types := range [][]plantstore.EventType{
			nil, {plantstore.PlantCreated}, {plantstore.PlantReplaced}, {plantstore.PlantDeleted, plantstore.PlantReplaced},
		} {
			w := webhook(fmt.Sprint(types, " after ", at))
			w.Types, w.Progress.Position = types, at
			first := 1 + slices.IndexFunc(events, func(e plantstore.Event) bool { return e.Cursor == at })
			hooks, want = append(hooks, w), append(want, backlog(events[first:], &w))
		}
	}
	got, err := s.Backlogs(t.Context(), hooks)
	if err != nil || len(got) != len(want) {
		t.Fatalf("Backlogs: %v, %v, want %v", got, err, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("Backlogs: webhook %s has %+v, want %+v", hooks[i].ID, got[i], want[i])
		}
	}
}

func backlogsAreCounted(t *testing.T, s *subject) {
	if got, err := s.Backlogs(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("no webhooks: %v, %v", got, err)
	}
	_, start := follow(t, s, "")
	wantBacklogs(t, s, nil, start)
	var many []plantstore.Write
	for id := range plantstore.ID(plantstore.MaxPending) {
		many = append(many, create(plant(id, "fern")))
	}
	mustApply(t, s, replace(plant(-1, "fern")), replace(plant(-1, "oak")))
	addToken(t, s, token("ci")) // which no webhook sends
	mustApply(t, s, many...)
	mustApply(t, s, remove(-1), replace(plant(0, "oak")))
	events, end := follow(t, s, "")
	wantBacklogs(t, s, events, start, events[0].Cursor, events[1].Cursor, events[2].Cursor, events[3].Cursor, events[500].Cursor, events[len(events)-2].Cursor, end)

	// Only so many events are examined.
	many = many[:0]
	for id := range plantstore.ID(plantstore.MaxPending) {
		many = append(many, create(plant(1_000_000+id, "")))
	}
	mustApply(t, s, many...)
	mustApply(t, s, remove(0))
	w := webhook("far")
	w.Types, w.Progress.Position = []plantstore.EventType{plantstore.PlantDeleted}, end
	beyond, err := s.Backlogs(t.Context(), []plantstore.Webhook{w})
	page, _ := s.Events(t.Context(), plantstore.EventQuery{After: end, Limit: 1})
	w.Progress.Position = page.Next
	within, _ := s.Backlogs(t.Context(), []plantstore.Webhook{w})
	if err != nil || beyond[0] != (plantstore.Backlog{}) || within[0].Events != 1 {
		t.Errorf("got %v and %v, %v, want none and one event", beyond, within, err)
	}
}

func failedUpdateChangesNothing(t *testing.T, s *subject) {
	addWebhooks(t, s, webhook("a"))
	refusal := plantstore.Errorf(plantstore.ErrParameter, "no")
	change := func(w *plantstore.Webhook) error {
		w.URL, w.Secrets[0].Secret = "https://example.org/", "changed"
		return refusal
	}
	if got, err := s.UpdateWebhook(t.Context(), "a", plantstore.Actor{}, change); !errors.Is(err, refusal) || !reflect.DeepEqual(got, plantstore.Webhook{}) {
		t.Errorf("UpdateWebhook: %+v, %v, want %v", got, err, refusal)
	}
	if err := s.SaveWebhook(t.Context(), "a", change); !errors.Is(err, refusal) {
		t.Errorf("SaveWebhook: %v, want %v", err, refusal)
	}
	wantWebhooks(t, s, webhook("a"))
}

func noUpdateOfAWebhookIsLost(t *testing.T, s *subject) {
	const n = 32
	addWebhooks(t, s, webhook("a"))
	inParallel(t, n, func(i int) error {
		increment := func(w *plantstore.Webhook) error { w.Epoch++; return nil }
		if i%2 == 0 {
			return s.SaveWebhook(t.Context(), "a", increment)
		}
		_, err := s.UpdateWebhook(t.Context(), "a", plantstore.Actor{}, increment)
		return err
	})
	want := webhook("a")
	want.Epoch = n
	wantWebhooks(t, s, want)
}

func deletedWebhookIsGone(t *testing.T, s *subject) {
	addWebhooks(t, s, webhook("a"), webhook("b"))
	saveDeliveries(t, s, "a", deliveries(2))
	saveDeliveries(t, s, "b", deliveries(1))
	if err := s.DeleteWebhook(t.Context(), "a", plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wantNoWebhook(t, s, "a")
		wantWebhooks(t, s, webhook("b"))
		wantDeliveries(t, s, "b", deliveries(1))
		s.reopen(t)
	}
	addWebhooks(t, s, webhook("a"))
	wantDeliveries(t, s, "a", nil)
}

func deliveriesAreReplaced(t *testing.T, s *subject) {
	addWebhooks(t, s, webhook("a"), webhook("b"))
	wantDeliveries(t, s, "a", nil)
	for _, n := range []int{3, plantstore.MaxDeliveries, 1, 0, 2} {
		saveDeliveries(t, s, "a", deliveries(n))
		wantDeliveries(t, s, "a", deliveries(n))
		wantDeliveries(t, s, "b", nil)
	}
	s.reopen(t)
	wantDeliveries(t, s, "a", deliveries(2))
}

// deliveriesDoNotOutliveTheirWebhook saves deliveries while the webhook is deleted.
func deliveriesDoNotOutliveTheirWebhook(t *testing.T, s *subject) {
	for range 10 {
		addWebhooks(t, s, webhook("a"))
		inParallel(t, 4, func(i int) error {
			if i == 0 {
				return s.DeleteWebhook(t.Context(), "a", plantstore.Actor{})
			}
			return s.SaveDeliveries(t.Context(), "a", deliveries(i))
		})
		addWebhooks(t, s, webhook("a"))
		wantDeliveries(t, s, "a", nil)
		if err := s.DeleteWebhook(t.Context(), "a", plantstore.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
}
