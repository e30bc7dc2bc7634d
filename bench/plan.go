package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// plan is the stages of a run, in order.
type plan []stage

// stage is a number of workloads on the same stores.
type stage struct {
	preload   int // random plants in each store at the start
	kinds     []kind
	workloads []workload
	// extra, if not nil, measures what only Plantstore has, at the end.
	extra func(b *bench, c *contender) error
	// name selects the extra alone.
	name string
}

// workload is what is sent to every contender of a stage, in turns.
type workload struct {
	name        string
	work, ids   string // arguments of load.lua
	connections int
}

// named returns the kinds with these names.
func named(names ...string) []kind {
	var some []kind
	for _, k := range kinds {
		if slices.Contains(names, k.name) {
			some = append(some, k)
		}
	}
	return some
}

func creates(connections int, ids, store string) workload {
	plural := "s"
	if connections == 1 {
		plural = ""
	}
	return workload{fmt.Sprintf("create, %d connection%s, %s ids, %s", connections, plural, ids, store), "create", ids, connections}
}

// growing lists the contenders whose cost is measured as the store grows.
var growing = []string{ours, oursPostgres, plainSQLite, plainPostgres}

func fullPlan(plants int) plan {
	large := million(plants)
	var p plan
	for _, connections := range []int{256, 64, 1000, 1} {
		p = append(p, stage{kinds: kinds, workloads: []workload{creates(connections, "sequential", "empty store")}})
	}
	p = append(p, stage{kinds: named(oursPostgres, oursReplicas, plainPostgres), workloads: []workload{
		creates(4, "sequential", "empty store"), creates(16, "sequential", "empty store"),
	}})
	p = append(p, stage{kinds: kinds, workloads: []workload{creates(256, "random", "empty store")}})
	p = append(p, stage{kinds: observedKinds, workloads: []workload{creates(256, "sequential", "empty store, observed or not")}})
	p = append(p, stage{kinds: named(ours), extra: importSequential, name: "imports"})
	p = append(p, stage{kinds: named(ours, oursPostgres), extra: importModes, name: "modes of imports"})
	p = append(p, stage{kinds: named(ours), extra: measureWebhooks, name: "webhooks"})
	p = append(p, stage{kinds: named(ours), extra: measureLimits, name: "limits"})
	p = append(p, stage{kinds: named(ours, oursPostgres), extra: measureHistories(plants), name: "histories"})
	p = append(p, stage{kinds: named(ours, oursPostgres), extra: measureSearches(plants), name: "searches"})
	p = append(p, stage{kinds: named(ours, oursPostgres), extra: measureIndexCosts, name: "searches: costs of the index"})
	for _, h := range holders {
		p = append(p, stage{kinds: named(oursPostgres, oursReplicas), extra: measureHeld(h.name, h.start), name: h.name})
	}
	for _, n := range []int{10_000, 1_000_000} {
		p = append(p, stage{
			preload: n, kinds: named(growing...),
			workloads: []workload{creates(256, "random", million(n))},
		})
	}
	some := slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return k.name == oursReplicas || strings.Contains(k.name, "FULL") })
	reads := []workload{
		{"get by id, 256 connections, " + large, "get", "random", 256},
		{"page of 100, 64 connections, " + large, "list", "random", 64},
	}
	writes := []workload{
		creates(256, "random", large),
		{"mixed, 90 % reads, 256 connections, " + large, "mixed", "random", 256},
	}
	// With this many plants, PocketBase can serve reads, but creates time out.
	isPocketBase := func(k kind) bool { return strings.HasPrefix(k.name, "PocketBase") }
	return append(p,
		stage{preload: plants, kinds: slices.DeleteFunc(slices.Clone(some), func(k kind) bool { return !isPocketBase(k) }), workloads: reads},
		stage{preload: plants, kinds: slices.DeleteFunc(some, isPocketBase), workloads: slices.Concat(reads, writes), extra: measureLarge, name: "large"},
	)
}

func quickPlan() plan {
	some := named(ours, oursPostgres, plainSQLite)
	return plan{
		{kinds: some, workloads: []workload{creates(256, "sequential", "empty store")}},
		{preload: 100_000, kinds: some[:1], workloads: []workload{
			{"get by id, 256 connections, 0.1 million plants", "get", "random", 256},
			creates(256, "random", "0.1 million plants"),
		}},
	}
}

func million(n int) string { return fmt.Sprintf("%g million plants", float64(n)/1e6) }

// withEarlier adds the binary of an earlier commit to every stage, next to the current
// one.
func (p plan) withEarlier(commit string) plan {
	added := earlierKinds(commit)
	for i, s := range p {
		var all []kind
		for _, k := range s.kinds {
			all = append(all, k)
			if before, ok := added[k.name]; ok {
				all = append(all, before)
			}
		}
		p[i].kinds = all
	}
	return p
}

// restrict removes the workloads and contenders that were not selected.
func (p plan) restrict(only string, against []string) plan {
	var rest plan
	for _, s := range p {
		s.workloads = slices.DeleteFunc(s.workloads, func(w workload) bool { return !strings.Contains(w.name, only) })
		s.kinds = slices.DeleteFunc(slices.Clone(s.kinds), func(k kind) bool {
			return !slices.ContainsFunc(against, func(a string) bool { return strings.Contains(k.name, a) })
		})
		if only != "" && only != "extra" && !strings.Contains(s.name, only) {
			s.extra = nil
		}
		if len(s.kinds) > 0 && (len(s.workloads) > 0 || s.extra != nil) {
			rest = append(rest, s)
		}
	}
	return rest
}

// has reports whether the plan has a contender whose name starts with this.
func (p plan) has(name string) bool {
	return slices.ContainsFunc(p, func(s stage) bool {
		return slices.ContainsFunc(s.kinds, func(k kind) bool { return strings.HasPrefix(k.name, name) })
	})
}

// runStage starts the contenders, runs the workloads, and verifies that every
// acknowledged plant was stored.
func (b *bench) runStage(s stage) (err error) {
	ref, err := b.startContender(reference)
	if err != nil {
		return err
	}
	defer ref.stop(syscall.SIGKILL)
	var all []*contender
	defer func() {
		for _, c := range all {
			c.stop(syscall.SIGKILL)
			removeAll(c.dir)
		}
	}()
	for _, k := range s.kinds {
		c, err := b.startContender(k)
		if err != nil {
			return err
		}
		all = append(all, c)
		if s.preload == 0 || !c.stores() {
			continue
		}
		began := time.Now()
		if err := c.fill(s.preload); err != nil {
			return fmt.Errorf("fill %s: %w", c.name, err)
		}
		c.preloaded = int64(s.preload)
		fmt.Printf("%s was filled with %s in %.0f s\n", c.name, million(s.preload), time.Since(began).Seconds())
	}
	for _, w := range s.workloads {
		if err := b.runWorkload(w, s.preload, ref, all); err != nil {
			return err
		}
	}
	if s.extra != nil {
		for _, c := range all {
			if c.backlog == nil && c.database == nil {
				continue
			}
			if err := s.extra(b, c); err != nil {
				return err
			}
		}
	}
	for _, c := range all {
		if err := c.verify(); err != nil {
			return err
		}
	}
	return nil
}

// runWorkload measures the contenders in turns, with the reference before and after
// each of them.
func (b *bench) runWorkload(w workload, preloaded int, ref *contender, all []*contender) error {
	fmt.Printf("\n%s\n", w.name)
	for _, c := range append([]*contender{ref}, all...) {
		if _, err := b.send(c, w, preloaded, 1); err != nil {
			return fmt.Errorf("warm up %s: %w", c.name, err)
		}
	}
	for round := 1; round <= b.rounds; round++ {
		sync, err := syncTime(b.dir)
		if err != nil {
			return err
		}
		before, err := b.measure(ref, w, preloaded, b.referenceSeconds())
		if err != nil {
			return err
		}
		for _, c := range all {
			got, err := b.measure(c, w, preloaded, b.seconds)
			if err != nil {
				return err
			}
			after, err := b.measure(ref, w, preloaded, b.referenceSeconds())
			if err != nil {
				return err
			}
			got.Round, got.Sync = round, sync
			got.Reference = (before.Rate + after.Rate) / 2
			got.ReferenceP50 = (before.P50 + after.P50) / 2
			got.Ratio = got.Rate / got.Reference
			b.samples = append(b.samples, got)
			fmt.Printf("  %d  %-36s %8.0f/s  %5.3f of %6.0f/s  p99 %.1f ms  backlog %d, drained in %.2f s  %s\n",
				round, c.name, got.Rate, got.Ratio, got.Reference, got.P99/1000, got.Backlog, got.Drain, got.Noise)
			before = after
		}
	}
	return nil
}

// referenceSeconds is how long the reference is measured.
func (b *bench) referenceSeconds() int { return min((b.seconds+1)/2, 10) }
