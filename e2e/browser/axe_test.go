package browser

import (
	"os"
	"sync"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// axe is the script of axe-core, which finds what keeps people with disabilities out.
var axe = sync.OnceValues(func() ([]byte, error) {
	return os.ReadFile(harness.Root + "/e2e/tools/node_modules/axe-core/axe.min.js")
})

// accessible fails on every serious or critical finding of axe-core on the page as it is
// shown, on headings out of order, and on what WCAG 2.2 requires, which axe-core leaves off
// by default. axe-core takes long, and its findings seldom depend on the exact width, so it
// checks the usual width and that of a phone.
func (b *tab) accessible() {
	b.t.Helper()
	if width := evaluate[int](b, "innerWidth"); width != 1280 && width != 360 {
		return
	}
	script, err := axe()
	if os.IsNotExist(err) {
		testenv.NeedsTools(b.t, harness.Root)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if !evaluate[bool](b, "'axe' in globalThis") {
		b.eval(string(script))
	}
	findings := evaluate[[]string](b, `axe.run({
		resultTypes: ['violations'],
		preload: false,
		rules: Object.fromEntries(axe.getRules(['wcag22aa']).map(({ruleId}) => [ruleId, {enabled: true}])),
	}).then(({violations}) => violations
		.filter(({id, impact}) => impact === 'serious' || impact === 'critical' || id === 'heading-order')
		.flatMap(({id, impact, nodes}) => nodes.map((node) => impact + ' ' + id + ': ' + node.target.join(' ') + ' ' + node.any.concat(node.all, node.none).map((check) => check.message).join('; '))))`)
	for _, finding := range findings {
		b.t.Errorf("axe-core: %s", finding)
	}
}
