// Package mirror makes the plants of one server exactly those of another, and keeps them so.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/backoff"
	"plantstore/internal/cli"
)

// Mirror copies from one server to another. Nothing else may write to the copy.
type Mirror struct {
	From, To Server
	// Follow says to apply changes until the context ends, and to try again after a failure.
	Follow bool
	// State is how far the copy is.
	State State
	// Save keeps the state, so that another run resumes from it.
	Save func(State) error
	// Say tells the user what happens.
	Say func(sentence string)
	// Progress begins to show how far a part of the work is, such as plants that are compared:
	// update how many items are done. finish ends the display.
	Progress func(verb, noun string) (update func(items int64), finish func())

	comparisons int // since events were last followed
}

// Server is one of the two servers, with its name in errors.
type Server struct {
	Name   string
	Client *client.Client
}

func (s Server) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s.Name, err)
}

// State is how far a copy is.
type State struct {
	Cursor  plantstore.Cursor `json:"cursor"`             // the copy has every change up to here; empty before the first
	ToStore string            `json:"to_store,omitempty"` // the store that has the copy, as cursors name it; empty if it is not known
}

// ErrSameStore says that both servers have the same store.
var ErrSameStore = errors.New("the same store")

// Run makes the copy exact, and with Follow keeps it so until ctx ends.
func (m *Mirror) Run(ctx context.Context) error {
	if err := m.Save(m.State); err != nil { // and not after the whole copy
		return err
	}
	delays := backoff.Exponential{Min: time.Second, Max: 5 * time.Second}
	for {
		err := m.run(ctx)
		gone := errors.Is(err, plantstore.ErrGone)
		switch {
		case m.Follow && ctx.Err() != nil:
			return nil // the user ended it
		case err == nil || !gone && (!m.Follow || isPermanent(err)):
			return err
		case gone && !m.Follow && m.comparisons >= maxComparisons:
			return fmt.Errorf("events are trimmed before they can be followed, after %d comparisons: keep them longer with --log-keep and --log-max-bytes: %w", m.comparisons, err)
		case gone:
			m.State.Cursor = ""
			m.Say(fmt.Sprintf("%v; comparing the stores again", err))
		default:
			m.Say(fmt.Sprintf("%v; trying again", err))
		}
		delays.Wait(ctx)
	}
}

// maxComparisons is how often the stores are compared if no event can be followed then.
const maxComparisons = 3

// isPermanent reports whether trying again is useless: a server refused a request
// permanently, its events are unknown, or both have the same store.
func isPermanent(err error) bool {
	if errors.Is(err, errUnknownEvent) || errors.Is(err, ErrSameStore) {
		return true
	}
	code, ok := errors.AsType[plantstore.Code](err)
	return ok && code/100 < 500 && code != plantstore.ErrRate && code != plantstore.ErrTimeout
}

// reached records that the copy has every change up to a position.
func (m *Mirror) reached(at plantstore.Cursor) error {
	m.State.Cursor = at
	return m.Save(m.State)
}

// identify finds out which stores the servers have. If the target's is not the one that
// has the copy, for example after a restore from a backup, the copy starts over.
func (m *Mirror) identify(ctx context.Context) error {
	// This also fails if the source's token may not read events.
	latest, err := m.From.Client.EventPage(ctx, plantstore.EventQuery{After: plantstore.LatestCursor, Limit: 1})
	if err != nil {
		return m.From.wrap(err)
	}
	from, err := latest.Next.Position()
	if err != nil {
		return m.From.wrap(err)
	}
	store, err := storeOf(ctx, m.To.Client)
	if err != nil {
		return m.To.wrap(err)
	}
	if store == from.Store {
		return ErrSameStore
	}
	if store == m.State.ToStore {
		return nil
	}
	if m.State.Cursor != "" && m.State.ToStore != "" {
		m.State.Cursor = ""
		m.Say("the target has another store, for example after a restore from a backup; comparing the stores again")
	}
	m.State.ToStore = store
	return nil
}

// storeOf returns the store that a server has, as cursors name it.
func storeOf(ctx context.Context, c *client.Client) (string, error) {
	last := plantstore.ID(math.MaxInt64) // no plant comes after it, and the scope plants:read is enough
	var at plantstore.Cursor
	for _, err := range c.ExportAt(ctx, plantstore.Query{After: &last}, &at) {
		if err != nil {
			return "", err
		}
	}
	position, err := at.Position()
	return position.Store, err
}

// run compares the stores if necessary, and applies the changes up to now, or until
// ctx ends.
func (m *Mirror) run(ctx context.Context) error {
	if err := m.identify(ctx); err != nil {
		return err
	}
	if err := m.Save(m.State); err != nil { // also if that failed the last time
		return err
	}
	if m.State.Cursor == "" {
		if err := m.compare(ctx); err != nil {
			return err
		}
	}
	update, finish := m.Progress("followed", "change")
	defer finish()
	changes := int64(0)
	apply := func(events []plantstore.Event, next plantstore.Cursor) error {
		if err := m.apply(ctx, events); err != nil {
			return err
		}
		if next != m.State.Cursor {
			if err := m.reached(next); err != nil {
				return err
			}
		}
		m.comparisons = 0
		changes += int64(len(events))
		update(changes)
		return nil
	}
	if m.Follow {
		return m.follow(ctx, apply)
	}
	for more := true; more; {
		page, err := m.From.Client.EventPage(ctx, plantstore.EventQuery{After: m.State.Cursor, Limit: 1000, WithTokens: true})
		if err != nil {
			return m.From.wrap(err)
		}
		if err := apply(page.Events, page.Next); err != nil {
			return err
		}
		more = page.More
	}
	m.Say(cli.Count(changes, "change") + " followed")
	return nil
}

// follow applies events as they come, until ctx ends. While some are applied, the next
// ones are received.
func (m *Mirror) follow(ctx context.Context, apply func([]plantstore.Event, plantstore.Cursor) error) error {
	ctx, cancel := context.WithCancel(ctx)
	received := make(chan []plantstore.Event, 1)
	var streamErr error // set before received is closed
	go func() {
		defer close(received)
		var bytes int64
		full := false
		for e, err := range m.From.Client.Events(ctx, plantstore.EventQuery{After: m.State.Cursor, WithTokens: true}) {
			if err != nil {
				streamErr = err
				return
			}
			var events []plantstore.Event
			if !full {
				select {
				case events = <-received: // not applied yet
				default:
				}
			}
			if events == nil {
				bytes = 0
			}
			events = append(events, e)
			bytes += int64(e.Plant.TextSize())
			full = len(events) == chunkPlants || bytes >= chunkBytes
			select {
			case received <- events:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range received { // until the goroutine has ended
		}
	}()
	for events := range received {
		if err := apply(events, events[len(events)-1].Cursor); err != nil {
			return err
		}
	}
	if streamErr != nil {
		return m.From.wrap(streamErr)
	}
	return ctx.Err()
}

// errUnknownEvent says that the copy would not be exact.
var errUnknownEvent = errors.New("unknown event type: use the same version of plantstore as the server")

// apply applies the last event of each plant. Applying events again is safe if all that
// follow them are applied again too.
func (m *Mirror) apply(ctx context.Context, events []plantstore.Event) error {
	last := map[plantstore.ID]difference{}
	for _, e := range events {
		if !e.Type.OfPlant() {
			continue
		}
		if !slices.Contains(plantstore.PlantEventTypes(), e.Type) {
			return m.From.wrap(fmt.Errorf("%w: %q", errUnknownEvent, e.Type))
		}
		last[e.Plant.ID] = difference{e.Plant, e.Type == plantstore.PlantDeleted}
	}
	return m.write(ctx, slices.Collect(maps.Values(last)))
}

// difference is what the copy is missing: a plant, or its deletion.
type difference struct {
	plant   plantstore.Plant
	deleted bool
}

// write applies the differences to the copy. Each is about another plant.
func (m *Mirror) write(ctx context.Context, differences []difference) error {
	writers, writing := errgroup.WithContext(ctx)
	writers.SetLimit(64)
	for _, d := range differences {
		writers.Go(func() error {
			var err error
			if d.deleted {
				err = m.To.Client.Delete(writing, d.plant.ID, nil)
			} else {
				err = m.To.Client.Replace(writing, d.plant, nil)
			}
			if err == nil || d.deleted && errors.Is(err, plantstore.ErrNoPlant) {
				return nil
			}
			return m.To.wrap(fmt.Errorf("plant %d: %w", d.plant.ID, err))
		})
	}
	return writers.Wait()
}

// A chunk of differences is written while both exports wait, so it must be small enough
// that no server cuts them off.
const (
	chunkPlants = 2000
	chunkBytes  = 8 << 20
)

// compare makes the copy equal to a snapshot of the store.
func (m *Mirror) compare(ctx context.Context) error {
	m.comparisons++
	update, finish := m.Progress("compared", "plant")
	defer finish()
	var at plantstore.Cursor
	var compared, written, bytes int64
	var next []difference
	flush := func() error {
		err := m.write(ctx, next)
		written += int64(len(next))
		next, bytes = nil, 0
		return err
	}
	err := m.join(m.From.Client.ExportAt(ctx, plantstore.Query{}, &at), m.To.Client.Export(ctx, plantstore.Query{}), func(d *difference) error {
		compared++
		update(compared)
		if d == nil {
			return nil
		}
		next = append(next, *d)
		bytes += int64(d.plant.TextSize())
		if len(next) < chunkPlants && bytes < chunkBytes {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return err
	}
	m.Say(fmt.Sprintf("%s compared, %d of them written", cli.Count(compared, "plant"), written))
	return m.reached(at)
}

// Verify compares the stores, and returns how many plants they have, and how many of them
// differ. Nothing may write to either at that time.
func (m *Mirror) Verify(ctx context.Context) (compared, different int64, err error) {
	err = m.join(m.From.Client.Export(ctx, plantstore.Query{}), m.To.Client.Export(ctx, plantstore.Query{}), func(d *difference) error {
		compared++
		if d == nil {
			return nil
		}
		if different++; different <= 10 {
			m.Say(fmt.Sprintf("plant %d differs", d.plant.ID))
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("the stores could not be compared: %w", err)
	}
	return compared, different, err
}

// join calls f for every plant of the source's export and the target's, in order of id, with
// what the target is missing, or nil if both have the same plant.
func (m *Mirror) join(source, target iter.Seq2[plantstore.StoredPlant, error], f func(*difference) error) error {
	nextFrom, stopFrom := iter.Pull2(source)
	defer stopFrom()
	nextTo, stopTo := iter.Pull2(target)
	defer stopTo()
	from, fromErr, moreFrom := nextFrom()
	to, toErr, moreTo := nextTo()
	for moreFrom || moreTo {
		if err := errors.Join(m.From.wrap(fromErr), m.To.wrap(toErr)); err != nil {
			return err
		}
		inSource := moreFrom && (!moreTo || from.ID <= to.ID)
		inTarget := moreTo && (!moreFrom || to.ID <= from.ID)
		var missing *difference
		switch {
		case !inSource:
			missing = &difference{plantstore.Plant{ID: to.ID}, true}
		case !inTarget || from.Plant != to.Plant:
			missing = &difference{from.Plant, false}
		}
		if err := f(missing); err != nil {
			return err
		}
		if inSource {
			from, fromErr, moreFrom = nextFrom()
		}
		if inTarget {
			to, toErr, moreTo = nextTo()
		}
	}
	return nil
}
