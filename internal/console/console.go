// Package console holds the web pages: a console over the store, and the API
// reference. Both are inside the binary and need nothing from elsewhere. They
// talk to the same API as everybody, with the token of the person in front of
// them, so they can do no more than that token allows.
//
// web/ holds the pages as they are served: there is no build step. index.html and
// docs.html are templates that learn where the API and the files are.
package console

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

//go:embed web
var web embed.FS

// Console is the web pages and the files that they load.
type Console struct {
	pages map[string]http.Handler // by path
}

// New returns the pages over an API whose callers find it at base. The pages ask
// for it at the path of base on the host that they came from themselves.
func New(base *url.URL) (*Console, error) {
	files, err := readFiles()
	if err != nil {
		return nil, fmt.Errorf("read the web pages: %w", err)
	}
	folder := files.folder()
	c := &Console{pages: map[string]http.Handler{}}
	for _, f := range files {
		c.pages["/"+folder+f.name] = f.handler()
	}
	data := pageData{
		Base:    strings.TrimRight(base.EscapedPath(), "/"),
		Assets:  folder,
		Modules: files.modules(),
	}
	for path, p := range map[string]struct{ name, policy string }{
		"/":     {"index.html", consolePolicy},
		"/docs": {"docs.html", docsPolicy},
	} {
		html, err := render(p.name, data)
		if err != nil {
			return nil, err
		}
		c.pages[path] = newPage(html, p.policy)
	}
	// The links of the page are relative to /docs.
	c.pages["/docs/"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "../docs")
		w.WriteHeader(http.StatusPermanentRedirect)
	})
	return c, nil
}

// Page returns the handler of the page or file at that path, or nil if there is
// none.
func (c *Console) Page(path string) http.Handler { return c.pages[path] }

// pageData is what the templates know.
type pageData struct {
	Base    string   // the path of the API, without a slash at its end
	Assets  string   // the folder of the files, with one
	Modules []string // the scripts that the console loads
}

func render(name string, data pageData) ([]byte, error) {
	t, err := template.ParseFS(web, "web/"+name)
	if err != nil {
		return nil, fmt.Errorf("read the page %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("fill in the page %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// modules returns the scripts that console.js imports, so that a browser can ask
// for all of them at once.
func (f files) modules() []string {
	var names []string
	for _, file := range f {
		if strings.HasSuffix(file.name, ".js") && !slices.Contains(docsScripts, file.name) && file.name != "console.js" {
			names = append(names, file.name)
		}
	}
	return names
}
