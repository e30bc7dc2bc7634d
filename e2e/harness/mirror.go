package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/testenv"
	"plantstore/internal/wire"
)

// pollInterval is the pause between two polls of the log.
const pollInterval = 20 * time.Millisecond

// Mirror is a copy of a store that follows the log of changes. It fails the test at the
// first event that is missing, repeated or out of order, and follows no further.
type Mirror struct {
	t      testing.TB
	name   string
	cancel context.CancelFunc
	done   chan struct{} // closed when it no longer follows

	mu          sync.Mutex          // guards what follows
	at          plantstore.Cursor   // the position that it has reached
	last        plantstore.Position // of the last event
	events      []plantstore.Event  // all of plants that it has seen
	plants      map[plantstore.ID]plantstore.Plant
	interrupted int // how often it lost its server
}

// MirrorByStream starts a mirror that follows the log from the first event on by
// server-sent events.
func MirrorByStream(t testing.TB, s *Server) *Mirror {
	t.Helper()
	m := newMirror(t, "by stream")
	c := s.Client(client.Options{Retrying: m.interrupt})
	m.follow(func(ctx context.Context) error { return m.stream(ctx, c) })
	return m
}

// MirrorByPolling starts a mirror that follows the log from the first event on by
// polling NDJSON.
func MirrorByPolling(t testing.TB, s *Server) *Mirror {
	t.Helper()
	m := newMirror(t, "by polling")
	api, c := s.API, &http.Client{Transport: &http.Transport{}}
	t.Cleanup(c.CloseIdleConnections)
	m.follow(func(ctx context.Context) error { return m.poll(ctx, c, api) })
	return m
}

// MirrorFromExport exports the plants, and starts a mirror that follows the log from
// there by server-sent events.
func MirrorFromExport(t testing.TB, s *Server) *Mirror {
	t.Helper()
	m := newMirror(t, "from an export")
	c := s.Client(client.Options{Retrying: m.interrupt})
	testenv.Eventually(t, func() (err error) { // the server may be killed meanwhile
		m.plants, err = export(c, &m.at)
		return err
	})
	var err error
	if m.last, err = m.at.Position(); err != nil {
		t.Fatal(err)
	}
	m.follow(func(ctx context.Context) error { return m.stream(ctx, c) })
	return m
}

func newMirror(t testing.TB, name string) *Mirror {
	return &Mirror{t: t, name: name, done: make(chan struct{}), plants: make(map[plantstore.ID]plantstore.Plant)}
}

// follow runs the follower until Stop.
func (m *Mirror) follow(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		defer close(m.done)
		if err := run(ctx); err != nil && ctx.Err() == nil {
			m.t.Errorf("mirror %s: %v", m.name, err)
		}
	}()
	m.t.Cleanup(m.Stop)
}

// Stop ends the follower.
func (m *Mirror) Stop() {
	m.cancel()
	<-m.done
}

func (m *Mirror) interrupt(error, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.interrupted++
}

func (m *Mirror) stream(ctx context.Context, c *client.Client) error {
	for e, err := range c.Events(ctx, plantstore.EventQuery{After: m.at, WithTokens: true}) {
		if err == nil {
			err = m.add(e)
		}
		if err != nil {
			return err
		}
	}
	return errors.New("the stream has ended")
}

func (m *Mirror) poll(ctx context.Context, c *http.Client, api string) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if err := m.pollOnce(c, api); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// pollOnce asks for all events after the position that has been reached. Whole lines of a
// response that is cut off count.
func (m *Mirror) pollOnce(c *http.Client, api string) error {
	url := api + "/events"
	if m.at != "" {
		url += "?after=" + string(m.at)
	}
	res, cut := Send(c, Token, "GET", url, "", "Accept", wire.MediaNDJSON)
	if res.Status == 0 || res.Status == http.StatusServiceUnavailable {
		m.interrupt(cut, 0)
		return nil
	}
	if res.Status != http.StatusOK {
		return fmt.Errorf("the events after %q: %d %s", m.at, res.Status, res.Body)
	}
	for line := range bytes.Lines([]byte(res.Body)) {
		if cut != nil && !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		e, err := wire.DecodeEvent(line)
		if err == nil {
			err = m.add(e)
		}
		if err != nil {
			return err
		}
	}
	if cut != nil {
		m.interrupt(cut, 0)
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	end := plantstore.Cursor(res.Header.Get("Plantstore-Cursor"))
	if m.at != "" && m.at != end {
		return fmt.Errorf("the header says that the response ends at %q, but it ends at %q", end, m.at)
	}
	m.at = end
	return nil
}

// add applies an event. It fails unless the event is the next one.
func (m *Mirror) add(e plantstore.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, err := e.Cursor.Position()
	if err != nil {
		return err
	}
	current, found := m.plants[e.Plant.ID]
	legal, author := false, plantstore.HashSecret(Token).ID()
	switch e.Type {
	case plantstore.TokenCreated, plantstore.TokenRevoked: // by commands on the database
		legal, author = e.Token != nil, plantstore.Operator
	case plantstore.PlantCreated:
		legal = !found
	case plantstore.PlantReplaced:
		legal = found && current != e.Plant
	case plantstore.PlantDeleted:
		legal = found && current == e.Plant
	}
	switch {
	case at.Seq != m.last.Seq+1, m.last.Store != "" && at.Store != m.last.Store, at.Time < m.last.Time:
		return fmt.Errorf("event %+v follows one at %+v", e, m.last)
	case e.Time.UnixMicro() != at.Time, e.By != author:
		return fmt.Errorf("event %+v has a wrong time or author", e)
	case !legal:
		return fmt.Errorf("event %+v follows %+v (%t)", e, current, found)
	}
	m.at, m.last = e.Cursor, at
	if e.Token != nil {
		return nil
	}
	if e.Type == plantstore.PlantDeleted {
		delete(m.plants, e.Plant.ID)
	} else {
		m.plants[e.Plant.ID] = e.Plant
	}
	m.events = append(m.events, e)
	return nil
}

// export returns all plants of a store, and sets at to their position in its log.
func export(c *client.Client, at *plantstore.Cursor) (map[plantstore.ID]plantstore.Plant, error) {
	plants := make(map[plantstore.ID]plantstore.Plant)
	for p, err := range c.ExportAt(context.Background(), plantstore.Query{}, at) {
		if err != nil {
			return nil, err
		}
		plants[p.ID] = p.Plant
	}
	return plants, nil
}

// VerifyMirrors waits until the mirrors have reached the end of the log, to which nobody
// may append any more, and stops them. All must equal the store. The first must have
// seen that many events, and each of the others the last of the same. It returns a
// summary.
func VerifyMirrors(t testing.TB, from *client.Client, events int, mirrors ...*Mirror) string {
	t.Helper()
	var end plantstore.Cursor
	stored, err := export(from, &end)
	if err != nil {
		t.Fatalf("export: %v", err)
	}
	summary := fmt.Sprintf("%d events, %d plants", events, len(stored))
	for _, m := range mirrors {
		testenv.Eventually(t, func() error { return m.checkEnd(end) })
		m.Stop()
		if !maps.Equal(m.plants, stored) {
			t.Errorf("mirror %s: its %d plants are not the %d of the store", m.name, len(m.plants), len(stored))
		}
		all := mirrors[0].events
		if skipped := len(all) - len(m.events); skipped < 0 || !slices.Equal(m.events, all[skipped:]) {
			t.Errorf("mirror %s: its %d events are not the last of those of the mirror %s", m.name, len(m.events), mirrors[0].name)
		}
		summary += fmt.Sprintf(", mirror %s: %d events, %d interruptions", m.name, len(m.events), m.interrupted)
	}
	if got := len(mirrors[0].events); got != events {
		t.Errorf("there are %d events, want %d", got, events)
	}
	return summary
}

// checkEnd returns nil if the mirror is at the end, or can no longer get there.
func (m *Mirror) checkEnd(end plantstore.Cursor) error {
	select {
	case <-m.done:
		return nil
	default:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at != end {
		return fmt.Errorf("mirror %s is at %q, the end is %q", m.name, m.at, end)
	}
	return nil
}
