package server

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

const (
	// defaultEvents is the default number of events on a page; maxLimit is the maximum.
	defaultEvents = 100
	// defaultBuckets is the default number of buckets of a histogram.
	defaultBuckets = 60
	// heartbeat is how often a comment keeps a quiet stream alive, and recheck how
	// often the token of its client is checked again.
	heartbeat = 15 * time.Second
	recheck   = time.Second
)

func (s *Server) listEvents(c *call) error {
	query, params, err := readEventQuery(c.r)
	if err != nil {
		return err
	}
	// To other callers, events of tokens do not exist, even if asked for by type.
	query.WithTokens = c.caller.Allows(plantstore.ScopeTokensRead)
	c.w.Header().Add("Vary", "Accept")
	c.w.Header()["Cache-Control"] = headerNoCache
	media := preferred(c.r, wire.MediaJSON, wire.MediaNDJSON, wire.MediaEventStream)
	switch {
	case media != wire.MediaJSON && params.Has("limit"):
		return plantstore.Errorf(plantstore.ErrParameter, `"limit" cannot be combined with %s, which returns every event`, media)
	case media != wire.MediaJSON && query.Newest:
		return plantstore.Errorf(plantstore.ErrParameter, `"order" cannot be combined with %s, which has the oldest event first`, media)
	case media == wire.MediaNDJSON:
		return s.exportEvents(c, query)
	case media == wire.MediaEventStream:
		return s.followEvents(c, query, params)
	}
	page, err := s.readEvents(c, query)
	if err != nil {
		return err
	}
	c.w.Header().Set(wire.HeaderCursor, string(page.Next))
	if page.More {
		next := "after"
		if query.Newest {
			next = "before"
		}
		params.Del("since")
		params.Set(next, string(page.Next))
		c.linkNext("/events", params)
	}
	return writePage(c, page.Events, eventTexts, eventEncoder(query.Details))
}

// readEvents reads a page when it is the caller's turn.
func (s *Server) readEvents(c *call, query plantstore.EventQuery) (plantstore.EventPage, error) {
	return inTurn(c, searches, searchUnits, func(ctx context.Context) (plantstore.EventPage, error) { return s.Store.Events(ctx, query) })
}

func eventTexts(e plantstore.Event) (name, tag string) {
	if e.Token != nil {
		return e.Token.Name, ""
	}
	return e.Plant.Name, e.Plant.Tag.String()
}

func readEventQuery(r *http.Request) (plantstore.EventQuery, url.Values, error) {
	query := plantstore.EventQuery{Limit: defaultEvents}
	params, err := readParams(r, func(name, value string, problems *plantstore.Problems) {
		switch name {
		case "limit":
			query.Limit = readLimit(value, problems)
		case "after":
			query.After = plantstore.Cursor(value)
			if _, err := query.After.Position(); value != string(plantstore.LatestCursor) && err != nil {
				problems.Add(plantstore.ErrParameter, `"after" must be a cursor or latest, got %q`, plantstore.Shorten(value))
			}
		case "since":
			query.Since = readTime(name, value, problems)
		case "order":
			query.Newest = value == "newest"
			if !query.Newest {
				problems.Add(plantstore.ErrParameter, `"order" must be newest, got %q`, plantstore.Shorten(value))
			}
		case "before":
			query.Before = plantstore.Cursor(value)
			if _, err := query.Before.Position(); err != nil {
				problems.Add(plantstore.ErrParameter, `"before" must be a cursor, got %q`, plantstore.Shorten(value))
			}
		case "details":
			query.Details = readBool(name, value, problems)
		case "by":
			if value == "" {
				problems.Add(plantstore.ErrParameter, `"by" must not be empty`)
			}
			query.By = value
		case "q":
			query.Contains = readSearch(value, "name", problems)
		case "id":
			id, err := parseID(value)
			if err != nil {
				problems.Add(plantstore.ErrParameter, `"id" %v`, err)
			}
			query.ID = &id
		case "type":
			for text := range strings.SplitSeq(value, ",") {
				if !slices.Contains(plantstore.EventTypes(), plantstore.EventType(text)) {
					problems.Add(plantstore.ErrParameter, `"type" must be %s, got %q`, alternatives(plantstore.EventTypes()), plantstore.Shorten(text))
				}
				query.Types = append(query.Types, plantstore.EventType(text))
			}
		default:
			problems.Add(plantstore.ErrParameter, "unknown parameter %q; allowed: limit, after, since, order, before, id, type, by, q, details", name)
		}
	})
	switch {
	case err != nil:
	case params.Has("after") && params.Has("since"):
		err = plantstore.Errorf(plantstore.ErrParameter, `"after" and "since" cannot be combined`)
	case query.Newest && (params.Has("after") || params.Has("since")):
		err = plantstore.Errorf(plantstore.ErrParameter, `"order" cannot be combined with "after" or "since": use "before"`)
	case params.Has("before") && !query.Newest:
		err = plantstore.Errorf(plantstore.ErrParameter, `"before" can only be combined with "order" newest`)
	}
	return query, params, err
}

func (s *Server) getHistogram(c *call) error {
	query, err := readHistogramQuery(c.r)
	if err != nil {
		return err
	}
	buckets, err := inTurn(c, reads, histogramUnits, func(ctx context.Context) ([]plantstore.Bucket, error) { return s.Store.Histogram(ctx, query) })
	if err != nil {
		return err
	}
	c.w.Header()["Cache-Control"] = headerNoCache
	return writePage(c, buckets, bucketTexts, wire.AppendBucket)
}

func bucketTexts(plantstore.Bucket) (name, tag string) { return "", "" }

func readHistogramQuery(r *http.Request) (plantstore.HistogramQuery, error) {
	query := plantstore.HistogramQuery{Until: time.Now(), Buckets: defaultBuckets}
	params, err := readParams(r, func(name, value string, problems *plantstore.Problems) {
		switch name {
		case "since":
			query.Since = readTime(name, value, problems)
		case "until":
			query.Until = readTime(name, value, problems)
		case "buckets":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > plantstore.MaxBuckets {
				problems.Add(plantstore.ErrParameter, `"buckets" must be an integer from 1 to %d, got %q`, plantstore.MaxBuckets, plantstore.Shorten(value))
			}
			query.Buckets = n
		default:
			problems.Add(plantstore.ErrParameter, "unknown parameter %q; allowed: since, until, buckets", name)
		}
	})
	switch {
	case err != nil:
	case !params.Has("since"):
		err = plantstore.Errorf(plantstore.ErrParameter, `"since" is missing: it must be a time such as 2026-01-31T12:00:00Z`)
	case query.Until.Before(query.Since):
		err = plantstore.Errorf(plantstore.ErrParameter, `"until" must not be before "since": it is %s, which is before %s`,
			query.Until.UTC().Format(time.RFC3339Nano), query.Since.UTC().Format(time.RFC3339Nano))
	}
	return query, err
}

func readTime(name, value string, problems *plantstore.Problems) time.Time {
	at, err := wire.ParseTime(value)
	if err != nil {
		problems.Add(plantstore.ErrParameter, `%q must be a time such as 2026-01-31T12:00:00Z, got %q`, name, plantstore.Shorten(value))
	}
	return at
}

// followEvents streams events live, as server-sent events, until the client
// disconnects, its token is no longer valid, or the server shuts down.
func (s *Server) followEvents(c *call, query plantstore.EventQuery, params url.Values) error {
	release, err := c.take(streams, followUnits, streamsSize)
	if err != nil {
		return err
	}
	defer release()
	s.followers.Add(1)
	defer s.followers.Add(-1)
	if last := c.r.Header.Get("Last-Event-ID"); last != "" {
		query.After, query.Since = plantstore.Cursor(last), time.Time{}
	} else if !params.Has("after") && !params.Has("since") {
		query.After = plantstore.LatestCursor
	}
	query.Limit = maxLimit
	page, err := s.readEvents(c, query)
	if err != nil {
		return err
	}
	h := c.w.Header()
	if len(page.Events) == 0 {
		h.Set(wire.HeaderCursor, string(page.Next)) // nothing before it will be sent
	}
	h.Set("Content-Type", wire.MediaEventStream)
	h["X-Content-Type-Options"] = headerNosniff
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // or nginx would buffer events
	if c.r.Method == http.MethodHead {
		return nil
	}
	f := &follower{
		Server: s, c: c, query: query,
		pace: &pacedWriter{&c.w, newPace(minExportRate, s.StreamTimeout)}, tick: time.NewTicker(recheck),
	}
	return f.stream(page)
}

// follower is a client that follows the log of changes.
type follower struct {
	*Server
	c     *call
	query plantstore.EventQuery // After is the position that has been sent
	pace  *pacedWriter
	tick  *time.Ticker
	last  time.Time // when something was sent
}

// stream sends a page of events and those that follow it.
func (f *follower) stream(page plantstore.EventPage) error {
	defer f.tick.Stop()
	f.comment("connected")
	changed := closed
	for {
		start := f.query.After
		sent, err := f.send(page)
		switch {
		case err != nil:
			return err
		case !sent || page.More && page.Next == start:
			changed = nil // no memory or no slot: try again
		case page.Next != start:
			changed = closed // there may be more already
		}
		more := page.More || !sent
		page = plantstore.EventPage{} // for the garbage collector
		if !f.wait(changed) {
			return nil
		}
		changed = f.Store.Changed()
		if page, err = f.read(more); err != nil {
			return nil // the client reconnects, and finds out why
		}
	}
}

// read reads the next page. Unless the follower has caught up, that is a scan. If all
// slots are taken, the page is empty and there are still more.
func (f *follower) read(more bool) (plantstore.EventPage, error) {
	if !more {
		return f.Store.Events(f.c.r.Context(), f.query)
	}
	ctx, cancel := context.WithTimeout(f.c.r.Context(), recheck) // the token is checked as often
	defer cancel()
	lane, token := f.c.lane(searches), f.c.caller.Hash
	if err := lane.acquire(ctx, token, searchUnits); err != nil {
		return plantstore.EventPage{Next: f.query.After, More: true}, nil
	}
	defer lane.release(token, searchUnits)
	return f.Store.Events(f.c.r.Context(), f.query)
}

// send sends a page, and reports false if there is no memory for it yet. If the last
// event examined did not match, an id without data says how far the log has been
// searched.
func (f *follower) send(page plantstore.EventPage) (bool, error) {
	release, err := takePage(f.c, page.Events, eventTexts)
	if err != nil {
		return false, nil
	}
	defer release()
	out := newBodyWriter(f.c, f.pace, wire.MediaEventStream, func(dst []byte, e plantstore.Event) ([]byte, error) {
		return appendStreamEvent(dst, e, f.query.Details)
	})
	defer out.close()
	at := f.query.After
	for i, e := range page.Events {
		if err := out.write("", e, "\n\n"); err != nil {
			return false, err
		}
		at, page.Events[i] = e.Cursor, plantstore.Event{} // for the garbage collector
	}
	if at != page.Next {
		out.buf.WriteString("id: " + string(page.Next) + "\n\n")
	}
	f.query.After, f.query.Since = page.Next, time.Time{}
	if out.started || out.buf.Len() > 0 {
		out.flush()
		f.flushed()
	}
	return true, nil
}

// comment sends a line that clients ignore.
func (f *follower) comment(text string) {
	if _, err := io.WriteString(f.pace, ": "+text+"\n\n"); err != nil {
		panic(http.ErrAbortHandler) // the client is disconnected, or too slow
	}
	f.flushed()
}

// flushed sends what net/http has buffered.
func (f *follower) flushed() {
	f.last = time.Now()
	if err := http.NewResponseController(&f.c.w).Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// wait waits until there may be more events, or for the next tick if changed is nil. It
// reports false if the stream ends.
func (f *follower) wait(changed <-chan struct{}) bool {
	for {
		select {
		case <-f.c.r.Context().Done():
			return false
		case <-f.stopped.Done():
			return false
		case <-f.tick.C:
			if _, err := f.Guard.Check(f.c.r.Context(), f.c.r.Header["Authorization"], plantstore.ScopeEvents); err != nil {
				return false
			}
			if time.Since(f.last) > heartbeat-recheck { // or the next tick would be too late
				f.comment("heartbeat")
			}
			if changed == nil {
				return true
			}
		case <-changed:
			return true
		}
	}
}

// closed is a channel on which nobody waits.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// eventEncoder returns the function that encodes events, with details or without.
func eventEncoder(details bool) func(dst []byte, e plantstore.Event) ([]byte, error) {
	if details {
		return wire.AppendDetailedEvent
	}
	return wire.AppendEvent
}

// appendStreamEvent appends an event as a server-sent one, without the blank line.
func appendStreamEvent(dst []byte, e plantstore.Event, details bool) ([]byte, error) {
	dst = append(append(append(dst, "id: "...), e.Cursor...), '\n')
	dst = append(append(append(dst, "event: "...), e.Type...), "\ndata: "...)
	return eventEncoder(details)(dst, e)
}
