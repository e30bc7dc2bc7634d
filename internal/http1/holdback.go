package http1

import (
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

const (
	// holdTime is for how long an address is held back. A client repeats what gets no
	// answer after a second, for the first time.
	holdTime = time.Second
	// maxHeld is how many addresses can be held back at a time.
	maxHeld = 256
)

// Holdback keeps addresses from connecting to a listener for a while. Closing their
// connections would not do: a client that opens and resets connections as fast as it can
// costs the most before there is anything to close. So the kernel drops the packets that
// open a connection, and the client has to wait and repeat them. Connections that are
// open are not affected. It works on Linux, with TCP, and not with Multipath TCP.
type Holdback struct {
	raw  syscall.RawConn // nil if it does not work
	mu   sync.Mutex      // guards the rest
	held map[netip.Addr]struct{}
	hold time.Duration // holdTime, and longer in tests
}

// NewHoldback returns a Holdback for a listener.
func NewHoldback(l net.Listener) *Holdback {
	h := &Holdback{held: map[netip.Addr]struct{}{}, hold: holdTime}
	if socket, ok := l.(*net.TCPListener); ok {
		h.raw, _ = socket.SyscallConn()
	}
	return h
}

// Add holds an address back. Addresses of an IPv6 /64 belong to one subscriber and count
// as one.
func (h *Holdback) Add(addr netip.Addr) {
	if addr.Is6() {
		addr = netip.PrefixFrom(addr.WithZone(""), 64).Masked().Addr()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.held[addr]; ok || h.raw == nil || len(h.held) == maxHeld {
		return
	}
	h.held[addr] = struct{}{}
	h.apply()
	time.AfterFunc(h.hold, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.held, addr)
		h.apply()
	})
}

// apply tells the kernel. The caller holds mu.
func (h *Holdback) apply() {
	if h.raw == nil {
		return
	}
	_ = h.raw.Control(func(fd uintptr) { // it fails if the listener is closed
		if err := filterConnects(int(fd), h.held); err != nil {
			h.raw = nil // not on this system
		}
	})
}

// len returns how many addresses are held back.
func (h *Holdback) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held)
}
