package server

import (
	"net/http"
	"net/url"
	"testing"

	"plantstore/internal/commit"
)

func TestIsFast(t *testing.T) {
	for _, base := range []string{"", "/api/v1"} {
		s := New(Options{
			BaseURL: &url.URL{Scheme: "http", Host: "localhost", Path: base + "/"}, MaxBody: 1,
			Metrics: NewMetrics("test"), Writer: commit.New(nil, commit.Options{}),
		})
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			for _, path := range []string{
				"/", "/healthz", "/plants", base + "/plants", base + "/plants/", base + "/plants/1", base + "/plants/import", base + "/plants/1/",
				base + "/plants/1/2", base + "/plantsx", base + "/plants1", base + "/plant/1", base, base + base + "/plants/1", "/x" + base + "/plants/1",
			} {
				_, pattern := s.mux.Handler(&http.Request{Method: method, URL: &url.URL{Path: path}})
				want := method != "HEAD" && (pattern == "POST "+base+"/plants" || pattern == "GET "+base+"/plants/{id}" ||
					pattern == "PUT "+base+"/plants/{id}" || pattern == "PATCH "+base+"/plants/{id}" || pattern == "DELETE "+base+"/plants/{id}")
				if got := s.IsFast(method, path); got != want {
					t.Errorf("base %q: IsFast(%s, %s) = %v, and the route is %q", base, method, path, got, pattern)
				}
			}
		}
		if !s.IsFast("POST", base+"/plants") || !s.IsFast("GET", base+"/plants/1") {
			t.Errorf("base %q: IsFast is never true", base)
		}
	}
}
