package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

func TestBrowserReferenceCreatesAPlant(t *testing.T) {
	t.Parallel()
	s := start(t, "--base-url", "http://plants.test/store/v1")
	_, port, _ := strings.Cut(s.addr, ":")
	b := openTab(t, "http://plants.test:"+port+"/docs/")
	b.see(".swagger-ui .info", "Plant Store")
	b.shot("docs")

	b.click(".swagger-ui .btn.authorize")
	b.see(".swagger-ui .modal-ux", "bearer")
	b.write(".swagger-ui .modal-ux input", bootstrap)
	b.shot("docs-authorize")
	b.click(".swagger-ui .modal-ux .btn.authorize")
	b.see(".swagger-ui .modal-ux", "Logout")
	b.click(".swagger-ui .modal-ux .btn-done")

	b.click("#operations-plants-createPlant .opblock-summary-control")
	b.see("#operations-plants-createPlant", "Execute")
	b.write("#operations-plants-createPlant textarea", `{"id":9223372036854775807,"name":"Made in the reference","tag":"herb"}`)
	b.click("#operations-plants-createPlant .execute")
	b.see("#operations-plants-createPlant .live-responses-table", "200")
	b.do(chromedp.ScrollIntoView(chromedp.CSS("#operations-plants-createPlant .live-responses-table")))
	b.shot("docs-created")
	if got, want := s.plant("9223372036854775807"), `{"name":"Made in the reference","tag":"herb"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
	b.size(360, 740)
	b.eval("scrollTo(0, 0)")
	b.shot("docs-narrow")
}

// Pages of other origins may call the API where --cors-origin names them, and
// nothing else.
func TestBrowserOtherOrigins(t *testing.T) {
	t.Parallel()
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<!doctype html><link rel=icon href=data:,><title>another page</title>")
	}))
	defer foreign.Close()
	s := start(t, "--cors-origin", foreign.URL+",https://example.com")
	b := openTab(t, foreign.URL)
	fetch := func(url, options string) string {
		return evaluate[string](b, fmt.Sprintf(`fetch(%q, %s).then(async (r) => r.status + ' ' + r.headers.get('ETag') + ' ' + await r.text(), (err) => 'blocked')`, url, options))
	}
	put := fmt.Sprintf(`{method: 'PUT', body: '{"name":"Fern"}', headers: {Authorization: 'Bearer %s', 'Content-Type': 'application/json', 'If-None-Match': '*'}}`, bootstrap)
	if got := fetch(s.api+"/plants/1", put); !strings.HasPrefix(got, "200 \"") || !strings.Contains(got, "Fern") {
		t.Errorf("PUT from an allowed origin: %s", got)
	}
	b.expect("status of 401")
	if got := fetch(s.api+"/plants", "{}"); !strings.HasPrefix(got, "401 ") || !strings.Contains(got, "40101") {
		t.Errorf("without a token from an allowed origin: %s", got)
	}
	b.expect("blocked by CORS policy", "net::ERR_FAILED")
	if got := fetch("http://"+s.addr+"/metrics", fmt.Sprintf(`{headers: {Authorization: 'Bearer %s'}}`, bootstrap)); got != "blocked" {
		t.Errorf("/metrics from another origin: %s", got)
	}
	closed := start(t)
	if got := fetch(closed.api+"/plants/1", put); got != "blocked" {
		t.Errorf("PUT where no origin is allowed: %s", got)
	}
	if _, answer := closed.call(bootstrap, "GET", "/plants", ""); answer != "[]\n" {
		t.Errorf("the closed store has %s", answer)
	}
}
