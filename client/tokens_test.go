package client_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
)

func TestTokensOverTheClient(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	newClient := func(secret string, opts client.Options) *client.Client {
		c, err := client.New(s.URL, secret, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	admin := newClient(s.Token, client.Options{})
	ends := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	token, secret, err := admin.CreateToken(t.Context(), plantstore.NewToken{Name: "ci", Scopes: []plantstore.Scope{plantstore.ScopeRead}, Expires: ends})
	if err != nil || token.Name != "ci" || !token.Expires.Equal(ends) {
		t.Fatalf("CreateToken: %+v, %v", token, err)
	}
	var announced time.Time
	reader := newClient(secret, client.Options{TokenExpires: func(at time.Time) { announced = at }})
	own, err := reader.Token(t.Context())
	if err != nil || own.ID != token.ID || !announced.Equal(ends) {
		t.Errorf("Token: %+v, %v; it announced %v", own, err, announced)
	}
	if _, _, err := reader.CreateToken(t.Context(), plantstore.NewToken{Name: "x", Scopes: own.Scopes}); !errors.Is(err, plantstore.ErrScope) {
		t.Errorf("without the scope: %v", err)
	}
	for range 2 {
		if err := admin.RevokeToken(t.Context(), token.ID); err != nil {
			t.Errorf("RevokeToken: %v", err)
		}
	}
	tokens, err := admin.Tokens(t.Context())
	if err != nil || len(tokens) != 2 || tokens[1].ID != token.ID || tokens[1].Revoked.IsZero() {
		t.Errorf("Tokens: %+v, %v", tokens, err)
	}
	if err := admin.RevokeToken(t.Context(), "no/such"); !errors.Is(err, plantstore.ErrNoTokenID) {
		t.Errorf("an unknown id: %v", err)
	}
	if err := admin.RevokeToken(t.Context(), tokens[0].ID); !errors.Is(err, plantstore.ErrLastToken) {
		t.Errorf("the last token: %v", err)
	}
}

func TestEveryKindOfResponseAnnouncesWhenTheTokenExpires(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	admin := s.Client(client.Options{})
	must(admin.Create(t.Context(), oak))
	ends := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	_, secret, err := admin.CreateToken(t.Context(), plantstore.NewToken{
		Name: "ci", Scopes: []plantstore.Scope{plantstore.ScopeRead, plantstore.ScopeWrite, plantstore.ScopeEvents}, Expires: ends,
	})
	must(err)
	for name, call := range map[string]func(*client.Client) error{
		"a call": func(c *client.Client) error {
			_, err := c.Token(t.Context())
			return err
		},
		"an export": func(c *client.Client) error {
			_, err := collect(c.Export(t.Context(), plantstore.Query{}))
			return err
		},
		"an import": func(c *client.Client) error {
			_, err := c.Import(t.Context(), slices.Values([]plantstore.Plant{oak}))
			return err
		},
		"a stream of events": func(c *client.Client) error {
			_, err := take(t.Context(), c, plantstore.EventQuery{}, 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var announced time.Time
			c, err := client.New(s.URL, secret, client.Options{TokenExpires: func(at time.Time) { announced = at }})
			must(err)
			defer c.CloseIdleConnections()
			if err := call(c); err != nil || !announced.Equal(ends) {
				t.Errorf("it announced %v, %v, want %v", announced, err, ends)
			}
		})
	}
}
