package rules

import (
	"encoding/json"
	"fmt"

	"plantstore"
)

// WebhookTx is a transaction that changes a webhook. A store keeps a webhook as one value, and its
// last deliveries as another: what is encoded here.
type WebhookTx interface {
	// Token returns the token with this hash, or ErrNoSuchToken. It is not revoked until the
	// transaction ends.
	Token(hash plantstore.TokenHash) (plantstore.Token, error)
	// InsertWebhook adds a webhook unless there are that many, and reports whether it did.
	InsertWebhook(id, value string, most int) (bool, error)
	// Webhook returns a webhook, or ErrNoWebhook. Nobody else changes it until the transaction
	// ends.
	Webhook(id string) (plantstore.Webhook, error)
	// SetWebhook replaces the value of a webhook.
	SetWebhook(id, value string) error
	// DeleteWebhook deletes a webhook and its deliveries, and reports whether there was one.
	DeleteWebhook(id string) (bool, error)
}

// CreateWebhook adds a webhook.
func CreateWebhook(tx WebhookTx, hook plantstore.Webhook, by plantstore.Actor) error {
	if err := by.Check(tx.Token); err != nil {
		return err
	}
	value, err := encode("webhook", hook.ID, hook)
	if err != nil {
		return err
	}
	added, err := tx.InsertWebhook(hook.ID, value, plantstore.MaxWebhooks)
	if err == nil && !added {
		err = plantstore.ErrTooMany
	}
	return err
}

// UpdateWebhook changes a webhook and returns it.
func UpdateWebhook(tx WebhookTx, id string, by plantstore.Actor, change func(*plantstore.Webhook) error) (plantstore.Webhook, error) {
	none := plantstore.Webhook{}
	if err := by.Check(tx.Token); err != nil {
		return none, err
	}
	hook, err := tx.Webhook(id)
	if err != nil {
		return none, err
	}
	if err := change(&hook); err != nil {
		return none, err
	}
	value, err := encode("webhook", id, hook)
	if err != nil {
		return none, err
	}
	return hook, tx.SetWebhook(id, value)
}

// DeleteWebhook deletes a webhook.
func DeleteWebhook(tx WebhookTx, id string, by plantstore.Actor) error {
	if err := by.Check(tx.Token); err != nil {
		return err
	}
	deleted, err := tx.DeleteWebhook(id)
	if err == nil && !deleted {
		err = plantstore.ErrNoWebhook
	}
	return err
}

// DecodeWebhook decodes the value of a webhook.
func DecodeWebhook(id, value string) (plantstore.Webhook, error) {
	hook, err := decode[plantstore.Webhook]("webhook", id, value)
	// Of the last error release 0.2.0 stored the text alone.
	if p := &hook.Progress; p.LastError != nil && p.LastError.URL == "" {
		p.LastError.URL = hook.URL
		p.Failing = len(p.Pending) > 0 && !p.Pending[0].First.IsZero()
	}
	return hook, err
}

const lastDeliveries = "deliveries of webhook"

// EncodeDeliveries encodes the last attempts of a webhook.
func EncodeDeliveries(id string, attempts []plantstore.Delivery) (string, error) {
	return encode(lastDeliveries, id, attempts)
}

// DecodeDeliveries is the inverse of [EncodeDeliveries].
func DecodeDeliveries(id, value string) ([]plantstore.Delivery, error) {
	return decode[[]plantstore.Delivery](lastDeliveries, id, value)
}

func encode(what, id string, v any) (string, error) {
	value, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", what, id, err)
	}
	return string(value), nil
}

func decode[T any](what, id, value string) (v T, err error) {
	if err := json.Unmarshal([]byte(value), &v); err != nil {
		return v, fmt.Errorf("%s %s: %w", what, id, err)
	}
	return v, nil
}
