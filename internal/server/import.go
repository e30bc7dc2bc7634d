package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
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
	writes  []plantstore.Write
	by      string
	lines   []int                   // the line that each write came from
	bytes   int64                   // memory of the writes
	taken   int64                   // from the lane of imports
	refused plantstore.ImportReport // of the lines that are not plants
}

func (win *window) add(p plantstore.Plant, line int) {
	win.writes = append(win.writes, plantstore.Write{Op: plantstore.Create, Plant: p, By: win.by})
	win.lines = append(win.lines, line)
	win.bytes += int64(p.TextSize() + lineBytes)
}

func (win *window) isFull() bool {
	return win.bytes >= windowBytes || len(win.writes) >= windowLines
}

// fail adds a line that failed to a report, after those before it.
func fail(report *plantstore.ImportReport, line int, err error) {
	report.Failed++
	if len(report.Errors) < plantstore.MaxLineErrors {
		_, e := statusOf(err)
		report.Errors = append(report.Errors, plantstore.LineError{Line: int64(line), Err: e})
	}
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
// the receiver, with the memory that it took. It likely has as many lines as the one before.
func (s *Server) readWindows(ctx context.Context, c *call, lines *wire.LineReader, windows chan<- *window) error {
	size := 0
	for {
		if err := c.lane(imports).acquire(ctx, c.caller.Hash, windowStep); err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		win := &window{by: c.caller.Public, taken: windowStep}
		win.grow(c, int64(size)*lineBytes)
		size = min(size, int(win.taken/lineBytes))
		win.writes, win.lines = make([]plantstore.Write, 0, size), make([]int, 0, size)
		err := s.readWindow(c, lines, win)
		size = len(win.writes)
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
	var written plantstore.ImportReport
	for i, result := range results {
		switch {
		case result.Err != nil:
			fail(&written, win.lines[i], withPlantID(win.writes[i].Plant.ID, result.Err))
		case result.Outcome == plantstore.Created:
			written.Created++
		default:
			written.Unchanged++
		}
	}
	written.Add(win.refused)
	s.Metrics.importedLines(written)
	report.Add(written)
	return nil
}

// readWindow reads lines until the window is full, or there is no memory for a larger
// one. It returns io.EOF after the last line.
func (s *Server) readWindow(c *call, lines *wire.LineReader, win *window) error {
	for !win.isFull() && win.grow(c, win.bytes) {
		line, err := lines.Next()
		switch {
		case errors.Is(err, wire.ErrLineTooLong):
			fail(&win.refused, lines.Line(), plantstore.Errorf(plantstore.ErrTooLarge, "longer than the limit of %d bytes", s.MaxBody))
			continue
		case err == io.EOF:
			return err
		case err != nil:
			return bodyError(err)
		}
		plant, err := wire.DecodeNewPlant(line)
		if err != nil {
			fail(&win.refused, lines.Line(), err)
			continue
		}
		win.add(plant, lines.Line())
	}
	return nil
}

// grow takes more memory for the window if so many bytes need some, and reports whether
// there was enough.
func (win *window) grow(c *call, bytes int64) bool {
	for bytes > win.taken {
		if !c.lane(imports).tryAcquire(c.caller.Hash, windowStep, importBytes) {
			return false
		}
		win.taken += windowStep
	}
	return true
}
