// Package rules implements the rules that every store follows, once. It stores nothing: a store
// supplies the statements, and calls these functions with a transaction.
//
// change.go decides writes: their outcomes, their events, and the plants that they leave. tokens.go
// and webhooks.go say who may change a token or a webhook, and how. The other files
// say how pages end, where a cursor is in the log of changes, who is notified of a change, and
// how far a clock can be believed.
package rules

import (
	"sync"
	"time"
)

// Notifier tells those who wait that something has changed. It is how a store keeps the
// promise of [plantstore.Store].Changed.
type Notifier struct {
	mu      sync.Mutex    // guards changed
	changed chan struct{} // closed by the next change; nil if nobody waits
}

// Changed returns a channel that the next Notify closes.
func (n *Notifier) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return n.changed
}

// Notify closes the channels that Changed has returned.
func (n *Notifier) Notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// HasWaiters reports whether Changed was called since the last Notify.
func (n *Notifier) HasWaiters() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed != nil
}

// PoolStats describes a store's pool of connections to an operator.
type PoolStats struct {
	Name       string
	InUse, Max int
	Waits      int64         // for a connection, because all were in use
	Waited     time.Duration // in all of them
}

// Upkeep describes to an operator what keeps PostgreSQL from removing data that it no longer needs:
// old versions of rows, and its write-ahead log (WAL).
type Upkeep struct {
	Snapshots   map[string]float64 // transactions since the oldest one, of a "session", "prepared" or of a "slot"
	Transaction time.Duration      // age of the oldest one that is open
	WAL         map[string]float64 // bytes that are kept for a "slot" or the "archiver"
	DeadRows    map[string]float64 // by table
}
