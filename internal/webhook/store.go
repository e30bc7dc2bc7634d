package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"plantstore"
	"plantstore/internal/rules"
	"plantstore/internal/wire"
)

// The limits of what all webhooks together do to the store.
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
