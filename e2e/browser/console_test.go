package browser

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// server is a server whose plants a test can change without the page.
type server struct {
	*harness.Server
	t *testing.T
}

func startServer(t *testing.T, flags ...string) *server {
	t.Helper()
	return &server{harness.Start(t, flags...), t}
}

// put creates or replaces a plant.
func (s *server) put(id, body string) {
	s.t.Helper()
	if status, got := s.Call(harness.Token, "PUT", "/plants/"+id, body); status != http.StatusOK {
		s.t.Fatalf("put plant %s: %d %s", id, status, got)
	}
}

// plant returns a plant as the API does.
func (s *server) plant(id string) string {
	s.t.Helper()
	_, got := s.Call(harness.Token, "GET", "/plants/"+id, "")
	return strings.TrimSpace(got)
}

// awaitRefused waits until the server refuses the token.
func (s *server) awaitRefused(token string) {
	s.t.Helper()
	testenv.Eventually(s.t, func() error {
		if status, body := s.Call(token, "GET", "/plants", ""); status != http.StatusUnauthorized {
			return fmt.Errorf("the token got %d %s", status, body)
		}
		return nil
	})
}

var (
	names = []string{"Monstera deliciosa", "Snake plant", "Weeping fig", "Peace lily", "Aloe vera", "Boston fern", "Jade plant", "English lavender", "Rosemary", "Japanese maple", "Common oak"}
	tags  = []string{"tropical", "succulent", "tree", "", "herb"}
)

// garden returns n plants with ids from 1, one per line.
func garden(n int) string {
	var lines strings.Builder
	for i := range n {
		tag := ""
		if text := tags[i%len(tags)]; text != "" {
			tag = fmt.Sprintf(`,"tag":%q`, text)
		}
		fmt.Fprintf(&lines, "{\"id\":%d,\"name\":%q%s}\n", i+1, names[i%len(names)], tag)
	}
	return lines.String()
}

func (b *tab) row(id string) string { return fmt.Sprintf(`tr[data-id="%s"]`, id) }

// openPlant opens a plant in the drawer.
func (b *tab) openPlant(id string) {
	b.t.Helper()
	b.click(b.row(id) + " a")
	b.see("#drawer-title", "Plant "+id)
	b.see("#plant-facts", id)
}

// edit opens the form for a plant.
func (b *tab) edit(id string) {
	b.t.Helper()
	b.openPlant(id)
	b.click("#edit-plant")
	b.focused("#plant-name")
}

// remove deletes a plant.
func (b *tab) remove(id string) { b.t.Helper(); b.openPlant(id); b.click("#delete-plant") }

// create fills in the form for a plant and submits it.
func (b *tab) create(id, name, tag string) {
	b.t.Helper()
	b.click("#create")
	b.write("#plant-id", id)
	b.write("#plant-name", name)
	b.write("#plant-tag", tag)
	b.click("#save-plant")
}

func TestFirstPlantIsCreatedInTheForm(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openTab(t, "http://"+s.Addr+"/")
	b.see("#sign-in", "Sign in to Plantstore")
	b.wait("document.title === 'Sign in · Plantstore' && document.activeElement.id === 'token'")
	b.shot("sign-in")
	b.signIn(harness.Token)
	b.wait("document.title === 'Plants · Plantstore'")
	b.see("#state", "No plants yet")
	b.see("#state code", `"Authorization: Bearer $PLANTSTORE_TOKEN"`)
	b.shot("empty")
	b.click("@first")
	b.focused("#plant-name")
	b.press("Monstera" + kb.Tab + "tropical")
	b.shot("create")
	b.press(kb.Enter)
	b.see("#rows tr", "Monstera")
	b.see("#count", "Plants 1–1 of 1")
	b.shot("first-plant")
	if got, want := s.plant("1"), `{"name":"Monstera","tag":"tropical"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
}

func TestSignOutForgetsTheToken(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openTab(t, "http://"+s.Addr+"/")
	b.expect("status of 401")
	b.write("#token", "plt_tooshort"+kb.Enter)
	b.see("#sign-in-reason", "Malformed token: a token that begins with plt_ has 40 characters, this one has 12.")
	b.shot("sign-in-refused")
	b.write("#token", "an-unknown-token"+kb.Enter)
	b.see("#sign-in-reason", "Unknown token")
	b.write("#token", "not a token ☃"+kb.Enter)
	b.see("#sign-in-reason", "A token has no spaces")
	if got := b.value("#token"); got != "not a token ☃" {
		t.Errorf("the token field has become %q", got)
	}
	b.press(kb.Escape)
	b.signIn(harness.Token)

	b.reload()
	b.see("#state", "No plants yet")
	if where := evaluate[string](b, "location.href"); where != "http://"+s.Addr+"/" {
		t.Errorf("the page is at %s", where)
	}
	b.write("#search", "a secret search")
	b.at("#/plants?q=a+secret+search")
	b.click("#sign-out")
	b.click("#show-token")
	b.wait("$('#token').type === 'text'")
	b.signIn(harness.Token)
	b.click("#sign-out")
	b.at("")
	b.see("#sign-in", "Sign in")
	b.hidden("#console")
	b.wait("$('#token').type === 'password' && !$('#show-token').checked && $('#token').value === ''")
	b.reload()
	b.see("#sign-in", "Sign in")
	if got := b.stored(); strings.Contains(got, harness.Token) {
		t.Errorf("the browser stores %s after the sign-out", got)
	}
}

// stored returns everything that the browser stores for the page.
func (b *tab) stored() string {
	b.t.Helper()
	return evaluate[string](b, "JSON.stringify([sessionStorage, localStorage, document.cookie])")
}

func TestTabsSignInAndOutTogether(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	console, docs := "http://"+s.Addr+"/", "http://"+s.Addr+"/docs"
	b := openConsole(s)
	if got := evaluate[string](b, "JSON.stringify(localStorage)"); got != "{}" {
		t.Errorf("the device keeps %s", got)
	}
	other := b.beside(console + "#/tokens")
	other.see("#tokens tr", "You")
	reference := b.beside(docs)
	reference.see("#pages", "Tokens")

	b.click("#sign-out")
	other.see("#sign-in", "Sign in")
	other.hidden("#console")
	other.focused("#token")
	testenv.Eventually(t, func() error { // it loads itself again, which ends a wait
		if got, err := reference.driver.evaluate("$('#pages').innerText"); err != nil || got != "Console" {
			return fmt.Errorf("the reference has the pages %q (%v)", got, err)
		}
		return nil
	})
	if got := other.stored(); strings.Contains(got, harness.Token) {
		t.Errorf("another tab stores %s after the sign-out", got)
	}

	// Signing in again brings back the tabs that wait.
	other.click("#keep")
	other.signIn(harness.Token)
	b.hidden("#sign-in")
	b.see("#state", "No plants yet")
	if got := evaluate[string](b, "Object.values(localStorage).join()"); !strings.Contains(got, harness.Token) {
		t.Errorf("the device keeps %s", got)
	}
}

func TestTokenIsKeptOnTheDeviceUntilItIsRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	secret := s.Command("token", "create", "--name", "laptop")
	b := openTab(t, "http://"+s.Addr+"/")
	b.see("#sign-in", "Keep me signed in on this device")
	b.wait("!$('#keep').checked")
	b.click("#keep")
	b.signIn(secret)
	// As after a restart of the browser, no tab has a token.
	b.eval("sessionStorage.clear()")
	b.reload()
	b.see("#state", "No plants yet")

	s.Command("token", "revoke", "laptop")
	s.awaitRefused(secret)
	b.expect("status of 401")
	b.reload()
	b.see("#sign-in-reason", "token")
	if got := b.stored(); strings.Contains(got, secret) {
		t.Errorf("the browser keeps %s", got)
	}
}

func TestTokenWithoutReadScopeCanCreate(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	writer := s.Command("token", "create", "--name", "writer", "--scopes", "plants:write")
	b := openTab(t, "http://"+s.Addr+"/")
	b.signIn(writer)
	b.see("h1", "Overview") // the first page that it can read
	b.page("plants")
	b.see("#state", "Your token cannot list plants")
	b.press("/")
	b.wait(`$('#search').checkVisibility() || document.activeElement.id !== 'search'`)
	b.shot("forbidden")
	b.create("7", "Fern", "")
	b.see("@toast", "Plant 7 was created.")
}

func TestPlantsAreFoundByPageNameAndTag(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--base-url", "http://plants.test/a%20store/v1/")
	s.Import(garden(120))
	_, port, _ := strings.Cut(s.Addr, ":")
	b := openTab(t, "http://plants.test:"+port+"/")
	b.signIn(harness.Token)
	b.see("#count", "Plants 1–50 of ")
	b.shot("fifty")

	b.click("#next")
	b.see("#count", "Plants 51–100 of ")
	b.click("#next")
	b.see("#count", "Plants 101–120 of 120")
	b.wait("$('#next').disabled && document.activeElement.id === 'previous'")
	b.click("#previous")
	b.see("#count", "Plants 51–100")
	b.click("#previous")
	b.see("#count", "Plants 1–50")

	b.write("#search", "MAPLE")
	b.see("#count", "Matches 1–11 of 11")
	b.see("#total", "11 of 120 plants")
	b.write("#tag-filter", "REE"+kb.Enter) // the tag that has this in it
	b.at("#/plants?tag=tree&q=MAPLE")
	b.see("#count", "Matches 1–2 of 2")
	b.shot("search")
	b.write("#search", "maples <b>")
	b.see("#state", "No plant has “maples <b>” in its name and the tag “tree”.")
	b.shot("no-match")
	b.click("#state button")
	b.see("#count", "Plants 1–50")
	b.click("#rows button")
	b.see("#count", "Matches 1–24 of 24")
	b.see("#chips", "tropical")
	b.wait("$$('#chips li').length === 1 && $('#tag-filter').value === ''")

	// Several tags, and none.
	b.write("#tag-filter", "herb"+kb.Enter)
	b.at("#/plants?tag=tropical&tag=herb")
	b.see("#count", "Matches 1–48 of 48")
	b.click("#untagged")
	b.see("#count", "Matches 1–50 of 72")
	b.see("#total", "72 of 120 plants")
	b.click("#chips button >> nth=0")
	b.at("#/plants?tag=herb&untagged=true")
	b.see("#count", "Matches 1–48 of 48")
	b.focused("#tag-filter")
	b.shot("filters")
	b.accessible()
	b.click("#chips button")
	b.see("#count", "Matches 1–24 of 24")
	b.write("#search", "lodz")
	b.see("#state", "No plant has “lodz” in its name and no tag. Case and accents do not matter, but letters such as ł and ø are not l and o.")
}

func TestPlantsAreSorted(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(60) + `{"id":100,"name":"Éclair"}`)
	b := openConsole(s)
	first := func(id, sorted string) {
		t.Helper()
		b.wait(fmt.Sprintf("$('#rows tr').dataset.id === %q && [...$$('#plants th[aria-sort]')].map((e) => e.ariaSort).join() === %q", id, sorted))
	}
	first("1", "ascending,none")
	b.click("#sort-id")
	b.at("#/plants?order=-id")
	first("100", "descending,none")
	b.click("#next")
	b.see("#count", "Plants 51–61 of 61")
	b.click("#sort-name")
	b.at("#/plants?order=name")
	first("5", "none,ascending")
	b.accessible()
	b.click("#sort-name")
	b.at("#/plants?order=-name")
	first("58", "none,descending")
	b.reload()
	first("58", "none,descending")

	// Changes of others merge into any order.
	s.put("101", `{"name":"Zinnia"}`)
	b.see("#news", "1 new plant. Show")
	s.put("102", `{"name":"Acer"}`) // on the next page
	b.see("#total", "63 plants")
	b.click("#news")
	first("101", "none,descending")
	b.see("#count", "Plants 1–50 of 63")
	b.click("#sort-name")
	first("102", "none,ascending")
	b.see(b.row("102")+" time", "")

	// More than the server sorts.
	b.expect("status of 400")
	b.eval(`{
		const send = fetch;
		globalThis.fetch = (url, options) => (String(url).includes('order=-name')
			? Promise.resolve(new Response('{"error":40007,"message":"too many plants to sort by name"}', {status: 400})) : send(url, options));
	}`)
	b.click("#sort-name")
	b.see("#state", "The server sorts at most 1,000,000 plants by name. Filter by tags first, or sort by ID.")
	b.shot("too-many-to-sort")
	b.click("#state button")
	b.at("#/plants")
	first("1", "ascending,none")
}

func TestPlantsAreEditedAndDeleted(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(3))
	s.put("4", `{"name":"two\r\nlines\nthree","tag":""}`)
	b := openConsole(s)
	b.edit("2")
	b.at("#/plants/2")
	b.write("#plant-name", "Snake plant, the tall one")
	b.shot("edit")
	b.press(kb.Enter)
	b.see(b.row("2"), "Snake plant, the tall one")
	b.see("#plant-facts", "Snake plant, the tall one")
	b.see("#history", "Changed")
	b.focused("#edit-plant")
	b.shot("drawer")
	b.image("console-drawer")

	// A text area makes all line breaks alike. They are kept, edited or not.
	b.edit("4")
	b.click("#save-plant")
	b.see("@toast", "Plant 4 was saved.")
	if got, want := s.plant("4"), `{"name":"two\r\nlines\nthree","tag":""}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
	b.edit("4")
	b.eval("$('#plant-name').setSelectionRange(3, 3)")
	b.press("!")
	b.click("#save-plant")
	b.see("#plant-facts", "two!")
	if got, want := s.plant("4"), `{"name":"two!\r\nlines\nthree","tag":""}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}

	b.remove("3")
	b.see("@toast", "Plant 3 was deleted.")
	b.hidden(b.row("3"))
	b.hidden("#drawer")
	b.focused(b.row("4") + " a")
	if status, _ := s.Call(harness.Token, "GET", "/plants/3", ""); status != http.StatusNotFound {
		t.Errorf("the deleted plant returned %d", status)
	}
	b.shot("deleted")
	b.click("@undo")
	b.see("@toast", "Plant 3 is back as it was.")
	b.see(b.row("3"), "Weeping fig")
	if got, want := s.plant("3"), `{"name":"Weeping fig","tag":"tree"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}

	// An undo does not overwrite what someone else has created meanwhile.
	b.remove("3")
	b.see("@toast", "Plant 3 was deleted.")
	s.put("3", `{"name":"Theirs"}`)
	b.press("u")
	b.see("@toast", "1 plant was left alone: someone else has changed or deleted it. Weeping fig (3)")
	if got, want := s.plant("3"), `{"name":"Theirs"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
}

func TestDrawerCopiesTheIDAndACommandWithoutTheToken(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.put("9007199254740993", `{"name":"It's <b>","tag":"herb"}`)
	b := openConsole(s)
	b.eval("navigator.clipboard.writeText = async (text) => { globalThis.copied = text; }")
	b.openPlant("9007199254740993")
	b.click("#copy-id")
	b.wait("copied === '9007199254740993'")
	b.see("@toast", "ID copied.")
	b.click("#copy-curl")
	b.wait("copied.startsWith('curl')")
	command := evaluate[string](b, "copied")
	if strings.Contains(command, harness.Token) || !strings.Contains(command, "$PLANTSTORE_TOKEN") {
		t.Errorf("the command is %s", command)
	}
	b.expect("status of 404") // the drawer reads what it shows again
	s.Call(harness.Token, "DELETE", "/plants/9007199254740993", "")
	shell := exec.Command("sh", "-c", command)
	shell.Env = append(os.Environ(), "PLANTSTORE_TOKEN="+harness.Token)
	if out, err := shell.Output(); err != nil {
		t.Errorf("%s: %v %s", command, err, out)
	}
	if got, want := s.plant("9007199254740993"), `{"name":"It's <b>","tag":"herb"}`; got != want {
		t.Errorf("the command stored %s, want %s", got, want)
	}
}

func TestEmptyStoreIsFilledWithSamples(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openConsole(s)
	b.click("@samples")
	b.see("#count", "Plants 1–20 of 20")
	b.see("#total", "20 plants")
}

func TestPlantIsFoundByItsID(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(60) + `{"id":9007199254740993,"name":"Plant 123"}`)
	b := openConsole(s)
	b.expect("status of 404")
	b.write("#search", "9007199254740993")
	b.see("#goto", "Go to plant 9007199254740993")
	b.press(kb.Enter)
	b.at("#/plants/9007199254740993?q=9007199254740993")
	b.see("#plant-facts", "Plant 123")
	b.write("#search", "123")
	b.see("#goto", "Go to plant 123")
	b.see("#count", "Matches 1–1 of 1")
	b.shot("goto")
	b.click("#goto")
	b.see("#drawer-problem", "There is no plant 123.")
	b.click("#drawer-problem button")
	b.see("#drawer-title", "New plant")
	b.write("#plant-name", "A new one"+kb.Enter)
	b.see("@toast", "Plant 123 was created.")
	b.write("#search", "maple")
	b.hidden("#goto")
}

func TestTagsAreSuggestedWithCounts(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(21) + `{"id":100,"name":"Pine","tag":"trees, <b>tall</b>"}`)
	b := openConsole(s)
	b.click("#tag-filter")
	b.see("#tag-filter-tags", "tropical\n5")
	if got := b.text("#tag-filter-tags li >> nth=-1"); got != "trees, <b>tall</b>\n1" {
		t.Errorf("the last suggestion is %q", got)
	}
	b.press("tre")
	b.wait("$$('#tag-filter-tags li').length === 2 && $('#tag-filter').ariaExpanded === 'true'")
	b.see("#tag-filter-tags li >> nth=0", "tree\n4")
	b.shot("tags")
	b.accessible()
	b.press(kb.ArrowDown)
	b.wait("$('#tag-filter').getAttribute('aria-activedescendant') === 'tag-filter-tags-0'")
	b.press(kb.ArrowUp)
	b.wait("$('#tag-filter').getAttribute('aria-activedescendant') === 'tag-filter-tags-1'")
	b.press(kb.ArrowDown + kb.Enter)
	b.at("#/plants?tag=tree")
	b.see("#count", "Matches 1–4 of 4")
	b.hidden("#tag-filter-tags")
	b.write("#tag-filter", "OPIC")
	b.see("#tag-filter-tags li", "tropical")
	b.press(kb.Escape)
	b.hidden("#tag-filter-tags")
	b.write("#tag-filter", "OPIC")
	b.click("#tag-filter-tags li")
	b.at("#/plants?tag=tree&tag=tropical")
	b.see("#count", "Matches 1–9 of 9")
	b.click("#chips button")
	b.click("#chips button")
	b.at("#/plants")
	var shade strings.Builder
	for i := range 1001 {
		fmt.Fprintf(&shade, `{"id":%d,"name":"Fern","tag":"shade"}`+"\n", 1000+i)
	}
	s.Import(shade.String())
	b.write("#tag-filter", "sh")
	b.see("#tag-filter-tags", "shade\n1,000+")

	// The form suggests them too, below the field. Enter takes one and does not submit.
	b.click("#create")
	b.write("#plant-tag", "tro")
	b.wait("Array.from($$('#plant-tag-tags li'), (e) => e.dataset.tag).join() === 'tropical'")
	b.accessible()
	b.press(kb.ArrowDown + kb.Enter)
	b.wait("$('#plant-tag').value === 'tropical' && document.activeElement.id === 'plant-tag'")
	b.hidden("#plant-tag-tags")
	b.see("#drawer-title", "New plant")
}

func TestSelectedPlantsAreDeletedAndTagged(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(6))
	b := openConsole(s)
	pick := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			b.click(b.row(id) + " input")
		}
		b.see("#chosen", fmt.Sprintf("%d selected", len(ids)))
	}
	pick("1", "2", "3")
	b.shot("selected")
	b.click("#retag-chosen")
	b.see("dialog", "Monstera deliciosa (1), Snake plant (2), Weeping fig (3). You can undo this.")
	// A plant that someone changes after that is left alone.
	s.put("3", `{"name":"Changed","tag":"tree"}`)
	b.write("#bulk-tag", "house")
	b.shot("retag")
	b.press(kb.Enter)
	b.see("@toast", "2 plants were re-tagged.")
	b.see("@toast", "1 plant was left alone: someone else has changed or deleted it. Weeping fig (3)")
	b.see(b.row("1"), "house")
	if got, want := s.plant("3"), `{"name":"Changed","tag":"tree"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
	b.hidden("#chosen")
	// It can be undone on every page, also after a reload.
	s.put("2", `{"name":"Theirs","tag":"house"}`)
	b.page("activity")
	b.reload()
	b.wait("$('#undo').title === 'Undo: 2 plants were re-tagged.'")
	b.shot("undo")
	b.accessible()
	b.click("#undo")
	b.see("@toast", "1 plant is back as it was.")
	b.see("@toast", "1 plant was left alone: someone else has changed or deleted it. Snake plant (2)")
	b.hidden("#undo")
	b.page("plants")
	if got, want := s.plant("1"), `{"name":"Monstera deliciosa","tag":"tropical"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
	if got, want := s.plant("2"), `{"name":"Theirs","tag":"house"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}

	b.reload()
	b.loaded()
	b.click("#pick-all")
	b.see("#chosen", "6 selected")
	b.click("#delete-chosen")
	b.see("dialog", "Delete 6 plants?")
	b.focused("@cancel")
	b.click("@submit")
	b.see("@toast", "6 plants were deleted.")
	b.see("#state", "No plants yet")
	b.press("u")
	b.see("@toast", "6 plants are back as they were.")
	b.see("#count", "Plants 1–6 of 6")

	// What was done with one token cannot be undone with another.
	b.remove("1")
	b.see("@toast", "Plant 1 was deleted.")
	b.see("#undo", "Undo")
	b.click("#sign-out")
	b.hidden("#undo")
	b.wait("!JSON.stringify(sessionStorage).includes('Monstera')")
	b.signIn(harness.Token)
	b.hidden("#undo")
}

// asksBeforeLeaving reports whether the browser would ask before the page is left.
func (b *tab) asksBeforeLeaving() bool {
	b.t.Helper()
	return evaluate[bool](b, "!dispatchEvent(new Event('beforeunload', {cancelable: true}))")
}

func TestUnsavedTextIsNotLostByAccident(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(3))
	b := openConsole(s)
	for name, leave := range map[string]func(){
		"Escape":      func() { b.press(kb.Escape) },
		"Cancel":      func() { b.click("#cancel-plant") },
		"close":       func() { b.click("#drawer-close") },
		"another row": func() { b.click(b.row("2")) },
		"back":        func() { b.eval("history.back()") },
	} {
		t.Log(name)
		b.edit("1")
		b.press("!")
		leave()
		b.see("dialog", "Discard your changes?")
		b.at("#/plants/1")
		b.press(kb.Escape)
		b.hidden("dialog")
		b.see("#plant", "Save")
		leave()
		b.shot("unsaved")
		b.click("@submit")
		b.hidden("#plant")
		b.eval("location.hash = '#/plants'")
		b.hidden("#drawer")
	}
	b.edit("1")
	if b.asksBeforeLeaving() {
		t.Error("a reload asks, although nothing was typed")
	}
	b.press("!")
	if !b.asksBeforeLeaving() {
		t.Error("a reload does not ask")
	}
	b.click("#sign-out")
	b.click("@submit")
	b.see("#sign-in", "Sign in")
	if b.asksBeforeLeaving() {
		t.Error("a reload asks for text that was discarded")
	}
}

func TestErrorsAreShownNextToTheField(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(1))
	b := openConsole(s)
	b.expect("status of 400")
	for _, c := range []struct{ id, says string }{
		{"", "Enter a whole number."},
		{"one", "Enter a whole number."},
		{"1.5", "Enter a whole number."},
		{"9223372036854775808", "The ID must be from -9223372036854775808 to 9223372036854775807"},
		{"1", "ID 1 is taken by another plant: choose another id."},
	} {
		b.create(c.id, "Fern", "green")
		b.see("#plant-id-problem", c.says)
		b.wait(`document.activeElement.id === 'plant-id' && document.activeElement.ariaInvalid === 'true'`)
		if b.value("#plant-id") != c.id || b.value("#plant-name") != "Fern" || b.value("#plant-tag") != "green" {
			t.Errorf("the input is lost after %q", c.says)
		}
		if c.id == "1" {
			b.shot("create-refused")
		}
		b.click("#cancel-plant")
		b.click("@submit")
		b.hidden("#plant")
	}
	b.create("2", "Fern", "")
	b.see("#rows", "Fern")
	b.click("@another")
	b.see("#drawer-title", "New plant")
	b.wait("$('#plant-id').value === '3'")
	b.write("#plant-name", "Moss"+kb.Enter)
	b.see("@toast", "Plant 3 was created.")
	b.click("@view >> nth=-1")
	b.see("#plant-facts", "Moss")
}

func TestIDsAreExact(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openConsole(s)
	for _, id := range extremeIDs {
		b.create(id, "Ancient oak", "")
		b.see(b.row(id), id)
		b.edit(id)
		b.at("#/plants/" + id)
		b.write("#plant-tag", "tree")
		b.press(kb.Enter)
		b.see(b.row(id), "tree")
		if got, want := s.plant(id), `{"name":"Ancient oak","tag":"tree"}`; got != want {
			t.Errorf("plant %s is %s, want %s", id, got, want)
		}
	}
	b.shot("exact-ids")
	for _, id := range extremeIDs {
		b.remove(id)
		b.hidden(b.row(id))
		if status, _ := s.Call(harness.Token, "GET", "/plants/"+id, ""); status != http.StatusNotFound {
			t.Errorf("plant %s is still there", id)
		}
	}
	b.see("#state", "No plants yet")
}

func TestNamesAreShownAsText(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const evil = `<img src=x onerror=alert(1)>`
	s.put("1", fmt.Sprintf(`{"name":%q,"tag":"<script>alert(2)</script>"}`, evil))
	s.put("2", `{"name":""}`)
	s.put("3", `{"name":"\u202Eright to left","tag":" "}`)
	s.put("4", fmt.Sprintf(`{"name":%q,"tag":%q}`, strings.Repeat("Llanfairpwllgwyngyll", 30), strings.Repeat("verylongtag", 20)))
	s.put("5", fmt.Sprintf(`{"name":"%s"}`, strings.Repeat(`\\\"{`, 150_000)))
	b := openConsole(s)
	if got := b.text(b.row("1") + " a"); got != evil {
		t.Errorf("the name is shown as %q", got)
	}
	b.shot("names-are-text")
	b.edit("1")
	b.wait(fmt.Sprintf(`$('#plant-name').value === %q`, evil))
	b.press(kb.Escape)
	b.hidden("#plant")
	b.see("#plant-facts", evil)
	b.see("#history", evil)
	b.shot("evil-drawer")
	b.press(kb.Escape)
	b.hidden("#drawer")
	b.write("#search", evil)
	b.see("#count", "Matches 1–1 of 1")
	if n := evaluate[int](b, "$$('main img, dialog:not(#sign-in) img, main script').length"); n != 0 {
		t.Errorf("%d elements came out of the store", n)
	}
	b.size(360, 740)
	b.write("#search", "")
	b.see("#count", "Plants 1–5 of 5")
	b.fits()
	b.shot("long-names-narrow")
}

// A click is lost if its row is replaced between press and release.
func TestReloadKeepsRowsThatHaveNotChanged(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(`{"id":2,"name":"two"}` + "\n" + `{"id":4,"name":"four"}` + "\n" + `{"id":6,"name":"six"}` + "\n")
	b := openConsole(s)
	b.see(b.row("6"), "six")
	b.eval("for (const row of $$('#rows tr')) row.known = true")
	rows := func(want string) {
		t.Helper()
		b.wait(fmt.Sprintf("%q === Array.from($$('#rows tr'), (row) => row.dataset.id + (row.known ? '' : ' new')).join()", want))
	}
	b.create("3", "three", "")
	rows("2,3 new,4,6")
	b.create("1", "one", "")
	rows("1 new,2,3 new,4,6")
	b.remove("4")
	rows("1 new,2,3 new,6")
	b.create("7", "seven", "")
	rows("1 new,2,3 new,6,7 new")
}

func TestEditConflictShowsBothVersions(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(3))
	b := openConsole(s)
	b.expect("status of 412", "status of 404")

	change := func(id, mine, theirs string) {
		t.Helper()
		b.edit(id)
		b.write("#plant-name", mine)
		if theirs != "" {
			s.put(id, theirs)
		} else {
			s.Call(harness.Token, "DELETE", "/plants/"+id, "")
		}
		b.press(kb.Enter)
		b.see("#versions", "")
	}
	// Only I changed the name, and only they changed the tag.
	change("1", "Monstera, mine", `{"name":"Monstera, theirs","tag":"house"}`)
	b.see("#versions", "Monstera, theirs")
	b.see("#versions", "Monstera, mine")
	b.see("#versions del", "theirs")
	b.see("#versions ins", "mine")
	if got := b.text("#versions ins"); got != "mine" {
		t.Errorf("the words marked in my version are %q", got)
	}
	b.shot("conflict")
	b.image("console-conflict")
	b.click("@cancel")
	b.hidden("#versions")
	if got := b.value("#plant-name"); got != "Monstera, mine" {
		t.Errorf("the input has become %q", got)
	}
	b.wait("!$('#save-plant').ariaBusy")
	b.press(kb.Enter)
	b.click("@submit")
	b.see(b.row("1"), "Monstera, mine")
	if got, want := s.plant("1"), `{"name":"Monstera, mine","tag":"house"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
	change("1", "Mine again", `{"name":"Theirs again","tag":"garden"}`)
	b.click(`#versions [name="keep-name"][value="theirs"]`)
	b.click(`#versions [name="keep-tag"][value="mine"]`)
	b.click("@submit")
	b.see("#plant-facts", "Theirs again")
	if got, want := s.plant("1"), `{"name":"Theirs again","tag":"house"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}

	change("2", "Mine", `{"name":"Theirs"}`)
	b.click("@other")
	b.see(b.row("2"), "Theirs")
	b.see("#plant-facts", "Theirs")

	change("3", "Mine again", "")
	b.see("dialog", "The plant was deleted")
	b.shot("conflict-deleted")
	b.click("@submit")
	b.see(b.row("3"), "Mine again")

	// Someone saves while the delete is on its way.
	b.eval(fmt.Sprintf(`{
		const send = fetch;
		globalThis.fetch = async (url, options) => {
			if (options.method === 'DELETE') {
				globalThis.fetch = send;
				await send(url, {method: 'PUT', body: '{"name":"Saved at the last moment"}', headers: {Authorization: 'Bearer %s', 'Content-Type': 'application/json'}});
			}
			return send(url, options);
		};
	}`, harness.Token))
	b.click("#delete-plant")
	b.see("#drawer-problem", "Someone changed it in the meantime")
	b.see("#plant-facts", "Saved at the last moment")
	b.see(b.row("3"), "Saved at the last moment")
	b.shot("delete-changed")
	b.see("#drawer-problem", "Someone changed it in the meantime") // also when the log has told so
	b.click("#delete-plant")
	b.hidden(b.row("3"))
}

func TestRefusedTokenKeepsTheInput(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openTab(t, "http://"+s.Addr+"/")
	b.expect("status of 401")

	expired := s.Command("token", "create", "--name", "short", "--expires", "1s")
	s.awaitRefused(expired)
	b.write("#token", expired+kb.Enter)
	b.see("#sign-in-reason", "The token expired at")

	visitor := s.Command("token", "create", "--name", "visitor")
	b.signIn(visitor)
	b.click("#create")
	b.write("#plant-id", "12")
	b.write("#plant-name", "A name that took long to write")
	s.Command("token", "revoke", "visitor")
	s.awaitRefused(visitor)
	b.press(kb.Enter)
	b.see("#sign-in-reason", "The token has been revoked: ask for a new one.")
	b.shot("token-revoked")
	b.write("#token", harness.Token+kb.Enter)
	b.hidden("#sign-in")
	if got := b.value("#plant-name"); got != "A name that took long to write" {
		t.Errorf("the input has become %q", got)
	}
	b.press(", and longer" + kb.Enter)
	b.see("#rows", "A name that took long to write, and longer")
}

func TestUnreachableServerKeepsTheInputAndTheRows(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(2))
	b := openConsole(s)
	b.expect("net::ERR_")
	b.click("#create")
	b.write("#plant-name", "A rose")
	s.Stop()
	b.press(kb.Enter)
	b.see("#plant-problem", "Server unreachable.")
	b.see("@toast", "Server unreachable. Trying again…")
	b.see("#rows", "Snake plant")
	b.shot("create-dead-server")
	b.write("#search", "fig")
	b.see("#state", "Server unreachable")
	b.shot("dead-server")
	s.Run()
	b.see("#state", "No matches")
	b.hidden("@toast")
	b.hidden("#plant-problem")
	if b.value("#search") != "fig" || b.value("#plant-name") != "A rose" {
		t.Errorf("the input has become %q and %q", b.value("#search"), b.value("#plant-name"))
	}
}

func TestSlowServerIsReported(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(2))
	b := openConsole(s)
	b.click("#create")
	b.write("#plant-name", "A slow rose")
	s.Pause()
	b.press(kb.Enter)
	b.see("#plant-waiting", "The server is slow. Still waiting…")
	b.shot("slow-server")
	s.Resume()
	b.see("#rows", "A slow rose")
}

func TestLiveFiguresAreShown(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(60))
	b := openConsole(s)
	b.image("console")
	b.page("overview")
	b.see("#gauges", "Creates/s")
	id := 1000
	testenv.Eventually(t, func() error {
		id++
		s.put(fmt.Sprint(id), `{"name":"Fern"}`)
		if status, got := s.Call(harness.Token, "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"Fern"}`, -id)); status != http.StatusOK {
			t.Fatalf("create: %d %s", status, got)
		}
		if !evaluate[bool](b, `/^[0-9.]+K?$/.test($('#rate strong').textContent) && / ms$/.test($('#commit strong').textContent) && $$('#gauges rect').length >= 6`) {
			return errors.New("the charts do not show creates and their commits")
		}
		return nil
	})
	b.shot("live")
	b.click("#sign-out")
	b.signIn(s.Command("token", "create", "--name", "gardener"))
	b.page("overview")
	b.see("#about", "")
	b.hidden("#gauges")
}
