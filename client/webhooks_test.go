package client_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
)

// A retry after a lost response would make a second webhook, or a second secret that
// ends the life of the first.
func TestOnlyCallsThatMakeSecretsAreNotRetried(t *testing.T) {
	s := servertest.Start(t, servertest.Options{Store: storetest.NewModel()})
	c := s.Client(client.Options{Retries: 3})
	hook, _, err := c.CreateWebhook(t.Context(), plantstore.Webhook{URL: "https://example.com"}, "")
	must(err)
	var broken atomic.Pointer[fault]
	var sent atomic.Int64
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			sent.Add(1)
			if f := broken.Swap(nil); f != nil {
				return f.trip(next, r)
			}
			return next.RoundTrip(r)
		})
	})
	for _, f := range faults() {
		for name, call := range map[string]func() error{
			"create": func() error {
				_, _, err := c.CreateWebhook(t.Context(), plantstore.Webhook{URL: "https://example.com"}, "")
				return err
			},
			"rotate": func() error { _, _, err := c.RotateWebhook(t.Context(), hook.ID); return err },
			"get":    func() error { _, err := c.Webhook(t.Context(), hook.ID); return err },
			"delete": func() error {
				doomed := plantstore.NewWebhookID()
				must(s.Store.CreateWebhook(t.Context(), plantstore.Webhook{ID: doomed, URL: "https://example.com", Created: time.Now(), Disabled: "for the test"}, plantstore.Actor{}))
				return c.DeleteWebhook(t.Context(), doomed)
			},
		} {
			sent.Store(0)
			broken.Store(&f)
			err := call()
			// A 503 may come from a server that has applied the request.
			once := (name == "create" || name == "rotate") && f.name != "refused connection" && f.name != "rate limit"
			if once && (err == nil || sent.Load() != 1 || !strings.Contains(err.Error(), "it may have taken effect")) {
				t.Errorf("%s, %s: %v after %d requests, want an error after one", name, f.name, err, sent.Load())
			}
			if !once && (err != nil || sent.Load() != 2) {
				t.Errorf("%s, %s: %v after %d requests, want success after two", name, f.name, err, sent.Load())
			}
		}
	}
}

// The example of the specification's own libraries.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorBody      = `{"test": 2432232314}`
	vectorTime      = 1614265330
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func vectorHeader() http.Header {
	h := http.Header{}
	h.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	h.Set("webhook-timestamp", strconv.Itoa(vectorTime))
	h.Set("webhook-signature", vectorSignature)
	return h
}

func TestVerifyWebhook(t *testing.T) {
	const other = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
	for _, tt := range []struct {
		name    string
		late    time.Duration // after the timestamp
		header  map[string]string
		body    string
		secret  string
		refused string // a part of the error
	}{
		{name: "the vector"},
		{name: "secret without its prefix", secret: strings.TrimPrefix(vectorSecret, "whsec_")},
		{name: "at the end of the tolerance", late: 5 * time.Minute},
		{name: "at its beginning", late: -5 * time.Minute},
		{name: "too old", late: 5*time.Minute + time.Second, refused: "more than 5m0s from now"},
		{name: "too new", late: -5*time.Minute - time.Second, refused: "more than 5m0s from now"},
		{name: "two signatures", header: map[string]string{"webhook-signature": other + " " + vectorSignature}},
		{name: "an unknown version too", header: map[string]string{"webhook-signature": "v1a,xyz v2 " + vectorSignature + " " + other}},
		{name: "another signature", header: map[string]string{"webhook-signature": other}, refused: "no signature"},
		{name: "another version", header: map[string]string{"webhook-signature": "v2" + vectorSignature[2:]}, refused: "no signature"},
		{name: "no version", header: map[string]string{"webhook-signature": vectorSignature[3:]}, refused: "no signature"},
		{name: "a part of the signature", header: map[string]string{"webhook-signature": vectorSignature[:20]}, refused: "no signature"},
		{name: "an empty signature", header: map[string]string{"webhook-signature": "v1,"}, refused: "no signature"},
		{name: "blanks for a signature", header: map[string]string{"webhook-signature": "  "}, refused: "no signature"},
		{name: "another id", header: map[string]string{"webhook-id": "msg_x"}, refused: "no signature"},
		{name: "another time", header: map[string]string{"webhook-timestamp": "1614265331"}, refused: "no signature"},
		{name: "the same time, written differently", header: map[string]string{"webhook-timestamp": "+1614265330"}, refused: "webhook-timestamp must be"},
		{name: "a time that is not a number", header: map[string]string{"webhook-timestamp": "now"}, refused: "number of seconds"},
		{name: "a time beyond int64", header: map[string]string{"webhook-timestamp": "9223372036854775808"}, refused: "number of seconds"},
		{name: "the end of time", header: map[string]string{"webhook-timestamp": "9223372036854775807"}, refused: "from now"},
		{name: "the beginning of time", header: map[string]string{"webhook-timestamp": "-9223372036854775808"}, refused: "from now"},
		{name: "no id", header: map[string]string{"webhook-id": ""}, refused: "must have the headers"},
		{name: "no time", header: map[string]string{"webhook-timestamp": ""}, refused: "must have the headers"},
		{name: "no signature", header: map[string]string{"webhook-signature": ""}, refused: "must have the headers"},
		{name: "another body", body: vectorBody + " ", refused: "no signature"},
		{name: "another secret", secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx", refused: "no signature"},
		{name: "a secret that is not base64", secret: "whsec_%", refused: "must be whsec_ and base64"},
		{name: "an empty secret", secret: "whsec_", refused: "must be whsec_ and base64"},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Unix(vectorTime, 0).Add(tt.late)))
			header, body, secret := vectorHeader(), vectorBody, vectorSecret
			for name, value := range tt.header {
				header.Set(name, value)
			}
			if tt.body != "" {
				body = tt.body
			}
			if tt.secret != "" {
				secret = tt.secret
			}
			err := client.VerifyWebhook(header, []byte(body), secret)
			if tt.refused == "" && err != nil || tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)) {
				t.Errorf("%s: got %v, want %q", tt.name, err, tt.refused)
			}
			if err != nil && strings.Contains(err.Error(), strings.TrimPrefix(vectorSecret, "whsec_")) {
				t.Errorf("%s: the secret is in the error %v", tt.name, err)
			}
		})
	}
}

// The library of Standard Webhooks accepts and refuses the same messages.
func TestVerifyWebhookAgreesWithTheLibrary(t *testing.T) {
	for range 100 {
		secret := plantstore.NewWebhookSecret()
		theirs, err := standardwebhooks.NewWebhook(secret)
		must(err)
		body, now := []byte(plantstore.NewSecret()), time.Now()
		signature, err := theirs.Sign("evt_1", now, body)
		must(err)
		h := http.Header{}
		h.Set(standardwebhooks.HeaderWebhookID, "evt_1")
		h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
		h.Set(standardwebhooks.HeaderWebhookSignature, signature)
		if err := errors.Join(client.VerifyWebhook(h, body, secret), theirs.Verify(body, h)); err != nil {
			t.Error(err)
		}
		body[0] ^= 1
		if client.VerifyWebhook(h, body, secret) == nil || theirs.Verify(body, h) == nil {
			t.Errorf("a changed body is accepted")
		}
	}
}
