package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

const (
	// giveUpAfter is how long an event is attempted before its webhook is disabled.
	giveUpAfter = 72 * time.Hour
	// maxUnsaved is how many deliveries may be unsaved. After a kill they are sent again,
	// along with those in flight.
	maxUnsaved       = 256
	maxUnsavedShared = 4096
	// saveInterval is the time between two saves, longer for each pending event. While
	// nothing is sent it is moveInterval, and for a store that other servers share
	// renewInterval at most.
	saveInterval        = 10 * time.Millisecond
	saveIntervalPending = 50 * time.Microsecond
	moveInterval        = time.Second
	renewInterval       = 3 * time.Second
	// recordInterval is the shortest time between two saves of the last attempts.
	recordInterval = time.Second
	// A store that servers share rewrites a row for each save, and cannot remove the old ones
	// while anybody's transaction is open. There the time between two saves of a webhook is at
	// least sharedInterval, and all webhooks of a server together save their progress
	// maxSharedSaves times a second, and their last attempts maxSharedRecords times.
	sharedInterval   = 500 * time.Millisecond
	maxSharedSaves   = 20
	maxSharedRecords = 5
	// storeDelay is how long to wait after an error of the store.
	storeDelay = time.Second
)

// errChanged means that another server delivers for the webhook now, or that a client
// has changed it.
var errChanged = errors.New("the webhook has changed")

// errPaused means that a client has paused the webhook. What is in flight may still arrive.
var errPaused = errors.New("the webhook was paused")

// delivery delivers the events of one webhook, until it is stopped or the webhook is
// disabled. One goroutine runs it; others send and save.
type delivery struct {
	sender  *Sender
	hook    plantstore.Webhook // its state at the start; Try belongs to the sender's Run
	secrets []string
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when it has ended

	queue    *queue
	results  chan result
	changed  <-chan struct{}       // closed when there may be events after the queue's position; nil if there may be already
	readAt   time.Time             // no read before then, after an error
	attempts []plantstore.Delivery // the last ones, the newest first
	try      int64                 // the webhook's, for which the pending events were made due
	tries    chan int64            // the next one; Run sends

	delivered time.Time                // when an event was last delivered
	failing   bool                     // the last attempt failed
	lastError *plantstore.WebhookError // of the last attempt that failed; never changed in place

	recorded   bool // the attempts are saved, or being saved
	recordedAt time.Time

	// version counts the attempts. savedVersion has been saved, and savingVersion is being
	// saved if saving is set.
	version, savedVersion, savingVersion int
	moved                                bool // the position has moved since it was saved
	saving                               bool
	saves                                chan error
	savedAt                              time.Time
}

type result struct {
	item     *item
	attempt  plantstore.Delivery
	gone     bool // the log no longer has the event
	unwanted bool // nothing was sent: its type is no longer wanted
	stopped  bool // the attempt was abandoned
}

func (d *delivery) run(ctx context.Context) {
	defer func() {
		close(d.done)
		if context.Cause(ctx) == errPaused {
			d.sender.wake()
		}
	}()
	defer d.cancel(nil)
	d.sender.active.Add(1)
	defer d.sender.active.Add(-1)
	sending, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	var senders sync.WaitGroup
	reason := d.loop(ctx, func(it *item) {
		senders.Go(func() { d.results <- d.attempt(sending, it) })
	})
	switch context.Cause(ctx) {
	case context.Canceled, errPaused: // the server stops, or only the webhook
		defer time.AfterFunc(stopGrace, abandon).Stop()
	default:
		abandon()
	}
	senders.Wait()
	d.finish(reason)
}

// loop delivers until ctx ends or the webhook must be disabled, and returns the reason.
func (d *delivery) loop(ctx context.Context, send func(*item)) (reason string) {
	for ctx.Err() == nil {
		if reason := d.read(ctx); reason != "" {
			return reason
		}
		for d.maySend() {
			it := d.queue.next(time.Now())
			if it == nil {
				break
			}
			send(it)
		}
		d.save(ctx)
		timer := time.NewTimer(d.wait())
		select {
		case <-ctx.Done():
		case r := <-d.results:
			reason = d.record(r)
		case err := <-d.saves:
			d.saving = false
			switch {
			case err == nil:
				d.savedVersion = d.savingVersion
			case errors.Is(err, errChanged) || errors.Is(err, plantstore.ErrNoWebhook):
				d.sender.wake() // so that it notices the change
				return ""
			default:
				d.sender.warn(ctx, "cannot save the progress of a webhook", d.hook.ID, err)
				d.savedAt, d.recorded = time.Now().Add(storeDelay), false
			}
		case <-d.changed:
			d.changed = nil
		case d.try = <-d.tries:
			d.queue.hurry()
			d.version++
		case <-timer.C:
		}
		timer.Stop()
		if reason != "" {
			return reason
		}
	}
	return ""
}

// wait returns the time until something is due. Work that is due but blocked does not
// count: a result, or the end of a save, will unblock it.
func (d *delivery) wait() time.Duration {
	next := time.Now().Add(recordInterval)
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	if d.maySend() {
		earlier(d.queue.due())
	}
	if d.queue.wanted() > 0 {
		earlier(d.readAt)
	}
	if !d.saving && d.version > d.savedVersion {
		earlier(d.savedAt.Add(d.saveInterval()))
	}
	return max(0, time.Until(next))
}

// maySend reports whether few enough deliveries are unsaved.
func (d *delivery) maySend() bool {
	if d.sender.opts.Shared {
		return d.version-d.savedVersion < maxUnsavedShared
	}
	return d.version-d.savedVersion < maxUnsaved
}

// read adds the next events to the queue if it wants any.
func (d *delivery) read(ctx context.Context) (reason string) {
	for d.changed == nil && d.queue.wanted() > 0 && !time.Now().Before(d.readAt) && ctx.Err() == nil {
		start := d.queue.position
		page, err := d.sender.nextEvents(ctx, plantstore.EventQuery{After: start, Types: d.hook.Types, Limit: d.queue.wanted()})
		if errors.Is(err, plantstore.ErrGone) {
			return "it is behind what the log keeps: " + err.Error()
		}
		if err != nil {
			d.sender.warn(ctx, "cannot read events for a webhook", d.hook.ID, err)
			d.readAt = time.Now().Add(storeDelay)
			return ""
		}
		d.readAt = time.Time{}
		for _, e := range page.Events {
			d.queue.add(e)
		}
		d.moved = d.moved || page.Next != start
		d.queue.position = page.Next
		if !page.More {
			d.changed = page.changed
		}
	}
	return ""
}

func (d *delivery) attempt(ctx context.Context, it *item) result {
	r := result{item: it}
	p, err := d.payload(ctx, it)
	switch {
	case err == nil && !d.hook.Sends(p.kind):
		r.unwanted = true
		return r
	case err == nil:
		r.attempt = Send(ctx, d.sender.client, d.hook.URL, d.secrets, MessageID(it.Event), p.kind, p.body)
	case errors.Is(err, plantstore.ErrGone):
		r.gone = true
	default:
		r.attempt = plantstore.Delivery{Time: time.Now().UTC(), Error: "the event could not be read: " + excerpt(err.Error(), maxError)}
	}
	r.attempt.Event, r.attempt.Attempt = it.Event, it.Attempts+1
	r.stopped = ctx.Err() != nil && r.attempt.Status == 0
	return r
}

// payload returns the message about an event.
func (d *delivery) payload(ctx context.Context, it *item) (payload, error) {
	if it.event == nil {
		return d.sender.payload(ctx, it.Event)
	}
	body, err := wire.EncodeMessage(*it.event)
	return payload{it.event.Type, body}, err
}

// record records the result of an attempt. It returns a reason to disable the webhook, or "".
func (d *delivery) record(r result) (reason string) {
	switch {
	case r.stopped:
		d.queue.returned(r.item)
		return ""
	case r.gone:
		d.queue.returned(r.item)
		return "it is behind what the log keeps: an event that was not delivered is no longer kept"
	case r.unwanted:
		d.version++
		d.queue.remove(r.item)
		return ""
	}
	d.version++
	now := time.Now()
	d.attempts, d.recorded = slices.Insert(d.attempts, 0, r.attempt), false
	d.attempts = d.attempts[:min(len(d.attempts), plantstore.MaxDeliveries)]
	ok := r.attempt.Status/100 == 2
	d.sender.observe(ok, r.attempt.Duration)
	if ok {
		d.queue.delivered(r.item)
		d.delivered, d.failing = now.UTC(), false
		return ""
	}
	d.failing = true
	d.lastError = &plantstore.WebhookError{URL: d.hook.URL, Time: r.attempt.Time, Error: excerpt(describe(r.attempt), maxReason)}
	d.queue.failed(r.item, now)
	switch {
	case r.attempt.Status == 410:
		return "the endpoint responded 410 Gone"
	case r.item.First.Before(d.sender.opts.Clock.Ago(giveUpAfter)):
		return fmt.Sprintf("an event could not be delivered for %d hours: %s", int(giveUpAfter.Hours()), describe(r.attempt))
	}
	return ""
}

func describe(a plantstore.Delivery) string {
	if a.Error != "" {
		return a.Error
	}
	return fmt.Sprintf("the endpoint responded %d", a.Status)
}

// save begins to save the progress if it has changed, or if the lease must be renewed. A
// position that has only moved past events that are not sent can wait, and so can the
// last attempts.
func (d *delivery) save(ctx context.Context) {
	since := time.Since(d.savedAt)
	record := !d.recorded && time.Since(d.recordedAt) >= d.recordInterval()
	due := record || d.version > d.savedVersion || d.moved && since >= moveInterval || d.sender.opts.Shared && since >= renewInterval
	if !due || d.saving || since < d.saveInterval() {
		return
	}
	d.saving, d.moved, d.savedAt, d.savingVersion = true, false, time.Now(), d.version
	progress := d.progress()
	var last []plantstore.Delivery
	if record {
		last, d.recorded, d.recordedAt = slices.Clone(d.attempts), true, time.Now()
	}
	go func() {
		d.saves <- d.sender.limitSave(ctx, func() error {
			err := d.sender.store.SaveWebhook(ctx, d.hook.ID, func(w *plantstore.Webhook) error {
				if !d.owns(w) {
					return errChanged
				}
				w.Lease.Renewal++
				w.Progress = progress
				return nil
			})
			if err != nil || !record {
				return err
			}
			return d.sender.store.SaveDeliveries(ctx, d.hook.ID, last)
		})
	}()
}

// progress returns the state to save.
func (d *delivery) progress() plantstore.Progress {
	p := d.queue.progress()
	p.Delivered, p.Failing, p.LastError, p.Try = d.delivered, d.failing, d.lastError, d.try
	return p
}

func (d *delivery) saveInterval() time.Duration {
	if d.sender.opts.Shared {
		return max(sharedInterval, time.Duration(d.sender.active.Load())*time.Second/maxSharedSaves)
	}
	return saveInterval + time.Duration(d.queue.items.Len())*saveIntervalPending
}

func (d *delivery) recordInterval() time.Duration {
	if d.sender.opts.Shared {
		return max(recordInterval, time.Duration(d.sender.active.Load())*time.Second/maxSharedRecords)
	}
	return recordInterval
}

// owns reports whether this delivery is still the one for the webhook. What is delivered before a
// pause begins is saved after it has.
func (d *delivery) owns(w *plantstore.Webhook) bool {
	return w.Lease.Owner == d.sender.owner && w.Epoch == d.hook.Epoch && (w.Disabled == "" || w.Disabled == plantstore.Paused)
}

// finish saves the progress for good, and disables the webhook if there is a reason.
func (d *delivery) finish(reason string) {
	for d.queue.inFlight > 0 { // every sender has sent its result
		if late := d.record(<-d.results); reason == "" {
			reason = late
		}
	}
	if d.saving && <-d.saves != nil {
		d.recorded = false
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	_, err := d.sender.store.UpdateWebhook(ctx, d.hook.ID, plantstore.Actor{}, func(w *plantstore.Webhook) error {
		if !d.owns(w) {
			return errChanged
		}
		w.Progress = d.progress()
		w.Lease.Owner = "" // another server may take it
		w.Disabled = cmp.Or(reason, w.Disabled)
		return nil
	})
	if err == nil && reason != "" {
		d.sender.logDisabled(d.hook.ID, reason)
	}
	if err == nil && !d.recorded {
		err = d.sender.store.SaveDeliveries(ctx, d.hook.ID, d.attempts)
	}
	if err != nil && !errors.Is(err, errChanged) && !errors.Is(err, plantstore.ErrNoWebhook) {
		d.sender.warn(ctx, "cannot save the progress of a webhook", d.hook.ID, err)
	}
}
