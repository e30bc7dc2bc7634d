package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"plantstore"
	"plantstore/internal/plantfile"
	"plantstore/internal/wire"
)

// An import is read in windows. The records of a window are written in order while the
// next window is read.
const (
	// windowBytes is the maximum memory of a window.
	windowBytes = 16 << 20
	// windowStep is how much memory a window takes at a time.
	windowStep = 1 << 20
	// windowLines is the maximum number of records of a window.
	windowLines = 20_000
	// lineBytes is the approximate memory of a record in addition to its text: the
	// write and its result, in slices that grow.
	lineBytes = 192
)

// window is a part of an import.
type window struct {
	writes  []plantstore.Write
	by      string
	lines   []int                   // the line, or the element, that each write came from
	bytes   int64                   // memory of the writes
	taken   int64                   // from the lane of imports
	refused plantstore.ImportReport // of the records that are not plants
}

func (win *window) add(p plantstore.Plant, line int) {
	win.writes = append(win.writes, plantstore.Write{Op: plantstore.Create, Plant: p, By: win.by})
	win.lines = append(win.lines, line)
	win.bytes += int64(p.TextSize() + lineBytes)
}

func (win *window) isFull() bool {
	return win.bytes >= windowBytes || len(win.writes) >= windowLines
}

// fail adds a record that failed to a report, after those before it.
func fail(report *plantstore.ImportReport, line int, err error) {
	report.Failed++
	if len(report.Errors) < plantstore.MaxLineErrors {
		_, e := statusOf(err)
		report.Errors = append(report.Errors, plantstore.LineError{Line: int64(line), Err: e})
	}
}

func (s *Server) importPlants(c *call) error {
	format, dryRun, err := readImport(c.r)
	if err != nil {
		return err
	}
	// The response comes when all is durable, however long that takes.
	if err := http.NewResponseController(&c.w).SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	records, err := plantfile.NewReader(&pacedReader{&c.w, c.r.Body, newPace(minImportRate, s.StreamTimeout)}, format, plantfile.Options{
		MaxRecord:     int(s.MaxBody),
		DelimiterHint: "; name another separator than comma, semicolon or tab in a line such as sep=| before the header",
		LinesHint:     "; for one plant per line, send " + wire.MediaNDJSON,
	})
	if err != nil {
		return fileError(err)
	}
	var dry *trial
	if dryRun {
		dry = newTrial(c)
		defer dry.release()
	}
	report, err := s.importRecords(c, records, dry)
	if broken, ok := errors.AsType[brokenFile](err); ok {
		return plantstore.Errorf(broken.why.Code, "%v; before that, %d were created, %d unchanged and %d failed", broken, report.Created, report.Unchanged, report.Failed)
	}
	if err != nil {
		return err
	}
	if err := http.NewResponseController(&c.w).SetWriteDeadline(time.Now().Add(s.StreamTimeout)); err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, append(wire.EncodeReport(report), '\n'))
}

// formats are the formats of imports and exports by their media types.
var formats = map[string]plantfile.Format{
	wire.MediaNDJSON: plantfile.NDJSON,
	wire.MediaJSON:   plantfile.JSON,
	wire.MediaCSV:    plantfile.CSV,
}

// readImport returns the format of an import, and whether it is a dry run. It reads the query
// strictly: a misspelt parameter must not write.
func readImport(r *http.Request) (format plantfile.Format, dryRun bool, err error) {
	media, err := readMedia(r, wire.MediaNDJSON, wire.MediaJSON, wire.MediaCSV)
	if err != nil {
		return "", false, err
	}
	_, err = readParams(r, func(name, value string, problems *plantstore.Problems) {
		if name != "dry_run" {
			problems.Add(plantstore.ErrParameter, "unknown parameter %q; allowed: dry_run", name)
			return
		}
		dryRun = readBool(name, value, problems)
	})
	return formats[media], dryRun, err
}

// brokenFile is the error of a file whose rest cannot be read because of its content, and not
// because of the connection.
type brokenFile struct{ why *plantstore.Error }

func (b brokenFile) Error() string { return b.why.Message }

func (b brokenFile) Unwrap() error { return b.why }

// fileError says why a file cannot be read.
func fileError(err error) error {
	if e, ok := errors.AsType[*plantstore.Error](err); ok {
		return brokenFile{e}
	}
	return bodyError(err)
}

// importRecords reads one window while the one before is written.
func (s *Server) importRecords(c *call, records plantfile.Reader, dry *trial) (plantstore.ImportReport, error) {
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	windows := make(chan *window)
	written := make(chan struct{})
	var report plantstore.ImportReport
	go func() {
		defer close(written)
		for win := range windows {
			err := s.writeWindow(ctx, win, dry, &report)
			c.lane(imports).release(c.caller.Hash, win.taken)
			if err != nil {
				cancel(err)
				return
			}
		}
	}()
	readErr := s.readWindows(ctx, c, records, windows)
	close(windows)
	<-written
	if readErr != nil {
		return report, readErr
	}
	return report, context.Cause(ctx)
}

// readWindows reads windows until the records end. A window that it sends belongs to
// the receiver, with the memory that it took. It likely has as many records as the one before.
func (s *Server) readWindows(ctx context.Context, c *call, records plantfile.Reader, windows chan<- *window) error {
	size := 0
	for {
		if err := c.lane(imports).acquire(ctx, c.caller.Hash, windowStep); err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		win := &window{by: c.caller.Public, taken: windowStep}
		win.grow(c, int64(size)*lineBytes)
		size = min(size, int(win.taken/lineBytes))
		win.writes, win.lines = make([]plantstore.Write, 0, size), make([]int, 0, size)
		err := s.readWindow(c, records, win)
		size = len(win.writes)
		if _, broken := errors.AsType[brokenFile](err); err != nil && err != io.EOF && !broken {
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
		if err != nil {
			return err
		}
	}
}

// writeWindow writes a window, or only decides its writes in a dry run, and reports the results.
func (s *Server) writeWindow(ctx context.Context, win *window, dry *trial, report *plantstore.ImportReport) error {
	apply := s.Writer.Import
	if dry != nil {
		apply = dry.apply
	}
	results, err := apply(ctx, win.writes)
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
	if dry == nil {
		s.Metrics.importedLines(written)
	}
	report.Add(written)
	return nil
}

// readWindow reads records until the window is full, or there is no memory for a larger
// one. It returns io.EOF after the last record.
func (s *Server) readWindow(c *call, records plantfile.Reader, win *window) error {
	for !win.isFull() && win.grow(c, win.bytes) {
		record, err := records.Next()
		if err == io.EOF {
			return err
		}
		if err != nil {
			return fileError(err)
		}
		plant, err := record.Plant()
		switch {
		case errors.Is(err, plantstore.ErrTooLarge):
			fail(&win.refused, record.Line, plantstore.Errorf(plantstore.ErrTooLarge, "longer than the limit of %d bytes", s.MaxBody))
		case err != nil:
			fail(&win.refused, record.Line, err)
		default:
			win.add(plant, record.Line)
		}
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
