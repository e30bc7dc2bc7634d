package webhook

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
)

func TestURLsThatNameOurNetworkAreRefused(t *testing.T) {
	var g guard
	for _, url := range []string{
		"https://127.0.0.1/hook", "https://127.1.2.3", "https://10.0.0.1", "https://172.16.0.1", "https://192.168.1.1",
		"https://169.254.169.254/latest/meta-data", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:10.0.0.1]/",
		"https://0.0.0.0/", "https://[::]/", "https://[fe80::1]/", "https://[fc00::1]/", "https://[fd12:3456::1]/", "https://224.0.0.1/",
		"https://255.255.255.255/", "https://100.64.0.1/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/",
		"https://localhost/", "https://LOCALHOST.:8443/", "https://app.localhost/", "http://example.com/", "http://1.1.1.1/",
	} {
		if err := g.checkURL(url); err == nil {
			t.Errorf("%s is allowed", url)
		}
	}
	for _, url := range []string{"https://example.com/hook", "https://1.1.1.1/", "https://[2606:4700::1111]/", "https://example.com:8443/"} {
		if err := g.checkURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	open := guard{[]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for url, want := range map[string]bool{
		"http://127.0.0.1:3000/": true, "https://127.0.0.1/": true, "http://localhost:3000/": true, "http://[::ffff:127.0.0.1]/": true,
		"http://10.0.0.1/": false, "http://1.1.1.1/": false, "https://[::1]/": false,
	} {
		if err := open.checkURL(url); (err == nil) != want {
			t.Errorf("%s with 127.0.0.0/8 allowed: %v", url, err)
		}
	}
}

// listen counts the connections to a loopback address.
func listen(t *testing.T) (addr string, count *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	count = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			c.Close()
		}
	}()
	return l.Addr().String(), count
}

// Names are checked by what they resolve to, when the connection is made.
func TestClientDoesNotConnectToOurNetwork(t *testing.T) {
	addr, count := listen(t)
	_, port, _ := net.SplitHostPort(addr)
	client := guard{}.newClient()
	for _, url := range []string{
		"http://127.0.0.1:" + port, "https://127.0.0.1:" + port, "https://localhost:" + port, "https://[::ffff:127.0.0.1]:" + port,
		"https://0.0.0.0:" + port, "http://localhost:" + port,
	} {
		response, err := client.Get(url)
		if err == nil {
			response.Body.Close()
		}
		if !errors.Is(err, errRefused) {
			t.Errorf("%s: %v", url, err)
		}
	}
	if n := count.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

func TestClientFollowsNoRedirect(t *testing.T) {
	addr, count := listen(t)
	server := httptest.NewServer(http.RedirectHandler("http://"+addr+"/", http.StatusTemporaryRedirect))
	defer server.Close()
	client := guard{[]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}.newClient()
	response, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusTemporaryRedirect || count.Load() != 0 {
		t.Errorf("got %d, and %d connections to where it points", response.StatusCode, count.Load())
	}
	client.CloseIdleConnections()
}

// The environment's proxy would see what is sent, and reach what we may not.
func TestClientUsesNoProxy(t *testing.T) {
	addr, count := listen(t)
	t.Setenv("HTTPS_PROXY", "http://"+addr)
	t.Setenv("HTTP_PROXY", "http://"+addr)
	if response, err := (guard{}).newClient().Get("https://203.0.113.1/"); err == nil {
		response.Body.Close()
	}
	if n := count.Load(); n != 0 {
		t.Errorf("%d connections to the proxy", n)
	}
}
