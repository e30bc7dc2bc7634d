package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/storetest"
	"plantstore/internal/testenv"
)

// untrusted is a store whose writes fail, and leave it untrusted, once they may.
type untrusted struct {
	*storetest.Model
	applying, fail chan struct{}
}

func (s *untrusted) Apply(context.Context, []plantstore.Write) ([]plantstore.Result, error) {
	close(s.applying)
	<-s.fail
	return nil, plantstore.ErrUntrusted
}

// closeOn closes a channel when a text is written to it.
type closeOn struct {
	text string
	done chan struct{}
}

func (c closeOn) Write(b []byte) (int, error) {
	if strings.Contains(string(b), c.text) {
		close(c.done)
	}
	return len(b), nil
}

// A write that is in flight when the server begins to shut down leaves the store untrusted.
func TestStoreThatFailsDuringShutdownIsAFailure(t *testing.T) {
	store := &untrusted{storetest.NewModel(), make(chan struct{}), make(chan struct{})}
	secret := plantstore.NewSecret()
	if _, err := store.CreateFirstToken(t.Context(), plantstore.Token{
		Hash: plantstore.HashSecret(secret), Name: "test", Scopes: plantstore.AllScopes(), Created: time.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := &url.URL{Scheme: "http", Host: listener.Addr().String()}
	log := closeOn{"shutting down", make(chan struct{})}
	server, err := New(Options{
		Listener: listener, BaseURL: base, Store: store, StoreTimeout: testenv.Timeout,
		MaxBody: 1 << 10, MaxHeader: 1 << 10, ReadTimeout: testenv.Timeout, WriteTimeout: testenv.Timeout, ShutdownTimeout: testenv.Timeout, DrainDelay: testenv.Timeout,
		Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, shutDown := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- server.Run(ctx) }()
	answered := make(chan error)
	go func() {
		c, err := client.New(base.String(), secret, client.Options{Retries: -1})
		if err == nil {
			err = c.Create(t.Context(), plantstore.Plant{ID: 1, Name: "Fern"})
			c.CloseIdleConnections()
		}
		answered <- err
	}()
	select {
	case <-store.applying:
	case err := <-answered:
		t.Fatal("the write was not applied:", err)
	}
	shutDown()
	<-log.done
	close(store.fail)
	if err := <-answered; !errors.Is(err, plantstore.ErrUnavailable) {
		t.Errorf("the write: %v, want %v", err, plantstore.ErrUnavailable)
	}
	if err := <-ended; !errors.Is(err, plantstore.ErrUntrusted) {
		t.Errorf("Run: %v, want %v", err, plantstore.ErrUntrusted)
	}
}

// A limit below what is in use would have the garbage collector run all the time.
func TestMemoryLimitFollowsWhatIsInUse(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	limit := func(connections int) int64 {
		runtime.GC()
		once, cancel := context.WithCancel(t.Context())
		cancel()
		if err := limitMemory(once, func() int { return connections }); err != nil {
			t.Fatal(err)
		}
		return debug.SetMemoryLimit(-1)
	}
	const mib = 1 << 20
	if got := limit(0); got != 72*mib {
		t.Errorf("%d MiB with little in use", got/mib)
	}
	if got := limit(1024); got != 88*mib {
		t.Errorf("%d MiB with 1024 connections", got/mib)
	}
	large := make([]byte, 200*mib)
	if got := limit(0); got < 248*mib || got > 270*mib {
		t.Errorf("%d MiB with 200 MiB in use", got/mib)
	}
	runtime.KeepAlive(large)
	if got := limit(0); got != 72*mib {
		t.Errorf("%d MiB after it was released", got/mib)
	}
}
