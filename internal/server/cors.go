package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// cors lets web pages of other origins call the API, with a bearer token. There are
// no cookies, so no credentials are ever allowed.
type cors struct {
	origins   []string
	resources []string // the paths of the API, without what is below them
}

// newCORS allows the origins to call the API at the path base.
func newCORS(origins []string, base string) cors {
	c := cors{origins: origins}
	for _, rt := range routes {
		if path, ok := strings.CutPrefix(rt.path, "{base}/"); ok {
			resource, _, _ := strings.Cut(path, "/")
			c.resources = append(c.resources, base+"/"+resource)
		}
	}
	slices.Sort(c.resources)
	c.resources = slices.Compact(c.resources)
	return c
}

// allow sets the headers that let a browser's page read the response, if its origin
// is an allowed one, and reports whether it is.
func (c *cors) allow(h http.Header, r *http.Request) bool {
	if len(c.origins) == 0 || !c.appliesTo(r.URL.Path) {
		return false
	}
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if !slices.Contains(c.origins, origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "ETag, Link, Location, Plantstore-Count, Plantstore-Cursor, Plantstore-Token-Expires, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id")
	return true
}

// appliesTo reports whether the path is one of the API.
func (c *cors) appliesTo(path string) bool {
	return slices.ContainsFunc(c.resources, func(resource string) bool {
		rest, ok := strings.CutPrefix(path, resource)
		return ok && (rest == "" || rest[0] == '/')
	})
}

// isPreflight reports whether a browser asks for permission to send a request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

func writePreflight(c *call) {
	h := c.w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID, X-Request-Id")
	h.Set("Access-Control-Max-Age", "7200")
	c.w.WriteHeader(http.StatusNoContent)
}

// IsOrigin reports whether a browser would send this text as an origin: in lower
// case, without a path, and without the scheme's default port.
func IsOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || text != strings.ToLower(u.Scheme+"://"+u.Host) {
		return false
	}
	return u.Scheme == "http" && u.Port() != "80" || u.Scheme == "https" && u.Port() != "443"
}
