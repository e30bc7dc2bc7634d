package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
)

// take returns the first n events.
func take(ctx context.Context, c *client.Client, q plantstore.EventQuery, n int) (events []plantstore.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Hour) // of simulated time
	defer cancel()
	for e, err := range c.Events(ctx, q) {
		if err != nil {
			return events, err
		}
		if events = append(events, e); len(events) == n {
			return events, nil
		}
	}
	return events, errWrong
}

// sse is a server that sends a text for each position, and ends the stream.
func sse(texts map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, ok := texts[r.URL.Query().Get("after")]
		if !ok {
			w.WriteHeader(http.StatusGone)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Plantstore-Cursor", "s.0.0")
		io.WriteString(w, text)
	}
}

func sseEvent(cursor string) string {
	return fmt.Sprintf("id: %s\nevent: plant.created\ndata: {\"cursor\":%q,\"time\":\"2026-01-31T12:00:00Z\",\"type\":\"plant.created\",\"plant\":{\"id\":1,\"name\":\"Oak\"},\"by\":\"x\"}\n\n", cursor, cursor)
}

func TestRetriesOfAStreamStartOverWithEveryEvent(t *testing.T) {
	texts := map[string]string{"": sseEvent("s.1.1")}
	for i := 1; i < 50; i++ {
		texts[fmt.Sprintf("s.%d.1", i)] = sseEvent(fmt.Sprintf("s.%d.1", i+1))
	}
	withFake(t, sse(texts), client.Options{Retries: 1}, func(t *testing.T, c *client.Client) {
		events, err := take(t.Context(), c, plantstore.EventQuery{}, 51)
		if len(events) != 50 || !errors.Is(err, plantstore.ErrGone) {
			t.Errorf("%d events, %v; want 50 and ErrGone", len(events), err)
		}
	})
	texts["s.2.1"] = ": connected\n\n"
	withFake(t, sse(texts), client.Options{Retries: 3}, func(t *testing.T, c *client.Client) {
		events, err := take(t.Context(), c, plantstore.EventQuery{}, 51)
		if len(events) != 2 || err == nil || !strings.Contains(err.Error(), "follow events: 4 attempts failed, the last one: the connection was lost") {
			t.Errorf("%d events, %v; want 2 and an end of the retries", len(events), err)
		}
	})
	withFake(t, sse(texts), client.Options{Retries: -1}, func(t *testing.T, c *client.Client) {
		if events, err := take(t.Context(), c, plantstore.EventQuery{}, 51); len(events) != 1 || !errors.Is(err, io.EOF) {
			t.Errorf("without retries: %d events, %v", len(events), err)
		}
	})
}

// A quiet stream that a proxy ends now and then must not use up the retries, and one
// that is silent must not be waited for.
func TestIdleStreamIsKeptAndStalledStreamIsReopened(t *testing.T) {
	for name, hold := range map[string]time.Duration{"ended by a proxy": 30 * time.Second, "silent": time.Hour} {
		streams := 0
		handler := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			if streams++; streams == 100 {
				io.WriteString(w, sseEvent("s.1.1"))
				return
			}
			io.WriteString(w, ": connected\n\n")
			http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(hold):
			}
		}
		withFake(t, handler, client.Options{Retries: 1}, func(t *testing.T, c *client.Client) {
			start := time.Now()
			if _, err := take(t.Context(), c, plantstore.EventQuery{}, 1); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(start); took > 3*time.Hour {
				t.Errorf("%s: 100 streams took %s", name, took)
			}
		})
	}
}

func TestFollowingEndsWithTheContextOrTheToken(t *testing.T) {
	s := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := s.Client(client.Options{})
	must(c.Create(t.Context(), oak))
	count := 0
	for e, err := range c.Events(ctx, plantstore.EventQuery{}) {
		if count++; count == 1 {
			cancel()
			continue
		}
		if !errors.Is(err, context.Canceled) || e.Cursor != "" || count > 2 {
			t.Errorf("%d: %v, %v", count, e, err)
		}
	}
	secret := s.NewToken(plantstore.ScopeEvents)
	for _, err := range newClient(t, s.URL, secret, client.Options{}).Events(t.Context(), plantstore.EventQuery{}) {
		if err == nil {
			must(s.Store.RevokeToken(t.Context(), plantstore.HashSecret(secret), time.Now(), plantstore.Actor{Name: plantstore.Operator}))
			continue
		}
		if !errors.Is(err, plantstore.ErrBadToken) {
			t.Errorf("with a revoked token: %v", err)
		}
	}
}
