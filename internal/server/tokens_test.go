package server_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
)

func (s *service) getToken(t *testing.T, secret string) reply {
	t.Helper()
	return s.send(t, "GET", "/token", "", "Authorization: Bearer "+secret)
}

func TestOwnToken(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		now := time.Now().UTC().Truncate(time.Second)
		for _, tt := range []struct {
			scopes  []plantstore.Scope
			expires time.Time
		}{
			{plantstore.AllScopes(), time.Time{}},
			{[]plantstore.Scope{plantstore.ScopeOps}, now.AddDate(1, 0, 0)},
		} {
			secret := s.AddToken(plantstore.Token{Scopes: tt.scopes, Expires: tt.expires})
			got := s.getToken(t, secret)
			got.wantOK(t)
			var expires any
			if !tt.expires.IsZero() {
				expires = tt.expires.Format(time.RFC3339)
			}
			scopes := []any{}
			for _, scope := range tt.scopes {
				scopes = append(scopes, string(scope))
			}
			var body map[string]any
			decodeJSON(t, got.body, &body)
			created, _ := time.Parse(time.RFC3339, body["created"].(string))
			delete(body, "created")
			want := map[string]any{"id": plantstore.HashSecret(secret).ID(), "name": "test", "scopes": scopes, "expires": expires}
			if !reflect.DeepEqual(body, want) || now.Sub(created).Abs() > time.Minute {
				t.Errorf("got %s, want %v", got.body, want)
			}
		}
		s.getToken(t, "wrong").wantError(t, plantstore.ErrBadToken)
		s.send(t, "GET", "/token", "").wantError(t, plantstore.ErrNoToken)
		s.send(t, "POST", "/token", "").wantError(t, plantstore.ErrMethod)
	})
}

func TestOwnTokenOfAnIdentityProvider(t *testing.T) {
	issuer := startIssuer(t)
	s := start(t, oidcOptions(t, issuer))
	got := eventually(t, 200, func() reply { return s.getToken(t, issuer.Sign(nil, claims{"scope": nil})) })
	got.wantOK(t)
	var body map[string]any
	decodeJSON(t, got.body, &body)
	if body["issuer"] != issuer.URL || body["subject"] != "alice" || body["id"] != nil || body["expires"] == nil || !reflect.DeepEqual(body["scopes"], []any{}) {
		t.Errorf("got %s", got.body)
	}
	got.wantHeader(t, "Plantstore-Token-Expires")
}

// A token near its end is announced on every response, on both paths, errors included.
func TestTokenNearItsEndIsAnnounced(t *testing.T) {
	onBothPaths(t, func(t *testing.T, path string) {
		s := start(t, servertest.Options{})
		s.Fill(t, fern(1))
		const day = 24 * time.Hour
		for _, tt := range []struct {
			in        time.Duration
			announced bool
		}{{time.Minute, true}, {7*day - time.Minute, true}, {7*day + time.Minute, false}} {
			expires := time.Now().Add(tt.in).UTC().Truncate(time.Second)
			var want []string
			if tt.announced {
				want = []string{expires.Format(time.RFC3339)}
			}
			for scope, status := range map[plantstore.Scope]int{plantstore.ScopeRead: 200, plantstore.ScopeWrite: 403} {
				secret := s.AddToken(plantstore.Token{Scopes: []plantstore.Scope{scope}, Expires: expires})
				got := s.call(t, "GET", path, "", "Authorization: Bearer "+secret)
				if got.status != status {
					t.Errorf("got %d %s, want %d", got.status, got.body, status)
				}
				got.wantHeader(t, "Plantstore-Token-Expires", want...)
			}
		}
		s.call(t, "GET", path, "").wantHeader(t, "Plantstore-Token-Expires") // never expires
	})
}

func decodeJSON(t *testing.T, text []byte, value any) {
	t.Helper()
	if err := json.Unmarshal(text, value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func (s *service) tokens(t *testing.T, secret, method, path, body string) reply {
	t.Helper()
	header := []string{"Authorization: Bearer " + secret}
	if body != "" {
		header = append(header, "Content-Type: application/json")
	}
	return s.send(t, method, "/tokens"+path, body, header...)
}

// createToken creates a token that must be allowed, and returns it and its secret.
func (s *service) createToken(t *testing.T, secret, body string) (map[string]any, string) {
	t.Helper()
	got := s.tokens(t, secret, "POST", "", body)
	var token map[string]any
	decodeJSON(t, got.body, &token)
	created, _ := token["token"].(string)
	if got.status != 201 || plantstore.CheckSecret(created) != nil {
		t.Fatalf("%s: got %d %s", body, got.status, got.body)
	}
	got.wantHeader(t, "Location", s.URL+"/tokens/"+token["id"].(string))
	got.wantHeader(t, "Cache-Control", "no-store")
	return token, created
}

// withoutList is a store that does not list all tokens.
type withoutList struct{ *storetest.Model }

func (withoutList) Tokens(context.Context) ([]plantstore.Token, error) {
	return nil, errors.New("all tokens were read")
}

func TestOneTokenIsReadWithoutTheOthers(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{Store: withoutList{storetest.NewModel()}})
	token, secret := s.createToken(t, s.Token, `{"name":"ci","scopes":["plants:read"]}`)
	id := token["id"].(string)
	s.tokens(t, s.Token, "GET", "/"+id, "").wantOK(t)
	s.tokens(t, s.Token, "DELETE", "/"+id, "").wantStatus(t, 204)
	s.getToken(t, secret).wantError(t, plantstore.ErrBadToken)
	s.tokens(t, s.Token, "GET", "/none", "").wantError(t, plantstore.ErrNoTokenID)
}

func TestTokenIsCreatedListedAndRevoked(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		s.Fill(t, fern(1))
		token, secret := s.createToken(t, s.Token, `{"name":"ci","scopes":["plants:read"]}`)
		id := token["id"].(string)
		read := func() reply { return s.call(t, "GET", "/1", "", "Authorization: Bearer "+secret) }
		read().wantOK(t) // immediately
		s.tokens(t, s.Token, "GET", "/"+id, "").wantOK(t)
		list := s.tokens(t, s.Token, "GET", "", "")
		list.wantOK(t)
		var all []map[string]any
		decodeJSON(t, list.body, &all)
		if len(all) != 2 || all[1]["id"] != id || all[1]["name"] != "ci" || all[1]["token"] != nil || strings.Contains(string(list.body), "plt_") {
			t.Errorf("the list is %s", list.body)
		}
		for range 2 {
			s.tokens(t, s.Token, "DELETE", "/"+id, "").wantStatus(t, 204)
		}
		revoked := time.Now()
		eventually(t, 401, func() reply {
			asked := time.Now()
			got := read()
			if late := asked.Sub(revoked); got.status == 200 && late > 2*time.Second {
				t.Fatalf("a request %v after the revocation was served", late)
			}
			return got
		}).wantError(t, plantstore.ErrBadToken, "revoked")
		var one map[string]any
		decodeJSON(t, s.tokens(t, s.Token, "GET", "/"+id, "").body, &one)
		if one["revoked"] == nil {
			t.Errorf("the token is %v", one)
		}
		for _, unknown := range []string{"000000000000", "x", id + "0"} {
			s.tokens(t, s.Token, "GET", "/"+unknown, "").wantError(t, plantstore.ErrNoTokenID)
			s.tokens(t, s.Token, "DELETE", "/"+unknown, "").wantError(t, plantstore.ErrNoTokenID)
		}
	})
}

// The server may know a revoked token for up to two seconds, the store does not.
func TestRevokedTokenChangesNeitherTokensNorWebhooks(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		own := s.AddToken(plantstore.Token{Scopes: plantstore.AllScopes()})
		other, _ := s.createToken(t, own, `{"name":"other","scopes":["plants:read"]}`)
		var hook struct{ ID string }
		decodeJSON(t, s.as(t, own, "POST", "/webhooks", `{"url":"https://example.com"}`, "Content-Type: application/json").body, &hook)
		if err := s.Store.RevokeToken(t.Context(), plantstore.HashSecret(own), time.Now(), plantstore.Actor{Name: plantstore.Operator}); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct{ method, path, body string }{
			{"POST", "/tokens", `{"name":"more","scopes":["plants:read"]}`},
			{"DELETE", "/tokens/" + other["id"].(string), ""},
			{"POST", "/webhooks", `{"url":"https://example.com"}`},
			{"PUT", "/webhooks/" + hook.ID, `{"url":"https://example.com/other"}`},
			{"POST", "/webhooks/" + hook.ID + "/rotate", ""},
			{"POST", "/webhooks/" + hook.ID + "/pause", ""},
			{"POST", "/webhooks/" + hook.ID + "/retry", ""},
			{"POST", "/webhooks/" + hook.ID + "/resume", ""},
			{"POST", "/webhooks/" + hook.ID + "/replay", `{"after":"latest"}`},
			{"POST", "/webhooks/" + hook.ID + "/test", ""},
			{"DELETE", "/webhooks/" + hook.ID, ""},
			{"DELETE", "/tokens/000000000000", ""},
			{"DELETE", "/tokens/" + plantstore.HashSecret(own).ID(), ""},
			{"PUT", "/webhooks/wh_0", `{"url":"https://example.com/other"}`},
			{"POST", "/webhooks/wh_0/rotate", ""},
			{"POST", "/webhooks/wh_0/pause", ""},
			{"POST", "/webhooks/wh_0/test", ""},
			{"DELETE", "/webhooks/wh_0", ""},
		} {
			var header []string
			if tt.body != "" {
				header = []string{"Content-Type: application/json"}
			}
			got := s.as(t, own, tt.method, tt.path, tt.body, header...)
			if got.status != 401 || !strings.Contains(string(got.body), `{"error":40102,"message":"the token has been revoked: ask for a new one"}`) {
				t.Errorf("%s %s: %d %s, want 401", tt.method, tt.path, got.status, got.body)
			}
		}
	})
}

func TestLastTokenThatCreatesOthersStays(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		own := plantstore.HashSecret(s.Token).ID()
		s.AddToken(plantstore.Token{Scopes: plantstore.AllScopes(), Revoked: time.Now()})
		s.AddToken(plantstore.Token{Scopes: plantstore.AllScopes(), Expires: time.Now().Add(-time.Hour)})
		s.createToken(t, s.Token, `{"name":"reader","scopes":["tokens:read"]}`)
		s.tokens(t, s.Token, "DELETE", "/"+own, "").wantError(t, plantstore.ErrLastToken, "the last one with the scope tokens:write")
		_, other := s.createToken(t, s.Token, `{"name":"admin","scopes":["tokens:write","tokens:read"]}`)
		s.tokens(t, s.Token, "DELETE", "/"+own, "").wantStatus(t, 204) // revoking your own token works
		s.tokens(t, other, "DELETE", "/"+plantstore.HashSecret(other).ID(), "").wantError(t, plantstore.ErrLastToken)
	})
}

// Whoever has tokens:write may give what they have, and nobody else may give anything. TestGrant
// has every pair of sets.
func TestNobodyGivesAwayAScopeThatTheyDoNotHave(t *testing.T) {
	s := start(t, servertest.Options{})
	const read, write, create = plantstore.ScopeRead, plantstore.ScopeWrite, plantstore.ScopeTokensWrite
	for _, tt := range []struct {
		own, asked []plantstore.Scope
		want       int // a status or an error
	}{
		{[]plantstore.Scope{read, create}, []plantstore.Scope{read}, 201},
		{[]plantstore.Scope{read, create}, []plantstore.Scope{read, create}, 201},
		{[]plantstore.Scope{read, create}, []plantstore.Scope{read, write}, 40302},
		{[]plantstore.Scope{read, create}, plantstore.AllScopes(), 40302},
		{plantstore.AllScopes(), plantstore.AllScopes(), 201},
		{[]plantstore.Scope{read, write}, []plantstore.Scope{read}, 40301},
	} {
		text, err := json.Marshal(tt.asked)
		if err != nil {
			t.Fatal(err)
		}
		got := s.tokens(t, s.NewToken(tt.own...), "POST", "", `{"name":"x","scopes":`+string(text)+`}`)
		var body struct {
			Error  int
			Scopes []plantstore.Scope
		}
		decodeJSON(t, got.body, &body)
		if cmp.Or(body.Error, got.status) != tt.want || tt.want == 201 && !slices.Equal(body.Scopes, tt.asked) {
			t.Errorf("%v asked for %v: got %d %s, want %d", tt.own, tt.asked, got.status, got.body, tt.want)
		}
	}
}

func TestNobodyGivesAwayALifetimeThatTheyDoNotHave(t *testing.T) {
	const day = 24 * time.Hour
	s := startDefault(t)
	now := time.Now().UTC().Truncate(time.Second)
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	for _, tt := range []struct {
		own   time.Duration // 0 is never
		asked string        // the member, with its comma
		want  any           // a lifetime, nil for never, or a code
	}{
		{0, "", 90 * day},
		{0, `,"expires":null`, nil},
		{0, `,"expires":"` + at(1000*day) + `"`, 1000 * day},
		{0, `,"expires":"` + at(-time.Second) + `"`, plantstore.ErrParameter},
		{10 * day, "", 10 * day},
		{100 * day, "", 90 * day},
		{10 * day, `,"expires":null`, plantstore.ErrPrivilege},
		{10 * day, `,"expires":"` + at(10*day) + `"`, 10 * day},
		{10 * day, `,"expires":"` + at(9*day) + `"`, 9 * day},
		{10 * day, `,"expires":"` + at(10*day+time.Second) + `"`, plantstore.ErrPrivilege},
	} {
		own := plantstore.Token{Scopes: plantstore.AllScopes()}
		if tt.own != 0 {
			own.Expires = now.Add(tt.own)
		}
		secret := s.AddToken(own)
		body := `{"name":"x","scopes":["plants:read"]` + tt.asked + `}`
		if code, refused := tt.want.(plantstore.Code); refused {
			s.tokens(t, secret, "POST", "", body).wantError(t, code)
			continue
		}
		token, _ := s.createToken(t, secret, body)
		if tt.want == nil {
			if token["expires"] != nil {
				t.Errorf("%s: got %v, want never", body, token["expires"])
			}
			continue
		}
		expires, err := time.Parse(time.RFC3339, token["expires"].(string))
		if late := expires.Sub(now.Add(tt.want.(time.Duration))); err != nil || late < 0 || late > time.Minute {
			t.Errorf("with %v left, %s: got %v, want %v", tt.own, body, token["expires"], tt.want)
		}
	}
}

func TestMalformedNewTokenIsRefused(t *testing.T) {
	s := startDefault(t)
	for body, code := range map[string]plantstore.Code{
		``:  plantstore.ErrNotJSON,
		`{`: plantstore.ErrNotJSON,
		`{"name":"a","name":"b","scopes":["plants:read"]}`: plantstore.ErrNotJSON,
		`[]`:                                     plantstore.ErrNotObject,
		`{}`:                                     plantstore.ErrMissing,
		`{"name":"x"}`:                           plantstore.ErrMissing,
		`{"scopes":["plants:read"]}`:             plantstore.ErrMissing,
		`{"name":1,"scopes":["plants:read"]}`:    plantstore.ErrType,
		`{"name":null,"scopes":["plants:read"]}`: plantstore.ErrType,
		`{"name":" ","scopes":["plants:read"]}`:  plantstore.ErrParameter,
		`{"name":"` + strings.Repeat("x", 201) + `","scopes":["plants:read"]}`:  plantstore.ErrParameter,
		`{"name":"x","scopes":"plants:read"}`:                                   plantstore.ErrType,
		`{"name":"x","scopes":[1]}`:                                             plantstore.ErrType,
		`{"name":"x","scopes":[]}`:                                              plantstore.ErrParameter,
		`{"name":"x","scopes":["plants:fly"]}`:                                  plantstore.ErrParameter,
		`{"name":"x","scopes":["plants:read,plants:write"]}`:                    plantstore.ErrParameter,
		`{"name":"x","scopes":["plants:read","plants:read"]}`:                   plantstore.ErrParameter,
		`{"name":"x","scopes":["*"]}`:                                           plantstore.ErrParameter,
		`{"name":"x","scopes":["plants:read"],"expires":1}`:                     plantstore.ErrType,
		`{"name":"x","scopes":["plants:read"],"expires":"soon"}`:                plantstore.ErrParameter,
		`{"name":"x","scopes":["plants:read"],"expires":"2100-01-31T1:00:00Z"}`: plantstore.ErrParameter,
		`{"name":"x","scopes":["plants:read"],"expire":null}`:                   plantstore.ErrParameter,
	} {
		got := s.send(t, "POST", "/tokens", body, "Authorization: Bearer "+s.Token, "Content-Type: application/json")
		got.wantError(t, code)
	}
}
