package postgres

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy sits between a store and its server, and cuts a connection where a test
// wants it to.
type proxy struct {
	listener net.Listener
	target   string

	stalled chan struct{} // closed when messages are held back
	stopped chan struct{} // closed when all connections must end
	stop    func()

	received atomic.Int64 // bytes forwarded to the client

	each  atomic.Int64  // how many rows are forwarded between two pauses, or 0
	pause time.Duration // set before each

	mu    sync.Mutex // guards armed
	armed *fault
}

// fault says where a connection is cut, once: before the server receives a statement
// that starts like this, or before the client receives the response to it.
type fault struct {
	statement string
	executed  bool          // cut the response, not the statement
	then      func()        // what else happens at that moment
	cut       chan struct{} // closed when it has happened
}

// newProxy returns a proxy for the server at target, and the URL with the proxy's
// address instead of the target's.
func newProxy(t *testing.T, target, url string) (*proxy, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, stalled: make(chan struct{}), stopped: make(chan struct{})}
	p.stop = sync.OnceFunc(func() { close(p.stopped) })
	var running sync.WaitGroup
	t.Cleanup(func() {
		p.stop()
		l.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(c) })
		}
	})
	return p, strings.Replace(url, target, l.Addr().String(), 1)
}

// arm cuts the connection at the next statement that matches.
func (p *proxy) arm(statement string, executed bool) *fault {
	return p.armThen(statement, executed, func() {})
}

// armThen is arm, and calls a function before the client notices.
func (p *proxy) armThen(statement string, executed bool, then func()) *fault {
	f := &fault{statement: statement, executed: executed, then: then, cut: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = f
	return f
}

// stall holds back all messages from now on. Connections are accepted and stay open,
// as with a server that hangs.
func (p *proxy) stall() { close(p.stalled) }

// pauseEach makes the network slow: it takes a time for so many rows.
func (p *proxy) pauseEach(rows int, pause time.Duration) {
	p.pause = pause
	p.each.Store(int64(rows))
}

// forward writes a message, or holds it back if the proxy is stalled.
func (p *proxy) forward(w io.Writer, message []byte) error {
	select {
	case <-p.stalled:
		<-p.stopped
		return io.ErrClosedPipe
	default:
		_, err := w.Write(message)
		return err
	}
}

// hits reports whether the armed fault happens here, and disarms it.
func (p *proxy) hits(statement string, executed bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.armed
	if f == nil || f.executed != executed || !strings.HasPrefix(strings.ToUpper(statement), f.statement) {
		return false
	}
	f.then()
	close(f.cut)
	p.armed = nil
	return true
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	var both sync.WaitGroup
	both.Go(func() {
		defer client.Close()
		p.responses(client, bufio.NewReader(server))
	})
	p.statements(server, bufio.NewReader(client))
	server.Close()
	both.Wait()
}

// statements forwards what the client sends: a first message, which has no type, and
// then others.
func (p *proxy) statements(server io.Writer, client *bufio.Reader) {
	prepared := map[string]string{}
	for first := true; ; first = false {
		kind, message, err := readMessage(client, first)
		if err != nil {
			return
		}
		var text string
		switch kind {
		case 'Q': // a query: its text
			text = cString(message[5:])
		case 'P': // parse: a name and its text
			name := cString(message[5:])
			prepared[name] = cString(message[5+len(name)+1:])
		case 'B': // bind: a portal and the name of a prepared statement
			portal := cString(message[5:])
			text = prepared[cString(message[5+len(portal)+1:])]
		}
		if text != "" && p.hits(text, false) {
			return
		}
		if err := p.forward(server, message); err != nil {
			return
		}
	}
}

// responses forwards what the server sends.
func (p *proxy) responses(client io.Writer, server *bufio.Reader) {
	for rows := int64(1); ; {
		kind, message, err := readMessage(server, false)
		// The tag that completes a command starts like its statement.
		if err != nil || kind == 'C' && p.hits(cString(message[5:]), true) {
			return
		}
		if each := p.each.Load(); each > 0 && kind == 'D' {
			if rows++; rows%each == 0 {
				time.Sleep(p.pause)
			}
		}
		if err := p.forward(client, message); err != nil {
			return
		}
		p.received.Add(int64(len(message)))
	}
}

// readMessage reads a message of PostgreSQL's protocol: a type, unless it is the
// client's first, and a length that counts itself.
func readMessage(r *bufio.Reader, first bool) (kind byte, message []byte, err error) {
	head := 5
	if first {
		head = 4
	}
	message = make([]byte, head)
	if _, err := io.ReadFull(r, message); err != nil {
		return 0, nil, err
	}
	if !first {
		kind = message[0]
	}
	size := int(binary.BigEndian.Uint32(message[head-4:])) - 4
	message = append(message, make([]byte, size)...)
	_, err = io.ReadFull(r, message[head:])
	return kind, message, err
}

func cString(b []byte) string {
	end := bytes.IndexByte(b, 0)
	return string(b[:end])
}
