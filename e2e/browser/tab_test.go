package browser

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// pageTimeout ends a wait for a page that hangs. Tests may share a busy machine.
const pageTimeout = time.Minute

// tab is a tab of a browser.
type tab struct {
	t      *testing.T
	driver *driver

	mu       sync.Mutex
	expected []string      // guarded by mu: parts of messages that the log may have
	logged   []string      // guarded by mu: other errors and warnings
	end      chan struct{} // closed when the log has been read to its end
}

const endOfLog = "the test is over"

// longMessages is a function that every page runs first. Messages, and the offer to undo, last
// 20 times as long, so that a test on a busy machine does not miss them.
const longMessages = `() => {
	for (const [name, usual] of [['setInterval', 250], ['setTimeout', 10_000]]) {
		const start = globalThis[name];
		globalThis[name] = (f, ms, ...rest) => start(f, ms === usual ? 20 * ms : ms, ...rest);
	}
}`

// finders is a function that every page runs first. It defines how tests find elements: $$
// returns all that match a selector, and $ one. A selector is one of CSS, in which @name stands
// for the data-testid, and that may end in the number of the element, as in "li >> nth=0";
// -1 is the last. It has ids, test ids, elements and attributes that carry data. It has no text,
// which is what the page says, and no class, which is how it looks, except in Swagger UI and for
// the state of a row.
const finders = `() => {
	globalThis.$$ = (selector) => {
		const [css, nth] = selector.replace(/@([\w-]+)/g, '[data-testid="$1"]').split(' >> nth=');
		const found = [...document.querySelectorAll(css)];
		return nth === undefined ? found : [found.at(nth)].filter(Boolean);
	};
	globalThis.$ = (selector) => $$(selector)[0] ?? null;
}`

// openTab opens a page in a browser of its own. When the test ends, an error or a violation of
// the content security policy in the browser's log fails it, unless it was expected.
func openTab(t *testing.T, url string) *tab {
	t.Helper()
	return (&tab{t: t}).beside(url)
}

// beside opens a page in another tab of the same browser.
func (other *tab) beside(url string) *tab {
	t := other.t
	t.Helper()
	b := &tab{t: t, end: make(chan struct{})}
	// Chromium logs this for every page that comes from another host over plain HTTP.
	b.expect("Cross-Origin-Opener-Policy header has been ignored")
	var err error
	if b.driver, err = openPage(b.note, other.driver); errors.Is(err, exec.ErrNotFound) {
		testenv.Missing(t, "Chromium is not installed")
	} else if err != nil {
		t.Fatalf("open a page in Chromium: %v", err)
	}
	t.Cleanup(b.driver.close)
	t.Cleanup(b.checkLog)
	b.size(1280, 800)
	b.scheme("light")
	b.open(url)
	return b
}

func (b *tab) note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if text == endOfLog {
		close(b.end)
		return
	}
	if !slices.ContainsFunc(b.expected, func(part string) bool { return strings.Contains(text, part) }) {
		b.logged = append(b.logged, text)
	}
}

// expect allows errors with these texts in the browser's log. Chromium logs every
// response with a status of 400 or more.
func (b *tab) expect(parts ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, parts...)
}

func (b *tab) checkLog() {
	if b.t.Failed() {
		b.shot("failed-" + strings.ReplaceAll(b.t.Name(), "/", "-"))
	}
	b.eval(fmt.Sprintf("console.log(%q)", endOfLog))
	select {
	case <-b.end:
	case <-time.After(pageTimeout):
		b.t.Error("the browser's log has no end")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.logged {
		b.t.Errorf("the browser logged: %s", line)
	}
}

func (b *tab) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// open opens another page in the tab, or another part of the same.
func (b *tab) open(url string) {
	b.t.Helper()
	b.must(b.driver.navigate(url))
}

func (b *tab) reload() { b.t.Helper(); b.must(b.driver.reload()) }

// evaluate returns what the expression evaluates to, or what its promise resolves to.
func evaluate[T any](b *tab, expression string) (value T) {
	b.t.Helper()
	text, err := b.driver.evaluate(fmt.Sprintf("(async () => JSON.stringify(await (%s)))()", expression))
	if err == nil {
		err = json.Unmarshal([]byte(text), &value)
	}
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// eval runs a script.
func (b *tab) eval(script string) {
	b.t.Helper()
	_, err := b.driver.evaluate(script + "; ''")
	b.must(err)
}

// await waits until the body of a function returns a value that is not false, and
// returns it.
func await[T any](b *tab, what, body string) (value T) {
	b.t.Helper()
	text, err := b.driver.evaluate(fmt.Sprintf(`new Promise((done) => {
		const get = () => { %s };
		const poll = (pause) => { let value = false; try { value = get(); } catch {} value ? done(JSON.stringify(value)) : setTimeout(poll, pause, Math.min(2 * pause, 60)); };
		poll(8);
	})`, body))
	if err == nil {
		err = json.Unmarshal([]byte(text), &value)
	}
	if err != nil {
		b.t.Fatalf("wait for %s: %v\nthe page shows:\n%s", what, err, evaluate[string](b, "document.body.innerText.slice(0, 2000)"))
	}
	return value
}

// wait waits until the expression is true.
func (b *tab) wait(expression string) {
	b.t.Helper()
	await[bool](b, expression, fmt.Sprintf("return Boolean(%s)", expression))
}

// see waits until the element is shown and has the text.
func (b *tab) see(selector, text string) {
	b.t.Helper()
	b.wait(fmt.Sprintf(`[...$$(%q)].some((e) => e.checkVisibility() && e.innerText.includes(%q))`, selector, text))
}

// hidden waits until no such element is shown.
func (b *tab) hidden(selector string) {
	b.t.Helper()
	b.wait(fmt.Sprintf(`![...$$(%q)].some((e) => e.checkVisibility())`, selector))
}

// click clicks the element, as soon as it can be clicked. If the page changes before the button
// of the mouse is up again, so that something else would be clicked, nothing is, and it aims
// again.
func (b *tab) click(selector string) {
	b.t.Helper()
	for hit := ""; hit != "yes"; {
		at := b.aim(selector)
		b.must(b.driver.click(at[0], at[1]))
		hit = await[string](b, "the click on "+selector, `
			const hit = globalThis.aimed ? aimed.hit : true; // or the click has opened another page
			return hit === null ? false : hit ? 'yes' : 'no';
		`)
	}
}

// aim returns where to click to hit the element. A click there that hits something else has no
// effect.
func (b *tab) aim(selector string) [2]float64 {
	b.t.Helper()
	return await[[2]float64](b, "a click on "+selector, fmt.Sprintf(`
		const e = $(%q);
		if (!e.checkVisibility({visibilityProperty: true}) || e.disabled) return false;
		const [box] = e.getClientRects();
		const [x, y] = [Math.floor(box.x + box.width / 2), Math.floor(box.y + box.height / 2)];
		const hits = (target) => e.contains(target) || target?.closest?.('label')?.control === e;
		if (!hits(document.elementFromPoint(x, y))) {
			e.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});
			return false;
		}
		const types = ['pointerdown', 'mousedown', 'pointerup', 'mouseup', 'click'];
		let pressed = false;
		const guard = (event) => {
			if (!event.isTrusted) return;
			if (pressed && !e.checkVisibility() || event.type === 'click' && hits(event.target)) {
				aimed.hit ??= true; // some elements act when they are pressed, and are gone then
			} else if (!hits(event.target)) {
				aimed.hit ??= false;
			}
			pressed = true;
			if (aimed.hit === true) {
				aimed.end();
			} else if (aimed.hit === false) {
				event.preventDefault();
				event.stopImmediatePropagation();
			}
		};
		globalThis.aimed?.end();
		globalThis.aimed = {hit: null, end: () => types.forEach((type) => removeEventListener(type, guard, true))};
		types.forEach((type) => addEventListener(type, guard, true));
		return [x, y];
	`, selector))
}

// focus gives the element the focus, as soon as it is shown.
func (b *tab) focus(selector string) {
	b.t.Helper()
	await[bool](b, "the focus on "+selector, fmt.Sprintf(`
		const e = $(%q);
		if (!e.checkVisibility({visibilityProperty: true}) || e.disabled) return false;
		e.focus();
		return document.activeElement === e;
	`, selector))
}

// focused waits until the element has the focus.
func (b *tab) focused(selector string) {
	b.t.Helper()
	b.wait(fmt.Sprintf("document.activeElement === $(%q)", selector))
}

func (b *tab) scrollTo(selector string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("$(%q).scrollIntoView({block: 'nearest', behavior: 'instant'})", selector))
}

// write replaces the content of the field. It presses Enter if the text ends in
// kb.Enter. If the page replaces the field meanwhile, it writes again.
func (b *tab) write(selector, text string) {
	b.t.Helper()
	text, enter := strings.CutSuffix(text, kb.Enter)
	for attempt := 1; ; attempt++ {
		b.focus(selector)
		b.eval("document.activeElement.select()")
		if text == "" {
			b.press(kb.Delete)
		} else {
			b.must(b.driver.insert(text))
		}
		got := b.value(selector)
		if got == text {
			break
		}
		if attempt == 3 {
			b.t.Fatalf("%s has the text %q, want %q", selector, got, text)
		}
	}
	if enter {
		b.press(kb.Enter)
	}
}

// press presses keys one after another: characters and the constants of kb.
func (b *tab) press(keys string) {
	b.t.Helper()
	b.must(b.driver.press(keys))
}

func (b *tab) text(selector string) string {
	b.t.Helper()
	return evaluate[string](b, fmt.Sprintf("$(%q).innerText", selector))
}

func (b *tab) value(selector string) string {
	b.t.Helper()
	return evaluate[string](b, fmt.Sprintf("$(%q).value", selector))
}

func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.must(b.driver.resize(width, height))
}

// scheme makes the browser prefer light or dark.
func (b *tab) scheme(name string) {
	b.t.Helper()
	b.must(b.driver.prefer(name))
}

// shot saves a screenshot to the artifacts.
func (b *tab) shot(name string) {
	b.t.Helper()
	if dir := harness.Artifacts(); dir != "" {
		b.capture(filepath.Join(dir, name+".png"))
	}
}

var images = flag.Bool("images", false, "take the screenshots of the documentation anew")

// image saves a screenshot for the documentation, if the flag says so.
func (b *tab) image(name string) {
	b.t.Helper()
	if *images {
		b.capture(filepath.Join(harness.Root, "docs/images", name+".png"))
	}
}

func (b *tab) capture(path string) {
	b.t.Helper()
	screenshot, err := b.driver.screenshot()
	if err == nil {
		err = os.WriteFile(path, screenshot, 0o666)
	}
	if err != nil {
		b.t.Errorf("take a screenshot: %v", err)
	}
}

// signIn signs in on the console.
func (b *tab) signIn(token string) {
	b.t.Helper()
	b.see("#sign-in", "Sign in")
	b.write("#token", token)
	b.press(kb.Enter)
	b.hidden("#sign-in")
	b.loaded()
}

// loaded waits until the page is shown, and its table has the server's last response.
func (b *tab) loaded() {
	b.t.Helper()
	b.wait(`$('.page') && (!$('#plants') || !$('#plants').ariaBusy && ($('#rows tr') || $('#state h2')) && !$('#count').textContent.endsWith('…'))`)
}

// openConsole opens the console of the server and signs in.
func openConsole(s *server) *tab {
	s.t.Helper()
	b := openTab(s.t, "http://"+s.Addr+"/")
	b.signIn(harness.Token)
	return b
}
