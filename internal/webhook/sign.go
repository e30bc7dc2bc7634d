package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// TestType is the type of what [Sender.Test] sends.
const TestType plantstore.EventType = "webhook.test"

// MessageID returns the id of the message about an event: the same for every attempt.
func MessageID(event plantstore.Cursor) string {
	return "evt_" + strings.ReplaceAll(string(event), ".", "_")
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
