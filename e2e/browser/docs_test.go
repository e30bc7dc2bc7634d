package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"plantstore/e2e/harness"
)

func TestReferenceCreatesAPlant(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--base-url", "http://plants.test/store/v1")
	_, port, _ := strings.Cut(s.Addr, ":")
	b := openTab(t, "http://plants.test:"+port+"/docs/")
	b.see(".swagger-ui .info", "Plant Store")
	b.shot("docs")

	b.click(".swagger-ui .btn.authorize")
	b.see(".swagger-ui .modal-ux", "bearer")
	b.write(".swagger-ui .modal-ux input", harness.Token)
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

// Pages of the origins that --cors-origin lists may call the API, and nothing else.
func TestOnlyListedOriginsCanCallTheAPI(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<!doctype html><link rel=icon href=data:,><title>another page</title>")
	}))
	defer other.Close()
	s := startServer(t, "--cors-origin", other.URL+",https://example.com")
	b := openTab(t, other.URL)
	fetch := func(url, options string) string {
		return evaluate[string](b, fmt.Sprintf(`fetch(%q, %s).then(async (r) => r.status + ' ' + r.headers.get('ETag') + ' ' + await r.text(), (err) => 'blocked')`, url, options))
	}
	put := fmt.Sprintf(`{method: 'PUT', body: '{"name":"Fern"}', headers: {Authorization: 'Bearer %s', 'Content-Type': 'application/json', 'If-None-Match': '*'}}`, harness.Token)
	if got := fetch(s.API+"/plants/1", put); !strings.HasPrefix(got, "200 \"") || !strings.Contains(got, "Fern") {
		t.Errorf("PUT from an allowed origin: %s", got)
	}
	b.expect("status of 401")
	if got := fetch(s.API+"/plants", "{}"); !strings.HasPrefix(got, "401 ") || !strings.Contains(got, "40101") {
		t.Errorf("without a token from an allowed origin: %s", got)
	}
	b.expect("blocked by CORS policy", "net::ERR_FAILED")
	if got := fetch("http://"+s.Addr+"/metrics", fmt.Sprintf(`{headers: {Authorization: 'Bearer %s'}}`, harness.Token)); got != "blocked" {
		t.Errorf("/metrics from another origin: %s", got)
	}
	closed := startServer(t)
	if got := fetch(closed.API+"/plants/1", put); got != "blocked" {
		t.Errorf("PUT where no origin is allowed: %s", got)
	}
	if _, body := closed.Call(harness.Token, "GET", "/plants", ""); body != "[]\n" {
		t.Errorf("the closed store has %s", body)
	}
}
