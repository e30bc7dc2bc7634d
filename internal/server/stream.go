package server

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"plantstore"
)

const mediaNDJSON = "application/x-ndjson"

// exportPlants answers with every plant that matches, a line each, from one
// snapshot. What breaks it off half-way breaks off the connection too, so that
// nobody takes a part for the whole.
func (s *Server) exportPlants(w http.ResponseWriter, r *http.Request, query plantstore.Query, params url.Values) error {
	if !r.ProtoAtLeast(1, 1) {
		// There the end of an answer cannot be told from a break.
		return refuse(plantstore.ErrParameter, "an export needs HTTP/1.1, the request came over %s", r.Proto)
	}
	if params.Has("limit") {
		return refuse(plantstore.ErrParameter, `"limit" does not go with %s, which is every plant`, mediaNDJSON)
	}
	out := bufio.NewWriterSize(&pacedWriter{w: w, timeout: s.streamTimeout}, 64<<10)
	started := false
	var line []byte
	for plant, err := range s.store.Scan(r.Context(), query) {
		if err != nil && !started {
			return err
		}
		if err != nil {
			s.log.Warn("an export broke off", "err", err)
			panic(http.ErrAbortHandler)
		}
		if !started {
			w.Header().Set("Content-Type", mediaNDJSON)
			started = true
		}
		line = append(appendNewPlant(line[:0], plant), '\n')
		if _, err := out.Write(line); err != nil {
			panic(http.ErrAbortHandler) // the caller is gone, or too slow
		}
	}
	w.Header().Set("Content-Type", mediaNDJSON)
	if err := out.Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// pacedWriter gives every write its own time, so that an answer may take as long
// as it likes while its reader keeps reading.
type pacedWriter struct {
	w       http.ResponseWriter
	timeout time.Duration
}

func (p *pacedWriter) Write(b []byte) (int, error) {
	if err := http.NewResponseController(p.w).SetWriteDeadline(time.Now().Add(p.timeout)); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}

// pacedReader does the same for a body.
type pacedReader struct {
	w       http.ResponseWriter
	body    io.Reader
	timeout time.Duration
}

func (p *pacedReader) Read(b []byte) (int, error) {
	if err := http.NewResponseController(p.w).SetReadDeadline(time.Now().Add(p.timeout)); err != nil {
		return 0, err
	}
	return p.body.Read(b)
}

// An import is read in windows: as many lines as fit these bounds are sorted by
// id, which spares the store from touching the same page again and again, and
// written while the next window is read.
const (
	windowPlants = 200_000
	windowBytes  = 16 << 20
	// orderedWindow is enough for lines that come in order of id anyway.
	orderedWindow = 20_000
	// mostErrors is how many failed lines an import tells of one by one.
	mostErrors = 100
)

// lineError is what is wrong with one line of an import.
type lineError struct {
	line int
	err  error
}

// window is a part of an import.
type window struct {
	writes    []plantstore.Write
	lines     []int // the line that each write came from
	bytes     int
	unordered bool // by id
	failed    []lineError
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

// importReport is the answer to an import.
type importReport struct {
	created, unchanged, failed int
	errors                     []lineError
}

func (s *Server) importPlants(w http.ResponseWriter, r *http.Request) error {
	if err := checkMedia(r, mediaNDJSON); err != nil {
		return err
	}
	// The answer comes when all is durable, however long that takes.
	if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	lines := newLineReader(&pacedReader{w, r.Body, s.streamTimeout}, int(s.maxBody))
	report, err := s.importLines(r.Context(), lines)
	if err != nil {
		return err
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.streamTimeout)); err != nil {
		return err
	}
	return writeReport(w, report)
}

// importLines reads windows and writes them, both at the same time.
func (s *Server) importLines(ctx context.Context, lines *lineReader) (importReport, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	windows := make(chan *window)
	written := make(chan struct{})
	var report importReport
	go func() {
		defer close(written)
		for win := range windows {
			if err := s.writeWindow(ctx, win, &report); err != nil {
				cancel(err)
				return
			}
		}
	}()
	readErr := readWindows(ctx, lines, windows)
	close(windows)
	<-written
	if readErr != nil {
		return report, readErr
	}
	return report, context.Cause(ctx)
}

// readWindows reads windows until the lines end.
func readWindows(ctx context.Context, lines *lineReader, windows chan<- *window) error {
	for {
		win, err := lines.window()
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

func (s *Server) writeWindow(ctx context.Context, win *window, report *importReport) error {
	win.sort()
	results, err := s.writer.WriteAll(ctx, win.writes)
	if err != nil {
		return err
	}
	for i, result := range results {
		switch {
		case result.Err != nil:
			win.failed = append(win.failed, lineError{win.lines[i], aboutPlant(win.writes[i].Plant.ID, result.Err)})
		case result.Outcome == plantstore.Created:
			report.created++
		default:
			report.unchanged++
		}
	}
	slices.SortFunc(win.failed, func(a, b lineError) int { return cmp.Compare(a.line, b.line) })
	report.failed += len(win.failed)
	room := min(len(win.failed), mostErrors-len(report.errors))
	report.errors = append(report.errors, win.failed[:room]...)
	return nil
}

// sort orders the window by id, and lines with the same id as they came.
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

// lineReader reads plants, one a line.
type lineReader struct {
	in   *bufio.Reader
	most int // bytes of a line
	line int // that was read last
	body bytes.Buffer
}

func newLineReader(in io.Reader, most int) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(in, 256<<10), most: most}
}

// window reads the next window. It returns io.EOF with the last one.
func (l *lineReader) window() (*window, error) {
	win := &window{}
	for !win.isFull() {
		err := l.next()
		tooLong := errors.Is(err, bufio.ErrTooLong)
		if err != nil && err != io.EOF && !tooLong {
			return nil, bodyError(err)
		}
		switch length := l.body.Len(); {
		case tooLong:
			win.failed = append(win.failed, lineError{l.line, refuse(plantstore.ErrTooLarge,
				"the line is longer than the %d bytes that are allowed", l.most)})
		case len(bytes.Trim(l.body.Bytes(), " \t\r")) > 0: // what JSON takes for space
			plant, bad := decodePlant(&l.body, newPlantFields)
			if bad != nil {
				win.failed = append(win.failed, lineError{l.line, bad})
				break
			}
			win.add(plant, l.line, length)
		}
		if err == io.EOF {
			return win, io.EOF
		}
	}
	return win, nil
}

// next reads a line into the body, without its line feed. It returns io.EOF with
// the last line, which needs none, and bufio.ErrTooLong for a line that it passed
// over.
func (l *lineReader) next() error {
	l.body.Reset()
	l.line++
	for {
		part, err := l.in.ReadSlice('\n')
		if err == nil {
			part = part[:len(part)-1] // the line feed
		}
		if l.body.Len()+len(part) > l.most {
			return l.passOver(err)
		}
		l.body.Write(part)
		if err != bufio.ErrBufferFull {
			return err
		}
	}
}

// passOver reads to the end of the line. An end of the body there comes again at
// the next call.
func (l *lineReader) passOver(err error) error {
	l.body.Reset()
	for err == bufio.ErrBufferFull {
		_, err = l.in.ReadSlice('\n')
	}
	if err != nil && err != io.EOF {
		return err
	}
	return bufio.ErrTooLong
}

// bodyError says why a body could not be read.
func bodyError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refuse(plantstore.ErrTimeout, "the body did not arrive in time: send it faster")
	}
	return refuse(plantstore.ErrNotJSON, "the body could not be read: %v", err)
}

// writeReport answers an import.
func writeReport(w http.ResponseWriter, report importReport) error {
	b := strconv.AppendInt([]byte(`{"created":`), int64(report.created), 10)
	b = strconv.AppendInt(append(b, `,"unchanged":`...), int64(report.unchanged), 10)
	b = strconv.AppendInt(append(b, `,"failed":`...), int64(report.failed), 10)
	b = append(b, `,"errors":[`...)
	for i, failure := range report.errors {
		if i > 0 {
			b = append(b, ',')
		}
		_, e := statusOf(failure.err)
		b = strconv.AppendInt(append(b, `{"line":`...), int64(failure.line), 10)
		b = append(appendError(append(b, ','), e), '}')
	}
	return writeJSON(w, http.StatusOK, append(b, "]}\n"...))
}
