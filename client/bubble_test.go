package client_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
)

// inBubble runs a test with simulated time and a server on the model of a store.
func inBubble(t *testing.T, test func(t *testing.T, s *bubbleServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := servertest.NewPipes()
		test(t, &bubbleServer{servertest.Start(t, servertest.Options{
			Store: storetest.NewModel(), Listener: network, BaseURL: servertest.URL("/v1"),
		}), network})
	})
}

type bubbleServer struct {
	*servertest.Server
	network *servertest.Pipes
}

// client returns a client whose transports are wrapped by around, if that is not nil.
func (s *bubbleServer) client(t *testing.T, opts client.Options, around func(http.RoundTripper) http.RoundTripper) *client.Client {
	t.Helper()
	return dialingClient(t, s.network, s.URL, s.Token, opts, around)
}

// dialingClient returns a client of a server in memory.
func dialingClient(t *testing.T, network *servertest.Pipes, baseURL, token string, opts client.Options, around func(http.RoundTripper) http.RoundTripper) *client.Client {
	t.Helper()
	c, err := client.New(baseURL, token, opts)
	if err != nil {
		t.Fatal(err)
	}
	c.DialWith(network.Dial)
	if around != nil {
		c.Wrap(around)
	}
	return c
}

// withFake runs a test with simulated time and a server that is only a handler.
func withFake(t *testing.T, handler http.HandlerFunc, opts client.Options, test func(t *testing.T, c *client.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := servertest.NewPipes()
		web := &http.Server{Handler: handler}
		go web.Serve(network)
		defer web.Close()
		c := dialingClient(t, network, "http://plants.test", secret, opts, nil)
		defer c.CloseIdleConnections()
		test(t, c)
	})
}

// secret is the token for fake servers.
var secret = plantstore.NewSecret()
