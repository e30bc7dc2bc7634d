// Package webhook delivers events to webhooks: it reads the log of changes, signs,
// sends, retries, and remembers how far it has come.
//
// A [Manager] has one [delivery] for each active webhook. Every delivery is on its own:
// an endpoint that hangs delays no other, however large its events are, because each
// webhook has memory of its own for one. With several servers on one store, each
// webhook belongs to one of them at a time, by a lease that its owner renews.
package webhook

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"plantstore"
)

const (
	// pollInterval is how often a server looks for webhooks that have changed, and
	// leaseTimeout how long a lease may stay as it is before another server takes it.
	pollInterval = 2 * time.Second
	leaseTimeout = 8 * time.Second
	// warnInterval is how often a server logs that it cannot read the webhooks, at most.
	warnInterval = time.Minute
	// rotation is how long the old secret still signs after a new one was made.
	rotation = 24 * time.Hour
	// maxSecrets is how many secrets of a webhook sign at once.
	maxSecrets = 10
	// stopGrace is how long a server that stops waits for what is being sent, and
	// saveTimeout how long a delivery that ends may take to save its progress.
	stopGrace   = 2 * time.Second
	saveTimeout = 3 * time.Second
)

// Options configure a [Manager].
type Options struct {
	// Allow lists networks that may be called although they are not public, or by
	// plain HTTP.
	Allow []netip.Prefix
	// Key encrypts the secrets in the store. Without it they are stored as they are.
	Key []byte
	// Shared says that other servers may use the same store.
	Shared bool
	// Observe, if set, is called after every attempt.
	Observe func(ok bool, took time.Duration)
	Log     *slog.Logger
}

// Manager manages the webhooks of a store, and delivers to them while it runs.
type Manager struct {
	store  plantstore.Store
	opts   Options
	owner  string // of the leases of this manager
	guard  guard
	client *http.Client
	sealer sealer
	poke   chan struct{} // has a value when webhooks have changed

	reads   *semaphore.Weighted // reads of the log
	sending *semaphore.Weighted // bytes of large events, shared by the queues
	saves   *semaphore.Weighted // of progress
	shared  singleflight.Group  // reads of the log that webhooks share

	firstDelay time.Duration // of the queues
	warned     time.Time     // by poll

	mu       sync.Mutex // guards what follows
	running  map[string]*delivery
	lastSeq  int64               // of the log, as far as it is known
	seen     map[string]sighting // of the leases of other servers
	disabled map[string]bool
}

// sighting is a lease, and since when it has not changed.
type sighting struct {
	lease plantstore.Lease
	since time.Time
}

// New returns a manager.
func New(store plantstore.Store, opts Options) *Manager {
	g := guard{allow: opts.Allow}
	var random [8]byte
	rand.Read(random[:])
	return &Manager{
		store: store, opts: opts, owner: hex.EncodeToString(random[:]), guard: g, client: g.newClient(), sealer: newSealer(opts.Key),
		poke:  make(chan struct{}, 1),
		reads: semaphore.NewWeighted(maxReads), sending: semaphore.NewWeighted(maxSending), saves: semaphore.NewWeighted(maxSaves),
		firstDelay: firstDelay, running: make(map[string]*delivery), seen: make(map[string]sighting),
	}
}

// Run delivers until ctx ends. Then it waits a little for what is being sent, and saves
// how far it has come.
func (m *Manager) Run(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		m.poll(ctx)
		select {
		case <-ctx.Done():
			m.mu.Lock()
			running := m.running
			m.running = make(map[string]*delivery)
			m.mu.Unlock()
			for _, d := range running {
				<-d.done
			}
			m.client.CloseIdleConnections()
			return nil
		case <-tick.C:
		case <-m.poke:
		}
	}
}

// wake makes Run look at the webhooks now.
func (m *Manager) wake() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// poll starts and stops deliveries to match the webhooks in the store.
func (m *Manager) poll(ctx context.Context) {
	hooks, err := m.store.Webhooks(ctx)
	if err != nil {
		if time.Since(m.warned) > warnInterval {
			m.warned = time.Now()
			m.warn(ctx, "cannot read the webhooks, retrying", "", err)
		}
		return
	}
	m.readEnd(ctx, len(hooks) > 0)
	known := make(map[string]bool, len(hooks))
	disabled := make(map[string]bool)
	for i := range hooks {
		known[hooks[i].ID] = true
		if hooks[i].Disabled != "" {
			disabled[hooks[i].ID] = true
		}
		m.adjust(ctx, &hooks[i])
	}
	m.mu.Lock()
	m.disabled = disabled
	for id := range m.seen {
		if !known[id] {
			delete(m.seen, id)
		}
	}
	var ended []*delivery
	for id, d := range m.running {
		if !known[id] {
			ended = append(ended, d)
			delete(m.running, id)
		}
	}
	m.mu.Unlock()
	stop(ended...)
}

func stop(all ...*delivery) {
	for _, d := range all {
		d.cancel(errChanged)
		<-d.done
	}
}

// adjust starts or stops the delivery of one webhook.
func (m *Manager) adjust(ctx context.Context, w *plantstore.Webhook) {
	m.mu.Lock()
	d := m.running[w.ID]
	m.mu.Unlock()
	if d != nil {
		if d.isCurrent(w) {
			return
		}
		stop(d)
		m.mu.Lock()
		delete(m.running, w.ID)
		m.mu.Unlock()
	}
	if w.Disabled != "" || !m.mayTake(w) || ctx.Err() != nil {
		return
	}
	taken, err := m.store.UpdateWebhook(ctx, w.ID, plantstore.Actor{}, func(now *plantstore.Webhook) error {
		if now.Disabled != "" || m.opts.Shared && now.Lease != w.Lease && now.Lease.Owner != "" {
			return errChanged
		}
		now.Lease = plantstore.Lease{Owner: m.owner, Renewal: now.Lease.Renewal + 1}
		now.Secrets = slices.DeleteFunc(now.Secrets, hasExpired)
		for i := range now.Secrets {
			now.Secrets[i].Secret = m.sealer.seal(now.ID, now.Secrets[i].Secret)
		}
		return nil
	})
	if err != nil {
		if !errors.Is(err, errChanged) && !errors.Is(err, plantstore.ErrNoWebhook) {
			m.warn(ctx, "cannot take over a webhook", w.ID, err)
		}
		return
	}
	m.start(ctx, taken)
}

// isCurrent reports whether the delivery runs and does what the webhook says.
func (d *delivery) isCurrent(w *plantstore.Webhook) bool {
	select {
	case <-d.done:
		return false
	default:
	}
	return d.owns(w) && w.URL == d.hook.URL && slices.Equal(w.Types, d.hook.Types) &&
		slices.Equal(w.Secrets, d.hook.Secrets) && !slices.ContainsFunc(w.Secrets, hasExpired)
}

func hasExpired(s plantstore.WebhookSecret) bool {
	return !s.Expires.IsZero() && s.Expires.Before(time.Now())
}

// mayTake reports whether nobody else delivers for the webhook.
func (m *Manager) mayTake(w *plantstore.Webhook) bool {
	if !m.opts.Shared || w.Lease.Owner == "" || w.Lease.Owner == m.owner {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if was, ok := m.seen[w.ID]; !ok || was.lease != w.Lease {
		m.seen[w.ID] = sighting{w.Lease, time.Now()}
		return false
	}
	return time.Since(m.seen[w.ID].since) > leaseTimeout
}

// start starts the delivery of a webhook that this manager has the lease of.
func (m *Manager) start(ctx context.Context, w plantstore.Webhook) {
	secrets, err := m.secrets(&w)
	if err != nil {
		m.disable(ctx, &w, err.Error())
		return
	}
	attempts, err := m.store.Deliveries(ctx, w.ID)
	if err != nil {
		m.warn(ctx, "cannot read the attempts of a webhook", w.ID, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	slices.Reverse(attempts)
	d := &delivery{
		m: m, hook: w, secrets: secrets, cancel: cancel, done: make(chan struct{}),
		queue: newQueue(w.Progress, m.sending), results: make(chan result, maxInFlight), saves: make(chan error, 1),
		attempts: attempts, recorded: true, savedAt: time.Now(),
	}
	d.queue.firstDelay = m.firstDelay
	m.mu.Lock()
	m.running[w.ID] = d
	m.mu.Unlock()
	go d.run(ctx)
}

// secrets returns the secrets that sign now.
func (m *Manager) secrets(w *plantstore.Webhook) ([]string, error) {
	var all []string
	for _, s := range w.Secrets {
		if hasExpired(s) {
			continue
		}
		secret, err := m.sealer.open(w.ID, s.Secret)
		if err != nil {
			return nil, err
		}
		all = append(all, secret)
	}
	if len(all) == 0 {
		return nil, errors.New("it has no secret")
	}
	return all, nil
}

// disable disables a webhook of which this manager has the lease.
func (m *Manager) disable(ctx context.Context, w *plantstore.Webhook, reason string) {
	_, err := m.store.UpdateWebhook(ctx, w.ID, plantstore.Actor{}, func(now *plantstore.Webhook) error {
		if now.Lease.Owner != m.owner || now.Epoch != w.Epoch {
			return errChanged
		}
		now.Disabled, now.Lease.Owner = reason, ""
		return nil
	})
	if err != nil {
		m.warn(ctx, "cannot disable a webhook", w.ID, err)
		return
	}
	m.logDisabled(w.ID, reason)
}

func (m *Manager) logDisabled(id, reason string) {
	m.opts.Log.Error("a webhook is disabled: resume it with plantstore webhook resume", "webhook", id, "reason", reason)
}

func (m *Manager) warn(ctx context.Context, message, id string, err error) {
	if ctx.Err() == nil {
		m.opts.Log.Warn(message, "webhook", id, "err", err)
	}
}

func (m *Manager) observe(ok bool, took time.Duration) {
	if m.opts.Observe != nil {
		m.opts.Observe(ok, took)
	}
}

// readEnd reads where the log ends, for the metrics.
func (m *Manager) readEnd(ctx context.Context, wanted bool) {
	if !wanted {
		return
	}
	page, err := m.store.Events(ctx, plantstore.EventQuery{After: plantstore.LatestCursor, Limit: 1})
	if err != nil {
		return
	}
	if end, err := page.Next.Position(); err == nil {
		m.mu.Lock()
		m.lastSeq = end.Seq
		m.mu.Unlock()
	}
}

// Stats is what the metrics say about the webhooks.
type Stats struct {
	Disabled int // how many are
	// LagEvents is how many events were not delivered yet, and Lag the age of the oldest,
	// of the webhooks for which this server delivers.
	LagEvents int64
	Lag       time.Duration
}

// Stats returns the figures of all webhooks together.
func (m *Manager) Stats() (all Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.running {
		all.LagEvents += d.lagEvents.Load()
		if at := d.oldest.Load(); at != 0 {
			all.Lag = max(all.Lag, time.Since(time.Unix(0, at)))
		}
		if seq := d.seq.Load(); seq > 0 {
			all.LagEvents += max(0, m.lastSeq-seq)
		}
	}
	for id := range m.disabled {
		if m.running[id] == nil {
			all.Disabled++
		}
	}
	return all
}
