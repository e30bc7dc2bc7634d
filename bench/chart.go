package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// colours are the colours of the contenders in both charts.
var colours = map[string]string{ours: "#2a7d4f", oursPostgres: "#4a86c5", oursReplicas: "#4a86c5"}

func colour(contender string) string {
	if c, ok := colours[contender]; ok {
		return c
	}
	return "#9a9a9a"
}

// chart draws the create rate of all contenders, and how the cost of a create grows with
// the store.
func (r *report) chart() string {
	var s strings.Builder
	fmt.Fprint(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 360" font-family="system-ui, sans-serif" font-size="12">
<style>text { fill: #1f2420 } .quiet { fill: #5d665f } .line { stroke: #c9cfca } .page { fill: #ffffff }
@media (prefers-color-scheme: dark) { text { fill: #e6ebe7 } .quiet { fill: #a3ada6 } .line { stroke: #4a524c } .page { fill: #15191a } }</style>
<rect class="page" width="960" height="360"/>
`)
	r.bars(&s)
	r.curves(&s)
	fmt.Fprint(&s, "</svg>\n")
	return s.String()
}

// bars draws the left half: ratios to the no-op handler.
func (r *report) bars(s *strings.Builder) {
	workload := creates(256, "sequential", "empty store").name
	fmt.Fprintf(s, "<text x=\"16\" y=\"28\" font-size=\"15\">Creates, 256 connections: ratio to a no-op handler</text>\n")
	const left, width = 240, 190
	ratioOf := func(g group) float64 { return g.median(func(s sample) float64 { return s.Ratio }) }
	maxRatio := 1.0
	for _, g := range r.groups(workload) {
		maxRatio = max(maxRatio, ratioOf(g))
	}
	for i, g := range r.groups(workload) {
		ratio, y := ratioOf(g), 52+i*32
		shown := ratio / maxRatio
		fmt.Fprintf(s, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", left-10, y+14, html.EscapeString(g[0].Contender))
		fmt.Fprintf(s, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"20\" rx=\"2\" fill=\"%s\"/>\n", left, y, shown*width, colour(g[0].Contender))
		fmt.Fprintf(s, "<text x=\"%.1f\" y=\"%d\" class=\"quiet\">%.2f</text>\n", left+shown*width+6, y+14, ratio)
	}
}

// curves draws the right half: CPU time per create, by the size of the store.
func (r *report) curves(s *strings.Builder) {
	fmt.Fprintf(s, "<text x=\"500\" y=\"28\" font-size=\"15\">Random ids: CPU time per create, as the store grows</text>\n")
	const left, right, top, bottom = 550.0, 900.0, 52.0, 300.0
	points := make(map[string][][2]float64) // plants, microseconds
	var order []string
	maxCPU := 1.0
	for _, workload := range r.workloads() {
		if !strings.HasPrefix(workload, "create, 256 connections, random ids") {
			continue
		}
		for _, g := range r.groups(workload) {
			c := g[0].Contender
			if g[0].Preloaded == 0 || !slices.Contains(growing, c) {
				continue
			}
			if points[c] == nil {
				order = append(order, c)
			}
			cpu := g.median(func(s sample) float64 { return s.CPU })
			points[c] = append(points[c], [2]float64{float64(g[0].Preloaded), cpu})
			maxCPU = max(maxCPU, cpu)
		}
	}
	maxCPU = math.Ceil(maxCPU/40) * 40
	x := func(plants float64) float64 { return left + (math.Log10(plants)-4)/3*(right-left) }
	y := func(cpu float64) float64 { return bottom - cpu/maxCPU*(bottom-top) }
	for i := range 5 {
		at := maxCPU / 4 * float64(i)
		fmt.Fprintf(s, "<line class=\"line\" x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"quiet\" x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.0f µs</text>\n",
			left, right, y(at), y(at), left-8, y(at)+4, at)
	}
	for _, plants := range []float64{1e4, 1e5, 1e6, 1e7} {
		fmt.Fprintf(s, "<text class=\"quiet\" x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%s</text>\n", x(plants), bottom+18, map[float64]string{1e4: "10,000", 1e5: "100,000", 1e6: "1 million", 1e7: "10 million plants"}[plants])
	}
	for i, c := range order {
		var path []string
		for _, p := range points[c] {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x(p[0]), y(p[1])))
			fmt.Fprintf(s, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x(p[0]), y(p[1]), colour(c))
		}
		dash := ""
		if strings.Contains(c, "PostgreSQL") {
			dash = ` stroke-dasharray="5 4"`
		}
		fmt.Fprintf(s, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"%s\"/>\n", colour(c), dash, strings.Join(path, " "))
		fmt.Fprintf(s, "<line x1=\"%d\" x2=\"%d\" y1=\"340\" y2=\"340\" stroke=\"%s\" stroke-width=\"2\"%s/><text x=\"%d\" y=\"344\">%s</text>\n",
			230+i*180, 254+i*180, colour(c), dash, 260+i*180, html.EscapeString(c))
	}
}
