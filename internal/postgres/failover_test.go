package postgres

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/commit"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/storetest"
	"plantstore/internal/testenv"
)

// TestUnknownOutcome cuts the connection before a batch's commit, and between the
// commit and its response. Either way the batch must take effect once, and Apply must
// report what it did.
func TestUnknownOutcome(t *testing.T) {
	fern, rose := plant(1, "fern"), plant(1, "rose")
	created := plantstore.Result{Outcome: plantstore.Created}
	for _, c := range []struct {
		name  string
		given []plantstore.Plant
		batch []plantstore.Write
		want  []plantstore.Result
		left  []plantstore.Plant
	}{
		{
			"delete",
			[]plantstore.Plant{fern},
			[]plantstore.Write{remove(1)},
			[]plantstore.Result{{Outcome: plantstore.Deleted}},
			nil,
		},
		{
			"delete of a missing plant", nil,
			[]plantstore.Write{remove(1)},
			[]plantstore.Result{{Err: plantstore.ErrNoPlant}},
			nil,
		},
		{
			"replace of a missing plant", nil,
			[]plantstore.Write{replace(fern, noneMatch(plantstore.AnyETag))},
			[]plantstore.Result{created},
			[]plantstore.Plant{fern},
		},
		{
			"replace",
			[]plantstore.Plant{fern},
			[]plantstore.Write{replace(rose, nil)},
			[]plantstore.Result{{Outcome: plantstore.Replaced}},
			[]plantstore.Plant{rose},
		},
		{
			"mixed",
			[]plantstore.Plant{fern},
			[]plantstore.Write{create(rose), create(plant(2, "ivy")), remove(1), create(rose), create(fern), remove(3)},
			[]plantstore.Result{
				{Err: plantstore.ErrIDTaken},
				created,
				{Outcome: plantstore.Deleted},
				created,
				{Err: plantstore.ErrIDTaken},
				{Err: plantstore.ErrNoPlant},
			},
			[]plantstore.Plant{rose, plant(2, "ivy")},
		},
		{
			"creates of taken ids",
			[]plantstore.Plant{fern},
			[]plantstore.Write{create(plant(2, "ivy")), create(fern), create(rose)},
			[]plantstore.Result{created, {Outcome: plantstore.Unchanged}, {Err: plantstore.ErrIDTaken}},
			[]plantstore.Plant{fern, plant(2, "ivy")},
		},
	} {
		for _, committed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, committed=%v", c.name, committed), func(t *testing.T) {
				url := pgtest.Fresh(t)
				p, through := newProxy(t, addr(url), url)
				s := openStore(t, through)
				if err := s.Ready(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, g := range c.given {
					apply(t, s, create(g))
				}
				ctx, cancel := context.WithTimeout(t.Context(), testenv.Timeout)
				defer cancel()
				f := p.arm("COMMIT", committed)
				results, err := s.Apply(ctx, c.batch)
				if err != nil {
					t.Fatal(err)
				}
				wantCut(t, f)
				for i, r := range results {
					if want := c.want[i]; r.Err != want.Err || r.Outcome != want.Outcome {
						t.Errorf("write %d: %v, want %v", i+1, r, want)
					}
					// The versions are not lost with the connection.
					p, err := s.Plant(t.Context(), c.batch[i].Plant.ID)
					if r.Err == nil && err == nil && p.Plant == c.batch[i].Plant && p.Version != r.Version {
						t.Errorf("write %d made the version %s, but plant %v has %s", i+1, r.Version, p.Plant, p.Version)
					}
				}
				storetest.CheckDetails(t, s)
				wantAll(t, s, c.left...)
			})
		}
	}
}

// addr returns the host and port of a URL.
func addr(url string) string {
	_, rest, _ := strings.Cut(url, "@")
	host, _, _ := strings.Cut(rest, "/")
	return host
}

func wantCut(t testing.TB, f *fault) {
	t.Helper()
	select {
	case <-f.cut:
	default:
		t.Fatalf("no connection was cut at %s", f.statement)
	}
}

func wantAll(t testing.TB, s *Store, want ...plantstore.Plant) {
	t.Helper()
	var got []plantstore.Plant
	for p, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p.Plant)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the store contains %v, want %v", got, want)
	}
}

// TestUnknownOutcomeOfCreates covers the batches that the caller of Apply repeats.
func TestUnknownOutcomeOfCreates(t *testing.T) {
	for committed, want := range map[bool]plantstore.Outcome{false: plantstore.Created, true: plantstore.Unchanged} {
		t.Run(fmt.Sprintf("committed=%v", committed), func(t *testing.T) {
			url := pgtest.Fresh(t)
			p, through := newProxy(t, addr(url), url)
			s := openStore(t, through)
			if err := s.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			statement := "SELECT CREATE_PLANTS" // what is sent
			if committed {
				statement = "SELECT" // what is reported as done
			}
			f := p.arm(statement, committed)
			batch := []plantstore.Write{create(plant(1, "fern")), create(plant(2, "rose"))}
			_, err := s.Apply(t.Context(), batch)
			if !errors.Is(err, plantstore.ErrRetry) || !errors.Is(err, plantstore.ErrUnavailable) {
				t.Fatalf("Apply: %v", err)
			}
			wantCut(t, f)
			results, err := s.Apply(t.Context(), batch)
			if err != nil || results[0].Outcome != want || results[1].Outcome != want {
				t.Errorf("Apply again: %v, %v", results, err)
			}
			wantAll(t, s, plant(1, "fern"), plant(2, "rose"))
		})
	}
}

// TestUnknownOutcomeOfADeadServer cuts a delete off from a server that does not come
// back before the context ends.
func TestUnknownOutcomeOfADeadServer(t *testing.T) {
	url := pgtest.Fresh(t)
	p, through := newProxy(t, addr(url), url)
	s := openStore(t, through)
	apply(t, s, create(plant(1, "fern")))
	f := p.armThen("COMMIT", true, p.stall)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-f.cut
		cancel()
	}()
	_, err := s.Apply(ctx, []plantstore.Write{remove(1)})
	if !errors.Is(err, plantstore.ErrRetry) || !errors.Is(err, plantstore.ErrUnavailable) {
		t.Errorf("Apply: %v", err)
	}
	t.Cleanup(p.stop)
}

func TestUnknownOutcomeOfTokens(t *testing.T) {
	for _, committed := range []bool{false, true} {
		t.Run(fmt.Sprintf("committed=%v", committed), func(t *testing.T) {
			url := pgtest.Fresh(t)
			p, through := newProxy(t, addr(url), url)
			s := openStore(t, through)
			if err := s.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			first, second := token("first"), token("second")
			f := p.arm("COMMIT", committed)
			if created, err := s.CreateFirstToken(t.Context(), first); err != nil || !created {
				t.Errorf("CreateFirstToken: %v, %v", created, err)
			}
			wantCut(t, f)
			f = p.arm("INSERT", committed)
			if err := s.CreateToken(t.Context(), second, plantstore.Actor{Name: plantstore.Operator}); err != nil {
				t.Errorf("CreateToken: %v", err)
			}
			wantCut(t, f)
			f = p.arm("UPDATE", committed)
			if err := s.RevokeToken(t.Context(), second.Hash, second.Created, plantstore.Actor{Name: plantstore.Operator}); err != nil {
				t.Errorf("RevokeToken: %v", err)
			}
			wantCut(t, f)
			tokens, err := s.Tokens(t.Context())
			if err != nil || len(tokens) != 2 || tokens[0].Name != "first" || tokens[1].Revoked.IsZero() {
				t.Errorf("Tokens: %v, %v", tokens, err)
			}
		})
	}
}

func TestStatsAreReadAgain(t *testing.T) {
	url := pgtest.Fresh(t)
	p, through := newProxy(t, addr(url), url)
	s := openStore(t, through)
	apply(t, s, create(plant(1, "fern")))
	f := p.arm("SELECT SEQ, SEQ - TRIMMED", false)
	if stats, err := s.Stats(t.Context()); err != nil || stats.Plants != 1 {
		t.Errorf("Stats: %+v, %v", stats, err)
	}
	wantCut(t, f)
}

func TestUnknownOutcomeOfWebhooks(t *testing.T) {
	for _, committed := range []bool{false, true} {
		t.Run(fmt.Sprintf("committed=%v", committed), func(t *testing.T) {
			url := pgtest.Fresh(t)
			p, through := newProxy(t, addr(url), url)
			s := openStore(t, through)
			if err := s.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i := range plantstore.MaxWebhooks - 1 {
				if err := s.CreateWebhook(t.Context(), plantstore.Webhook{ID: fmt.Sprint(i)}, plantstore.Actor{}); err != nil {
					t.Fatal(err)
				}
			}
			calls, attempts := 0, []plantstore.Delivery{{Attempt: 1}}
			count := func(hook *plantstore.Webhook) error {
				calls++
				hook.Disabled = "broken"
				return nil
			}
			for _, step := range []struct {
				name string
				do   func() error
				want plantstore.Webhook // afterwards, the last one
			}{
				{"CreateWebhook", func() error { return s.CreateWebhook(t.Context(), plantstore.Webhook{ID: "last"}, plantstore.Actor{}) }, plantstore.Webhook{ID: "last"}},
				{"UpdateWebhook", func() error { _, err := s.UpdateWebhook(t.Context(), "last", plantstore.Actor{}, count); return err }, plantstore.Webhook{ID: "last", Disabled: "broken"}},
				{"SaveWebhook", func() error { return s.SaveWebhook(t.Context(), "last", count) }, plantstore.Webhook{ID: "last", Disabled: "broken"}},
				{"SaveDeliveries", func() error { return s.SaveDeliveries(t.Context(), "last", attempts) }, plantstore.Webhook{ID: "last", Disabled: "broken"}},
				{"DeleteWebhook", func() error { return s.DeleteWebhook(t.Context(), "last", plantstore.Actor{}) }, plantstore.Webhook{ID: fmt.Sprint(plantstore.MaxWebhooks - 2)}},
			} {
				f := p.arm("COMMIT", committed)
				if err := step.do(); err != nil {
					t.Errorf("%s: %v", step.name, err)
				}
				wantCut(t, f)
				hooks, err := s.Webhooks(t.Context())
				if err != nil || !reflect.DeepEqual(hooks[len(hooks)-1], step.want) {
					t.Errorf("after %s, the last webhook is %+v, %v, want %+v", step.name, hooks[len(hooks)-1], err, step.want)
				}
				if got, err := s.Deliveries(t.Context(), "last"); step.name == "SaveDeliveries" && !slices.Equal(got, attempts) {
					t.Errorf("the deliveries are %v, %v", got, err)
				}
			}
			if calls != 4 {
				t.Errorf("%d calls of change, want 2 for each update", calls)
			}
			f := p.arm("DELETE", committed)
			if err := s.DeleteWebhook(t.Context(), "last", plantstore.Actor{}); !errors.Is(err, plantstore.ErrNoWebhook) {
				t.Errorf("DeleteWebhook again: %v, want ErrNoWebhook", err)
			}
			wantCut(t, f)
		})
	}
}

// TestUnknownOutcomeOfADeletionByATokenThatEnds revokes the token before the deletion is tried
// again: only one that took effect succeeds.
func TestUnknownOutcomeOfADeletionByATokenThatEnds(t *testing.T) {
	for committed, want := range map[bool]error{true: nil, false: plantstore.ErrBadToken} {
		t.Run(fmt.Sprintf("committed=%v", committed), func(t *testing.T) {
			url := pgtest.Fresh(t)
			p, through := newProxy(t, addr(url), url)
			s := openReady(t, through)
			ci := token("ci")
			if err := s.CreateToken(t.Context(), ci, plantstore.Actor{Name: plantstore.Operator}); err != nil {
				t.Fatal(err)
			}
			if err := s.CreateWebhook(t.Context(), plantstore.Webhook{ID: "hook"}, plantstore.Actor{}); err != nil {
				t.Fatal(err)
			}
			f := p.armThen("COMMIT", committed, func() { query(t, url, "UPDATE stored_tokens SET revoked = 1") })
			if err := s.DeleteWebhook(t.Context(), "hook", plantstore.Actor{Token: &ci.Hash}); !errors.Is(err, want) {
				t.Errorf("DeleteWebhook: %v, want %v", err, want)
			}
			wantCut(t, f)
			if hooks, err := s.Webhooks(t.Context()); err != nil || (len(hooks) == 0) != committed {
				t.Errorf("the webhooks are %v, %v", hooks, err)
			}
		})
	}
}

// TestNothingIsAcknowledgedBeforeTheStandbyHasIt waits for a standby that does not
// exist, and cancels the wait: PostgreSQL then commits with a warning.
func TestNothingIsAcknowledgedBeforeTheStandbyHasIt(t *testing.T) {
	server := pgtest.Start(t, "synchronous_standby_names=nobody")
	local := openStore(t, server.URL()+"&synchronous_commit=local")
	apply(t, local, create(plant(1, "fern")))
	for _, id := range []string{"updated", "deleted"} {
		if err := local.CreateWebhook(t.Context(), plantstore.Webhook{ID: id}, plantstore.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
	operator, old := plantstore.Actor{Name: plantstore.Operator}, token("old")
	if err := local.CreateToken(t.Context(), old, operator); err != nil {
		t.Fatal(err)
	}
	url := server.URL()
	s := openStore(t, url+"&synchronous_commit=off") // which no write heeds
	changeNothing := func(*plantstore.Webhook) error { return nil }
	const waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'plantstore'"
	batch := func(writes ...plantstore.Write) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := applyRetrying(ctx, s, writes)
			return err
		}
	}
	for name, write := range map[string]func(context.Context) error{
		"create":      batch(create(plant(4, "ivy"))),
		"creates":     batch(create(plant(2, "rose")), create(plant(3, "moss"))),
		"unchanged":   batch(create(plant(1, "fern"))),
		"delete":      batch(remove(1)),
		"token":       func(ctx context.Context) error { return s.CreateToken(ctx, token("ci"), operator) },
		"revocation":  func(ctx context.Context) error { return s.RevokeToken(ctx, old.Hash, time.Now(), operator) },
		"first token": func(ctx context.Context) error { _, err := s.CreateFirstToken(ctx, token("first")); return err },
		"webhook": func(ctx context.Context) error {
			return s.CreateWebhook(ctx, plantstore.Webhook{ID: "created"}, plantstore.Actor{})
		},
		"update": func(ctx context.Context) error {
			_, err := s.UpdateWebhook(ctx, "updated", plantstore.Actor{}, changeNothing)
			return err
		},
		"deletion": func(ctx context.Context) error { return s.DeleteWebhook(ctx, "deleted", plantstore.Actor{}) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- write(ctx) }()
			for range 3 {
				testenv.WaitFor(t, "a commit to wait for the standby", func() bool { return len(query(t, url, "SELECT pid "+waiting)) > 0 })
				query(t, url, "SELECT pg_cancel_backend(pid) "+waiting)
			}
			testenv.WaitFor(t, "the next commit to wait for the standby", func() bool { return len(query(t, url, "SELECT pid "+waiting)) > 0 })
			select {
			case err := <-done:
				t.Fatalf("the write returned before the standby had it: %v", err)
			default:
			}
			cancel()
			<-done
			testenv.WaitFor(t, "the commit to end", func() bool { return len(query(t, url, "SELECT pid "+waiting)) == 0 })
		})
	}
	// These would wait forever.
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Timeout)
	defer cancel()
	if err := s.SaveWebhook(ctx, "updated", changeNothing); err != nil {
		t.Errorf("SaveWebhook waited for the standby: %v", err)
	}
	if err := s.SaveDeliveries(ctx, "updated", nil); err != nil {
		t.Errorf("SaveDeliveries waited for the standby: %v", err)
	}
}

// client creates plants through a writer, replaces and deletes some of them, and
// records what was acknowledged.
type client struct {
	writer  *commit.Writer
	next    plantstore.ID
	plants  map[plantstore.ID]plantstore.Plant
	deleted []plantstore.ID
}

// run writes until stop is closed. No other client uses its ids, so no write may be
// refused, however often the connection is lost.
func (c *client) run(stop <-chan struct{}, done *atomic.Int64) error {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		p := plant(c.next, "fern")
		c.next++
		made, err := c.writer.Write(context.Background(), create(p))
		if err != nil {
			return fmt.Errorf("create %d: %w", p.ID, err)
		}
		c.plants[p.ID] = p
		switch i % 8 {
		case 1:
			p.Name = "rose"
			w := replace(p, &plantstore.Condition{Match: []plantstore.ETag{made.Version.ETag()}})
			if result, err := c.writer.Write(context.Background(), w); err != nil || result.Outcome != plantstore.Replaced {
				return fmt.Errorf("replace %d: %v, %w", p.ID, result, err)
			}
			c.plants[p.ID] = p
		case 2:
			if result, err := c.writer.Write(context.Background(), remove(p.ID)); err != nil || result.Outcome != plantstore.Deleted {
				return fmt.Errorf("delete %d: %v, %w", p.ID, result, err)
			}
			delete(c.plants, p.ID)
			c.deleted = append(c.deleted, p.ID)
		case 3:
			w := plantstore.Write{Op: plantstore.Patch, KeepName: true, Plant: plantstore.Plant{ID: p.ID, Tag: plantstore.NewTag("wild")}}
			p.Tag = w.Plant.Tag
			if result, err := c.writer.Write(context.Background(), w); err != nil || result.Outcome != plantstore.Replaced || *result.Patched != p {
				return fmt.Errorf("patch %d: %v, %w", p.ID, result, err)
			}
			c.plants[p.ID] = p
		}
		done.Add(1)
	}
}

// underLoad runs clients on two replicas of a store while inject injects faults. It
// fails unless the store then contains what was acknowledged to the clients. progress
// waits until the clients make progress.
func underLoad(t *testing.T, url string, inject func(s *Store, progress func())) {
	t.Helper()
	const perReplica = 16
	var clients []*client
	var stores []*Store
	ctx, stopWriters := context.WithCancel(t.Context())
	var writers, load sync.WaitGroup
	for r := range plantstore.ID(2) {
		s := openStore(t, url)
		w := commit.New(s, commit.Options{StoreTimeout: testenv.Timeout})
		writers.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		stores = append(stores, s)
		for i := range plantstore.ID(perReplica) {
			clients = append(clients, &client{writer: w, next: (r*perReplica + i) << 32, plants: map[plantstore.ID]plantstore.Plant{}})
		}
	}
	stop := make(chan struct{})
	var done atomic.Int64
	for _, c := range clients {
		load.Go(func() {
			if err := c.run(stop, &done); err != nil {
				t.Error(err)
			}
		})
	}
	progress := func() {
		t.Helper()
		before := done.Load()
		testenv.WaitFor(t, "all clients to make progress", func() bool { return done.Load() > before+10*int64(len(clients)) })
	}
	progress()
	inject(stores[0], progress)
	close(stop)
	load.Wait()
	stopWriters()
	writers.Wait()
	wantAcknowledged(t, stores[1], clients)
	t.Logf("%d rounds", done.Load())
}

// wantAcknowledged fails unless the store contains exactly what was acknowledged.
func wantAcknowledged(t *testing.T, s *Store, clients []*client) {
	t.Helper()
	stored := map[plantstore.ID]plantstore.Plant{}
	for p, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		stored[p.ID] = p.Plant
	}
	for _, c := range clients {
		for id, want := range c.plants {
			if got, found := stored[id]; !found || got != want {
				t.Errorf("plant %d was acknowledged as %v, the store has %v, %v", id, want, got, found)
			}
			delete(stored, id)
		}
		for _, id := range c.deleted {
			if _, found := stored[id]; found {
				t.Errorf("plant %d was deleted and exists again", id)
			}
		}
		// The last create of a client that failed may have been applied or not.
		delete(stored, c.next-1)
	}
	if len(stored) > 0 {
		t.Errorf("the store has %d plants that no client created", len(stored))
	}
}

// wantNotReady waits until the store is not ready: the remaining processes of a
// killed server may serve for a moment.
func wantNotReady(t *testing.T, s *Store) {
	t.Helper()
	var err error
	testenv.WaitFor(t, "the store to be not ready", func() bool {
		err = s.Ready(t.Context())
		return err != nil
	})
	if !errors.Is(err, plantstore.ErrUnavailable) {
		t.Errorf("Ready: %v", err)
	}
}

func TestServerIsKilledUnderLoad(t *testing.T) {
	server := pgtest.Start(t)
	underLoad(t, server.URL(), func(s *Store, progress func()) {
		for range 3 {
			server.Kill(t)
			wantNotReady(t, s)
			server.Restart(t)
			progress()
		}
	})
}

// TestStandbyTakesOver kills a primary and promotes its synchronous standby.
func TestStandbyTakesOver(t *testing.T) {
	primary := pgtest.Start(t)
	standby := primary.Standby(t, "standby")
	primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	primary.Exec(t, "SELECT pg_reload_conf()")
	primary.Exec(t, "CHECKPOINT") // done by the process that applies the setting
	url := strings.Replace(primary.URL(), primary.Addr(), standby.Addr()+","+primary.Addr(), 1)
	underLoad(t, url, func(s *Store, progress func()) {
		primary.Kill(t)
		wantNotReady(t, s)
		standby.Promote(t)
		progress()
		if err := s.Ready(t.Context()); err != nil {
			t.Errorf("Ready with the new primary: %v", err)
		}
	})
}

// TestPrimaryTurnsReadOnly has a server refuse writes on open connections, as a
// server behind a load balancer does when it has become a standby.
func TestPrimaryTurnsReadOnly(t *testing.T) {
	server := pgtest.Start(t)
	s := openStore(t, server.URL())
	apply(t, s, create(plant(1, "fern")))
	server.Exec(t, "ALTER SYSTEM SET default_transaction_read_only = on")
	server.Exec(t, "SELECT pg_reload_conf()")
	wantNotReady(t, s)
	_, err := s.Apply(t.Context(), []plantstore.Write{create(plant(2, "rose"))})
	if !errors.Is(err, plantstore.ErrRetry) || !errors.Is(err, plantstore.ErrUnavailable) {
		t.Errorf("Apply: %v", err)
	}
	server.Exec(t, "ALTER SYSTEM RESET default_transaction_read_only")
	server.Exec(t, "SELECT pg_reload_conf()")
	testenv.WaitFor(t, "the store to be ready", func() bool { return s.Ready(t.Context()) == nil })
	apply(t, s, create(plant(2, "rose")))
}

// TestHungServerIsAbandoned has a server hang with its connections open while the
// URL has another host.
func TestHungServerIsAbandoned(t *testing.T) {
	url := pgtest.Fresh(t)
	p, through := newProxy(t, addr(url), url)
	s := openStore(t, strings.Replace(through, addr(through), addr(through)+","+addr(url), 1)+"&connect_timeout=1")
	t.Cleanup(p.stop)
	apply(t, s, create(plant(1, "fern")))
	s.callTimeout = 2 * time.Second
	p.stall()
	apply(t, s, remove(1))
	apply(t, s, create(plant(2, "rose")))
	wantAll(t, openStore(t, url), plant(2, "rose"))
}

// TestScanOfAHungServerEnds has a server hang in the middle of a scan, which has no
// other timeout than that of its fetches.
func TestScanOfAHungServerEnds(t *testing.T) {
	url := pgtest.Fresh(t)
	p, through := newProxy(t, addr(url), url)
	s := openStore(t, through)
	t.Cleanup(p.stop)
	applyMany(t, s, 2*fetchSize)
	n := 0
	var failed error
	for _, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
		if n++; n == 1 {
			p.stall()
			s.callTimeout = time.Second // from now on
		}
		failed = err
	}
	if !errors.Is(failed, plantstore.ErrUnavailable) {
		t.Errorf("the scan ended after %d plants with %v, want ErrUnavailable", n, failed)
	}
}

// TestSlowConsumerOfAScan has the consumer take longer than a fetch may.
func TestSlowConsumerOfAScan(t *testing.T) {
	s := openStore(t, pgtest.Fresh(t))
	applyMany(t, s, 2*fetchSize)
	n := 0
	for _, err := range s.Scan(t.Context(), plantstore.Query{}, nil) {
		if err != nil {
			t.Fatalf("after %d plants: %v", n, err)
		}
		switch n++; n {
		case fetchSize/2 - 1:
			s.callTimeout = time.Second // until the next plant, which was fetched with this one
		case fetchSize / 2:
			time.Sleep(2 * s.callTimeout)
			s.callTimeout = testenv.Timeout
		}
	}
	if n != 2*fetchSize {
		t.Errorf("the scan yielded %d plants, want %d", n, 2*fetchSize)
	}
}

// A list by name reads all plants. It may take longer than a call, as long as they come, and it is not read again
// from the start.
func TestListByNameOverASlowNetwork(t *testing.T) {
	const n, parts = 12_000, 12
	url := pgtest.Fresh(t)
	p, through := newProxy(t, addr(url), url)
	var statements atomic.Int64
	s := mustOpenWith(t, through, Options{Trace: func(ctx context.Context, name, _ string) (context.Context, func(error)) {
		if name == "BATCH" {
			statements.Add(1)
		}
		return ctx, nil
	}})
	t.Cleanup(func() { s.Close() })
	applyMany(t, s, n)
	s.callTimeout = 2 * time.Second
	p.pauseEach(n/parts, s.callTimeout/(parts-2))
	before := statements.Load()
	page, err := s.List(t.Context(), plantstore.Query{Order: plantstore.ByName, Limit: 5})
	if err != nil || len(page.Plants) != 5 {
		t.Fatalf("%d plants on the page, %v", len(page.Plants), err)
	}
	if got := statements.Load() - before; got != 1 {
		t.Errorf("the plants took %d round trips", got)
	}
	exported := 0
	for _, err := range s.Scan(t.Context(), plantstore.Query{Order: plantstore.ByName}, nil) {
		if err != nil {
			t.Fatalf("after %d plants: %v", exported, err)
		}
		exported++
	}
	if exported != n {
		t.Errorf("the scan yielded %d plants, want %d", exported, n)
	}
	p.stall()
	s.callTimeout, s.opts.StoreTimeout = time.Second, 2*time.Second
	if _, err := s.List(t.Context(), plantstore.Query{Order: plantstore.ByName, Limit: 5}); !errors.Is(err, plantstore.ErrUnavailable) {
		t.Errorf("of a server that hangs: got %v, want ErrUnavailable", err)
	}
}

// applyMany creates n plants in one batch.
func applyMany(t *testing.T, s *Store, n int) {
	t.Helper()
	batch := make([]plantstore.Write, n)
	for i := range batch {
		batch[i] = create(plant(plantstore.ID(i), "fern"))
	}
	apply(t, s, batch...)
}
