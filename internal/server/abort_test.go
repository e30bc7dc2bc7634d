package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/rules"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
	"plantstore/internal/testenv"
)

// scanStore is the model with a scan of its own.
type scanStore struct {
	*storetest.Model
	scan func(ctx context.Context, yield func(plantstore.StoredPlant, error) bool)
}

func (s *scanStore) Scan(ctx context.Context, _ plantstore.Query, _ *plantstore.Cursor) iter.Seq2[plantstore.StoredPlant, error] {
	return func(yield func(plantstore.StoredPlant, error) bool) { s.scan(ctx, yield) }
}

// openExport sends the request of an export, traced in the log, and returns its
// response.
func (s *service) openExport(t *testing.T) *http.Response {
	t.Helper()
	return s.openExportOf(t, "/plants")
}

func (s *service) openExportOf(t *testing.T, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	r.Header.Set("Accept", "application/x-ndjson")
	r.Header.Set("X-Request-Id", "traced")
	response, err := s.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// wantLogged waits for the log line of the traced request, which must have the level
// and contain the text.
func (s *service) wantLogged(t *testing.T, level, text string) {
	t.Helper()
	traced := func(line string) bool { return strings.Contains(line, `"request":"traced"`) }
	testenv.Eventually(t, func() error {
		if text := s.Log.String(); !containsLine(text, traced) {
			return fmt.Errorf("the request is not in the log:\n%s", text)
		}
		return nil
	})
	as := func(line string) bool {
		return traced(line) && strings.Contains(line, `"level":"`+level+`"`) && strings.Contains(line, text)
	}
	if !containsLine(s.Log.String(), as) {
		t.Errorf("the request is not logged at %s with %q:\n%s", level, text, s.Log)
	}
}

func TestFailedExportIsNotMistakenForACompleteOne(t *testing.T) {
	t.Parallel()
	const inside = "disk /dev/sdz7"
	for name, fail := range map[string]func(yield func(plantstore.StoredPlant, error) bool){
		"panic": func(func(plantstore.StoredPlant, error) bool) { panic(inside) },
		"error": func(yield func(plantstore.StoredPlant, error) bool) {
			yield(plantstore.StoredPlant{}, errors.New(inside))
		},
	} {
		for at, plants := range map[string]int{"before the first plant": 0, "after a megabyte": 1024} {
			t.Run(name+" "+at, func(t *testing.T) {
				s := start(t, servertest.Options{Store: &scanStore{storetest.NewModel(), func(_ context.Context, yield func(plantstore.StoredPlant, error) bool) {
					for i := range plants {
						if !yield(plantstore.StoredPlant{Plant: plant(plantstore.ID(i), strings.Repeat("x", 1024))}, nil) {
							return
						}
					}
					fail(yield)
				}}})
				response := s.openExport(t)
				body, err := io.ReadAll(response.Body)
				switch {
				case plants == 0 && (response.StatusCode != 500 || err != nil):
					t.Errorf("got %d, %v, want 500", response.StatusCode, err)
				case plants > 0 && err == nil:
					t.Errorf("got %d and %d bytes that look complete", response.StatusCode, len(body))
				}
				s.wantLogged(t, "ERROR", inside)
			})
		}
	}
}

// trimmedLog has trimmed its second page before that is read.
type trimmedLog struct{ *storetest.Model }

func (l trimmedLog) Events(ctx context.Context, q plantstore.EventQuery) (plantstore.EventPage, error) {
	if q.After != plantstore.LatestCursor && q.After != "" {
		return plantstore.EventPage{}, rules.ErrorGone("the events after it are no longer kept")
	}
	return l.Model.Events(ctx, q)
}

func TestExportOfEventsThatAreTrimmedIsLogged(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{Store: trimmedLog{storetest.NewModel()}})
	var plants []plantstore.Plant
	for id := range plantstore.ID(2000) {
		plants = append(plants, plant(id, strings.Repeat("x", 1024)))
	}
	s.Fill(t, plants...)
	response := s.openExportOf(t, "/events")
	if body, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("got %d and %d bytes that look complete", response.StatusCode, len(body))
	}
	s.wantLogged(t, "WARN", "no longer kept")
}

// It is not the client's fault, whatever the code of the encoder's error.
func TestStoredPlantThatCannotBeEncodedIsAnInternalError(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{Store: &scanStore{storetest.NewModel(), func(_ context.Context, yield func(plantstore.StoredPlant, error) bool) {
		yield(plantstore.StoredPlant{Plant: plant(1, "\xff")}, nil)
	}}})
	if got := s.openExport(t); got.StatusCode != 500 {
		t.Errorf("got %s, want 500", got.Status)
	}
	s.wantLogged(t, "ERROR", "encode")
}

// A client that reads an export fast enough, but without end, must not pin the
// snapshot forever.
func TestExportIsAbortedAfterItsTimeout(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	s := start(t, servertest.Options{ExportTimeout: 100 * time.Millisecond, Store: &scanStore{storetest.NewModel(), func(ctx context.Context, yield func(plantstore.StoredPlant, error) bool) {
		defer close(released)
		for i := 0; i < 1024 || ctx.Err() == nil; i++ { // a part has been sent when it ends
			if !yield(plantstore.StoredPlant{Plant: plant(1, strings.Repeat("x", 1024))}, nil) {
				return
			}
		}
		yield(plantstore.StoredPlant{}, ctx.Err())
	}}})
	if n, err := io.Copy(io.Discard, s.openExport(t).Body); err == nil {
		t.Errorf("%d bytes look complete", n)
	}
	<-released
}

func TestExportsAreCountedByTheirOutcome(t *testing.T) {
	t.Parallel()
	endless := false
	s := start(t, servertest.Options{Store: &scanStore{storetest.NewModel(), func(_ context.Context, yield func(plantstore.StoredPlant, error) bool) {
		for endless && yield(plantstore.StoredPlant{Plant: plant(1, strings.Repeat("x", 1024))}, nil) {
		}
	}}})
	if _, err := io.Copy(io.Discard, s.openExport(t).Body); err != nil {
		t.Error(err)
	}
	s.wantLogged(t, "DEBUG", `"status":200`)
	s.Log.Reset()
	endless = true
	s.openExport(t).Body.Close() // the client disconnects
	s.wantLogged(t, "DEBUG", "disconnected")
	if containsLine(s.Log.String(), func(line string) bool { return !strings.Contains(line, `"level":"DEBUG"`) }) {
		t.Errorf("a disconnected client is logged as a failure of the server:\n%s", s.Log)
	}
	text := string(s.send(t, "GET", "/metrics", "", "Authorization: Bearer "+s.Token).body)
	for _, status := range []string{"200", "408"} {
		if line := `plantstore_http_requests_total{operation="listPlants",status="` + status + `"} 1`; !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("the metrics do not say %s:\n%s", line, text)
		}
	}
}
