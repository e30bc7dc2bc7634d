package console_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
)

// The pages need no token, whatever the path of the API.
func TestServerServesThePages(t *testing.T) {
	s := servertest.Start(t, servertest.Options{Store: storetest.NewModel(), BaseURL: servertest.URL("/shop/v1")})
	web := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	get := func(path string, status int) (http.Header, string) {
		t.Helper()
		response, err := web.Get("http://" + s.Addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != status {
			t.Errorf("%s: got %d %.200s, %v; want %d", path, response.StatusCode, body, err, status)
		}
		if response.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: no X-Request-Id", path)
		}
		return response.Header, string(body)
	}
	for _, path := range []string{"/", "/docs"} {
		header, page := get(path, http.StatusOK)
		if !strings.HasPrefix(header.Get("Content-Type"), "text/html") || header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: the header is %v", path, header)
		}
		files := regexp.MustCompile(`(?:src|href)="(assets/[^"]+)"`).FindAllStringSubmatch(page, -1)
		if len(files) < 2 {
			t.Errorf("%s loads %d files", path, len(files))
		}
		for _, file := range files {
			get("/"+file[1], http.StatusOK)
		}
	}
	if header, _ := get("/docs/", http.StatusPermanentRedirect); header.Get("Location") != "../docs" {
		t.Errorf("/docs/ redirects to %q", header.Get("Location"))
	}
	for _, path := range []string{"/assets/", "/assets/0123456789abcdef/console.js", "/index.html", "/shop/v1/docs"} {
		if header, body := get(path, http.StatusNotFound); header.Get("Content-Type") != "application/json" || !strings.Contains(body, `"error":40401`) {
			t.Errorf("%s: got %s", path, body)
		}
	}
}
