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

// LatestCursor is the position after the last event, whatever that is when a store is
// asked.
const LatestCursor Cursor = "latest"

// EventType says what happened.
type EventType string

// The types of events.
const (
	PlantCreated  EventType = "plant.created"
	PlantReplaced EventType = "plant.replaced"
	PlantDeleted  EventType = "plant.deleted"
)

// EventTypes lists every type.
func EventTypes() []EventType { return []EventType{PlantCreated, PlantReplaced, PlantDeleted} }

// Event is one change of a plant.
type Event struct {
	// Cursor is the position after this event.
	Cursor Cursor
	// Time is when the change was committed, in UTC, to the microsecond. It never
	// decreases from one event to the next.
	Time time.Time
	Type EventType
	// Plant is the plant after the change, or before a deletion.
	Plant Plant
	// By is who made the change: the public id of a token.
	By string
}

// EventQuery says which events are wanted.
type EventQuery struct {
	// After asks for the events after that position. An empty Cursor stands for the
	// oldest event that is kept.
	After Cursor
	// Since, where it is set and After is empty, asks for events from that time on.
	Since time.Time
	// ID, where it is set, asks for the events of that plant.
	ID *ID
	// Types, where it is not empty, asks for events of these types.
	Types []EventType
	// Limit is the most events that a page may hold, 1 at least.
	Limit int
}

// EventPage is one page of the log.
type EventPage struct {
	Events []Event
	// Next is the position after the last event examined: the After of the next page.
	Next Cursor
	// More says that there are events after Next.
	More bool
}

// Matches reports whether the query asks for such an event.
func (q *EventQuery) Matches(e *Event) bool {
	return (q.ID == nil || *q.ID == e.Plant.ID) && (len(q.Types) == 0 || slices.Contains(q.Types, e.Type))
}

// Position is what a cursor stands for: the event with that number in that store. Its
// time tells it from the event that another history of the store has under the same
// number, as after a restore.
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

// Position returns the position of a cursor, or ErrParameter if there is none.
func (c Cursor) Position() (p Position, err error) {
	parts := strings.Split(string(c), ".")
	if len(parts) != 3 || len(c) > 64 {
		return p, Errorf(ErrParameter, "malformed cursor %q", Shorten(string(c)))
	}
	seq, badSeq := strconv.ParseInt(parts[1], 36, 64)
	at, badTime := strconv.ParseInt(parts[2], 36, 64)
	p = Position{parts[0], seq, at}
	if badSeq != nil || badTime != nil || seq < 0 || p.Cursor() != c {
		return Position{}, Errorf(ErrParameter, "malformed cursor %q", Shorten(string(c)))
	}
	return p, nil
}

// CheckIn returns ErrGone unless the position is in the log of that store, which has
// the events after trimmed up to last.
func (p Position) CheckIn(store string, trimmed, last int64) error {
	switch {
	case p.Store != store:
		return ErrorGone("it is another store's")
	case p.Seq < trimmed:
		return ErrorGone("the events after it are no longer kept")
	case p.Seq > last:
		return ErrorGone("it is beyond the end of this store, which may have been restored from a backup")
	}
	return nil
}

// ErrorGone returns the error for a cursor whose position the store does not have.
func ErrorGone(why string) error {
	return Errorf(ErrGone, "the cursor is gone: %s; start over without one, or from an export's Plantstore-Cursor", why)
}

// LogStats describes the log of changes to an operator.
type LogStats struct {
	Events    int64     // kept
	Bytes     int64     // about what they take, 0 if it is not known yet
	LastSeq   int64     // the number of the last event
	Oldest    time.Time // when the oldest that is kept was committed; zero if none is
	Unflushed int64     // of Events, those that the table of plants may not have yet
}
