package browser

import (
	"testing"

	"plantstore/e2e/harness"
)

// at waits until the page's URL ends in the hash.
func (b *tab) at(hash string) { b.t.Helper(); b.wait("location.hash === '" + hash + "'") }

func TestURLIsTheState(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(120))
	b := openTab(t, "http://"+s.Addr+"/#/plants?tag=tropical&q=mon")
	b.see("#sign-in", "Sign in")
	b.signIn(harness.Token)
	b.see("#count", "Matches 1–5 of 5")
	b.see("#chips", "tropical")
	if got := b.value("#search"); got != "mon" {
		t.Errorf("the search has %q", got)
	}
	b.reload()
	b.see("#count", "Matches 1–5 of 5")

	b.click("#pages a")
	b.at("#/plants")
	b.see("#count", "Plants 1–50 of ")
	b.click("#next")
	b.see("#count", "Plants 51–100 of ")
	b.at("#/plants?after=50")
	b.reload()
	b.see("#count", "Plants 51–100 of ")
	b.eval("history.back()")
	b.see("#count", "Plants 1–50 of ")
	b.eval("history.back()")
	b.see("#count", "Matches 1–5 of 5")
	b.eval("history.go(2)")
	b.see("#count", "Plants 51–100 of ")

	b.open("http://" + s.Addr + "/#/plants?after=100")
	b.see("#count", "Plants after ID 100")
	b.click("#previous")
	b.see("#count", "Plants 1–50 of ")
	b.click("#sort-name")
	b.at("#/plants?order=name")
	b.click("#next")
	b.wait("/^#\\/plants\\?order=name&after=[0-9]+\\.\\w+$/.test(location.hash)")
	b.open("about:blank")
	b.eval("history.back()")
	b.loaded()
	b.see("#count", "Plants 51–100 of 120")
	b.open("http://" + s.Addr + "/#/activity?range=constructor")
	b.see("#activity-total", "changes since")
	b.open("http://" + s.Addr + "/#/nowhere")
	b.see("main", "There is no such page")
	b.wait("document.title === 'Not found · Plantstore'")
}
