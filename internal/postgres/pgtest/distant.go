package pgtest

import (
	"net"
	"regexp"
	"sync"
	"testing"
	"time"
)

var hosts = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)

// Distant returns a URL that leads to the servers of another one over a network with this
// round trip, until the test ends.
func Distant(t testing.TB, url string, roundTrip time.Duration) string {
	t.Helper()
	return hosts.ReplaceAllStringFunc(url, func(addr string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		n := &network{to: addr, delay: roundTrip / 2, open: map[net.Conn]bool{}}
		n.running.Go(func() {
			for {
				client, err := l.Accept()
				if err != nil {
					return
				}
				n.running.Go(func() { n.connect(client) })
			}
		})
		t.Cleanup(func() {
			l.Close()
			n.close()
			n.running.Wait()
		})
		return l.Addr().String()
	})
}

// network delivers everything after a delay.
type network struct {
	to      string
	delay   time.Duration
	running sync.WaitGroup

	mu     sync.Mutex // guards what follows
	open   map[net.Conn]bool
	closed bool
}

func (n *network) connect(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", n.to)
	if err != nil {
		return
	}
	defer server.Close()
	if !n.add(client, server) {
		return
	}
	defer n.remove(client, server)
	var both sync.WaitGroup
	both.Go(func() { n.carry(server, client) })
	both.Go(func() { n.carry(client, server) })
	both.Wait()
}

// carry delivers what one side sends, until it ends, which ends the other.
func (n *network) carry(to, from net.Conn) {
	type packet struct {
		due  time.Time
		data []byte
	}
	packets := make(chan packet, 1024)
	go func() {
		defer close(packets)
		for {
			data := make([]byte, 32<<10)
			size, err := from.Read(data)
			if err != nil {
				return
			}
			packets <- packet{time.Now().Add(n.delay), data[:size]}
		}
	}()
	for p := range packets {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	from.Close()
	to.Close()
	for range packets { // or the reader could block
	}
}

func (n *network) add(conns ...net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range conns {
		n.open[c] = true
	}
	return !n.closed
}

func (n *network) remove(conns ...net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range conns {
		delete(n.open, c)
	}
}

func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for c := range n.open {
		c.Close()
	}
}
