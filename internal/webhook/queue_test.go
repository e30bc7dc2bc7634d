package webhook

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"plantstore"
)

func eventAt(seq int64, id plantstore.ID) plantstore.Event {
	return plantstore.Event{Cursor: plantstore.Position{Store: "s", Seq: seq}.Cursor(), Type: plantstore.PlantReplaced, Plant: plantstore.Plant{ID: id, Name: "Fern"}}
}

func seqOf(t interface{ Fatal(...any) }, c plantstore.Cursor) int64 {
	p, err := c.Position()
	if err != nil {
		t.Fatal(err)
	}
	return p.Seq
}

// Whatever fails, and whenever the server is killed, every event is delivered, and those
// of one plant in order, but for repeats.
func TestQueueDeliversEverythingInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const plants = 4
		total := rapid.Int64Range(1, 60).Draw(t, "events")
		plantOf := make([]plantstore.ID, total+1)
		for i := range plantOf {
			plantOf[i] = plantstore.ID(rapid.IntRange(0, plants-1).Draw(t, "plant"))
		}
		start := plantstore.Position{Store: "s"}.Cursor()
		q := newQueue(plantstore.Progress{Position: start})
		saved := q.progress()
		now := time.Unix(1000, 0)
		var flying []*item
		last := make(map[plantstore.ID]int64)
		got := make(map[int64]bool)
		read := func() {
			for at := seqOf(t, q.position); at < total && q.wanted() > 0; at++ {
				q.add(eventAt(at+1, plantOf[at+1]))
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
				q, flying = newQueue(saved), nil
			}
		}
	})
}

func TestQueueHoldsBackOnlyThePlantThatFails(t *testing.T) {
	q := newQueue(plantstore.Progress{Position: plantstore.Position{Store: "s"}.Cursor()})
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
	if next := q.next(now.Add(firstDelay)); next != first {
		t.Fatalf("got %v, want the event that failed", next)
	}
}

// Retries leave room for events that were never sent.
func TestQueueSendsNewEventsWhileManyRetriesAreDue(t *testing.T) {
	q := newQueue(plantstore.Progress{Position: plantstore.Position{Store: "s"}.Cursor()})
	now := time.Unix(1000, 0)
	seq := int64(0)
	for range 2 * maxInFlight {
		seq++
		q.add(eventAt(seq, plantstore.ID(seq)))
		q.failed(q.next(now), now)
	}
	now = now.Add(time.Hour)
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

// The queue takes no more events when many are held back, and none when many were not
// sent yet.
func TestQueueIsBounded(t *testing.T) {
	q := newQueue(plantstore.Progress{Position: plantstore.Position{Store: "s"}.Cursor()})
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
				if got := delay(firstDelay, attempts); got < want/2 || got > want {
					t.Fatalf("got %v, want up to %v", got, want)
				}
			}
		})
	}
}
