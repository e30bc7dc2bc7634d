package client_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
)

// pipes is a listener in memory, for tests with simulated time. Its dial connects to
// it.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes {
	return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed:
		return nil, errRefused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// errRefused is the error of a refused connection.
var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "plants.test" }

// inBubble runs a test with simulated time and a server on the model of a store.
func inBubble(t *testing.T, test func(t *testing.T, s *bubbleServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		test(t, &bubbleServer{servertest.Start(t, servertest.Options{
			Store: storetest.NewModel(), Listener: network, BaseURL: "/v1",
		}), network})
	})
}

type bubbleServer struct {
	*servertest.Server
	network *pipes
}

// client returns a client whose transports are wrapped by around, if that is not nil.
func (s *bubbleServer) client(t *testing.T, opts client.Options, around func(http.RoundTripper) http.RoundTripper) *client.Client {
	t.Helper()
	return s.network.client(t, s.URL, s.Token, opts, around)
}

func (p *pipes) client(t *testing.T, baseURL, token string, opts client.Options, around func(http.RoundTripper) http.RoundTripper) *client.Client {
	t.Helper()
	c, err := client.New(baseURL, token, opts)
	if err != nil {
		t.Fatal(err)
	}
	c.DialWith(p.dial)
	if around != nil {
		c.Wrap(around)
	}
	return c
}

// withFake runs a test with simulated time and a server that is only a handler.
func withFake(t *testing.T, handler http.HandlerFunc, opts client.Options, test func(t *testing.T, c *client.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		web := &http.Server{Handler: handler}
		go web.Serve(network)
		defer web.Close()
		c := network.client(t, "http://plants.test", secret, opts, nil)
		defer c.CloseIdleConnections()
		test(t, c)
	})
}

// secret is the token for fake servers.
var secret = plantstore.NewSecret()
