package server

import (
	"bufio"
	"fmt"
	"mime"
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
	// maxFollowers is how many clients may follow the log live.
	maxFollowers = 256
	// heartbeat is how often a comment keeps a quiet stream alive, and recheck how
	// often the token of its client is checked again.
	heartbeat = 15 * time.Second
	recheck   = time.Second
)

// headerCursor carries a position in the log of changes.
const headerCursor = "Plantstore-Cursor"

func (s *Server) listEvents(w http.ResponseWriter, r *http.Request) error {
	query, params, err := readEventQuery(r)
	if err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	switch preferred(r, wire.MediaJSON, wire.MediaNDJSON, wire.MediaEventStream) {
	case wire.MediaNDJSON:
		return s.exportEvents(w, r, query)
	case wire.MediaEventStream:
		return s.followEvents(w, r, query, params)
	}
	token := tokenOf(w)
	if err := s.scans.acquire(r.Context(), token, 1); err != nil {
		return err
	}
	page, err := s.store.Events(r.Context(), query)
	s.scans.release(token, 1)
	if err != nil {
		return err
	}
	w.Header().Set(headerCursor, string(page.Next))
	if page.More {
		params.Del("since")
		params.Set("after", string(page.Next))
		w.Header().Set("Link", "<"+s.baseURL+"/events?"+params.Encode()+`>; rel="next"`)
	}
	body, err := wire.AppendEvents(nil, page.Events)
	if err != nil {
		return fmt.Errorf("encode the response: %v", err) // not the client's fault
	}
	return writeJSON(w, http.StatusOK, append(body, '\n'))
}

// readEventQuery reads the query of a list of events, strictly.
func readEventQuery(r *http.Request) (plantstore.EventQuery, url.Values, error) {
	query := plantstore.EventQuery{Limit: defaultEvents}
	params, err := readParams(r, func(name, value string, problems *plantstore.Problems) {
		switch name {
		case "limit":
			limit, ok := parseLimit(value)
			if !ok {
				problems.Add(plantstore.ErrParameter, `"limit" must be an integer, 1 or more, got %q`, plantstore.Shorten(value))
			}
			query.Limit = limit
		case "after":
			query.After = plantstore.Cursor(value)
			if _, err := query.After.Position(); value != string(plantstore.LatestCursor) && err != nil {
				problems.Add(plantstore.ErrParameter, `"after" must be a cursor or latest, got %q`, plantstore.Shorten(value))
			}
		case "since":
			at, err := time.Parse(time.RFC3339, value)
			if err != nil {
				problems.Add(plantstore.ErrParameter, `"since" must be a time such as 2026-01-31T12:00:00Z, got %q`, plantstore.Shorten(value))
			}
			query.Since = at
		case "id":
			id, err := parseID(value)
			if err != nil {
				problems.Add(plantstore.ErrParameter, `"id" %v`, err)
			}
			query.ID = &id
		case "type":
			for text := range strings.SplitSeq(value, ",") {
				if !slices.Contains(plantstore.EventTypes(), plantstore.EventType(text)) {
					problems.Add(plantstore.ErrParameter, `"type" must be of %v, got %q`, plantstore.EventTypes(), plantstore.Shorten(text))
				}
				query.Types = append(query.Types, plantstore.EventType(text))
			}
		default:
			problems.Add(plantstore.ErrParameter, "unknown parameter %q; known: limit, after, since, id, type", plantstore.Shorten(name))
		}
	})
	if err == nil && query.After != "" && !query.Since.IsZero() {
		err = plantstore.Errorf(plantstore.ErrParameter, `"after" and "since" cannot be combined`)
	}
	return query, params, err
}

// exportEvents responds with every event from the query's position up to now, one per
// line. The position at which it ends is in the header.
func (s *Server) exportEvents(w http.ResponseWriter, r *http.Request, query plantstore.EventQuery) error {
	if !r.ProtoAtLeast(1, 1) {
		return plantstore.Errorf(plantstore.ErrParameter, "an export needs HTTP/1.1, got %s", r.Proto)
	}
	token := tokenOf(w)
	if !s.exports.tryAcquire(token, 1) {
		return s.exports.full
	}
	defer s.exports.release(token, 1)
	latest, err := s.store.Events(r.Context(), plantstore.EventQuery{After: plantstore.LatestCursor, Limit: 1})
	if err != nil {
		return err
	}
	end, err := latest.Next.Position()
	if err != nil {
		return err
	}
	query.Limit = maxLimit
	page, err := s.store.Events(r.Context(), query)
	if err != nil {
		return err
	}
	w.Header().Set(headerCursor, string(latest.Next))
	w.Header().Set("Content-Type", wire.MediaNDJSON)
	out := bufio.NewWriterSize(&pacedWriter{w, newPace(minExportRate, s.streamTimeout)}, 64<<10)
	var line []byte
	for {
		for _, e := range page.Events {
			at, err := e.Cursor.Position()
			if err == nil && at.Seq > end.Seq {
				return flushOrAbort(out)
			}
			if err == nil {
				line, err = wire.AppendEvent(line[:0], e)
			}
			if err != nil {
				return fmt.Errorf("encode the response: %v", err) // not the client's fault
			}
			if _, err := out.Write(append(line, '\n')); err != nil {
				panic(http.ErrAbortHandler) // the client is disconnected, or too slow
			}
		}
		if !page.More {
			return flushOrAbort(out)
		}
		query.After, query.Since = page.Next, time.Time{}
		if page, err = s.store.Events(r.Context(), query); err != nil {
			return err
		}
	}
}

func flushOrAbort(out *bufio.Writer) error {
	if err := out.Flush(); err != nil {
		panic(http.ErrAbortHandler) // the client must not mistake a part for the whole
	}
	return nil
}

// followEvents streams events live, as server-sent events, until the client
// disconnects, its token is no longer valid, or the server shuts down.
func (s *Server) followEvents(w http.ResponseWriter, r *http.Request, query plantstore.EventQuery, params url.Values) error {
	select {
	case s.followers <- struct{}{}:
		defer func() { <-s.followers }()
	default:
		return plantstore.Errorf(plantstore.ErrUnavailable, "too many clients follow the events: try again later")
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		query.After, query.Since = plantstore.Cursor(last), time.Time{}
	} else if !params.Has("after") && !params.Has("since") {
		query.After = plantstore.LatestCursor
	}
	query.Limit = maxLimit
	page, err := s.store.Events(r.Context(), query)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set(headerCursor, string(page.Next))
	h.Set("Content-Type", wire.MediaEventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // or nginx would buffer events
	return s.stream(w, r, query, page)
}

// stream sends a page of events and those that follow it.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, query plantstore.EventQuery, page plantstore.EventPage) error {
	out := &pacedWriter{w, newPace(minExportRate, s.streamTimeout)}
	tick, last := time.NewTicker(recheck), time.Now()
	defer tick.Stop()
	send := func(text []byte) bool {
		last = time.Now()
		_, err := out.Write(text)
		return err == nil && http.NewResponseController(w).Flush() == nil
	}
	if !send([]byte(": connected\n\n")) {
		return nil
	}
	// wait waits until there may be more events, and reports false if the stream ends.
	wait := func(changed <-chan struct{}) bool {
		for {
			select {
			case <-r.Context().Done():
				return false
			case <-s.stopped.Done():
				return false
			case <-tick.C:
				if _, err := s.guard.Check(r.Context(), r.Header["Authorization"], plantstore.ScopeEvents); err != nil {
					return false
				}
				if time.Since(last) >= heartbeat && !send([]byte(": heartbeat\n\n")) {
					return false
				}
			case <-changed:
				return true
			}
		}
	}
	sent, changed := page.Next, closed
	for {
		text, err := appendStream(nil, page, sent)
		if err != nil || len(text) > 0 && !send(text) || !wait(changed) {
			return nil
		}
		sent = page.Next
		query.After, query.Since = sent, time.Time{}
		changed = s.store.Changed()
		if page, err = s.store.Events(r.Context(), query); err != nil {
			return nil // the client reconnects, and finds out why
		}
		if page.Next != sent {
			changed = closed // there may be more already
		}
	}
}

// closed is a channel on which nobody waits.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// appendStream appends a page as server-sent events. If the last event examined did
// not match, an id without data says how far the log has been searched.
func appendStream(dst []byte, page plantstore.EventPage, sent plantstore.Cursor) (_ []byte, err error) {
	for _, e := range page.Events {
		dst = append(append(append(dst, "id: "...), e.Cursor...), '\n')
		dst = append(append(append(dst, "event: "...), e.Type...), "\ndata: "...)
		if dst, err = wire.AppendEvent(dst, e); err != nil {
			return dst, err
		}
		dst = append(dst, "\n\n"...)
		sent = e.Cursor
	}
	if sent != page.Next {
		dst = append(append(append(dst, "id: "...), page.Next...), "\n\n"...)
	}
	return dst, nil
}

// preferred returns the media type that the client prefers of those given, or the first
// if it does not say.
func preferred(r *http.Request, medias ...string) string {
	best, bestWeight := medias[0], 0.0
	for _, value := range r.Header["Accept"] {
		for part := range strings.SplitSeq(value, ",") {
			media, params, err := mime.ParseMediaType(part)
			if err != nil || !slices.Contains(medias, media) {
				continue
			}
			weight := 1.0
			if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
				weight = q
			}
			if weight > bestWeight || weight == bestWeight && media != medias[0] && bestWeight > 0 {
				best, bestWeight = media, weight
			}
		}
	}
	return best
}
