package plantstore

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Cursor is a position in a store's log of changes: after some event, or before the
// first. It is opaque, means nothing in another store, and has at most 64 letters,
// digits, '-', '_' and '.'.
type Cursor string

// LatestCursor is the position after the last event at the time of the query.
const LatestCursor Cursor = "latest"

// EventType says what happened.
type EventType string

// The types of events.
const (
	PlantCreated  EventType = "plant.created"
	PlantReplaced EventType = "plant.replaced"
	PlantDeleted  EventType = "plant.deleted"

	TokenCreated EventType = "token.created"
	TokenRevoked EventType = "token.revoked"
)

// eventTypes lists every type in the order of their numbers, from 1. The logs of stores
// contain these numbers, so a type never gets another.
var eventTypes = []EventType{PlantCreated, PlantReplaced, PlantDeleted, TokenCreated, TokenRevoked}

// EventTypes lists every type.
func EventTypes() []EventType { return slices.Clone(eventTypes) }

// Number returns the number of the type in the log of a store, or 0 if the type is unknown.
func (t EventType) Number() int64 { return int64(slices.Index(eventTypes, t)) + 1 }

// EventTypeOf returns the type with a number, or "" if there is none.
func EventTypeOf(number int64) EventType {
	if number < 1 || number > int64(len(eventTypes)) {
		return ""
	}
	return eventTypes[number-1]
}

// OfPlant reports whether the change is to a plant, even if this release does not know the
// type.
func (t EventType) OfPlant() bool { return strings.HasPrefix(string(t), "plant.") }

// PlantEventTypes lists the types of changes to plants, which webhooks deliver.
func PlantEventTypes() []EventType {
	return slices.DeleteFunc(EventTypes(), func(t EventType) bool { return !t.OfPlant() })
}

// Event is one change to a plant or a token.
type Event struct {
	// Cursor is the position after this event.
	Cursor Cursor
	// Time is when the change was committed, in UTC, to the microsecond. It never
	// decreases from one event to the next.
	Time time.Time
	Type EventType
	// Plant is the plant after the change, or before a deletion. It is meaningless if
	// the change is not to a plant.
	Plant Plant
	// Version is that of the plant after the change. A deletion has one, too.
	Version Version
	// Token is the token after the change, or nil if the change is not to a token. It
	// does not say when the token was last used.
	Token *TokenInfo
	// By is who made the change: the public id of a token, the issuer and subject of an
	// identity provider's token, or [Operator].
	By string
}

// Operator is who makes a change on the database itself, without a token.
const Operator = "operator"

// TextSize returns the approximate length of the event's text in bytes.
func (e *Event) TextSize() int {
	if e.Token != nil {
		return len(e.Token.Name)
	}
	return e.Plant.TextSize()
}

// EventQuery selects events.
type EventQuery struct {
	// After selects events after this position. If it is empty, the query starts with
	// the oldest event kept.
	After Cursor
	// Including selects the event at After, too.
	Including bool
	// Since, if not zero, selects events from this time on. It is ignored if After is
	// set. If it is in the future, the query fails with ErrParameter: the next page would
	// not remember it.
	Since time.Time
	// ID, if not nil, selects the events of this plant.
	ID *ID
	// Types, if not empty, selects events of these types.
	Types []EventType
	// By, if not empty, selects the events of changes made by exactly this caller.
	By string
	// Contains, if not empty, selects events of plants whose name contains every word of this
	// text, as in [Query].
	Contains string
	// WithTokens selects events of tokens, too. Without it they are skipped, whatever
	// the types.
	WithTokens bool
	// Details is whether a client has asked for the versions of plants. Stores ignore it.
	Details bool
	// Limit is the maximum number of events on a page. It must be at least 1.
	Limit int
	// Newest reverses the order: the newest event is first. After, Including and Since are
	// then ignored.
	Newest bool
	// Before selects events before the one at this position, which must still be kept. It
	// is ignored without Newest. If it is empty, the query starts with the newest event.
	Before Cursor
}

// EventPage is one page of the log.
type EventPage struct {
	Events []Event
	// Start is the position from which events were examined.
	Start Cursor
	// Next is the position of the last event examined: the After of the next page, or its
	// Before if the newest event is first.
	Next Cursor
	// More reports whether there are events beyond Next.
	More bool
}

// Filtered reports whether the query selects events by their contents, so that answering it
// may examine many more than it selects.
func (q *EventQuery) Filtered() bool {
	return q.ID != nil || len(q.Types) > 0 || q.By != "" || q.Contains != ""
}

// Matches reports whether the query selects the event, wherever it is in the log, and whatever
// Contains is.
func (q *EventQuery) Matches(e *Event) bool {
	if e.Token != nil && (!q.WithTokens || q.ID != nil || q.Contains != "") {
		return false
	}
	return (q.ID == nil || *q.ID == e.Plant.ID) && (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) &&
		(q.By == "" || q.By == e.By)
}

// MaxBuckets is the maximum number of buckets of a histogram.
const MaxBuckets = 500

// HistogramQuery divides the time from Since to Until, which is not included, into equal
// buckets.
type HistogramQuery struct {
	Since, Until time.Time
	// Buckets is the number of buckets, from 1 to MaxBuckets.
	Buckets int
}

// Bucket is a bucket of a histogram: the number of events from Time until the next bucket
// begins.
type Bucket struct {
	Time   time.Time // in UTC, to the microsecond
	Events int64
	// Partial means that the bucket begins before the oldest event kept: there may have
	// been more.
	Partial bool
}

// Bounds returns when each bucket begins, and when the last one ends, in Unix microseconds:
// events have no finer times.
func (q *HistogramQuery) Bounds() []int64 {
	since := q.Since.UnixMicro()
	length, n := q.Until.UnixMicro()-since, int64(q.Buckets)
	bounds := make([]int64, 0, n+1)
	for i := range n + 1 {
		// length*i/n, which would overflow for centuries.
		bounds = append(bounds, since+length/n*i+length%n*i/n)
	}
	return bounds
}

// Position is a decoded cursor: the event with this number in this store. The time
// distinguishes it from the event that has the same number in another history of the
// store, for example after a restore.
type Position struct {
	Store     string // letters and digits
	Seq, Time int64  // Time is in Unix microseconds
}

// Cursor returns the cursor of a position.
func (p Position) Cursor() Cursor {
	b := append(make([]byte, 0, 64), p.Store...)
	b = strconv.AppendInt(append(b, '.'), p.Seq, 36)
	return Cursor(strconv.AppendInt(append(b, '.'), p.Time, 36))
}

// Position returns the position of a cursor, or ErrParameter if the cursor is malformed.
func (c Cursor) Position() (Position, error) {
	store, rest, _ := strings.Cut(string(c), ".")
	seq, at, _ := strings.Cut(rest, ".")
	p := Position{Store: store}
	var badSeq, badTime error
	p.Seq, badSeq = strconv.ParseInt(seq, 36, 64)
	p.Time, badTime = strconv.ParseInt(at, 36, 64)
	if badSeq != nil || badTime != nil || p.Seq < 0 || !isStoreText(store) || len(c) > 64 || p.Cursor() != c {
		return Position{}, Errorf(ErrParameter, "malformed cursor %q", Shorten(string(c)))
	}
	return p, nil
}

// isStoreText reports whether the text has letters and digits, and nothing else.
func isStoreText(text string) bool {
	return text != "" && strings.Trim(text, base62) == ""
}

// Stats describes a store to an operator.
type Stats struct {
	Plants int64

	// These are about the files of an embedded store, and 0 for others.
	FileBytes   int64
	WALBytes    int64 // of the write-ahead log
	FreeBytes   int64 // of the disk; -1 if unknown
	Checkpoints int64 // since the store was opened

	// DatabaseBytes is the size of the database of a shared store, and 0 for others.
	DatabaseBytes int64

	SearchIndex SearchIndex

	// These are about the log of changes.
	Events    int64     // kept
	Bytes     int64     // their size: the sum of the rows of the log
	LastSeq   int64     // the number of the last event
	Oldest    time.Time // when the oldest event kept was committed; zero if there is none
	Unflushed int64     // events that may not have been flushed to the table of plants yet
}
