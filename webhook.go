package plantstore

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxWebhooks is the largest number of webhooks in a store.
const MaxWebhooks = 100

// The limits of a webhook's texts, in bytes.
const (
	maxWebhookURL         = 2048
	maxWebhookDescription = 1024
)

// Webhook is an endpoint to which events are sent. The configuration is what clients
// set; the rest belongs to the server that delivers.
type Webhook struct {
	ID          string      `json:"id"`
	URL         string      `json:"url"`
	Types       []EventType `json:"types,omitempty"` // all if it is empty
	Description string      `json:"description,omitempty"`
	Created     time.Time   `json:"created"`
	// By is who created the webhook, as in an [Event], or empty if an older release did.
	// Both remain when that token ends.
	By string `json:"by,omitempty"`
	// Secrets sign the messages, the newest first. They are sealed if the server has a key
	// for that.
	Secrets []WebhookSecret `json:"secrets"`
	// Disabled is the reason that nothing is sent, such as Paused, or empty while the webhook
	// is active.
	Disabled string `json:"disabled,omitempty"`
	// Epoch changes whenever a client moves the position or resumes the webhook. A
	// server that delivers for an older epoch starts over.
	Epoch int64 `json:"epoch"`
	// Try changes whenever a client wants undelivered events to be sent now: it changes the
	// URL, ends a pause, or asks for it.
	Try int64 `json:"try,omitempty"`

	Lease    Lease    `json:"lease"`
	Progress Progress `json:"progress"`

	// Health is not stored.
	Health WebhookHealth `json:"-"`
}

// Paused is the reason why a webhook is disabled that a client has paused.
const Paused = "paused"

// WebhookSecret is a secret that signs until it expires, if ever.
type WebhookSecret struct {
	Secret  string    `json:"secret"` // whsec_ and base64, or sealed
	Expires time.Time `json:"expires,omitzero"`
}

// Lease names the server that delivers for a webhook. Its owner renews it all the time. If
// it does not change for a while, another server takes it.
type Lease struct {
	Owner   string `json:"owner,omitempty"`
	Renewal int64  `json:"renewal,omitempty"`
}

// Progress is how far a webhook has come: every event up to Position was delivered, except
// the pending ones.
type Progress struct {
	Position  Cursor         `json:"position"`
	Pending   []PendingEvent `json:"pending,omitempty"`
	Delivered time.Time      `json:"delivered,omitzero"` // when an event was last delivered
	Failing   bool           `json:"failing,omitempty"`  // the last attempt failed
	LastError *WebhookError  `json:"error,omitempty"`    // of the last attempt that failed, if ever
	Try       int64          `json:"try,omitempty"`      // the webhook's, when the pending events were planned
}

// WebhookError is why an attempt to deliver an event failed.
type WebhookError struct {
	URL   string    `json:"url"`  // that was called
	Time  time.Time `json:"time"` // when the attempt began, or zero if release 0.2.0 stored the error
	Error string    `json:"error"`
}

// UnmarshalJSON reads an error. What release 0.2.0 stored is its text alone.
func (e *WebhookError) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*e = WebhookError{}
		return json.Unmarshal(data, &e.Error)
	}
	type plain WebhookError
	return json.Unmarshal(data, (*plain)(e))
}

// PendingEvent is an undelivered event, although later ones may have been delivered.
type PendingEvent struct {
	Event    Cursor    `json:"event"`
	ID       ID        `json:"id"`             // of the plant
	Size     int       `json:"size,omitempty"` // of its text in bytes, if that is large
	Attempts int       `json:"attempts,omitempty"`
	First    time.Time `json:"first,omitzero"` // when the first attempt failed, since the webhook was resumed or had its URL changed
	Next     time.Time `json:"next,omitzero"`  // when the next attempt is due
}

// WebhookHealth is the state of a webhook's deliveries. Every server derives it from the
// progress and the log of changes, whichever of them delivers.
type WebhookHealth struct {
	State HealthState
	// Delivered is when an event was last delivered, or zero.
	Delivered time.Time
	// Failing describes the oldest event that could not be delivered if the last attempt, at
	// the present URL, failed, and is nil otherwise.
	Failing *Failing
	// NextAttempt is when the next attempt at an event that has failed is due, or zero if there
	// is none or the webhook is disabled.
	NextAttempt time.Time
	// LastError is why an attempt last failed, however long ago and at whichever URL, or nil.
	LastError *WebhookError
	// Pending is the number of undelivered events, counted as in a [Backlog] and up to
	// MaxPending, and Lag the age of the oldest.
	Pending int
	Lag     time.Duration
}

// HealthState says in a word whether the events of a webhook arrive.
type HealthState string

// The states of a webhook's health.
const (
	Healthy         HealthState = "healthy"
	CatchingUp      HealthState = "catching_up" // it delivers, but is more than CatchingUpAfter behind
	WebhookFailing  HealthState = "failing"     // the last attempt failed
	WebhookPaused   HealthState = "paused"      // a client has paused it
	WebhookDisabled HealthState = "disabled"    // for another reason
)

// HealthStates returns all states of a webhook's health.
func HealthStates() []HealthState {
	return []HealthState{Healthy, CatchingUp, WebhookFailing, WebhookPaused, WebhookDisabled}
}

// CatchingUpAfter is the age of the oldest undelivered event from which a webhook that delivers
// is catching up.
const CatchingUpAfter = 10 * time.Second

// Failing is an event that could not yet be delivered.
type Failing struct {
	Since    time.Time `json:"since"`    // when the first attempt failed, since the webhook was resumed or had its URL changed
	Attempts int       `json:"attempts"` // the number of failed attempts
	Error    string    `json:"error"`    // why an attempt last failed, at this event or another of the webhook
}

// Backlog counts the events of a webhook's types among the next MaxPending events of the
// log after its position. It also has the time at which the first of them was committed,
// zero if there is none. Later events do not count, so that the backlogs of all webhooks
// are quickly counted.
type Backlog struct {
	Events int
	Oldest time.Time
}

// MaxPending is the number up to which pending events are counted.
const MaxPending = 1000

// Delivery is one attempt to deliver an event.
type Delivery struct {
	Event    Cursor        `json:"event"`
	Type     EventType     `json:"type"`
	Attempt  int           `json:"attempt"` // from 1
	Time     time.Time     `json:"time"`
	Status   int           `json:"status,omitempty"` // of the response, 0 if there was none
	Duration time.Duration `json:"duration"`
	Error    string        `json:"error,omitempty"`
	Response string        `json:"response,omitempty"` // its start
}

// MaxDeliveries is the number of attempts that are kept for each webhook.
const MaxDeliveries = 100

const webhookSecretPrefix = "whsec_"

// SignWebhook returns the signature of a message, as Standard Webhooks defines it: "v1,"
// and the base64 of an HMAC-SHA256. It fails if the secret is malformed.
func SignWebhook(secret, id string, at time.Time, body []byte) (string, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, webhookSecretPrefix))
	if err != nil || len(key) == 0 {
		return "", errors.New("the secret must be whsec_ and base64") // without the secret
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
}

// NewWebhookID returns the id of a new webhook.
func NewWebhookID() string {
	var random [10]byte
	rand.Read(random[:])
	return "wh_" + hex.EncodeToString(random[:])
}

// NewWebhookSecret returns a new secret, as Standard Webhooks defines it: whsec_ and
// the base64 of 32 random bytes.
func NewWebhookSecret() string {
	var random [32]byte
	rand.Read(random[:])
	return webhookSecretPrefix + base64.StdEncoding.EncodeToString(random[:])
}

// Sends reports whether events of the type are sent.
func (w *Webhook) Sends(t EventType) bool { return len(w.Types) == 0 || slices.Contains(w.Types, t) }

// isPort reports whether the port of a URL is one that can be connected to, or absent.
func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && port > 0
}

// Validate returns everything that is wrong with the configuration. It does not decide
// whether the URL may be called.
func (w *Webhook) Validate() error {
	var p Problems
	switch u, err := url.Parse(w.URL); {
	case w.URL == "":
		p.Add(ErrMissing, `"url" is required`)
	case len(w.URL) > maxWebhookURL || err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "":
		p.Add(ErrParameter, `"url" must be an absolute URL of at most %d bytes, got %q`, maxWebhookURL, Shorten(w.URL))
	case u.Scheme != "https" && u.Scheme != "http":
		p.Add(ErrParameter, `"url" must begin with https://, got %q`, Shorten(w.URL))
	case u.User != nil:
		p.Add(ErrParameter, `"url" must not have a user name or password`)
	case !isPort(u.Port()):
		p.Add(ErrParameter, `"url" must have a port from 1 to 65535, got %q`, Shorten(u.Port()))
	case u.Fragment != "":
		p.Add(ErrParameter, `"url" must not have a fragment`)
	}
	for i, t := range w.Types {
		switch {
		case !slices.Contains(PlantEventTypes(), t):
			p.Add(ErrParameter, `"types" must be of %v, got %q`, PlantEventTypes(), Shorten(string(t)))
		case slices.Contains(w.Types[:i], t):
			p.Add(ErrParameter, `"types" has %q twice`, t)
		}
	}
	if len(w.Description) > maxWebhookDescription || !utf8.ValidString(w.Description) {
		p.Add(ErrParameter, `"description" must be text of at most %d bytes`, maxWebhookDescription)
	}
	return p.Err()
}
