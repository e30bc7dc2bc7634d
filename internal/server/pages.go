package server

import (
	"net/http"
	"slices"
	"strings"
)

// page answers with a web page, or with a file that one loads. Their headers are
// their own.
func (s *Server) page(w http.ResponseWriter, r *http.Request) error {
	if s.pages != nil {
		if page := s.pages(r.URL.Path); page != nil {
			page.ServeHTTP(w, r)
			return nil
		}
	}
	return noPath(r)
}

// foreignPages are the web pages of other origins that may call the API. Only
// the API, and only what a bearer token allows: there are no cookies, so none are
// ever sent.
type foreignPages struct {
	origins []string
	api     string // the path of the plants
}

// allow tells a browser that the page which sent the request may read the answer,
// where that is so. It reports whether it did.
func (f *foreignPages) allow(h http.Header, r *http.Request) bool {
	if len(f.origins) == 0 || !f.concerns(r.URL.Path) {
		return false
	}
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if !slices.Contains(f.origins, origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "ETag, Link, Retry-After, WWW-Authenticate, X-Request-Id")
	return true
}

func (f *foreignPages) concerns(path string) bool {
	rest, ok := strings.CutPrefix(path, f.api)
	return ok && (rest == "" || rest[0] == '/')
}

// isPreflight reports whether a browser asks, before a request, whether it may
// send it.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

func answerPreflight(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
	h.Set("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, If-Match, If-None-Match, X-Request-Id")
	h.Set("Access-Control-Max-Age", "7200")
	w.WriteHeader(http.StatusNoContent)
}
