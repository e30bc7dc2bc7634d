package auth

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Address returns the address of the client that sent a request: the connection's, or if
// that is a trusted proxy's, the last one in Forwarded or X-Forwarded-For that is not.
func (g *Guard) Address(r *http.Request) netip.Addr {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	from := remote.Addr().Unmap()
	if !g.trusts(from) {
		return from
	}
	standard, legacy := forwarded(r.Header["Forwarded"]), strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	a, b := g.lastUntrusted(from, standard), g.lastUntrusted(from, legacy)
	switch {
	case len(r.Header["Forwarded"]) == 0:
		return b
	case len(r.Header["X-Forwarded-For"]) == 0, a == b:
		return a
	}
	// A proxy that sets one of them may pass on the other as the client sent it.
	return from
}

// Subscriber returns the address of the client for limits per address. The addresses of an
// IPv6 /64 belong to one subscriber, and count as one.
func (g *Guard) Subscriber(r *http.Request) netip.Addr {
	addr := g.Address(r)
	if addr.Is6() {
		addr = netip.PrefixFrom(addr.WithZone(""), 64).Masked().Addr()
	}
	return addr
}

// From returns where a request came from, for logs: the address and port of the
// connection, or the address that a trusted proxy reports.
func (g *Guard) From(r *http.Request) string {
	if len(g.opts.TrustedProxies) == 0 {
		return r.RemoteAddr
	}
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if addr := g.Address(r); err == nil && addr != remote.Addr().Unmap() {
		return addr.String()
	}
	return r.RemoteAddr
}

func (g *Guard) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(g.opts.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// lastUntrusted follows the hops from the last one back, as long as the address that
// reported a hop is trusted and the hop is an address.
func (g *Guard) lastUntrusted(from netip.Addr, hops []string) netip.Addr {
	for i := len(hops) - 1; i >= 0 && g.trusts(from); i-- {
		hop, ok := parseHop(strings.TrimSpace(hops[i]))
		if !ok {
			break
		}
		from = hop
	}
	return from
}

// forwarded returns the for parameter of each element of Forwarded (RFC 7239), or "" if the
// element has none.
func forwarded(fields []string) (hops []string) {
	for element := range strings.SplitSeq(strings.Join(fields, ","), ",") {
		hop := ""
		for pair := range strings.SplitSeq(element, ";") {
			if name, value, _ := strings.Cut(strings.TrimSpace(pair), "="); strings.EqualFold(name, "for") {
				hop = strings.Trim(value, `"`)
			}
		}
		hops = append(hops, hop)
	}
	return hops
}

// parseHop parses an address with or without a port, and an IPv6 address with or without
// brackets.
func parseHop(text string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap(), true
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	addr, err := netip.ParseAddr(text)
	return addr.Unmap(), err == nil
}
