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

// table returns the results as Markdown: a row for each workload of more than so many
// contenders, a column for each of them, and then what was measured besides.
func (r *report) table(than int) string {
	var contenders []string
	for _, s := range r.Samples {
		if !slices.Contains(contenders, s.Contender) && len(r.groups(s.Workload)) > than {
			contenders = append(contenders, s.Contender)
		}
	}
	var t strings.Builder
	fmt.Fprintf(&t, "| workload | %s |\n|---|%s\n", strings.Join(contenders, " | "), strings.Repeat("---:|", len(contenders)))
	for _, workload := range r.workloads() {
		groups := r.groups(workload)
		if len(groups) <= than {
			continue
		}
		fmt.Fprintf(&t, "| %s |", workload)
		for _, contender := range contenders {
			at := slices.IndexFunc(groups, func(g group) bool { return g[0].Contender == contender })
			if at < 0 {
				t.WriteString(" |")
				continue
			}
			fmt.Fprintf(&t, " %.3f |", groups[at].median(func(s sample) float64 { return s.Ratio }))
		}
		t.WriteString("\n")
	}
	t.WriteString("\n")
	for _, workload := range r.workloads() {
		t.WriteString(r.oneConnection(r.groups(workload)))
	}
	if len(r.Facts) > 0 {
		t.WriteString("| what | median (min to max) |\n|---|---:|\n")
		for _, name := range r.factNames() {
			var values []float64
			var unit string
			for _, f := range r.Facts {
				if f.Name == name {
					values, unit = append(values, f.Value), f.Unit
				}
			}
			slices.Sort(values)
			fmt.Fprintf(&t, "| %s | %s %s (%s to %s) |\n", name, number(values[len(values)/2]), unit, number(values[0]), number(values[len(values)-1]))
		}
		t.WriteString("\n")
	}
	return t.String()
}

// factNames returns the names of the facts that concern the store as a whole, in order.
// The others are only in the samples.
func (r *report) factNames() []string {
	var names []string
	for _, f := range r.Facts {
		what, _, _ := strings.Cut(f.Name, " ")
		if slices.Contains([]string{"import,", "memory", "ready"}, what) && !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	return names
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
		fmt.Fprintf(&t, "A write with fdatasync takes %.0f µs and a no-op round trip takes %.0f µs (medians). A create takes %.0f µs longer than both together (%.0f to %.0f).\n\n",
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

// write writes all samples to the results directory, and the table and the chart to
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
	return os.WriteFile(page, []byte(head+begin+"\n"+intro+r.table(2)+end+tail), 0o644)
}
