package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	// trialWindowBytes is that of a window of a dry run: two of them leave room for the largest
	// trial in the share of a token.
	trialWindowBytes = 4 << 20
	// windowStep is how much memory a window takes at a time.
	windowStep = 1 << 20
	// windowLines is the maximum number of records of a window.
	windowLines = 20_000
	// lineBytes is the approximate memory of a record in addition to its text: the
	// write and its result, in slices that grow.
	lineBytes = 224
	// conditionBytes is that of a condition.
	conditionBytes = 80
)

// window is a part of an import.
type window struct {
	writes  []plantstore.Write
	lines   []int                   // the line, or the element, that each write came from
	bytes   int64                   // memory of the writes
	taken   int64                   // from the lane of imports
	refused plantstore.ImportReport // of the records that are not plants
}

func (win *window) add(w plantstore.Write, line int) {
	win.writes = append(win.writes, w)
	win.lines = append(win.lines, line)
	win.bytes += int64(w.Plant.TextSize() + lineBytes)
	if w.If != nil {
		win.bytes += conditionBytes + int64(len(w.If.Match[0]))
	}
}

func (win *window) isFull(how *importing) bool {
	most := int64(windowBytes)
	if how.trial != nil {
		most = trialWindowBytes
	}
	return win.bytes >= most || len(win.writes) >= windowLines
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
	how, err := readImport(c)
	if err != nil {
		return err
	}
	// The response comes when all is durable, however long that takes.
	if err := http.NewResponseController(&c.w).SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	// The memory of the first window covers what is read before it.
	if err := c.lane(imports).acquire(c.r.Context(), c.caller.Hash, windowStep); err != nil {
		return err
	}
	records, err := plantfile.NewReader(&pacedReader{&c.w, c.r.Body, newPace(minImportRate, s.StreamTimeout)}, how.format, plantfile.Options{
		MaxRecord:     int(s.MaxBody),
		OnlyID:        how.op == plantstore.Delete,
		DelimiterHint: "; name another separator than comma, semicolon or tab in a line such as sep=| before the header",
		LinesHint:     "; for one plant per line, send " + wire.MediaNDJSON,
	})
	if err != nil {
		c.lane(imports).release(c.caller.Hash, windowStep)
		return fileError(err)
	}
	if how.dryRun {
		how.trial = newTrial(c)
		defer how.trial.release()
	}
	report, err := s.importRecords(c, records, how)
	if broken, ok := errors.AsType[brokenFile](err); ok {
		changed := ""
		if how.withMode {
			changed = fmt.Sprintf("%d replaced, %d deleted, ", report.Replaced, report.Deleted)
		}
		return plantstore.Errorf(broken.why.Code, "%v; before that, %d were created, %s%d unchanged and %d failed", broken, report.Created, changed, report.Unchanged, report.Failed)
	}
	if err != nil {
		return err
	}
	if how.dryRun {
		report.First = &how.trial.first
	}
	if err := http.NewResponseController(&c.w).SetWriteDeadline(time.Now().Add(s.StreamTimeout)); err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, append(wire.EncodeReport(report, how.withMode), '\n'))
}

// formats are the formats of imports and exports by their media types.
var formats = map[string]plantfile.Format{
	wire.MediaNDJSON: plantfile.NDJSON,
	wire.MediaJSON:   plantfile.JSON,
	wire.MediaCSV:    plantfile.CSV,
}

// importing is how an import handles its records.
type importing struct {
	format   plantfile.Format
	op       plantstore.Op
	by       string
	dryRun   bool
	withMode bool   // the report has everything that a mode can do
	trial    *trial // nil unless it is a dry run
}

// importOps are the operations of the modes.
var importOps = map[plantstore.ImportMode]plantstore.Op{
	plantstore.ImportCreate: plantstore.Create, plantstore.ImportReplace: plantstore.Replace, plantstore.ImportDelete: plantstore.Delete,
}

// readImport reads how to import. It reads the query strictly: a misspelt parameter must not write.
func readImport(c *call) (importing, error) {
	media, err := readMedia(c.r, wire.MediaNDJSON, wire.MediaJSON, wire.MediaCSV)
	if err != nil {
		return importing{}, err
	}
	how := importing{format: formats[media], op: plantstore.Create, by: c.caller.Public}
	params, err := readParams(c.r, func(name, value string, problems *plantstore.Problems) {
		switch name {
		case "dry_run":
			how.dryRun = readBool(name, value, problems)
		case "mode":
			op, ok := importOps[plantstore.ImportMode(value)]
			if how.op = op; !ok {
				problems.Add(plantstore.ErrParameter, `"mode" must be %s, got %q`, alternatives(plantstore.ImportModes()), plantstore.Shorten(value))
			}
		default:
			problems.Add(plantstore.ErrParameter, "unknown parameter %q; allowed: mode, dry_run", name)
		}
	})
	how.withMode = len(params) > 0
	return how, err
}

// write returns the write of a record.
func (how *importing) write(record plantfile.Record) (plantstore.Write, error) {
	plant, ifVersion, err := record.Plant(how.op == plantstore.Delete)
	w := plantstore.Write{Op: how.op, Plant: plant, By: how.by}
	switch {
	case err != nil || ifVersion == "":
		return w, err
	case how.op == plantstore.Create:
		return w, plantstore.Errorf(plantstore.ErrParameter, `"if_version" is for the modes replace and delete: a plant that is created has no version yet`)
	}
	w.If = &plantstore.Condition{Match: []plantstore.ETag{plantstore.ETag(`"` + ifVersion + `"`)}}
	return w, nil
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

// importRecords reads one window while the one before is written. It releases the memory that the
// caller has taken for the first.
func (s *Server) importRecords(c *call, records plantfile.Reader, how importing) (plantstore.ImportReport, error) {
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	windows := make(chan *window)
	written := make(chan struct{})
	var report plantstore.ImportReport
	var writeErr error
	go func() {
		defer close(written)
		for win := range windows {
			writeErr = s.writeWindow(ctx, win, how.trial, &report)
			c.lane(imports).release(c.caller.Hash, win.taken)
			if writeErr != nil {
				cancel(writeErr)
				return
			}
		}
	}()
	readErr := s.readWindows(ctx, c, records, &how, windows)
	close(windows)
	<-written
	return report, cmp.Or(writeErr, readErr, context.Cause(ctx))
}

// readWindows reads windows until the records end. A window that it sends belongs to
// the receiver, with the memory that it took. It likely has as many records as the one before.
func (s *Server) readWindows(ctx context.Context, c *call, records plantfile.Reader, how *importing, windows chan<- *window) error {
	for size := 0; ; {
		win := &window{taken: windowStep}
		win.grow(c, int64(size)*lineBytes)
		size = min(size, int(win.taken/lineBytes))
		win.writes, win.lines = make([]plantstore.Write, 0, size), make([]int, 0, size)
		err := s.readWindow(c, records, how, win)
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
		if err := c.lane(imports).acquire(ctx, c.caller.Hash, windowStep); err != nil {
			return cmp.Or(context.Cause(ctx), err)
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
		w := &win.writes[i]
		if result.Err == plantstore.ErrNoPlant && w.If == nil {
			result = plantstore.Result{Outcome: plantstore.Unchanged} // it need not be deleted
		} else if result.Err == plantstore.ErrNoPlant {
			result.Err = plantstore.ErrPrecondition
		}
		switch {
		case result.Err != nil:
			fail(&written, win.lines[i], withPlantID(w.Plant.ID, result.Err))
		case result.Outcome == plantstore.Created:
			written.Created++
		case result.Outcome == plantstore.Replaced:
			written.Replaced++
		case result.Outcome == plantstore.Deleted:
			written.Deleted++
		default:
			written.Unchanged++
		}
		if dry != nil && result.Err == nil {
			dry.first.Add(result.Outcome, int64(win.lines[i]))
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
func (s *Server) readWindow(c *call, records plantfile.Reader, how *importing, win *window) error {
	for !win.isFull(how) && win.grow(c, win.bytes) {
		record, err := records.Next()
		if err == io.EOF {
			return err
		}
		if err != nil {
			return fileError(err)
		}
		write, err := how.write(record)
		switch {
		case errors.Is(err, plantstore.ErrTooLarge):
			fail(&win.refused, record.Line, plantstore.Errorf(plantstore.ErrTooLarge, "longer than the limit of %d bytes", s.MaxBody))
		case err != nil:
			fail(&win.refused, record.Line, err)
		default:
			win.add(write, record.Line)
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
