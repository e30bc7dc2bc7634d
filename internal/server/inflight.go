package server

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"sync/atomic"

	"plantstore"
)

// headerUnit is how much of a header counts as another request.
const headerUnit = 4 << 10

// Why a request is refused.
var (
	errBusy        = plantstore.Errorf(plantstore.ErrUnavailable, "too many requests are in flight: try again later")
	errBusyAddress = plantstore.Errorf(plantstore.ErrUnavailable, "too many requests from your address are in flight: try again later")
)

// inFlight limits the requests in flight, of every protocol. Each holds memory until its
// response has been sent, which a client of HTTP/2 can delay on many streams at once.
//
// One address gets at most three quarters of them, as one token does of a lane. There is a
// fixed number of counters, so that no flood makes it grow. Addresses may share one: who
// does is random.
type inFlight struct {
	max       int64 // 0 for no limit
	all       atomic.Int64
	seed      maphash.Seed
	addresses [4096]atomic.Int64
}

func newInFlight(limit int) *inFlight {
	return &inFlight{max: int64(limit), seed: maphash.MakeSeed()}
}

// of returns the counter of an address.
func (f *inFlight) of(addr netip.Addr) *atomic.Int64 {
	return &f.addresses[maphash.Comparable(f.seed, addr)%uint64(len(f.addresses))]
}

// enter counts the call until leave, and fails if there are too many. A health check fails
// only because of others from its own address. A few of the requests beyond the limit get a body;
// the response to the rest is only a header, which no client can delay.
func (f *inFlight) enter(c *call, header int64) error {
	if f.max == 0 {
		return nil
	}
	c.fromAddress, c.weight = f.of(c.s.Guard.Subscriber(c.r)), min(1+header/headerUnit, share(f.max))
	ofAddress := c.fromAddress.Add(c.weight) - share(f.max)
	if ofAddress > f.max/32 { // it must not count against other addresses
		c.fromAddress.Add(-c.weight)
		c.weight, c.w.headerOnly = 0, true
		return errBusyAddress
	}
	all := f.all.Add(c.weight) - f.max
	c.w.headerOnly = all > f.max/32
	switch {
	case ofAddress > 0:
		return errBusyAddress
	case all > 0 && !isProbe(c.r.Method, c.r.URL.Path):
		return errBusy
	}
	return nil
}

// leave stops counting the call as soon as its response has been sent. In HTTP/2 that may
// be long after the handler has returned: the last 4 KiB wait for the client, too.
func (f *inFlight) leave(c *call) {
	if f.max == 0 {
		return
	}
	//lint:ignore SA1019 the context ends before the response has been sent
	stream, ok := c.w.ResponseWriter.(http.CloseNotifier)
	if !ok || c.r.ProtoMajor == 1 {
		f.release(c.fromAddress, c.weight)
		return
	}
	sent, fromAddress, weight := stream.CloseNotify(), c.fromAddress, c.weight
	go func() {
		<-sent
		f.release(fromAddress, weight)
	}()
}

func (f *inFlight) release(fromAddress *atomic.Int64, weight int64) {
	fromAddress.Add(-weight)
	f.all.Add(-weight)
}
