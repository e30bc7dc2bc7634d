package wire

import (
	"bytes"
	"cmp"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore"
)

// The states of a webhook.
const (
	stateActive   = "active"
	stateDisabled = "disabled"
)

// webhookBody is the interface's Webhook.
type webhookBody struct {
	ID          string                 `json:"id"`
	URL         string                 `json:"url"`
	Types       []plantstore.EventType `json:"types"`
	Description string                 `json:"description"`
	State       string                 `json:"state"`
	Reason      string                 `json:"reason,omitempty"`
	Created     time.Time              `json:"created"`
	By          string                 `json:"by,omitempty"`
	Delivered   time.Time              `json:"delivered,omitzero"`
	Failing     *plantstore.Failing    `json:"failing,omitzero"`
	Pending     int                    `json:"pending"`
	Lag         int64                  `json:"lag_ms"`
	Health      plantstore.HealthState `json:"health"`
	NextAttempt time.Time              `json:"next_attempt,omitzero"`
	LastError   *webhookErrorBody      `json:"last_error,omitzero"`
	Secret      string                 `json:"secret,omitempty"`
}

// webhookErrorBody is the interface's WebhookError.
type webhookErrorBody struct {
	URL   string    `json:"url"`
	Time  time.Time `json:"time"`
	Error string    `json:"error"`
}

// health returns the state of a webhook's health. Servers before 0.3.0 do not send it.
func (b *webhookBody) health() plantstore.HealthState {
	switch {
	case b.Health != "":
		return b.Health
	case b.State != stateActive:
		return plantstore.WebhookDisabled
	case b.Failing != nil:
		return plantstore.WebhookFailing
	default:
		return plantstore.Healthy
	}
}

func newWebhookBody(w plantstore.Webhook, secret string) webhookBody {
	b := webhookBody{
		ID: w.ID, URL: w.URL, Types: w.Types, Description: w.Description,
		State: stateActive, Reason: w.Disabled, Created: w.Created.UTC(), By: w.By, Secret: secret,
		Delivered: w.Health.Delivered.UTC(), Failing: w.Health.Failing, Pending: w.Health.Pending, Lag: w.Health.Lag.Milliseconds(),
		Health: w.Health.State, NextAttempt: w.Health.NextAttempt.UTC(),
	}
	if e := w.Health.LastError; e != nil {
		b.LastError = &webhookErrorBody{e.URL, e.Time.UTC(), e.Error}
	}
	if len(b.Types) == 0 {
		b.Types = plantstore.PlantEventTypes()
	}
	if w.Disabled != "" {
		b.State = stateDisabled
	}
	return b
}

func (b *webhookBody) value() (plantstore.Webhook, error) {
	if b.ID == "" || b.URL == "" || b.Types == nil || b.State == "" || b.Created.IsZero() {
		return plantstore.Webhook{}, errIncomplete
	}
	w := plantstore.Webhook{ID: b.ID, URL: b.URL, Types: b.Types, Description: b.Description, Created: b.Created.UTC(), By: b.By}
	if b.State != stateActive {
		w.Disabled = cmp.Or(b.Reason, b.State)
	}
	w.Health = plantstore.WebhookHealth{
		State: b.health(), Delivered: b.Delivered.UTC(), Failing: b.Failing, NextAttempt: b.NextAttempt.UTC(),
		Pending: b.Pending, Lag: time.Duration(b.Lag) * time.Millisecond,
	}
	if e := b.LastError; e != nil {
		w.Health.LastError = &plantstore.WebhookError{URL: e.URL, Time: e.Time.UTC(), Error: e.Error}
	}
	return w, nil
}

// EncodeWebhook returns a webhook as JSON, with its secret if that is not empty.
func EncodeWebhook(w plantstore.Webhook, secret string) []byte {
	return marshal(newWebhookBody(w, secret))
}

// EncodeWebhooks returns webhooks as a JSON array.
func EncodeWebhooks(hooks []plantstore.Webhook) []byte {
	bodies := make([]webhookBody, len(hooks))
	for i, w := range hooks {
		bodies[i] = newWebhookBody(w, "")
	}
	return marshal(bodies)
}

// DecodeWebhook reads a webhook, and its secret if there is one.
func DecodeWebhook(body []byte) (w plantstore.Webhook, secret string, err error) {
	var b webhookBody
	if err := json.Unmarshal(body, &b); err != nil {
		return w, "", err
	}
	w, err = b.value()
	return w, b.Secret, err
}

// DecodeWebhooks reads an array of webhooks.
func DecodeWebhooks(body []byte) ([]plantstore.Webhook, error) {
	return decodeArray(body, (*webhookBody).value)
}

// deliveryBody is the interface's Delivery.
type deliveryBody struct {
	Event    plantstore.Cursor    `json:"event"`
	Type     plantstore.EventType `json:"type"`
	Attempt  int                  `json:"attempt"`
	Time     time.Time            `json:"time"`
	Status   int                  `json:"status"`
	Duration int64                `json:"duration_ms"`
	Error    string               `json:"error,omitempty"`
	Response string               `json:"response,omitempty"`
}

func newDeliveryBody(d plantstore.Delivery) deliveryBody {
	return deliveryBody{d.Event, d.Type, d.Attempt, d.Time.UTC(), d.Status, d.Duration.Milliseconds(), d.Error, d.Response}
}

func (b *deliveryBody) value() (plantstore.Delivery, error) {
	if b.Attempt == 0 || b.Time.IsZero() {
		return plantstore.Delivery{}, errIncomplete
	}
	return plantstore.Delivery{
		Event: b.Event, Type: b.Type, Attempt: b.Attempt, Time: b.Time.UTC(), Status: b.Status,
		Duration: time.Duration(b.Duration) * time.Millisecond, Error: b.Error, Response: b.Response,
	}, nil
}

// EncodeDelivery returns a delivery attempt as JSON.
func EncodeDelivery(d plantstore.Delivery) []byte { return marshal(newDeliveryBody(d)) }

// EncodeDeliveries returns delivery attempts as a JSON array.
func EncodeDeliveries(attempts []plantstore.Delivery) []byte {
	bodies := make([]deliveryBody, len(attempts))
	for i, d := range attempts {
		bodies[i] = newDeliveryBody(d)
	}
	return marshal(bodies)
}

// DecodeDelivery reads a delivery attempt.
func DecodeDelivery(body []byte) (plantstore.Delivery, error) {
	return decodeBody(body, (*deliveryBody).value)
}

// DecodeDeliveries reads an array of delivery attempts.
func DecodeDeliveries(body []byte) ([]plantstore.Delivery, error) {
	return decodeArray(body, (*deliveryBody).value)
}

// messageBody is the body of a message to a webhook.
type messageBody struct {
	Type      plantstore.EventType `json:"type"`
	Timestamp time.Time            `json:"timestamp"`
	Data      jsontext.Value       `json:"data"`
}

// EncodeMessage returns the message about an event.
func EncodeMessage(e plantstore.Event) ([]byte, error) {
	plant, err := AppendNewPlant(nil, e.Plant)
	if err != nil {
		return nil, err
	}
	return marshal(messageBody{e.Type, e.Time.UTC(), plant}), nil
}

// EncodeTestMessage returns a message to a webhook that is about no event.
func EncodeTestMessage(kind plantstore.EventType, at time.Time, webhook string) []byte {
	return marshal(messageBody{kind, at.UTC(), marshal(map[string]string{"webhook": webhook})})
}

// NewWebhook is the body that creates a webhook. After may be empty.
type NewWebhook struct {
	Config plantstore.Webhook // URL, Types and Description
	After  plantstore.Cursor
}

// Replay is the body that moves a webhook: to the position After, or if After is empty,
// before the first event that is not older than Since.
type Replay struct {
	After plantstore.Cursor
	Since time.Time
}

// EncodeNewWebhook returns the body as JSON. It fails with ErrNotJSON if a text is not
// valid UTF-8. Without After, it is also the body that replaces a webhook.
func EncodeNewWebhook(n NewWebhook) ([]byte, error) {
	body, err := json.Marshal(struct {
		URL         string                 `json:"url"`
		Types       []plantstore.EventType `json:"types,omitempty"`
		Description string                 `json:"description,omitempty"`
		After       plantstore.Cursor      `json:"after,omitempty"`
	}{n.Config.URL, n.Config.Types, n.Config.Description, n.After})
	if err != nil {
		return nil, plantstore.Errorf(plantstore.ErrNotJSON, "the webhook must be valid UTF-8")
	}
	return body, nil
}

// EncodeReplay returns the body as JSON.
func EncodeReplay(r Replay) []byte {
	if r.After != "" {
		return marshal(map[string]string{"after": string(r.After)})
	}
	return marshal(map[string]string{"since": r.Since.UTC().Format(time.RFC3339Nano)})
}

// DecodeNewWebhook reads the body that creates a webhook. Like the decoders below, it fails
// with an [*plantstore.Error] that names everything wrong with the form of the body, and
// consumes the body. Unknown members are errors: a misspelt filter must not send
// everything.
func DecodeNewWebhook(body *bytes.Buffer) (NewWebhook, error) { return decodeConfig(body, true) }

// DecodeWebhookConfig reads the body that replaces a webhook.
func DecodeWebhookConfig(body *bytes.Buffer) (plantstore.Webhook, error) {
	n, err := decodeConfig(body, false)
	return n.Config, err
}

func decodeConfig(body *bytes.Buffer, withAfter bool) (n NewWebhook, err error) {
	var problems plantstore.Problems
	hasURL := false
	err = readMembers(body, func(name string, value jsontext.Value) {
		switch {
		case name == "url":
			hasURL = true
			n.Config.URL, _ = readString(name, value, &problems)
		case name == "types":
			n.Config.Types = readTypes(value, &problems)
		case name == "description":
			n.Config.Description, _ = readString(name, value, &problems)
		case name == "after" && withAfter:
			n.After = readCursor(name, value, &problems)
		case withAfter:
			problems.Add(plantstore.ErrParameter, "unknown member %q; known: url, types, description, after", plantstore.Shorten(name))
		default:
			problems.Add(plantstore.ErrParameter, "unknown member %q; known: url, types, description", plantstore.Shorten(name))
		}
	})
	if err != nil {
		return NewWebhook{}, err
	}
	if !hasURL {
		problems.Add(plantstore.ErrMissing, `"url" is missing: send a string`)
	}
	if err := problems.Err(); err != nil {
		return NewWebhook{}, err
	}
	return n, nil
}

// DecodeReplay reads the body that moves a webhook.
func DecodeReplay(body *bytes.Buffer) (r Replay, err error) {
	var problems plantstore.Problems
	hasAfter, hasSince := false, false
	err = readMembers(body, func(name string, value jsontext.Value) {
		switch name {
		case "after":
			hasAfter = true
			r.After = readCursor(name, value, &problems)
		case "since":
			hasSince = true
			r.Since = readTime(name, value, &problems)
		default:
			problems.Add(plantstore.ErrParameter, "unknown member %q; known: after, since", plantstore.Shorten(name))
		}
	})
	if err != nil {
		return Replay{}, err
	}
	switch {
	case hasAfter && hasSince:
		problems.Add(plantstore.ErrParameter, `"after" and "since" cannot be combined`)
	case !hasAfter && !hasSince:
		problems.Add(plantstore.ErrMissing, `"after" or "since" is missing: send a cursor or a time`)
	}
	if err := problems.Err(); err != nil {
		return Replay{}, err
	}
	return r, nil
}

// readMembers reads a body that is one object, and calls read with each member. The
// error says that the body is not an object, or not JSON.
func readMembers(body *bytes.Buffer, read func(name string, value jsontext.Value)) error {
	dec := jsontext.NewDecoder(body)
	if dec.PeekKind() != '{' {
		return expectEnd(dec, refuseValue(dec))
	}
	if _, err := dec.ReadToken(); err != nil {
		return notJSON(err)
	}
	for dec.PeekKind() != '}' {
		quoted, err := dec.ReadValue()
		if err != nil {
			return notJSON(err)
		}
		name := unquote(quoted)
		value, err := dec.ReadValue()
		if err != nil {
			return notJSON(err)
		}
		read(name, value)
	}
	if _, err := dec.ReadToken(); err != nil {
		return notJSON(err)
	}
	return expectEnd(dec, nil)
}

func readString(name string, value jsontext.Value, problems *plantstore.Problems) (string, bool) {
	if value.Kind() != '"' {
		problems.Add(plantstore.ErrType, "%q must be a string, got %s", name, kindName(value.Kind()))
		return "", false
	}
	return unquote(value), true
}

// readTypes reads an array of strings. It does not check which of them are types.
func readTypes(value jsontext.Value, problems *plantstore.Problems) (types []plantstore.EventType) {
	if value.Kind() != '[' {
		problems.Add(plantstore.ErrType, `"types" must be an array of strings, got %s`, kindName(value.Kind()))
		return nil
	}
	var elements []jsontext.Value
	if err := json.Unmarshal(value, &elements); err != nil {
		panic("unmarshal a value that the decoder accepted: " + err.Error())
	}
	for _, element := range elements {
		if element.Kind() != '"' {
			problems.Add(plantstore.ErrType, `"types" must be an array of strings, got %s in it`, kindName(element.Kind()))
			return nil
		}
		types = append(types, plantstore.EventType(unquote(element)))
	}
	return types
}

func readCursor(name string, value jsontext.Value, problems *plantstore.Problems) plantstore.Cursor {
	text, ok := readString(name, value, problems)
	cursor := plantstore.Cursor(text)
	if _, err := cursor.Position(); ok && err != nil && cursor != plantstore.LatestCursor {
		problems.Add(plantstore.ErrParameter, "%q must be a cursor or latest, got %q", name, plantstore.Shorten(text))
	}
	return cursor
}

func readTime(name string, value jsontext.Value, problems *plantstore.Problems) time.Time {
	text, ok := readString(name, value, problems)
	at, err := ParseTime(text)
	if ok && err != nil {
		problems.Add(plantstore.ErrParameter, "%q must be a time such as 2026-01-31T12:00:00Z, got %q", name, plantstore.Shorten(text))
	}
	return at
}
