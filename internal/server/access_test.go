package server_test

import (
	"strings"
	"testing"
	"time"

	"plantstore"
)

// The challenges of RFC 6750.
const (
	challenge         = `Bearer realm="plantstore"`
	invalidToken      = `Bearer realm="plantstore", error="invalid_token"`
	insufficientScope = `Bearer realm="plantstore", error="insufficient_scope"`
)

func TestCreateNeedsATokenWithTheWriteScope(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		write := []plantstore.Scope{plantstore.ScopeWrite}
		writer := s.AddToken(plantstore.Token{Scopes: write})
		reader := s.NewToken(plantstore.ScopeRead, plantstore.ScopeOps)
		lasting := s.AddToken(plantstore.Token{Scopes: write, Expires: time.Now().Add(time.Hour)})
		expired := s.AddToken(plantstore.Token{Scopes: write, Expires: time.Now().Add(-time.Hour)})
		revoked := s.AddToken(plantstore.Token{Scopes: write, Revoked: time.Now()})
		good := []string{
			"Bearer " + writer, "bearer " + writer, "BEARER " + writer, "bEaReR " + writer, "Bearer   " + writer,
			"Bearer " + writer + " ", "Bearer " + lasting, "Bearer " + s.Token,
		}
		for _, authorization := range good {
			s.create(t, `{"id":1,"name":"Fern"}`, "Authorization: "+authorization).wantPlant(t, fern(1))
		}
		s.Clear(t)
		bad := []struct {
			header    []string
			code      plantstore.Code
			challenge string
		}{
			{[]string{"Authorization:"}, plantstore.ErrNoToken, challenge},
			{[]string{"Authorization: "}, plantstore.ErrNoToken, challenge},
			{[]string{"Authorization: Basic cGxhbnQ6c3RvcmU="}, plantstore.ErrNoToken, challenge},
			{[]string{"Authorization: " + writer}, plantstore.ErrNoToken, challenge},
			{[]string{"Authorization: Bearer" + writer}, plantstore.ErrNoToken, challenge},
			{[]string{"Authorization: Token " + writer}, plantstore.ErrNoToken, challenge},
			{[]string{"Authorization:", "Proxy-Authorization: Bearer " + writer}, plantstore.ErrNoToken, challenge},
			{[]string{"Authorization:", "Cookie: access_token=" + writer}, plantstore.ErrNoToken, challenge},
			{[]string{"Authorization: Bearer"}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Bearer ,"}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Bearer " + plantstore.NewSecret()}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Bearer unknown"}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Bearer plt_short"}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Bearer " + writer[:len(writer)-1]}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Bearer " + writer + "x"}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Bearer " + strings.ToLower(writer)}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Bearer " + writer + " " + writer}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Bearer " + writer + ", Bearer " + writer}, plantstore.ErrBadToken, invalidToken},
			{[]string{`Authorization: Bearer "` + writer + `"`}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Bearer tökén"}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Bearer " + writer, "Authorization: Bearer " + writer}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Basic cGxhbnQ6c3RvcmU=", "Authorization: Bearer " + writer}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Bearer " + revoked}, plantstore.ErrBadToken, invalidToken},
			{[]string{"Authorization: Bearer " + expired}, plantstore.ErrTokenExpired, invalidToken},
			{[]string{"Authorization: Bearer " + reader}, plantstore.ErrScope, insufficientScope},
		}
		for _, tt := range bad {
			got := s.create(t, `{"id":1,"name":"Fern"}`, tt.header...)
			got.wantError(t, tt.code)
			got.wantHeader(t, "WWW-Authenticate", tt.challenge)
		}
		s.wantStored(t)
	})
}

func TestTokenInTheQueryIsIgnored(t *testing.T) {
	t.Parallel()
	s := startDefault(t)
	got := s.send(t, "POST", s.plantsPath()+"?access_token="+s.Token, `{"id":1,"name":"Fern"}`, "Content-Type: application/json")
	got.wantError(t, plantstore.ErrNoToken)
	got.wantHeader(t, "WWW-Authenticate", challenge)
	s.wantStored(t)
}

func TestTokenIsCheckedBeforeTheBody(t *testing.T) {
	t.Parallel()
	s := startDefault(t)
	reader := s.NewToken(plantstore.ScopeRead)
	for _, tt := range []struct{ body, media string }{
		{``, "application/json"},
		{`{`, "application/json"},
		{`{"id":1}`, "application/json"},
		{`{"id":1,"name":"Fern"}`, "text/plain"},
	} {
		s.create(t, tt.body, "Authorization:", "Content-Type: "+tt.media).wantError(t, plantstore.ErrNoToken, "Authorization: Bearer")
		s.create(t, tt.body, "Authorization: Bearer "+reader, "Content-Type: "+tt.media).
			wantError(t, plantstore.ErrScope, "plants:write", "plants:read")
	}
}

func TestOnlyARefusedTokenGetsAChallenge(t *testing.T) {
	t.Parallel()
	s := startDefault(t)
	for _, body := range []string{`{"id":1,"name":"Fern"}`, `{`, `{"id":1,"name":"Oak"}`} {
		s.create(t, body).wantHeader(t, "WWW-Authenticate")
	}
	s.send(t, "GET", "/nothing", "").wantHeader(t, "WWW-Authenticate")
}

func TestNewTokenWorksImmediately(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		for range 10 {
			secret := s.NewToken(plantstore.ScopeWrite)
			s.create(t, `{"id":1,"name":"Fern"}`, "Authorization: Bearer "+secret).wantPlant(t, fern(1))
		}
	})
}
