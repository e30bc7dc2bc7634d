package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress shows how far an import or export is: a bar on a terminal, a line every
// few seconds elsewhere.
type progress struct {
	out     io.Writer
	verb    string
	size    int64 // bytes in all, or -1
	bar     *progressbar.ProgressBar
	started time.Time
	printed time.Time
}

// printEvery is how often a line is printed if there is no terminal.
const printEvery = 5 * time.Second

func newProgress(out io.Writer, verb string, size int64) *progress {
	p := &progress{out: out, verb: verb, size: size, started: time.Now(), printed: time.Now()}
	if isTerminal(out) {
		p.bar = progressbar.NewOptions64(size,
			progressbar.OptionSetWriter(out),
			progressbar.OptionShowBytes(true),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetWidth(30),
			progressbar.OptionClearOnFinish(),
		)
	}
	return p
}

// update shows how many bytes and plants are done.
func (p *progress) update(bytes, plants int64) {
	rate := float64(plants) / time.Since(p.started).Seconds()
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf("%s %d plants, %.0f a second", p.verb, plants, rate))
		_ = p.bar.Set64(bytes)
		return
	}
	if time.Since(p.printed) < printEvery {
		return
	}
	p.printed = time.Now()
	of := ""
	if p.size > 0 {
		of = fmt.Sprintf(", %d %%", 100*bytes/p.size)
	}
	fmt.Fprintf(p.out, "%s %d plants, %.0f a second%s\n", p.verb, plants, rate, of)
}

func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
