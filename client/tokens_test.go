package client_test

import (
	"slices"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
)

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
