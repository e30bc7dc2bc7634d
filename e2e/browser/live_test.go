package browser

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"plantstore/e2e/harness"
)

func TestTableFollowsTheChangesOfOthers(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(60))
	b := openConsole(s)
	b.see("#total", "60 plants")
	b.openPlant("3")
	b.eval("scrollTo(0, 200); globalThis.at = $('tr[data-id=\"9\"]').getBoundingClientRect().top")

	s.put("2", `{"name":"Renamed by someone"}`)
	b.see(b.row("2")+".fresh", "Renamed by someone")
	s.put("3", `{"name":"Changed while open"}`)
	b.see("#plant-facts", "Changed while open")
	s.put("-1", `{"name":"New at the top"}`)
	s.put("1000", `{"name":"On another page"}`)
	b.see("#news", "1 new plant. Show")
	b.see("#total", "62 plants")
	s.Call(harness.Token, "DELETE", "/plants/4", "")
	b.see(b.row("4")+".deleted", "Peace lily")
	b.see("#total", "61 plants")
	b.shot("live-table")
	if moved := evaluate[float64](b, "$('tr[data-id=\"9\"]').getBoundingClientRect().top - at"); moved != 0 {
		t.Errorf("the rows moved by %v", moved)
	}
	b.click("#news")
	b.see("#rows", "New at the top")
	b.hidden(b.row("4"))
	b.hidden("#news")

	// The stream resumes where it was.
	b.expect("net::ERR_")
	s.Stop()
	s.Run()
	s.put("5", `{"name":"After the restart"}`)
	b.see(b.row("5"), "After the restart")
	b.see("#total", "61 plants")
}

func TestActivityShowsWhoDidWhat(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	gardener := s.Command("token", "create", "--name", "gardener")
	s.Import(garden(3))
	s.put("2", `{"name":"Renamed"}`)
	s.Call(gardener, "DELETE", "/plants/3", "")
	b := openTab(t, "http://"+s.Addr+"/#/activity")
	b.signIn(harness.Token)
	b.see("#events tr >> nth=0", "gardener")
	b.see("#events tr >> nth=0", "Deleted")
	b.see("#events", "bootstrap (you)")
	b.see("#events tr >> nth=-1", "Token created")
	b.totalIsThatOfTheLog(s)
	b.wait("$$('#activity-chart rect').length > $$('#activity-chart title').length && document.title === 'Activity · Plantstore'")
	b.shot("activity")
	b.image("console-activity")
	b.accessible()

	s.put("7", `{"name":"While you watch"}`)
	b.see("#events tr >> nth=0", "While you watch")
	b.totalIsThatOfTheLog(s)

	b.click(`.choices a[data-type="plant.deleted"]`)
	b.at("#/activity?type=plant.deleted")
	b.see("#events tr", "Weeping fig")
	b.wait("$$('#events tr').length === 1")
	b.see("#chart-title", "Changes that match in the last hour")
	b.see("#activity-total", "1 change since")
	b.click(`.choices a[data-range="7d"]`)
	b.at("#/activity?type=plant.deleted&range=7d")
	b.reload()
	b.see("#events tr", "Weeping fig")
	for _, width := range []int64{360, 1920} {
		b.size(width, 800)
		b.scheme("dark")
		b.fits()
		b.readable()
		b.shot(map[int64]string{360: "activity-360-dark", 1920: "activity-1920-dark"}[width])
	}
	b.size(1280, 800)
	b.expect("status of 404")
	b.click("#events a")
	b.see("#plant-gone", "Deleted by gardener")

	// A token without the scope does not see the page.
	b.click("#sign-out")
	b.signIn(s.Command("token", "create", "--name", "reader", "--scopes", "plants:read"))
	b.hidden(`#pages a[href="#/activity"]`)
	b.hidden("#create")
	b.open("http://" + s.Addr + "/#/activity")
	b.see("main", "Your token cannot open Activity")
	b.see("main", "It needs the scope events:read.")
}

// totalIsThatOfTheLog waits until the page of activity shows as many changes as the log has.
func (b *tab) totalIsThatOfTheLog(s *server) {
	b.t.Helper()
	_, log := s.Call(harness.Token, "GET", "/events?limit=1000", "")
	b.see("#activity-total", fmt.Sprintf("%d changes since", strings.Count(log, `"cursor"`)))
}

func TestActivityFindsChangesAndGoesBackInTime(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	gardener := s.Command("token", "create", "--name", "gardener")
	s.Import(garden(450))
	s.put("7", `{"name":"Renamed"}`)
	s.Call(gardener, "PUT", "/plants/8", `{"name":"By the gardener"}`)
	b := openTab(t, "http://"+s.Addr+"/#/activity")
	b.signIn(harness.Token)

	// Pages of older changes, without gaps.
	const rows = "$$('#events tr').length"
	seen := map[string]bool{}
	for _, want := range []int{200, 200, 454 - 400} {
		b.wait(fmt.Sprintf("%s === %d && !$('#activity').ariaBusy", rows, want))
		for _, cursor := range evaluate[[]string](b, "[...$$('#events tr')].map((row) => row.dataset.cursor)") {
			seen[cursor] = true
		}
		if want == 200 {
			b.click("#activity-older")
		}
	}
	if len(seen) != 454 {
		t.Errorf("the pages show %d different changes, want 454", len(seen))
	}
	b.wait("$('#activity-older').disabled")
	b.reload()
	b.wait(rows + " === 54")
	b.click("#activity-newest")
	b.at("#/activity")
	b.see("#events tr >> nth=0", "By the gardener")

	// What one has done, and what was done with one plant.
	b.eval("$('#activity-by').value = [...$$('#activity-by option')].find((option) => option.textContent === 'gardener').value")
	b.eval("$('#activity-by').dispatchEvent(new Event('change'))")
	b.wait(rows + " === 1 && location.hash.includes('by=')")
	s.put("9", `{"name":"By somebody else"}`)
	s.Call(gardener, "PUT", "/plants/9", `{"name":"By the gardener again"}`)
	b.see("#events tr >> nth=0", "By the gardener again")
	b.wait(rows + " === 2")
	b.open("http://" + s.Addr + "/#/activity")
	b.write("#activity-plant", "GARDENER by"+kb.Enter)
	b.at("#/activity?q=GARDENER+by")
	b.wait(rows + " === 2")
	b.see("#activity-total", "2 changes since")
	s.put("10", `{"name":"By another gardener"}`)
	b.see("#events tr >> nth=0", "By another gardener")
	b.see("#activity-total", "3 changes since")
	b.write("#activity-plant", "7"+kb.Enter)
	b.at("#/activity?plant=7")
	b.wait(rows + " === 2")
	b.see("#events tr >> nth=0", "Renamed")
	b.write("#activity-plant", "777777"+kb.Enter)
	b.see("#activity-status", "No change matches.")
	s.put("777777", `{"name":"The first of it"}`)
	b.see("#events tr >> nth=0", "The first of it")

	// A link to changes that are gone says so, and leads to the newest.
	b.expect("status of 410")
	b.open("http://" + s.Addr + "/#/activity?after=f0e4c792cf.1.ho79wq16ci")
	b.see("#activity-status", "These changes are no longer kept.")
	b.hidden("#events tr")
	b.click("#activity-newest")
	b.see("#events tr >> nth=0", "The first of it")
}

func TestActivityFollowsTheLog(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(60))
	b := openTab(t, "http://"+s.Addr+"/#/activity")
	b.signIn(harness.Token)
	b.see("#events tr >> nth=0", "60")

	// Rows do not move while the user reads further down.
	b.eval("scrollTo(0, 500)")
	s.put("-1", `{"name":"Above"}`)
	s.put("-2", `{"name":"Further above"}`)
	b.see("#activity-news", "2 new changes. Show")
	b.see("#events tr >> nth=0", "60")
	b.click("#activity-news")
	b.see("#events tr >> nth=0", "Further above")
	b.see("#events tr >> nth=1", "Above")
	b.hidden("#activity-news")

	// Nor do they while the user works with them.
	b.eval("scrollTo(0, 0)")
	b.focus("#events a")
	s.put("-5", `{"name":"While somebody reads"}`)
	b.see("#activity-news", "1 new change. Show")
	b.see("#events tr >> nth=0", "Further above")
	b.eval("document.activeElement.blur()")
	b.see("#events tr >> nth=0", "While somebody reads")
	b.hidden("#activity-news")

	// More than fits: the newest are shown, and what is between is on the next page.
	s.Import(garden(2000))
	s.put("-3", `{"name":"After the import"}`)
	b.see("#events tr >> nth=0", "After the import")
	b.wait("$$('#events tr').length === 200")
	b.see("#activity-total", "2,005 changes since")

	b.expect("net::ERR_")
	s.Stop()
	s.Run()
	s.put("-4", `{"name":"After the restart"}`)
	b.see("#events tr >> nth=0", "After the restart")
	b.see("#events tr >> nth=1", "After the import")

	// The chart ends now, by the clock of the server.
	b.eval(`{
		const [now, send] = [Date.now, fetch];
		globalThis.browser = globalThis.server = 0; // milliseconds ahead
		Date.now = () => now() + browser;
		globalThis.fetch = async (url, options) => {
			const response = await send(url, options);
			if (!String(url).includes('/histogram')) {
				return response;
			}
			globalThis.end = Date.parse(new URL(url).searchParams.get('until')) - now();
			const headers = new Headers(response.headers);
			headers.set('Date', new Date(now() + server).toUTCString());
			return new Response(await response.text(), { headers });
		};
	}`)
	const hour = 3_600_000
	for _, ahead := range []struct{ browser, server int }{{0, 0}, {hour, hour}, {2 * hour, hour}, {0, 2 * hour}} {
		b.eval(fmt.Sprintf("browser = %d; server = %d; globalThis.end = null", ahead.browser, ahead.server))
		b.wait("end !== null && end - server > 0 && end - server <= 61000")
	}
	b.see("#activity-chart", "now")
}

func TestActivityShowsAPeriodThatIsChosenInTheChart(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(3))
	b := openTab(t, "http://"+s.Addr+"/#/activity")
	b.signIn(harness.Token)
	b.see("#chart-title", "Changes in the last hour")
	b.see("#activity-total", "4 changes since")

	// Dragging over the whole chart chooses all of it, up to now.
	b.eval(`{
		const chart = $('#activity-chart');
		const {left, right, top} = chart.getBoundingClientRect();
		chart.setPointerCapture = chart.hasPointerCapture = () => true; // which need a real pointer
		for (const [type, clientX] of [['pointerdown', left + 1], ['pointermove', right - 1], ['pointerup', right - 1]]) {
			chart.dispatchEvent(new PointerEvent(type, {clientX, clientY: top + 50, button: 0}));
		}
	}`)
	b.wait("location.hash.includes('since=') && $$('#events tr').length === 4")
	b.see("#chart-title", "Changes, from ")
	b.wait("$('#activity-total').textContent === '4 changes.'")
	b.shot("activity-period")
	s.put("9", `{"name":"After the period"}`)

	// Keys do, too. The first bar was before the store had any plants.
	b.focus("#activity-chart")
	b.press(kb.ArrowLeft)
	b.wait("$('#activity-chart').ariaValueText.includes('change')")
	b.eval("globalThis.bars = Number($('#activity-chart').ariaValueMax)")
	for range evaluate[int](b, "bars") {
		b.press(kb.ArrowLeft)
	}
	b.wait("$('#activity-chart').ariaValueNow === '1'")
	b.press(kb.Enter)
	b.see("#activity-status", "There are no changes.")
	b.see("#activity-total", "0 changes.")
	b.eval("history.back()")
	b.wait("$$('#events tr').length === 4")
	b.click("#activity-newest")
	b.at("#/activity")
	b.see("#events tr >> nth=0", "After the period")
}

// At many changes a second, the page draws a few times a second, and each time little.
func TestActivityKeepsUpWithManyChanges(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(300))
	b := openTab(t, "http://"+s.Addr+"/#/activity")
	b.signIn(harness.Token)
	b.wait("$$('#events tr').length === 200")
	b.eval(`{
		globalThis.long = [];
		globalThis.draws = 0;
		new PerformanceObserver((list) => long.push(...list.getEntries().map(({duration}) => duration))).observe({type: 'longtask'});
		new MutationObserver(() => { draws++; }).observe($('#events'), {childList: true});
		globalThis.began = performance.now();
	}`)
	id := 0
	for _, reading := range []bool{false, true} {
		if reading {
			b.focus("#events a")
			b.eval("draws = 0; long.length = 0; began = performance.now()")
		}
		tick := time.NewTicker(100 * time.Millisecond)
		changes := 0
		for range harness.Times(10, 100) { // 200 changes a second
			<-tick.C
			var lines strings.Builder
			for range 20 {
				id++
				fmt.Fprintf(&lines, `{"id":%d,"name":"Change %[1]d"}`+"\n", id)
			}
			if status, body := s.Call(harness.Token, "POST", "/plants/import?mode=replace", lines.String(), "Content-Type", "application/x-ndjson"); status != http.StatusOK {
				t.Fatalf("import: %d %s", status, body)
			}
			changes += 20
		}
		tick.Stop()
		if reading {
			b.wait(fmt.Sprintf("Number($('#activity-news').textContent.replace(/\\D/g, '')) === %d", changes))
		} else {
			b.see("#events tr >> nth=0", fmt.Sprintf("Change %d", id))
		}
		got := evaluate[struct {
			Elapsed float64
			Draws   float64
			Long    []float64
		}](b, "{Elapsed: performance.now() - began, Draws: draws, Long: long}")
		if most := got.Elapsed/250 + 1; got.Draws > most || reading && got.Draws > 0 {
			t.Errorf("it drew the rows %.0f times in %.0f ms (somebody reads: %v)", got.Draws, got.Elapsed, reading)
		}
		slices.Sort(got.Long)
		harness.Report(t, "%d changes in %.0f ms, somebody reads: %v: %.0f draws, tasks over 50 ms: %.0f", changes, got.Elapsed, reading, got.Draws, got.Long)
	}
}
