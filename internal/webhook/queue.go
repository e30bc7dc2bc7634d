package webhook

import (
	"container/list"
	"math/rand/v2"
	"slices"
	"time"

	"plantstore"
)

// The limits of a queue.
const (
	maxInFlight = 16      // events of one webhook
	maxRetrying = 8       // of these, events that failed before, if there are others
	maxBytes    = 1 << 20 // of their text; a larger event is sent alone
	maxHeld     = 1000    // events that wait for another attempt at an event of their plant
	maxReady    = 256     // events that can be sent
	largeEvent  = 1 << 10 // bytes of text of an event that is not kept in memory until it is sent
)

// queue decides which event of a webhook is sent next. It keeps those of one plant in
// order: an event that fails holds back the later ones of its plant, and no others.
//
// Every queue has its own memory for large events, so that no other webhook can keep it
// from sending.
//
// It is not safe for concurrent use.
type queue struct {
	position   plantstore.Cursor // everything up to it is in the queue, or was delivered
	items      *list.List        // of *item, in the order of the log
	plants     map[plantstore.ID][]*item
	ready      []*item // events that may be sent now, the oldest first
	readyBytes int     // of text in ready
	retries    []*item // the first events of their plants, which wait for their time
	inFlight   int
	retrying   int  // events in flight that failed before
	bytes      int  // of text in flight
	proven     bool // the last attempt succeeded; otherwise only one is in flight at a time
	retried    bool // the last attempt to begin was a retry

	delays Delays
}

// item is an undelivered event.
type item struct {
	plantstore.PendingEvent
	before plantstore.Cursor // the position before the event
	event  *plantstore.Event // nil if it has to be read again
	sent   bool              // it is in flight, or was attempted
	at     *list.Element
}

func newQueue(p plantstore.Progress, delays Delays) *queue {
	q := &queue{position: p.Position, items: list.New(), plants: make(map[plantstore.ID][]*item), delays: delays}
	now := time.Now()
	for _, pending := range p.Pending {
		// The clock may have been ahead when these were set.
		if pending.First.After(now) {
			pending.First = now
		}
		if latest := now.Add(delays.Max); pending.Next.After(latest) {
			pending.Next = latest
		}
		q.push(&item{PendingEvent: pending, sent: true})
	}
	return q
}

// add adds the next event of the log.
func (q *queue) add(e plantstore.Event) {
	it := &item{PendingEvent: plantstore.PendingEvent{Event: e.Cursor, ID: e.Plant.ID}, before: q.position}
	if size := e.Plant.TextSize(); size < largeEvent {
		it.event = &e
	} else {
		it.Size = size
	}
	q.push(it)
	q.position = e.Cursor
}

func (q *queue) push(it *item) {
	it.at = q.items.PushBack(it)
	q.plants[it.ID] = append(q.plants[it.ID], it)
	if len(q.plants[it.ID]) == 1 {
		q.offer(it)
		return
	}
	it.event = nil // it may not be sent for a while
}

// offer makes the first event of a plant ready, now or at its time.
func (q *queue) offer(it *item) {
	if it.Attempts == 0 {
		q.ready = append(q.ready, it)
		q.readyBytes += it.Size
		return
	}
	q.retries = append(q.retries, it)
}

// next returns an event to send now, or nil. It counts as in flight from then on.
func (q *queue) next(now time.Time) *item {
	// Retries come first: they hold others back.
	for i, it := range q.retries {
		if q.mayRetry() && !it.Next.After(now) && q.start(it) {
			q.retries = slices.Delete(q.retries, i, i+1)
			return it
		}
	}
	if len(q.ready) == 0 || !q.maySend() || !q.start(q.ready[0]) {
		return nil
	}
	it := q.ready[0]
	q.ready[0] = nil
	q.ready = q.ready[1:]
	q.readyBytes -= it.Size
	return it
}

// maySend reports whether another event may be in flight.
func (q *queue) maySend() bool {
	if !q.proven {
		return q.inFlight == 0
	}
	return q.inFlight < maxInFlight
}

// mayRetry reports whether there is room for a retry that leaves some for other events. If
// only one may be in flight, retries and others take turns.
func (q *queue) mayRetry() bool {
	if len(q.ready) > 0 && (q.retrying >= maxRetrying || !q.proven && q.retried) {
		return false
	}
	return q.maySend()
}

func (q *queue) fits(it *item) bool { return q.bytes == 0 || q.bytes+it.Size <= maxBytes }

// start puts an event in flight, and reports whether there was room for it.
func (q *queue) start(it *item) bool {
	if !q.fits(it) {
		return false
	}
	q.inFlight++
	q.retrying += min(1, it.Attempts)
	q.bytes += it.Size
	q.retried = it.Attempts > 0
	it.sent = true
	return true
}

// landed says that an event is no longer in flight.
func (q *queue) landed(it *item) {
	q.inFlight--
	q.retrying -= min(1, it.Attempts)
	q.bytes -= it.Size
}

// delivered removes an event that was in flight and has arrived.
func (q *queue) delivered(it *item) {
	q.proven = true
	q.remove(it)
}

// remove removes an event that was in flight.
func (q *queue) remove(it *item) {
	q.landed(it)
	q.items.Remove(it.at)
	rest := q.plants[it.ID][1:]
	if len(rest) == 0 {
		delete(q.plants, it.ID)
		return
	}
	q.plants[it.ID] = rest
	q.offer(rest[0])
}

// failed plans another attempt at an event that was in flight.
func (q *queue) failed(it *item, now time.Time) {
	q.landed(it)
	q.proven = false
	it.Attempts++
	if it.First.IsZero() {
		it.First = now
	}
	it.Next = now.Add(q.delays.after(it.Attempts))
	it.event = nil
	q.retries = append(q.retries, it)
}

// hurry makes all retries due.
func (q *queue) hurry() {
	for _, it := range q.retries {
		it.Next = time.Time{}
	}
}

// returned takes back an event whose attempt was abandoned, as when the server stops.
func (q *queue) returned(it *item) {
	q.landed(it)
	q.offer(it)
}

// after returns how long to wait after a number of failed attempts: between half and all of the
// first delay, twice that, four times and so on, up to the longest.
func (d Delays) after(attempts int) time.Duration {
	pause := d.Max
	if shift := attempts - 1; shift < 10 {
		pause = min(pause, d.First<<shift)
	}
	return pause/2 + rand.N(pause/2)
}

// wanted returns how many more events the queue takes. It is 0 until there is room for
// many, so that they are read in large pages, and none is read long before it is sent:
// all webhooks take turns to read.
func (q *queue) wanted() int {
	if len(q.ready) > maxReady/2 || q.readyBytes+q.bytes > maxBytes/2 {
		return 0
	}
	held := q.items.Len() - len(q.ready) - q.inFlight
	return max(0, min(maxReady-len(q.ready), maxHeld-held))
}

// due returns when the next attempt is due, or the zero time if there is none, or none
// until another has ended.
func (q *queue) due() (at time.Time) {
	if !q.mayRetry() {
		return at
	}
	for _, it := range q.retries {
		if q.fits(it) && (at.IsZero() || it.Next.Before(at)) {
			at = it.Next
		}
	}
	return at
}

// progress returns the state to save. It leaves out unsent events at the end, which are
// read again.
func (q *queue) progress() plantstore.Progress {
	p := plantstore.Progress{Position: q.position}
	last := q.items.Back()
	for last != nil && !last.Value.(*item).sent {
		p.Position = last.Value.(*item).before
		last = last.Prev()
	}
	for e := q.items.Front(); last != nil; e = e.Next() {
		p.Pending = append(p.Pending, e.Value.(*item).PendingEvent)
		if e == last {
			break
		}
	}
	return p
}
