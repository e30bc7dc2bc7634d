package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"plantstore"
	"plantstore/client"
)

type importCommand struct {
	clientFlags
	File   string `arg:"" placeholder:"FILE" help:"The file to read, or - for standard input."`
	Format string `enum:"ndjson,json,csv," default:"" placeholder:"FORMAT" help:"ndjson, json or csv (default: from the file name)."`
	Errors string `placeholder:"FILE" help:"Write the lines that failed to this file, ready to fix and import."`
}

// Help is the long part of the help page.
func (importCommand) Help() string {
	return `Creates the plants in a file: one JSON object per line (ndjson), a JSON array (json), or a header and one plant per line (csv, with the columns id, name and optionally tag). A line that fails does not stop the rest; the exit code is 1 if any failed.

An interrupted import can be run again: plants that exist already stay as they are. ` + tokenHelp + `

Examples:
  plantstore import plants.csv
  plantstore import --format ndjson --errors failed.ndjson - < plants`
}

// A chunk of a file is sent as one request, which can be retried.
const (
	chunkRecords = 200_000
	chunkBytes   = 16 << 20
)

// chunk is a part of a file: its records as NDJSON, and where they come from.
type chunk struct {
	body     []byte
	starts   []int // of the lines in body
	lines    []int // of the file
	sources  [][]byte
	rejected []failure // records that cannot be sent
	read     int64     // bytes of the file up to the end of the chunk
}

// failure is a record that was not imported.
type failure struct {
	line    int
	message string
	source  []byte
}

// Run imports the file.
func (c *importCommand) Run(ctx context.Context, std streams) error {
	format, err := pickFormat(c.File, c.Format)
	if err != nil {
		return err
	}
	api, err := c.client(std, fileTimeout)
	if err != nil {
		return err
	}
	in, size, err := openInput(c.File, std)
	if err != nil {
		return err
	}
	defer in.Close()
	counted := &countingReader{in: in}
	records, err := newRecordReader(format, counted)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	failed, err := newFailureLog(c.Errors, c.File, format, records.header(), std.err)
	if err != nil {
		return err
	}
	run := &importRun{api: api, records: records, counted: counted, failed: failed, started: time.Now()}
	run.progress = newProgress(std.err, "imported", size)
	err = run.all(ctx)
	run.progress.finish()
	err = errors.Join(err, failed.close())
	run.summarise(std.err)
	if err != nil {
		return fmt.Errorf("the import of %s was interrupted; run it again, plants that exist already stay as they are: %w", c.File, err)
	}
	if failed.count > 0 {
		return fmt.Errorf("%d of %d lines failed", failed.count, run.total())
	}
	return nil
}

func openInput(file string, std streams) (io.ReadCloser, int64, error) {
	if file == "-" {
		return io.NopCloser(std.in), -1, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	if info.IsDir() {
		f.Close()
		return nil, 0, fmt.Errorf("%s is a directory", file)
	}
	if !info.Mode().IsRegular() {
		return f, -1, nil
	}
	return f, info.Size(), nil
}

// importRun is an import in progress.
type importRun struct {
	api                *client.Client
	records            recordReader
	counted            *countingReader
	failed             *failureLog
	progress           *progress
	started            time.Time
	created, unchanged int64
}

func (r *importRun) total() int64 { return r.created + r.unchanged + int64(r.failed.count) }

// all sends the file, one chunk while it reads the next.
func (r *importRun) all(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	chunks := make(chan *chunk)
	readErr := make(chan error, 1)
	go func() {
		defer close(chunks)
		readErr <- r.readChunks(ctx, chunks)
	}()
	var err error
	for ch := range chunks {
		if err = r.send(ctx, ch); err != nil {
			break
		}
	}
	cancel()
	return errors.Join(err, <-readErr)
}

func (r *importRun) readChunks(ctx context.Context, chunks chan<- *chunk) error {
	for {
		ch, err := r.readChunk()
		select {
		case chunks <- ch:
		case <-ctx.Done():
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

// readChunk reads the next chunk. It holds what came before an error too.
func (r *importRun) readChunk() (*chunk, error) {
	ch := &chunk{}
	var err error
	for len(ch.lines)+len(ch.rejected) < chunkRecords && len(ch.body) < chunkBytes {
		var rec record
		if rec, err = r.records.next(); err != nil {
			break
		}
		if rec.problem != "" {
			ch.rejected = append(ch.rejected, failure{rec.line, rec.problem, bytes.Clone(rec.source)})
			continue
		}
		ch.starts = append(ch.starts, len(ch.body))
		ch.lines = append(ch.lines, rec.line)
		if r.failed.keepsSource {
			ch.sources = append(ch.sources, bytes.Clone(rec.source))
		}
		ch.body = append(append(ch.body, rec.json...), '\n')
	}
	ch.read = r.counted.n.Load()
	return ch, err
}

func (r *importRun) send(ctx context.Context, ch *chunk) error {
	failed, unnamed := ch.rejected, 0
	if len(ch.lines) > 0 {
		report, named, err := r.sendLines(ctx, ch, 0, len(ch.lines))
		if err != nil {
			return err
		}
		r.created += report.Created
		r.unchanged += report.Unchanged
		failed = append(failed, named...)
		unnamed = int(report.Failed) - len(named)
	}
	slices.SortFunc(failed, func(a, b failure) int { return cmp.Compare(a.line, b.line) })
	for _, f := range failed {
		if err := r.failed.add(f); err != nil {
			return err
		}
	}
	r.failed.count += unnamed
	r.progress.update(ch.read, r.total())
	return nil
}

// sendLines sends the lines from first up to last and returns those that failed. A
// server reports only the first of them; if there are more and all are wanted, each
// half is sent again, which is safe.
func (r *importRun) sendLines(ctx context.Context, ch *chunk, first, last int) (plantstore.ImportReport, []failure, error) {
	end := len(ch.body)
	if last < len(ch.starts) {
		end = ch.starts[last]
	}
	report, err := r.api.ImportLines(ctx, bytes.NewReader(ch.body[ch.starts[first]:end]))
	if err != nil {
		return report, nil, err
	}
	if r.failed.file != nil && report.Failed > int64(len(report.Errors)) {
		middle := (first + last) / 2
		_, left, err := r.sendLines(ctx, ch, first, middle)
		if err != nil {
			return report, nil, err
		}
		_, right, err := r.sendLines(ctx, ch, middle, last)
		return report, append(left, right...), err
	}
	var failed []failure
	for _, e := range report.Errors {
		at := first + int(e.Line) - 1
		if at < first || at >= last {
			return report, nil, fmt.Errorf("the server reports line %d of %d", e.Line, last-first)
		}
		failed = append(failed, failure{ch.lines[at], e.Err.Message, ch.source(at)})
	}
	return report, failed, nil
}

// source returns the record as it is in the file.
func (ch *chunk) source(at int) []byte {
	if ch.sources != nil {
		return ch.sources[at]
	}
	end := len(ch.body)
	if at+1 < len(ch.starts) {
		end = ch.starts[at+1]
	}
	return ch.body[ch.starts[at] : end-1]
}

func (r *importRun) summarise(out io.Writer) {
	took := time.Since(r.started)
	fmt.Fprintf(out, "%d created, %d unchanged, %d failed, in %s (%.0f a second)\n",
		r.created, r.unchanged, r.failed.count, took.Round(time.Millisecond), float64(r.total())/took.Seconds())
}

// maxShown is how many failures are printed.
const maxShown = 10

// failureLog prints the first failures and writes all of them to a file, in the format
// of the import.
type failureLog struct {
	file        *os.File // nil if none is wanted
	format      string
	show        io.Writer
	count       int
	written     int
	keepsSource bool
}

func newFailureLog(name, input, format string, header []byte, show io.Writer) (*failureLog, error) {
	log := &failureLog{format: format, show: show}
	if name == "" {
		return log, nil
	}
	log.keepsSource = format == formatCSV
	if theirs, err := os.Stat(input); err == nil {
		if ours, err := os.Stat(name); err == nil && os.SameFile(ours, theirs) {
			return nil, usage("--errors %s is the file being imported: use another", name)
		}
	}
	var err error
	if log.file, err = os.Create(name); err != nil {
		return nil, err
	}
	if header != nil {
		_, err = fmt.Fprintf(log.file, "%s\n", header)
	}
	return log, err
}

func (l *failureLog) add(f failure) error {
	l.count++
	switch {
	case l.count <= maxShown:
		fmt.Fprintf(l.show, "line %d: %s\n", f.line, f.message)
	case l.count == maxShown+1 && l.file == nil:
		fmt.Fprintln(l.show, "There are more: use --errors FILE to get them all.")
	}
	if l.file == nil || f.source == nil {
		return nil
	}
	lead, end := "", "\n"
	if l.format == formatJSON {
		lead, end = ",\n", ""
		if l.written == 0 {
			lead = "[\n"
		}
	}
	l.written++
	_, err := fmt.Fprintf(l.file, "%s%s%s", lead, f.source, end)
	return err
}

func (l *failureLog) close() error {
	if l.file == nil {
		return nil
	}
	if l.format == formatJSON {
		end := "\n]\n"
		if l.written == 0 {
			end = "[]\n"
		}
		if _, err := io.WriteString(l.file, end); err != nil {
			return errors.Join(err, l.file.Close())
		}
	}
	return l.file.Close()
}

// countingReader counts the bytes read.
type countingReader struct {
	in io.Reader
	n  atomic.Int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.in.Read(b)
	c.n.Add(int64(n))
	return n, err
}
