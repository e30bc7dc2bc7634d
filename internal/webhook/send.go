package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"plantstore"
	"plantstore/internal/rules"
	"plantstore/internal/wire"
)

// The limits that all webhooks share.
const (
	maxReads  = 2 // reads of the log at once, so that clients can read too
	maxSaves  = 2 // saves of progress at once, which delay other writes
	savePause = 3 // the pause after a save, as a multiple of its duration, up to maxSavePause

	maxSavePause = 50 * time.Millisecond // short enough for the leases of every webhook on a slow store
)

// limitSave calls a function that writes to the store. With many webhooks, such writes
// take at most half of the time of a store that makes one at a time.
func (s *Sender) limitSave(ctx context.Context, save func() error) error {
	if err := s.saves.Acquire(ctx, 1); err != nil {
		return err
	}
	start := time.Now()
	err := save()
	time.AfterFunc(min(savePause*time.Since(start), maxSavePause), func() { s.saves.Release(1) })
	return err
}

// eventPage is a page of the log, and a channel that is closed when there may be events
// that the log did not have when the page was read.
type eventPage struct {
	plantstore.EventPage
	changed <-chan struct{}
}

// nextEvents reads a page of the log for a webhook.
func (s *Sender) nextEvents(ctx context.Context, q plantstore.EventQuery) (eventPage, error) {
	return share(ctx, s, fmt.Sprint(q.After, q.Types, q.Limit), func() (p eventPage, err error) {
		p.changed = s.store.Changed()
		p.EventPage, err = s.store.Events(ctx, q)
		return p, err
	})
}

// payload is the message about an event, the same for every webhook.
type payload struct {
	kind plantstore.EventType
	body []byte
}

// payload reads an event for a webhook and returns the message about it.
func (s *Sender) payload(ctx context.Context, at plantstore.Cursor) (payload, error) {
	return share(ctx, s, string(at), func() (payload, error) {
		page, err := s.store.Events(ctx, plantstore.EventQuery{After: at, Including: true, Limit: 1})
		if err != nil {
			return payload{}, err
		}
		if len(page.Events) == 0 {
			return payload{}, rules.ErrorGone("its event is no longer kept")
		}
		body, err := wire.EncodeMessage(page.Events[0])
		return payload{page.Events[0].Type, body}, err
	})
}

// errStopped says that the webhook that was reading for others has been stopped.
var errStopped = errors.New("the webhook was stopped")

// share returns the result of a read of the log. Most webhooks follow the log side by side:
// if another is already reading the same, it waits for that result.
func share[T any](ctx context.Context, s *Sender, key string, read func() (T, error)) (result T, err error) {
	for {
		got, err, _ := s.shared.Do(key, func() (any, error) {
			if s.reads.Acquire(ctx, 1) != nil {
				return nil, errStopped
			}
			defer s.reads.Release(1)
			got, err := read()
			if err != nil && ctx.Err() != nil {
				return nil, errStopped
			}
			return got, err
		})
		switch {
		case err == nil:
			return got.(T), nil
		case ctx.Err() != nil:
			return result, ctx.Err()
		case !errors.Is(err, errStopped):
			return result, err
		}
	}
}

// TestType is the type of the message that [Sender.Test] sends.
const TestType plantstore.EventType = "webhook.test"

// MessageID returns the id of the message about an event: the same for every attempt.
func MessageID(event plantstore.Cursor) string {
	return "evt_" + strings.ReplaceAll(string(event), ".", "_")
}

// Send sends one message as Standard Webhooks defines it, signed with every secret. The
// Delivery that it returns lacks the event and the attempt.
func Send(ctx context.Context, client *http.Client, target string, secrets []string, id string, kind plantstore.EventType, body []byte) plantstore.Delivery {
	began := time.Now()
	a := plantstore.Delivery{Type: kind, Time: began.UTC()}
	fail := func(err error) plantstore.Delivery {
		a.Duration, a.Error = time.Since(began), explain(err, client.Timeout)
		return a
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return fail(err)
	}
	if err := setHeader(r.Header, secrets, id, began, body); err != nil {
		return fail(err)
	}
	response, err := client.Do(r)
	if err != nil {
		return fail(err)
	}
	defer response.Body.Close()
	a.Status = response.StatusCode
	start, _ := io.ReadAll(io.LimitReader(response.Body, maxExcerpt))
	_, _ = io.CopyN(io.Discard, response.Body, maxResponse) // so that the connection can be used again
	a.Duration, a.Response = time.Since(began), excerpt(string(start), maxExcerpt)
	return a
}

// setHeader sets the header of a message as Standard Webhooks defines it, signed with
// every secret.
func setHeader(h http.Header, secrets []string, id string, at time.Time, body []byte) error {
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		var err error
		if signatures[i], err = plantstore.SignWebhook(secret, id, at, body); err != nil {
			return err
		}
	}
	h.Set("Content-Type", wire.MediaJSON)
	h.Set("User-Agent", "Plantstore")
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	h.Set("Webhook-Signature", strings.Join(signatures, " "))
	return nil
}

// excerpt returns the start of a text that may not be UTF-8.
func excerpt(text string, size int) string {
	return strings.ToValidUTF8(text[:min(len(text), size)], "")
}

// explain returns the text of an error without the URL, which may be secret.
func explain(err error, timeout time.Duration) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no response within " + timeout.String()
	}
	return excerpt(err.Error(), maxError)
}
