package rules

import (
	"fmt"
	"time"

	"plantstore"
)

// BacklogOf returns after which event the backlog of a webhook begins, and the set of the types
// that it counts, where bit n is for the type with the number n.
func BacklogOf(w *plantstore.Webhook) (after, types int64, err error) {
	at, err := w.Progress.Position.Position()
	if err != nil {
		return 0, 0, fmt.Errorf("position of webhook %s: %w", w.ID, err)
	}
	for _, t := range plantstore.PlantEventTypes() {
		if w.Sends(t) {
			types |= 1 << t.Number()
		}
	}
	return at.Seq, types, nil
}

// NewBacklog returns a backlog whose oldest event has a time in Unix microseconds.
func NewBacklog(events, oldest int64) (b plantstore.Backlog) {
	b.Events = int(events)
	if events > 0 {
		b.Oldest = time.UnixMicro(oldest).UTC()
	}
	return b
}
