package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// While the server is away, whatever the page polls is asked less and less often: after 1 s,
// 2 s, 4 s and so on, up to 30 s.
func TestPollingBacksOffWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(2))
	b := openConsole(s)
	b.page("overview")
	b.see("#gauges", "Creates/s")
	b.expect("net::ERR_")
	// The page's clock runs 50 times as fast.
	b.eval(`{
		globalThis.asked = {};
		const [wait, send] = [setTimeout, fetch];
		globalThis.setTimeout = (f, ms, ...rest) => wait(f, ms / 50, ...rest);
		globalThis.fetch = (url, ...rest) => { (asked[new URL(url).pathname] ??= []).push(performance.now()); return send(url, ...rest); };
	}`)
	s.Stop()
	b.see("@toast", "Server unreachable. Trying again…")
	b.eval("asked = {}")
	for _, path := range []string{"/metrics", "/token"} {
		b.wait(fmt.Sprintf("asked[%q].length > 7", path))
		gaps := evaluate[[]float64](b, fmt.Sprintf("asked[%q].slice(1, 8).map((at, i) => (at - asked[%[1]q][i]) * 50)", path))
		// A timer is never early, except by the rounding of the clock.
		for i, want := range []float64{1000, 2000, 4000, 8000, 16_000, 30_000, 30_000} {
			if gaps[i] < want*0.9 {
				t.Errorf("%s is asked after %.0f ms, want the gaps to grow from 1 s to 30 s", path, gaps)
				break
			}
		}
	}
	s.Run()
	b.hidden("@toast")
	b.see("#gauges", "Creates/s")
}

func TestFiguresUnderThePointerAreShown(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openConsole(s)
	b.page("overview")
	b.wait("/max/.test($('#rate').textContent)")
	const point = `$('#rate svg').dispatchEvent(new PointerEvent('%s', {clientX: $('#rate svg').getBoundingClientRect().%s, bubbles: true}))`
	b.eval(fmt.Sprintf(point, "pointermove", "right - 1"))
	b.see("#rate", "0 s ago")
	b.eval(fmt.Sprintf(point, "pointermove", "left + 1"))
	b.see("#rate", "59 s ago")
	b.see("#rate strong", "–")
	b.eval(fmt.Sprintf(point, "pointerleave", "right"))
	b.see("#rate", "max")
}

func TestSlashLeadsToTheSearchUnlessItIsCovered(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(60))
	b := openConsole(s)
	for width, covered := range map[int64]bool{1280: false, 768: true, 390: true} {
		b.size(width, 800)
		b.eval("scrollTo(0, 0); document.activeElement.blur()")
		b.press("/")
		b.focused("#search")
		b.wait("(() => { const box = $('#search').getBoundingClientRect(); return box.left >= 0 && box.right <= innerWidth && box.top >= 0; })()")
		b.openPlant("1")
		b.focused("#drawer-title")
		b.press("/")
		b.focused(map[bool]string{false: "#search", true: "#drawer-title"}[covered])
		b.wait("$('#search').value === ''")
		b.eval("document.activeElement.blur()")
		b.press(kb.Escape)
		b.hidden("#drawer")
	}
}

func TestNStartsANewPlant(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(2))
	b := openConsole(s)
	b.focused("#search")
	b.press("n")
	b.at("#/plants?q=n") // it was typed
	b.write("#search", "")
	b.at("#/plants")
	b.loaded() // only then an id can be suggested
	b.eval("document.activeElement.blur()")
	b.press("n")
	b.see("#drawer-title", "New plant")
	b.focused("#plant-name")
	b.write("#plant-name", "Moss"+kb.Enter)
	b.see(b.row("3"), "Moss")

	// Those who cannot create plants have no such shortcut.
	b.click("#sign-out")
	b.signIn(s.Command("token", "create", "--name", "reader", "--scopes", "plants:read"))
	b.eval("document.activeElement.blur()")
	b.press("nj")
	b.focused(b.row("1") + " a")
	b.hidden("#drawer")
	b.at("")
}
