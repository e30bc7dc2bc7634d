package server

import (
	"errors"
	"io"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/plantfile"
)

// readTestWindow reads a window of the lines with this much memory for all imports.
func readTestWindow(memory int64, lines string) (*window, error) {
	c := newTestCall(imports)
	c.s.MaxBody, c.lane(imports).size = 1<<20, memory
	records, err := plantfile.NewReader(strings.NewReader(lines), plantfile.NDJSON, plantfile.Options{MaxRecord: 1 << 20})
	if err != nil {
		return nil, err
	}
	win := &window{}
	return win, c.s.readWindow(c, records, &importing{}, win)
}

func TestWindowCountsLinesThatFailAndKeepsTheFirst(t *testing.T) {
	const n = 50_000
	win, err := readTestWindow(importBytes, strings.Repeat("x\n", n))
	if err != io.EOF || win.refused.Failed != n || len(win.refused.Errors) != plantstore.MaxLineErrors {
		t.Fatalf("%d lines failed, and %d errors are kept: %v", win.refused.Failed, len(win.refused.Errors), err)
	}
	for i, e := range win.refused.Errors {
		if e.Line != int64(i+1) {
			t.Fatalf("error %d is of line %d", i, e.Line)
		}
	}
}

// A window ends before it takes more memory than there is, whatever its lines are.
func TestWindowIsBoundedByBytes(t *testing.T) {
	for name, line := range map[string]string{
		"a line of 1 kB":   `{"id":1,"name":"` + strings.Repeat("x", 1000) + `"}` + "\n",
		"a line of 100 kB": `{"id":1,"name":"` + strings.Repeat("x", 100_000) + `"}` + "\n" + `{"id":0,"name":""}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			lines := strings.Repeat(line, (24<<20)/len(line))
			for _, tt := range []struct{ memory, want int64 }{
				{importBytes, windowBytes},
				{8 << 20, 6 << 20}, // the share of one token
			} {
				win, err := readTestWindow(tt.memory, lines)
				if err != nil || win.bytes < tt.want || win.bytes > tt.want+200_000 {
					t.Errorf("with %d bytes of memory the window has %d, want about %d: %v", tt.memory, win.bytes, tt.want, err)
				}
			}
		})
	}
}

// A dry run needs nothing of what its own windows hold, so that it alone never fails.
func TestLargestDryRunFitsBesideItsWindows(t *testing.T) {
	c := newTestCall(imports)
	c.s.MaxBody = 1 << 20
	how := importing{op: plantstore.Replace, trial: newTrial(c)}
	line := `{"id":1,"name":"` + strings.Repeat("x", 700) + `"}` + "\n"
	for range 2 { // one is being read while the other is tried
		records, err := plantfile.NewReader(strings.NewReader(strings.Repeat(line, windowLines)), plantfile.NDJSON, plantfile.Options{MaxRecord: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.s.readWindow(c, records, &how, &window{}); err != nil {
			t.Fatal(err)
		}
	}
	for id := range plantstore.ID(maxTrial) {
		how.trial.changed[id] = deleted
	}
	if err := how.trial.grow(t.Context()); err != nil {
		t.Errorf("%d changes: %v, with %d bytes in use", maxTrial, err, c.lane(imports).used)
	}
	how.trial.changed[-1] = deleted
	if err := how.trial.grow(t.Context()); !errors.Is(err, plantstore.ErrParameter) {
		t.Errorf("one change more: %v, want ErrParameter", err)
	}
}

func TestWindowIsBoundedByLines(t *testing.T) {
	win, err := readTestWindow(importBytes, strings.Repeat(`{"id":1,"name":""}`+"\n", windowLines+1))
	if err != nil || len(win.writes) != windowLines {
		t.Errorf("the window has %d lines, want %d: %v", len(win.writes), windowLines, err)
	}
}
