package wire_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

var hook = plantstore.Webhook{
	ID: "wh_1", URL: "https://example.com/hook?a=b&c", Types: []plantstore.EventType{plantstore.PlantDeleted}, Description: "The archive",
	Created: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), Health: plantstore.WebhookHealth{State: plantstore.Healthy},
}

func TestWebhookAsJSON(t *testing.T) {
	all, disabled, failing := hook, hook, hook
	all.Types, all.Description, all.Created = nil, "", hook.Created.In(time.FixedZone("", 3600))
	all.Secrets = []plantstore.WebhookSecret{{Secret: "whsec_stored"}}
	disabled.Disabled, disabled.By, disabled.Health.State = "410 Gone", "5d1c6a18ea08", plantstore.WebhookDisabled
	failing.Health = plantstore.WebhookHealth{
		State: plantstore.WebhookFailing, NextAttempt: hook.Created.Add(time.Minute),
		LastError: &plantstore.WebhookError{URL: "https://example.com/old", Time: hook.Created, Error: "refused"},
		Delivered: hook.Created, Pending: 1000, Lag: 1500 * time.Millisecond,
		Failing: &plantstore.Failing{Since: hook.Created.Add(time.Second), Attempts: 2, Error: "refused"},
	}
	for _, tt := range []struct {
		hook   plantstore.Webhook
		secret string
		want   string
	}{
		{hook, "", `{"id":"wh_1","url":"https://example.com/hook?a=b&c","types":["plant.deleted"],"description":"The archive","state":"active","created":"2026-01-31T12:00:00Z","pending":0,"lag_ms":0,"health":"healthy"}`},
		{all, "whsec_new", `{"id":"wh_1","url":"https://example.com/hook?a=b&c","types":["plant.created","plant.replaced","plant.deleted"],"description":"","state":"active","created":"2026-01-31T12:00:00Z","pending":0,"lag_ms":0,"health":"healthy","secret":"whsec_new"}`},
		{disabled, "", `{"id":"wh_1","url":"https://example.com/hook?a=b&c","types":["plant.deleted"],"description":"The archive","state":"disabled","reason":"410 Gone","created":"2026-01-31T12:00:00Z","by":"5d1c6a18ea08","pending":0,"lag_ms":0,"health":"disabled"}`},
		{failing, "", `{"id":"wh_1","url":"https://example.com/hook?a=b&c","types":["plant.deleted"],"description":"The archive","state":"active","created":"2026-01-31T12:00:00Z",` +
			`"delivered":"2026-01-31T12:00:00Z","failing":{"since":"2026-01-31T12:00:01Z","attempts":2,"error":"refused"},"pending":1000,"lag_ms":1500,"health":"failing","next_attempt":"2026-01-31T12:01:00Z","last_error":{"url":"https://example.com/old","time":"2026-01-31T12:00:00Z","error":"refused"}}`},
	} {
		if got := string(wire.EncodeWebhook(tt.hook, tt.secret)); got != tt.want {
			t.Errorf("got\n%s\nwant\n%s", got, tt.want)
		}
		got, secret, err := wire.DecodeWebhook([]byte(tt.want))
		want := tt.hook
		want.Secrets, want.Created = nil, hook.Created
		if len(want.Types) == 0 {
			want.Types = plantstore.PlantEventTypes()
		}
		if err != nil || secret != tt.secret || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, %q, %v, want %v", tt.want, got, secret, err, want)
		}
	}
	if got := string(wire.EncodeWebhooks(nil)); got != "[]" {
		t.Errorf("no webhooks: got %s", got)
	}
	hooks := []plantstore.Webhook{hook, disabled, failing}
	if got, err := wire.DecodeWebhooks(wire.EncodeWebhooks(hooks)); err != nil || !reflect.DeepEqual(got, hooks) {
		t.Errorf("got %v, %v, want %v", got, err, hooks)
	}
}

func TestDeliveryAsJSON(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 500, time.UTC)
	ok := plantstore.Delivery{Event: "s.1.2", Type: plantstore.PlantCreated, Attempt: 2, Time: at, Status: 200, Duration: 12 * time.Millisecond, Response: "thanks"}
	failed := plantstore.Delivery{Type: "webhook.test", Attempt: 1, Time: at, Error: "refused"}
	for _, tt := range []struct {
		delivery plantstore.Delivery
		want     string
	}{
		{ok, `{"event":"s.1.2","type":"plant.created","attempt":2,"time":"2026-01-31T12:00:00.0000005Z","status":200,"duration_ms":12,"response":"thanks"}`},
		{failed, `{"event":"","type":"webhook.test","attempt":1,"time":"2026-01-31T12:00:00.0000005Z","status":0,"duration_ms":0,"error":"refused"}`},
	} {
		if got := string(wire.EncodeDelivery(tt.delivery)); got != tt.want {
			t.Errorf("got\n%s\nwant\n%s", got, tt.want)
		}
		if got, err := wire.DecodeDelivery([]byte(tt.want)); err != nil || got != tt.delivery {
			t.Errorf("%s: got %v, %v", tt.want, got, err)
		}
	}
	if got := string(wire.EncodeDeliveries(nil)); got != "[]" {
		t.Errorf("no deliveries: got %s", got)
	}
	attempts := []plantstore.Delivery{ok, failed}
	if got, err := wire.DecodeDeliveries(wire.EncodeDeliveries(attempts)); err != nil || !reflect.DeepEqual(got, attempts) {
		t.Errorf("got %v, %v, want %v", got, err, attempts)
	}
	// What an endpoint responds need not be UTF-8. The JSON has to be.
	if got := string(wire.EncodeDelivery(plantstore.Delivery{Time: at, Response: "a\xff"})); !strings.Contains(got, "a\ufffd") {
		t.Errorf("got %q", got)
	}
}

func TestIncompleteWebhookIsRefused(t *testing.T) {
	whole := string(wire.EncodeWebhook(hook, ""))
	for _, member := range []string{`"id":"wh_1",`, `"url":"https://example.com/hook?a=b&c",`, `"types":["plant.deleted"],`, `"state":"active",`, `,"created":"2026-01-31T12:00:00Z"`} {
		body := strings.Replace(whole, member, "", 1)
		if got, _, err := wire.DecodeWebhook([]byte(body)); err == nil || body == whole {
			t.Errorf("%s: got %v", body, got)
		}
	}
	for _, body := range []string{`{}`, `{"attempt":1}`, `{"time":"2026-01-31T12:00:00Z"}`, `[]`, ``} {
		if got, err := wire.DecodeDelivery([]byte(body)); err == nil {
			t.Errorf("%s: got %v", body, got)
		}
	}
}

// requests are bodies of requests on webhooks that all decoders refuse in the same way.
var requests = []struct {
	body string
	code plantstore.Code
	says string
}{
	{``, plantstore.ErrNotJSON, "the body is empty: send a JSON object"},
	{` `, plantstore.ErrNotJSON, "the body is empty: send a JSON object"},
	{`{`, plantstore.ErrNotJSON, "not JSON: unexpected end at byte 1"},
	{`{"url"`, plantstore.ErrNotJSON, "unexpected end"},
	{`{"url":}`, plantstore.ErrNotJSON, "not JSON"},
	{`{"after":"latest","after":"latest"}`, plantstore.ErrNotJSON, `duplicate member "after"`},
	{`{"after":"latest"} {}`, plantstore.ErrNotJSON, "unexpected data after the value"},
	{`{"after":"` + "\xff" + `"}`, plantstore.ErrNotJSON, "not JSON"},
	{`[] x`, plantstore.ErrNotJSON, "not JSON"},
	{`[]`, plantstore.ErrNotObject, "not a JSON object: got an array"},
	{`null`, plantstore.ErrNotObject, "got null"},
	{`"url"`, plantstore.ErrNotObject, "got a string"},
	{`{"id":"wh_1"}`, plantstore.ErrParameter, `unknown member "id"; known: `},
	{`{"URL":1}`, plantstore.ErrParameter, `unknown member "URL"; known: `},
	{`{"\u0001` + strings.Repeat("x", 100) + `":{}}`, plantstore.ErrParameter, `unknown member "\x01xxx`},
}

func TestRequestsOnWebhooksAreStrict(t *testing.T) {
	wantError := func(name, body string, err error, code plantstore.Code, says string) {
		t.Helper()
		if !errors.Is(err, code) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s %q: got %v, want %d and %q", name, body, err, code, says)
		}
	}
	for _, tt := range requests {
		n, err := wire.DecodeNewWebhook(bytes.NewBufferString(tt.body))
		wantError("create", tt.body, err, tt.code, tt.says)
		config, replaceErr := wire.DecodeWebhookConfig(bytes.NewBufferString(tt.body))
		wantError("replace", tt.body, replaceErr, tt.code, tt.says)
		r, replayErr := wire.DecodeReplay(bytes.NewBufferString(tt.body))
		wantError("replay", tt.body, replayErr, tt.code, tt.says)
		if !reflect.DeepEqual(n, wire.NewWebhook{}) || !reflect.DeepEqual(config, plantstore.Webhook{}) || r != (wire.Replay{}) {
			t.Errorf("%q: got %v, %v, %v with an error", tt.body, n, config, r)
		}
	}
	for _, tt := range []struct {
		body string
		code plantstore.Code
		says string
	}{
		{`{}`, plantstore.ErrMissing, `"url" is missing: send a string`},
		{`{"url":null}`, plantstore.ErrType, `"url" must be a string, got null`},
		{`{"url":"x","types":"plant.created"}`, plantstore.ErrType, `"types" must be an array of strings, got a string`},
		{`{"url":"x","types":[ "plant.created" , 7 ]}`, plantstore.ErrType, `"types" must be an array of strings, got a number in it`},
		{`{"url":"x","types":null}`, plantstore.ErrType, `"types" must be an array of strings, got null`},
		{`{"url":"x","description":{}}`, plantstore.ErrType, `"description" must be a string, got an object`},
		{`{"type":[],"description":1}`, plantstore.ErrParameter, `unknown member "type"; known: url, types, description`},
		{`{"url":7,"types":{},"secret":"x"}`, plantstore.ErrType, `"url" must be a string, got a number; "types" must be an array of strings, got an object; unknown member "secret"`},
	} {
		_, err := wire.DecodeNewWebhook(bytes.NewBufferString(tt.body))
		wantError("create", tt.body, err, tt.code, tt.says)
		_, err = wire.DecodeWebhookConfig(bytes.NewBufferString(tt.body))
		wantError("replace", tt.body, err, tt.code, tt.says)
	}
	for body, says := range map[string]string{
		`{"url":"x","after":""}`:        `"after" must be a cursor or latest, got ""`,
		`{"url":"x","after":"nothing"}`: `"after" must be a cursor or latest, got "nothing"`,
	} {
		_, err := wire.DecodeNewWebhook(bytes.NewBufferString(body))
		wantError("create", body, err, plantstore.ErrParameter, says)
		_, err = wire.DecodeWebhookConfig(bytes.NewBufferString(body))
		wantError("replace", body, err, plantstore.ErrParameter, `unknown member "after"; known: url, types, description`)
	}
	for _, tt := range []struct {
		body string
		code plantstore.Code
		says string
	}{
		{`{}`, plantstore.ErrMissing, `"after" or "since" is missing: send a cursor or a time`},
		{`{"after":"latest","since":"2026-01-31T12:00:00Z"}`, plantstore.ErrParameter, `"after" and "since" cannot be combined`},
		{`{"after":7}`, plantstore.ErrType, `"after" must be a string, got a number`},
		{`{"after":"x"}`, plantstore.ErrParameter, `"after" must be a cursor or latest, got "x"`},
		{`{"since":7}`, plantstore.ErrType, `"since" must be a string, got a number`},
		{`{"since":"yesterday"}`, plantstore.ErrParameter, `"since" must be a time such as 2026-01-31T12:00:00Z, got "yesterday"`},
		{`{"since":"2026-01-31T1:00:00Z"}`, plantstore.ErrParameter, `"since" must be a time such as 2026-01-31T12:00:00Z, got "2026-01-31T1:00:00Z"`},
	} {
		_, err := wire.DecodeReplay(bytes.NewBufferString(tt.body))
		wantError("replay", tt.body, err, tt.code, tt.says)
	}
}

func TestRequestsOnWebhooksSurviveARoundTrip(t *testing.T) {
	cursor := plantstore.Position{Store: "s", Seq: 7, Time: 8}.Cursor()
	config := plantstore.Webhook{URL: hook.URL, Types: hook.Types, Description: `a "quoted" text`}
	for _, want := range []wire.NewWebhook{
		{Config: plantstore.Webhook{URL: "x"}}, {Config: config}, {Config: config, After: cursor}, {Config: config, After: plantstore.LatestCursor},
	} {
		body, err := wire.EncodeNewWebhook(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := wire.DecodeNewWebhook(bytes.NewBuffer(body)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, %v, want %v", body, got, err, want)
		}
	}
	body, err := wire.EncodeNewWebhook(wire.NewWebhook{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wire.DecodeWebhookConfig(bytes.NewBuffer(body)); err != nil || !reflect.DeepEqual(got, config) {
		t.Errorf("got %v, %v, want %v", got, err, config)
	}
	for _, want := range []wire.Replay{{After: cursor}, {After: plantstore.LatestCursor}, {Since: time.Date(2026, 1, 31, 12, 0, 0, 500, time.UTC)}} {
		body := wire.EncodeReplay(want)
		if got, err := wire.DecodeReplay(bytes.NewBuffer(body)); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", body, got, err, want)
		}
	}
	if body, err := wire.EncodeNewWebhook(wire.NewWebhook{Config: plantstore.Webhook{URL: "https://example.com/\xff"}}); !errors.Is(err, plantstore.ErrNotJSON) {
		t.Errorf("invalid UTF-8: got %s, %v", body, err)
	}
}
