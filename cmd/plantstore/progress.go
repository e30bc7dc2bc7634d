package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"plantstore/internal/cli"
)

// progress shows how far an import, an export or a copy is: a bar on a terminal, a line every
// 5 seconds elsewhere.
type progress struct {
	out     io.Writer
	verb    string
	noun    string
	size    int64 // bytes in all, or -1
	bar     *progressbar.ProgressBar
	started time.Time
	printed time.Time
}

// newProgress shows items, which the noun names in the singular, and bytes if they are known,
// out of size, which is -1 if it is unknown.
func newProgress(out io.Writer, verb, noun string, size int64, bytes bool) *progress {
	p := &progress{out: out, verb: verb, noun: noun, size: size, started: time.Now(), printed: time.Now()}
	if cli.IsTerminal(out) {
		p.bar = newBar(out, size, bytes)
	}
	return p
}

func newBar(out io.Writer, size int64, bytes bool) *progressbar.ProgressBar {
	return progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(out),
		progressbar.OptionShowBytes(bytes),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(),
	)
}

// update shows how many bytes and items are done.
func (p *progress) update(bytes, items int64) {
	rate := float64(items) / time.Since(p.started).Seconds()
	done := fmt.Sprintf("%s %s, %.0f a second", p.verb, cli.Count(items, p.noun), rate)
	if p.bar != nil {
		p.bar.Describe(done)
		_ = p.bar.Set64(bytes)
		return
	}
	if time.Since(p.printed) < 5*time.Second {
		return
	}
	p.printed = time.Now()
	of := ""
	if p.size > 0 {
		of = fmt.Sprintf(", %d %%", 100*bytes/p.size)
	}
	fmt.Fprintf(p.out, "%s%s\n", done, of)
}

// items shows how many items are done, where bytes do not matter.
func (p *progress) items(items int64) { p.update(items, items) }

// pace says how long a number of items has taken.
func (p *progress) pace(items int64) string {
	took := time.Since(p.started)
	return fmt.Sprintf("in %s (%.0f a second)", took.Round(time.Millisecond), float64(items)/took.Seconds())
}

func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
