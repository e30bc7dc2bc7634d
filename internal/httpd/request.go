package httpd

import (
	"bytes"
	"context"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
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
