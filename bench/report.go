package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// report is the results of a run.
type report struct {
	Machine string   `json:"machine"`
	Date    string   `json:"date"`
	Commit  string   `json:"commit"`
	Took    string   `json:"took"`
	Rounds  int      `json:"rounds"`
	Seconds int      `json:"seconds_each"`
	Samples []sample `json:"samples"`
	Facts   []fact   `json:"facts"`
}

func (b *bench) report(took time.Duration) *report {
	commit, _ := exec.Command("git", "describe", "--always", "--dirty").Output()
	return &report{
		Machine: machine(),
		Date:    time.Now().UTC().Format(time.DateOnly),
		Commit:  strings.TrimSpace(string(commit)),
		Took:    took.Round(time.Second).String(),
		Rounds:  b.rounds, Seconds: b.seconds,
		Samples: b.samples, Facts: b.facts,
	}
}

// group is the samples of one contender in one workload.
type group []sample

// each returns a figure of every sample, in ascending order.
func (g group) each(figure func(sample) float64) []float64 {
	var all []float64
	for _, s := range g {
		all = append(all, figure(s))
	}
	slices.Sort(all)
	return all
}

func (g group) median(figure func(sample) float64) float64 {
	all := g.each(figure)
	return all[len(all)/2]
}

// workloads returns the names of the workloads, in order.
func (r *report) workloads() []string {
	var names []string
	for _, s := range r.Samples {
		if !slices.Contains(names, s.Workload) {
			names = append(names, s.Workload)
		}
	}
	return names
}

// groups returns the samples of a workload by contender, in order.
func (r *report) groups(workload string) []group {
	var all []group
	for _, s := range r.Samples {
		if s.Workload != workload {
			continue
		}
		at := slices.IndexFunc(all, func(g group) bool { return g[0].Contender == s.Contender })
		if at < 0 {
			all = append(all, group{s})
			continue
		}
		all[at] = append(all[at], s)
	}
	return all
}

// tables returns the results as Markdown.
func (r *report) tables() string {
	var t strings.Builder
	for _, workload := range r.workloads() {
		fmt.Fprintf(&t, "### %s%s\n\n", strings.ToUpper(workload[:1]), workload[1:])
		groups := r.groups(workload)
		reference := group(slices.Concat(groups...)).median(func(s sample) float64 { return s.Reference })
		fmt.Fprintf(&t, "The no-op handler served %.0f requests per second (median).\n\n", reference)
		fmt.Fprint(&t, "| contender | per second | ratio to no-op: median (min to max) | p50 ms | p99 ms | max ms | CPU s per million | drained | backlog | bytes written per request | memory MB |\n")
		fmt.Fprint(&t, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
		for _, g := range groups {
			ratios := g.each(func(s sample) float64 { return s.Ratio })
			fmt.Fprintf(&t, "| %s | %.0f | **%.3f** (%.3f to %.3f) | %.2f | %.2f | %.1f | %.1f | %.1f | %.0f | %.0f | %d |\n",
				g[0].Contender, g.median(func(s sample) float64 { return s.Rate }),
				ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1],
				g.median(func(s sample) float64 { return s.P50 })/1000,
				g.median(func(s sample) float64 { return s.P99 })/1000,
				g.each(func(s sample) float64 { return s.Max })[len(g)-1]/1000,
				g.median(func(s sample) float64 { return s.CPU }),
				g.median(func(s sample) float64 { return s.DrainedCPU }),
				g.median(func(s sample) float64 { return float64(s.Backlog) }),
				g.median(func(s sample) float64 { return s.Written }),
				int64(g.median(func(s sample) float64 { return float64(s.Memory) })/1e6))
		}
		t.WriteString(r.oneConnection(groups))
		t.WriteString("\n")
	}
	if len(r.Facts) > 0 {
		t.WriteString("### Other measurements\n\n| what | measured |\n|---|---|\n")
		for i, f := range r.Facts {
			if slices.ContainsFunc(r.Facts[:i], func(g fact) bool { return g.Name == f.Name }) {
				continue
			}
			var values []string
			for _, g := range r.Facts {
				if g.Name == f.Name {
					values = append(values, number(g.Value))
				}
			}
			fmt.Fprintf(&t, "| %s | %s %s |\n", f.Name, strings.Join(values, ", "), f.Unit)
		}
		t.WriteString("\n")
	}
	return t.String()
}

func number(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// oneConnection compares the latency of a create on one connection with its lower
// bound: one fdatasync and one round trip.
func (r *report) oneConnection(groups []group) string {
	var t strings.Builder
	for _, g := range groups {
		if !strings.HasPrefix(g[0].Workload, "create, 1 connection,") || g[0].Contender != ours {
			continue
		}
		over := g.each(func(s sample) float64 { return s.P50 - s.Sync - s.ReferenceP50 })
		fmt.Fprintf(&t, "\nA write with fdatasync takes %.0f µs and a no-op round trip takes %.0f µs (medians). A create takes %.0f µs longer than both together (%.0f to %.0f).\n",
			g.median(func(s sample) float64 { return s.Sync }), g.median(func(s sample) float64 { return s.ReferenceP50 }),
			over[len(over)/2], over[0], over[len(over)-1])
	}
	return t.String()
}

// The part of docs/performance.md between these lines is generated.
const (
	begin = "<!-- begin: written by make bench -->\n"
	end   = "<!-- end: written by make bench -->\n"
)

// write writes all samples to the results directory, and the tables and the chart to
// the docs directory.
func (r *report) write(results, docs string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(results, "performance.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(docs, "images", "performance.svg"), []byte(r.chart()), 0o644); err != nil {
		return err
	}
	page := filepath.Join(docs, "performance.md")
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(old), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s lacks the lines that mark the generated part", page)
	}
	intro := fmt.Sprintf("`make bench`, %s, commit %s, %d rounds of %d s each, %s in total.\nMachine: %s.\n\n",
		r.Date, r.Commit, r.Rounds, r.Seconds, r.Took, r.Machine)
	return os.WriteFile(page, []byte(head+begin+"\n"+intro+r.tables()+end+tail), 0o644)
}
