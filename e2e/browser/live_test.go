package browser

import (
	"testing"

	"plantstore/e2e/harness"
)

func TestTableFollowsTheChangesOfOthers(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(60))
	b := openConsole(s)
	b.see("#total", "60 plants")
	b.openPlant("3")
	b.eval("scrollTo(0, 200); globalThis.at = document.querySelector('tr[data-id=\"9\"]').getBoundingClientRect().top")

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
	if moved := evaluate[float64](b, "document.querySelector('tr[data-id=\"9\"]').getBoundingClientRect().top - at"); moved != 0 {
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
	b.see("#events tr:first-child", "gardener")
	b.see("#events tr:first-child", "Deleted")
	b.see("#events", "bootstrap (you)")
	b.see("#activity-types", "Created 3")
	b.see("#activity-types", "Changed 1")
	b.see("#activity-types", "Deleted 1")
	b.wait("document.querySelectorAll('#activity-chart rect:not(.ground)').length > 0 && document.title === 'Activity · Plantstore'")
	b.shot("activity")
	b.image("console-activity")
	b.accessible()

	s.put("7", `{"name":"While you watch"}`)
	b.see("#events tr:first-child", "While you watch")
	b.see("#activity-types", "Created 4")

	b.click(`#activity-types a[href*="plant.deleted"]`)
	b.at("#/activity?type=plant.deleted")
	b.see("#events tr", "Weeping fig")
	b.wait("document.querySelectorAll('#events tr').length === 1")
	b.click(`.choices a[href*="range=7d"]`)
	b.at("#/activity?type=plant.deleted&range=7d")
	b.see("#events tr", "Weeping fig")
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
	b.see("#drawer-problem", "There is no plant 3.")

	// A token without the scope does not see the page.
	b.click("#sign-out")
	b.signIn(s.Command("token", "create", "--name", "reader", "--scopes", "plants:read"))
	b.hidden(`#pages a[href="#/activity"]`)
	b.hidden("#create")
	b.open("http://" + s.Addr + "/#/activity")
	b.see("main", "Your token cannot open Activity")
	b.see("main", "It needs the scope events:read.")
}
