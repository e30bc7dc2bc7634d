// Package webhook delivers events to webhooks: it reads the log of changes, signs, sends,
// retries, and saves its progress. A [Sender] runs one [delivery] for each active webhook,
// independent of the others: an endpoint that hangs delays no other, however large its
// events are, because each webhook has memory of its own for one. With several servers on
// one store, each webhook belongs to one of them at a time, by a lease that its owner
// renews.
package webhook

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"plantstore"
	"plantstore/internal/rules"
)

const (
	// pollInterval is how often a server looks for webhooks that have changed, and
	// leaseTimeout how long a lease may stay unchanged before another server takes it.
	pollInterval = 2 * time.Second
	leaseTimeout = 8 * time.Second
	// warnInterval is how often a server logs that it cannot read the webhooks, at most.
	warnInterval = time.Minute
	// rotation is how long the old secret still signs after a new one was created.
	rotation = 24 * time.Hour
	// maxSecrets is how many secrets of a webhook sign at once.
	maxSecrets = 10
	// stopGrace is how long a server that stops waits for attempts in flight, and
	// saveTimeout how long a delivery that ends may take to save its progress.
	stopGrace   = 2 * time.Second
	saveTimeout = 3 * time.Second
)

// Delays are the longest time of an attempt, and the pauses between attempts.
type Delays struct {
	Attempt    time.Duration // of one attempt
	First, Max time.Duration // the pause after the first failure, and the longest one
}

var defaultDelays = Delays{Attempt: 15 * time.Second, First: 5 * time.Second, Max: time.Hour}

// Options configure a [Sender].
type Options struct {
	// Allow lists networks that may be called although they are not public, or by
	// plain HTTP.
	Allow []netip.Prefix
	// Key encrypts the secrets in the store. Without it they are stored in the clear.
	Key []byte
	// Shared says that other servers may use the same store.
	Shared bool
	// Observe, if set, is called after every attempt.
	Observe func(ok bool, took time.Duration)
	Log     *slog.Logger
	// Clock is the clock of the server.
	Clock *rules.Clock
	// Delays, if set, replace the usual ones.
	Delays Delays
}

// Store is the part of a store that a [Sender] needs.
type Store interface {
	plantstore.Events
	plantstore.Webhooks
}

// Sender sends events to the webhooks of a store while it runs. Clients create and change
// webhooks through it, so that it notices at once.
type Sender struct {
	store  Store
	opts   Options
	owner  string // named in the leases of this sender
	egress egress
	client *http.Client
	sealer sealer
	poke   chan struct{} // has a value when webhooks have changed

	reads  *semaphore.Weighted // reads of the log
	saves  *semaphore.Weighted // of progress
	shared singleflight.Group  // reads of the log that webhooks share

	active atomic.Int64 // deliveries that run

	// These belong to Run.
	warned  time.Time
	running map[string]*delivery
	seen    map[string]sighting // of the leases of other servers
}

// sighting is a lease, and since when it has not changed.
type sighting struct {
	lease plantstore.Lease
	since time.Time
}

// New returns a sender.
func New(store Store, opts Options) *Sender {
	e := egress{allow: opts.Allow}
	opts.Clock = cmp.Or(opts.Clock, rules.NewClock("server", time.Now, opts.Log))
	opts.Delays = cmp.Or(opts.Delays, defaultDelays)
	return &Sender{
		store: store, opts: opts, owner: rand.Text(), egress: e, client: e.newClient(opts.Delays.Attempt), sealer: newSealer(opts.Key),
		poke:  make(chan struct{}, 1),
		reads: semaphore.NewWeighted(maxReads), saves: semaphore.NewWeighted(maxSaves),
		running: make(map[string]*delivery), seen: make(map[string]sighting),
	}
}

// Run delivers until ctx ends. Then it waits a little for attempts in flight, and saves its
// progress.
func (s *Sender) Run(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		s.poll(ctx)
		select {
		case <-ctx.Done():
			for _, d := range s.running {
				<-d.done
			}
			s.client.CloseIdleConnections()
			return nil
		case <-tick.C:
		case <-s.poke:
		}
	}
}

// wake makes Run look at the webhooks now.
func (s *Sender) wake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// poll starts and stops deliveries to match the webhooks in the store.
func (s *Sender) poll(ctx context.Context) {
	hooks, err := s.store.Webhooks(ctx)
	if err != nil {
		if time.Since(s.warned) > warnInterval {
			s.warned = time.Now()
			s.warn(ctx, "cannot read the webhooks, retrying", "", err)
		}
		return
	}
	known := make(map[string]bool, len(hooks))
	for i := range hooks {
		known[hooks[i].ID] = true
		s.adjust(ctx, &hooks[i])
	}
	for id, d := range s.running {
		if !known[id] {
			s.stop(d)
		}
	}
	maps.DeleteFunc(s.seen, func(id string, _ sighting) bool { return !known[id] })
}

// stop stops a delivery, and waits until it has saved its progress.
func (s *Sender) stop(d *delivery) {
	d.cancel(errChanged)
	<-d.done
	delete(s.running, d.hook.ID)
}

// adjust starts, stops or hurries the delivery of one webhook.
func (s *Sender) adjust(ctx context.Context, w *plantstore.Webhook) {
	if d := s.running[w.ID]; d != nil {
		switch {
		case d.hasEnded() || !d.isConfigured(w):
		case w.Disabled == "":
			if w.Try != d.hook.Try {
				d.hook.Try = w.Try
				d.hurry(w.Try)
			}
			return
		default:
			if d.cancel(errPaused); !d.hasEnded() {
				return // it wakes this sender when it has
			}
		}
		s.stop(d)
	}
	if w.Disabled != "" || !s.mayTake(w) || ctx.Err() != nil {
		return
	}
	var secrets []string
	taken, err := s.store.UpdateWebhook(ctx, w.ID, plantstore.Actor{}, func(now *plantstore.Webhook) (err error) {
		if now.Disabled != "" || s.opts.Shared && now.Lease != w.Lease && now.Lease.Owner != "" {
			return errChanged
		}
		now.Lease = plantstore.Lease{Owner: s.owner, Renewal: now.Lease.Renewal + 1}
		s.forgetExpired(now)
		for i := range now.Secrets {
			now.Secrets[i].Secret = s.sealer.seal(now.ID, now.Secrets[i].Secret)
		}
		if secrets, err = s.secrets(now); err != nil {
			now.Disabled, now.Lease.Owner = err.Error(), ""
		}
		return nil
	})
	if err != nil {
		if !errors.Is(err, errChanged) && !errors.Is(err, plantstore.ErrNoWebhook) {
			s.warn(ctx, "cannot take over a webhook", w.ID, err)
		}
		return
	}
	if taken.Disabled != "" {
		s.logDisabled(taken.ID, taken.Disabled)
		return
	}
	s.start(ctx, taken, secrets)
}

// hurry makes the pending events due at once.
func (d *delivery) hurry(try int64) {
	select {
	case <-d.tries: // one that is overtaken
	default:
	}
	d.tries <- try
}

// isConfigured reports whether the delivery has the webhook's present configuration.
func (d *delivery) isConfigured(w *plantstore.Webhook) bool {
	return d.owns(w) && w.URL == d.hook.URL && slices.Equal(w.Types, d.hook.Types) &&
		slices.Equal(w.Secrets, d.hook.Secrets) && len(signing(w)) == len(d.secrets)
}

func (d *delivery) hasEnded() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// signing returns the secrets that sign now.
func signing(w *plantstore.Webhook) []plantstore.WebhookSecret {
	return slices.DeleteFunc(slices.Clone(w.Secrets), hasExpired)
}

func hasExpired(s plantstore.WebhookSecret) bool {
	return !s.Expires.IsZero() && s.Expires.Before(time.Now())
}

// forgetExpired removes the expired secrets, once the clock can be believed.
func (s *Sender) forgetExpired(w *plantstore.Webhook) {
	made := s.opts.Clock.Ago(rotation)
	w.Secrets = slices.DeleteFunc(w.Secrets, func(secret plantstore.WebhookSecret) bool {
		return !secret.Expires.IsZero() && secret.Expires.Before(made.Add(rotation))
	})
}

// mayTake reports whether nobody else delivers for the webhook.
func (s *Sender) mayTake(w *plantstore.Webhook) bool {
	if !s.opts.Shared || w.Lease.Owner == "" || w.Lease.Owner == s.owner {
		return true
	}
	if was, ok := s.seen[w.ID]; !ok || was.lease != w.Lease {
		s.seen[w.ID] = sighting{w.Lease, time.Now()}
		return false
	}
	return time.Since(s.seen[w.ID].since) > leaseTimeout
}

// start starts the delivery of a webhook whose lease this sender holds.
func (s *Sender) start(ctx context.Context, w plantstore.Webhook, secrets []string) {
	attempts, err := s.store.Deliveries(ctx, w.ID)
	if err != nil {
		s.warn(ctx, "cannot read the attempts of a webhook", w.ID, err)
	}
	due(&w)
	ctx, cancel := context.WithCancelCause(ctx)
	d := &delivery{
		sender: s, hook: w, secrets: secrets, cancel: cancel, done: make(chan struct{}),
		queue: newQueue(w.Progress, s.opts.Delays), results: make(chan result, maxInFlight), saves: make(chan error, 1),
		try: w.Try, tries: make(chan int64, 1),
		attempts: attempts, delivered: w.Progress.Delivered, failing: w.Progress.Failing, lastError: w.Progress.LastError,
		recorded: true, savedAt: time.Now(),
	}
	s.running[w.ID] = d
	go d.run(ctx)
}

// due makes the pending events of a webhook due at once if a client wants that. At a new URL
// none has failed yet.
func due(w *plantstore.Webhook) {
	p := &w.Progress
	if p.Try == w.Try {
		return
	}
	p.Try = w.Try
	moved := p.LastError != nil && p.LastError.URL != w.URL
	for i := range p.Pending {
		p.Pending[i].Next = time.Time{}
		if moved {
			p.Pending[i].First, p.Pending[i].Attempts = time.Time{}, 0
		}
	}
}

// secrets decrypts the secrets that sign now.
func (s *Sender) secrets(w *plantstore.Webhook) ([]string, error) {
	var all []string
	for _, sealed := range signing(w) {
		secret, err := s.sealer.open(w.ID, sealed.Secret)
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

func (s *Sender) logDisabled(id, reason string) {
	s.opts.Log.Error("a webhook is disabled: resume it with plantstore webhook resume", "webhook", id, "reason", reason)
}

func (s *Sender) warn(ctx context.Context, message, id string, err error) {
	if ctx.Err() == nil {
		s.opts.Log.Warn(message, "webhook", id, "err", err)
	}
}

func (s *Sender) observe(ok bool, took time.Duration) {
	if s.opts.Observe != nil {
		s.opts.Observe(ok, took)
	}
}
