package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"plantstore/e2e/harness"
)

// The console finds its way in a store of any size. The long form has 10 million plants, and
// its figures are those of docs/performance.md.
func TestConsoleFindsItsWayAmongManyPlants(t *testing.T) {
	if !harness.Torture() {
		t.Parallel()
	}
	plants, tags, times := harness.Times(5_000, 10_000_000), harness.Times(50, 10_000), harness.Times(1, 20)
	s := startServer(t)
	fill(s, plants, tags)
	s.AwaitFlushed()
	s.Stop()
	s.Run()
	b := openTab(t, "http://"+s.Addr+"/")
	b.eval(stopwatch)

	// The names are the longest texts on the page, so that a row is the largest contentful
	// paint of a navigation.
	var signIns, navigations, gotos, suggestions []float64
	for i := range times {
		b.eval("start('keydown', () => $('#rows tr'))")
		b.signIn(harness.Token)
		signIns = append(signIns, evaluate[float64](b, "elapsed"))
		b.reload()
		b.loaded()
		navigations = append(navigations, evaluate[float64](b, `new Promise((done) => new PerformanceObserver((list) => {
			const row = list.getEntries().find(({element}) => element?.closest('#rows'));
			if (row) done(row.startTime);
		}).observe({type: 'largest-contentful-paint', buffered: true}))`))
		b.eval(stopwatch)

		id := fmt.Sprint(i*7_919_777%plants + 1)
		b.write("#search", id)
		b.see("#goto", "Go to plant "+id)
		b.eval(fmt.Sprintf("start('keydown', () => $('#plant-facts')?.textContent.includes('plant number %s '))", id))
		b.press(kb.Enter)
		gotos = append(gotos, evaluate[float64](b, "elapsed"))
		b.press(kb.Escape)
		b.hidden("#drawer")
		b.write("#search", "")
		b.loaded()

		prefix := fmt.Sprintf("tag %d", i*77%10)
		b.write("#tag-filter", prefix[:len(prefix)-1])
		b.see("#tag-filter-tags li", "tag ")
		b.eval(fmt.Sprintf("start('keydown', () => { const all = [...$$('#tag-filter-tags li')]; return all.length > 0 && all.every((e) => e.dataset.tag.includes('%s')) && / ?[0-9,]+$/.test(all[0].innerText); })", prefix[len(prefix)-1:]))
		b.press(prefix[len(prefix)-1:])
		suggestions = append(suggestions, evaluate[float64](b, "elapsed"))
		b.press(kb.Escape)
		b.click("#sign-out")
	}
	for _, figure := range []struct {
		name string
		ms   []float64
	}{
		{"from sign-in to the first rows", signIns},
		{"from navigation to the first rows", navigations},
		{"going to an id", gotos},
		{"tag suggestions", suggestions},
	} {
		slices.Sort(figure.ms)
		harness.Report(t, "%d plants, %s: median %.0f ms, maximum %.0f ms of %d", plants, figure.name, figure.ms[len(figure.ms)/2], figure.ms[len(figure.ms)-1], len(figure.ms))
	}
}

// Thousands of plants are changed in one request, and back in another.
func TestThousandsAreRetaggedAndBack(t *testing.T) {
	t.Parallel()
	const plants = 5_000
	s := startServer(t)
	fill(s, plants, 50)
	b := openConsole(s)
	b.see("#count", "Plants 1–50 of 5,000")
	b.eval(stopwatch)
	b.click("#pick-all")
	b.click("#pick-matches")
	b.see("#chosen", "5,000 selected")
	s.put("4000", `{"name":"Changed meanwhile","tag":"mine"}`)
	s.Call(harness.Token, "DELETE", "/plants/4001", "")
	b.click("#retag-chosen")
	b.write("#bulk-tag", "same")
	const toast = "start('click', () => [...$$('@toast')].some((e) => /^4,998 plants .*\\./.test(e.innerText) && !e.innerText.includes('…')))"
	b.eval(toast)
	b.click("@submit")
	retag := evaluate[float64](b, "elapsed")
	b.see("@toast", "4,998 plants were re-tagged.")
	b.see("@toast", "2 plants were left alone: someone else has changed or deleted them. This is plant number 4000")
	b.see(b.row("2"), "same")
	b.eval("$$('@dismiss').forEach((e) => e.click())")
	b.reload()
	b.loaded()
	b.eval(stopwatch)
	b.eval(toast)
	b.click("#undo")
	undo := evaluate[float64](b, "elapsed")
	b.see("@toast", "4,998 plants are back as they were.")
	harness.Report(t, "re-tagging %d plants: %.0f ms, undoing it after a reload: %.0f ms", plants, retag, undo)
	if got, want := s.plant("2"), `{"name":"This is plant number 2 of a rather large collection of plants in pots","tag":"tag 1"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
	if got, want := s.plant("4000"), `{"name":"Changed meanwhile","tag":"mine"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
}

// stopwatch defines start, which sets elapsed to a promise of the milliseconds from the last
// key before the condition holds until that is painted.
const stopwatch = `globalThis.start = (type, condition) => {
	let began = 0;
	addEventListener(type, ({timeStamp}) => { began = timeStamp; }, {capture: true});
	globalThis.elapsed = new Promise((done) => {
		const look = () => requestAnimationFrame(() => (began && condition() ? setTimeout(() => done(performance.now() - began)) : look()));
		look();
	});
}`

// fill imports plants with the ids from 1 and a long name each, which share some tags.
func fill(s *server, plants, tags int) {
	s.t.Helper()
	const batch = 100_000
	for from := 0; from < plants; from += batch {
		var lines strings.Builder
		for i := from; i < min(from+batch, plants); i++ {
			fmt.Fprintf(&lines, `{"id":%d,"name":"This is plant number %[1]d of a rather large collection of plants in pots","tag":"tag %d"}`+"\n", i+1, i%tags)
		}
		s.Import(lines.String())
	}
}
