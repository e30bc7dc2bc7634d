package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// An import is read in windows. The lines of a window are sorted by id, so that the
// store touches each page once, and written while the next window is read.
const (
	windowPlants = 200_000
	windowBytes  = 16 << 20
	// orderedWindow is enough for lines that are in order of id already.
	orderedWindow = 20_000
)

// window is a part of an import.
type window struct {
	writes    []plantstore.Write
	lines     []int // the line that each write came from
	bytes     int
	unordered bool // by id
	failed    []plantstore.LineError
}

func (win *window) add(p plantstore.Plant, line, bytes int) {
	if n := len(win.writes); n > 0 && win.writes[n-1].Plant.ID > p.ID {
		win.unordered = true
	}
	win.writes = append(win.writes, plantstore.Write{Op: plantstore.Create, Plant: p})
	win.lines = append(win.lines, line)
	win.bytes += bytes
}

func (win *window) isFull() bool {
	if !win.unordered && len(win.writes) >= orderedWindow {
		return true
	}
	return len(win.writes)+len(win.failed) >= windowPlants || win.bytes >= windowBytes
}

func (win *window) fail(line int, err error) {
	_, e := statusOf(err)
	win.failed = append(win.failed, plantstore.LineError{Line: int64(line), Err: e})
}

func (s *Server) importPlants(w http.ResponseWriter, r *http.Request) error {
	if err := checkMedia(r, wire.MediaNDJSON); err != nil {
		return err
	}
	// The response comes when all is durable, however long that takes.
	if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	lines := wire.NewLineReader(&pacedReader{w, r.Body, newPace(minImportRate, s.streamTimeout)}, int(s.maxBody))
	report, err := s.importLines(r.Context(), lines)
	if err != nil {
		return err
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.streamTimeout)); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, append(wire.EncodeReport(report), '\n'))
}

// importLines reads one window while the one before is written.
func (s *Server) importLines(ctx context.Context, lines *wire.LineReader) (plantstore.ImportReport, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	windows := make(chan *window)
	written := make(chan struct{})
	var report plantstore.ImportReport
	go func() {
		defer close(written)
		for win := range windows {
			if err := s.writeWindow(ctx, win, &report); err != nil {
				cancel(err)
				return
			}
		}
	}()
	readErr := s.readWindows(ctx, lines, windows)
	close(windows)
	<-written
	if readErr != nil {
		return report, readErr
	}
	return report, context.Cause(ctx)
}

// readWindows reads windows until the lines end.
func (s *Server) readWindows(ctx context.Context, lines *wire.LineReader, windows chan<- *window) error {
	for {
		win, err := s.readWindow(lines)
		if err != nil && err != io.EOF {
			return err
		}
		select {
		case windows <- win:
		case <-ctx.Done():
			return nil
		}
		if err == io.EOF {
			return nil
		}
	}
}

func (s *Server) writeWindow(ctx context.Context, win *window, report *plantstore.ImportReport) error {
	win.sort()
	results, err := s.writer.WriteAll(ctx, win.writes)
	if err != nil {
		return err
	}
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
	slices.SortFunc(win.failed, func(a, b plantstore.LineError) int { return cmp.Compare(a.Line, b.Line) })
	report.Failed += int64(len(win.failed))
	room := min(len(win.failed), plantstore.MaxLineErrors-len(report.Errors))
	report.Errors = append(report.Errors, win.failed[:room]...)
	return nil
}

// sort orders the window by id. Lines with the same id keep their order.
func (win *window) sort() {
	if !win.unordered {
		return
	}
	type key struct {
		id plantstore.ID
		at int
	}
	keys := make([]key, len(win.writes))
	for i := range win.writes {
		keys[i] = key{win.writes[i].Plant.ID, i}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.at, b.at))
	})
	writes, lines := make([]plantstore.Write, len(keys)), make([]int, len(keys))
	for i, k := range keys {
		writes[i], lines[i] = win.writes[k.at], win.lines[k.at]
	}
	win.writes, win.lines = writes, lines
}

// readWindow reads the next window. It returns io.EOF with the last one.
func (s *Server) readWindow(lines *wire.LineReader) (*window, error) {
	win := &window{}
	for !win.isFull() {
		line, err := lines.Next()
		switch {
		case errors.Is(err, wire.ErrLineTooLong):
			win.fail(lines.Line(), plantstore.Errorf(plantstore.ErrTooLarge, "the line is longer than the limit of %d bytes", s.maxBody))
			continue
		case err == io.EOF:
			return win, err
		case err != nil:
			return nil, bodyError(err)
		}
		size := line.Len()
		plant, err := wire.DecodeNewPlant(line)
		if err != nil {
			win.fail(lines.Line(), err)
			continue
		}
		win.add(plant, lines.Line(), size)
	}
	return win, nil
}

// bodyError says why a body could not be read.
func bodyError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return plantstore.Errorf(plantstore.ErrTimeout, "the body did not arrive in time: send it faster")
	}
	return plantstore.Errorf(plantstore.ErrNotJSON, "the body could not be read: %v", err)
}
