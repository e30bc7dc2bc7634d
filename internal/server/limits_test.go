package server_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/server"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
	"plantstore/internal/testenv"
)

// slowStore is a model whose lists and scans take until it is opened.
type slowStore struct {
	*storetest.Model
	began chan struct{} // receives a value for each
	open  chan struct{} // closed
}

func newSlowStore() *slowStore {
	return &slowStore{storetest.NewModel(), make(chan struct{}), make(chan struct{})}
}

func (s *slowStore) List(ctx context.Context, q plantstore.Query) (plantstore.Page, error) {
	s.began <- struct{}{}
	<-s.open
	return s.Model.List(ctx, q)
}

func (s *slowStore) Scan(ctx context.Context, q plantstore.Query, at *plantstore.Cursor) iter.Seq2[plantstore.StoredPlant, error] {
	s.began <- struct{}{}
	<-s.open
	return s.Model.Scan(ctx, q, at)
}

// replies are those of requests in the background.
type replies chan reply

func (r replies) send(t *testing.T, s *service, n int, query, secret string, header ...string) {
	for range n {
		go func() { r <- s.listAs(t, query, secret, header...) }()
	}
}

// wantSuccess waits for n replies.
func (r replies) wantSuccess(t *testing.T, n int) {
	t.Helper()
	for range n {
		if got := <-r; got.status != http.StatusOK {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
}

func (s *service) listAs(t *testing.T, query, secret string, header ...string) reply {
	t.Helper()
	return s.call(t, "GET", query, "", append(header, "Authorization: Bearer "+secret)...)
}

func TestSearchFloodDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	store := newSlowStore()
	s := start(t, servertest.Options{Store: store})
	s.Handler.WaitForTurns()
	flood, honest := s.NewToken(plantstore.ScopeRead), s.NewToken(plantstore.ScopeRead)
	done := make(replies)
	const running, queued = 6, 16 // of one token
	done.send(t, s, running+queued, "?q=zzzz", flood)
	for range running {
		<-store.began
	}
	testenv.WaitFor(t, "the searches to be queued", func() bool { return s.Handler.Queued("searches") == queued })
	got := s.listAs(t, "?q=zzzz", flood)
	got.wantError(t, plantstore.ErrUnavailable, "too many searches and exports are running: try again later")
	got.wantHeader(t, "Retry-After", "1")

	s.create(t, `{"id":1,"name":"Fern"}`).wantPlant(t, fern(1))
	s.call(t, "GET", "/1", "", "Authorization: Bearer "+flood).wantPlant(t, fern(1))
	s.awaitReady(t)
	done.send(t, s, 1, "", honest)
	<-store.began // before the queue of the flood

	go func() {
		for range queued {
			<-store.began
		}
	}()
	close(store.open)
	done.wantSuccess(t, running+queued+1)
}

func TestExportBeyondTheLimitIsRefusedImmediately(t *testing.T) {
	t.Parallel()
	store := newSlowStore()
	s := start(t, servertest.Options{Store: store})
	slow, honest := s.NewToken(plantstore.ScopeRead), s.NewToken(plantstore.ScopeRead)
	const accept = "Accept: application/x-ndjson"
	done := make(replies)
	done.send(t, s, 3, "", slow, accept)
	for range 3 {
		<-store.began
	}
	got := s.listAs(t, "", slow, accept)
	got.wantError(t, plantstore.ErrUnavailable, "too many searches and exports are running: try again later")
	got.wantHeader(t, "Retry-After", "1")
	done.send(t, s, 1, "", honest, accept)
	<-store.began
	s.listAs(t, "", honest, accept).wantError(t, plantstore.ErrUnavailable)
	s.wantMetrics(t, `plantstore_limit_hits_total{limit="searches"} 2`, `plantstore_limit_hits_total{limit="reads"} 0`)
	done.send(t, s, 1, "?q=x", honest)
	<-store.began // exports leave room for searches
	close(store.open)
	done.wantSuccess(t, 5)
	go func() { <-store.began }()
	if got := s.listAs(t, "", slow, accept); got.status != http.StatusOK {
		t.Errorf("got %d %s after the exports have ended", got.status, got.body)
	}
}

// fewExports is a slow store that runs few scans at once.
type fewExports struct {
	*slowStore
	most int
}

func (s fewExports) Exports() int { return s.most }

func TestNoMoreExportsBeginThanTheStoreRuns(t *testing.T) {
	for most := 1; most <= 6; most++ {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			store := fewExports{newSlowStore(), most}
			s := start(t, servertest.Options{Store: store})
			const accept = "Accept: application/x-ndjson"
			done := make(replies)
			begin := min(most, 4)
			for range begin {
				done.send(t, s, 1, "", s.NewToken(plantstore.ScopeRead), accept)
				<-store.began
			}
			got := make(chan reply)
			go func() { got <- s.listAs(t, "", s.NewToken(plantstore.ScopeRead), accept) }()
			select {
			case <-store.began:
				t.Error("another export began")
				close(store.open)
				<-got
			case refused := <-got:
				refused.wantError(t, plantstore.ErrUnavailable, "too many searches and exports are running: try again later")
				refused.wantHeader(t, "Retry-After", "1")
				close(store.open)
			}
			done.wantSuccess(t, begin)
		})
	}
}

// slowSearches is a slow store whose plain lists are quick.
type slowSearches struct{ *slowStore }

func (s slowSearches) List(ctx context.Context, q plantstore.Query) (plantstore.Page, error) {
	if !q.Filtered() {
		return s.Model.List(ctx, q)
	}
	return s.slowStore.List(ctx, q)
}

// However many searches, exports and imports there are, and whoever sent them, everyone's
// plain lists, pages of tags, gets and creates are served at once.
func TestSaturatedSearchesExportsAndImportsDelayNothingElse(t *testing.T) {
	t.Parallel()
	store := slowSearches{newSlowStore()}
	s := start(t, servertest.Options{Store: store})
	s.Handler.WaitForTurns()
	a, b := s.NewToken(plantstore.ScopeRead, plantstore.ScopeWrite), s.NewToken(plantstore.ScopeRead, plantstore.ScopeWrite)
	done := make(replies)
	const accept = "Accept: application/x-ndjson"
	for _, n := range []struct {
		exports, searches int
		token             string
	}{{3, 0, a}, {1, 0, b}, {0, 1, a}, {0, 1, b}} {
		done.send(t, s, n.exports, "", n.token, accept)
		done.send(t, s, n.searches, "?q=x", n.token)
		for range n.exports + n.searches {
			<-store.began
		}
	}
	done.send(t, s, 1, "?q=x", b)
	testenv.WaitFor(t, "a search to be queued", func() bool { return s.Handler.Queued("searches") == 1 })
	const all = server.ImportBytes / server.WindowStep
	const line = `{"id":1,"name":"Fern"}`
	var stalled []*connection
	for i := range all + 1 {
		stalled = append(stalled, s.dialImport(t, []string{a, a, a, b}[i%4], line))
	}
	testenv.WaitFor(t, "the imports to stall", func() bool {
		return s.Handler.Used("imports") == server.ImportBytes && s.Handler.Queued("imports") == 1
	})

	for _, token := range []string{a, b} {
		bearer := "Authorization: Bearer " + token
		s.call(t, "POST", "", line, bearer).wantPlant(t, fern(1))
		s.call(t, "GET", "/1", "", bearer).wantPlant(t, fern(1))
		s.listAs(t, "", token).wantOK(t)
		s.send(t, "GET", "/tags", "", bearer).wantOK(t)
	}

	go func() { <-store.began }()
	close(store.open)
	done.wantSuccess(t, 7)
	for _, c := range stalled {
		c.Close()
	}
}

// largePages is a store whose pages of plants with a tag, and of events of a type, are
// larger than any that a real store returns, so that they do not fit the buffers of a
// connection.
type largePages struct {
	*storetest.Model
	plants []plantstore.StoredPlant
}

func newLargePages() largePages {
	store := largePages{Model: storetest.NewModel()}
	for id := range plantstore.ID(server.MostPages / 2 >> 20) {
		store.plants = append(store.plants, plantstore.StoredPlant{Plant: plant(id, strings.Repeat("x", 1<<20), "large")})
	}
	return store
}

func (l largePages) List(ctx context.Context, q plantstore.Query) (plantstore.Page, error) {
	if slices.Contains(q.ExactTags(), "large") {
		return plantstore.Page{Plants: l.plants}, nil
	}
	return l.Model.List(ctx, q)
}

func (l largePages) Events(ctx context.Context, q plantstore.EventQuery) (plantstore.EventPage, error) {
	if len(q.Types) == 0 || q.After != plantstore.LatestCursor {
		return l.Model.Events(ctx, q)
	}
	page, err := l.Model.Events(ctx, plantstore.EventQuery{After: plantstore.LatestCursor, Limit: 1})
	for _, p := range l.plants {
		page.Events = append(page.Events, plantstore.Event{Cursor: page.Next, Time: time.Unix(1, 0), Type: plantstore.PlantCreated, Plant: p.Plant})
	}
	return page, err
}

// Pages that clients do not read must not fill the memory. Small ones are still served.
func TestLargePagesShareALimit(t *testing.T) {
	t.Parallel()
	for large, small := range map[string]string{
		"/plants?tag=large":                       "/plants?tag=small",
		"/events?after=latest&type=plant.created": "/events",
	} {
		t.Run(large[1:7], func(t *testing.T) {
			store := newLargePages()
			s := start(t, servertest.Options{Store: store})
			s.Fill(t, plant(100, "small", "small"))
			get := func(path string) reply { return s.send(t, "GET", path, "", "Authorization: Bearer "+s.Token) }
			stalled := s.dial(t)
			stalled.send(t, "GET "+large+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.Token+"\r\n\r\n")
			testenv.WaitFor(t, "it to be sent", func() bool { return s.Handler.Used("memory") > 0 })
			refused := get(large)
			refused.wantError(t, plantstore.ErrUnavailable, "large bodies, pages or plants")
			refused.wantHeader(t, "Plantstore-Cursor")
			if got := get(small); got.status != http.StatusOK || len(got.body) < 10 {
				t.Errorf("a small page: %d %s", got.status, got.body)
			}
			stalled.Close()
			testenv.WaitFor(t, "the server to notice", func() bool { return s.Handler.Used("memory") == 0 })
			if got := get(large); got.status != http.StatusOK || len(got.body) < len(store.plants)<<20 {
				t.Errorf("got %d with %d bytes", got.status, len(got.body))
			}
		})
	}
}

// So do lists of tokens, and single plants, for which pages leave room. They are larger
// than the buffers of a connection.
func TestLargeResponsesShareALimit(t *testing.T) {
	t.Parallel()
	const tokenName, plantName = 20 << 20, 12 << 20
	for _, tt := range []struct {
		path    string
		stalled int
		others  string // what another caller gets meanwhile
	}{{"/tokens", 1, "/plants/1"}, {"/plants/1", 2, "/plants/2"}} {
		t.Run(tt.path[1:], func(t *testing.T) {
			s := start(t, servertest.Options{Store: storetest.NewModel()})
			s.Fill(t, plant(1, strings.Repeat("x", plantName)), plant(2, strings.Repeat("x", server.SmallBody*9/10)))
			token := plantstore.Token{Name: strings.Repeat("x", tokenName), Scopes: plantstore.AllScopes(), Hash: plantstore.HashSecret("large"), Created: time.Unix(1, 0)}
			if err := s.Store.CreateToken(t.Context(), token, plantstore.Actor{Name: plantstore.Operator}); err != nil {
				t.Fatal(err)
			}
			get := func(path, secret string) reply { return s.send(t, "GET", path, "", "Authorization: Bearer "+secret) }
			var stalled []*connection
			for range tt.stalled {
				c, before := s.dial(t), s.Handler.Used("memory")
				c.send(t, "GET "+tt.path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.Token+"\r\n\r\n")
				testenv.WaitFor(t, "it to be sent", func() bool { return s.Handler.Used("memory") > before })
				stalled = append(stalled, c)
			}
			get(tt.path, s.Token).wantError(t, plantstore.ErrUnavailable, "large bodies, pages or plants")
			if got := get(tt.others, s.NewToken(plantstore.ScopeRead)); got.status != http.StatusOK {
				t.Errorf("%s: got %d %s", tt.others, got.status, got.body)
			}
			for _, c := range stalled {
				c.Close()
			}
			testenv.WaitFor(t, "the memory to be free", func() bool { return s.Handler.Used("memory") == 0 })
			if got := get(tt.path, s.Token); got.status != http.StatusOK || len(got.body) < plantName {
				t.Errorf("%s: got %d with %d bytes", tt.path, got.status, len(got.body))
			}
		})
	}
}

// A patch for whose response there is no memory is refused before it is applied.
func TestRefusedPatchIsNotApplied(t *testing.T) {
	t.Parallel()
	const plantName = 12 << 20
	s := start(t, servertest.Options{Store: storetest.NewModel()})
	sizes := map[plantstore.ID]int{3: 2 * server.SmallBody, 4: 2 * server.MediumBody}
	s.Fill(t, plant(1, strings.Repeat("x", plantName)), plant(2, "small"))
	for id, n := range sizes {
		s.Fill(t, plant(id, strings.Repeat("x", n)))
	}
	var stalled []*connection
	for range 2 {
		c, before := s.dial(t), s.Handler.Used("memory")
		c.send(t, "GET /plants/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.Token+"\r\n\r\n")
		testenv.WaitFor(t, "it to be sent", func() bool { return s.Handler.Used("memory") > before })
		stalled = append(stalled, c)
	}
	const patch = `{"tag":"t"}`
	s.call(t, "PATCH", "/2", patch).wantPlant(t, plant(2, "small", "t"))
	for id := range sizes {
		s.call(t, "PATCH", "/"+id.String(), patch).wantError(t, plantstore.ErrUnavailable, "large bodies, pages or plants")
		if _, tagged := s.stored(t, id).Tag.Text(); tagged {
			t.Errorf("plant %d was patched", id)
		}
	}
	for _, c := range stalled {
		c.Close()
	}
	testenv.WaitFor(t, "the memory to be free", func() bool { return s.Handler.Used("memory") == 0 })
	for id, n := range sizes {
		s.call(t, "PATCH", "/"+id.String(), patch).wantPlant(t, plant(id, strings.Repeat("x", n), "t"))
	}
	if used := s.Handler.Used("memory"); used != 0 {
		t.Errorf("%d bytes are still held", used)
	}
}

// A follower whose large page does not fit waits for memory, and is not disconnected.
func TestFollowersShareTheLimitOfLargePages(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{Store: newLargePages()})
	const query = "type=plant.created"
	_, stalled := follow(t, s.Server, query, "", s.Token)
	testenv.WaitFor(t, "the page to be sent", func() bool { return s.Handler.Used("memory") > 0 })
	live, _ := follow(t, s.Server, query, "", s.Token)
	if used := s.Handler.Used("memory"); used > server.MostPages*3/4 {
		t.Errorf("the followers of one token hold %d bytes", used)
	}
	stalled.Body.Close()
	live.lines.Buffer(nil, 2<<20)
	if _, _, e, ok := live.next(); !ok || len(e.Plant.Name) != 1<<20 {
		t.Errorf("the stream has %.100v, %v", e, live.lines.Err())
	}
}

func TestFollowersOfOneTokenLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{Store: storetest.NewModel()})
	flood, honest := s.NewToken(plantstore.ScopeEvents), s.NewToken(plantstore.ScopeEvents)
	const share = server.StreamsSize * 3 / 4
	for range share {
		if _, resp := follow(t, s.Server, "", "", flood); resp.StatusCode != http.StatusOK {
			t.Fatalf("got %s", resp.Status)
		}
	}
	if _, resp := follow(t, s.Server, "", "", flood); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("beyond the share of a token: got %s", resp.Status)
	}
	for range server.StreamsSize - share {
		if _, resp := follow(t, s.Server, "", "", honest); resp.StatusCode != http.StatusOK {
			t.Fatalf("another token: got %s", resp.Status)
		}
	}
	if _, resp := follow(t, s.Server, "", "", honest); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("beyond the limit: got %s", resp.Status)
	}
}

// searchSpy records how much of the lane of searches is in use during each read of events.
type searchSpy struct {
	*storetest.Model
	used func(lane string) int64
	seen chan int64
}

func (s *searchSpy) Events(ctx context.Context, q plantstore.EventQuery) (plantstore.EventPage, error) {
	select {
	case s.seen <- s.used("searches"):
	default:
	}
	return s.Model.Events(ctx, q)
}

// Reads of many events are searches. A follower that has caught up needs no turn.
func TestReadsOfManyEventsAreSearches(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string][]int64{
		"application/json":     {server.SearchUnits},
		"application/x-ndjson": {server.ExportUnits, server.ExportUnits, server.ExportUnits}, // the first finds the end
		"text/event-stream":    {server.SearchUnits, server.SearchUnits, 0},
	} {
		spy := &searchSpy{Model: storetest.NewModel(), seen: make(chan int64, len(want))}
		s := start(t, servertest.Options{Store: spy})
		spy.used = s.Handler.Used
		var many []plantstore.Plant
		for id := range plantstore.ID(1500) { // two pages
			many = append(many, fern(id))
		}
		s.Fill(t, many...)
		resp := getEvents(t, s.Server, "since=2000-01-01T00:00:00Z", accept)
		for i, want := range want {
			if got := <-spy.seen; got != want {
				t.Errorf("%s: %d units are in use during read %d, want %d", accept, got, i+1, want)
			}
		}
		resp.Body.Close()
	}
}

func (s *searchSpy) Scan(ctx context.Context, q plantstore.Query, at *plantstore.Cursor) iter.Seq2[plantstore.StoredPlant, error] {
	s.seen <- s.used("searches")
	return s.Model.Scan(ctx, q, at)
}

// An export by name reads all plants again for each of its pages, so it takes as much as a list by name.
func TestExportsByNameTakeMore(t *testing.T) {
	t.Parallel()
	spy := &searchSpy{Model: storetest.NewModel(), seen: make(chan int64, 1)}
	s := start(t, servertest.Options{Store: spy})
	spy.used = s.Handler.Used
	for query, want := range map[string]int64{"": server.ExportUnits, "?order=-id": server.ExportUnits, "?order=name": server.SortUnits, "?order=-name": server.SortUnits} {
		s.send(t, "GET", "/plants"+query, "", s.withDefaults([]string{"Accept: application/x-ndjson"})...).wantOK(t)
		if got := <-spy.seen; got != want {
			t.Errorf("%q: %d units are in use, want %d", query, got, want)
		}
	}
}

// accessSpy records how much of the lane of reads is in use while the health of webhooks is read.
type accessSpy struct {
	*storetest.Model
	used func(lane string) int64
	seen []int64
}

func (s *accessSpy) Backlogs(ctx context.Context, hooks []plantstore.Webhook) ([]plantstore.Backlog, error) {
	s.seen = append(s.seen, s.used("reads"))
	return s.Model.Backlogs(ctx, hooks)
}

// Also for the health of one webhook, all are read, on connections that check tokens.
func TestReadsOfWebhooksTakeTurns(t *testing.T) {
	t.Parallel()
	spy := &accessSpy{Model: storetest.NewModel(), used: func(string) int64 { return 0 }}
	s := start(t, servertest.Options{Store: spy, WebhookAllow: loopback})
	id := s.webhook(t, http.StatusCreated, "POST", "", `{"url":"http://127.0.0.1:9/hook"}`).ID
	spy.used, spy.seen = s.Handler.Used, nil
	s.send(t, "GET", "/webhooks", "", s.withDefaults(nil)...)
	s.webhook(t, http.StatusOK, "GET", "/"+id, "")
	s.webhook(t, http.StatusOK, "POST", "/"+id+"/rotate", "")
	if want := []int64{server.AccessUnits, server.AccessUnits, server.AccessUnits}; !slices.Equal(spy.seen, want) {
		t.Errorf("got %d units, want %d", spy.seen, want)
	}
}

// dialImport opens a connection and sends an import without its end.
func (s *service) dialImport(t *testing.T, secret, lines string) *connection {
	t.Helper()
	c := s.dial(t)
	c.send(t, "POST /plants/import HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+secret+"\r\n"+ndjson+
		"\r\nTransfer-Encoding: chunked\r\n\r\n"+chunked(lines))
	return c
}

func TestImportsOfOneTokenLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	flood, honest := s.NewToken(plantstore.ScopeWrite), s.NewToken(plantstore.ScopeWrite)
	const share = server.ImportBytes / server.WindowStep * 3 / 4
	const line = `{"id":1,"name":"Fern"}`
	var stalled []*connection
	for range share {
		stalled = append(stalled, s.dialImport(t, flood, line))
	}
	testenv.WaitFor(t, "the imports to use their share", func() bool { return s.Handler.Used("imports") == share*server.WindowStep })
	stalled = append(stalled, s.dialImport(t, flood, line))
	testenv.WaitFor(t, "an import to be queued", func() bool { return s.Handler.Queued("imports") == 1 })
	s.call(t, "POST", "/import", line, ndjson, "Authorization: Bearer "+honest).wantReport(t, 1, 0, 0)
	for _, c := range stalled {
		c.send(t, "0\r\n\r\n")
	}
	for _, c := range stalled {
		c.reply(t).wantReport(t, 0, 1, 0)
	}
	testenv.WaitFor(t, "the imports to end", func() bool { return s.Handler.Used("imports") == 0 })
}

// An import reads nothing, not even a header, before its memory is counted.
func TestImportReadsNothingBeforeItsTurn(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{ReadTimeout: testenv.Timeout})
	s.Handler.WaitForTurns()
	const share = server.ImportBytes / server.WindowStep * 3 / 4
	var stalled []*connection
	for range share {
		stalled = append(stalled, s.dialImport(t, s.Token, `{"id":1,"name":"Fern"}`))
	}
	testenv.WaitFor(t, "the imports to use their share", func() bool { return s.Handler.Used("imports") == share*server.WindowStep })
	for media, body := range map[string]string{csv: "x,y\n", array: "{}"} {
		refused := make(chan reply, 1)
		go func() { refused <- s.call(t, "POST", "/import", body, media) }()
		testenv.WaitFor(t, "the import to be queued", func() bool { return s.Handler.Queued("imports") == 1 })
		stalled[0].send(t, "0\r\n\r\n")
		stalled = stalled[1:]
		if got := <-refused; got.status != http.StatusBadRequest {
			t.Errorf("%s: got %d %s", media, got.status, got.body)
		}
		stalled = append(stalled, s.dialImport(t, s.Token, `{"id":1,"name":"Fern"}`))
		testenv.WaitFor(t, "the imports to use their share again", func() bool { return s.Handler.Used("imports") == share*server.WindowStep })
	}
	for _, c := range stalled {
		c.Close()
	}
	testenv.WaitFor(t, "the imports to end", func() bool { return s.Handler.Used("imports") == 0 })
}

// A byte now and then keeps every read short, but not the import.
func TestTricklingImportIsEnded(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{ReadTimeout: 200 * time.Millisecond})
	c := s.dialImport(t, s.Token, "{")
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-tick.C:
				_, _ = c.Write([]byte("1\r\n \r\n"))
			case <-ended:
				tick.Stop()
				return
			}
		}
	}()
	c.reply(t).wantError(t, plantstore.ErrTimeout, "send it faster")
}
