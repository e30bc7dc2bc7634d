package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"plantstore/e2e/harness"
)

func TestAllMatchesAreTaggedAndDeleted(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(300))
	b := openConsole(s)

	// Shift selects a range.
	const shift = `$('tr[data-id="%s"] input').dispatchEvent(new MouseEvent('click', {shiftKey: true, bubbles: true, cancelable: true}))`
	b.click(b.row("2") + " input")
	b.eval(fmt.Sprintf(shift, "6"))
	b.see("#chosen", "5 selected")
	b.wait(`[...$$('#rows input')].filter((e) => e.checked).length === 5`)
	b.focus(b.row("6") + " a")
	b.eval(`document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown', shiftKey: true, bubbles: true, cancelable: true}))`)
	b.see("#chosen", "6 selected")
	b.click("#clear-chosen")

	b.open("http://" + s.Addr + "/#/plants?tag=tree")
	b.see("#count", "Matches 1–50 of 60")
	b.click("#pick-all")
	b.see("#chosen", "50 selected")
	b.click("#pick-matches")
	b.see("#chosen", "60 selected")
	b.hidden("#pick-matches")
	b.shot("all-matches")
	b.accessible()
	b.click("#retag-chosen")
	b.see("dialog", "Change the tag of 60 plants")
	b.write("#bulk-tag", "tr")
	b.wait("Array.from($$('#bulk-tag-tags li'), (e) => e.dataset.tag).sort().join() === 'tree,tropical'")
	b.shot("bulk-tags")
	b.press(kb.ArrowDown + kb.Enter)
	b.wait("['tree', 'tropical'].includes($('#bulk-tag').value)")
	b.write("#bulk-tag", "woody"+kb.Enter)
	b.see("@toast", "60 plants were re-tagged.")
	b.see("#state", "No matches")
	b.press("u")
	b.see("@toast", "60 plants are back as they were.")
	b.see("#count", "Matches 1–50 of 60")

	// The form says which plants it will leave alone.
	b.click(b.row("8") + " input")
	b.click(b.row("3") + " input")
	b.expect("status of 404")
	s.Call(harness.Token, "DELETE", "/plants/3", "")
	b.see(b.row("3")+".deleted", "Weeping fig")
	b.click("#delete-chosen")
	b.see("dialog", "Someone else has deleted Weeping fig (3).")
	b.click("@cancel")
	s.put("3", `{"name":"Weeping fig","tag":"tree"}`)
	b.hidden(b.row("3") + ".deleted")
	b.click("#clear-chosen")

	// One request deletes them, and one brings them back. Meanwhile the user can go on.
	b.click("#pick-all")
	b.click("#pick-matches")
	b.see("#chosen", "60 selected")
	b.click("#delete-chosen")
	b.eval(`{
		globalThis.sent = [];
		const {open, send} = XMLHttpRequest.prototype;
		XMLHttpRequest.prototype.open = function (method, url, ...rest) {
			sent.push(method + ' ' + new URL(url).search);
			return open.call(this, method, url, ...rest);
		};
		XMLHttpRequest.prototype.send = function (...rest) {
			globalThis.letGo = () => send.apply(this, rest);
		};
	}`)
	b.click("@submit")
	b.see("@toast", "Deleting 60 plants…")
	b.hidden("dialog")
	b.hidden("#chosen")
	b.shot("bulk-progress")
	b.accessible()
	b.page("activity")
	b.see("@toast", "Deleting 60 plants…")
	if !b.asksBeforeLeaving() {
		t.Error("the page can be left while plants are being deleted")
	}
	b.eval("letGo()")
	b.see("@toast", "60 plants were deleted.")
	if b.asksBeforeLeaving() {
		t.Error("the page cannot be left when the plants are deleted")
	}
	b.page("plants")
	b.see("#total", "240 plants")
	b.press("u")
	b.see("@toast", "Restoring 60 plants…")
	b.eval("letGo()")
	b.see("@toast", "60 plants are back as they were.")
	if got, want := evaluate[string](b, "sent.join()"), "POST ?mode=delete,POST ?mode=create"; got != want {
		t.Errorf("deleting and undoing it sent %s, want %s", got, want)
	}
	b.see("#total", "300 plants")
}

// The server names the first 100 plants that it has left alone. What others have done to the rest of them looks
// as if it were done here.
func TestUndoLeavesAloneWhatOthersHaveDone(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(260))
	b := openConsole(s)
	b.click("#pick-all")
	b.click("#pick-matches")
	b.see("#chosen", "260 selected")
	var theirs strings.Builder
	for _, line := range strings.Split(strings.TrimSpace(garden(205)), "\n")[100:] {
		plant, _, _ := strings.Cut(strings.TrimSuffix(line, "}"), `,"tag"`)
		theirs.WriteString(plant + `,"tag":"house"}` + "\n")
	}
	if status, body := s.Call(harness.Token, "POST", "/plants/import?mode=replace", theirs.String(), "Content-Type", "application/x-ndjson"); status != http.StatusOK {
		t.Fatalf("import: %d %s", status, body)
	}
	b.click("#retag-chosen")
	b.write("#bulk-tag", "house"+kb.Enter)
	b.see("@toast", "155 plants were re-tagged. Only the first 100 changes can be undone: too many were refused.")
	b.see("@toast", "105 plants were left alone: someone else has changed or deleted them. Snake plant (101)")
	b.click("@undo")
	b.see("@toast", "100 plants are back as they were.")
	for id, want := range map[string]string{
		"1":   `{"name":"Monstera deliciosa","tag":"tropical"}`,
		"102": `{"name":"Weeping fig","tag":"house"}`, // theirs
		"203": `{"name":"Aloe vera","tag":"house"}`,   // theirs, and not named
		"260": `{"name":"Jade plant","tag":"house"}`,
	} {
		if got := s.plant(id); got != want {
			t.Errorf("plant %s is %s, want %s", id, got, want)
		}
	}
}

// A drawer that cannot be loaded is loaded again when the server can.
func TestDrawerRecovers(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(60))
	var broken atomic.Bool
	target := &url.URL{Scheme: "http", Host: s.Addr}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() && strings.HasPrefix(r.URL.Path, "/plants/") {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	broken.Store(true)
	b := openTab(t, front.URL+"/#/plants/45")
	b.expect("status of 503", "net::ERR_")
	b.signIn(harness.Token)
	b.see("#drawer-problem", "The server responded with status 503. Try again in a moment. Try again")
	b.shot("drawer-failed")
	b.wait("document.title === 'Plant 45 · Plantstore'")

	// The row of a link is scrolled into view.
	b.wait(`(() => { const box = $('tr[data-id="45"]').getBoundingClientRect(); return box.top > 130 && box.bottom <= $('#pager').getBoundingClientRect().top; })()`)
	broken.Store(false)
	b.see("#plant-facts", "Monstera deliciosa")
	b.hidden("#drawer-problem")
	b.wait("document.title === 'Monstera deliciosa · Plantstore'")
	b.press(kb.Escape)
	b.wait("document.title === 'Plants · Plantstore'")
}

func TestFocusStaysInOrderAndOutOfWhatIsCovered(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--webhook-allow", "127.0.0.0/8")
	if status, got := s.Call(harness.Token, "POST", "/webhooks", `{"url":"http://127.0.0.1:9/hook","types":["plant.deleted"]}`); status != http.StatusCreated {
		t.Fatalf("create a webhook: %d %s", status, got)
	}
	var many strings.Builder
	for i := range 40 {
		fmt.Fprintf(&many, `{"id":%d,"name":"Fern","tag":"tag %d"}`+"\n", i+1, i)
	}
	s.Import(many.String())
	b := openConsole(s)
	b.focus("#tag-filter")
	b.wait("$$('#tag-filter-tags li').length === 12")
	b.press(kb.Tab)
	b.focused("#untagged")

	for _, drawer := range []struct {
		page, behind, drawer, link string
		open                       func()
	}{
		{"plants", "#plants", "#drawer", `tr[data-id="1"] a`, func() { b.openPlant("1") }},
		{"webhooks", "#webhooks", "#webhook-drawer", "#webhooks a", func() { b.click("#webhooks a"); b.see("#webhook-title", "/hook") }},
	} {
		b.page(drawer.page)
		for width, covered := range map[int64]bool{1280: false, 768: true, 390: true} {
			b.size(width, 800)
			drawer.open()
			b.wait(fmt.Sprintf("$('%s').inert === %v && !$('%s').inert", drawer.behind, covered, drawer.drawer))
			b.wait(fmt.Sprintf("$('body > header').inert === %v", width < 680))
			b.press(kb.Escape)
			b.hidden(drawer.drawer)
			b.wait(fmt.Sprintf("document.activeElement.matches('%s') && !$('body > header').inert", drawer.link))
		}
	}
}

func TestTextThatCannotBeCopiedIsShown(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(1))
	_, port, _ := strings.Cut(s.Addr, ":")
	b := openTab(t, "http://plants.test:"+port+"/") // an origin without the clipboard API
	b.signIn(harness.Token)
	b.openPlant("1")
	b.wait("navigator.clipboard === undefined")
	b.click("#copy-id")
	b.see("@toast", "ID copied.")
	b.eval("document.execCommand = () => false")
	b.click("#copy-curl")
	b.see("dialog", "Copy it yourself")
	b.wait("getSelection().toString().startsWith('curl -X PUT') || document.activeElement.selectionEnd > 20 && document.activeElement.value.startsWith('curl -X PUT')")
	b.shot("copy-yourself")
	b.accessible()
}
