package webhook

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"plantstore"
)

// large is the name of a plant of which the memory of a queue holds three.
var large = strings.Repeat("x", maxBytes/3)

func largeEventAt(seq int64) plantstore.Event {
	e := eventAt(seq, plantstore.ID(seq))
	e.Plant.Name = large
	return e
}

func eventAt(seq int64, id plantstore.ID) plantstore.Event {
	return plantstore.Event{Cursor: plantstore.Position{Store: "s", Seq: seq}.Cursor(), Type: plantstore.PlantReplaced, Plant: plantstore.Plant{ID: id, Name: "Fern"}}
}

// start is the position before the first event.
var start = plantstore.Position{Store: "s"}.Cursor()

// newTestQueue returns a queue of a webhook whose last attempt succeeded.
func newTestQueue(p plantstore.Progress) *queue {
	q := newQueue(p, defaultDelays)
	q.proven = true
	return q
}

func seqOf(t interface{ Fatal(...any) }, c plantstore.Cursor) int64 {
	p, err := c.Position()
	if err != nil {
		t.Fatal(err)
	}
	return p.Seq
}

// Whatever fails, and whenever the server is killed, every event is delivered, and those
// of one plant in order, except for repeats.
func TestQueueDeliversEverythingInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const plants = 4
		total := rapid.Int64Range(1, 60).Draw(t, "events")
		plantOf, isLarge := make([]plantstore.ID, total+1), make([]bool, total+1)
		for i := range plantOf {
			plantOf[i] = plantstore.ID(rapid.IntRange(0, plants-1).Draw(t, "plant"))
			isLarge[i] = rapid.Bool().Draw(t, "large")
		}
		q := newQueue(plantstore.Progress{Position: start}, defaultDelays)
		saved := q.progress()
		now := time.Unix(1000, 0)
		var flying []*item
		last := make(map[plantstore.ID]int64)
		got := make(map[int64]bool)
		read := func() {
			for at := seqOf(t, q.position); at < total && q.wanted() > 0; at++ {
				e := eventAt(at+1, plantOf[at+1])
				if isLarge[at+1] {
					e.Plant.Name = large
				}
				q.add(e)
			}
		}
		for step := 0; len(got) < int(total); step++ {
			if step > 100_000 {
				t.Fatalf("%d of %d events were delivered", len(got), total)
			}
			read()
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2, 3:
				if it := q.next(now); it != nil {
					flying = append(flying, it)
				}
			case 4, 5, 6:
				if len(flying) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(flying)-1).Draw(t, "which")
				it := flying[i]
				flying = append(flying[:i], flying[i+1:]...)
				seq := seqOf(t, it.Event)
				if !got[seq] {
					if seq < last[it.ID] {
						t.Fatalf("event %d of plant %d after event %d", seq, it.ID, last[it.ID])
					}
					for before := range seq {
						if before > 0 && plantOf[before] == it.ID && !got[before] {
							t.Fatalf("event %d of plant %d before event %d", seq, it.ID, before)
						}
					}
				}
				if rapid.Bool().Draw(t, "fails") && step < 2000 {
					q.failed(it, now)
					continue
				}
				got[seq], last[it.ID] = true, max(last[it.ID], seq)
				q.delivered(it)
			case 7:
				now = now.Add(time.Hour)
			case 8:
				saved = q.progress()
			case 9: // the server is killed, and another starts from what was saved
				q, flying = newQueue(saved, defaultDelays), nil
			}
		}
	})
}

func TestQueueHoldsBackOnlyThePlantThatFails(t *testing.T) {
	q := newTestQueue(plantstore.Progress{Position: start})
	now := time.Unix(1000, 0)
	for seq := range int64(4) {
		q.add(eventAt(seq+1, plantstore.ID(seq%2)))
	}
	first := q.next(now)
	q.failed(first, now)
	other := q.next(now)
	if other == nil || other.ID == first.ID {
		t.Fatalf("got %v, want an event of the other plant", other)
	}
	q.delivered(other)
	if next := q.next(now); next == nil || next.ID != other.ID {
		t.Fatalf("got %v, want the next event of the other plant", next)
	}
	if next := q.next(now); next != nil {
		t.Fatalf("got event %s, which must wait", next.Event)
	}
	if next := q.next(now.Add(defaultDelays.First)); next != first {
		t.Fatalf("got %v, want the event that failed", next)
	}
}

// Retries leave room for events that were never sent.
func TestQueueSendsNewEventsWhileManyRetriesAreDue(t *testing.T) {
	q := newTestQueue(plantstore.Progress{Position: start})
	now := time.Unix(1000, 0)
	seq := int64(0)
	for range 2 * maxInFlight {
		seq++
		q.add(eventAt(seq, plantstore.ID(seq)))
		q.failed(q.next(now), now)
	}
	now = now.Add(time.Hour)
	q.proven = true
	for range maxInFlight {
		seq++
		q.add(eventAt(seq, plantstore.ID(seq)))
	}
	fresh := 0
	for it := q.next(now); it != nil; it = q.next(now) {
		if it.Attempts == 0 {
			fresh++
		}
	}
	if q.inFlight != maxInFlight || fresh != maxInFlight/2 {
		t.Errorf("%d of %d in flight are sent for the first time, want half of them", fresh, q.inFlight)
	}
}

// Until an attempt succeeds, one event is in flight, and retries and events that were
// never sent take turns.
func TestQueueSendsOneEventAtATimeUntilOneSucceeds(t *testing.T) {
	q := newQueue(plantstore.Progress{Position: start}, defaultDelays)
	now := time.Unix(1000, 0)
	for seq := range int64(2 * maxInFlight) {
		q.add(eventAt(seq+1, plantstore.ID(seq+1)))
	}
	retries := 0
	for range 10 {
		it := q.next(now)
		if another := q.next(now); it == nil || another != nil {
			t.Fatalf("%v and %v are in flight, want one event", it, another)
		}
		retries += min(1, it.Attempts)
		q.failed(it, now)
		now = now.Add(time.Hour)
	}
	if retries != 5 {
		t.Errorf("%d of 10 attempts were retries, want half of them", retries)
	}
	q.delivered(q.next(now))
	var last *item
	for it := q.next(now); it != nil; it = q.next(now) {
		last = it
	}
	if q.inFlight != maxInFlight {
		t.Errorf("after a success, %d events are in flight, want %d", q.inFlight, maxInFlight)
	}
	q.failed(last, now)
	if it := q.next(now); it != nil {
		t.Errorf("after a failure, %v is sent along with others", it)
	}
}

// Large events are in flight together as far as they fit, and one that is too large alone.
func TestQueueBoundsTheMemoryOfLargeEvents(t *testing.T) {
	q := newTestQueue(plantstore.Progress{Position: start})
	now := time.Unix(1000, 0)
	for seq := range int64(6) {
		q.add(largeEventAt(seq + 1))
	}
	huge := largeEventAt(7)
	huge.Plant.Name = strings.Repeat("x", maxBytes+1)
	q.add(huge)
	for q.items.Len() > 0 {
		var sent []*item
		for it := q.next(now); it != nil; it = q.next(now) {
			sent = append(sent, it)
		}
		if len(sent) == 0 || q.bytes > maxBytes && len(sent) > 1 {
			t.Fatalf("%d events with %d bytes are in flight", len(sent), q.bytes)
		}
		for _, it := range sent {
			q.delivered(it)
		}
	}
}

// A webhook that hangs must not keep reading what it cannot send: reads are shared.
func TestQueueWantsNothingWhileItHasLargeEvents(t *testing.T) {
	q := newTestQueue(plantstore.Progress{Position: start})
	now := time.Unix(1000, 0)
	q.add(largeEventAt(1))
	q.add(largeEventAt(2))
	if got := q.wanted(); got != 0 {
		t.Errorf("%d events are wanted although %d bytes can be sent", got, q.readyBytes)
	}
	first, second := q.next(now), q.next(now)
	if got := q.wanted(); got != 0 {
		t.Errorf("%d events are wanted although %d bytes are in flight", got, q.bytes)
	}
	q.delivered(first)
	q.failed(second, now)
	if q.wanted() == 0 {
		t.Error("no events are wanted although nothing can be sent now")
	}
}

// The queue takes no more events when many are held back, and none when many were not
// sent yet.
func TestQueueIsBounded(t *testing.T) {
	q := newTestQueue(plantstore.Progress{Position: start})
	now := time.Unix(1000, 0)
	seq := int64(0)
	add := func(id plantstore.ID) {
		seq++
		q.add(eventAt(seq, id))
	}
	for q.wanted() > 0 {
		add(plantstore.ID(seq))
	}
	if seq == 0 || seq > maxReady {
		t.Errorf("%d events were taken before any was sent, want at most %d", seq, maxReady)
	}
	for range 10 * maxHeld {
		if it := q.next(now); it != nil {
			q.failed(it, now)
		}
		if q.wanted() > 0 {
			add(1)
		}
	}
	if held := q.items.Len(); held > maxHeld+maxReady+maxInFlight {
		t.Errorf("%d events are held", held)
	}
	if q.wanted() != 0 {
		t.Errorf("%d more are wanted", q.wanted())
	}
}

func TestDelay(t *testing.T) {
	for attempts, want := range map[int]time.Duration{1: 5 * time.Second, 2: 10 * time.Second, 9: 1280 * time.Second, 11: time.Hour, 1000: time.Hour} {
		t.Run(fmt.Sprint(attempts), func(t *testing.T) {
			for range 100 {
				if got := defaultDelays.after(attempts); got < want/2 || got > want {
					t.Fatalf("got %v, want up to %v", got, want)
				}
			}
		})
	}
}
