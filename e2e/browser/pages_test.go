package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"plantstore"
	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// page opens a page of the console by the menu.
func (b *tab) page(name string) {
	b.t.Helper()
	b.click(fmt.Sprintf(`#pages a[href="#/%s"]`, name))
	b.see(fmt.Sprintf(`[data-page="%s"] h1`, name), "")
}

// signInAs signs in with a token that cannot open the page of plants, and so begins with another.
func (b *tab) signInAs(token string) {
	b.t.Helper()
	b.see("#sign-in", "Sign in")
	b.write("#token", token+kb.Enter)
	b.hidden("#sign-in")
	b.see(`[data-page="overview"] h1`, "Overview")
	b.focused(`[data-page="overview"] h1`)
}

// takeSecret returns the secret that the dialog shows, and closes it.
func (b *tab) takeSecret(label string) string {
	b.t.Helper()
	b.see("dialog", "it is never shown again")
	secret := b.value("@secret")
	b.press(kb.Escape)
	b.see("dialog", "it is never shown again") // it was not copied
	b.click("@copy")
	b.see("@toast", label+" copied.")
	b.click("@done")
	b.wait(fmt.Sprintf("!document.documentElement.outerHTML.includes(%q)", secret))
	return secret
}

func TestTokenIsCreatedUsedAndRevoked(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Command("token", "create", "--name", "nightly export", "--scopes", "plants:read,events:read")
	s.Command("token", "create", "--name", "ci", "--expires", "30d")
	b := openConsole(s)
	b.page("tokens")
	b.see("#tokens tr", "You")
	b.click("#new-token")
	b.expect("status of 400", "status of 409")
	b.click("@submit")
	b.see("dialog @problem", `"name"`)
	b.write("#token-name", "backup")
	const chosen = `[...$$('dialog input:checked')].map((box) => box.value).join()`
	for _, preset := range []struct{ name, scopes string }{
		{"Operator", "events:read,tokens:read,tokens:write,webhooks:read,webhooks:write,ops:read"},
		{"Read and write", "plants:read,plants:write"},
	} {
		b.eval(fmt.Sprintf(`{ const e = $('#token-preset'); e.value = %q; e.dispatchEvent(new Event('change')); }`, preset.name))
		b.wait(fmt.Sprintf(`%s === %q`, chosen, preset.scopes))
	}
	b.click(`dialog input[value="ops:read"]`)
	b.wait(`$('#token-preset').value === 'Custom'`)
	b.click(`dialog input[value="ops:read"]`)
	b.click(`dialog input[value="plants:write"]`)
	b.wait(`$('#token-preset').value === 'Read only'`)
	b.shot("token-form")
	b.click("@submit")
	b.see("dialog", "it is never shown again")
	for _, width := range []int64{320, 360, 500, 680, 1280} {
		b.size(width, 800)
		b.wait(`(() => { const text = document.createRange(); text.selectNodeContents($('@copy')); return text.getClientRects().length === 1; })()`)
	}
	secret := b.takeSecret("Token")
	if status, body := s.Call(secret, "GET", "/plants", ""); status != http.StatusOK {
		t.Errorf("GET with the token: %d %s", status, body)
	}
	if status, body := s.Call(secret, "POST", "/plants", `{"id":1,"name":"a"}`); status != http.StatusForbidden {
		t.Errorf("POST with the token: %d %s", status, body)
	}
	_, own := s.Call(secret, "GET", "/token", "")
	if !strings.Contains(own, `"scopes":["plants:read"]`) || strings.Contains(own, `"expires":null`) {
		t.Errorf("the token is %s", own)
	}
	b.see("#tokens tr", "backup")
	b.see("#tokens tr", "plants:read")
	for column, want := range map[string]string{"Created by": "bootstrap (you)", "Last used": "never", "Expires": "Feb"} {
		if column == "Expires" {
			want = time.Now().AddDate(0, 0, 90).Format("Jan") // whatever the locale of the browser
		}
		b.see(fmt.Sprintf(`#tokens tr:has(@revoke-backup) td:nth-child(%d)`, evaluate[int](b, fmt.Sprintf(`$$('#tokens th').findIndex((e) => e.innerText === %q) + 1`, column))), want)
	}
	b.see(`#tokens tr:has(@revoke-ci)`, "operator")
	b.shot("tokens")
	b.image("console-tokens")

	b.click("@revoke-backup")
	b.see("dialog", "It has 1 scope: plants:read.")
	b.shot("token-revoke")
	b.click("@cancel")
	b.hidden("dialog")
	b.click("@revoke-backup")
	b.click("@submit")
	b.see("@toast", "Token backup was revoked.")
	b.see("#tokens summary", "Revoked and expired (1)")
	b.wait(`document.activeElement.tagName === 'H1'`)
	s.awaitRefused(secret)
	b.click("#tokens summary")
	b.see("#tokens details tr", "backup")
	b.hidden("#tokens details button")

	// The last token that can create others stays.
	b.click("@revoke-bootstrap")
	b.see("dialog", "You are signed in with this token.")
	b.click("@submit")
	b.see("dialog @problem", "is the last one with the scope tokens:write")
	b.shot("token-last")
	b.press(kb.Escape)
	b.hidden("dialog")
}

func TestNobodyCanGiveAwayMoreThanTheyHave(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	maker := s.Command("token", "create", "--name", "maker", "--scopes", "tokens:read,tokens:write", "--expires", "10d")
	auditor := s.Command("token", "create", "--name", "auditor", "--scopes", "tokens:read")
	b := openTab(t, "http://"+s.Addr+"/")
	b.signInAs(maker)
	b.page("tokens")
	if names := b.text("#pages"); strings.Contains(names, "Plants") || strings.Contains(names, "Webhooks") {
		t.Errorf("the menu has %s", names)
	}
	b.click("#new-token")
	b.see("dialog", "New token")
	if got := evaluate[[]string](b, "[...$$('dialog[open] input[type=checkbox]')].map((e) => e.value)"); fmt.Sprint(got) != "[tokens:read tokens:write]" {
		t.Errorf("the form offers the scopes %s", got)
	}
	if got := evaluate[[]string](b, "[...$$('dialog[open] option')].map((e) => e.textContent)"); fmt.Sprint(got) != "[7 days When my token expires]" {
		t.Errorf("the form offers the lifetimes %s", got)
	}
	b.write("#token-name", "child")
	b.click(`dialog input[value="tokens:read"]`)
	b.click("@submit")
	b.takeSecret("Token")
	b.see("#tokens tr", "child")

	b.click("#sign-out")
	b.signInAs(auditor)
	b.page("tokens")
	b.see("#tokens tr", "child")
	b.hidden("#new-token")
	b.hidden("#tokens tr button")
	b.open("http://" + s.Addr + "/#/webhooks")
	b.see("#console", "Your token cannot open Webhooks")
	b.see("#console", "It needs the scope webhooks:read or webhooks:write.")
}

// Whoever follows a link of the navigation is on the page that it leads to.
func TestFocusFollowsToTheHeadingOfAPage(t *testing.T) {
	t.Parallel()
	b := openConsole(startServer(t))
	for _, name := range []string{"overview", "activity", "webhooks", "tokens", "plants"} {
		b.page(name)
		b.wait(fmt.Sprintf(`document.activeElement === $('[data-page="%s"] h1')`, name))
	}
	b.eval("history.back()")
	b.wait(`document.activeElement === $('[data-page="tokens"] h1')`)
}

func TestWebhookIsCreatedTestedAndDeleted(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(http.StatusOK)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(int(status.Load()))
		io.WriteString(w, "<b>said the receiver</b>\r\n  to \u202Euoy")
	}))
	defer receiver.Close()
	s := startServer(t, "--webhook-allow", "127.0.0.0/8")
	b := openConsole(s)
	b.page("webhooks")
	b.see("#webhooks", "No webhooks")
	b.shot("webhooks-empty")
	b.click("#new-webhook")
	b.expect("status of 400", "status of 410")
	b.click("@submit")
	b.see("dialog @problem", `"url"`)
	b.write("#webhook-url", receiver.URL+"/hook")
	b.write("#webhook-description", "The archive")
	for _, kind := range []string{"created", "replaced", "deleted"} {
		b.click(fmt.Sprintf(`dialog input[value="plant.%s"]`, kind))
	}
	b.click("@submit")
	b.see("dialog @problem", "Choose at least one kind of change.")
	b.click(`dialog input[value="plant.created"]`)
	b.click(`dialog input[value="plant.deleted"]`)
	b.shot("webhook-form")
	b.click("@submit")
	first := b.takeSecret("Secret")
	if !strings.HasPrefix(first, "whsec_") {
		t.Errorf("the secret is %s", first)
	}
	b.see("#webhook-drawer", "plant.created, plant.deleted")
	b.see("#webhook-drawer", " by bootstrap (you)")
	b.see("#deliveries", "Nothing was sent yet.")

	b.click("#test-webhook")
	b.see("@toast", "The test was delivered: 200 in")
	b.see("#deliveries", "webhook.test: 200 in")
	s.put("1", `{"name":"Oak"}`)
	b.see("#deliveries li >> nth=0", "plant.created: 200 in")
	b.see("#deliveries li >> nth=-1", "webhook.test: 200 in")
	b.shot("webhook")
	b.image("console-webhooks")

	// A receiver that is gone disables the webhook.
	status.Store(http.StatusGone)
	b.click("#test-webhook")
	b.see("@toast", "The test failed: 410 in")
	b.see("#deliveries li >> nth=0", "webhook.test: 410 in")
	b.see("#deliveries li >> nth=0", "<b>said the receiver</b>")
	if got, want := evaluate[string](b, "$('#deliveries pre').textContent"), "<b>said the receiver</b>\r\n  to U+202Euoy"; got != want {
		t.Errorf("the answer is shown as %q, want %q", got, want)
	}
	s.put("2", `{"name":"Elm  of \u202Eemosdnah"}`)
	testenv.Eventually(t, func() error {
		if _, got := s.Call(harness.Token, "GET", "/webhooks", ""); !strings.Contains(got, `"state":"disabled"`) {
			return fmt.Errorf("the webhooks are %s", got)
		}
		return nil
	})
	b.reload()
	b.see("#alerts", "Webhook disabled\nNothing is sent to "+receiver.URL+"/hook: the endpoint responded 410 Gone.")
	b.wait("$('#alerts p').offsetHeight < 40") // one line
	b.see("#webhook", "disabled")
	b.see("#deliveries", "plant.created: 410 in") // tests are not kept
	if got := b.text("#deliveries"); strings.Contains(got, "webhook.test") {
		t.Errorf("the deliveries are %s", got)
	}
	b.see("#deliveries pre", "<b>said the receiver</b>")
	b.click("#deliveries summary")
	b.see("#deliveries details pre", `"name": "Elm  of U+202Eemosdnah"`)
	b.shot("webhook-disabled-page")
	status.Store(http.StatusOK)
	b.click("#resume-webhook")
	b.see("@toast", "The webhook was resumed.")
	b.see("#webhook @condition", "healthy")
	b.see("#webhook", "Last error")
	b.hidden("#alerts p")

	// Paused by hand, it alarms nobody, and stays so when it is edited.
	b.click("#pause-webhook")
	b.see("@toast", "The webhook is paused.")
	b.see("#webhook @condition", "paused")
	b.hidden("#alerts p")
	b.hidden("#pause-webhook")
	b.shot("webhook-paused")
	b.click("#edit-webhook")
	b.see("@submit", "Save")
	b.click("@submit")
	b.see("@toast", "The webhook was saved. It is still paused.")
	b.click("#resume-webhook")
	b.see("#webhook @condition", "healthy")

	// Whoever repairs a webhook that is disabled resumes it.
	status.Store(http.StatusGone)
	s.put("3", `{"name":"Ash"}`)
	b.see("#webhook @condition", "disabled")
	status.Store(http.StatusOK)
	b.click("#edit-webhook")
	b.see("@submit", "Save and resume")
	b.click("@submit")
	b.see("@toast", "The webhook was saved and resumed.")
	b.see("#webhook @condition", "healthy")
	b.see("#deliveries li >> nth=0", "plant.created: 200 in")

	b.click("#edit-webhook")
	b.write("#webhook-description", "Another \u202Earchive")
	b.click("@submit")
	b.see("#webhook", "Another U+202Earchive")
	b.see("#webhooks li", "Another U+202Earchive")
	b.click("#rotate-webhook")
	b.click("@submit")
	if second := b.takeSecret("Secret"); !strings.HasPrefix(second, "whsec_") || second == first {
		t.Errorf("the new secret is %s, the first was %s", second, first)
	}
	b.click("#delete-webhook")
	b.see("dialog", "Nothing more will be sent to "+receiver.URL)
	b.click("@submit")
	b.see("#webhooks", "No webhooks")
	b.hidden("#webhook-drawer")
	if _, got := s.Call(harness.Token, "GET", "/webhooks", ""); got != "[]\n" {
		t.Errorf("the server has the webhooks %s", got)
	}
}

func TestFailingWebhookIsNotShownAsActive(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(http.StatusInternalServerError)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(int(status.Load()))
	}))
	defer receiver.Close()
	s := startServer(t, "--webhook-allow", "127.0.0.0/8")
	if status, got := s.Call(harness.Token, "POST", "/webhooks", fmt.Sprintf(`{"url":%q}`, receiver.URL+"/hook")); status != http.StatusCreated {
		t.Fatalf("create a webhook: %d %s", status, got)
	}
	s.put("9007199254740993", `{"name":"Oak"}`)
	b := openConsole(s)
	b.page("webhooks")
	b.see("#webhooks @condition", "failing")
	b.see("#webhooks li", "attempt")
	b.see("#webhooks li", "500")
	b.click("#webhooks a")
	b.see("#webhook", "500")
	b.see("#webhook", "1, the oldest for")
	b.see("#webhook", "Next attempt")
	b.see("#retry-webhook", "Retry now")
	b.see("#deliveries", "plant.created: 500 in")
	b.wait(`$('#deliveries svg').ariaLabel.startsWith('0 arrived and')`)
	b.click("#deliveries summary")
	b.see("#deliveries details pre", `"id": 9007199254740993`)
	b.shot("webhook-failing")

	// After 5 minutes every page says so, until the user has dismissed it.
	b.hidden("#alerts p")
	b.eval("const now = Date.now; Date.now = () => now() + 300_000")
	again := func() {
		b.click("#sign-out")
		b.signIn(harness.Token)
	}
	b.eval("localStorage.setItem('plantstore.dismissed', 'what is not ours')")
	again()
	b.see("#alerts", "Webhook failing")
	b.see("#alerts", receiver.URL)
	b.shot("webhook-alert")
	b.click("#alerts button")
	b.hidden("#alerts p")
	again()
	b.page("webhooks")
	b.see("#webhooks @condition", "failing")
	b.hidden("#alerts p")
	b.see("#webhooks li", "the last ")

	// What is sent arrives at once, and the page follows. The old error is history.
	status.Store(http.StatusNoContent)
	b.click("#webhooks a")
	b.click("#retry-webhook")
	b.see("@toast", "Undelivered events are being sent.")
	b.see("#deliveries li >> nth=0", "plant.created: 204 in")
	b.see("#webhook @condition", "healthy")
	b.see("#webhooks @condition", "healthy")
	b.see("#webhook", "The endpoint responded 500.")
	b.hidden("#retry-webhook")
	b.shot("webhook-recovered")

	b.click("#replay-webhook")
	b.click("@submit")
	b.see("@toast", "The events are being sent again.")
	b.wait(`[...$$('#deliveries li')].filter((e) => e.innerText.includes('204 in')).length === 2`)

	// An alert that was dismissed returns when something else is wrong.
	status.Store(http.StatusInternalServerError)
	s.put("2", `{"name":"Elm"}`)
	b.see("#webhook @condition", "failing")
	again()
	b.see("#alerts", "Webhook failing")
}

// A receiver that is slow gets everything in the end, and the page says when.
func TestWebhookThatCatchesUpSaysUntilWhen(t *testing.T) {
	t.Parallel()
	pace, fast := time.NewTicker(40*time.Millisecond), make(chan struct{})
	defer pace.Stop()
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-pace.C:
		case <-fast:
		}
	}))
	defer receiver.Close()
	s := startServer(t, "--webhook-allow", "127.0.0.0/8")
	if status, got := s.Call(harness.Token, "POST", "/webhooks", fmt.Sprintf(`{"url":%q}`, receiver.URL+"/hook")); status != http.StatusCreated {
		t.Fatalf("create a webhook: %d %s", status, got)
	}
	s.Import(garden(900))
	b := openConsole(s)
	b.page("webhooks")
	b.see("#webhooks @condition", "catching up")
	b.click("#webhooks a")
	b.see("#webhook @condition", "catching up")
	b.see("#webhook", "the oldest for")
	b.see("#webhook", "Caught up at about ")
	b.hidden("#alerts p")
	for _, scheme := range []string{"dark", "light"} {
		b.scheme(scheme)
		b.readable()
		b.shot("webhook-catching-up-" + scheme)
	}
	close(fast)
	b.see("#webhook @condition", "healthy")
}

// clickText clicks the element with this text.
func (b *tab) clickText(selector, text string) {
	b.t.Helper()
	b.see(selector, text)
	b.eval(fmt.Sprintf(`[...$$(%q)].find((e) => e.innerText === %q).click()`, selector, text))
}

func TestWebhooksPageWithoutWriteScopeOnlyShows(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--webhook-allow", "127.0.0.0/8")
	if status, got := s.Call(harness.Token, "POST", "/webhooks", `{"url":"http://127.0.0.1:9/hook"}`); status != http.StatusCreated {
		t.Fatalf("create a webhook: %d %s", status, got)
	}
	b := openTab(t, "http://"+s.Addr+"/")
	b.signInAs(s.Command("token", "create", "--name", "reader", "--scopes", "webhooks:read"))
	b.page("webhooks")
	b.click("#webhooks a")
	b.see("#deliveries", "Nothing was sent yet.")
	b.hidden("#new-webhook")
	b.hidden("#webhook button")
	b.press(kb.Escape)
	b.hidden("#webhook-drawer")
	b.eval("history.back()")
	b.see("#webhook-drawer", "http://127.0.0.1:9/hook")

	// Without events:read it cannot make a webhook send them.
	b = openTab(t, "http://"+s.Addr+"/")
	b.signInAs(s.Command("token", "create", "--name", "janitor", "--scopes", "webhooks:read,webhooks:write"))
	b.page("webhooks")
	b.hidden("#new-webhook")
	b.click("#webhooks a")
	b.see("#rotate-webhook", "")
	b.see("#delete-webhook", "")
	b.hidden("#test-webhook, #replay-webhook, #edit-webhook")
}

func TestOverviewSaysWhatTheServerIsAndHowItDoes(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--webhook-allow", "127.0.0.0/8")
	var status atomic.Int64
	status.Store(http.StatusInternalServerError)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	defer receiver.Close()
	s.Import(garden(1234))
	b := openConsole(s)
	b.page("overview")
	b.see("#figures", "Plants\n1,234")
	b.see("#figures", "Events kept\n1,235")
	for _, figure := range []string{"Size on disk\n[0-9.]+ [kM]B", "Uptime\n[0-9]+ seconds?", "Size of the log\n[0-9.]+ [kM]B", "Oldest event\n(just now|[0-9]+ .* ago)"} {
		b.wait(fmt.Sprintf("/%s/.test($('#figures').innerText)", strings.ReplaceAll(figure, "\n", `\n`)))
	}
	for _, text := range []string{"Version", "SQLite, embedded", "Largest request\n1.05 MB", "Events are kept for\n7 days", "Requests with your token\nno limit", "plants:write create, change and delete plants", "API reference"} {
		b.see("#about", text)
	}
	b.see("#changes", "1,235 changes since")
	b.see("#failing", "There are no webhooks.")
	b.wait("/^[0-9.]+ ms$/.test($('#slowest strong').textContent)")
	b.see("#errors", "Errors/s\n0")
	if status, got := s.Call(harness.Token, "POST", "/webhooks", fmt.Sprintf(`{"url":%q}`, receiver.URL+"/hook")); status != http.StatusCreated {
		t.Fatalf("create a webhook: %d %s", status, got)
	}
	s.put("1", `{"name":"Fern"}`)
	b.see("#failing li", receiver.URL+"/hook failing")
	b.see("#failing li", "Next attempt")
	b.see("#failing li", "Since ")
	b.see("#failing li", "500")
	b.shot("overview")
	status.Store(http.StatusGone)
	b.see("#failing li", receiver.URL+"/hook disabled")
	b.click("#failing li a")
	b.see("#resume-webhook", "")

	// A token sees what it may.
	b.click("#sign-out")
	b.signInAs(s.Command("token", "create", "--name", "watcher", "--scopes", "tokens:read"))
	b.page("overview")
	b.see("#about", "tokens:read list tokens")
	for _, part := range []string{"#gauges", "#changes", "#failing"} {
		b.hidden(part)
	}
}

func TestOtherPagesFitAndAreAccessible(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--webhook-allow", "127.0.0.0/8")
	for i := range 4 {
		s.Command("token", "create", "--name", fmt.Sprintf("A token with a rather long name, number %d", i), "--scopes", "plants:read,plants:write,events:read")
	}
	s.Command("token", "revoke", "A token with a rather long name, number 3")
	s.Import(garden(3)) // before there are webhooks
	var paused plantstore.Webhook
	for _, hook := range []plantstore.Webhook{
		{URL: "http://127.0.0.1:9/hook", Types: []plantstore.EventType{plantstore.PlantCreated}},
		{URL: "http://127.0.0.1:9/" + strings.Repeat("long/", 40), Types: []plantstore.EventType{plantstore.PlantCreated}},
		{URL: "http://127.0.0.1:9/fails", Types: []plantstore.EventType{plantstore.PlantDeleted}},
	} {
		hook.Description = "The archive of everything that happens"
		made, _, err := s.Client(client.Options{}).CreateWebhook(t.Context(), hook, "")
		if err != nil {
			t.Fatal(err)
		}
		if hook.URL != "http://127.0.0.1:9/hook" && paused.ID == "" {
			paused = made
		}
	}
	if _, err := s.Client(client.Options{}).PauseWebhook(t.Context(), paused.ID); err != nil {
		t.Fatal(err)
	}
	if status, got := s.Call(harness.Token, "DELETE", "/plants/3", ""); status != http.StatusNoContent {
		t.Fatalf("delete a plant: %d %s", status, got)
	}
	b := openConsole(s)
	states := []pageState{
		{"activity", func() { b.page("activity"); b.see("#events", "Weeping fig") }, func() {}},
		{"tokens", func() { b.page("tokens"); b.see("#tokens tr", "You") }, func() {}},
		{"token-form", func() { b.click("#new-token"); b.see("dialog", "New token") }, func() { b.press(kb.Escape); b.hidden("dialog") }},
		{"webhooks", func() { b.page("webhooks"); b.see("#webhooks", "Next attempt") }, func() {}},
		{"webhook", func() {
			b.click("#webhooks a")
			b.see("#deliveries", "Nothing was sent yet.")
		}, func() { b.press(kb.Escape); b.hidden("#webhook-drawer") }},
		{"webhook-fails", func() {
			b.click("#webhooks .records > li:last-child a")
			b.see("#webhook", "Next attempt")
		}, func() { b.press(kb.Escape); b.hidden("#webhook-drawer") }},
		{"webhook-form", func() { b.click("#new-webhook"); b.see("dialog", "New webhook") }, func() { b.press(kb.Escape); b.hidden("dialog") }},
		{"overview", func() { b.page("overview"); b.see("#about", "Limits"); b.see("#failing", "Next attempt") }, func() {}},
	}
	b.examine(states)
}
