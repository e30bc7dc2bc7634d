package abuse

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"plantstore"
	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// Whoever may create webhooks cannot make the server call into its own network.
func TestWebhooksDoNotReachOurNetwork(t *testing.T) {
	addr, count := testenv.CountConnections(t)
	_, port, _ := net.SplitHostPort(addr)
	s := harness.Start(t, "--webhook-allow", "127.0.0.0/8")
	c := s.Client(client.Options{})
	stored, _, err := c.CreateWebhook(t.Context(), plantstore.Webhook{URL: "http://127.0.0.1:" + port}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.TestWebhook(t.Context(), stored.ID); err != nil || count.Load() != 1 {
		t.Fatalf("%d connections were made to what is allowed, %v", count.Load(), err)
	}
	s.Stop()
	count.Store(0)

	// An endpoint outside, as far as the server knows.
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	outside := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.RedirectHandler("http://127.0.0.1:"+port, http.StatusTemporaryRedirect)}}
	outside.Start()
	defer outside.Close()
	s.Flags = []string{"--webhook-allow", "127.0.0.2/32"}
	s.Env = []string{"HTTP_PROXY=http://127.0.0.1:" + port, "HTTPS_PROXY=http://127.0.0.1:" + port, "NO_PROXY="}
	s.Run()
	c = s.Client(client.Options{})
	for _, host := range []string{
		"127.0.0.1", "localhost", "LOCALHOST.", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]", "127.1", "2130706433", "0x7f.1",
		"[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]", "user@127.0.0.1", "169.254.169.254", "10.0.0.1",
	} {
		for _, scheme := range []string{"http://", "https://"} {
			_, _, err := c.CreateWebhook(t.Context(), plantstore.Webhook{URL: scheme + host + ":" + port}, "")
			if !errors.Is(err, plantstore.ErrParameter) {
				t.Errorf("%s%s: got %v, want that it is refused", scheme, host, err)
			}
		}
	}
	redirecting, _, err := c.CreateWebhook(t.Context(), plantstore.Webhook{URL: outside.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), plantstore.Plant{ID: 1, Name: "Fern"}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{stored.ID: "127.0.0.1 is not a public address", redirecting.ID: "307"} {
		testenv.Eventually(t, func() error {
			attempts, err := c.Deliveries(t.Context(), id)
			if err != nil || len(attempts) == 0 || !strings.Contains(fmt.Sprint(attempts[0].Status, attempts[0].Error), want) {
				return fmt.Errorf("got the attempts %+v, %v, want %q", attempts, err, want)
			}
			return nil
		})
	}
	if n := count.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}
