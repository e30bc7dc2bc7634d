// Command bench measures Plantstore side by side with its limit, a handler that does
// nothing, and with what a user would pick instead. Rates on their own say little:
// look at the ratios to the limit, which was measured just before and just after.
//
// A measurement in which the machine had other things to do is repeated, and where
// that does not help nothing is reported.
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

// bench is one run of all that was asked for.
type bench struct {
	dir     string // everything is made here, and removed at the end
	fastify string // the directory of the Fastify service
	rounds  int
	seconds int  // of a measurement; the reference takes half
	noisy   bool // measurements count whatever else the machine does
	next    int64
	samples []sample
	facts   []fact
}

// fact is a figure that has no reference.
type fact struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

func main() {
	quick := flag.Bool("quick", false, "a few workloads in under 3 minutes; writes no file")
	rounds := flag.Int("rounds", 3, "how many times each contender is measured")
	seconds := flag.Int("seconds", 4, "how long a measurement lasts")
	plants := flag.Int("plants", 10_000_000, "how many plants a large store holds")
	only := flag.String("only", "", "only the workloads whose names have this in them; writes no file")
	against := flag.String("against", "", "only the contenders whose names have one of these, separated by semicolons, in them; writes no file")
	noisy := flag.Bool("noisy", false, "measure whatever else the machine does; writes no file")
	flag.Parse()
	plan := fullPlan(*plants)
	if *quick {
		plan, *seconds = quickPlan(), 3
	}
	plan = plan.restrict(*only, strings.Split(*against, ";"))
	publish := !*quick && !*noisy && *only == "" && *against == ""
	b := &bench{rounds: *rounds, seconds: *seconds, noisy: *noisy, next: 1_000_000_000}
	if err := b.runAll(plan, publish); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// runAll runs the plan and prints what it found. Where that is to be published, the
// files in docs are written too.
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
	fmt.Print("\n", r.tables())
	if !publish {
		return nil
	}
	return r.write(filepath.Join("..", "docs"))
}

// built returns the path of a program that build has made.
func (b *bench) built(name string) string { return filepath.Join(b.dir, name) }

// build makes the contenders of the plan.
func (b *bench) build(p plan) error {
	fmt.Println("building the contenders")
	if err := run("..", "go", "build", "-trimpath", "-o", b.dir, "./cmd/plantstore"); err != nil {
		return err
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

// buildFastify installs the Fastify service where the next run finds it again: its
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

// startContender starts one of a kind in a directory of its own.
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
