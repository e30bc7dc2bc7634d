package rules

import (
	"time"

	"plantstore"
)

// LogRange is what a store has of its log: the events after Trimmed up to Last.
type LogRange struct {
	Store         string // in cursors
	Trimmed, Last int64
	TrimmedTime   int64 // of the event trimmed last, in Unix microseconds
	// TimeOf returns the time of an event in the range.
	TimeOf func(seq int64) (int64, error)
}

// At returns the position of an event in the range, or of the one trimmed last.
func (l *LogRange) At(seq int64) (plantstore.Position, error) {
	if seq == l.Trimmed {
		return plantstore.Position{Store: l.Store, Seq: seq, Time: l.TrimmedTime}, nil
	}
	at, err := l.TimeOf(seq)
	return plantstore.Position{Store: l.Store, Seq: seq, Time: at}, err
}

// Start returns the position at which the query starts, and the number of the event that it
// examines first, or ErrGone if its cursor is not in this log.
func (l *LogRange) Start(q plantstore.EventQuery) (at plantstore.Position, first int64, err error) {
	switch {
	case q.Newest && q.Before != "":
		at, err = l.existing(q.Before)
		return at, at.Seq - 1, err
	case q.Newest:
		at, err = l.At(l.Last)
		return at, at.Seq, err
	}
	at, err = l.after(q)
	return at, at.Seq + 1, err
}

// after returns the position after which the query's events come.
func (l *LogRange) after(q plantstore.EventQuery) (plantstore.Position, error) {
	switch {
	case q.After == plantstore.LatestCursor:
		return l.At(l.Last)
	case q.After != "" && q.Including:
		at, err := l.existing(q.After)
		if err != nil {
			return at, err
		}
		return l.At(at.Seq - 1)
	case q.After != "":
		return l.find(q.After)
	case !q.Since.IsZero():
		at, err := l.Before(q.Since)
		if err == nil && at.Seq == l.Last {
			// A time that neither the clock nor the log has reached would be forgotten with the
			// first page.
			err = CheckSince(q.Since)
		}
		return at, err
	}
	return l.At(l.Trimmed)
}

// maxSkew is how much later than the server's clock the clock of a client may be.
const maxSkew = time.Minute

// CheckSince returns ErrParameter if a time is in the future.
func CheckSince(t time.Time) error {
	if time.Until(t) > maxSkew {
		return plantstore.Errorf(plantstore.ErrParameter, `"since" must not be in the future, got %s`, t.UTC().Format(time.RFC3339))
	}
	return nil
}

// existing returns the position of the event at a cursor, which must still be kept.
func (l *LogRange) existing(cursor plantstore.Cursor) (plantstore.Position, error) {
	at, err := l.find(cursor)
	if err == nil && at.Seq == l.Trimmed {
		err = ErrorGone("its event is no longer kept")
	}
	return at, err
}

func (l *LogRange) find(cursor plantstore.Cursor) (plantstore.Position, error) {
	want, err := cursor.Position()
	if err != nil {
		return want, err
	}
	switch {
	case want.Store != l.Store:
		return want, ErrorGone("it is from another store")
	case want.Seq < l.Trimmed:
		return want, ErrorGone("the events after it are no longer kept")
	case want.Seq > l.Last:
		return want, ErrorGone("it is beyond the end of this store, which may have been restored from a backup")
	}
	got, err := l.At(want.Seq)
	if err == nil && got != want {
		err = ErrorGone("this store has another history, for example after a restore from a backup")
	}
	return want, err
}

// Before returns the position before the first event that is not older than t. It
// relies on time never going back in a log.
func (l *LogRange) Before(t time.Time) (plantstore.Position, error) {
	first := t.Add(time.Microsecond - 1).UnixMicro() // events have whole microseconds
	seq, err := l.lastBefore(first, l.Trimmed, l.Last)
	if err != nil {
		return plantstore.Position{}, err
	}
	return l.At(seq)
}

// lastBefore returns the number of the last event before a time, in Unix microseconds. It is
// between low and high.
func (l *LogRange) lastBefore(time, low, high int64) (int64, error) {
	for low < high {
		middle := low + (high-low+1)/2
		at, err := l.TimeOf(middle)
		if err != nil {
			return 0, err
		}
		if at < time {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low, nil
}

// Histogram returns the buckets of a query.
func (l *LogRange) Histogram(q plantstore.HistogramQuery) ([]plantstore.Bucket, error) {
	bounds := q.Bounds()
	last := make([]int64, len(bounds))
	if err := l.search(bounds, last, l.Trimmed, l.Last); err != nil {
		return nil, err
	}
	return l.Buckets(bounds, last), nil
}

// search sets last to the numbers of the last events before the bounds, which are between low
// and high. The one in the middle halves the range of the others.
func (l *LogRange) search(bounds, last []int64, low, high int64) (err error) {
	if len(bounds) == 0 {
		return nil
	}
	m := len(bounds) / 2
	if last[m], err = l.lastBefore(bounds[m], low, high); err != nil {
		return err
	}
	if err := l.search(bounds[:m], last[:m], low, last[m]); err != nil {
		return err
	}
	return l.search(bounds[m+1:], last[m+1:], last[m], high)
}

// Buckets returns the buckets with these bounds, given the number of the last event before
// each bound: numbers have no gaps.
func (l *LogRange) Buckets(bounds, last []int64) []plantstore.Bucket {
	buckets := make([]plantstore.Bucket, len(bounds)-1)
	for i := range buckets {
		buckets[i] = plantstore.Bucket{
			Time: time.UnixMicro(bounds[i]).UTC(), Events: last[i+1] - last[i],
			Partial: l.Trimmed > 0 && bounds[i] <= l.TrimmedTime,
		}
	}
	return buckets
}

// ErrorGone returns the error for a cursor whose position the store does not have.
func ErrorGone(why string) error {
	return plantstore.Errorf(plantstore.ErrGone, "the cursor is gone: %s; start over without one, or from an export's Plantstore-Cursor", why)
}
