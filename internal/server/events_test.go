package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
	"plantstore/internal/testenv"
)

// event is an Event as the interface has it.
type event struct {
	Cursor string
	Time   time.Time
	Type   string
	Plant  struct {
		ID   json.Number
		Name string
		Tag  *string
	}
	Token *struct {
		ID, Name, Token  string
		Scopes           []string
		Expires, Revoked *time.Time
	}
	By string
}

func (e event) String() string { return fmt.Sprintf("%s %s %s", e.Type, e.Plant.ID, e.Plant.Name) }

// getEvents sends a request for events, and returns the response.
func getEvents(t *testing.T, s *servertest.Server, query, accept string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/events?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	r.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close(); http.DefaultClient.CloseIdleConnections() })
	return resp
}

// page returns the events of a page, and its header.
func page(t *testing.T, s *servertest.Server, query string) ([]event, http.Header) {
	t.Helper()
	resp := getEvents(t, s, query, "application/json")
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("GET /events?%s: %d %s, %v", query, resp.StatusCode, body, err)
	}
	var events []event
	if err := json.Unmarshal(body, &events); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return events, resp.Header
}

// plantEvents returns the events of plants, after that of the first token.
func plantEvents(t *testing.T, s *servertest.Server) ([]event, http.Header) {
	t.Helper()
	events, header := page(t, s, "")
	if len(events) == 0 || events[0].Type != "token.created" {
		t.Fatalf("events: %v", events)
	}
	return events[1:], header
}

func change(t *testing.T, s *servertest.Server) {
	t.Helper()
	c := s.Client(client.Options{})
	ctx := t.Context()
	one := plantstore.Plant{ID: 1, Name: "Monstera", Tag: plantstore.NewTag("tropical")}
	big := plantstore.Plant{ID: 9007199254740993, Name: "exact"}
	for _, err := range []error{
		c.Create(ctx, one), c.Create(ctx, one), c.Create(ctx, big),
		c.Replace(ctx, plantstore.Plant{ID: 1, Name: "Fern"}, nil), c.Delete(ctx, 1, nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestEventsAreEveryChangeInOrder(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		change(t, s.Server)
		events, header := plantEvents(t, s.Server)
		if got := fmt.Sprint(events); got != "[plant.created 1 Monstera plant.created 9007199254740993 exact plant.replaced 1 Fern plant.deleted 1 Fern]" {
			t.Errorf("events: %s", got)
		}
		id := plantstore.HashSecret(s.Token).ID()
		for _, e := range events {
			if e.By != id || time.Since(e.Time) > time.Minute {
				t.Errorf("%v: by %s at %v, want %s", e, e.By, e.Time, id)
			}
		}
		if header.Get("Link") != "" {
			t.Errorf("the only page has the link %s", header.Get("Link"))
		}
		if events[0].Plant.Tag == nil || *events[0].Plant.Tag != "tropical" || events[1].Plant.Tag != nil {
			t.Error("the tags are not those of the plants")
		}
		end := header.Get("Plantstore-Cursor")
		if more, header := page(t, s.Server, "after="+end); len(more) != 0 || header.Get("Plantstore-Cursor") != end {
			t.Errorf("after the end there are %v, and the cursor is %s, want %s", more, header.Get("Plantstore-Cursor"), end)
		}
	})
}

func TestEventsOfAnImportFollowItsLines(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		s.call(t, "POST", "/import", `{"id":3,"name":"a"}
{"id":1,"name":"b"}
{"id":2,"name":"c"}`, ndjson).wantReport(t, 3, 0, 0)
		events, _ := plantEvents(t, s.Server)
		if got := fmt.Sprint(events); got != "[plant.created 3 a plant.created 1 b plant.created 2 c]" {
			t.Errorf("events: %s", got)
		}
	})
}

func TestEventsComeInPagesWithLinks(t *testing.T) {
	s := servertest.Start(t, servertest.Options{BaseURL: servertest.URL("/v1")})
	change(t, s)
	all, _ := plantEvents(t, s)
	var got []event
	query := "limit=1&type=plant.created,plant.deleted"
	for range 10 {
		events, header := page(t, s, query)
		got = append(got, events...)
		link := header.Get("Link")
		if link == "" {
			break
		}
		at, err := url.Parse(strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`))
		if err != nil || at.Path != "/v1/events" {
			t.Fatalf("link %s: %v", link, err)
		}
		query = at.RawQuery
	}
	if want := []event{all[0], all[1], all[3]}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if events, _ := page(t, s, "id=1&limit=1001"); len(events) != 3 {
		t.Errorf("the history of plant 1: %v", events)
	}
	if events, _ := page(t, s, "since="+url.QueryEscape(all[2].Time.Format(time.RFC3339Nano))); len(events) < 2 || len(events) > 4 {
		t.Errorf("since the third: %v", events)
	}
	if events, _ := page(t, s, "after=latest"); len(events) != 0 {
		t.Errorf("after the latest: %v", events)
	}
}

func TestNewestEventsComeInPagesWithLinks(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	change(t, s)
	all, _ := plantEvents(t, s)
	first, header := page(t, s, "order=newest&limit=1&id=1&by="+all[0].By)
	next, last, ok := strings.Cut(header.Get("Link"), ">")
	if fmt.Sprint(first) != fmt.Sprint(all[3:]) || !ok || last != `; rel="next"` || header.Get("Plantstore-Cursor") != all[3].Cursor {
		t.Fatalf("got %v, %v", first, header)
	}
	_, query, _ := strings.Cut(next, "?")
	if second, _ := page(t, s, query); fmt.Sprint(second) != fmt.Sprint(all[2:3]) {
		t.Errorf("the second page: %v", second)
	}
	if rest, header := page(t, s, "order=newest&type=plant.created&before="+all[1].Cursor); fmt.Sprint(rest) != fmt.Sprint(all[:1]) || header.Get("Link") != "" {
		t.Errorf("before the second event: %v, %v", rest, header)
	}
	if none, _ := page(t, s, "order=newest&by="+all[0].By[1:]); len(none) != 0 {
		t.Errorf("by a part of the id: %v", none)
	}
}

func TestOrderIsForPagesOnly(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	for _, accept := range []string{"application/x-ndjson", "text/event-stream"} {
		if resp := getEvents(t, s, "order=newest", accept); resp.StatusCode != 400 {
			t.Errorf("%s: %s", accept, resp.Status)
		}
	}
}

func TestHistogramCountsEveryEvent(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		change(t, s.Server)
		get := func(token, query string) string {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/events/histogram?"+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(body)))
		}
		reader := s.NewToken(plantstore.ScopeEvents) // which may not read the events of tokens
		const want = `200 [{"time":"2026-01-01T00:00:00Z","events":6},{"time":"2126-01-01T00:00:00.5Z","events":0}]`
		if got := get(reader, "since=2026-01-01T00:00:00Z&until=2226-01-01T00:00:01Z&buckets=2"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := get(reader, "since=2026-01-01T00:00:00Z"); strings.Count(got, `"time"`) != 60 || !strings.HasSuffix(got, `"events":6}]`) {
			t.Errorf("until now: %s", got)
		}
		for query, want := range map[string]string{
			"": `"since" is missing`, "since=x": `"since" must be a time`, "since=9999-12-31T23:59:59-23:59": `"since" must be a time`,
			"since=2026-01-31T12:00:00Z&until=2026-01-31T12:00:00%2B01:00": `it is 2026-01-31T11:00:00Z, which is before 2026-01-31T12:00:00Z`,
			"since=2199-01-01T00:00:00Z":                                   `"until" must not be before "since"`,
			"since=2026-01-01T00:00:00Z&buckets=0":                         `"buckets" must be an integer from 1 to 500, got "0"`,
			"since=2026-01-01T00:00:00Z&buckets=501":                       `got "501"`,
			"since=2026-01-01T00:00:00Z&limit=1":                           `unknown parameter "limit"`,
		} {
			var e struct{ Message string }
			got := get(reader, query)
			if err := json.Unmarshal([]byte(strings.TrimPrefix(got, "400 ")), &e); err != nil || !strings.Contains(e.Message, want) {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}
		if got := get(s.NewToken(plantstore.ScopeRead), "since=2026-01-01T00:00:00Z"); !strings.HasPrefix(got, "403 ") {
			t.Errorf("without the scope: %s", got)
		}
	})
}

func TestBadQueriesForEventsAreRefused(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	change(t, s)
	_, header := page(t, s, "")
	end := header.Get("Plantstore-Cursor")
	for query, want := range map[string]string{
		"limit=0": "400 40006", "limit=x": "400 40006", "after=x": "400 40006", "after=": "400 40006", "since=yesterday": "400 40006", "since=2199-01-01T00:00:00Z": "400 40006",
		"id=1.0": "400 40006", "type=plant.eaten": "400 40006", "type=": "400 40006", "cursor=" + end: "400 40006", "after=" + end + "&after=" + end: "400 40006",
		"after=" + end + "&since=2026-01-01T00:00:00Z": "400 40006", "after=x" + end: "410 41001", "after=%20" + end: "400 40006", "after=.1.1": "400 40006", "after=%C3%A9.1.1": "400 40006", "after=" + strings.Repeat("a", 65): "400 40006",
		"order=oldest": "400 40006", "order=": "400 40006", "before=" + end: "400 40006", "by=": "400 40006",
		"order=newest&before=x": "400 40006", "order=newest&before=latest": "400 40006", "order=newest&before=": "400 40006",
		"order=newest&after=" + end: "400 40006", "order=newest&since=2026-01-01T00:00:00Z": "400 40006",
	} {
		for _, accept := range []string{"application/json", "application/x-ndjson", "text/event-stream"} {
			resp := getEvents(t, s, query, accept)
			var e struct{ Error int }
			if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || fmt.Sprint(resp.StatusCode, " ", e.Error) != want {
				t.Errorf("%s as %s: %d %d, %v, want %s", query, accept, resp.StatusCode, e.Error, err, want)
			}
		}
	}
	if resp := getEvents(t, s, "order=newest&before=x"+end, "application/json"); resp.StatusCode != 410 {
		t.Errorf("before the cursor of another store: %s, want 410", resp.Status)
	}
}

func TestUnknownTypeIsToldWhichThereAre(t *testing.T) {
	s := startDefault(t)
	s.send(t, "GET", "/events?type=plant.eaten", "", "Authorization: Bearer "+s.Token).
		wantError(t, plantstore.ErrParameter, `"type" must be plant.created, plant.replaced, plant.deleted, token.created or token.revoked, got "plant.eaten"`)
}

func TestSinceIsATimeOfRFC3339(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	for since, want := range map[string]int{
		"2026-01-31T12:00:00Z": 200, "2026-01-31t12:00:00z": 200, "2026-01-31T12:00:00.123456789Z": 200, "2026-01-31T12:00:00-23:59": 200,
		"2026-01-31T1:00:00Z": 400, "2026-01-31T12:00:00,5Z": 400, "2026-01-31T12:00:00+24:00": 400, "2026-01-31T12:00:00+01:60": 400,
		"2026-01-31 12:00:00Z": 400, "2026-01-31T12:00:00": 400, "2026-02-29T12:00:00Z": 400, "": 400,
	} {
		if got := getEvents(t, s, "since="+url.QueryEscape(since), "application/json"); got.StatusCode != want {
			t.Errorf("since %q: %s, want %d", since, got.Status, want)
		}
	}
}

func TestTimeInTheFutureIsRefused(t *testing.T) {
	s := startDefault(t)
	s.send(t, "GET", "/events?since=2199-01-01T00:00:00%2B01:00", "", "Authorization: Bearer "+s.Token).
		wantError(t, plantstore.ErrParameter, `"since" must not be in the future, got 2198-12-31T23:00:00Z`)
}

func TestEventsNeedTheirScope(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	r, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/events", nil)
	r.Header.Set("Authorization", "Bearer "+s.NewToken(plantstore.ScopeRead, plantstore.ScopeWrite, plantstore.ScopeOps))
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != 403 {
		t.Errorf("a token without events:read: %v, %v", resp, err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}

func TestExportAndItsEventsAreAnExactCopy(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		change(t, s.Server)
		resp := getEvents(t, s.Server, "", "application/x-ndjson")
		lines, err := io.ReadAll(resp.Body)
		if err != nil || strings.Count(string(lines), "\n") != 5 || resp.Header.Get("Content-Type") != "application/x-ndjson" {
			t.Errorf("%s, %v", lines, err)
		}
		end := resp.Header.Get("Plantstore-Cursor")
		r, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/plants", nil)
		r.Header.Set("Authorization", "Bearer "+s.Token)
		r.Header.Set("Accept", "application/x-ndjson")
		export, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer export.Body.Close()
		if got := export.Header.Get("Plantstore-Cursor"); got != end {
			t.Errorf("the export is at %q, the events end at %q", got, end)
		}
	})
}

// stream reads server-sent events.
type stream struct {
	lines *bufio.Scanner
	body  io.Closer
}

func follow(t *testing.T, s *servertest.Server, query, last, token string) (*stream, *http.Response) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/events?"+query, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "text/event-stream")
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return &stream{bufio.NewScanner(resp.Body), resp.Body}, resp
}

// next returns the next event: its id and type, and false at the end of the stream.
func (s *stream) next() (id, kind string, e event, ok bool) {
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "event":
			kind = value
		case "data":
			if json.Unmarshal([]byte(value), &e) != nil {
				return id, kind, e, false
			}
		case "":
			if e.Cursor != "" {
				return id, kind, e, true
			}
		}
	}
	return "", "", e, false
}

func TestStreamIsLiveAndResumes(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		c := s.Client(client.Options{})
		if err := c.Create(t.Context(), plantstore.Plant{ID: 1, Name: "before"}); err != nil {
			t.Fatal(err)
		}
		live, resp := follow(t, s.Server, "", "", s.Token)
		if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Fatalf("the stream is %s", got)
		}
		for id := range plantstore.ID(3) {
			if err := c.Create(t.Context(), plantstore.Plant{ID: 10 + id, Name: "live"}); err != nil {
				t.Fatal(err)
			}
			cursor, kind, e, ok := live.next()
			if !ok || kind != "plant.created" || e.Cursor != cursor || e.Plant.ID != json.Number(fmt.Sprint(10+id)) {
				t.Fatalf("the stream has %s %s %v", cursor, kind, e)
			}
			if id != 0 {
				continue
			}
			resumed, _ := follow(t, s.Server, "after=latest", cursor, s.Token)
			defer func() {
				for id := 11; id < 13; id++ {
					if _, _, e, ok := resumed.next(); !ok || e.Plant.ID != json.Number(fmt.Sprint(id)) {
						t.Errorf("the resumed stream has %v, want plant %d", e, id)
					}
				}
			}()
		}
	})
}

// A client that resumes after the header must not skip events that it was not sent.
func TestCursorOfAStreamIsWhereItStarts(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	change(t, s)
	all, header := page(t, s, "")
	end := header.Get("Plantstore-Cursor")
	for query, want := range map[string]string{
		"": end, "after=latest": end, "after=" + end: end,
		"after=" + all[0].Cursor: "", "since=2000-01-01T00:00:00Z": "", // events follow, with their cursors
		"since=2000-01-01T00:00:00Z&id=404": end,
	} {
		if _, resp := follow(t, s, query, "", s.Token); resp.Header.Get("Plantstore-Cursor") != want {
			t.Errorf("%s: the cursor is %q, want %q", query, resp.Header.Get("Plantstore-Cursor"), want)
		}
	}
	// The position is also the first id, for clients that do not see the header.
	live, _ := follow(t, s, "", "", s.Token)
	for live.lines.Scan() {
		if id, ok := strings.CutPrefix(live.lines.Text(), "id: "); ok {
			if id != end {
				t.Errorf("the first id is %q, want %q", id, end)
			}
			return
		}
	}
	t.Error("the stream has no id")
}

func TestHeadOfEventsEnds(t *testing.T) {
	s := start(t, servertest.Options{})
	for _, accept := range []string{"application/json", "application/x-ndjson", "text/event-stream"} {
		got := s.send(t, "HEAD", "/events", "", "Authorization: Bearer "+s.Token, "Accept: "+accept)
		if got.status != http.StatusOK {
			t.Errorf("%s: %d", accept, got.status)
		}
		got.wantHeader(t, "Content-Type", accept)
	}
	testenv.WaitFor(t, "the stream to end", func() bool { return s.Handler.Followers() == 0 })
}

// countingStore counts what is read of a store.
type countingStore struct {
	*storetest.Model
	plants, events atomic.Int64
}

func (s *countingStore) Scan(ctx context.Context, q plantstore.Query, at *plantstore.Cursor) iter.Seq2[plantstore.StoredPlant, error] {
	return func(yield func(plantstore.StoredPlant, error) bool) {
		for p, err := range s.Model.Scan(ctx, q, at) {
			if s.plants.Add(1); !yield(p, err) {
				return
			}
		}
	}
}

func (s *countingStore) Events(ctx context.Context, q plantstore.EventQuery) (plantstore.EventPage, error) {
	page, err := s.Model.Events(ctx, q)
	s.events.Add(int64(len(page.Events)))
	return page, err
}

func TestHeadOfAnExportDoesNotReadIt(t *testing.T) {
	store := &countingStore{Model: storetest.NewModel()}
	s := start(t, servertest.Options{Store: store})
	for id := range plantstore.ID(10) {
		s.Fill(t, plant(id, "fern"))
	}
	header := []string{"Authorization: Bearer " + s.Token, "Accept: application/x-ndjson"}
	for _, path := range []string{"/plants", "/events"} {
		store.plants.Store(0)
		store.events.Store(0)
		head := s.send(t, "HEAD", path, "", header...)
		if plants, events := store.plants.Load(), store.events.Load(); head.status != 200 || plants > 0 || events > 1 {
			t.Errorf("HEAD %s: %d, read %d plants and %d events", path, head.status, plants, events)
		}
		get := s.send(t, "GET", path, "", header...)
		for _, name := range []string{"Content-Type", "Plantstore-Cursor", "Vary", "Cache-Control", "X-Content-Type-Options"} {
			head.wantHeader(t, name, get.header[name]...)
		}
		for query, status := range map[string]int{"?limit=1": 400, "?after=model.99.1": map[string]int{"/plants": 400, "/events": 410}[path]} {
			if got := s.send(t, "HEAD", path+query, "", header...); got.status != status {
				t.Errorf("HEAD %s%s: %d, want %d", path, query, got.status, status)
			}
		}
	}
}

func TestEventsAreAPageIfAWildcardIsPreferred(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	for accept, want := range map[string]string{
		"text/event-stream;q=0.1, */*":                        "application/json",
		"*/*;q=0.9, application/x-ndjson;q=0.1":               "application/json",
		"text/*":                                              "application/json",
		"text/event-stream, */*;q=0.1":                        "text/event-stream",
		"application/x-ndjson, text/event-stream;q=0.5, */*":  "application/x-ndjson",
		"text/event-stream, application/x-ndjson, */*;q=0.99": "application/x-ndjson",
	} {
		if got := getEvents(t, s, "", accept).Header.Get("Content-Type"); got != want {
			t.Errorf("Accept: %s gives %s, want %s", accept, got, want)
		}
	}
}

func TestHeadersOfEvents(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	for accept, cache := range map[string]string{
		"application/json": "private, no-cache", "application/x-ndjson": "private, no-cache", "text/event-stream": "no-store",
	} {
		h := getEvents(t, s, "", accept).Header
		if h.Get("Content-Type") != accept || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != cache || !slices.Equal(h["Vary"], []string{"Accept-Encoding", "Accept"}) {
			t.Errorf("%s: %v", accept, h)
		}
		if accept == "application/json" {
			continue
		}
		if resp := getEvents(t, s, "limit=5", accept); resp.StatusCode != 400 {
			t.Errorf("limit with %s: %s", accept, resp.Status)
		}
	}
}

// failingLog fails on its second page.
type failingLog struct{ *storetest.Model }

func (l failingLog) Events(ctx context.Context, q plantstore.EventQuery) (plantstore.EventPage, error) {
	page, err := l.Model.Events(ctx, plantstore.EventQuery{After: plantstore.LatestCursor, Limit: 1})
	if q.After != plantstore.LatestCursor && q.After != "" {
		err = plantstore.ErrUnavailable
	}
	page.More = true
	return page, err
}

func TestErrorOfAnExportOfEventsHasNoCursor(t *testing.T) {
	s := servertest.Start(t, servertest.Options{Store: failingLog{storetest.NewModel()}})
	if resp := getEvents(t, s, "", "application/x-ndjson"); resp.StatusCode != 503 || resp.Header.Get("Plantstore-Cursor") != "" {
		t.Errorf("got %s with the cursor %q", resp.Status, resp.Header.Get("Plantstore-Cursor"))
	}
}

func TestMalformedLastEventIDIsRefused(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	change(t, s)
	_, header := page(t, s, "")
	for last, want := range map[string]int{"x": 400, "é.1.1": 400, "x" + header.Get("Plantstore-Cursor"): 410} {
		if _, resp := follow(t, s, "after=latest", last, s.Token); resp.StatusCode != want {
			t.Errorf("Last-Event-ID %q: %s, want %d", last, resp.Status, want)
		}
	}
}

func TestLimitAbove1000Means1000(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	var many []plantstore.Plant
	for id := range plantstore.ID(1001) {
		many = append(many, fern(id))
	}
	s.Fill(t, many...)
	for _, limit := range []string{"1000", "1001", "99999999999999999999"} {
		if events, header := page(t, s, "limit="+limit); len(events) != 1000 || header.Get("Link") == "" {
			t.Errorf("limit=%s: %d events and the link %q", limit, len(events), header.Get("Link"))
		}
	}
}

func TestStreamOfARevokedTokenEnds(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	secret := s.NewToken(plantstore.ScopeEvents)
	live, _ := follow(t, s, "", "", secret)
	if err := s.Store.RevokeToken(t.Context(), plantstore.HashSecret(secret), time.Now(), plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Fatal(err)
	}
	if _, _, e, ok := live.next(); ok { // blocks until the stream ends
		t.Errorf("the stream continues with %v", e)
	}
}

// endlessLog always has another event.
type endlessLog struct {
	*storetest.Model
	seq atomic.Int64
}

func (l *endlessLog) Events(context.Context, plantstore.EventQuery) (plantstore.EventPage, error) {
	at := plantstore.Position{Store: "endless", Seq: l.seq.Add(1)}.Cursor()
	return plantstore.EventPage{Events: []plantstore.Event{{Cursor: at, Type: plantstore.PlantCreated, Plant: plant(1, "Fern")}}, Next: at}, nil
}

func TestBusyStreamOfARevokedTokenEnds(t *testing.T) {
	s := servertest.Start(t, servertest.Options{Store: &endlessLog{Model: storetest.NewModel()}})
	secret := s.NewToken(plantstore.ScopeEvents)
	live, _ := follow(t, s, "", "", secret)
	if err := s.Store.RevokeToken(t.Context(), plantstore.HashSecret(secret), time.Now(), plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Fatal(err)
	}
	revoked := time.Now()
	for _, _, _, ok := live.next(); ok; _, _, _, ok = live.next() {
		if time.Since(revoked) > testenv.Timeout {
			t.Fatal("the stream has not ended")
		}
	}
}

func TestMetricsOfTheLog(t *testing.T) {
	servertest.OnEveryStore(t, func(t *testing.T, one *servertest.Server) {
		s := newService(t, one)
		metric := func(name string) float64 { return s.metric(t, name) }
		for name, want := range map[string]float64{"plantstore_log_events": 1, "plantstore_log_last_seq": 1, "plantstore_event_followers": 0} {
			if got := metric(name); got != want { // the first token
				t.Errorf("%s of a store without plants is %v, want %v", name, got, want)
			}
		}
		change(t, s.Server)
		_, resp := follow(t, s.Server, "", "", s.Token)
		for name, want := range map[string]float64{"plantstore_log_events": 5, "plantstore_log_last_seq": 5, "plantstore_event_followers": 1} {
			if got := metric(name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if got := metric("plantstore_log_oldest_seconds"); got <= 0 || got > 600 {
			t.Errorf("the oldest event is %v s old", got)
		}
		resp.Body.Close()
		for name, want := range map[string]float64{"plantstore_event_followers": 0, "plantstore_log_unflushed_events": 0} {
			s.awaitMetric(t, name, func(value float64) bool { return value == want })
		}
	})
}

// as calls the server as the holder of a token, and returns the body.
func (s *service) as(t *testing.T, token, method, path, body string, headers ...string) reply {
	t.Helper()
	return s.send(t, method, path, body, append(headers, "Authorization: Bearer "+token)...)
}

func TestEventsOfTokensNeedTheScopeToReadThem(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		s.Fill(t, plant(0, "before"))
		auditor := s.NewToken(plantstore.ScopeEvents, plantstore.ScopeTokensRead)
		other := s.NewToken(plantstore.ScopeEvents, plantstore.ScopeTokensWrite)
		all, _ := follow(t, s.Server, "", "", auditor)
		plants, _ := follow(t, s.Server, "", "", other)
		var created struct{ ID, Token string }
		body := s.as(t, s.Token, "POST", "/tokens", `{"name":"ci","scopes":["plants:read"],"expires":"2100-01-31T12:00:00Z"}`, "Content-Type: application/json").body
		if err := json.Unmarshal(body, &created); err != nil || created.Token == "" {
			t.Fatalf("%s: %v", body, err)
		}
		for range 2 {
			if got := s.as(t, s.Token, "DELETE", "/tokens/"+created.ID, ""); got.status != http.StatusNoContent {
				t.Fatalf("DELETE: %d %s", got.status, got.body)
			}
		}
		s.Fill(t, plant(1, "after"))
		caller := plantstore.HashSecret(s.Token).ID()
		wantToken := func(e event, kind string) {
			t.Helper()
			if e.Type != kind || e.Token == nil || e.Token.ID != created.ID || e.Token.Name != "ci" || fmt.Sprint(e.Token.Scopes) != "[plants:read]" ||
				e.Token.Expires == nil || e.Token.Token != "" || (e.Token.Revoked != nil) != (kind == "token.revoked") || e.By != caller {
				t.Errorf("%s: %+v %+v", kind, e, e.Token)
			}
		}
		for _, kind := range []string{"token.created", "token.revoked"} {
			id, name, e, ok := all.next()
			if !ok || id != e.Cursor || name != kind {
				t.Fatalf("the stream has %s %s %v", id, name, e)
			}
			wantToken(e, kind)
		}
		if _, _, e, _ := all.next(); e.String() != "plant.created 1 after" {
			t.Errorf("the stream of the auditor has %v", e)
		}
		if _, _, e, _ := plants.next(); e.String() != "plant.created 1 after" {
			t.Errorf("the stream without tokens:read has %v", e)
		}
		for _, accept := range []string{"application/json", "application/x-ndjson"} {
			for query, want := range map[string][2]int{ // how many the two see, of the first three tokens, ci, and two plants
				"": {7, 2}, "?type=token.created": {4, 0}, "?type=token.revoked,plant.created": {3, 2}, "?id=0": {1, 1}, "?type=token.created&id=0": {0, 0},
			} {
				var cursors [2]string
				for i, token := range []string{auditor, other} {
					got := s.as(t, token, "GET", "/events"+query, "", "Accept: "+accept)
					if n := strings.Count(string(got.body), `"cursor"`); got.status != http.StatusOK || n != want[i] {
						t.Errorf("%s as %s: %d, %d events, want %d: %s", query, accept, got.status, n, want[i], got.body)
					}
					cursors[i] = got.header.Get("Plantstore-Cursor")
				}
				if cursors[0] != cursors[1] || cursors[0] == "" {
					t.Errorf("%s as %s: the cursors are %q", query, accept, cursors)
				}
			}
		}
		if got := s.as(t, auditor, "GET", "/events", ""); s.HasSecret(got.body) || strings.Contains(string(got.body), created.Token) {
			t.Errorf("the events have a secret: %s", got.body)
		}
	})
}
