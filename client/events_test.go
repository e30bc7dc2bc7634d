package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
)

// allEvents returns the log, read in small pages.
func allEvents(t *testing.T, c *client.Client, q plantstore.EventQuery) []plantstore.Event {
	t.Helper()
	var all []plantstore.Event
	q.Limit = 7
	for {
		page, err := c.EventPage(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Events...)
		if !page.More {
			return all
		}
		q.After = page.Next
	}
}

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

func TestEventsAreWhatHappened(t *testing.T) {
	servertest.OnEveryStore(t, func(t *testing.T, s *servertest.Server) {
		ctx, c, began := t.Context(), s.Client(client.Options{}), time.Now()
		big := plantstore.Plant{ID: -1 << 63, Name: strings.Repeat("é\x01", 100<<10), Tag: plantstore.NewTag("")}
		must(c.Replace(ctx, big, nil))
		must(c.Create(ctx, oak))
		must(c.Replace(ctx, elm, nil))
		must(c.Delete(ctx, 1, nil))
		events, err := take(ctx, c, plantstore.EventQuery{}, 4)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []plantstore.Event{
			{Type: plantstore.PlantCreated, Plant: big},
			{Type: plantstore.PlantCreated, Plant: oak},
			{Type: plantstore.PlantReplaced, Plant: elm},
			{Type: plantstore.PlantDeleted, Plant: elm},
		} {
			got := events[i]
			if got.Type != want.Type || got.Plant != want.Plant || got.By != plantstore.HashSecret(s.Token).ID() || got.Time.Before(began.Add(-time.Minute)) {
				t.Errorf("event %d is %.200v, want %.200v", i, got, want)
			}
		}
		if pages := allEvents(t, c, plantstore.EventQuery{}); !slices.Equal(pages, events) {
			t.Errorf("the pages have %.300v, the stream %.300v", pages, events)
		}
		// Every part of the query reaches the server, in both forms.
		id := plantstore.ID(1)
		for _, q := range []plantstore.EventQuery{
			{After: events[1].Cursor},
			{Since: events[2].Time, ID: &id, Types: []plantstore.EventType{plantstore.PlantReplaced, plantstore.PlantDeleted}},
		} {
			want := events[2:]
			if got := allEvents(t, c, q); !slices.Equal(got, want) {
				t.Errorf("the pages of %v are %.300v", q, got)
			}
			if got, err := take(ctx, c, q, 2); err != nil || !slices.Equal(got, want) {
				t.Errorf("the stream of %v is %.300v, %v", q, got, err)
			}
		}
	})
}

func TestExportAndThenEventsMissNothing(t *testing.T) {
	servertest.OnEveryStore(t, func(t *testing.T, s *servertest.Server) {
		ctx, c := t.Context(), s.Client(client.Options{})
		for _, plants := range [][]plantstore.Plant{nil, {oak}} {
			var at plantstore.Cursor
			got, err := collect(c.ExportAt(ctx, plantstore.Query{}, &at))
			if err != nil || !slices.Equal(got, plants) {
				t.Fatalf("the export has %v, %v, want %v", got, err, plants)
			}
			next := plantstore.Plant{ID: plantstore.ID(len(plants) + 1), Name: "Oak"}
			must(c.Create(ctx, next))
			events, err := take(ctx, c, plantstore.EventQuery{After: at}, 1)
			if err != nil || events[0].Plant != next {
				t.Errorf("the first event after %q is %v, %v, want %v", at, events, err, next)
			}
		}
	})
}

// cutBody ends after some bytes, in an error or as if it were complete.
type cutBody struct {
	io.ReadCloser
	left int
	end  error
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, b.end
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// cutting wraps a transport so that the n-th stream of events is cut after size(n)
// bytes, if that is not negative.
func cutting(size func(n int) int) func(http.RoundTripper) http.RoundTripper {
	var streams atomic.Int64
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err != nil || resp.Header.Get("Content-Type") != "text/event-stream" {
				return resp, err
			}
			n := int(streams.Add(1))
			if left := size(n); left >= 0 {
				resp.Body = &cutBody{resp.Body, left, []error{io.EOF, io.ErrUnexpectedEOF}[n%2]}
			}
			return resp, nil
		})
	}
}

func TestStreamCutAtAnyByteIsResumed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bubbleServer) {
		s.Fill(t, oak, elm, plantstore.Plant{ID: 2, Name: "Ash"})
		want := allEvents(t, s.client(t, client.Options{}, nil), plantstore.EventQuery{})
		if len(want) != 3 {
			t.Fatalf("the log has %v", want)
		}
		for size := range 600 {
			c := s.client(t, client.Options{}, cutting(func(n int) int {
				if n > 2 {
					return -1
				}
				return size
			}))
			if got, err := take(t.Context(), c, plantstore.EventQuery{}, 3); err != nil || !slices.Equal(got, want) {
				t.Fatalf("with two cuts after %d bytes: %v, %v, want %v", size, got, err, want)
			}
		}
	})
}

func TestFollowerMissesNothingWhileConnectionsAreCut(t *testing.T) {
	servertest.OnEveryStore(t, func(t *testing.T, s *servertest.Server) {
		ctx, c := t.Context(), s.Client(client.Options{})
		var writers sync.WaitGroup
		for w := range 4 {
			writers.Go(func() {
				for i := range 100 {
					p := plantstore.Plant{ID: plantstore.ID(i % 5), Name: fmt.Sprint(w, " ", i)}
					err := c.Replace(ctx, p, nil)
					if i%3 == 0 {
						err = c.Delete(ctx, p.ID, nil)
					}
					if err != nil && !errors.Is(err, plantstore.ErrNoPlant) {
						t.Error(err)
					}
				}
			})
		}
		var cuts atomic.Int64
		follower := newClient(t, s.URL, s.Token, client.Options{})
		follower.Wrap(cutting(func(int) int {
			cuts.Add(1)
			return 100 + rand.IntN(4000)
		}))
		go func() {
			writers.Wait()
			must(c.Create(context.WithoutCancel(ctx), plantstore.Plant{ID: 99, Name: "last"}))
		}()
		var got []plantstore.Event
		for e, err := range follower.Events(ctx, plantstore.EventQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, e); e.Plant.ID == 99 {
				break
			}
		}
		if want := allEvents(t, c, plantstore.EventQuery{}); !slices.Equal(got, want) {
			t.Errorf("the follower has %d events, the log %d:\n%v\n%v", len(got), len(want), got, want)
		}
		if cuts.Load() < 5 {
			t.Errorf("only %d connections were cut", cuts.Load())
		}
	})
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

func TestPositionIsThatOfTheLastCompleteEvent(t *testing.T) {
	for name, texts := range map[string]map[string]string{
		"an id without data":       {"": "id: s.1.1\n\n", "s.1.1": sseEvent("s.2.2")},
		"an id that is incomplete": {"": "id: s.1.1\n", "s.1.1": sseEvent("s.9.9"), "s.5.5": sseEvent("s.2.2")},
		"latest, then a cut":       {"latest": ": connected\n\n", "s.0.0": sseEvent("s.2.2")},
		"CR LF":                    {"": strings.ReplaceAll(sseEvent("s.2.2"), "\n", "\r\n")},
		"comments and fields":      {"": "retry: 10\n:\nfuture\n: x\n\n" + sseEvent("s.2.2")},
		"data on two lines":        {"": strings.Replace(sseEvent("s.2.2"), `,"by"`, "\ndata: ,\"by\"", 1)},
	} {
		q := plantstore.EventQuery{}
		switch name {
		case "latest, then a cut":
			q.After = plantstore.LatestCursor
		case "an id that is incomplete":
			first := texts[""]
			texts[""] = "id: s.5.5\n\n" + first
		}
		withFake(t, sse(texts), client.Options{}, func(t *testing.T, c *client.Client) {
			got, err := take(t.Context(), c, q, 1)
			if err != nil || got[0].Cursor != "s.2.2" || got[0].Plant != oak {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		})
	}
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

func TestFollowingEndsInPermanentErrors(t *testing.T) {
	s := start(t)
	s.Fill(t, oak)
	full := s.Client(client.Options{})
	page, err := full.EventPage(t.Context(), plantstore.EventQuery{})
	must(err)
	for name, test := range map[string]struct {
		c     *client.Client
		after plantstore.Cursor
		want  plantstore.Code
	}{
		"another store's cursor": {full, "x" + page.Next, plantstore.ErrGone},
		"a malformed cursor":     {full, "x", plantstore.ErrParameter},
		"no scope":               {newClient(t, s.URL, s.NewToken(plantstore.ScopeRead), client.Options{}), "", plantstore.ErrScope},
		"an unknown token":       {newClient(t, s.URL, plantstore.NewSecret(), client.Options{}), "", plantstore.ErrBadToken},
	} {
		q := plantstore.EventQuery{After: test.after}
		if _, err := take(t.Context(), test.c, q, 1); !errors.Is(err, test.want) {
			t.Errorf("%s: following ends with %v, want %v", name, err, test.want)
		}
		if _, err := test.c.EventPage(t.Context(), q); !errors.Is(err, test.want) {
			t.Errorf("%s: the page is %v, want %v", name, err, test.want)
		}
	}
	for name, text := range map[string]string{
		"an event that is not one": "id: s.1.1\ndata: {}\n\n",
		"another id":               strings.Replace(sseEvent("s.1.1"), "s.1.1", "s.2.2", 1),
	} {
		c := newFake(t, sse(map[string]string{"": text}), client.Options{})
		if _, err := take(t.Context(), c, plantstore.EventQuery{}, 1); err == nil || !strings.Contains(err.Error(), "s.1.1") && !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("%s: %v", name, err)
		}
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
