package sqlite

import (
	"errors"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"plantstore"
)

func newWebhook(id string) plantstore.Webhook {
	return plantstore.Webhook{ID: id, URL: "https://example.com/", Created: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func changeNothing(*plantstore.Webhook) error { return nil }

// openWithWebhook opens a store that has the webhook "a".
func openWithWebhook(t *testing.T, path string) *Store {
	t.Helper()
	s := openStore(t, path, Serve)
	if err := s.CreateWebhook(t.Context(), newWebhook("a"), plantstore.Actor{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// What PRAGMA synchronous returns.
const normal, full = "1", "2"

func wantSynchronous(t *testing.T, s *Store, want string) {
	t.Helper()
	if got := text(t, s.write.conn, "PRAGMA synchronous", 0); got != want {
		t.Errorf("synchronous is %s, want %s", got, want)
	}
}

// However a save ends, the next write is synced.
func TestOnlySavesAreNotSynced(t *testing.T) {
	s := openWithWebhook(t, newPath(t))
	refusal := errors.New("no")
	for name, save := range map[string]func() error{
		"a change":   func() error { return nil },
		"an error":   func() error { return refusal },
		"a panic":    func() error { panic(refusal) },
		"deliveries": nil,
	} {
		t.Run(name, func(t *testing.T) {
			wantSynchronous(t, s, full)
			err := saveRecovering(t, s, save)
			if err != nil && !errors.Is(err, refusal) {
				t.Fatal(err)
			}
			wantSynchronous(t, s, full)
			if _, err := s.UpdateWebhook(t.Context(), "a", plantstore.Actor{}, func(*plantstore.Webhook) error {
				wantSynchronous(t, s, full)
				return nil
			}); err != nil {
				t.Errorf("an update after it: %v", err)
			}
		})
	}
	if got, err := s.Webhooks(t.Context()); err != nil || got[0].Epoch != 1 {
		t.Errorf("the webhook is %+v, %v, want epoch 1", got, err)
	}
}

// saveRecovering increments the epoch of a webhook, and then does as save. It returns
// what save panics with as an error. Without save it saves deliveries.
func saveRecovering(t *testing.T, s *Store, save func() error) (err error) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	if save == nil {
		return s.SaveDeliveries(t.Context(), "a", []plantstore.Delivery{{Attempt: 1}})
	}
	return s.SaveWebhook(t.Context(), "a", func(hook *plantstore.Webhook) error {
		wantSynchronous(t, s, normal)
		hook.Epoch++
		return save()
	})
}

// A transaction that cannot be rolled back keeps the setting.
func TestStoreThatCannotSyncAgainIsUntrusted(t *testing.T) {
	s := openWithWebhook(t, newPath(t))
	interrupted := make(chan struct{})
	close(interrupted)
	err := s.SaveWebhook(t.Context(), "a", func(*plantstore.Webhook) error {
		s.write.conn.SetInterrupt(interrupted)
		return nil
	})
	s.write.conn.SetInterrupt(nil)
	if !errors.Is(err, plantstore.ErrUntrusted) {
		t.Errorf("SaveWebhook: %v, want ErrUntrusted", err)
	}
	if _, err := s.Apply(t.Context(), []plantstore.Write{{Plant: fern(1)}}); !errors.Is(err, plantstore.ErrUntrusted) {
		t.Errorf("Apply: %v, want ErrUntrusted", err)
	}
}

func TestPanicInAnUpdateEndsItsTransaction(t *testing.T) {
	s := openWithWebhook(t, newPath(t))
	func() {
		defer func() { _ = recover() }()
		_, _ = s.UpdateWebhook(t.Context(), "a", plantstore.Actor{}, func(*plantstore.Webhook) error { panic("no") })
		t.Error("UpdateWebhook did not panic")
	}()
	create(t, s, fern(1))
}

// SQLite does not sync a transaction that writes nothing. What it read may not be on
// disk yet.
func TestUpdateThatChangesNothingIsSynced(t *testing.T) {
	path := newPath(t)
	s := openWithWebhook(t, path)
	if err := s.SaveWebhook(t.Context(), "a", func(hook *plantstore.Webhook) error { hook.Epoch++; return nil }); err != nil {
		t.Fatal(err)
	}
	before := walSize(t, path)
	if _, err := s.UpdateWebhook(t.Context(), "a", plantstore.Actor{}, changeNothing); err != nil {
		t.Fatal(err)
	}
	if after := walSize(t, path); after == before {
		t.Error("the update wrote nothing")
	}
}

func TestSavesDoNotPutOffTheIdleFlush(t *testing.T) {
	s := openWithWebhook(t, newPath(t))
	before := s.lastWrite.Load()
	if err := errors.Join(s.SaveWebhook(t.Context(), "a", changeNothing), s.SaveDeliveries(t.Context(), "a", nil)); err != nil {
		t.Fatal(err)
	}
	if s.lastWrite.Load() != before {
		t.Error("a save counts as a write")
	}
}

func TestBackupHasTheWebhooks(t *testing.T) {
	s := openWithWebhook(t, newPath(t))
	attempts := []plantstore.Delivery{{Attempt: 1}}
	if err := s.SaveDeliveries(t.Context(), "a", attempts); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := Backup(t.Context(), s.path, copied, unexpected(t)); err != nil {
		t.Fatal(err)
	}
	restored := openStore(t, copied, Existing)
	if got, err := restored.Webhooks(t.Context()); err != nil || !reflect.DeepEqual(got, []plantstore.Webhook{newWebhook("a")}) {
		t.Errorf("the backup has the webhooks %+v, %v", got, err)
	}
	if got, err := restored.Deliveries(t.Context(), "a"); err != nil || !reflect.DeepEqual(got, attempts) {
		t.Errorf("the backup has the deliveries %+v, %v", got, err)
	}
}
