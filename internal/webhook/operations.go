package webhook

import (
	"cmp"
	"context"
	"slices"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// Create adds a webhook with the URL, the types, the description and the By of config. It
// starts after the cursor, or without one with the next event. The secret is returned only
// here.
func (s *Sender) Create(ctx context.Context, config plantstore.Webhook, after plantstore.Cursor, by plantstore.Actor) (w plantstore.Webhook, secret string, err error) {
	if err := s.check(&config); err != nil {
		return w, "", err
	}
	start, err := s.startOf(ctx, plantstore.EventQuery{After: cmp.Or(after, plantstore.LatestCursor), Limit: 1})
	if err != nil {
		return w, "", err
	}
	secret = plantstore.NewWebhookSecret()
	w = plantstore.Webhook{
		ID: plantstore.NewWebhookID(), URL: config.URL, Types: config.Types, Description: config.Description,
		Created: time.Now().UTC().Truncate(time.Second), By: config.By, Progress: plantstore.Progress{Position: start},
	}
	w.Secrets = []plantstore.WebhookSecret{{Secret: s.sealer.seal(w.ID, secret)}}
	if w, err = s.withHealth(ctx, w); err != nil { // before it is created: the secret must not be lost
		return plantstore.Webhook{}, "", err
	}
	if err := s.store.CreateWebhook(ctx, w, by); err != nil {
		return plantstore.Webhook{}, "", err
	}
	s.wake()
	return w, secret, nil
}

func (s *Sender) check(config *plantstore.Webhook) error {
	if err := config.Validate(); err != nil {
		return err
	}
	return s.egress.checkURL(config.URL)
}

// startOf returns the position before the first event of a query.
func (s *Sender) startOf(ctx context.Context, q plantstore.EventQuery) (plantstore.Cursor, error) {
	if err := s.reads.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer s.reads.Release(1)
	page, err := s.store.Events(ctx, q)
	return page.Start, err
}

// List returns all webhooks with their health, in order of creation.
func (s *Sender) List(ctx context.Context) ([]plantstore.Webhook, error) {
	all, err := s.store.Webhooks(ctx)
	if err != nil {
		return nil, err
	}
	return all, s.setHealth(ctx, all)
}

// Webhook returns a webhook with its health, or ErrNoWebhook.
func (s *Sender) Webhook(ctx context.Context, id string) (plantstore.Webhook, error) {
	w, err := s.find(ctx, id)
	if err != nil {
		return w, err
	}
	return s.withHealth(ctx, w)
}

// find returns a webhook without its health, or ErrNoWebhook.
func (s *Sender) find(ctx context.Context, id string) (plantstore.Webhook, error) {
	all, err := s.store.Webhooks(ctx)
	if err != nil {
		return plantstore.Webhook{}, err
	}
	i := slices.IndexFunc(all, func(w plantstore.Webhook) bool { return w.ID == id })
	if i < 0 {
		return plantstore.Webhook{}, plantstore.ErrNoWebhook
	}
	return all[i], nil
}

// Replace replaces the URL, the types and the description of a webhook. Undelivered events are
// sent to a new URL at once.
func (s *Sender) Replace(ctx context.Context, id string, config plantstore.Webhook, by plantstore.Actor) (plantstore.Webhook, error) {
	if err := s.check(&config); err != nil {
		return plantstore.Webhook{}, err
	}
	return s.update(ctx, id, by, func(w *plantstore.Webhook) error {
		if w.URL != config.URL {
			w.Try++
		}
		w.URL, w.Types, w.Description = config.URL, config.Types, config.Description
		return nil
	})
}

// Delete removes a webhook. Attempts in flight are completed.
func (s *Sender) Delete(ctx context.Context, id string, by plantstore.Actor) error {
	err := s.store.DeleteWebhook(ctx, id, by)
	s.wake()
	return err
}

// Rotate creates a new secret for a webhook. The earlier ones still sign for 24 hours.
func (s *Sender) Rotate(ctx context.Context, id string, by plantstore.Actor) (w plantstore.Webhook, secret string, err error) {
	secret = plantstore.NewWebhookSecret()
	added := plantstore.WebhookSecret{Secret: s.sealer.seal(id, secret)}
	before, err := s.Webhook(ctx, id) // its health is read first: after the change, a failure would lose the secret
	if err != nil {
		return plantstore.Webhook{}, "", err
	}
	w, err = s.change(ctx, id, by, func(w *plantstore.Webhook) error {
		if len(w.Secrets) > 0 && w.Secrets[0] == added {
			return nil // the store may call this more than once
		}
		for i := range w.Secrets {
			if w.Secrets[i].Expires.IsZero() {
				w.Secrets[i].Expires = time.Now().UTC().Add(rotation).Truncate(time.Second)
			}
		}
		s.forgetExpired(w)
		w.Secrets = slices.Insert(w.Secrets, 0, added)
		w.Secrets = w.Secrets[:min(len(w.Secrets), maxSecrets)]
		return nil
	})
	if err != nil {
		return w, "", err
	}
	w.Health = before.Health
	return w, secret, nil
}

// Pause stops a webhook until it is resumed. What is in flight may still arrive. It fails with
// ErrDisabled if the webhook is disabled for another reason.
func (s *Sender) Pause(ctx context.Context, id string, by plantstore.Actor) (plantstore.Webhook, error) {
	return s.update(ctx, id, by, func(w *plantstore.Webhook) error {
		if w.Disabled != "" && w.Disabled != plantstore.Paused {
			return plantstore.Errorf(plantstore.ErrDisabled, "the webhook is disabled already: %s", w.Disabled)
		}
		w.Disabled = plantstore.Paused
		return nil
	})
}

// Retry sends undelivered events now, without waiting until their next attempts are due. It fails
// with ErrDisabled if the webhook is disabled or paused.
func (s *Sender) Retry(ctx context.Context, id string, by plantstore.Actor) (plantstore.Webhook, error) {
	return s.update(ctx, id, by, func(w *plantstore.Webhook) error {
		switch w.Disabled {
		case "":
			w.Try++
			return nil
		case plantstore.Paused:
			return plantstore.Errorf(plantstore.ErrDisabled, "the webhook is paused: resume it instead")
		default:
			return plantstore.Errorf(plantstore.ErrDisabled, "the webhook is disabled: resume it instead; it stopped because %s", w.Disabled)
		}
	})
}

// Resume makes a disabled or paused webhook active again. It continues where it stopped.
func (s *Sender) Resume(ctx context.Context, id string, by plantstore.Actor) (plantstore.Webhook, error) {
	return s.update(ctx, id, by, func(w *plantstore.Webhook) error {
		switch w.Disabled {
		case "":
			return nil
		case plantstore.Paused: // deliveries before the pause may not be saved yet
			w.Try++
		default:
			w.Epoch++
		}
		w.Disabled = ""
		for i := range w.Progress.Pending { // the attempts, and the time until it gives up, start over
			e := &w.Progress.Pending[i]
			e.Attempts, e.First, e.Next = 0, time.Time{}, time.Time{}
		}
		return nil
	})
}

// Replay makes a webhook start over after a cursor, or from a time.
func (s *Sender) Replay(ctx context.Context, id string, after plantstore.Cursor, since time.Time, by plantstore.Actor) (plantstore.Webhook, error) {
	start, err := s.startOf(ctx, plantstore.EventQuery{After: after, Since: since, Limit: 1})
	if err != nil {
		return plantstore.Webhook{}, err
	}
	return s.update(ctx, id, by, func(w *plantstore.Webhook) error {
		w.Epoch++
		w.Progress = plantstore.Progress{Position: start, Delivered: w.Progress.Delivered, LastError: w.Progress.LastError, Try: w.Try}
		return nil
	})
}

// Test sends a webhook.test now, and returns the result. The caller limits how many run at
// once.
func (s *Sender) Test(ctx context.Context, id string) (plantstore.Delivery, error) {
	w, err := s.find(ctx, id)
	if err != nil {
		return plantstore.Delivery{}, err
	}
	secrets, err := s.secrets(&w)
	if err != nil {
		return plantstore.Delivery{Type: TestType, Attempt: 1, Time: time.Now().UTC(), Error: err.Error()}, nil
	}
	message := "evt_test_" + plantstore.NewWebhookID()
	a := Send(ctx, s.client, w.URL, secrets, message, TestType, wire.EncodeTestMessage(TestType, time.Now(), id))
	a.Attempt = 1
	return a, nil
}

// update changes a webhook, and returns it with its health.
func (s *Sender) update(ctx context.Context, id string, by plantstore.Actor, change func(*plantstore.Webhook) error) (plantstore.Webhook, error) {
	w, err := s.change(ctx, id, by, change)
	if err != nil {
		return w, err
	}
	return s.withHealth(ctx, w)
}

func (s *Sender) change(ctx context.Context, id string, by plantstore.Actor, change func(*plantstore.Webhook) error) (plantstore.Webhook, error) {
	w, err := s.store.UpdateWebhook(ctx, id, by, change)
	s.wake()
	return w, err
}

func (s *Sender) setHealth(ctx context.Context, hooks []plantstore.Webhook) error {
	backlogs, err := s.store.Backlogs(ctx, hooks)
	if err != nil {
		return err
	}
	for i := range hooks {
		hooks[i].Health = health(&hooks[i], backlogs[i], time.Now())
	}
	return nil
}

func (s *Sender) withHealth(ctx context.Context, w plantstore.Webhook) (plantstore.Webhook, error) {
	hooks := []plantstore.Webhook{w}
	err := s.setHealth(ctx, hooks)
	return hooks[0], err
}

// health returns the health of a webhook. The pending events come before those of the
// backlog.
func health(w *plantstore.Webhook, backlog plantstore.Backlog, now time.Time) plantstore.WebhookHealth {
	p := &w.Progress
	h := plantstore.WebhookHealth{Delivered: p.Delivered, Pending: min(len(p.Pending)+backlog.Events, plantstore.MaxPending)}
	if p.LastError != nil && !p.LastError.Time.IsZero() {
		h.LastError = p.LastError
	}
	oldest := backlog.Oldest
	if len(p.Pending) > 0 {
		if at, err := p.Pending[0].Event.Position(); err == nil {
			oldest = time.UnixMicro(at.Time)
		}
	}
	if !oldest.IsZero() {
		h.Lag = max(0, now.Sub(oldest))
	}
	if p.LastError != nil && p.LastError.URL == w.URL { // at another URL, nothing has failed yet
		h.Failing, h.NextAttempt = failures(w, now)
	}
	switch {
	case w.Disabled == plantstore.Paused:
		h.State = plantstore.WebhookPaused
	case w.Disabled != "":
		h.State = plantstore.WebhookDisabled
	case h.Failing != nil:
		h.State = plantstore.WebhookFailing
	case h.Lag > plantstore.CatchingUpAfter:
		h.State = plantstore.CatchingUp
	default:
		h.State = plantstore.Healthy
	}
	return h
}

// failures returns the oldest event that has failed, if the last attempt did, and when the next
// attempt at one is due.
func failures(w *plantstore.Webhook, now time.Time) (failing *plantstore.Failing, next time.Time) {
	p := &w.Progress
	for i := range p.Pending {
		e := &p.Pending[i]
		if e.First.IsZero() {
			continue
		}
		if p.Failing && failing == nil {
			failing = &plantstore.Failing{Since: e.First.UTC(), Attempts: e.Attempts, Error: p.LastError.Error}
		}
		at := e.Next.UTC()
		if at.IsZero() || p.Try != w.Try {
			at = now.UTC()
		}
		if w.Disabled == "" && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return failing, next
}
