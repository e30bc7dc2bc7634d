// Command bench compares Plantstore with its upper bound, a handler that does nothing,
// and with what a user might choose instead. Absolute rates mean little: look at the
// ratios to the upper bound, which is measured right before and right after.
//
// A measurement that was disturbed by other processes is repeated. If that does not
// help, nothing is reported.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// bench is one run.
type bench struct {
	dir       string // temporary, removed at the end
	fastify   string // the directory of the Fastify service
	rounds    int
	seconds   int           // per measurement; see referenceSeconds
	threads   int           // of a load generator
	noisy     bool          // accept measurements on a busy machine
	earlier   string        // a commit to compare with, or ""
	roundTrip time.Duration // of a network between servers and PostgreSQL, if any
	held      time.Duration // how long a snapshot is
	next      int64
	samples   []sample
	facts     []fact
}

// fact is a measurement without a reference.
type fact struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

func main() {
	quick := flag.Bool("quick", false, "run a few workloads in under 3 minutes; writes no files")
	rounds := flag.Int("rounds", 3, "how many times to measure each contender")
	seconds := flag.Int("seconds", 4, "how long a measurement lasts")
	plants := flag.Int("plants", 10_000_000, "how many plants a large store has")
	only := flag.String("only", "", "run only the workloads whose names contain this text; writes no files")
	against := flag.String("against", "", "run only the contenders whose names contain one of these texts, separated by semicolons; writes no files")
	earlierCommit := flag.String("earlier", "", "also run the Plantstore of this commit; writes no files")
	threads := flag.Int("threads", 1, "how many threads a load generator has; more than 1 writes no files")
	noisy := flag.Bool("noisy", false, "measure even if the machine is busy; writes no files")
	roundTrip := flag.Duration("round-trip", 0, "put a network with this round trip between servers and PostgreSQL; writes no files")
	held := flag.Duration("held", time.Minute, "how long a snapshot is held in the workload of that name")
	flag.Parse()
	plan := fullPlan(*plants)
	if *quick {
		plan, *seconds = quickPlan(), 3
	}
	if *earlierCommit != "" {
		plan = plan.withEarlier(*earlierCommit)
	}
	plan = plan.restrict(*only, strings.Split(*against, ";"))
	publish := !*quick && !*noisy && *only == "" && *against == "" && *earlierCommit == "" && *threads == 1 && *roundTrip == 0
	b := &bench{rounds: *rounds, seconds: *seconds, threads: *threads, noisy: *noisy, earlier: *earlierCommit, roundTrip: *roundTrip, held: *held, next: 1_000_000_000}
	if err := b.runAll(plan, publish); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// runAll runs the plan and prints the results. If publish is true it also writes them
// to bench/results and docs.
func (b *bench) runAll(plan plan, publish bool) error {
	for _, program := range []string{"wrk", "node", "npm", "psql"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not installed: apt-get install wrk nginx-light postgresql nodejs npm", program)
		}
	}
	dir, err := os.MkdirTemp("", "plantstore-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.dir = dir
	began := time.Now()
	if err := b.build(plan); err != nil {
		return err
	}
	for _, stage := range plan {
		if err := b.runStage(stage); err != nil {
			return err
		}
	}
	r := b.report(time.Since(began))
	fmt.Print("\n", r.table(0))
	if !publish {
		return nil
	}
	return r.write("results", filepath.Join("..", "docs"))
}

// built returns the path of a program that was built by build.
func (b *bench) built(name string) string { return filepath.Join(b.dir, name) }

// build builds the contenders of the plan.
func (b *bench) build(p plan) error {
	fmt.Println("building the contenders")
	if err := run("..", "go", "build", "-trimpath", "-o", b.dir, "./cmd/plantstore"); err != nil {
		return err
	}
	if b.earlier != "" {
		if err := b.buildEarlier(); err != nil {
			return err
		}
	}
	for _, peer := range []string{"noop", "plain", "pocketbase"} {
		if peer == "pocketbase" && !p.has("PocketBase") {
			continue
		}
		if err := run(".", "go", "build", "-trimpath", "-o", b.dir, "./peers/"+peer); err != nil {
			return err
		}
	}
	if !p.has("Fastify") {
		return nil
	}
	return b.buildFastify()
}

// buildEarlier builds the Plantstore of the earlier commit from a copy of its files.
func (b *bench) buildEarlier() error {
	source := filepath.Join(b.dir, "earlier")
	archive := filepath.Join(b.dir, "earlier.tar")
	if err := os.Mkdir(source, 0o700); err != nil {
		return err
	}
	return errors.Join(
		run("..", "git", "archive", "--output", archive, b.earlier),
		run(source, "tar", "-xf", archive),
		run(source, "go", "build", "-trimpath", "-o", b.built(earlier), "./cmd/plantstore"),
	)
}

// buildFastify installs the Fastify service in the user's cache, for the next run: its
// SQLite may have to be compiled, which takes minutes.
func (b *bench) buildFastify() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	b.fastify = filepath.Join(cache, "plantstore-bench", "fastify")
	if err := os.MkdirAll(b.fastify, 0o700); err != nil {
		return err
	}
	changed := false
	for _, name := range []string{"package.json", "server.js"} {
		text, err := os.ReadFile(filepath.Join("peers", "fastify", name))
		if err != nil {
			return err
		}
		old, err := os.ReadFile(filepath.Join(b.fastify, name))
		if err == nil && slices.Equal(old, text) {
			continue
		}
		changed = changed || name == "package.json"
		if err := os.WriteFile(filepath.Join(b.fastify, name), text, 0o600); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(b.fastify, "node_modules")); err == nil && !changed {
		return nil
	}
	return run(b.fastify, "npm", "install", "--no-package-lock", "--no-audit", "--no-fund")
}

// startContender starts a contender in a directory of its own.
func (b *bench) startContender(k kind) (*contender, error) {
	dir, err := os.MkdirTemp(b.dir, "contender-")
	if err != nil {
		return nil, err
	}
	c := &contender{name: k.name, dir: dir, path: "/plants", token: token, dialect: "plain"}
	if err := k.start(b, c); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", k.name, err), os.RemoveAll(dir))
	}
	return c, nil
}
