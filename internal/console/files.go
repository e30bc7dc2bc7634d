package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/swaggest/swgui/v5/static"
)

// What a browser lets the pages do. The console loads its own files and asks its
// own server, and nothing else: no script or style stands in the page, no string
// becomes markup or code, no other page frames it.
//
// Swagger UI writes markup from strings, so the reference cannot have Trusted
// Types, and it draws its arrows from data: URLs.
const (
	commonPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
		"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	consolePolicy = commonPolicy + "; require-trusted-types-for 'script'; trusted-types 'none'"
	docsPolicy    = commonPolicy
)

// page is an HTML page. A browser asks every time whether it has changed, because
// it names the files of this version.
type page struct {
	html   []byte
	etag   string
	policy string
}

func newPage(html []byte, policy string) *page {
	return &page{html: html, etag: `"` + hash(html) + `"`, policy: policy}
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", p.etag)
	secure(h)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.html))
}

// secure sets the headers of everything that a browser loads.
func secure(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// file is a file that the pages load. The name of its folder changes with the
// content, so a browser may keep it for good.
type file struct {
	name   string
	body   []byte
	zipped bool // body is gzip
}

type files []file

// docsScripts are the scripts of the reference, which the console does not load.
var docsScripts = []string{"docs.js", "swagger-ui-bundle.js"}

// readFiles returns our own files and those of Swagger UI that the reference
// needs. The page that swgui has for them holds an inline script, which would need
// a hole in the policy; ours does not.
func readFiles() (files, error) {
	var all files
	entries, err := fs.ReadDir(web, "web")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if path.Ext(entry.Name()) == ".html" {
			continue
		}
		body, err := web.ReadFile("web/" + entry.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, file{name: entry.Name(), body: body})
	}
	for _, name := range []string{"swagger-ui.css", "swagger-ui-bundle.js"} {
		body, err := static.FS.ReadFile(name + ".gz")
		if err != nil {
			return nil, err
		}
		all = append(all, file{name: name, body: body, zipped: true})
	}
	return all, nil
}

// folder returns where the files are, by the hash of them all: scripts import
// each other by their plain names, so they change their folder together.
func (f files) folder() string {
	sums := make([]byte, 0, len(f)*sha256.Size)
	for _, file := range f {
		sum := sha256.Sum256(file.body)
		sums = append(append(sums, file.name...), sum[:]...)
	}
	return "assets/" + hash(sums) + "/"
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

func (f file) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", mediaType(f.name))
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		secure(h)
		if !f.zipped {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
			return
		}
		h.Set("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
			return
		}
		f.unzip(w)
	})
}

// unzip is for the rare client that does not take gzip.
func (f file) unzip(w http.ResponseWriter) {
	in, err := gzip.NewReader(bytes.NewReader(f.body))
	if err != nil {
		panic("an embedded file is not gzip: " + err.Error())
	}
	// A client that does not wait for the file does not make it a failure.
	_, _ = io.Copy(w, in)
}

// mediaType does not ask the operating system, which may have its own idea of
// what a script is.
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
