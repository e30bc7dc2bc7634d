package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/backoff"
)

type mirrorCommand struct {
	From   string `required:"" placeholder:"URL" help:"The base URL of the server to copy from."`
	To     string `required:"" placeholder:"URL" help:"The base URL of the server to copy to."`
	Follow bool   `help:"Keep the copy exact until interrupted."`
	State  string `placeholder:"FILE" help:"Record progress in this file, and resume from it."`
	Verify bool   `help:"Compare both stores at the end. Nothing may write to them at that point."`
}

// The variables that have the tokens of both servers.
const (
	fromTokenEnv = "PLANTSTORE_FROM_TOKEN"
	toTokenEnv   = "PLANTSTORE_TO_TOKEN"
)

func (mirrorCommand) Help() string {
	return `Makes the plants of one store exactly those of another: creates, replaces and deletes whatever differs, and then applies the changes made in the meantime. With --follow it keeps applying new changes. It can be killed and run again at any time: with --state it resumes where it left off, and otherwise it compares the stores again. Nothing else may write to the copy.

The tokens are read from the environment variables PLANTSTORE_FROM_TOKEN (scopes plants:read and events:read) and PLANTSTORE_TO_TOKEN (plants:read and plants:write), or both from PLANTSTORE_TOKEN. Without them, those that plantstore login saved are used.

Examples:
  plantstore mirror --from http://old:8080 --to http://new:8080 --follow --state mirror.json
  plantstore mirror --from http://old:8080 --to http://new:8080 --state mirror.json --verify`
}

func (c *mirrorCommand) Run(ctx context.Context, std streams) error {
	if c.Verify && c.Follow {
		return usage("--verify compares the stores at the end: run it without --follow, once nothing is writing")
	}
	if loginKey(c.From) == loginKey(c.To) {
		return usage("--from and --to are the same server")
	}
	m := &mirror{mirrorCommand: c, std: std, state: mirrorState{From: c.From, To: c.To}}
	var err error
	if m.from, err = newClient(std, c.From, fileTimeout, fromTokenEnv, tokenEnv); err != nil {
		return err
	}
	if m.to, err = newClient(std, c.To, fileTimeout, toTokenEnv, tokenEnv); err != nil {
		return err
	}
	if err := m.load(); err != nil {
		return err
	}
	if err := m.save(); err != nil { // and not after the whole copy
		return err
	}
	delays := backoff.Exponential{Min: time.Second, Max: 5 * time.Second}
	for {
		err := m.run(ctx)
		gone := errors.Is(err, plantstore.ErrGone)
		switch {
		case c.Follow && ctx.Err() != nil:
			return nil // that is how following ends
		case err == nil && c.Verify:
			return m.verify(ctx)
		case err == nil || !gone && (!c.Follow || isPermanent(err)):
			return err
		case gone && !c.Follow && m.comparisons >= maxComparisons:
			return fmt.Errorf("events are trimmed before they can be followed, after %d comparisons: keep them longer with --log-keep and --log-max-bytes: %w", m.comparisons, err)
		case gone:
			m.state.Cursor = ""
			fmt.Fprintf(std.err, "%v; comparing the stores again\n", err)
		default:
			fmt.Fprintf(std.err, "%v; trying again\n", err)
		}
		delays.Wait(ctx)
	}
}

// maxComparisons is how often the stores are compared if no event can be followed then.
const maxComparisons = 3

// isPermanent reports whether trying again is useless: a server refused a request
// permanently, its events are unknown, or both have the same store.
func isPermanent(err error) bool {
	if errors.Is(err, errUnknownEvent) || errors.Is(err, errUsage) {
		return true
	}
	code, ok := errors.AsType[plantstore.Code](err)
	return ok && code/100 < 500 && code != plantstore.ErrRate && code != plantstore.ErrTimeout
}

// mirror is a copy in progress.
type mirror struct {
	*mirrorCommand
	std      streams
	from, to *client.Client
	state    mirrorState

	comparisons int // since events were last followed
}

// ofSource and ofTarget say which server an error is from.
func (m *mirror) ofSource(err error) error { return wrap("source "+m.From, err) }

func (m *mirror) ofTarget(err error) error { return wrap("target "+m.To, err) }

type mirrorState struct {
	From    string            `json:"from"`
	To      string            `json:"to"`
	Cursor  plantstore.Cursor `json:"cursor"`             // the copy has every change up to here; empty before the first
	ToStore string            `json:"to_store,omitempty"` // the store that has the copy, as cursors name it; empty if it is not known
}

func (m *mirror) load() error {
	if m.State == "" {
		return nil
	}
	text, err := os.ReadFile(m.State)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var state mirrorState
	if err := json.Unmarshal(text, &state); err != nil {
		return fmt.Errorf("%s is not a state file: %w", m.State, err)
	}
	if state.Cursor == "" {
		return nil // the first comparison has not ended
	}
	if loginKey(state.From) != loginKey(m.From) || loginKey(state.To) != loginKey(m.To) {
		return fmt.Errorf("%s is the state of a copy from %s to %s: use another file", m.State, state.From, state.To)
	}
	m.state.Cursor, m.state.ToStore = state.Cursor, state.ToStore
	return nil
}

// reached records that the copy has every change up to a position.
func (m *mirror) reached(at plantstore.Cursor) error {
	m.state.Cursor = at
	return m.save()
}

func (m *mirror) save() error {
	if m.State == "" {
		return nil
	}
	err := writeAtomically(context.Background(), m.State, func(out io.Writer) error {
		return json.NewEncoder(out).Encode(m.state)
	})
	return wrap("cannot write the state file", err)
}

// identify finds out which stores the servers have. If the target's is not the one that
// has the copy, for example after a restore from a backup, the copy starts over.
func (m *mirror) identify(ctx context.Context) error {
	// This also fails if the source's token may not read events.
	latest, err := m.from.EventPage(ctx, plantstore.EventQuery{After: plantstore.LatestCursor, Limit: 1})
	if err != nil {
		return m.ofSource(err)
	}
	from, err := latest.Next.Position()
	if err != nil {
		return m.ofSource(err)
	}
	store, err := storeOf(ctx, m.to)
	if err != nil || store == "" {
		return m.ofTarget(err)
	}
	if store == from.Store {
		return usage("--from and --to have the same store")
	}
	if store == m.state.ToStore {
		return nil
	}
	if m.state.Cursor != "" && m.state.ToStore != "" {
		m.state.Cursor = ""
		fmt.Fprintln(m.std.err, "the target has another store, for example after a restore from a backup; comparing the stores again")
	}
	m.state.ToStore = store
	return nil
}

// storeOf returns the store that a server has, as cursors name it, or "" if the server
// is too old to say.
func storeOf(ctx context.Context, c *client.Client) (string, error) {
	last := plantstore.ID(math.MaxInt64) // no plant comes after it, and the scope plants:read is enough
	var at plantstore.Cursor
	for _, err := range c.ExportAt(ctx, plantstore.Query{After: &last}, &at) {
		if errors.Is(err, client.ErrNoCursor) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
	}
	position, err := at.Position()
	return position.Store, err
}

// run compares the stores if necessary, and applies the changes up to now, or until
// ctx ends.
func (m *mirror) run(ctx context.Context) error {
	if err := m.identify(ctx); err != nil {
		return err
	}
	if err := m.save(); err != nil { // also if that failed the last time
		return err
	}
	if m.state.Cursor == "" {
		if err := m.compare(ctx); err != nil {
			return err
		}
	}
	progress := newProgress(m.std.err, "followed", "change", -1, false)
	defer progress.finish()
	changes := int64(0)
	apply := func(events []plantstore.Event, next plantstore.Cursor) error {
		if err := m.apply(ctx, events); err != nil {
			return err
		}
		if next != m.state.Cursor {
			if err := m.reached(next); err != nil {
				return err
			}
		}
		m.comparisons = 0
		changes += int64(len(events))
		progress.update(changes, changes)
		return nil
	}
	if m.Follow {
		return m.follow(ctx, apply)
	}
	for more := true; more; {
		page, err := m.from.EventPage(ctx, plantstore.EventQuery{After: m.state.Cursor, Limit: 1000, WithTokens: true})
		if err != nil {
			return m.ofSource(err)
		}
		if err := apply(page.Events, page.Next); err != nil {
			return err
		}
		more = page.More
	}
	fmt.Fprintf(m.std.err, "%s followed\n", count(changes, "change"))
	return nil
}

// follow applies events as they come, until ctx ends. While some are applied, the next
// ones are received.
func (m *mirror) follow(ctx context.Context, apply func([]plantstore.Event, plantstore.Cursor) error) error {
	ctx, cancel := context.WithCancel(ctx)
	received := make(chan []plantstore.Event, 1)
	var streamErr error // set before received is closed
	go func() {
		defer close(received)
		var bytes int64
		full := false
		for e, err := range m.from.Events(ctx, plantstore.EventQuery{After: m.state.Cursor, WithTokens: true}) {
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
			full = len(events) == mirrorChunk || bytes >= mirrorBytes
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
		return m.ofSource(streamErr)
	}
	return ctx.Err()
}

// errUnknownEvent says that the copy would not be exact.
var errUnknownEvent = errors.New("unknown event type: use the same version of plantstore as the server")

// apply applies the last event of each plant. Applying events again is safe if all that
// follow them are applied again too.
func (m *mirror) apply(ctx context.Context, events []plantstore.Event) error {
	last := map[plantstore.ID]difference{}
	for _, e := range events {
		if !e.Type.OfPlant() {
			continue
		}
		if !slices.Contains(plantstore.PlantEventTypes(), e.Type) {
			return m.ofSource(fmt.Errorf("%w: %q", errUnknownEvent, e.Type))
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

// write makes the copy have the differences, which are of different plants.
func (m *mirror) write(ctx context.Context, differences []difference) error {
	writers, writing := errgroup.WithContext(ctx)
	writers.SetLimit(64)
	for _, d := range differences {
		writers.Go(func() error {
			var err error
			if d.deleted {
				err = m.to.Delete(writing, d.plant.ID, nil)
			} else {
				err = m.to.Replace(writing, d.plant, nil)
			}
			if err == nil || d.deleted && errors.Is(err, plantstore.ErrNoPlant) {
				return nil
			}
			return m.ofTarget(fmt.Errorf("plant %d: %w", d.plant.ID, err))
		})
	}
	return writers.Wait()
}

// A chunk of differences is written while both exports wait, so it must be small enough
// that no server cuts them off.
const (
	mirrorChunk = 2000
	mirrorBytes = 8 << 20
)

// compare makes the copy equal to a snapshot of the store.
func (m *mirror) compare(ctx context.Context) error {
	m.comparisons++
	progress := newProgress(m.std.err, "compared", "plant", -1, false)
	defer progress.finish()
	var at plantstore.Cursor
	var compared, written, bytes int64
	var next []difference
	flush := func() error {
		err := m.write(ctx, next)
		written += int64(len(next))
		next, bytes = nil, 0
		return err
	}
	err := m.join(m.from.ExportAt(ctx, plantstore.Query{}, &at), m.to.Export(ctx, plantstore.Query{}), func(d *difference) error {
		compared++
		progress.update(compared, compared)
		if d == nil {
			return nil
		}
		next = append(next, *d)
		bytes += int64(d.plant.TextSize())
		if len(next) < mirrorChunk && bytes < mirrorBytes {
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
	fmt.Fprintf(m.std.err, "%s compared, %d of them written\n", count(compared, "plant"), written)
	return m.reached(at)
}

func (m *mirror) verify(ctx context.Context) error {
	var compared, different int64
	err := m.join(m.from.Export(ctx, plantstore.Query{}), m.to.Export(ctx, plantstore.Query{}), func(d *difference) error {
		compared++
		if d == nil {
			return nil
		}
		if different++; different <= 10 {
			fmt.Fprintf(m.std.err, "plant %d differs\n", d.plant.ID)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the stores could not be compared: %w", err)
	}
	if different > 0 {
		err := fmt.Errorf("%d of %d plants differ: is something writing to one of the stores?", different, compared)
		if m.State != "" {
			err = fmt.Errorf("%w If not, delete %s and run the command again: it then compares and repairs every plant", err, m.State)
		}
		return err
	}
	fmt.Fprintf(m.std.err, "both stores have the same %s\n", count(compared, "plant"))
	return nil
}

// join calls f for every plant of the source's export and the target's, in order of id, with
// what the target is missing, or nil if both have the same plant.
func (m *mirror) join(source, target iter.Seq2[plantstore.Plant, error], f func(*difference) error) error {
	nextFrom, stopFrom := iter.Pull2(source)
	defer stopFrom()
	nextTo, stopTo := iter.Pull2(target)
	defer stopTo()
	from, fromErr, moreFrom := nextFrom()
	to, toErr, moreTo := nextTo()
	for moreFrom || moreTo {
		if err := errors.Join(m.ofSource(fromErr), m.ofTarget(toErr)); err != nil {
			return err
		}
		inSource := moreFrom && (!moreTo || from.ID <= to.ID)
		inTarget := moreTo && (!moreFrom || to.ID <= from.ID)
		var missing *difference
		switch {
		case !inSource:
			missing = &difference{plantstore.Plant{ID: to.ID}, true}
		case !inTarget || from != to:
			missing = &difference{from, false}
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
