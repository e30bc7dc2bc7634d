package server_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/servertest"
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
