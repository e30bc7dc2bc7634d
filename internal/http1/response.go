package http1

import (
	"bytes"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// keepWhole is the largest body that is sent together with its header. A larger one
// is sent as it is written.
const keepWhole = 32 << 10

// response is the answer to a request that is handled here.
type response struct {
	conn   *conn
	header http.Header
	names  []string // of the header, sorted

	status  int           // 0 until the header is settled
	head    *bytes.Buffer // the header, as far as it is settled
	body    *bytes.Buffer // what was written before the header was sent
	length  int64         // how long the handler says that the body is, or -1
	written int64
	sent    bool // the header has been sent
	last    bool // no request may follow
	err     error
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (r *response) begin() {
	clear(r.header)
	*r = response{
		conn: r.conn, header: r.header, names: r.names[:0], length: -1,
		head: buffers.Get().(*bytes.Buffer), body: buffers.Get().(*bytes.Buffer),
	}
}

// release gives back what begin took. A buffer that grew large is left to the
// collector.
func (r *response) release() {
	for _, b := range []*bytes.Buffer{r.head, r.body} {
		if b.Cap() <= 2*keepWhole {
			b.Reset()
			buffers.Put(b)
		}
	}
	r.head, r.body = nil, nil
}

// Header returns the header, which counts as it is when WriteHeader is called.
func (r *response) Header() http.Header { return r.header }

// WriteHeader settles the header, but for what depends on the body.
func (r *response) WriteHeader(status int) {
	if r.status != 0 || status < 200 {
		return // an answer has one status, and nobody is told of anything before it
	}
	r.status = status
	b := append(r.head.AvailableBuffer(), "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(append(append(b, ' '), http.StatusText(status)...), "\r\n"...)
	for name := range r.header {
		r.names = append(r.names, name)
	}
	slices.Sort(r.names)
	for _, name := range r.names {
		if !consistsOf(name, inName) {
			continue // it could be taken for something else
		}
		for _, value := range r.header[name] {
			if r.settle(name, value) {
				b = append(append(append(append(b, name...), ": "...), oneLine(value)...), "\r\n"...)
			}
		}
	}
	if _, given := r.header["Date"]; !given {
		b = append(append(append(b, "Date: "...), now()...), "\r\n"...)
	}
	r.head.Write(b)
}

// settle reports whether the line belongs into the header as the handler gives it.
func (r *response) settle(name, value string) bool {
	switch name {
	case "Content-Length":
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil || !r.hasBody() {
			return false
		}
		r.length = int64(n)
	case "Content-Type":
		return r.status != http.StatusNotModified
	case "Connection":
		r.last = r.last || strings.EqualFold(value, "close")
		return false
	case "Transfer-Encoding":
		return false
	}
	return true
}

// hasBody reports whether an answer with this status has a body.
func (r *response) hasBody() bool {
	return r.status != http.StatusNoContent && r.status != http.StatusNotModified
}

var lineBreaks = strings.NewReplacer("\r", " ", "\n", " ")

// oneLine makes sure that a value cannot begin another line.
func oneLine(value string) string {
	if strings.IndexByte(value, '\r') < 0 && strings.IndexByte(value, '\n') < 0 {
		return value
	}
	return lineBreaks.Replace(value)
}

// Write writes a part of the body.
func (r *response) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	switch {
	case r.err != nil:
		return 0, r.err
	case !r.hasBody():
		return 0, http.ErrBodyNotAllowed
	case r.length >= 0 && r.written+int64(len(b)) > r.length:
		return 0, http.ErrContentLength
	}
	r.written += int64(len(b))
	if !r.sent && r.body.Len()+len(b) <= keepWhole {
		return r.body.Write(b)
	}
	if !r.sent {
		r.sendHeader(b)
	}
	r.sendPart(b)
	return len(b), r.err
}

// FlushError sends what has been written.
func (r *response) FlushError() error {
	r.WriteHeader(http.StatusOK)
	if !r.sent {
		r.sendHeader(nil)
	}
	return r.err
}

// SetReadDeadline, like SetWriteDeadline, is for [http.ResponseController].
func (r *response) SetReadDeadline(t time.Time) error { return r.conn.SetReadDeadline(t) }

func (r *response) SetWriteDeadline(t time.Time) error { return r.conn.SetWriteDeadline(t) }

// sendHeader sends the header, and what was written so far. next is written next.
func (r *response) sendHeader(next []byte) {
	r.sent = true
	if r.length < 0 && r.hasBody() {
		r.head.WriteString("Transfer-Encoding: chunked\r\n")
	}
	start := r.body.Bytes()
	if len(start) == 0 {
		start = next
	}
	r.endHeader(start)
	r.send(r.head.Bytes())
	r.sendPart(r.body.Bytes())
}

// sendPart sends a part of a body whose header has been sent.
func (r *response) sendPart(b []byte) {
	if r.length >= 0 {
		r.send(b)
	} else if len(b) > 0 {
		size := append(strconv.AppendInt(nil, int64(len(b)), 16), "\r\n"...)
		r.send(size, b, []byte("\r\n"))
	}
}

func (r *response) send(parts ...[]byte) {
	if r.err == nil {
		all := net.Buffers(parts)
		_, r.err = all.WriteTo(r.conn.Conn)
	}
}

// endHeader writes what depends on the body, of which start is the start.
func (r *response) endHeader(start []byte) {
	_, typed := r.header["Content-Type"]
	_, encoded := r.header["Content-Encoding"]
	if !typed && !encoded && len(start) > 0 {
		r.head.WriteString("Content-Type: " + http.DetectContentType(start) + "\r\n")
	}
	r.last = r.last || r.conn.server.draining.Load()
	if r.last {
		r.head.WriteString("Connection: close\r\n")
	}
	r.head.WriteString("\r\n")
}

// finish sends what has not been sent, and reports whether another request may
// follow.
func (r *response) finish() (more bool) {
	r.WriteHeader(http.StatusOK)
	switch {
	case r.sent && r.length < 0 && r.hasBody():
		r.send([]byte("0\r\n\r\n"))
	case !r.sent:
		if r.length < 0 && r.hasBody() {
			b := append(r.head.AvailableBuffer(), "Content-Length: "...)
			r.head.Write(append(strconv.AppendInt(b, r.written, 10), "\r\n"...))
		}
		r.endHeader(r.body.Bytes())
		r.head.Write(r.body.Bytes())
		_, r.err = r.conn.Conn.Write(r.head.Bytes())
	}
	isWhole := r.length < 0 || r.written == r.length
	return r.err == nil && isWhole && !r.last
}

// date is what the clock says in a header, with the second it is of.
type date struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[date]

func now() string {
	t := time.Now()
	d := lastDate.Load()
	if d == nil || d.second != t.Unix() {
		d = &date{t.Unix(), t.UTC().Format(http.TimeFormat)}
		lastDate.Store(d)
	}
	return d.text
}
