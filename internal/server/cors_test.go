package server_test

import (
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/server"
	"plantstore/internal/servertest"
)

func TestOnlyAllowedOriginsMayReadTheAPI(t *testing.T) {
	t.Parallel()
	const allowed, other = "https://garden.example", "https://other.example"
	s := start(t, servertest.Options{BaseURL: servertest.URL("/v1"), Origins: []string{"https://first.example", allowed}})
	api := map[string]bool{} // its paths
	for _, r := range server.Routes() {
		if path, ok := strings.CutPrefix(r.Path, "{base}"); ok {
			api["/v1"+strings.ReplaceAll(path, "{id}", "1")] = true
		}
	}
	for _, origin := range []string{allowed, other, "", "null", allowed + ".evil.example"} {
		for path := range api {
			got := s.send(t, "GET", path, "", s.withDefaults([]string{"Origin: " + origin})...)
			preflight := s.send(t, "OPTIONS", path, "", "Origin: "+origin, "Access-Control-Request-Method: PUT")
			got.wantHeader(t, "Access-Control-Allow-Credentials")
			preflight.wantHeader(t, "Access-Control-Allow-Credentials")
			if origin != allowed {
				got.wantHeader(t, "Access-Control-Allow-Origin")
				preflight.wantHeader(t, "Access-Control-Allow-Origin")
				preflight.wantError(t, plantstore.ErrMethod)
				continue
			}
			got.wantHeader(t, "Access-Control-Allow-Origin", allowed)
			got.wantHeader(t, "Access-Control-Expose-Headers", "ETag, Link, Location, Plantstore-Count, Plantstore-Cursor, Plantstore-Token-Expires, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id")
			preflight.wantStatus(t, 204)
			preflight.wantHeader(t, "Access-Control-Allow-Origin", allowed)
			preflight.wantHeader(t, "Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE")
			preflight.wantHeader(t, "Vary", "Origin")
		}
		// Nothing outside the API is for other origins.
		for _, path := range []string{"/", "/metrics", "/healthz", "/v1/plantsandmore"} {
			s.send(t, "GET", path, "", "Origin: "+origin).wantHeader(t, "Access-Control-Allow-Origin")
		}
	}
	// A refused token can be read too, so that the page can say so.
	got := s.send(t, "GET", "/v1/plants", "", "Origin: "+allowed)
	got.wantError(t, plantstore.ErrNoToken)
	got.wantHeader(t, "Access-Control-Allow-Origin", allowed)
}

func TestWithoutOriginsThereIsNoCORS(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	for _, method := range []string{"GET", "OPTIONS"} {
		got := s.send(t, method, "/plants", "", s.withDefaults([]string{"Origin: https://garden.example", "Access-Control-Request-Method: GET"})...)
		got.wantHeader(t, "Access-Control-Allow-Origin")
		if vary := got.header.Values("Vary"); len(vary) > 0 && vary[0] == "Origin" {
			t.Errorf("%s: Vary is %q", method, vary)
		}
	}
}
