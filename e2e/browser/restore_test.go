package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"plantstore/e2e/harness"
)

// before lets somebody else replace the plant while the page's next request with this method is on
// its way.
func (b *tab) before(method, name string) {
	b.t.Helper()
	b.eval(fmt.Sprintf(`{
		const send = fetch;
		globalThis.fetch = async (url, options) => {
			if (options.method === '%s') {
				globalThis.fetch = send;
				await send(url, {method: 'PUT', body: '{"name":"%s"}', headers: {Authorization: 'Bearer %s', 'Content-Type': 'application/json'}});
			}
			return send(url, options);
		};
	}`, method, name, harness.Token))
}

// look checks the page in three widths, light and dark, and saves how it looks.
func (b *tab) look(name string) {
	b.t.Helper()
	for _, size := range [][2]int64{{1440, 900}, {1024, 768}, {390, 844}} {
		b.size(size[0], size[1])
		for _, scheme := range []string{"dark", "light"} {
			b.scheme(scheme)
			b.fits()
			b.readable()
			b.shot(fmt.Sprintf("%s-%d-%s", name, size[0], scheme))
		}
	}
	b.size(1280, 800)
}

func TestDeletedPlantIsAPageAndIsRestored(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(3))
	s.put("3", `{"name":"Weeping fig, the second","tag":"tree"}`)
	gardener := s.Command("token", "create", "--name", "gardener")
	s.Call(gardener, "DELETE", "/plants/3", "")
	b := openTab(t, "http://"+s.Addr+"/#/plants/3")
	b.expect("status of 404", "status of 412")
	b.signIn(harness.Token)
	b.see("#plant-gone", "Deleted by gardener")
	b.see("#plant-facts", "Weeping fig, the second")
	b.see("#history li >> nth=0", "Deleted")
	b.see("#history li >> nth=2", "Created")
	b.hidden("#edit-plant")
	b.wait("document.title === 'Weeping fig, the second · Plantstore'")
	b.look("deleted-plant")
	b.accessible()

	b.click("#restore-plant")
	b.see("@toast", "Plant 3 was restored.")
	b.hidden("#plant-gone")
	b.focused("#edit-plant")
	b.see(b.row("3"), "Weeping fig, the second")
	if got, want := s.plant("3"), `{"name":"Weeping fig, the second","tag":"tree"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
	b.click("@undo")
	b.see("@toast", "Plant 3 is deleted again.")
	b.see("#plant-gone", "Deleted by bootstrap (you)")

	// An earlier version is restored as well. Nothing is, if somebody was faster.
	b.before("PUT", "Theirs")
	b.click("#restore-plant")
	b.see("#drawer-problem", "Someone created it in the meantime. This is the current version. Nothing was restored.")
	b.see("#plant-facts", "Theirs")
	b.see("#history li >> nth=0", "Theirs")
	b.before("PUT", "Theirs again")
	b.click("#history li @restore-version >> nth=-1")
	b.see("#drawer-problem", "Someone changed it in the meantime. This is the current version. Nothing was restored.")
	b.see("#history li >> nth=0", "Theirs again")
	b.shot("history")
	b.click("#history li @restore-version >> nth=-1")
	b.see("@toast", "Plant 3 was restored.")
	b.wait("$('#drawer-problem').textContent === ''")
	if got, want := s.plant("3"), `{"name":"Weeping fig","tag":"tree"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
	b.press("u")
	b.see("@toast", "Plant 3 is back as it was.")
	b.see("#plant-facts", "Theirs again")

	// It is shown as deleted as soon as it is.
	s.Call(gardener, "DELETE", "/plants/3", "")
	b.see("#plant-gone", "Deleted by gardener")
}

func TestActivityRestoresAPlantWhoseNameIsHalfKnown(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(20))
	s.Call(harness.Token, "DELETE", "/plants/3", "")
	s.Call(harness.Token, "DELETE", "/plants/4", "")
	b := openTab(t, "http://"+s.Addr+"/#/activity")
	b.expect("status of 412")
	b.signIn(harness.Token)
	b.see("#activity-total", "23 changes since")
	b.look("activity-deletions")
	b.write("#activity-plant", "weep"+kb.Enter)
	b.click(`.choices a[data-type="plant.deleted"]`)
	b.at("#/activity?q=weep&type=plant.deleted")
	b.wait("$$('#events tr').length === 1")
	b.accessible()
	b.click("@restore")
	b.see("@toast", "Plant 3 was restored.")
	b.focused("#events .do a")
	b.at("#/activity?q=weep&type=plant.deleted")
	if got, want := s.plant("3"), `{"name":"Weeping fig","tag":"tree"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
	b.shot("activity-restored")
	b.click("@undo")
	b.see("@toast", "Plant 3 is deleted again.")

	// Nothing is overwritten.
	b.reload()
	s.put("3", `{"name":"Theirs"}`)
	b.wait("$$('#events tr').length === 2")
	b.click("@restore")
	b.see("@toast", "Plant 3 was not restored: someone has created it again.")
	if got, want := s.plant("3"), `{"name":"Theirs"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}

	// Without the scope there is nothing to restore with.
	b.click("#sign-out")
	b.signIn(s.Command("token", "create", "--name", "reader", "--scopes", "plants:read,events:read"))
	b.open("http://" + s.Addr + "/#/activity?type=plant.deleted")
	b.see("#events", "Peace lily")
	b.hidden("@restore")
}
