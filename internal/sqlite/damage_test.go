package sqlite

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"plantstore"
)

const damagedID = 1500

// damagedStore returns the path of a store of 3,000 plants in which the page of one is
// damaged.
func damagedStore(t *testing.T) string {
	t.Helper()
	path := closedStore(t, 0)
	runScript(t, path, "WITH RECURSIVE n (id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id < 2999) "+
		"INSERT INTO stored (id, name) SELECT id, 'plant ' || id FROM n")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	for at := range slices.Chunk(content, pageSize) {
		if bytes.Contains(at, []byte("plant 1500")) {
			copy(at, bytes.Repeat([]byte{0xff}, 16))
			pages++
		}
	}
	if pages == 0 {
		t.Fatal("no page has the plant")
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantDamaged(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, plantstore.ErrDamaged) || !errors.Is(err, plantstore.ErrUnavailable) ||
		errors.Is(err, plantstore.ErrUntrusted) || errors.Is(err, plantstore.ErrRetry) {
		t.Errorf("%s: %v, want ErrUnavailable and ErrDamaged alone", what, err)
	}
}

// wantAdvice checks what a client gets to see.
func wantAdvice(t *testing.T, what string, err error) {
	t.Helper()
	if refusal, ok := errors.AsType[*plantstore.Error](err); !ok || !strings.Contains(refusal.Message, "plantstore check") {
		t.Errorf("%s does not say what to do: %v", what, err)
	}
}

// openRunning fails the test if Run returns an error, which would end the process.
func TestDamagedStoreServesWhatItCanRead(t *testing.T) {
	replace := func(id plantstore.ID) []plantstore.Write {
		return []plantstore.Write{{Op: plantstore.Replace, Plant: fern(id)}}
	}
	for name, meet := range map[string]func(s *Store) error{
		"a read":  func(s *Store) error { _, err := s.Plant(t.Context(), damagedID); return err },
		"a list":  func(s *Store) error { _, err := s.List(t.Context(), plantstore.Query{Limit: 3000}); return err },
		"a scan":  func(s *Store) error { return scanError(s.Scan(t.Context(), plantstore.Query{}, nil)) },
		"a write": func(s *Store) error { _, err := s.Apply(t.Context(), replace(damagedID)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			s := openRunning(t, damagedStore(t))
			s.Log = slog.New(slog.NewTextHandler(&log, nil))
			ctx := t.Context()
			if err := errors.Join(s.Ready(ctx), s.Damaged()); err != nil {
				t.Fatalf("before the damage is found: %v", err)
			}
			if _, err := s.Apply(ctx, replace(5)); err != nil {
				t.Fatalf("a write before the damage is found: %v", err)
			}
			for range 2 {
				met := meet(s)
				wantDamaged(t, name, met)
				wantAdvice(t, name, met)
				wantDamaged(t, "Damaged", s.Damaged())
				_, err := s.Apply(ctx, replace(7))
				wantDamaged(t, "Apply", err)
				err = s.Ready(ctx)
				wantDamaged(t, "Ready", err)
				wantAdvice(t, "Ready", err)
				wantPlant(t, s, fern(5))
				if _, err := s.Plant(ctx, 2999); err != nil {
					t.Errorf("a plant on an intact page: %v", err)
				}
				if _, err := s.List(ctx, plantstore.Query{Limit: 100}); err != nil {
					t.Errorf("a list of intact pages: %v", err)
				}
				if _, err := s.Tokens(ctx); err != nil {
					t.Errorf("Tokens: %v", err)
				}
			}
			if n := strings.Count(log.String(), "plantstore check"); n != 1 {
				t.Errorf("the log says %d times what to do, want once: %s", n, &log)
			}
		})
	}
}

func TestStoreThatIsTooDamagedToBeOpened(t *testing.T) {
	path := closedStore(t, 1)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const treeHeader = 100 // after the file's own
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xff}, 16), treeHeader); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []Mode{Share, Existing} {
		_, err := Open(path, mode)
		if !errors.Is(err, plantstore.ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("Open in mode %d: %v, want ErrDamaged and the path", mode, err)
		}
	}
	s := openRunning(t, path)
	ctx := t.Context()
	_, applied := s.Apply(ctx, []plantstore.Write{{Op: plantstore.Create, Plant: fern(1)}})
	_, read := s.Plant(ctx, 1)
	_, listed := s.List(ctx, plantstore.Query{Limit: 1})
	_, events := s.Events(ctx, plantstore.EventQuery{Limit: 1})
	_, tags := s.Tags(ctx, plantstore.TagQuery{Limit: 1})
	_, tokens := s.Tokens(ctx)
	_, hooks := s.Webhooks(ctx)
	_, first := s.CreateFirstToken(ctx, newToken("first"))
	_, stats := s.Stats(ctx)
	for what, err := range map[string]error{
		"Ready": s.Ready(ctx), "Damaged": s.Damaged(), "Apply": applied, "Plant": read, "List": listed, "Events": events, "Tags": tags,
		"SaveDeliveries": s.SaveDeliveries(ctx, "a", nil),
		"Tokens":         tokens, "Webhooks": hooks, "CreateFirstToken": first, "Stats": stats, "Scan": scanError(s.Scan(ctx, plantstore.Query{}, nil)),
	} {
		wantDamaged(t, what, err)
	}
}
