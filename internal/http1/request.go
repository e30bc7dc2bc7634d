package http1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// request is one that is read here.
type request struct {
	http.Request
	blank  http.Request // what all requests of the connection have in common
	url    url.URL
	values []string // holds the header's values
	body   body
}

// body is one that has been read already.
type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

// maxFields is the most lines in the header of a plain request. What they need is kept
// for the next one.
const maxFields = 64

// skipEmptyLines skips the one or two that some old clients send behind the body of a
// POST, as net/http does.
func (r *request) skipEmptyLines(b []byte) []byte {
	if r.Method != http.MethodPost {
		return b
	}
	n := 0
	for n < min(len(b), len("\r\n\r\n")) && (b[n] == '\r' || b[n] == '\n') {
		n++
	}
	return b[n:]
}

// parse reads the request at the start of b, and returns how long it is, or 0 if it
// is not plain. What it accepts net/http accepts, and understands in the same way.
//
// A plain request is complete. Its method is GET, POST, PUT or DELETE; its target
// is a path and maybe a query, in characters that mean themselves; its lines end in
// CRLF; and nothing in its header asks the server for anything about the
// connection. Its body has a length.
func (r *request) parse(b []byte) int {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0
	}
	// Names and values are parts of one string, which lives as long as they.
	text := string(b[:end+2])
	r.Request = r.blank
	clear(r.Header)
	r.values = r.values[:0]
	line, text, ok := cutLine(text)
	if !ok || !r.parseTarget(line) {
		return 0
	}
	for fields := 0; text != ""; fields++ {
		if line, text, ok = cutLine(text); !ok || fields == maxFields || !r.parseField(line) {
			return 0
		}
	}
	if r.Host == "" {
		return 0
	}
	size := end + 4 + int(r.ContentLength)
	if size > len(b) {
		return 0
	}
	r.Body = http.NoBody
	if r.ContentLength > 0 {
		r.body.Reset(b[end+4 : size])
		r.Body = &r.body
	}
	return size
}

// cutLine cuts off the first line, which must end in CRLF.
func cutLine(text string) (line, rest string, ok bool) {
	i := strings.IndexByte(text, '\n')
	if i < 1 || text[i-1] != '\r' {
		return "", "", false
	}
	return text[:i-1], text[i+1:], true
}

// parseTarget reads the first line.
func (r *request) parseTarget(line string) bool {
	method, rest, _ := strings.Cut(line, " ")
	target, proto, _ := strings.Cut(rest, " ")
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete:
	default:
		return false
	}
	path, query, hasQuery := strings.Cut(target, "?")
	if proto != "HTTP/1.1" || path == "" || path[0] != '/' || strings.HasPrefix(path, "//") ||
		!consistsOf(path, inPath) || !consistsOf(query, inQuery) || hasQuery && query == "" {
		return false
	}
	r.Method, r.RequestURI = method, target
	r.url = url.URL{Path: path, RawQuery: query}
	return true
}

// parseField reads one line of the header.
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
		return true // net/http keeps it there only
	case "Content-Length":
		if r.Header[name] != nil || r.Method == http.MethodGet || !r.parseLength(value) {
			return false
		}
	case "Connection":
		if r.Header[name] != nil || !strings.EqualFold(value, "keep-alive") {
			return false
		}
	case "Transfer-Encoding", "Trailer", "Te", "Expect", "Upgrade", "Http2-Settings", "Pragma",
		"Proxy-Connection", "Keep-Alive":
		return false
	}
	r.add(name, value)
	return true
}

func (r *request) parseLength(value string) bool {
	if value == "" || len(value) > 4 {
		return false
	}
	for _, c := range []byte(value) {
		if c < '0' || '9' < c {
			return false
		}
		r.ContentLength = 10*r.ContentLength + int64(c-'0')
	}
	return true
}

func (r *request) add(name, value string) {
	if before := r.Header[name]; before != nil {
		r.Header[name] = append(before, value)
		return
	}
	n := len(r.values)
	r.values = append(r.values, value)
	r.Header[name] = r.values[n : n+1 : n+1]
}

// class is a set of characters.
type class [256]bool

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

var (
	inPath  = classOf(letters + "-._~/")
	inQuery = classOf(letters + "-._~/=&%+,:*")
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
