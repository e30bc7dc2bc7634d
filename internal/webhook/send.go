package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"plantstore"
)

// The limits that all webhooks share.
const (
	maxReads   = 2        // reads of the log at once, so that clients can read too
	maxSending = 16 << 20 // bytes of large events in memory
	maxTests   = 16       // tests at once
	maxSaves   = 2        // saves of progress at once, which delay other writes
	savePause  = 3        // times as long as a save took, another must wait, up to maxSavePause
)

// maxSavePause is short enough for the leases of every webhook on a slow store.
const maxSavePause = 50 * time.Millisecond

// acquire waits until there is memory for an event. Only large ones need to wait.
func (m *Manager) acquire(ctx context.Context, it *item) error {
	if it.Size == 0 {
		return nil
	}
	return m.sending.Acquire(ctx, int64(min(it.Size, maxSending)))
}

func (m *Manager) release(it *item) {
	if it.Size > 0 {
		m.sending.Release(int64(min(it.Size, maxSending)))
	}
}

// limitSave calls a function that writes to the store. With many webhooks, such writes
// take at most half of the time of a store that makes one at a time.
func (m *Manager) limitSave(ctx context.Context, save func() error) error {
	if err := m.saves.Acquire(ctx, 1); err != nil {
		return err
	}
	start := time.Now()
	err := save()
	time.AfterFunc(min(savePause*time.Since(start), maxSavePause), func() { m.saves.Release(1) })
	return err
}

// events reads a page of the log.
func (m *Manager) events(ctx context.Context, q plantstore.EventQuery) (page plantstore.EventPage, err error) {
	if err := m.reads.Acquire(ctx, 1); err != nil {
		return page, err
	}
	defer m.reads.Release(1)
	return m.store.Events(ctx, q)
}

// event reads one event.
func (m *Manager) event(ctx context.Context, at plantstore.Cursor) (*plantstore.Event, error) {
	page, err := m.events(ctx, plantstore.EventQuery{After: at, Including: true, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(page.Events) == 0 {
		return nil, plantstore.ErrorGone("its event is no longer kept")
	}
	return &page.Events[0], nil
}

// send sends one message. The Delivery that it returns lacks the event and the attempt.
func (m *Manager) send(ctx context.Context, w *plantstore.Webhook, secrets []string, id string, kind plantstore.EventType, body []byte) plantstore.Delivery {
	began := time.Now()
	a := plantstore.Delivery{Type: kind, Time: began.UTC()}
	fail := func(err error) plantstore.Delivery {
		a.Duration, a.Error = time.Since(began), explain(err)
		return a
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return fail(err)
	}
	if err := SetHeader(r.Header, secrets, id, began, body); err != nil {
		return fail(err)
	}
	response, err := m.client.Do(r)
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

// excerpt returns the start of a text that may not be UTF-8.
func excerpt(text string, size int) string {
	return strings.ToValidUTF8(text[:min(len(text), size)], "")
}

// explain returns the text of an error without the URL, which may be secret.
func explain(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no response within " + attemptTimeout.String()
	}
	return excerpt(err.Error(), maxError)
}
