package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/swaggest/swgui/v5/static"
)

// The content security policies. The console may load its own assets and call its own
// server, and nothing else: no inline scripts or styles, no strings as markup or code,
// no framing by other pages.
//
// Swagger UI creates markup from strings, so the reference cannot require Trusted
// Types, and it uses data: URLs for its arrows.
const (
	docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
		"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	consolePolicy = docsPolicy + "; require-trusted-types-for 'script'; trusted-types 'none'"
)

// page is an HTML page. Browsers revalidate it every time, because it refers to the
// assets of this version.
type page struct {
	html, zipped []byte
	hash, policy string
}

func newPage(html []byte, policy string) *page {
	return &page{html: html, zipped: zip(html), hash: hash(html), policy: policy}
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Encoding")
	secure(h)
	if acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		h.Set("ETag", `"`+p.hash+`-gzip"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.zipped))
		return
	}
	h.Set("ETag", `"`+p.hash+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.html))
}

func acceptsGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// zip compresses a file once, so that serving it costs nothing.
func zip(body []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = z.Write(body)                                  // to memory
	_ = z.Close()
	return b.Bytes()
}

func unzip(zipped []byte) ([]byte, error) {
	in, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(in)
}

// secure sets the security headers of every page and asset.
func secure(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// file is an asset of the pages. The name of its folder changes with the content, so
// browsers may cache it forever.
type file struct {
	name         string
	body, zipped []byte // the same content
}

type files []file

// readFiles returns the console's own assets and those of Swagger UI that the
// reference needs. swgui's own page has an inline script, which the policy would have
// to allow; docs.html has none.
var readFiles = sync.OnceValues(func() (files, error) {
	all, err := scripts()
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(web, "web")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if ext := path.Ext(entry.Name()); ext == ".html" || ext == ".js" && entry.Name() != "theme.js" {
			continue // a page, or a module
		}
		body, err := web.ReadFile("web/" + entry.Name())
		if err != nil {
			return nil, err
		}
		body = compact(body)
		all = append(all, file{entry.Name(), body, zip(body)})
	}
	for _, name := range []string{"swagger-ui.css", "swagger-ui-bundle.js"} {
		zipped, err := static.FS.ReadFile(name + ".gz")
		if err != nil {
			return nil, err
		}
		body, err := unzip(zipped)
		if err != nil {
			return nil, fmt.Errorf("decompress %s: %w", name, err)
		}
		all = append(all, file{name, body, zipped})
	}
	return all, nil
})

// inline matches comments with types, and comments that end a line. What has a quote after
// it may be in a string.
var inline = regexp.MustCompile("/\\*\\* @[^*]*\\*/ ?| // [^'\"`]*$")

// compact leaves out what only readers of the source need: indentation and comments. Lines
// keep their numbers. It must not change the meaning of a file, so no string or template in
// web/ spans lines.
func compact(source []byte) []byte {
	var out bytes.Buffer
	inComment := false
	for line := range bytes.Lines(source) {
		line = bytes.TrimSpace(line)
		begins := bytes.HasPrefix(line, []byte("/*"))
		ends := bytes.HasSuffix(line, []byte("*/"))
		switch {
		case inComment:
			inComment = !ends
		case begins && (ends || !bytes.Contains(line, []byte("*/"))):
			inComment = !ends
		case !bytes.HasPrefix(line, []byte("//")):
			if bytes.Contains(line, []byte("/** @")) || bytes.Contains(line, []byte(" // ")) {
				line = inline.ReplaceAll(line, nil)
			}
			out.Write(line)
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// folder returns the folder of the assets, named after the hash of them all: scripts
// import each other by name, so they must all change their folder together.
func (f files) folder() string {
	sums := make([]byte, 0, len(f)*sha256.Size)
	for _, file := range f {
		sum := sha256.Sum256(file.zipped)
		sums = append(append(sums, file.name...), sum[:]...)
	}
	return "assets/" + hash(sums) + "/"
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

func (f file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", mediaType(f.name))
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	secure(h)
	h.Set("Vary", "Accept-Encoding")
	body := f.body
	if acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = f.zipped
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	// http.ServeContent would copy a part of it for each client. One that disconnects is
	// not an error.
	_, _ = w.Write(body)
}

// mediaType does not depend on the operating system's media types, which may be wrong
// for scripts.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}
