package console

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newConsole(t *testing.T, base string) *Console {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(u)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// get requests a page, which must exist.
func get(t *testing.T, c *Console, path string, header ...string) *http.Response {
	t.Helper()
	page := c.Page(path)
	if page == nil {
		t.Fatalf("there is no page at %s", path)
	}
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPagesMayLoadOnlyTheirOwnFiles(t *testing.T) {
	c := newConsole(t, "http://127.0.0.1:8080")
	for _, path := range []string{"/", "/docs"} {
		h := get(t, c, path).Header
		policy := h.Get("Content-Security-Policy")
		for _, rule := range []string{
			"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:",
			"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
		} {
			if !strings.Contains(policy+";", rule+";") {
				t.Errorf("%s: the policy %q lacks %s", path, policy, rule)
			}
		}
		for _, loose := range []string{"unsafe", "*", "http:", "https:"} {
			if strings.Contains(policy, loose) {
				t.Errorf("%s: the policy %q has %s", path, policy, loose)
			}
		}
	}
	if policy := get(t, c, "/").Header.Get("Content-Security-Policy"); !strings.Contains(policy, "require-trusted-types-for 'script'; trusted-types 'none'") {
		t.Errorf("the policy of the console %q lets strings become markup", policy)
	}
}

func TestEveryPageHasTheSecurityHeaders(t *testing.T) {
	c := newConsole(t, "http://127.0.0.1:8080")
	for path := range c.pages {
		if path == "/docs/" {
			continue
		}
		h := get(t, c, path).Header
		for name, want := range map[string]string{
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if h.Get("Content-Type") == "application/octet-stream" {
			t.Errorf("%s has no specific media type", path)
		}
		if path != "/" && path != "/docs" {
			continue
		}
		if got := h.Get("Cross-Origin-Opener-Policy"); got != "same-origin" {
			t.Errorf("%s: Cross-Origin-Opener-Policy is %q, want same-origin", path, got)
		}
		if !strings.Contains(body(t, get(t, c, path)), `<meta name="description"`) {
			t.Errorf("%s has no description", path)
		}
	}
}

func TestPagesHaveNoInlineScriptOrStyle(t *testing.T) {
	c := newConsole(t, "http://127.0.0.1:8080")
	inline := regexp.MustCompile(`(?i)<script[^>]*>[^<]|<style|\sstyle=|\son[a-z]+=|javascript:|https?://`)
	for _, path := range []string{"/", "/docs"} {
		if found := inline.FindString(body(t, get(t, c, path))); found != "" {
			t.Errorf("%s contains %q", path, found)
		}
	}
}

func TestPagesAreRevalidatedAndFilesAreCached(t *testing.T) {
	c := newConsole(t, "http://127.0.0.1:8080")
	for _, path := range []string{"/", "/docs"} {
		first := get(t, c, path)
		if got := first.Header.Get("Cache-Control"); got != "no-cache" {
			t.Errorf("%s: Cache-Control is %q", path, got)
		}
		if again := get(t, c, path, "If-None-Match", first.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s, unchanged: got %d", path, again.StatusCode)
		}
	}
	loads := regexp.MustCompile(`(?:src|href)="(assets/[0-9a-f]{16}/[^"]+)"`).FindAllStringSubmatch(body(t, get(t, c, "/"))+body(t, get(t, c, "/docs")), -1)
	if len(loads) < 6 {
		t.Fatalf("the pages load %d files", len(loads))
	}
	for _, m := range loads {
		r := get(t, c, "/"+m[1])
		if got := r.Header.Get("Cache-Control"); r.StatusCode != http.StatusOK || got != "public, max-age=31536000, immutable" {
			t.Errorf("%s: got %d with the Cache-Control %q", m[1], r.StatusCode, got)
		}
	}
}

func TestFolderNameChangesWithTheFiles(t *testing.T) {
	one := files{{name: "a.js", zipped: []byte("1")}, {name: "b.js", zipped: []byte("2")}}
	other := files{{name: "a.js", zipped: []byte("1")}, {name: "b.js", zipped: []byte("3")}}
	if one.folder() == other.folder() {
		t.Error("different content has the same folder")
	}
	if again := (files{{name: "a.js", zipped: []byte("1")}, {name: "b.js", zipped: []byte("2")}}); one.folder() != again.folder() {
		t.Error("the same content has a different folder")
	}
}

func TestPagesUseThePathOfTheAPI(t *testing.T) {
	for base, want := range map[string]string{
		"http://127.0.0.1:8080":              `content=""`,
		"http://127.0.0.1:8080/":             `content=""`,
		"https://example.com/store/v1/":      `content="/store/v1"`,
		"https://example.com/a%20b/%22%3E":   `content="/a%20b/%22%3E"`,
		`https://example.com/"><script>x&'`:  `content="/%22%3E%3Cscript%3Ex&amp;%27"`,
		"https://example.com//evil.test/api": `content="//evil.test/api"`,
	} {
		c := newConsole(t, base)
		for _, path := range []string{"/", "/docs"} {
			if html := body(t, get(t, c, path)); !strings.Contains(html, `<meta name="plantstore-base" `+want+`>`) {
				t.Errorf("%s over %s does not say %s", path, base, want)
			}
		}
	}
}

func TestUnknownPathsHaveNoPage(t *testing.T) {
	c := newConsole(t, "http://127.0.0.1:8080")
	for _, path := range []string{"", "/index.html", "/assets/", "/assets/0123456789abcdef/console.js", "/web/index.html"} {
		if c.Page(path) != nil {
			t.Errorf("there is a page at %s", path)
		}
	}
}

func TestFilesAreServedWithoutComments(t *testing.T) {
	source := "// why\n/**\n * about f\n */\nexport function f() {\n  // here\n  /** @type {any} */\n  const x = 'a // b';\n  f(/** @type {T} */ (x), y); // why\n  return /* x */ x;\n}\n/* a\n   b */\n/** @type {T} */ (x).y();\n"
	want := "\n\n\n\nexport function f() {\n\n\nconst x = 'a // b';\nf((x), y);\nreturn /* x */ x;\n}\n\n\n(x).y();\n"
	if got := string(compact([]byte(source))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// A template that spans lines would lose its indentation.
	entries, err := web.ReadDir("web")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := web.ReadFile("web/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if code, _, _ := strings.Cut(line, "// "); strings.HasSuffix(entry.Name(), ".js") && strings.Count(code, "`")%2 != 0 {
				t.Errorf("%s:%d: a template spans lines: %s", entry.Name(), i+1, line)
			}
		}
	}
}

func TestEveryModuleIsInOneScript(t *testing.T) {
	all, err := scripts()
	if err != nil {
		t.Fatal(err)
	}
	var code string
	for _, script := range all {
		code += string(script.body)
	}
	entries, err := web.ReadDir("web")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name, isScript := strings.CutSuffix(entry.Name(), ".js")
		if !isScript || name == "theme" || name == "docs" || name == "console" {
			continue
		}
		if n := strings.Count(code, "const $"+name+" = (() => {"); n != 1 {
			t.Errorf("%s is in the scripts %d times", entry.Name(), n)
		}
	}
}

// The limit is on everything of ours that the console and the reference load, compressed. It
// does not count Swagger UI, a module of others.
func TestConsoleIsSmall(t *testing.T) {
	c := newConsole(t, "http://127.0.0.1:8080")
	size := 0
	for path := range c.pages {
		if !strings.Contains(path, "swagger-ui") {
			size += len(body(t, get(t, c, path, "Accept-Encoding", "gzip")))
		}
	}
	t.Logf("%d bytes", size)
	if size > 80_000 {
		t.Errorf("the console has %d bytes, want at most 80,000", size)
	}
}

func TestFilesAreServedCompressedOrPlain(t *testing.T) {
	c := newConsole(t, "http://127.0.0.1:8080")
	all := ""
	for path := range c.pages {
		if path == "/docs/" {
			continue // it redirects
		}
		response := get(t, c, path)
		plain := body(t, response)
		all += plain
		zipped := get(t, c, path, "Accept-Encoding", "gzip, br")
		if zipped.Header.Get("Content-Encoding") != "gzip" || zipped.Header.Get("Vary") != "Accept-Encoding" || response.Header.Get("Vary") != "Accept-Encoding" {
			t.Fatalf("%s: the headers are %v", path, zipped.Header)
		}
		if tag := zipped.Header.Get("ETag"); tag != "" && tag == response.Header.Get("ETag") {
			t.Errorf("%s has the same ETag in both forms", path)
		}
		in, err := gzip.NewReader(zipped.Body)
		if err != nil {
			t.Fatal(err)
		}
		if unzipped, err := io.ReadAll(in); err != nil || string(unzipped) != plain {
			t.Errorf("%s: zipped and plain differ: %v", path, err)
		}
	}
	if !strings.Contains(all, "SwaggerUIBundle") {
		t.Error("there is no Swagger UI")
	}
}
