package webhook

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"

	"plantstore/internal/testenv"
)

func TestURLsThatNameOurNetworkAreRefused(t *testing.T) {
	var e egress
	for _, url := range []string{
		"https://127.0.0.1/hook", "https://127.1.2.3", "https://10.0.0.1", "https://172.16.0.1", "https://192.168.1.1",
		"https://169.254.169.254/latest/meta-data", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:10.0.0.1]/",
		"https://0.0.0.0/", "https://[::]/", "https://[fe80::1]/", "https://[fc00::1]/", "https://[fd12:3456::1]/", "https://224.0.0.1/",
		"https://255.255.255.255/", "https://100.64.0.1/", "https://192.0.0.192/", "https://198.18.0.1/", "https://[ff02::1]/", "https://[fec0::1]/",
		// IPv6 addresses with an IPv4 address in them: mapped, compatible, translated, NAT64, 6to4, Teredo.
		"https://[::ffff:7f00:1]/", "https://[::127.0.0.1]/", "https://[::ffff:0:127.0.0.1]/", "https://[64:ff9b::7f00:1]/",
		"https://[64:ff9b:1::a00:1]/", "https://[2002:7f00:1::]/", "https://[2001:0:7f00:1::]/", "https://[3fff::1]/", "https://[5f00::1]/",
		"https://[fe80::1%25eth0]/", "https://[::1%25lo]/", "https://[::ffff:127.0.0.1%25lo]/",
		// What other programs read as an IPv4 address.
		"https://2130706433/", "https://0x7f000001/", "https://0x7f.1/", "https://127.1/", "https://0177.0.0.1/", "https://127.0.0.1./", "https://0/",
		"https://1.2.3.4.5/", "https://example.0xA./",
		"https://localhost/", "https://LOCALHOST.:8443/", "https://app.localhost/", "http://example.com/", "http://1.1.1.1/",
	} {
		if err := e.checkURL(url); err == nil {
			t.Errorf("%s is allowed", url)
		}
	}
	for _, url := range []string{"https://example.com/hook", "https://1.1.1.1/", "https://[2606:4700::1111]/", "https://example.com:8443/", "https://example.com./", "https://3com.example/", "https://0xa.example/", "https://xn--bcher-kva.example/"} {
		if err := e.checkURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	open := egress{allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for url, want := range map[string]bool{
		"http://127.0.0.1:3000/": true, "https://127.0.0.1/": true, "http://localhost:3000/": true, "http://[::ffff:127.0.0.1]/": true,
		"http://10.0.0.1/": false, "http://1.1.1.1/": false, "https://[::1]/": false,
	} {
		if err := open.checkURL(url); (err == nil) != want {
			t.Errorf("%s with 127.0.0.0/8 allowed: %v", url, err)
		}
	}
}

// get sends a request, and returns the status of the response, if there is one.
func get(client *http.Client, url string) (int, error) {
	response, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// What a URL spells in an odd way is refused when the connection is made, whatever was
// allowed to be stored.
func TestClientDoesNotConnectToOurNetwork(t *testing.T) {
	addr, count := testenv.CountConnections(t)
	_, port, _ := net.SplitHostPort(addr)
	client := egress{resolver: resolver(t, func(string) []string { return []string{"127.0.0.1"} })}.newClient(defaultDelays.Attempt)
	for _, host := range []string{
		"127.0.0.1", "127.1.2.3", "localhost", "LOCALHOST", "localhost.", "0.0.0.0", "[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
		"[::ffff:127.0.0.1%25lo]", "[::1%25lo]", "[fe80::1%25lo]", "169.254.169.254", "user:password@127.0.0.1", "１２７.0.0.1", "127。0。0。1",
		"2130706433", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "127.0.0.1.", // names, which may not exist
		"internal.example", "internal.example.",
	} {
		for _, scheme := range []string{"http://", "https://"} {
			_, err := get(client, scheme+host+":"+port)
			if unknown, ok := errors.AsType[*net.DNSError](err); !errors.Is(err, errRefused) && (!ok || !unknown.IsNotFound) {
				t.Errorf("%s%s: %v", scheme, host, err)
			}
		}
	}
	if n := count.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

// A public address may be called by https only, so the dialer has to know the scheme.
func TestDialerKnowsTheScheme(t *testing.T) {
	client := egress{}.newClient(defaultDelays.Attempt)
	transport := client.Transport.(schemeTransport).Transport
	errDialed := errors.New("dialed")
	var got any
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		got = ctx.Value(schemeKey{})
		return nil, errDialed
	}
	for _, scheme := range []string{"http", "https"} {
		if _, err := get(client, scheme+"://203.0.113.1"); !errors.Is(err, errDialed) || got != scheme {
			t.Errorf("%s: the dialer got %v, %v", scheme, got, err)
		}
	}
}

// A name is checked by the address that is connected to, each time.
func TestClientIsNotFooledByDNS(t *testing.T) {
	addr, count := testenv.CountConnections(t)
	_, port, _ := net.SplitHostPort(addr)
	l, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Fatal(err)
	}
	var reached atomic.Bool
	public := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Store(true)
		w.Header().Set("Connection", "close") // the next request resolves the name again
	})}
	go public.Serve(l)
	defer public.Close()

	e := egress{
		allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, // stands for a public address
		resolver: resolver(t, func(name string) []string {
			switch {
			case name == "both.example.":
				return []string{"127.0.0.1", "127.0.0.2"}
			case !reached.Load():
				return []string{"127.0.0.2"}
			}
			return []string{"127.0.0.1"}
		}),
	}
	if err := e.checkURL("http://changing.example:" + port); err != nil {
		t.Fatal(err)
	}
	client := e.newClient(defaultDelays.Attempt)
	if status, err := get(client, "http://changing.example:"+port); status != 200 {
		t.Fatalf("the first answer: got %d, %v", status, err)
	}
	for range 3 {
		if _, err := get(client, "http://changing.example:"+port); !errors.Is(err, errRefused) {
			t.Errorf("another answer: got %v", err)
		}
	}
	if status, err := get(client, "http://both.example:"+port); status != 200 {
		t.Errorf("two addresses: got %d, %v", status, err)
	}
	if n := count.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

// resolver returns a resolver that asks a name server with these IPv4 addresses.
func resolver(t *testing.T, addresses func(name string) []string) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		query := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(query)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(respondDNS(query[:n], addresses), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// respondDNS returns the response to a query for one name.
func respondDNS(query []byte, addresses func(name string) []string) []byte {
	name, at := "", 12 // after the header
	for ; query[at] != 0; at += 1 + int(query[at]) {
		name += string(query[at+1:at+1+int(query[at])]) + "."
	}
	isA := query[at+2] == 1
	question := query[12 : at+5]
	response := append(query[:2:2], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
	response = append(response, question...)
	if !isA {
		return response
	}
	for _, address := range addresses(name) {
		response[7]++
		response = append(response, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		response = append(response, netip.MustParseAddr(address).AsSlice()...)
	}
	return response
}

func TestClientFollowsNoRedirect(t *testing.T) {
	addr, count := testenv.CountConnections(t)
	server := httptest.NewServer(http.RedirectHandler("http://"+addr+"/", http.StatusTemporaryRedirect))
	defer server.Close()
	client := egress{allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}.newClient(defaultDelays.Attempt)
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
	addr, count := testenv.CountConnections(t)
	t.Setenv("HTTPS_PROXY", "http://"+addr)
	t.Setenv("HTTP_PROXY", "http://"+addr)
	if response, err := (egress{}).newClient(defaultDelays.Attempt).Get("https://203.0.113.1/"); err == nil {
		response.Body.Close()
	}
	if n := count.Load(); n != 0 {
		t.Errorf("%d connections to the proxy", n)
	}
}
