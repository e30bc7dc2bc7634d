package postgres

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// proxy stands between a store and its server, and cuts a connection where a test
// wants it to.
type proxy struct {
	listener net.Listener
	target   string

	stalled chan struct{} // closed when nothing passes any more
	stopped chan struct{} // closed when all connections are to end
	stop    func()

	mu    sync.Mutex // guards armed
	armed *fault
}

// fault is the place where a connection is cut, once: before the server gets a
// statement that begins like this, or before the client gets the answer to it.
type fault struct {
	statement string
	answered  bool
	cut       chan struct{} // closed when it has happened
}

// newProxy returns a proxy for the server at a URL, and the URL with the proxy in
// its place.
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

// arm has the next statement that fits cut off.
func (p *proxy) arm(statement string, answered bool) *fault {
	f := &fault{statement: statement, answered: answered, cut: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = f
	return f
}

// stall has nothing pass any more, though connections are accepted and stay open,
// as with a server that hangs.
func (p *proxy) stall() { close(p.stalled) }

// pass writes a message, or never if the proxy is stalled.
func (p *proxy) pass(w io.Writer, message []byte) error {
	select {
	case <-p.stalled:
		<-p.stopped
		return io.ErrClosedPipe
	default:
		_, err := w.Write(message)
		return err
	}
}

// hits reports whether the armed fault is to happen here, and disarms it.
func (p *proxy) hits(statement string, answered bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.armed
	if f == nil || f.answered != answered || !strings.HasPrefix(strings.ToUpper(statement), f.statement) {
		return false
	}
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
		p.answers(client, bufio.NewReader(server))
	})
	p.statements(server, bufio.NewReader(client))
	server.Close()
	both.Wait()
}

// statements passes on what the client sends: its first message, which has no
// type, and then others.
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
		case 'B': // bind: a portal and the name of what was prepared
			portal := cString(message[5:])
			text = prepared[cString(message[5+len(portal)+1:])]
		}
		if text != "" && p.hits(text, false) {
			return
		}
		if err := p.pass(server, message); err != nil {
			return
		}
	}
}

// answers passes on what the server sends.
func (p *proxy) answers(client io.Writer, server *bufio.Reader) {
	for {
		kind, message, err := readMessage(server, false)
		// A command is complete with a tag that begins like its statement.
		if err != nil || kind == 'C' && p.hits(cString(message[5:]), true) {
			return
		}
		if err := p.pass(client, message); err != nil {
			return
		}
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
