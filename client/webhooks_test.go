package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
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

func TestWebhooksOfAServer(t *testing.T) {
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer endpoint.Close()
	s := servertest.Start(t, servertest.Options{BaseURL: servertest.URL("/v1"), WebhookAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	c := s.Client(client.Options{})
	ctx := t.Context()
	config := plantstore.Webhook{URL: endpoint.URL + "/hook", Types: []plantstore.EventType{plantstore.PlantDeleted}, Description: "a <b> & c"}
	created, secret, err := c.CreateWebhook(ctx, config, "")
	if err != nil || created.ID == "" || !strings.HasPrefix(secret, "whsec_") || created.URL != config.URL || created.Created.IsZero() ||
		!reflect.DeepEqual(created.Types, config.Types) || created.Description != config.Description || created.Disabled != "" {
		t.Fatalf("got %+v, %q, %v", created, secret, err)
	}
	same := func(what string, want plantstore.Webhook) func(plantstore.Webhook, error) {
		return func(got plantstore.Webhook, err error) {
			t.Helper()
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %+v, %v, want %+v", what, got, err, want)
			}
		}
	}
	same("get", created)(c.Webhook(ctx, created.ID))
	if all, err := c.Webhooks(ctx); err != nil || !reflect.DeepEqual(all, []plantstore.Webhook{created}) {
		t.Errorf("got %+v, %v, want %+v", all, err, created)
	}
	rotated, second, err := c.RotateWebhook(ctx, created.ID)
	if same("rotate", created)(rotated, err); !strings.HasPrefix(second, "whsec_") || second == secret {
		t.Errorf("got %q after %q", second, secret)
	}
	same("resume", created)(c.ResumeWebhook(ctx, created.ID))
	same("replay after a cursor", created)(c.ReplayWebhook(ctx, created.ID, plantstore.LatestCursor, time.Time{}))
	same("replay since a time", created)(c.ReplayWebhook(ctx, created.ID, "", time.Now().Add(-time.Hour)))
	if got, err := c.TestWebhook(ctx, created.ID); err != nil || got.Status != 200 || got.Type != "webhook.test" || got.Attempt != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := c.Deliveries(ctx, created.ID); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	created.URL, created.Types, created.Description = endpoint.URL+"/new", plantstore.PlantEventTypes(), ""
	same("replace", created)(c.ReplaceWebhook(ctx, created.ID, plantstore.Webhook{URL: created.URL}))
	if err := c.DeleteWebhook(ctx, created.ID); err != nil {
		t.Error(err)
	}
	if err := c.DeleteWebhook(ctx, created.ID); !errors.Is(err, plantstore.ErrNoWebhook) {
		t.Errorf("got %v, want ErrNoWebhook", err)
	}
	for _, id := range []string{created.ID, "a/b", "ä ?#", ".."} {
		if _, err := c.Webhook(ctx, id); !errors.Is(err, plantstore.ErrNoWebhook) && !errors.Is(err, plantstore.ErrNoPath) {
			t.Errorf("%q: got %v, want ErrNoWebhook", id, err)
		}
	}
	for name, config := range map[plantstore.Code]plantstore.Webhook{
		plantstore.ErrParameter: {URL: "ftp://example.com"}, plantstore.ErrMissing: {}, plantstore.ErrNotJSON: {URL: "https://example.com/\xff"},
	} {
		if _, _, err := c.CreateWebhook(ctx, config, ""); !errors.Is(err, name) {
			t.Errorf("%+v: got %v, want %v", config, err, name)
		}
	}
}

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

func TestDeliveriesAreVerifiedByBoth(t *testing.T) {
	type message struct {
		header http.Header
		body   []byte
	}
	received := make(chan message, 10)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		received <- message{r.Header, body}
	}))
	defer endpoint.Close()
	s := servertest.Start(t, servertest.Options{WebhookAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	c := s.Client(client.Options{})
	hook, first, err := c.CreateWebhook(t.Context(), plantstore.Webhook{URL: endpoint.URL}, "")
	must(err)
	_, second, err := c.RotateWebhook(t.Context(), hook.ID)
	must(err)
	// What is sent when the secret is rotated may have one signature.
	var got message
	for id := oak.ID; len(strings.Fields(got.header.Get(standardwebhooks.HeaderWebhookSignature))) < 2; id++ {
		must(c.Create(t.Context(), plantstore.Plant{ID: id, Name: "Oak"}))
		got = <-received
	}
	for _, secret := range []string{first, second} {
		theirs, err := standardwebhooks.NewWebhook(secret)
		must(err)
		if err := errors.Join(client.VerifyWebhook(got.header, got.body, secret), theirs.Verify(got.body, got.header)); err != nil {
			t.Errorf("%v: %s", err, got.body)
		}
	}
}
