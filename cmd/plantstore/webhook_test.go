package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
)

// listening is a running plantstore webhook listen.
type listening struct {
	t         *testing.T
	lines     *bufio.Scanner
	interrupt context.CancelFunc
	exited    chan int
	problems  bytes.Buffer
}

func startListening(t *testing.T, s *servertest.Server, args ...string) *listening {
	t.Helper()
	t.Setenv("PLANTSTORE_TOKEN", s.Token)
	ctx, interrupt := context.WithCancel(t.Context())
	in, out := io.Pipe()
	expired := time.AfterFunc(timeout, func() { in.Close() }) // or a failed test would hang
	t.Cleanup(func() { expired.Stop(); in.Close() })
	l := &listening{t: t, lines: bufio.NewScanner(in), interrupt: interrupt, exited: make(chan int, 1)}
	go func() {
		l.exited <- run(ctx, append([]string{"webhook", "listen", "--url", s.URL}, args...), streams{strings.NewReader(""), out, &l.problems})
		out.Close()
	}()
	return l
}

// want reads a line that must match.
func (l *listening) want(pattern string) string {
	l.t.Helper()
	if !l.lines.Scan() || !regexp.MustCompile(pattern).MatchString(l.lines.Text()) {
		l.t.Fatalf("got %q, want %s", l.lines.Text(), pattern)
	}
	return l.lines.Text()
}

// stop interrupts it. Until then it may have tried again what failed.
func (l *listening) stop() {
	l.t.Helper()
	l.interrupt()
	for l.lines.Scan() {
		if !strings.Contains(l.lines.Text(), "; trying again in ") {
			l.t.Errorf("after the interrupt: %s", l.lines.Text())
		}
	}
	if code := <-l.exited; code != exitOK || l.problems.Len() > 0 {
		l.t.Errorf("exit code %d, %s", code, &l.problems)
	}
}

func TestListenForwardsSignedEventsInOrder(t *testing.T) {
	type message struct {
		header http.Header
		body   string
	}
	received := make(chan message, 100)
	var refused atomic.Bool
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != "POST" || r.URL.Path != "/hook" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %v: %v", r.Method, r.URL, r.Header, err)
		}
		received <- message{r.Header, string(body)}
		if !refused.Swap(true) { // the first message
			w.Header().Set("Location", "/elsewhere") // a redirect is not followed
			w.WriteHeader(http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer endpoint.Close()
	s := servertest.Start(t, servertest.Options{})
	c := s.Client(client.Options{})
	s.Fill(t, plantstore.Plant{ID: 1, Name: "before"})
	l := startListening(t, s, "--forward", endpoint.URL+"/hook", "--all", "--type", "plant.created")
	l.want(`^Forwarding events to ` + endpoint.URL + `/hook$`)
	secret := strings.TrimPrefix(l.want(`^Secret: whsec_`), "Secret: ")
	verified := func(data string) string {
		t.Helper()
		got := <-received
		if err := client.VerifyWebhook(got.header, []byte(got.body), secret); err != nil {
			t.Errorf("%s: %v", got.body, err)
		}
		if !strings.HasPrefix(got.body, `{"type":"plant.created","timestamp":"`) || !strings.HasSuffix(got.body, `,"data":`+data+`}`) {
			t.Errorf("received %s, want %s", got.body, data)
		}
		return got.header.Get("webhook-id")
	}

	// What fails is sent again, with the same id, before what follows.
	id := verified(`{"id":1,"name":"before"}`)
	l.want(`^\d\d:\d\d:\d\d  plant.created   1  302: not accepted; trying again in `)
	for _, err := range []error{
		c.Create(t.Context(), plantstore.Plant{ID: -2, Name: "second"}), c.Replace(t.Context(), plantstore.Plant{ID: -2, Name: "not forwarded"}, nil),
		c.Create(t.Context(), plantstore.Plant{ID: 3, Name: "third", Tag: plantstore.NewTag("a")}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	again := verified(`{"id":1,"name":"before"}`)
	l.want(`  plant.created   1  204 in [\d.]+m?s$`)
	next := verified(`{"id":-2,"name":"second"}`)
	l.want(`  plant.created   -2  204 in `)
	verified(`{"id":3,"name":"third","tag":"a"}`)
	l.want(`  plant.created   3  204 in `)
	if id != again || next == id || !regexp.MustCompile(`^evt_\w+$`).MatchString(id) {
		t.Errorf("the ids are %q, %q again and %q", id, again, next)
	}
	l.stop()
}

func TestListenSignsWithTheGivenSecret(t *testing.T) {
	secret := plantstore.NewWebhookSecret()
	t.Setenv(webhookSecretEnv, secret)
	verified := make(chan error, 1)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		verified <- client.VerifyWebhook(r.Header, body, secret)
	}))
	s := servertest.Start(t, servertest.Options{})
	s.Fill(t, plantstore.Plant{ID: 1, Name: "Fern"})
	l := startListening(t, s, "--forward", endpoint.URL, "--all")
	l.want(`^Forwarding events to `)
	l.want(`  plant.created   1  200 in `) // the secret is not printed
	if err := <-verified; err != nil {
		t.Error(err)
	}

	// Without a receiver it waits, and ends when it is interrupted. EOF is of a connection
	// that is just being closed.
	endpoint.Close()
	s.Fill(t, plantstore.Plant{ID: 1, Name: "Oak"})
	l.want(`  plant.replaced  1  no response: .*(refused|EOF); trying again in `)
	l.stop()
}

func TestWebhooksOnATerminal(t *testing.T) {
	created := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	hooks := []plantstore.Webhook{
		{ID: "wh_1", URL: "https://example.com/hook", Types: plantstore.PlantEventTypes(), Created: created, By: "5d1c6a18ea08", Health: plantstore.WebhookHealth{State: plantstore.Healthy}},
		{
			ID: "wh_3", URL: "https://example.com/", Types: plantstore.PlantEventTypes()[:1], Created: created,
			Health: plantstore.WebhookHealth{
				State:     plantstore.WebhookFailing,
				Delivered: created.Add(time.Minute), Pending: plantstore.MaxPending, Lag: 90*time.Minute + time.Millisecond,
				Failing:     &plantstore.Failing{Since: created.Add(time.Hour), Attempts: 7, Error: "connection refused"},
				NextAttempt: created.AddDate(500, 0, 0),
				LastError:   &plantstore.WebhookError{URL: "https://example.com/", Time: created.Add(2 * time.Hour), Error: "connection refused"},
			},
		},
		{
			ID: "wh_4", URL: "https://example.com/new", Types: plantstore.PlantEventTypes()[:1], Created: created,
			Health: plantstore.WebhookHealth{
				State: plantstore.CatchingUp, Pending: 7, Lag: 11 * time.Second, NextAttempt: created,
				LastError: &plantstore.WebhookError{URL: "https://example.com/old", Time: created, Error: "the endpoint responded 500"},
			},
		},
		{ID: "wh_5", URL: "https://example.com/", Types: plantstore.PlantEventTypes()[:1], Created: created, Disabled: plantstore.Paused, Health: plantstore.WebhookHealth{State: plantstore.WebhookPaused}},
		{ID: "wh_2", URL: "https://example.com/\x1b[2J", Types: plantstore.PlantEventTypes()[:1], Description: "The archive", Disabled: "410 Gone", Created: created, Health: plantstore.WebhookHealth{State: plantstore.WebhookDisabled}},
	}
	var out strings.Builder
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.Local)
	for _, write := range []func(io.Writer){
		func(table io.Writer) { writeWebhooks(table, hooks) },
		func(table io.Writer) { writeWebhook(table, hooks[0], "whsec_x") },
		func(table io.Writer) { writeWebhook(table, hooks[1], "") },
		func(table io.Writer) { writeWebhook(table, hooks[2], "") },
		func(table io.Writer) { writeWebhook(table, hooks[3], "") },
		func(table io.Writer) { writeWebhook(table, hooks[4], "") },
		func(table io.Writer) {
			writeDeliveries(table,
				plantstore.Delivery{Event: "s.1.2", Type: plantstore.PlantCreated, Attempt: 12, Time: at, Status: 200, Duration: 1500 * time.Millisecond},
				plantstore.Delivery{Type: "webhook.test", Attempt: 1, Time: at, Error: "connection refused"})
		},
	} {
		if err := printTable(&out, write); err != nil {
			t.Fatal(err)
		}
	}
	const want = `ID    HEALTH                          PENDING  LAG      NEXT ATTEMPT         URL                            TYPES                                       BY            DESCRIPTION  LAST ERROR
wh_1  healthy                         0        0s                            https://example.com/hook       plant.created,plant.replaced,plant.deleted  5d1c6a18ea08               
wh_3  failing since 2026-01-31 13:00  1,000+   1h30m0s  2526-01-31 12:00:00  https://example.com/           plant.created                                                          2026-01-31 14:00:00: connection refused
wh_4  catching up                     7        11s      now                  https://example.com/new        plant.created                                                          2026-01-31 12:00:00 at https://example.com/old: the endpoint responded 500
wh_5  paused                          0        0s                            https://example.com/           plant.created                                                          
wh_2  disabled                        0        0s                            "https://example.com/\x1b[2J"  plant.created                                             The archive  
id         wh_1
url        https://example.com/hook
types      plant.created,plant.replaced,plant.deleted
health     healthy
delivered  never
pending    0
lag        0s
created    2026-01-31 12:00
by         5d1c6a18ea08
secret     whsec_x (not shown again)
id            wh_3
url           https://example.com/
types         plant.created
health        failing since 2026-01-31 13:00
attempts      7
next attempt  2526-01-31 12:00:00
last error    2026-01-31 14:00:00: connection refused
delivered     2026-01-31 12:01
pending       1,000+
lag           1h30m0s
created       2026-01-31 12:00
id            wh_4
url           https://example.com/new
types         plant.created
health        catching up
next attempt  now
last error    2026-01-31 12:00:00 at https://example.com/old: the endpoint responded 500
delivered     never
pending       7
lag           11s
created       2026-01-31 12:00
id         wh_5
url        https://example.com/
types      plant.created
health     paused
delivered  never
pending    0
lag        0s
created    2026-01-31 12:00
id           wh_2
url          "https://example.com/\x1b[2J"
types        plant.created
description  The archive
health       disabled
reason       410 Gone
delivered    never
pending      0
lag          0s
created      2026-01-31 12:00
TIME                 TYPE           ATTEMPT  STATUS  TOOK  EVENT  ERROR
2026-01-31 12:00:00  plant.created  12       200     1.5s  s.1.2  
2026-01-31 12:00:00  webhook.test   1        none    0s           connection refused
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}
