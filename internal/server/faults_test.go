package server_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
)

// faultyStore is the model with injected faults.
type faultyStore struct {
	*storetest.Model
	// Each, if set, is called first, and its error is returned.
	onApply, onToken, onReady func() error
	// writeErr, if set, is the result of every write.
	writeErr error
	// applied, if set, receives a value for every batch that has been applied.
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
		if f.writeErr != nil {
			results[i].Err = f.writeErr
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

func TestInternalErrorsAreLoggedAndNotReturned(t *testing.T) {
	t.Parallel()
	const inside = "disk /dev/sdz7 of db.internal"
	fails := func() error { return errors.New(inside) }
	panics := func() error { panic(inside) }
	const uncached = "Authorization: Bearer a-token-that-only-the-store-knows"
	for _, tt := range []struct {
		name  string
		store *faultyStore
		code  plantstore.Code
		send  func(t *testing.T, s *service) reply
	}{
		{"a panic", &faultyStore{onToken: panics}, plantstore.ErrInternal, func(t *testing.T, s *service) reply {
			return s.create(t, `{"id":1,"name":"Fern"}`, uncached, "X-Request-Id: traced")
		}},
		{"tokens that cannot be read", &faultyStore{onToken: fails}, plantstore.ErrUnavailable, func(t *testing.T, s *service) reply {
			return s.create(t, `{"id":1,"name":"Fern"}`, uncached, "X-Request-Id: traced")
		}},
		{"a write that fails", &faultyStore{onApply: fails}, plantstore.ErrUnavailable, func(t *testing.T, s *service) reply {
			return s.create(t, `{"id":1,"name":"Fern"}`, "X-Request-Id: traced")
		}},
		{"a write with an unknown error", &faultyStore{writeErr: errors.New(inside)}, plantstore.ErrInternal, func(t *testing.T, s *service) reply {
			return s.create(t, `{"id":1,"name":"Fern"}`, "X-Request-Id: traced")
		}},
		{"a store that is not ready", &faultyStore{onReady: fails}, plantstore.ErrUnavailable, func(t *testing.T, s *service) reply {
			return s.send(t, "GET", "/readyz", "", "X-Request-Id: traced")
		}},
		{"a panic outside the API", &faultyStore{onReady: panics}, plantstore.ErrInternal, func(t *testing.T, s *service) reply {
			return s.send(t, "GET", "/readyz", "", "X-Request-Id: traced")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.store.Model = storetest.NewModel()
			s := start(t, servertest.Options{Store: tt.store})
			got := tt.send(t, s)
			got.wantError(t, tt.code)
			for _, word := range []string{"disk", "sdz7", "internal.", "panic", "goroutine", ".go"} {
				if strings.Contains(string(got.body), word) {
					t.Errorf("the response contains %q: %s", word, got.body)
				}
			}
			if tt.code == plantstore.ErrUnavailable {
				got.wantHeader(t, "Retry-After", "1")
			}
			traced := func(line string) bool {
				return strings.Contains(line, `"request":"traced"`) && strings.Contains(line, inside)
			}
			if !containsLine(s.Log.String(), traced) {
				t.Errorf("the log does not say why the request failed:\n%s", s.Log)
			}
			if got := s.send(t, "GET", "/healthz", ""); got.status != 200 {
				t.Errorf("/healthz: got %d afterwards", got.status)
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

func TestFullQueueIsRefusedImmediately(t *testing.T) {
	t.Parallel()
	arrived, open := make(chan struct{}), make(chan struct{})
	store := &faultyStore{Model: storetest.NewModel(), onApply: func() error {
		arrived <- struct{}{}
		<-open
		return nil
	}}
	s := start(t, servertest.Options{Store: store, MaxQueue: 1})
	first := make(chan reply, 1)
	go func() { first <- s.create(t, `{"id":1,"name":"Fern"}`) }()
	<-arrived

	got := s.create(t, `{"id":2,"name":"Oak"}`)
	got.wantError(t, plantstore.ErrUnavailable, "try again")
	got.wantHeader(t, "Retry-After", "1")
	s.wantMetrics(t, "plantstore_queue_depth 1", `plantstore_limit_hits_total{limit="queue"} 1`)

	close(open)
	(<-first).wantPlant(t, fern(1))
	s.wantStored(t, fern(1))
}

func TestDisconnectedClientDoesNotCancelItsWrite(t *testing.T) {
	t.Parallel()
	arrived, open := make(chan struct{}), make(chan struct{})
	store := &faultyStore{Model: storetest.NewModel(), applied: make(chan struct{}, 1), onApply: func() error {
		arrived <- struct{}{}
		<-open
		return nil
	}}
	s := start(t, servertest.Options{Store: store})
	c := s.dialCreate(t, "Content-Length: 22")
	c.send(t, `{"id":1,"name":"Fern"}`)
	<-arrived
	c.Close()
	close(open)
	<-store.applied
	s.wantStored(t, fern(1))
}

func TestWriteWithAnUnknownOutcomeIsRetried(t *testing.T) {
	t.Parallel()
	tries := 0
	store := &faultyStore{Model: storetest.NewModel(), onApply: func() error {
		if tries++; tries < 3 {
			return plantstore.ErrRetry
		}
		return nil
	}}
	s := start(t, servertest.Options{Store: store})
	s.create(t, `{"id":1,"name":"Fern"}`).wantPlant(t, fern(1))
	s.wantStored(t, fern(1))
}
