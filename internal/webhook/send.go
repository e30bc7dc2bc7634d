package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

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
