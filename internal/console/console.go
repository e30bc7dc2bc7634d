// Package console serves the web pages: the console and the API reference. Both are
// embedded in the binary and load nothing from other hosts. They use the public API
// with the user's token, so they can do exactly what the token allows.
//
// web/ has the pages as they are served, except for comments and indentation, and that the
// modules of a page are one script: there is no build step. index.html and docs.html are templates
// that get the paths of the API and of the assets.
package console

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
)

//go:embed web
var web embed.FS

// Console serves the web pages and their assets.
type Console struct {
	pages map[string]http.Handler // by path
}

// New returns the pages for the API with this public URL. The pages call the API at
// the path of base, on the host that they were loaded from.
func New(base *url.URL) (*Console, error) {
	templates, badTemplate := template.ParseFS(web, "web/*.html")
	files, badFile := readFiles()
	if err := errors.Join(badTemplate, badFile); err != nil {
		return nil, fmt.Errorf("read the web pages: %w", err)
	}
	folder := files.folder()
	c := &Console{pages: map[string]http.Handler{}}
	for _, f := range files {
		c.pages["/"+folder+f.name] = f
	}
	data := struct {
		Base   string // the path of the API, without a trailing slash
		Assets string // the folder of the assets, with a trailing slash
	}{strings.TrimRight(base.EscapedPath(), "/"), folder}
	for path, p := range map[string]struct{ name, policy string }{
		"/":     {"index.html", consolePolicy},
		"/docs": {"docs.html", docsPolicy},
	} {
		var html bytes.Buffer
		if err := templates.ExecuteTemplate(&html, p.name, data); err != nil {
			return nil, fmt.Errorf("fill in the page %s: %w", p.name, err)
		}
		c.pages[path] = newPage(compact(html.Bytes()), p.policy)
	}
	// The links on the page are relative to /docs.
	c.pages["/docs/"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "../docs")
		w.WriteHeader(http.StatusPermanentRedirect)
	})
	return c, nil
}

// Page returns the handler of the page or asset at this path, or nil if there is
// none.
func (c *Console) Page(path string) http.Handler { return c.pages[path] }
