package client

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// CreateWebhook creates a webhook with the URL, the types and the description of the
// configuration, and returns it with the secret that signs its messages. Changes are sent
// from now on, or if after is not empty, from that position. It fails with ErrTooMany if
// there are [plantstore.MaxWebhooks].
//
// It is not retried if the server may have created the webhook: a retry would create
// another.
func (c *Client) CreateWebhook(ctx context.Context, config plantstore.Webhook, after plantstore.Cursor) (w plantstore.Webhook, secret string, err error) {
	const what = "create a webhook"
	body, err := wire.EncodeNewWebhook(wire.NewWebhook{Config: config, After: after})
	if err != nil {
		return w, "", c.fail(what, err)
	}
	return created(ctx, c, what, http.StatusCreated, "/webhooks", body, wire.DecodeWebhook)
}

// Webhooks returns all webhooks, in order of creation.
func (c *Client) Webhooks(ctx context.Context) ([]plantstore.Webhook, error) {
	return decoded(ctx, c, "list webhooks", http.MethodGet, "/webhooks", nil, wire.DecodeWebhooks)
}

// Webhook returns the webhook with that id, or ErrNoWebhook.
func (c *Client) Webhook(ctx context.Context, id string) (plantstore.Webhook, error) {
	return decoded(ctx, c, "get webhook "+id, http.MethodGet, webhookPath(id, ""), nil, decodeWebhook)
}

// ReplaceWebhook sets the URL, the types and the description of a webhook, or fails
// with ErrNoWebhook.
func (c *Client) ReplaceWebhook(ctx context.Context, id string, config plantstore.Webhook) (plantstore.Webhook, error) {
	what := "replace webhook " + id
	body, err := wire.EncodeNewWebhook(wire.NewWebhook{Config: config})
	if err != nil {
		return plantstore.Webhook{}, c.fail(what, err)
	}
	return decoded(ctx, c, what, http.MethodPut, webhookPath(id, ""), body, decodeWebhook)
}

// DeleteWebhook removes a webhook, or fails with ErrNoWebhook.
func (c *Client) DeleteWebhook(ctx context.Context, id string) error {
	return c.remove(ctx, "delete webhook "+id, webhookPath(id, ""), nil, plantstore.ErrNoWebhook)
}

// RotateWebhook gives a webhook a new secret and returns it. For 24 hours the old one
// signs, too. It fails with ErrNoWebhook. It is not retried if the server may have
// created a secret already.
func (c *Client) RotateWebhook(ctx context.Context, id string) (w plantstore.Webhook, secret string, err error) {
	return created(ctx, c, "rotate the secret of webhook "+id, http.StatusOK, webhookPath(id, "/rotate"), nil, wire.DecodeWebhook)
}

// TestWebhook sends a webhook.test now and returns the result. A failed delivery is not an
// error. It fails with ErrNoWebhook.
func (c *Client) TestWebhook(ctx context.Context, id string) (plantstore.Delivery, error) {
	return decoded(ctx, c, "test webhook "+id, http.MethodPost, webhookPath(id, "/test"), nil, wire.DecodeDelivery)
}

// PauseWebhook stops a webhook until it is resumed. A paused webhook is disabled with the reason
// [plantstore.Paused]. It fails with ErrNoWebhook, or with ErrDisabled if the webhook is disabled
// for another reason.
func (c *Client) PauseWebhook(ctx context.Context, id string) (plantstore.Webhook, error) {
	return decoded(ctx, c, "pause webhook "+id, http.MethodPost, webhookPath(id, "/pause"), nil, decodeWebhook)
}

// RetryWebhook makes a webhook send its undelivered events now, without waiting until their next
// attempts are due. It fails with ErrNoWebhook, or with ErrDisabled if the webhook is disabled or
// paused.
func (c *Client) RetryWebhook(ctx context.Context, id string) (plantstore.Webhook, error) {
	return decoded(ctx, c, "retry webhook "+id, http.MethodPost, webhookPath(id, "/retry"), nil, decodeWebhook)
}

// ResumeWebhook makes a disabled or paused webhook active again, from where it stopped. It fails
// with ErrNoWebhook.
func (c *Client) ResumeWebhook(ctx context.Context, id string) (plantstore.Webhook, error) {
	return decoded(ctx, c, "resume webhook "+id, http.MethodPost, webhookPath(id, "/resume"), nil, decodeWebhook)
}

// ReplayWebhook moves the position of a webhook: the events after a cursor, or if that is
// empty, from a time on are sent, even if they were sent before. It fails with
// ErrNoWebhook, or with ErrGone if the events after the cursor are no longer kept.
func (c *Client) ReplayWebhook(ctx context.Context, id string, after plantstore.Cursor, since time.Time) (plantstore.Webhook, error) {
	body := wire.EncodeReplay(wire.Replay{After: after, Since: since})
	return decoded(ctx, c, "replay webhook "+id, http.MethodPost, webhookPath(id, "/replay"), body, decodeWebhook)
}

// Deliveries returns the last delivery attempts of a webhook, the newest first, or
// ErrNoWebhook.
func (c *Client) Deliveries(ctx context.Context, id string) ([]plantstore.Delivery, error) {
	return decoded(ctx, c, "list the deliveries of webhook "+id, http.MethodGet, webhookPath(id, "/deliveries"), nil, wire.DecodeDeliveries)
}

func webhookPath(id, action string) string { return "/webhooks/" + url.PathEscape(id) + action }

func decodeWebhook(body []byte) (plantstore.Webhook, error) {
	w, _, err := wire.DecodeWebhook(body)
	return w, err
}

// webhookTolerance is how far the timestamp of a message may be from now.
const webhookTolerance = 5 * time.Minute

// VerifyWebhook returns nil if a message that a receiver got from a webhook is authentic:
// if it was signed with the secret, as Standard Webhooks defines it, less than five minutes
// ago. The body must be exactly as it was received. During a rotation, a message is signed
// with the old and the new secret, and either will do. The same event may arrive more than
// once, with the same header webhook-id.
func VerifyWebhook(header http.Header, body []byte, secret string) error {
	id, at, signatures := header.Get("webhook-id"), header.Get("webhook-timestamp"), header.Get("webhook-signature")
	if id == "" || at == "" || signatures == "" {
		return errors.New("the request must have the headers webhook-id, webhook-timestamp and webhook-signature")
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != at { // the signature covers the text
		return fmt.Errorf("webhook-timestamp must be a number of seconds, got %q", plantstore.Shorten(at))
	}
	want, err := plantstore.SignWebhook(secret, id, time.Unix(seconds, 0), body)
	if err != nil {
		return err
	}
	const tolerance = int64(webhookTolerance / time.Second)
	if now := time.Now().Unix(); seconds < now-tolerance || seconds > now+tolerance {
		return fmt.Errorf("webhook-timestamp %d is more than %s from now, %d", seconds, webhookTolerance, now)
	}
	for signature := range strings.FieldsSeq(signatures) {
		if hmac.Equal([]byte(signature), []byte(want)) {
			return nil
		}
	}
	return errors.New("no signature in webhook-signature matches: is it the right secret, and the body as it was received?")
}
