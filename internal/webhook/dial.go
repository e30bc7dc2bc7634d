package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"plantstore"
)

// Limits of one attempt.
const (
	dialTimeout = 10 * time.Second
	maxResponse = 64 << 10 // bytes read of a response
	maxExcerpt  = 1 << 10  // bytes of it that are kept
	maxError    = 512      // bytes of an error that are kept
	maxReason   = 200      // bytes of it that the progress keeps
)

// special lists the networks that are not public and that netip does not recognise.
var special = func() (all []netip.Prefix) {
	for _, text := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
		"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}()

// global6 contains all public IPv6 addresses, and none that stands for an IPv4 address.
var global6 = netip.MustParsePrefix("2000::/3")

// egress decides which addresses may be called.
type egress struct {
	allow    []netip.Prefix // public or not, and by plain HTTP too
	resolver *net.Resolver  // nil, except in tests
}

// check returns why an address may not be called, or nil.
func (e egress) check(ip netip.Addr, scheme string) error {
	bare := ip.Unmap().WithZone("")
	switch {
	case isIn(bare, e.allow):
		return nil
	case !isPublic(bare):
		return fmt.Errorf("%s is not a public address; --webhook-allow can allow it", ip)
	case scheme != "https":
		return fmt.Errorf("%s may only be called by https; --webhook-allow can allow http", ip)
	}
	return nil
}

func isPublic(ip netip.Addr) bool {
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && (ip.Is4() || global6.Contains(ip)) && !isIn(ip, special)
}

func isIn(ip netip.Addr, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// checkURL refuses a URL with an address that must not be called. The addresses of a name
// are checked when it is called.
func (e egress) checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return plantstore.Errorf(plantstore.ErrParameter, `"url" is not a URL`)
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	ip, err := netip.ParseAddr(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		ip, err = netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	if err != nil { // a name
		if last := host[strings.LastIndexByte(host, '.')+1:]; last != "" && '0' <= last[0] && last[0] <= '9' {
			// No name ends like that, and some programs read it as an IPv4 address.
			return plantstore.Errorf(plantstore.ErrParameter, `"url" is refused: %q is neither a name nor an IP address`, plantstore.Shorten(host))
		}
		if u.Scheme != "https" && len(e.allow) == 0 {
			return plantstore.Errorf(plantstore.ErrParameter, `"url" must begin with https://`)
		}
		return nil
	}
	if err := e.check(ip, u.Scheme); err != nil {
		return plantstore.Errorf(plantstore.ErrParameter, `"url" is refused: %v`, err)
	}
	return nil
}

// errRefused is in the error of a connection to an address that may not be called.
var errRefused = errors.New("the address is refused")

// newClient returns an HTTP client that calls only addresses that egress allows. It
// checks the address that it connects to, so that the answers of a name server cannot
// get around it.
func (e egress) newClient(timeout time.Duration) *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: e.resolver}
	dialer.ControlContext = func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		scheme, _ := ctx.Value(schemeKey{}).(string)
		at, err := netip.ParseAddrPort(address)
		if err == nil {
			err = e.check(at.Addr(), scheme)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errRefused, err)
		}
		return nil
	}
	transport := &http.Transport{
		Proxy:                  nil, // not even from the environment
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    maxInFlight,
		IdleConnTimeout:        30 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: timeout, PingTimeout: dialTimeout}, // a dead connection is not used for long
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{
		Transport:     schemeTransport{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       timeout,
	}
}

// schemeTransport tells the dialer the scheme of the request that a connection is for.
// Connections of one scheme never serve the other.
type schemeTransport struct{ *http.Transport }

type schemeKey struct{}

func (t schemeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.Transport.RoundTrip(r.WithContext(context.WithValue(r.Context(), schemeKey{}, r.URL.Scheme)))
}
