package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
	b.wait("$('.swagger-ui .modal-ux input').type === 'password'")
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
	b.scrollTo("#operations-plants-createPlant .live-responses-table")
	b.shot("docs-created")
	if got, want := s.plant("9223372036854775807"), `{"name":"Made in the reference","tag":"herb"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
	b.size(360, 740)
	b.eval("scrollTo(0, 0)")
	b.shot("docs-narrow")
}

// extremeIDs are ids that a JavaScript number cannot keep, and their neighbours.
var extremeIDs = []string{
	"-9223372036854775808", "-9007199254740993", "-9007199254740991",
	"9007199254740991", "9007199254740993", "9223372036854775807",
}

// openReference opens the reference of the server in a tab where the console has a token.
func openReference(s *server) *tab {
	s.t.Helper()
	b := openConsole(s)
	b.open("http://" + s.Addr + "/docs")
	b.see(".swagger-ui .info", "Plant Store")
	return b
}

// operation opens an operation of the reference and returns its selector.
func (b *tab) operation(name string) string {
	b.t.Helper()
	selector := "#operations-" + name
	b.click(selector + " .opblock-summary-control")
	b.see(selector, "Execute")
	return selector
}

// execute calls an operation and waits for the response. Swagger UI keeps the last one
// until then. It takes over what was written in a field when the field loses the focus, and
// renders the page, so this comes before the click.
func (b *tab) execute(selector, status string) {
	b.t.Helper()
	defer func() {
		if b.t.Failed() {
			b.t.Logf("the operation shows:\n%s", b.text(selector))
		}
	}()
	b.eval("document.activeElement.blur()")
	b.eval(fmt.Sprintf(`$('%s .btn-clear')?.click()`, selector))
	b.hidden(selector + " .live-responses-table")
	b.click(selector + " .execute")
	b.see(selector+" .live-responses-table .response-col_status", status)
}

func TestReferenceKeepsEveryIDAndUsesTheTokenOfTheConsole(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openReference(s)
	create := b.operation("plants-createPlant")
	for _, id := range extremeIDs {
		s.put(id, fmt.Sprintf(`{"name":"Plant %s"}`, id))
	}
	inPage := []string{"-9223372036854775808", "9007199254740993"} // each call renders the whole page
	for _, id := range inPage {
		s.Call(harness.Token, "DELETE", "/plants/"+id, "")
		b.write(create+" textarea", fmt.Sprintf(`{"id":%s,"name":"Plant %s"}`, id, id))
		b.execute(create, "200")
		b.see(create+" .samples", fmt.Sprintf(`"id":%s,`, id))
	}
	b.see(create+" .samples", `-H "Authorization: Bearer $PLANTSTORE_TOKEN"`)
	b.wait(fmt.Sprintf(`$$('%s pre').filter((e) => e.innerText.includes('curl -X')).length === 1`, create))
	for language, want := range map[string]string{"Go example": "client.New(", "TypeScript example": "new Plantstore({", "Python example": "store = Client("} {
		b.clickText(create+" .samples button", language)
		b.see(create+" .samples", want)
		b.see(create+" .samples", s.API)
	}
	if strings.Contains(evaluate[string](b, "document.documentElement.outerHTML"), harness.Token) {
		t.Error("the page has the token")
	}
	if _, got := s.Call(harness.Token, "GET", "/plants", ""); strings.Count(got, `"id":`) != len(extremeIDs) {
		t.Errorf("the store has %s", got)
	}

	list := b.operation("plants-listPlants")
	b.execute(list, "200")
	for _, id := range extremeIDs {
		b.see(list+" .live-responses-table code.language-json", fmt.Sprintf(`"id": %s,`, id))
	}
	colour := func(text string) string {
		return evaluate[string](b, fmt.Sprintf(`getComputedStyle([...$$('%s .live-responses-table code span')].find((e) => e.textContent === '%s')).color`, list, text))
	}
	if number, text := colour("9007199254740993"), colour(`"Plant 9007199254740993"`); number == text {
		t.Errorf("a number has the colour of a text, %s", number)
	}
	b.scrollTo(list + " .live-responses-table")
	b.shot("docs-exact")
	b.image("api-reference")

	read, remove := b.operation("plants-getPlant"), b.operation("plants-deletePlant")
	if names := evaluate[[]string](b, fmt.Sprintf(`[...$$('%s tr[data-param-name]')].map((e) => e.dataset.paramName)`, read)); names[0] != "id" {
		t.Errorf("the parameters are in the order %s", names)
	}
	for _, id := range inPage {
		b.clickText(read+" .samples button", "curl")
		b.write(read+" tr[data-param-name=id] input", id)
		b.eval("document.activeElement.blur()")
		b.see(read+" .samples", s.API+"/plants/"+id+"?") // as it was typed, before it is sent
		b.execute(read, "200")
		b.hidden(read + " .request-url")
		b.see(read+" .live-responses-table", "Plant "+id)
		b.write(remove+" tr[data-param-name=id] input", id)
		b.execute(remove, "204")
	}
	if _, got := s.Call(harness.Token, "GET", "/plants", ""); strings.Count(got, `"id":`) != len(extremeIDs)-len(inPage) {
		t.Errorf("the store still has %s", got)
	}
}

func TestReferenceFitsAndIsAccessible(t *testing.T) {
	t.Parallel()
	b := openReference(startServer(t))
	create := b.operation("tokens-createToken")
	b.clickText(create+" .tablinks", "Schema")
	b.see(create+" .model-box", "scopes")
	list := b.operation("plants-listPlants")
	b.execute(list, "200")
	b.eval("scrollTo(0, 0)")
	for _, screen := range screens {
		name := fmt.Sprintf("%d-%s", screen.width, screen.scheme)
		t.Log(name) // the subject of the failures that follow
		b.size(screen.width, screen.height)
		b.scheme(screen.scheme)
		b.shot("docs-" + name)
		b.fits()
		b.accessible()
		b.eval(fmt.Sprintf("$('%s .responses-wrapper').scrollIntoView()", list))
		b.shot("docs-code-" + name)
		b.eval("scrollTo(0, 0)")
		b.click(".swagger-ui .btn.authorize")
		b.see(".swagger-ui .modal-ux", "Logout")
		b.accessible()
		b.shot("docs-token-" + name)
		b.click(".swagger-ui .modal-ux .btn-done")
		for selector, want := range map[string]map[string]string{
			"body":                        {"light": "rgb(244, 247, 243)", "dark": "rgb(15, 20, 17)"},
			list + " .highlight-code pre": {"light": "rgb(238, 244, 238)", "dark": "rgb(30, 40, 33)"},
		} {
			if got := evaluate[string](b, fmt.Sprintf("getComputedStyle($(%q)).backgroundColor", selector)); got != want[screen.scheme] {
				t.Errorf("%s is %s, want %s", selector, got, want[screen.scheme])
			}
		}
	}
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
	b.expect("blocked by CORS policy", "net::ERR_FAILED", "Cross-Origin Request Blocked")
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
