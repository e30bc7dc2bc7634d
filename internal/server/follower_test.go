package server

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plantstore"
	"plantstore/internal/auth"
	"plantstore/internal/storetest"
)

// liveClient records a live stream.
type liveClient struct {
	slowClient
	text bytes.Buffer
}

func (c *liveClient) Flush()              {}
func (c *liveClient) Header() http.Header { return http.Header{} }

func (c *liveClient) Write(b []byte) (int, error) {
	n, err := c.slowClient.Write(b)
	c.text.Write(b[:n])
	return n, err
}

// followFor streams events to a client that reads this many bytes per second, for a time
// in a bubble. It returns what the client has received, and whether it was cut off.
func followFor(t *testing.T, rate int, duration time.Duration, events ...plantstore.Event) (text string, cut bool) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewModel()
		const secret = "secret"
		token := plantstore.Token{Hash: plantstore.HashSecret(secret), Scopes: []plantstore.Scope{plantstore.ScopeEvents}, Created: time.Now()}
		if err := store.CreateToken(t.Context(), token, plantstore.Actor{Name: plantstore.Operator}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), duration)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "GET", "/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		latest, err := store.Events(ctx, plantstore.EventQuery{After: plantstore.LatestCursor, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		client := &liveClient{slowClient: slowClient{rate: rate}}
		c := newTestCall(searches | memory)
		c.w.ResponseWriter, c.r = client, r
		c.s.Store, c.s.Guard, c.s.stopped = store, auth.New(store, auth.Options{}), t.Context()
		f := &follower{
			Server: c.s, c: c, query: plantstore.EventQuery{After: latest.Next, Limit: maxLimit},
			pace: &pacedWriter{&c.w, newPace(minExportRate, 30*time.Second)}, tick: time.NewTicker(recheck),
		}
		defer func() {
			cut = recover() == http.ErrAbortHandler
			text = client.text.String()
			if used := c.lane(memory).used; used != 0 {
				t.Errorf("%d bytes are still held", used)
			}
		}()
		if err := f.stream(plantstore.EventPage{Events: events, Next: latest.Next}); err != nil {
			t.Error(err)
		}
	})
	return text, cut
}

func TestQuietStreamHasACommentEvery15Seconds(t *testing.T) {
	text, cut := followFor(t, 1<<20, 61*time.Second)
	if want := ": connected\n\n" + strings.Repeat(": heartbeat\n\n", 4); text != want || cut {
		t.Errorf("the stream of a minute is %q, want %q", text, want)
	}
}

func TestFollowerThatReadsTooSlowlyIsCutOff(t *testing.T) {
	large := plantstore.Event{Type: plantstore.PlantCreated, Plant: plantstore.Plant{Name: strings.Repeat("x", 1<<20)}}
	if _, cut := followFor(t, minExportRate/2, time.Hour, large); !cut {
		t.Error("the stream continues")
	}
}
