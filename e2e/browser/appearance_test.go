package browser

import (
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"plantstore/e2e/harness"
)

type screen struct {
	width, height int64
	scheme        string
}

// screens are those on which every page must fit and be readable.
var screens = []screen{
	{1280, 800, "light"},
	{1280, 800, "dark"},
	{360, 740, "light"},
	{360, 740, "dark"},
	{1920, 1080, "light"},
	{640, 400, "dark"}, // 1280 by 800 at 200 %
}

func TestPagesFitAndAreReadableAndNamed(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(60))
	s.put("7", `{"name":"A plant whose name is so long that it does not fit on one line of the table, nor on two lines of a phone, and still must not push anything else aside","tag":"a rather long tag for a plant"}`)
	sheet := file(t, "stock.csv", "Nr;Bezeichnung;Gruppe\n1000;A plant with a long name;a rather long tag for a plant\nx;Efeu;Ranke\n")
	b := openConsole(s)
	closeDialog := func() { b.press(kb.Escape); b.hidden("dialog") }
	states := []pageState{
		{"table", func() { b.hidden("dialog") }, func() {}},
		{"form", func() { b.click("#create"); b.see("#drawer", "New plant") }, func() { b.press(kb.Escape); b.hidden("#drawer") }},
		{"drawer", func() { b.openPlant("7"); b.see("#history", "Created") }, func() { b.press(kb.Escape); b.hidden("#drawer") }},
		{"keys", func() { b.press("?"); b.see("#keys", "Keyboard shortcuts") }, func() { b.press(kb.Escape) }},
		{"import", func() { b.click("#import"); b.see("#transfer", "Import plants") }, func() { b.press(kb.Escape) }},
		{"preview", func() { b.click("#import"); b.choose(sheet); b.see("#verdict", "1 will fail") }, closeDialog},
		{"export", func() { b.click("#export"); b.see("dialog", "Export all plants") }, closeDialog},
		{"end", func() { b.eval("scrollTo(0, document.body.scrollHeight)") }, func() { b.eval("scrollTo(0, 0)") }},
		{"sign-in", func() { b.click("#sign-out"); b.see("#sign-in", "Sign in") }, func() { b.signIn(harness.Token) }},
	}
	b.examine(states)
}

// pageState is one that a page can be in.
type pageState struct {
	name        string
	open, close func()
}

// examine fails if the page does not fit a screen, or is not readable and accessible, in
// one of the states.
func (b *tab) examine(states []pageState) {
	b.t.Helper()
	for _, screen := range screens {
		b.size(screen.width, screen.height)
		b.scheme(screen.scheme)
		for _, state := range states {
			name := fmt.Sprintf("%s-%d-%s", state.name, screen.width, screen.scheme)
			b.t.Log(name) // the subject of the failures that follow
			state.open()
			b.shot(name)
			if name == "table-360-dark" {
				b.image("console-narrow")
			}
			b.fits()
			b.readable()
			if screen.scheme == "light" { // names do not depend on it
				b.named()
			}
			b.accessible()
			state.close()
		}
	}
}

// fits fails where the page is wider than its window, or hides a part of its menu.
func (b *tab) fits() {
	b.t.Helper()
	if over := evaluate[int](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
		b.t.Errorf("the page is %d pixels wider than the window", over)
	}
	if cut := evaluate[[]string](b, `[...$$('body > header :is(a, button)')].filter((e) => e.checkVisibility() && (e.getBoundingClientRect().right > innerWidth || e.parentElement.scrollWidth > e.parentElement.clientWidth)).map((e) => e.innerText)`); len(cut) > 0 {
		b.t.Errorf("the menu has no room for %q", cut)
	}
}

// readable fails where a visible text has less contrast than WCAG 2 AA requires.
func (b *tab) readable() {
	b.t.Helper()
	poor := evaluate[[]string](b, `(() => {
		const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number); return [r, g, b, a]; };
		const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
		const ground = (e) => {
			if (!e) return getComputedStyle(document.documentElement).colorScheme && parse(getComputedStyle(document.body).backgroundColor);
			const own = parse(getComputedStyle(e).backgroundColor);
			return own[3] === 1 ? own : over(own, ground(e.parentElement));
		};
		const light = (c) => c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
		const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
		const poor = [];
		const check = (e, pseudo, text) => {
			const style = getComputedStyle(e, pseudo);
			const back = ground(e);
			const got = ratio(over(parse(style.color), back), back);
			const size = parseFloat(style.fontSize);
			const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
			if (got < least) poor.push(got.toFixed(2) + ': ' + text.slice(0, 40) + ' (' + style.color + ' on ' + back + ')');
		};
		const top = [...$$('dialog[open]')].at(-1) ?? document.body;
		for (const e of top.querySelectorAll('*')) {
			if (!e.checkVisibility({opacityProperty: true}) || e.disabled || e.closest('.hidden-text')) continue;
			const text = [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join('');
			if (text) check(e, null, text);
			if (e.placeholder) check(e, '::placeholder', e.placeholder);
		}
		return poor;
	})()`)
	for _, text := range poor {
		b.t.Errorf("too little contrast: %s", text)
	}
}

// named fails where a control has no name for a screen reader.
func (b *tab) named() {
	b.t.Helper()
	tree, err := chromedp.Call(b.driver.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	operable := []string{"button", "textbox", "searchbox", "combobox", "checkbox", "link", "dialog", "alertdialog", "table", "image", "progressbar"}
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role := string(node.Role.Value)
		if len(role) > 2 && slices.Contains(operable, role[1:len(role)-1]) && (node.Name == nil || string(node.Name.Value) == `""`) {
			b.t.Errorf("a %s has no name", role)
		}
	}
}

func TestKeyboardIsEnough(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openTab(t, "http://"+s.Addr+"/")
	b.focused("#token")
	b.press(harness.Token + kb.Enter)
	b.loaded()
	// to presses Tab until the element has the focus.
	to := func(selector string) {
		t.Helper()
		for range 40 {
			if evaluate[bool](b, fmt.Sprintf("$$(%q).includes(document.activeElement)", selector)) {
				return
			}
			b.press(kb.Tab)
		}
		t.Fatalf("the Tab key does not reach %s", selector)
	}
	b.focused("#search")
	to("#create")
	b.press(kb.Enter)
	b.focused("#plant-name")
	b.press("Fern" + kb.Tab + "green" + kb.Enter)
	b.see("#rows", "Fern")
	b.focused("#create")

	to("#rows a")
	b.shot("focus")
	b.press(kb.Enter)
	b.focused("#drawer-title")
	b.see("#plant-facts", "Fern")
	b.press("e")
	b.focused("#plant-name")
	b.write("#plant-name", "Ferns")
	b.press(kb.Escape)
	b.see("dialog", "You have unsaved changes to plant 1.")
	b.press(kb.Enter)
	b.focused("#plant-name")
	b.press(kb.Enter)
	b.see("#rows", "Ferns")
	b.focused("#edit-plant")
	to("#delete-plant")
	b.press(kb.Enter)
	b.see("#state", "No plants yet")
	b.focused("#plants-title")
	to("@undo")
	b.press(kb.Enter)
	b.see("#rows", "Ferns")
	if got, want := s.plant("1"), `{"name":"Ferns","tag":"green"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
}

// A list of a hundred plants is one stop for the Tab key.
func TestRowsAreOneTabStop(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(50))
	b := openConsole(s)
	stops := 0
	for ; stops < 30; stops++ {
		b.press(kb.Tab)
		if evaluate[bool](b, "document.activeElement.matches('#rows a')") {
			break
		}
	}
	b.press("jj" + kb.ArrowDown)
	b.focused(b.row("4") + " a")
	b.press("k ")
	b.see("#chosen", "1 selected")
	b.press(kb.Enter)
	b.see("#plant-facts", "Weeping fig")
	b.press("j")
	b.see("#plant-facts", "Peace lily")
	b.at("#/plants/4")
	b.press(kb.Escape)
	b.hidden("#drawer")
	b.focused(b.row("4") + " a")
	b.press("/")
	b.focused("#search")
	b.focus("#rows a[tabindex='0']")
	b.press(kb.Tab)
	if evaluate[bool](b, "$('#rows').contains(document.activeElement)") {
		t.Error("the rows are more than one stop")
	}
	// The skip link is the first stop of the page.
	b.eval("document.activeElement.blur(); document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')")
	b.press(kb.Tab)
	b.focused("#skip")
	b.press(kb.Enter)
	b.focused("#console")
}

// The table is dense, and nothing moves while the page loads.
func TestTableIsDenseAndDoesNotJump(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(60))
	s.put("3", `{"name":"صبار","tag":"شجرة"}`)
	s.put("4", `{"name":"null \u0000, line\nbreak,  two spaces"}`)
	b := openConsole(s)
	b.size(1440, 900)
	b.reload()
	b.loaded()
	box := evaluate[map[string]float64](b, `(() => {
		const of = (selector) => $(selector).getBoundingClientRect();
		const rows = [...$$('#rows tr')].map((row) => row.getBoundingClientRect());
		const end = of('#pager').top;
		return {
			first: rows[0].top, height: rows[0].height, toolbar: of(':has(> #plants-title)').height, strip: of(':has(> #total)').height,
			visible: rows.filter((row) => row.bottom <= end).length,
			name: of('tr[data-id="1"] a').left, rtl: of('tr[data-id="3"] a').left,
			text: (() => { const range = document.createRange(); range.selectNodeContents($('tr[data-id="3"] a')); return range.getBoundingClientRect().left; })(),
		};
	})()`)
	if box["first"] > 190 || box["height"] != 28 || box["toolbar"] != 52 || box["strip"] != 36 || box["visible"] < 24 {
		t.Errorf("the layout is %v", box)
	}
	if box["text"] != box["name"] {
		t.Errorf("the right-to-left name is at %v, the column at %v", box["text"], box["name"])
	}
	if got := b.text(b.row("4") + " a"); got != "null U+0000, line↵break,··two spaces" {
		t.Errorf("the name is shown as %q", got)
	}
	shift := evaluate[float64](b, `new Promise((done) => new PerformanceObserver((list) => done(list.getEntries().reduce((sum, e) => sum + (e.hadRecentInput ? 0 : e.value), 0))).observe({type: 'layout-shift', buffered: true}) ?? setTimeout(() => done(0), 300))`)
	if shift >= 0.05 {
		t.Errorf("the layout shift is %v", shift)
	}
	b.shot("dense")
	b.eval("scrollTo(0, 600)")
	b.wait("scrollY > 300")
	sticky := evaluate[[]float64](b, `[':has(> #plants-title)', '#plants th >> nth=1', '#pager'].map((s) => $(s).getBoundingClientRect().top)`)
	if sticky[0] != 48 || sticky[1] != 100 || sticky[2] < 800 {
		t.Errorf("scrolled, the toolbar, heading and pager are at %v", sticky)
	}
	b.shot("dense-scrolled")
	b.size(1920, 1080)
	if width := evaluate[float64](b, "$('#plants').getBoundingClientRect().width"); width > 1440 {
		t.Errorf("the table is %v wide", width)
	}
}

func TestThemeIsChosenAndKept(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openConsole(s)
	b.scheme("dark")
	dark := "getComputedStyle(document.body).backgroundColor === 'rgb(15, 20, 17)'"
	b.wait(dark)
	b.click("#theme")
	b.wait("!(" + dark + ") && $('#theme').title === 'Theme: light'")
	b.reload()
	b.wait("!(" + dark + ") && $('#theme').title === 'Theme: light'")
	b.scheme("light")
	b.click("#theme")
	b.wait(dark)
	b.click("#theme")
	b.wait("$('#theme').title === 'Theme: system' && localStorage.length === 0 && !(" + dark + ")")
}
