package server

import (
	"context"
	"errors"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/storetest"
)

// faultyStore is the model, with what goes wrong in it.
type faultyStore struct {
	*storetest.Model
	// Each, where it is set, is called first, and its error returned.
	onApply, onToken, onReady func() error
	// refusal, where it is set, is what becomes of every write.
	refusal error
	// applied is told of every batch that has been applied.
	applied chan struct{}
}

func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

func (f *faultyStore) Apply(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	if err := call(f.onApply); err != nil {
		return nil, err
	}
	results, err := f.Model.Apply(ctx, batch)
	for i := range results {
		if f.refusal != nil {
			results[i].Err = f.refusal
		}
	}
	if f.applied != nil {
		f.applied <- struct{}{}
	}
	return results, err
}

func (f *faultyStore) Token(ctx context.Context, hash plantstore.TokenHash) (plantstore.Token, error) {
	if err := call(f.onToken); err != nil {
		return plantstore.Token{}, err
	}
	return f.Model.Token(ctx, hash)
}

func (f *faultyStore) Ready(context.Context) error { return call(f.onReady) }

// What fails inside is for the log, and for nobody else.
func TestAFailureOfOursTellsTheCallerNothingOfIt(t *testing.T) {
	t.Parallel()
	const inside = "disk /dev/sdz7 of db.internal"
	fails := func() error { return errors.New(inside) }
	panics := func() error { panic(inside) }
	const newcomer = "Authorization: Bearer a-token-that-only-the-store-knows"
	for _, tt := range []struct {
		name  string
		store *faultyStore
		code  plantstore.Code
		send  func(t *testing.T, s *service) reply
	}{
		{"a panic", &faultyStore{onToken: panics}, plantstore.ErrInternal, func(t *testing.T, s *service) reply {
			return s.create(t, `{"id":1,"name":"Fern"}`, newcomer, "X-Request-Id: told")
		}},
		{"tokens that cannot be read", &faultyStore{onToken: fails}, plantstore.ErrUnavailable, func(t *testing.T, s *service) reply {
			return s.create(t, `{"id":1,"name":"Fern"}`, newcomer, "X-Request-Id: told")
		}},
		{"a write that fails", &faultyStore{onApply: fails}, plantstore.ErrUnavailable, func(t *testing.T, s *service) reply {
			return s.create(t, `{"id":1,"name":"Fern"}`, "X-Request-Id: told")
		}},
		{"a refusal that nobody knows", &faultyStore{refusal: errors.New(inside)}, plantstore.ErrInternal, func(t *testing.T, s *service) reply {
			return s.create(t, `{"id":1,"name":"Fern"}`, "X-Request-Id: told")
		}},
		{"a store that is not ready", &faultyStore{onReady: fails}, plantstore.ErrUnavailable, func(t *testing.T, s *service) reply {
			return s.send(t, "GET", "/readyz", "", "X-Request-Id: told")
		}},
		{"a panic beside the API", &faultyStore{onReady: panics}, plantstore.ErrInternal, func(t *testing.T, s *service) reply {
			return s.send(t, "GET", "/readyz", "", "X-Request-Id: told")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.store.Model = storetest.NewModel()
			s := start(t, setup{store: tt.store})
			got := tt.send(t, s)
			got.wantError(t, tt.code)
			for _, word := range []string{"disk", "sdz7", "internal.", "panic", "goroutine", ".go"} {
				if strings.Contains(string(got.body), word) {
					t.Errorf("the answer has %q in it: %s", word, got.body)
				}
			}
			if tt.code == plantstore.ErrUnavailable {
				got.wantHeader(t, "Retry-After", "1")
			}
			told := func(line string) bool {
				return strings.Contains(line, `"request":"told"`) && strings.Contains(line, inside)
			}
			if !containsLine(s.log.String(), told) {
				t.Errorf("the log does not tell what happened to the request:\n%s", s.log)
			}
			if got := s.send(t, "GET", "/healthz", ""); got.status != 200 {
				t.Errorf("afterwards /healthz was answered %d", got.status)
			}
		})
	}
}

func containsLine(text string, is func(line string) bool) bool {
	for line := range strings.Lines(text) {
		if is(line) {
			return true
		}
	}
	return false
}

func TestAFullQueueIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	arrived, open := make(chan struct{}), make(chan struct{})
	store := &faultyStore{Model: storetest.NewModel(), onApply: func() error {
		arrived <- struct{}{}
		<-open
		return nil
	}}
	s := start(t, setup{store: store, queue: 1})
	first := make(chan reply, 1)
	go func() { first <- s.create(t, `{"id":1,"name":"Fern"}`) }()
	<-arrived

	got := s.create(t, `{"id":2,"name":"Oak"}`)
	got.wantError(t, plantstore.ErrUnavailable, "try again")
	got.wantHeader(t, "Retry-After", "1")

	close(open)
	(<-first).wantPlant(t, fern(1))
	s.wantStored(t, fern(1))
}

func TestACallerWhoGoesAwayDoesNotCancelTheirWrite(t *testing.T) {
	t.Parallel()
	arrived, open := make(chan struct{}), make(chan struct{})
	store := &faultyStore{Model: storetest.NewModel(), applied: make(chan struct{}, 1), onApply: func() error {
		arrived <- struct{}{}
		<-open
		return nil
	}}
	s := start(t, setup{store: store})
	c := s.dialCreate(t, "Content-Length: 22")
	c.send(t, `{"id":1,"name":"Fern"}`)
	<-arrived
	c.Close()
	close(open)
	<-store.applied
	s.wantStored(t, fern(1))
}

func TestAWriteWhoseOutcomeIsUnknownIsRepeated(t *testing.T) {
	t.Parallel()
	tries := 0
	store := &faultyStore{Model: storetest.NewModel(), onApply: func() error {
		if tries++; tries < 3 {
			return plantstore.ErrRetry
		}
		return nil
	}}
	s := start(t, setup{store: store})
	s.create(t, `{"id":1,"name":"Fern"}`).wantPlant(t, fern(1))
	s.wantStored(t, fern(1))
}
