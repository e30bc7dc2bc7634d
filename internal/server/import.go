package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// An import is read in windows. The lines of a window are written in order while the
// next window is read.
const (
	// windowBytes is the maximum memory of a window.
	windowBytes = 16 << 20
	// windowStep is how much memory a window takes at a time.
	windowStep = 1 << 20
	// windowLines is the maximum number of lines of a window.
	windowLines = 20_000
	// lineBytes is the approximate memory of a line in addition to its text: the
	// write and its result, in slices that grow.
	lineBytes = 192
)

// window is a part of an import.
type window struct {
	writes []plantstore.Write
	by     string
	lines  []int // the line that each write came from
	bytes  int64 // memory of the writes
	taken  int64 // from the lane of imports
	failed int64
	errors []plantstore.LineError // of the first lines that failed
}

func (win *window) add(p plantstore.Plant, line int) {
	win.writes = append(win.writes, plantstore.Write{Op: plantstore.Create, Plant: p, By: win.by})
	win.lines = append(win.lines, line)
	win.bytes += int64(p.TextSize() + lineBytes)
}

func (win *window) isFull() bool {
	return win.bytes >= windowBytes || len(win.writes) >= windowLines
}

// fail counts a line that failed. Only the errors that may be in the report are kept.
func (win *window) fail(line int, err error) {
	_, e := statusOf(err)
	win.failed++
	win.errors = append(win.errors, plantstore.LineError{Line: int64(line), Err: e})
	if len(win.errors) >= 2*plantstore.MaxLineErrors {
		win.errors = firstErrors(win.errors)
	}
}

// firstErrors sorts the errors by line and returns as many as fit in a report.
func firstErrors(errs []plantstore.LineError) []plantstore.LineError {
	slices.SortFunc(errs, func(a, b plantstore.LineError) int { return cmp.Compare(a.Line, b.Line) })
	n := min(len(errs), plantstore.MaxLineErrors)
	clear(errs[n:]) // for the garbage collector
	return errs[:n]
}

func (s *Server) importPlants(c *call) error {
	if err := checkMedia(c.r, wire.MediaNDJSON); err != nil {
		return err
	}
	// The response comes when all is durable, however long that takes.
	if err := http.NewResponseController(c).SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	lines := wire.NewLineReader(&pacedReader{c, c.r.Body, newPace(minImportRate, s.StreamTimeout)}, int(s.MaxBody))
	report, err := s.importLines(c, lines)
	if err != nil {
		return err
	}
	if err := http.NewResponseController(c).SetWriteDeadline(time.Now().Add(s.StreamTimeout)); err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, append(wire.EncodeReport(report), '\n'))
}

// importLines reads one window while the one before is written.
func (s *Server) importLines(c *call, lines *wire.LineReader) (plantstore.ImportReport, error) {
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	windows := make(chan *window)
	written := make(chan struct{})
	var report plantstore.ImportReport
	go func() {
		defer close(written)
		for win := range windows {
			err := s.writeWindow(ctx, win, &report)
			c.lane(imports).release(c.caller.Hash, win.taken)
			if err != nil {
				cancel(err)
				return
			}
		}
	}()
	readErr := s.readWindows(ctx, c, lines, windows)
	close(windows)
	<-written
	if readErr != nil {
		return report, readErr
	}
	return report, context.Cause(ctx)
}

// readWindows reads windows until the lines end. A window that it sends belongs to
// the receiver, with the memory that it took.
func (s *Server) readWindows(ctx context.Context, c *call, lines *wire.LineReader, windows chan<- *window) error {
	for {
		if err := c.lane(imports).acquire(ctx, c.caller.Hash, windowStep); err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		win := &window{by: c.caller.Public, taken: windowStep}
		err := s.readWindow(c, lines, win)
		if err != nil && err != io.EOF {
			c.lane(imports).release(c.caller.Hash, win.taken)
			return err
		}
		select {
		case windows <- win:
		case <-ctx.Done():
			c.lane(imports).release(c.caller.Hash, win.taken)
			return nil
		}
		if err == io.EOF {
			return nil
		}
	}
}

func (s *Server) writeWindow(ctx context.Context, win *window, report *plantstore.ImportReport) error {
	results, err := s.Writer.WriteAll(ctx, win.writes)
	if err != nil {
		return err
	}
	before := *report
	for i, result := range results {
		switch {
		case result.Err != nil:
			win.fail(win.lines[i], withPlantID(win.writes[i].Plant.ID, result.Err))
		case result.Outcome == plantstore.Created:
			report.Created++
		default:
			report.Unchanged++
		}
	}
	report.Failed += win.failed
	s.Metrics.importedLines(report.Created-before.Created, report.Unchanged-before.Unchanged, win.failed)
	report.Errors = firstErrors(append(report.Errors, win.errors...))
	return nil
}

// readWindow reads lines until the window is full, or there is no memory for a larger
// one. It returns io.EOF after the last line.
func (s *Server) readWindow(c *call, lines *wire.LineReader, win *window) error {
	for !win.isFull() && win.grow(c) {
		line, err := lines.Next()
		switch {
		case errors.Is(err, wire.ErrLineTooLong):
			win.fail(lines.Line(), plantstore.Errorf(plantstore.ErrTooLarge, "longer than the limit of %d bytes", s.MaxBody))
			continue
		case err == io.EOF:
			return err
		case err != nil:
			return bodyError(err)
		}
		plant, err := wire.DecodeNewPlant(line)
		if err != nil {
			win.fail(lines.Line(), err)
			continue
		}
		win.add(plant, lines.Line())
	}
	return nil
}

// grow takes more memory for the window if it needs some, and reports whether there
// was enough.
func (win *window) grow(c *call) bool {
	for win.bytes > win.taken {
		if !c.lane(imports).tryAcquire(c.caller.Hash, windowStep, importBytes) {
			return false
		}
		win.taken += windowStep
	}
	return true
}
