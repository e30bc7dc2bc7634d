package server_test

import (
	"reflect"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/rules"
	"plantstore/internal/servertest"
	"plantstore/internal/testenv"
)

func TestAbout(t *testing.T) {
	servertest.OnEveryStore(t, func(t *testing.T, one *servertest.Server) {
		s := newService(t, one)
		s.Fill(t, plantstore.Plant{ID: 1}, plantstore.Plant{ID: 2})
		about, err := s.Client(client.Options{}).About(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(about.Started).Abs() > time.Minute || about.Bytes < 4096 {
			t.Errorf("started %v, with %d bytes", about.Started, about.Bytes)
		}
		if l := about.Log; l == nil || l.Events < 2 || l.Bytes < 50 || time.Since(l.Oldest).Abs() > time.Minute {
			t.Errorf("the log is %+v", l)
		}
		if x := about.SearchIndex; x == nil || *x != (plantstore.SearchIndex{State: plantstore.SearchOff}) {
			t.Errorf("the index of names is %+v", x)
		}
		about.Started, about.Bytes, about.Log, about.SearchIndex = time.Time{}, 0, nil, nil
		store := plantstore.StorePostgres
		if t.Name() == "TestAbout/sqlite" {
			store = plantstore.StoreSQLite
		}
		want := plantstore.About{
			Version: "test", Interface: "1.0.0", Store: store, Plants: new(int64(2)),
			Limits: plantstore.Limits{
				MaxBody: 1 << 20, MaxHeader: 32 << 10, MaxPageSize: 1000, MaxTokenName: 200, MaxTokens: 10_000, MaxWebhooks: 100,
				LogKeep: 7 * 24 * time.Hour, LogMaxBytes: 1 << 30,
			},
		}
		if !reflect.DeepEqual(about, want) {
			t.Errorf("got %+v, want %+v", about, want)
		}
	})
}

func TestAboutIsForEveryTokenAndItsFiguresForSome(t *testing.T) {
	rate := plantstore.Rate{N: 1000, Burst: 2000, Per: time.Second}
	s := start(t, servertest.Options{RateLimit: rate})
	for _, scope := range plantstore.AllScopes() {
		got := s.send(t, "GET", "/about", "", "Authorization: Bearer "+s.NewToken(scope))
		got.wantOK(t)
		var body struct {
			Plants, Bytes *int
			Started       string
			Log           *struct{ Events, Bytes int }
			SearchIndex   *struct{ Plants int } `json:"search_index"`
			Limits        struct {
				RateLimit string `json:"rate_limit"`
			}
		}
		decodeJSON(t, got.body, &body)
		operates := scope == plantstore.ScopeOps
		if (body.Started != "") != operates || (body.Bytes != nil) != operates || (body.Log != nil) != operates || (body.SearchIndex != nil) != operates {
			t.Errorf("%s: got %s", scope, got.body)
		}
		if (body.Plants != nil) != (scope == plantstore.ScopeRead) || body.Limits.RateLimit != rate.String() {
			t.Errorf("%s: got %s", scope, got.body)
		}
	}
	s.send(t, "GET", "/about", "").wantError(t, plantstore.ErrNoToken)
	s.send(t, "GET", "/about", "", "Authorization: Bearer wrong").wantError(t, plantstore.ErrBadToken)
}

func TestSearchIndexIsBuiltAndShown(t *testing.T) {
	for kind, opts := range map[string]servertest.Options{
		plantstore.StoreSQLite:   {SearchIndex: rules.IndexOn},
		plantstore.StorePostgres: {SearchIndex: rules.IndexOn, Store: servertest.Postgres(t)},
	} {
		t.Run(kind, func(t *testing.T) {
			s := start(t, opts)
			s.Fill(t, plantstore.Plant{ID: 1, Name: "Monstera deliciosa"}, plantstore.Plant{ID: 2, Name: "Ficus"})
			api := s.Client(client.Options{})
			testenv.WaitFor(t, "the index of names", func() bool {
				about, err := api.About(t.Context())
				return err == nil && *about.SearchIndex == plantstore.SearchIndex{State: plantstore.SearchReady, Plants: 2}
			})
			s.wantMetrics(t, "plantstore_search_index_plants 2", `plantstore_search_index_state{state="ready"} 1`, `plantstore_search_index_state{state="off"} 0`)
			page, err := api.Page(t.Context(), plantstore.Query{Contains: "STERA"})
			if err != nil || len(page.Plants) != 1 || page.Plants[0].ID != 1 || page.Next != nil {
				t.Errorf("found %+v, %v", page, err)
			}
		})
	}
}
