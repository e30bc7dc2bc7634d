package client_test

import (
	"net/http"
	"testing"

	"plantstore/client"
	"plantstore/internal/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// start starts a server for one test.
func start(t *testing.T) *servertest.Server {
	t.Helper()
	return servertest.Start(t, servertest.Options{BaseURL: servertest.URL("/v1")})
}

// newClient returns a client for one test.
func newClient(t *testing.T, baseURL, token string, opts client.Options) *client.Client {
	t.Helper()
	c, err := client.New(baseURL, token, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// roundTrip is a transport made of a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
