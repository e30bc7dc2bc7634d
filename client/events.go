package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
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
	// maxEventLine bounds the memory for one event. It is far above the largest event of a
	// server, unless its limit for bodies was raised.
	maxEventLine = 16 << 20

	// streamIdleTimeout is how long a stream may be idle before it counts as broken. A
	// server responds immediately, and then sends something every 15 s.
	streamIdleTimeout = responseTimeout
)

// EventPage returns one page of the log of changes, in the query's order. It may have fewer events
// than the limit and still not be the last. A limit of 0 means the server's default,
// and the server caps a limit that is too large. It fails with ErrGone if the events
// at the query's position are no longer kept, or if the position is from another
// store.
func (c *Client) EventPage(ctx context.Context, q plantstore.EventQuery) (plantstore.EventPage, error) {
	params := eventParams(q)
	if q.Limit != 0 {
		params.Set("limit", strconv.Itoa(q.Limit))
	}
	return ask(ctx, c, "read events", http.MethodGet, withParams("/events", params), nil, func(r *response) (plantstore.EventPage, error) { return r.eventPage(&q) })
}

// Events yields every event that matches the query, in order, from the query's
// position on, and then waits for the next ones. An empty After starts with the oldest
// event kept, and [plantstore.LatestCursor] with the next event. The query's limit is
// ignored, and Newest is an error. Events of tokens need the query's WithTokens and the scope tokens:read. With it,
// a newer server may send events of other things, too: ignore types that you do not know.
//
// Events reconnects when its connection is lost, and never skips or repeats an event.
// The retries and the retry timeout of [Options] start over whenever a connection has
// received something. To continue later, even in another process, store the Cursor of
// the last event and pass it as After.
//
// Events stops when the loop breaks or an error occurs: ctx.Err() if ctx ends, ErrGone
// if the events after the position are no longer kept, or another permanent error.
// After an error it yields nothing more.
func (c *Client) Events(ctx context.Context, q plantstore.EventQuery) iter.Seq2[plantstore.Event, error] {
	return func(yield func(plantstore.Event, error) bool) {
		stream := &eventStream{client: c, query: q, yield: yield}
		err := c.retry(ctx, "follow events", func(bool) error { return stream.follow(ctx) })
		if err != nil {
			yield(plantstore.Event{}, err)
		}
	}
}

func eventParams(q plantstore.EventQuery) url.Values {
	params := url.Values{}
	switch {
	case q.Newest:
		params.Set("order", "newest")
		if q.Before != "" {
			params.Set("before", string(q.Before))
		}
	case q.After != "":
		params.Set("after", string(q.After))
	case !q.Since.IsZero():
		params.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	if q.ID != nil {
		params.Set("id", q.ID.String())
	}
	if len(q.Types) > 0 {
		types := make([]string, len(q.Types))
		for i, t := range q.Types {
			types[i] = string(t)
		}
		params.Set("type", strings.Join(types, ","))
	}
	if q.By != "" {
		params.Set("by", q.By)
	}
	if q.Contains != "" {
		params.Set("q", q.Contains)
	}
	if q.Details {
		params.Set("details", "true")
	}
	return params
}

// eventPage reads the page of events that a query selects.
func (r *response) eventPage(q *plantstore.EventQuery) (page plantstore.EventPage, err error) {
	page.Next = plantstore.Cursor(r.header.Get(wire.HeaderCursor))
	if page.Next == "" {
		return page, r.unexpected()
	}
	if page.Events, err = decodeBody(r, wire.DecodeEvents); err != nil {
		return page, err
	}
	page.Events = slices.DeleteFunc(page.Events, func(e plantstore.Event) bool { return skips(q, &e) })
	_, page.More = nextLink(r.header["Link"])
	at := q.After
	if q.Newest {
		at = q.Before
	}
	if page.More && page.Next == at {
		return page, fmt.Errorf("the next page is at %s, but so was this one", at)
	}
	return page, nil
}

// Histogram returns the number of events in each bucket of the query, whatever they are
// about. Without Until it ends now, and a number of 0 means the server's default. It fails
// with ErrParameter if Until is before Since.
func (c *Client) Histogram(ctx context.Context, q plantstore.HistogramQuery) ([]plantstore.Bucket, error) {
	params := url.Values{"since": {q.Since.UTC().Format(time.RFC3339Nano)}}
	if !q.Until.IsZero() {
		params.Set("until", q.Until.UTC().Format(time.RFC3339Nano))
	}
	if q.Buckets != 0 {
		params.Set("buckets", strconv.Itoa(q.Buckets))
	}
	return decoded(ctx, c, "count events", http.MethodGet, "/events/histogram?"+params.Encode(), nil, wire.DecodeBuckets)
}

// skips reports whether the query leaves out an event that the server sends: it sends
// events of tokens to everyone with the scope tokens:read.
func skips(q *plantstore.EventQuery, e *plantstore.Event) bool {
	return !q.WithTokens && !e.Type.OfPlant()
}

// eventStream follows the log over one connection after another.
type eventStream struct {
	client *Client
	query  plantstore.EventQuery // After is the position that has been reached
	yield  func(plantstore.Event, error) bool
}

// follow opens a connection and yields its events. It returns nil if the loop ends.
func (s *eventStream) follow(ctx context.Context) error {
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	params := eventParams(s.query)
	if !params.Has("after") && !params.Has("since") {
		params.Set("since", time.Unix(0, 0).UTC().Format(time.RFC3339)) // or it would start with the next event
	}
	req, err := s.client.request(attempt, http.MethodGet, withParams("/events", params), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", wire.MediaEventStream)
	req.Header.Set("Cache-Control", "no-store")
	idle := time.AfterFunc(streamIdleTimeout, func() { cancel(errIdleTimeout) })
	defer idle.Stop()
	resp, err := s.client.streams.Do(req)
	if err != nil && context.Cause(attempt) == errIdleTimeout {
		err = errIdleTimeout
	}
	if err != nil {
		return transportError(err)
	}
	s.client.announce(resp.Header)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !isMedia(resp.Header, wire.MediaEventStream) {
		return responseError(resp)
	}
	if s.query.After == plantstore.LatestCursor {
		start := plantstore.Cursor(resp.Header.Get(wire.HeaderCursor))
		if start == "" {
			return fmt.Errorf("the response has no %s: is there a proxy in between that removes it?", wire.HeaderCursor)
		}
		s.advance(start)
	}
	opened, start := time.Now(), s.query.After
	err = s.read(&watchedReader{resp.Body, idle})
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	if cut, ok := errors.AsType[*transient](err); ok {
		if context.Cause(attempt) == errIdleTimeout {
			cut = cutOff(errIdleTimeout)
		}
		cut.progress = s.query.After != start || time.Since(opened) >= maxPause
		return cut
	}
	return err
}

// errIdleTimeout is the reason that an idle stream counts as broken.
var errIdleTimeout = fmt.Errorf("nothing was received for %s", streamIdleTimeout)

// cutOff returns the error of a stream that ended. An incomplete event does not count.
func cutOff(err error) *transient {
	return &transient{err: fmt.Errorf("the connection was lost: %w", err)}
}

// watchedReader runs a timer while it reads.
type watchedReader struct {
	in    io.Reader
	timer *time.Timer
}

func (r *watchedReader) Read(b []byte) (int, error) {
	r.timer.Reset(streamIdleTimeout)
	defer r.timer.Stop()
	return r.in.Read(b)
}

// read reads server-sent events and yields them, until the loop or the stream ends. An
// event takes effect at the blank line that ends it, and so does an id without data,
// which says how far the log has been searched.
func (s *eventStream) read(in io.Reader) error {
	lines := bufio.NewReaderSize(in, streamBuffer)
	var line, data []byte
	var id plantstore.Cursor
	for {
		var err error
		if line, err = readLine(lines, line[:0]); err != nil {
			return err
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case string(name) == "id":
			id = plantstore.Cursor(value)
		case string(name) == "data":
			data = append(append(data, value...), '\n')
			if len(data) > maxEventLine {
				return wire.ErrLineTooLong
			}
		case len(line) == 0 && len(data) > 0:
			event, err := wire.DecodeEvent(data)
			if err != nil {
				return fmt.Errorf("the event after %q cannot be read: %w", s.query.After, err)
			}
			if event.Cursor != id {
				return fmt.Errorf("the event with the id %q has the cursor %q", id, event.Cursor)
			}
			s.advance(id)
			data = data[:0]
			if !skips(&s.query, &event) && !s.yield(event, nil) {
				return nil
			}
		case len(line) == 0 && id != "":
			s.advance(id)
		}
	}
}

// readLine appends the next line to dst, without its end.
func readLine(in *bufio.Reader, dst []byte) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		dst = append(dst, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(dst[:len(dst)-1], []byte("\r")), nil
		case err != bufio.ErrBufferFull:
			return dst, cutOff(err)
		case len(dst) > maxEventLine:
			return dst, wire.ErrLineTooLong
		}
	}
}

// advance sets the position from which the next connection continues.
func (s *eventStream) advance(to plantstore.Cursor) {
	s.query.After, s.query.Since = to, time.Time{}
}
