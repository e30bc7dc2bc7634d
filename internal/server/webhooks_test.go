package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
	"plantstore/internal/testenv"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// hookReply is a webhook as the interface shows it.
type hookReply struct {
	ID, URL, Description, State, Reason, Created, By, Health, Secret string
	Types                                                            []string
}

// deliveryReply is an attempt to deliver as the interface shows it.
type deliveryReply struct {
	Type, Error, Response string
	Attempt, Status       int
}

// webhook sends a request with the service's token to a path below /webhooks, and
// expects a status and a webhook.
func (s *service) webhook(t *testing.T, status int, method, path, body string) hookReply {
	t.Helper()
	return s.send(t, method, "/webhooks"+path, body, s.withDefaults(nil)...).wantWebhook(t, status)
}

func (r reply) wantWebhook(t *testing.T, status int) (hook hookReply) {
	t.Helper()
	if err := json.Unmarshal(r.body, &hook); err != nil || r.status != status || hook.ID == "" {
		t.Fatalf("got %d %.300q, want %d and a webhook: %v", r.status, r.body, status, err)
	}
	caching := "private, no-cache"
	if hook.Secret != "" {
		caching = "no-store"
	}
	r.wantHeader(t, "Cache-Control", caching)
	return hook
}

// wantList fails unless the response is an array, which it decodes.
func (r reply) wantList(t *testing.T, into any) {
	t.Helper()
	r.wantHeader(t, "Cache-Control", "private, no-cache")
	if err := json.Unmarshal(r.body, into); err != nil || r.status != http.StatusOK || r.body[0] != '[' {
		t.Fatalf("got %d %.300q, want an array: %v", r.status, r.body, err)
	}
}

func TestWebhookResource(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		list := func() (hooks []hookReply) {
			t.Helper()
			s.send(t, "GET", "/webhooks", "", s.withDefaults(nil)...).wantList(t, &hooks)
			return hooks
		}
		if got := list(); len(got) != 0 {
			t.Errorf("there are webhooks: %v", got)
		}
		created := s.send(t, "POST", "/webhooks", `{"url":"https://example.com/hook"}`, s.withDefaults(nil)...)
		first := created.wantWebhook(t, http.StatusCreated)
		created.wantHeader(t, "Location", s.BaseURL.String()+"/webhooks/"+first.ID)
		if !strings.HasPrefix(first.Secret, "whsec_") || first.State != "active" || first.Description != "" ||
			fmt.Sprint(first.Types) != "[plant.created plant.replaced plant.deleted]" {
			t.Errorf("got %+v", first)
		}
		if creator := plantstore.HashSecret(s.Token).ID(); first.By != creator {
			t.Errorf("the webhook is by %q, want %q", first.By, creator)
		}
		if at, err := time.Parse(time.RFC3339, first.Created); err != nil || time.Since(at).Abs() > time.Minute || at.Location() != time.UTC {
			t.Errorf("created %s: %v", first.Created, err)
		}
		second := s.webhook(t, http.StatusCreated, "POST", "", `{"url":"https://example.com/other","types":["plant.deleted"],"description":"The archive","after":"latest"}`)
		if fmt.Sprint(second.Types) != "[plant.deleted]" || second.Description != "The archive" || second.ID == first.ID || second.Secret == first.Secret {
			t.Errorf("got %+v", second)
		}
		secret := first.Secret
		first.Secret, second.Secret = "", "" // it is not shown again
		if got, want := list(), []hookReply{first, second}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got := s.webhook(t, http.StatusOK, "GET", "/"+second.ID, ""); fmt.Sprint(got) != fmt.Sprint(second) {
			t.Errorf("got %v, want %v", got, second)
		}

		// Whatever is left out of a replacement gets its default.
		second.URL, second.Types, second.Description = "https://example.com/new", first.Types, ""
		another := "Authorization: Bearer " + s.NewToken(plantstore.ScopeWebhooksWrite, plantstore.ScopeEvents)
		got := s.send(t, "PUT", "/webhooks/"+second.ID, `{"url":"https://example.com/new"}`, another, "Content-Type: application/json").wantWebhook(t, http.StatusOK)
		if fmt.Sprint(got) != fmt.Sprint(second) {
			t.Errorf("got %v, want %v", got, second)
		}
		rotated := s.webhook(t, http.StatusOK, "POST", "/"+first.ID+"/rotate", "")
		if !strings.HasPrefix(rotated.Secret, "whsec_") || rotated.Secret == secret || rotated.ID != first.ID {
			t.Errorf("got %+v", rotated)
		}
		for _, tt := range []struct{ action, body string }{
			{"retry", ""}, {"resume", ""}, {"replay", `{"after":"latest"}`}, {"replay", `{"since":"2026-01-31T12:00:00Z"}`},
		} {
			if got := s.webhook(t, http.StatusOK, "POST", "/"+first.ID+"/"+tt.action, tt.body); fmt.Sprint(got) != fmt.Sprint(first) {
				t.Errorf("%s: got %v, want %v", tt.action, got, first)
			}
		}
		paused := first
		paused.State, paused.Reason, paused.Health = "disabled", "paused", "paused"
		for range 2 {
			if got := s.webhook(t, http.StatusOK, "POST", "/"+first.ID+"/pause", ""); fmt.Sprint(got) != fmt.Sprint(paused) {
				t.Errorf("pause: got %v, want %v", got, paused)
			}
		}
		s.send(t, "POST", "/webhooks/"+first.ID+"/retry", "", s.withDefaults(nil)...).wantError(t, plantstore.ErrDisabled, "the webhook is paused: resume it instead")
		if got := s.webhook(t, http.StatusOK, "POST", "/"+first.ID+"/resume", ""); fmt.Sprint(got) != fmt.Sprint(first) {
			t.Errorf("resume: got %v, want %v", got, first)
		}
		var attempts []any
		s.send(t, "GET", "/webhooks/"+first.ID+"/deliveries", "", s.withDefaults(nil)...).wantList(t, &attempts)
		if len(attempts) != 0 {
			t.Errorf("there are attempts: %v", attempts)
		}

		s.send(t, "DELETE", "/webhooks/"+first.ID, "", s.withDefaults(nil)...).wantStatus(t, http.StatusNoContent)
		if got := list(); fmt.Sprint(got) != fmt.Sprint([]hookReply{second}) {
			t.Errorf("got %v, want %v", got, second)
		}
		for path, body := range map[string]string{
			"GET ": "", "PUT ": `{"url":"https://example.com"}`, "DELETE ": "", "POST /rotate": "", "POST /test": "", "POST /pause": "", "POST /retry": "", "POST /resume": "",
			"POST /replay": `{"after":"latest"}`, "GET /deliveries": "",
		} {
			method, action, _ := strings.Cut(path, " ")
			got := s.send(t, method, "/webhooks/"+first.ID+action, body, s.withDefaults(nil)...)
			got.wantError(t, plantstore.ErrNoWebhook, "there is no webhook", first.ID)
		}
		if strings.Contains(s.Log.String(), "whsec_") {
			t.Errorf("the secret of a webhook is in the log:\n%s", s.Log)
		}
	})
}

func TestInvalidWebhookIsRefused(t *testing.T) {
	t.Parallel()
	s := startDefault(t)
	hook := s.webhook(t, http.StatusCreated, "POST", "", `{"url":"https://example.com/hook"}`)
	for _, tt := range []struct {
		body string
		code plantstore.Code
		says []string
	}{
		{``, plantstore.ErrNotJSON, nil},
		{`{`, plantstore.ErrNotJSON, nil},
		{`[]`, plantstore.ErrNotObject, nil},
		{`{}`, plantstore.ErrMissing, []string{`"url" is missing`}},
		{`{"url":7}`, plantstore.ErrType, []string{`"url" must be a string, got a number`}},
		{`{"url":"https://example.com","type":"x"}`, plantstore.ErrParameter, []string{`unknown member "type"`, "types"}},
		{`{"url":"https://example.com","secret":"x"}`, plantstore.ErrParameter, []string{`unknown member "secret"`}},
		{`{"url":""}`, plantstore.ErrMissing, []string{"url"}},
		{`{"url":"example.com"}`, plantstore.ErrParameter, []string{"url"}},
		{`{"url":"ftp://example.com"}`, plantstore.ErrParameter, []string{"https"}},
		{`{"url":"http://example.com"}`, plantstore.ErrParameter, []string{"https"}},
		{`{"url":"https://user:password@example.com"}`, plantstore.ErrParameter, []string{"password"}},
		{`{"url":"https://example.com:0"}`, plantstore.ErrParameter, []string{"port"}},
		{`{"url":"https://example.com:99999"}`, plantstore.ErrParameter, []string{`"url" must have a port from 1 to 65535, got "99999"`}},
		{`{"url":"https://127.0.0.1/"}`, plantstore.ErrParameter, []string{"127.0.0.1", "--webhook-allow"}},
		{`{"url":"https://[::1]/"}`, plantstore.ErrParameter, []string{"::1", "--webhook-allow"}},
		{`{"url":"https://example.com","types":["plant.eaten"]}`, plantstore.ErrParameter, []string{"plant.created", "plant.eaten"}},
		{`{"url":"https://example.com","types":["plant.created","plant.created"]}`, plantstore.ErrParameter, []string{"twice"}},
		{`{"url":"https://example.com","description":"` + strings.Repeat("x", 2000) + `"}`, plantstore.ErrParameter, []string{"description"}},
		{`{"url":"https://example.com","description":"` + strings.Repeat("x", 2<<20) + `"}`, plantstore.ErrTooLarge, nil},
	} {
		s.send(t, "POST", "/webhooks", tt.body, s.withDefaults(nil)...).wantError(t, tt.code, tt.says...)
		s.send(t, "PUT", "/webhooks/"+hook.ID, tt.body, s.withDefaults(nil)...).wantError(t, tt.code, tt.says...)
	}
	s.send(t, "POST", "/webhooks", `{"url":"https://example.com"}`, s.withDefaults([]string{"Content-Type: text/plain"})...).wantError(t, plantstore.ErrMediaType)
	const another = "x.1.1"
	s.send(t, "POST", "/webhooks", `{"url":"https://example.com","after":"`+another+`"}`, s.withDefaults(nil)...).wantError(t, plantstore.ErrGone)
	s.send(t, "PUT", "/webhooks/"+hook.ID, `{"url":"https://example.com","after":"latest"}`, s.withDefaults(nil)...).wantError(t, plantstore.ErrParameter, "after")
	for body, code := range map[string]plantstore.Code{
		`{}`: plantstore.ErrMissing, `{"after":"latest","since":"2026-01-31T12:00:00Z"}`: plantstore.ErrParameter, `{"after":"` + another + `"}`: plantstore.ErrGone,
		`{"since":"yesterday"}`: plantstore.ErrParameter, `{"since":1}`: plantstore.ErrType, `{"until":"latest"}`: plantstore.ErrParameter, `[]`: plantstore.ErrNotObject,
	} {
		s.send(t, "POST", "/webhooks/"+hook.ID+"/replay", body, s.withDefaults(nil)...).wantError(t, code)
	}
	var hooks []hookReply
	s.send(t, "GET", "/webhooks", "", s.withDefaults(nil)...).wantList(t, &hooks)
	if len(hooks) != 1 || hooks[0].URL != hook.URL {
		t.Errorf("got %v, want only %v, unchanged", hooks, hook)
	}
}

func TestTooManyWebhooksAreRefused(t *testing.T) {
	t.Parallel()
	s := startDefault(t)
	for range plantstore.MaxWebhooks {
		err := s.Store.CreateWebhook(t.Context(), plantstore.Webhook{ID: plantstore.NewWebhookID(), URL: "https://example.com", Created: time.Now(), Disabled: "for the test"}, plantstore.Actor{})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.send(t, "POST", "/webhooks", `{"url":"https://example.com"}`, s.withDefaults(nil)...).
		wantError(t, plantstore.ErrTooMany, "100 webhooks", "delete one")
}

// receiver is an endpoint that verifies what it receives.
type receiver struct {
	*httptest.Server
	status   atomic.Int64
	secret   atomic.Value // a string
	received chan string  // bodies
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{received: make(chan string, 100)}
	r.status.Store(http.StatusOK)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		if secret, _ := r.secret.Load().(string); secret != "" {
			if err := client.VerifyWebhook(req.Header, body, secret); err != nil {
				t.Errorf("%s: %v", body, err)
			}
		}
		w.WriteHeader(int(r.status.Load()))
		fmt.Fprint(w, "thanks")
		r.received <- string(body)
	}))
	t.Cleanup(r.Close)
	return r
}

func TestWebhookTestReturnsWhatCameBack(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{WebhookAllow: loopback})
	endpoint := newReceiver(t)
	hook := s.webhook(t, http.StatusCreated, "POST", "", `{"url":"`+endpoint.URL+`"}`)
	endpoint.secret.Store(hook.Secret)
	test := func() (got deliveryReply) {
		t.Helper()
		reply := s.send(t, "POST", "/webhooks/"+hook.ID+"/test", "", s.withDefaults(nil)...)
		if err := json.Unmarshal(reply.body, &got); err != nil || reply.status != http.StatusOK || got.Type != "webhook.test" || got.Attempt != 1 {
			t.Fatalf("got %d %s: %v", reply.status, reply.body, err)
		}
		return got
	}
	if got := test(); got.Status != 200 || got.Response != "thanks" || got.Error != "" {
		t.Errorf("got %+v", got)
	}
	if body := <-endpoint.received; !strings.HasPrefix(body, `{"type":"webhook.test","timestamp":"`) {
		t.Errorf("received %s", body)
	}
	endpoint.status.Store(http.StatusTeapot)
	if got := test(); got.Status != 418 || got.Response != "thanks" {
		t.Errorf("got %+v", got)
	}
	endpoint.secret.Store(s.webhook(t, http.StatusOK, "POST", "/"+hook.ID+"/rotate", "").Secret)
	test()
	endpoint.Close()
	if got := test(); got.Status != 0 || got.Error == "" {
		t.Errorf("got %+v", got)
	}
}

// Tests that hang, of one token, take no test from another.
func TestTestsOfOneTokenLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{WebhookAllow: loopback})
	var hanging, refused atomic.Int64
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		hanging.Add(1)
		<-release
	}))
	t.Cleanup(slow.Close)
	slowHook := s.webhook(t, http.StatusCreated, "POST", "", `{"url":"`+slow.URL+`"}`)
	hook := s.webhook(t, http.StatusCreated, "POST", "", `{"url":"`+newReceiver(t).URL+`"}`)
	test := func(hook hookReply, secret string) reply {
		return s.send(t, "POST", "/webhooks/"+hook.ID+"/test", "", "Authorization: Bearer "+secret)
	}
	greedy, other := s.NewToken(plantstore.AllScopes()...), s.NewToken(plantstore.AllScopes()...)
	var tests sync.WaitGroup
	defer tests.Wait()
	defer close(release)
	const sent = 16
	for range sent {
		tests.Go(func() {
			if got := test(slowHook, greedy); got.status != http.StatusOK {
				got.wantError(t, plantstore.ErrUnavailable, "too many clients follow the events, or test webhooks: try again later")
				refused.Add(1)
			}
		})
	}
	testenv.WaitFor(t, "all requests to hang or be refused", func() bool { return hanging.Load()+refused.Load() == sent })
	if got := test(hook, other); got.status != http.StatusOK {
		t.Errorf("with %d tests of another token that hang: got %d %s", hanging.Load(), got.status, got.body)
	}
	s.wantMetrics(t, fmt.Sprintf(`plantstore_limit_hits_total{limit="streams"} %d`, refused.Load()))
}

func TestMetricsOfWebhooks(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{WebhookAllow: loopback})
	endpoint := newReceiver(t)
	hook := s.webhook(t, http.StatusCreated, "POST", "", `{"url":"`+endpoint.URL+`"}`)
	endpoint.secret.Store(hook.Secret)
	wantMetrics := func(lines ...string) {
		t.Helper()
		testenv.Eventually(t, func() error {
			text := s.metrics(t)
			for _, line := range lines {
				if !strings.Contains(text, "\n"+line+"\n") {
					return fmt.Errorf("the metrics do not say %s:\n%s", line, text)
				}
			}
			return nil
		})
	}
	wantMetrics(`plantstore_webhook_deliveries_total{result="delivered"} 0`, `plantstore_webhook_deliveries_total{result="failed"} 0`, `plantstore_webhooks_disabled 0`,
		`plantstore_webhooks{health="healthy"} 1`, `plantstore_webhooks{health="catching_up"} 0`, `plantstore_webhooks{health="failing"} 0`,
		`plantstore_webhooks{health="paused"} 0`, `plantstore_webhooks{health="disabled"} 0`)
	s.create(t, `{"id":1,"name":"Fern"}`).wantPlant(t, fern(1))
	if body := <-endpoint.received; !strings.HasPrefix(body, `{"type":"plant.created","timestamp":"`) || !strings.HasSuffix(body, `,"data":{"id":1,"name":"Fern"}}`) {
		t.Errorf("received %s", body)
	}
	wantMetrics(`plantstore_webhook_deliveries_total{result="delivered"} 1`, `plantstore_webhook_delivery_duration_seconds_count 1`,
		`plantstore_webhook_lag_events 0`, `plantstore_webhook_lag_seconds 0`)

	// 410 disables it at once. Resuming sends what is left.
	endpoint.status.Store(http.StatusGone)
	s.create(t, `{"id":2,"name":"Fern"}`).wantPlant(t, fern(2))
	<-endpoint.received
	wantMetrics(`plantstore_webhook_deliveries_total{result="failed"} 1`, `plantstore_webhooks_disabled 1`,
		`plantstore_webhooks{health="disabled"} 1`, `plantstore_webhooks{health="healthy"} 0`)
	for _, action := range []string{"pause", "retry"} {
		s.send(t, "POST", "/webhooks/"+hook.ID+"/"+action, "", s.withDefaults(nil)...).wantError(t, plantstore.ErrDisabled, "the webhook is disabled", "410 Gone")
	}
	if got := s.webhook(t, http.StatusOK, "GET", "/"+hook.ID, ""); got.State != "disabled" || !strings.Contains(got.Reason, "410") {
		t.Errorf("got %+v", got)
	}
	endpoint.status.Store(http.StatusOK)
	if got := s.webhook(t, http.StatusOK, "POST", "/"+hook.ID+"/resume", ""); got.State != "active" || got.Reason != "" {
		t.Errorf("got %+v", got)
	}
	if body := <-endpoint.received; !strings.Contains(body, `"id":2,`) {
		t.Errorf("received %s", body)
	}
	wantMetrics(`plantstore_webhook_deliveries_total{result="delivered"} 2`, `plantstore_webhooks_disabled 0`)
	s.webhook(t, http.StatusOK, "POST", "/"+hook.ID+"/pause", "")
	wantMetrics(`plantstore_webhooks_disabled 1`, `plantstore_webhooks{health="paused"} 1`, `plantstore_webhooks{health="disabled"} 0`)
}
