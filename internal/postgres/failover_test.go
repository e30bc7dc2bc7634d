package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/commit"
	"plantstore/internal/postgres/pgtest"
)

// TestUnknownOutcome cuts the connection before a batch's commit, and between the
// commit and its answer. Either way Apply must leave and report what one
// application does.
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
			"delete of nothing", nil,
			[]plantstore.Write{remove(1)},
			[]plantstore.Result{{Err: plantstore.ErrNoPlant}},
			nil,
		},
		{
			"replace where there is none", nil,
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
			"all at once",
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
				s := use(t, through)
				if err := s.Ready(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, g := range c.given {
					apply(t, s, create(g))
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				f := p.arm("COMMIT", committed)
				results, err := s.Apply(ctx, c.batch)
				if err != nil {
					t.Fatal(err)
				}
				wantCut(t, f)
				for i, r := range results {
					if r != c.want[i] {
						t.Errorf("write %d: %v, want %v", i+1, r, c.want[i])
					}
				}
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
	for p, err := range s.Scan(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the store holds %v, want %v", got, want)
	}
}

// TestUnknownOutcomeOfCreates is about the batches that Apply leaves to its caller
// to repeat.
func TestUnknownOutcomeOfCreates(t *testing.T) {
	for committed, want := range map[bool]plantstore.Outcome{false: plantstore.Created, true: plantstore.Unchanged} {
		t.Run(fmt.Sprintf("committed=%v", committed), func(t *testing.T) {
			url := pgtest.Fresh(t)
			p, through := newProxy(t, addr(url), url)
			s := use(t, through)
			if err := s.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			f := p.arm("INSERT", committed)
			batch := []plantstore.Write{create(plant(1, "fern")), create(plant(2, "rose"))}
			_, err := s.Apply(t.Context(), batch)
			if !errors.Is(err, plantstore.ErrRetry) || !errors.Is(err, plantstore.ErrUnavailable) {
				t.Fatalf("Apply: %v", err)
			}
			wantCut(t, f)
			results, err := s.Apply(t.Context(), batch)
			if err != nil || results[0] != (plantstore.Result{Outcome: want}) || results[1] != results[0] {
				t.Errorf("Apply again: %v, %v", results, err)
			}
			wantAll(t, s, plant(1, "fern"), plant(2, "rose"))
		})
	}
}

// TestCreatesAreSeenThrough cuts the connection when some creates of a batch have
// been committed and others wait to be compared. To apply all of it again would
// say of the first that they were there before.
func TestCreatesAreSeenThrough(t *testing.T) {
	for _, statement := range []string{"BEGIN", "SELECT"} {
		url := pgtest.Fresh(t)
		p, through := newProxy(t, addr(url), url)
		s := use(t, through)
		apply(t, s, create(plant(1, "fern")))
		f := p.arm(statement, true)
		results, err := s.Apply(t.Context(), []plantstore.Write{create(plant(1, "fern")), create(plant(2, "rose"))})
		if err != nil || results[0].Outcome != plantstore.Unchanged || results[1].Outcome != plantstore.Created {
			t.Errorf("Apply, cut at %s: %v, %v", statement, results, err)
		}
		wantCut(t, f)
	}
}

// TestUnknownOutcomeEnds cuts a delete off from a server that does not come back
// before its context ends.
func TestUnknownOutcomeEnds(t *testing.T) {
	url := pgtest.Fresh(t)
	p, through := newProxy(t, addr(url), url)
	s := use(t, through)
	apply(t, s, create(plant(1, "fern")))
	f := p.arm("COMMIT", true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-f.cut
		p.stall()
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
			s := use(t, through)
			if err := s.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			first, second := token("first"), token("second")
			f := p.arm("COMMIT", committed)
			if made, err := s.CreateFirstToken(t.Context(), first); err != nil || !made {
				t.Errorf("CreateFirstToken: %v, %v", made, err)
			}
			wantCut(t, f)
			f = p.arm("INSERT", committed)
			if err := s.CreateToken(t.Context(), second); err != nil {
				t.Errorf("CreateToken: %v", err)
			}
			wantCut(t, f)
			f = p.arm("UPDATE", committed)
			if err := s.RevokeToken(t.Context(), second.Hash, second.Created); err != nil {
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

// TestNothingIsAcknowledgedBeforeTheStandbyHasIt waits for a standby that is not
// there, and cancels the wait: PostgreSQL then commits, with a warning.
func TestNothingIsAcknowledgedBeforeTheStandbyHasIt(t *testing.T) {
	server := pgtest.Start(t, "synchronous_standby_names=nobody")
	apply(t, use(t, server.URL()+"&synchronous_commit=local"), create(plant(1, "fern")))
	url := server.URL()
	s := use(t, url)
	const waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'plantstore'"
	batch := func(writes ...plantstore.Write) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := insist(ctx, s, writes)
			return err
		}
	}
	for name, write := range map[string]func(context.Context) error{
		"creates":     batch(create(plant(2, "rose")), create(plant(3, "moss"))),
		"unchanged":   batch(create(plant(1, "fern"))),
		"delete":      batch(remove(1)),
		"token":       func(ctx context.Context) error { return s.CreateToken(ctx, token("ci")) },
		"first token": func(ctx context.Context) error { _, err := s.CreateFirstToken(ctx, token("first")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- write(ctx) }()
			for range 3 {
				until(t, "a commit waits", func() bool { return len(query(t, url, "SELECT pid "+waiting)) > 0 })
				query(t, url, "SELECT pg_cancel_backend(pid) "+waiting)
			}
			until(t, "the next commit waits", func() bool { return len(query(t, url, "SELECT pid "+waiting)) > 0 })
			select {
			case err := <-done:
				t.Fatalf("it was acknowledged: %v", err)
			default:
			}
			cancel()
			<-done
			until(t, "no commit waits", func() bool { return len(query(t, url, "SELECT pid "+waiting)) == 0 })
		})
	}
}

// client creates plants of its own through a writer, replaces and deletes some of
// them, and keeps account of what it was told.
type client struct {
	writer *commit.Writer
	next   plantstore.ID
	there  map[plantstore.ID]plantstore.Plant
	gone   []plantstore.ID
}

// run writes until stop is closed. Nobody else touches its ids, so no write may
// be refused, however often its connection was lost.
func (c *client) run(stop <-chan struct{}, done *atomic.Int64) error {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		p := plant(c.next, "fern")
		c.next++
		if _, err := c.writer.Write(create(p)); err != nil {
			return fmt.Errorf("create %d: %w", p.ID, err)
		}
		c.there[p.ID] = p
		switch i % 8 {
		case 1:
			old := p
			p.Name = "rose"
			w := replace(p, &plantstore.Condition{Match: []plantstore.ETag{old.ETag()}})
			if did, err := c.writer.Write(w); err != nil || did != plantstore.Replaced {
				return fmt.Errorf("replace %d: %v, %w", p.ID, did, err)
			}
			c.there[p.ID] = p
		case 2:
			if did, err := c.writer.Write(remove(p.ID)); err != nil || did != plantstore.Deleted {
				return fmt.Errorf("delete %d: %v, %w", p.ID, did, err)
			}
			delete(c.there, p.ID)
			c.gone = append(c.gone, p.ID)
		}
		done.Add(1)
	}
}

// underLoad runs clients on two replicas of a store, lets happen what must, and
// fails unless everything that the clients were told is true afterwards.
func underLoad(t *testing.T, url string, happen func(s *Store, progress func())) {
	t.Helper()
	const each = 16
	var clients []*client
	var stores []*Store
	ctx, stopWriters := context.WithCancel(t.Context())
	var writers, load sync.WaitGroup
	for r := range plantstore.ID(2) {
		s := use(t, url)
		w := commit.New(s, commit.Options{InFlight: 2})
		writers.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		stores = append(stores, s)
		for i := range plantstore.ID(each) {
			clients = append(clients, &client{writer: w, next: (r*each + i) << 32, there: map[plantstore.ID]plantstore.Plant{}})
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
		until(t, "all clients get on", func() bool { return done.Load() > before+10*int64(len(clients)) })
	}
	progress()
	happen(stores[0], progress)
	close(stop)
	load.Wait()
	stopWriters()
	writers.Wait()
	wantAccounts(t, stores[1], clients)
	t.Logf("%d rounds", done.Load())
}

// wantAccounts fails unless the store holds exactly what the clients created.
func wantAccounts(t *testing.T, s *Store, clients []*client) {
	t.Helper()
	held := map[plantstore.ID]plantstore.Plant{}
	for p, err := range s.Scan(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		held[p.ID] = p
	}
	for _, c := range clients {
		for id, want := range c.there {
			if got, found := held[id]; !found || got != want {
				t.Errorf("plant %d was acknowledged as %v, and is %v, %v", id, want, got, found)
			}
			delete(held, id)
		}
		for _, id := range c.gone {
			if _, found := held[id]; found {
				t.Errorf("plant %d is back", id)
			}
		}
		// The last create of a client that gave up may be there or not.
		delete(held, c.next-1)
	}
	if len(held) > 0 {
		t.Errorf("%d plants were created by nobody", len(held))
	}
}

// wantNotReady waits until the store says that it is not ready: what is left of a
// killed server may serve for a moment.
func wantNotReady(t *testing.T, s *Store) {
	t.Helper()
	var err error
	until(t, "the store is not ready", func() bool {
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
	standby := primary.Standby(t, "heir")
	primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'heir'")
	primary.Exec(t, "SELECT pg_reload_conf()")
	primary.Exec(t, "CHECKPOINT") // by the process that puts the setting into effect
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

// TestPrimaryTurnsReadOnly has a server refuse writes on connections that are
// open, as one behind a load balancer does that has become a standby.
func TestPrimaryTurnsReadOnly(t *testing.T) {
	server := pgtest.Start(t)
	s := use(t, server.URL())
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
	until(t, "the store is ready", func() bool { return s.Ready(t.Context()) == nil })
	apply(t, s, create(plant(2, "rose")))
}

// TestHungServerIsLeft has a server hang with its connections open, and another
// host to go to.
func TestHungServerIsLeft(t *testing.T) {
	url := pgtest.Fresh(t)
	p, through := newProxy(t, addr(url), url)
	s := use(t, strings.Replace(through, addr(through), addr(through)+","+addr(url), 1)+"&connect_timeout=1")
	s.timeout = 2 * time.Second
	t.Cleanup(p.stop)
	apply(t, s, create(plant(1, "fern")))
	p.stall()
	apply(t, s, remove(1))
	apply(t, s, create(plant(2, "rose")))
	wantAll(t, s, plant(2, "rose"))
}
