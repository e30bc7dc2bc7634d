package httpd

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// request is a request on the fast path.
type request struct {
	http.Request
	blank  http.Request // the fields that all requests of the connection share
	url    url.URL
	values []string // of the header
	body   body
}

// body is a request's body, which has been read completely.
type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

// maxFields limits the memory that a connection keeps for the header of its next
// request.
const maxFields = 64

func (r *request) init(ctx context.Context, remoteAddr string) {
	r.blank = *(&http.Request{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, URL: &r.url,
		Header: http.Header{}, RemoteAddr: remoteAddr,
	}).WithContext(ctx)
}

// parse parses the request at the start of b and returns its size, or 0 if the
// request is for the fallback. net/http accepts every request that parse accepts,
// and understands it in the same way.
//
// Such a request is complete and eligible. Its method is GET, POST, PUT, PATCH or DELETE;
// its target is a path in characters that need no escape; its lines end in CRLF;
// its body, if any, has a Content-Length; and no header field asks for anything
// about the connection, except to keep it alive.
func (r *request) parse(b []byte, eligible func(method, path string) bool) int {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0
	}
	// Names and values are substrings of one string.
	text := string(b[:end+2])
	r.Request = r.blank
	clear(r.Header)
	r.values = r.values[:0]
	line, text, _ := strings.Cut(text, "\r\n")
	if !r.parseLine(line) || !eligible(r.Method, r.url.Path) {
		return 0
	}
	for fields := 0; text != ""; fields++ {
		if line, text, _ = strings.Cut(text, "\r\n"); fields == maxFields || !r.parseField(line) {
			return 0
		}
	}
	size := end + 4 + int(r.ContentLength)
	if r.Host == "" || size > len(b) {
		return 0
	}
	r.Body = http.NoBody
	if r.ContentLength > 0 {
		r.body.Reset(b[end+4 : size])
		r.Body = &r.body
	}
	return size
}

// parseLine parses the request line.
func (r *request) parseLine(line string) bool {
	method, rest, _ := strings.Cut(line, " ")
	path, proto, _ := strings.Cut(rest, " ")
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return false
	}
	if proto != "HTTP/1.1" || path == "" || path[0] != '/' || strings.HasPrefix(path, "//") || !consistsOf(path, inPath) {
		return false
	}
	r.Method, r.RequestURI = method, path
	r.url = url.URL{Path: path}
	return true
}

// parseField parses one field of the header.
func (r *request) parseField(line string) bool {
	name, value, ok := strings.Cut(line, ":")
	if !ok || name == "" || !consistsOf(name, inName) {
		return false
	}
	value = strings.Trim(value, " \t")
	if !consistsOf(value, inValue) {
		return false
	}
	switch name = textproto.CanonicalMIMEHeaderKey(name); name {
	case "Host":
		if r.Host != "" || value == "" || !consistsOf(value, inHost) {
			return false
		}
		r.Host = value
		return true // it is not in the Header
	case "Content-Length":
		n, err := strconv.ParseUint(value, 10, 12) // longer bodies do not fit into the buffer
		if r.Header[name] != nil || r.Method == http.MethodGet || err != nil {
			return false
		}
		r.ContentLength = int64(n)
	case "Connection":
		if r.Header[name] != nil || !strings.EqualFold(value, "keep-alive") {
			return false
		}
	case "Transfer-Encoding", "Trailer", "Te", "Expect", "Upgrade", "Http2-Settings", "Pragma",
		"Proxy-Connection", "Keep-Alive":
		return false
	}
	if values := r.Header[name]; values != nil {
		r.Header[name] = append(values, value)
		return true
	}
	r.values = append(r.values, value)
	n := len(r.values)
	r.Header[name] = r.values[n-1 : n : n]
	return true
}

// class is a set of characters.
type class [256]bool

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

var (
	inPath  = classOf(letters + "-._~/")
	inHost  = classOf(letters + "-._:[]")
	inName  = classOf(letters + "!#$%&'*+-.^_`|~")
	inValue = classOf(letters + "!#$%&'*+-.^_`|~" + "\t \"(),/:;<=>?@[\\]{}")
)

func classOf(characters string) *class {
	var c class
	for _, b := range []byte(characters) {
		c[b] = true
	}
	return &c
}

func consistsOf(text string, c *class) bool {
	for i := range len(text) {
		if !c[text[i]] {
			return false
		}
	}
	return true
}

// response is the response to a request on the fast path. It is sent when the handler has
// returned, unless it is large and the handler has announced its length.
type response struct {
	conn   *conn
	header http.Header
	names  []string // of the header, sorted
	status int      // 0 until WriteHeader is called
	head   []byte   // the status line and the header
	body   []byte
	length string // the Content-Length that the handler set, if any
	close  bool   // no request may follow
	sent   bool   // Write has sent it already
	reused bool   // the result of that send
}

func (r *response) reset() {
	clear(r.header)
	*r = response{conn: r.conn, header: r.header, names: r.names, head: r.head[:0], body: r.body[:0]}
}

// Header returns the header, which is sent as it is when WriteHeader is called.
func (r *response) Header() http.Header { return r.header }

// WriteHeader sets the status and the header, except for what depends on the body.
func (r *response) WriteHeader(status int) {
	if r.status != 0 {
		return
	}
	if status < 200 || status > 999 {
		panic(fmt.Sprintf("invalid status %d", status))
	}
	r.status = status
	b := append(r.head, "HTTP/1.1 "...)
	b = append(strconv.AppendInt(b, int64(status), 10), ' ')
	b = append(append(b, http.StatusText(status)...), "\r\n"...)
	r.names = slices.AppendSeq(r.names[:0], maps.Keys(r.header))
	slices.Sort(r.names)
	for _, name := range r.names {
		for _, value := range r.header[name] {
			if r.accept(name, value) {
				b = append(append(append(append(b, name...), ": "...), lineBreaks.Replace(value)...), "\r\n"...)
			}
		}
	}
	if _, ok := r.header["Date"]; !ok {
		b = append(append(append(b, "Date: "...), httpDate()...), "\r\n"...)
	}
	r.head = b
}

// lineBreaks makes sure that a value cannot start another line.
var lineBreaks = strings.NewReplacer("\r", " ", "\n", " ")

// accept reports whether a field of the header is sent as the handler has set it.
func (r *response) accept(name, value string) bool {
	switch name {
	case "Content-Length":
		r.length = value
		return false
	case "Content-Type":
		return r.status != http.StatusNotModified
	case "Connection":
		r.close = r.close || strings.EqualFold(value, "close")
	case "Transfer-Encoding":
		return false
	}
	return consistsOf(name, inName) // another name could be mistaken for something else
}

// hasBody reports whether a response with this status has a body.
func (r *response) hasBody() bool {
	return r.status != http.StatusNoContent && r.status != http.StatusNotModified
}

// Write adds to the body.
func (r *response) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	if !r.hasBody() && len(b) > 0 {
		return 0, http.ErrBodyNotAllowed
	}
	if r.sent {
		r.reused = false // the handler writes more than it announced
		return 0, http.ErrContentLength
	}
	if len(b) > bufferSize && len(r.body) == 0 && r.length == strconv.Itoa(len(b)) {
		// This is all of a large body. Sending it now saves a copy, and lets the handler
		// know how long a slow client keeps it in memory.
		kept := r.body
		r.body = b
		reusable, err := r.send()
		r.body, r.sent, r.reused = kept, true, reusable
		return len(b), err
	}
	r.body = append(r.body, b...)
	return len(b), nil
}

// send sends the response, and reports whether another request may follow. It fails,
// and sends nothing, if the handler announced another Content-Length than it wrote.
func (r *response) send() (reusable bool, err error) {
	if r.sent {
		return r.reused, nil
	}
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	if r.hasBody() {
		r.head = strconv.AppendInt(append(r.head, "Content-Length: "...), int64(len(r.body)), 10)
		r.head = append(r.head, "\r\n"...)
		if r.length != "" && r.length != strconv.Itoa(len(r.body)) {
			return false, fmt.Errorf("the handler set a Content-Length of %s and wrote %d bytes", r.length, len(r.body))
		}
	}
	if !r.close && r.conn.server.stopping.Load() {
		r.head = append(r.head, "Connection: close\r\n"...)
	}
	r.head = append(r.head, "\r\n"...)
	small := len(r.body) <= bufferSize
	if small {
		r.head = append(r.head, r.body...)
	}
	_, writeErr := r.conn.Write(r.head)
	if !small && writeErr == nil {
		_, writeErr = r.conn.Write(r.body)
	}
	if cap(r.head)+cap(r.body) > 4*bufferSize {
		r.head, r.body = nil, nil // an idle connection keeps only small buffers
	}
	return writeErr == nil && !r.close, nil
}

// date is the Date of all responses in a second. Formatting it each time would be a tenth
// of the work of the fast path.
type date struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[date]

func httpDate() string {
	now := time.Now()
	d := lastDate.Load()
	if d == nil || d.second != now.Unix() {
		d = &date{now.Unix(), now.UTC().Format(http.TimeFormat)}
		lastDate.Store(d)
	}
	return d.text
}
