package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/plantfile"
)

type importCommand struct {
	clientFlags
	File      string              `arg:"" placeholder:"FILE" help:"The file to read, or - for standard input."`
	Format    string              `enum:"ndjson,json,csv," default:"" placeholder:"FORMAT" help:"ndjson, json or csv (default: from the file name)."`
	Delimiter plantfile.Delimiter `placeholder:"CHAR" help:"What separates the columns of CSV: comma, semicolon, tab, or another character (default: from the header)."`
	Errors    string              `placeholder:"FILE" help:"Write the lines that failed to this file, each with its reason, ready to fix and import."`
	Force     bool                `help:"Replace the file of --errors if it exists."`
	JSON      bool                `name:"json" help:"Print the summary as JSON, on standard output."`
}

func (importCommand) Help() string {
	return `Creates the plants in a file: one JSON object per line (ndjson), a JSON array (json), or a header and one plant per line (csv, with the columns id, name and optionally tag). A line that fails does not stop the rest; the exit code is 1 if any failed.

CSV may come from a spreadsheet: commas, semicolons and tabs are recognised from the header, and a line sep=; before it, UTF-16 and a byte order mark are read. An id such as 1.23457E+15 is refused: the spreadsheet has lost its digits.

An interrupted import says how many lines the server has acknowledged, and of which lines it is not known whether their plants were created. It can be run again: plants that exist already stay as they are. It exits with 130.

The file of --errors has the format of the import. It is written only if a line fails, and an existing file is not replaced without --force. Each reason is in a member "error", or in CSV in a first column error, which import ignores. A line that is not a JSON object is kept in a member "source".

The summary of --json has the members created, unchanged, failed and reasons: how many of the failed lines are in the file of --errors. If it is not known whether some plants were created, unknown_from and unknown_to are the first and the last of their lines. ` + tokenHelp + `

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
	lines    []chunkLine
	rejected []failure // records that cannot be sent
	read     int64     // bytes of the file up to the end of the chunk
	err      error     // why no chunk follows; io.EOF at the end of the file
}

type chunkLine struct {
	start  int
	number int    // in the file
	source []byte // nil if the file has it as it is sent, or if there is no file of errors
}

// failure is a record that was not imported.
type failure struct {
	line    int
	message string
	source  []byte
}

func (c *importCommand) Run(ctx context.Context, std streams) error {
	format, err := pickFormat(c.File, c.Format)
	if err != nil {
		return err
	}
	if c.Delimiter != 0 && format != plantfile.CSV {
		return usage("--delimiter is for CSV: use --format csv, or a file name that ends in .csv")
	}
	if c.Errors == "-" {
		return usage("--errors needs a file, got -")
	}
	if c.Force && c.Errors == "" {
		return usage("--force needs --errors FILE: it replaces that file, and never plants")
	}
	api, err := c.client(std, fileTimeout)
	if err != nil {
		return err
	}
	in, info, err := openInput(ctx, c.File, std)
	if err != nil {
		return interruption(ctx, "the import of "+c.source(), err)
	}
	defer in.Close()
	counted := &countingReader{in: in}
	records, err := untilInterrupted(ctx, func() (plantfile.Reader, error) { return c.reader(counted, format) })
	if err != nil {
		return interruption(ctx, "the import of "+c.source(), fmt.Errorf("%s: %w", c.source(), err))
	}
	if ignored := records.Ignored(); len(ignored) > 0 {
		fmt.Fprintf(std.err, "plantstore: warning: unknown columns are ignored: %s\n", strings.Join(ignored, ", "))
	}
	failed := newFailureLog(format, records, std.err)
	if c.Errors != "" {
		if err := failed.open(c.Errors, info, c.Force); err != nil {
			return err
		}
	}
	run := &importRun{api: api, records: records, counted: counted, failed: failed}
	size := int64(-1)
	if c.File != "-" && info.Mode().IsRegular() {
		size = info.Size()
	}
	run.progress = newProgress(std.err, "acknowledged", failed.noun, size, true)
	err = run.all(ctx)
	run.progress.finish()
	if closeErr := failed.close(err == nil); !errors.Is(err, closeErr) { // that of a full disk is known
		err = errors.Join(err, closeErr)
	}
	failed.summarise()
	if c.JSON {
		err = errors.Join(err, run.report(std.out))
	} else {
		run.summarise(std.err, err == nil)
	}
	if err != nil {
		return run.stopped(ctx, c.source(), err)
	}
	if failed.count > 0 {
		return fmt.Errorf("%d of %s failed", failed.count, count(run.total(), failed.noun))
	}
	return nil
}

// pickFormat returns the format that was requested, or else that of the file name's
// extension.
func pickFormat(file, requested string) (plantfile.Format, error) {
	if requested != "" {
		return plantfile.Format(requested), nil
	}
	if format := plantfile.FormatOf(file); format != "" {
		return format, nil
	}
	if file == "-" {
		return plantfile.NDJSON, nil
	}
	return "", usage("%s: the format is not clear from the name: use --format ndjson, json or csv", file)
}

// maxRecord bounds the memory for one record of a file. It is far above what a server
// accepts.
const maxRecord = 16 << 20

// reader reads the beginning of the file.
func (c *importCommand) reader(in io.Reader, format plantfile.Format) (plantfile.Reader, error) {
	return plantfile.NewReader(in, format, plantfile.Options{
		MaxRecord:     maxRecord,
		Delimiter:     c.Delimiter,
		DelimiterHint: "; for another separator than comma, semicolon or tab, use --delimiter",
		LinesHint:     "; for one plant per line, use --format ndjson",
	})
}

// source is what messages call the input.
func (c *importCommand) source() string {
	if c.File == "-" {
		return "standard input"
	}
	return c.File
}

// openInput opens the file, or standard input. A pipe opens once someone writes to it. The
// FileInfo is nil if there is none.
func openInput(ctx context.Context, file string, std streams) (io.ReadCloser, os.FileInfo, error) {
	if file == "-" {
		var info os.FileInfo
		if f, ok := std.in.(*os.File); ok {
			info, _ = f.Stat() // a Read says what is wrong with it
		}
		return io.NopCloser(std.in), info, nil
	}
	f, err := untilInterrupted(ctx, func() (*os.File, error) { return os.Open(file) })
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	if info.IsDir() {
		f.Close()
		return nil, nil, fmt.Errorf("%s is a directory", file)
	}
	return f, info, nil
}

type importRun struct {
	api                *client.Client
	records            plantfile.Reader
	counted            *countingReader
	failed             *failureLog
	progress           *progress
	created, unchanged int64

	// unconfirmed is the chunk of which it is not known what was created, and sendErr why
	// the last request failed.
	unconfirmed *chunk
	sendErr     error
}

func (r *importRun) total() int64 { return r.created + r.unchanged + r.failed.count }

// all sends the file, one chunk while it reads the next. A Read that blocks may outlast
// an error.
func (r *importRun) all(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	chunks := make(chan *chunk)
	go func() {
		for more := true; more; {
			ch := r.readChunk()
			more = ch.err == nil
			select {
			case chunks <- ch:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ch := <-chunks:
			if err := r.send(ctx, ch); err != nil {
				return err
			}
			if ch.err == io.EOF {
				return nil
			}
			if ch.err != nil {
				return ch.err
			}
		}
	}
}

func (r *importRun) readChunk() *chunk {
	ch := &chunk{}
	for len(ch.lines)+len(ch.rejected) < chunkRecords && len(ch.body) < chunkBytes {
		var rec plantfile.Record
		if rec, ch.err = r.records.Next(); ch.err != nil {
			break
		}
		if rec.Problem != nil {
			ch.rejected = append(ch.rejected, failure{rec.Line, rec.Problem.Error(), bytes.Clone(rec.Source)})
			continue
		}
		line := chunkLine{start: len(ch.body), number: rec.Line}
		if r.failed.file != nil {
			line.source = bytes.Clone(rec.Source)
		}
		ch.lines = append(ch.lines, line)
		ch.body = append(append(ch.body, rec.JSON...), '\n')
	}
	ch.read = r.counted.n
	return ch
}

func (r *importRun) send(ctx context.Context, ch *chunk) error {
	var report plantstore.ImportReport
	if len(ch.lines) > 0 {
		var err error
		r.unconfirmed = ch
		report, err = r.sendLines(ctx, ch, 0, len(ch.lines))
		if err == nil || r.refused() {
			r.unconfirmed = nil
		}
		if err != nil {
			return err
		}
	}
	r.created += report.Created
	r.unchanged += report.Unchanged
	r.failed.count += report.Failed + int64(len(ch.rejected))
	r.progress.update(ch.read, r.total())
	failed, err := r.reasons(ctx, ch, 0, len(ch.lines), report)
	failed = append(failed, ch.rejected...)
	slices.SortFunc(failed, func(a, b failure) int { return cmp.Compare(a.line, b.line) })
	for _, f := range failed {
		if err := r.failed.add(f); err != nil {
			return err
		}
	}
	return err
}

func (r *importRun) sendLines(ctx context.Context, ch *chunk, first, last int) (plantstore.ImportReport, error) {
	report, err := r.api.ImportLines(ctx, bytes.NewReader(ch.text(first, last)))
	r.sendErr = err
	return report, err
}

// reasons returns the lines from first up to last that failed, by the report on them. A
// server reports only the first of them; if there are more and all are wanted, each
// half is sent again, which is safe.
func (r *importRun) reasons(ctx context.Context, ch *chunk, first, last int, report plantstore.ImportReport) ([]failure, error) {
	var failed []failure
	if r.failed.file != nil && report.Failed > int64(len(report.Errors)) {
		middle := (first + last) / 2
		if middle == first {
			return []failure{{ch.lines[first].number, "the server gave no reason", ch.source(first)}}, nil
		}
		for _, half := range [][2]int{{first, middle}, {middle, last}} {
			report, err := r.sendLines(ctx, ch, half[0], half[1])
			if err != nil {
				return failed, err
			}
			more, err := r.reasons(ctx, ch, half[0], half[1], report)
			failed = append(failed, more...)
			if err != nil {
				return failed, err
			}
		}
		return failed, nil
	}
	for _, e := range report.Errors {
		at := first + int(e.Line) - 1
		if at < first || at >= last {
			return failed, fmt.Errorf("the server reports line %d of %d", e.Line, last-first)
		}
		failed = append(failed, failure{ch.lines[at].number, e.Err.Message, ch.source(at)})
	}
	return failed, nil
}

// text returns the lines from first up to last, as they are sent.
func (ch *chunk) text(first, last int) []byte {
	end := len(ch.body)
	if last < len(ch.lines) {
		end = ch.lines[last].start
	}
	return ch.body[ch.lines[first].start:end]
}

// source returns the record as it is in the file.
func (ch *chunk) source(at int) []byte {
	if source := ch.lines[at].source; source != nil {
		return source
	}
	return bytes.TrimSuffix(ch.text(at, at+1), []byte{'\n'})
}

// span returns the numbers of the first and the last line.
func (ch *chunk) span() (from, to int64) {
	return int64(ch.lines[0].number), int64(ch.lines[len(ch.lines)-1].number)
}

// summarise prints what the server has acknowledged.
func (r *importRun) summarise(out io.Writer, complete bool) {
	lead := ""
	switch {
	case complete:
	case r.total() == 0:
		fmt.Fprintf(out, "no %s was acknowledged\n", r.failed.noun)
		return
	default:
		lead = count(r.total(), r.failed.noun) + " acknowledged: "
	}
	fmt.Fprintf(out, "%s%d created, %d unchanged, %d failed, %s\n", lead, r.created, r.unchanged, r.failed.count, r.progress.pace(r.total()))
}

// report prints what the server has acknowledged, as JSON.
func (r *importRun) report(out io.Writer) error {
	known := map[string]int64{
		"created":   r.created,
		"unchanged": r.unchanged,
		"failed":    r.failed.count,
		"reasons":   r.failed.written,
	}
	if ch := r.unconfirmed; ch != nil {
		known["unknown_from"], known["unknown_to"] = ch.span()
	}
	return json.NewEncoder(out).Encode(known)
}

// refused reports whether the server refused the last request. It has then imported none of
// its lines, except in an earlier attempt that was lost.
func (r *importRun) refused() bool {
	refusal, ok := errors.AsType[*plantstore.Error](r.sendErr)
	if !ok {
		return false
	}
	// A request that is too slow is refused when some of its lines may have been
	// imported.
	status := int(refusal.Code) / 100
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout
}

// stopped says why the import of the source is not complete, and what is not known.
func (r *importRun) stopped(ctx context.Context, source string, err error) error {
	what := "the import of " + source
	switch {
	case r.refused():
		return fmt.Errorf("%s was refused: %w", what, err)
	case r.sendErr == nil && ctx.Err() == nil:
		return fmt.Errorf("%s stopped: %w", what, err)
	}
	message := what + " was interrupted"
	if ch := r.unconfirmed; ch != nil {
		from, to := ch.span()
		message += fmt.Sprintf(" while %ss %d to %d were being sent: any of them may have been created", r.failed.noun, from, to)
	}
	message += "; run it again, plants that exist already stay as they are"
	if ctx.Err() != nil {
		return interrupted(message)
	}
	return fmt.Errorf("%s: %w", message, err)
}

// failureLog prints the first ten failures and writes all of them to a file, in the format
// of the import and with their reasons.
type failureLog struct {
	records  plantfile.Reader
	noun     string // what a record of the format is called
	show     io.Writer
	shown    int64
	written  int64
	count    int64            // of all failures, those without a reason too
	file     *os.File         // nil if none is wanted
	isNew    bool             // file did not exist
	isDevice bool             // file cannot be emptied
	out      plantfile.Writer // to file
}

func newFailureLog(format plantfile.Format, records plantfile.Reader, show io.Writer) *failureLog {
	return &failureLog{records: records, noun: format.Noun(), show: show}
}

// open opens the file, which must not be the input. What an existing file has is kept
// until there is something to put in its place.
func (l *failureLog) open(name string, input os.FileInfo, force bool) error {
	info, err := os.Stat(name)
	l.isNew = err != nil
	l.isDevice = err == nil && !info.Mode().IsRegular()
	switch {
	case l.isNew || l.isDevice:
	case os.SameFile(info, input):
		return usage("--errors %s is the file being imported: use another", name)
	case info.Size() > 0 && !force:
		return usage("%s exists already: use --force to replace it", name)
	}
	l.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	l.out = plantfile.Writer{Layout: l.records.Failures(), Out: bufio.NewWriter(l.file)}
	return err
}

func (l *failureLog) empty() error {
	if l.isDevice {
		return nil
	}
	return l.file.Truncate(0)
}

func (l *failureLog) add(f failure) error {
	reason := fmt.Sprintf("%s %d: %s", l.noun, f.line, f.message)
	if l.shown < 10 {
		l.shown++
		fmt.Fprintln(l.show, reason)
	}
	if l.file == nil {
		return nil
	}
	if l.written == 0 {
		if err := l.empty(); err != nil {
			return err
		}
	}
	l.out.Write(l.records.WithReason(f.source, reason)) // Flush returns the error
	if err := l.out.Out.Flush(); err != nil {
		return err
	}
	l.written++
	return nil
}

// summarise says where the failures are that were not shown.
func (l *failureLog) summarise() {
	if l.file == nil {
		if more := l.count - l.shown; more > 0 {
			fmt.Fprintf(l.show, "%d more failed: use --errors FILE to get all of them, with their reasons\n", more)
		}
		return
	}
	if more := l.written - l.shown; more > 0 {
		fmt.Fprintf(l.show, "%d more failed: see %s\n", more, l.file.Name())
	}
	// The import stopped before it had asked for every reason.
	if unknown := l.count - l.written; unknown > 0 {
		fmt.Fprintf(l.show, "%d more failed, but the reasons are not known: run the import again to get them\n", unknown)
	}
}

// close ends the file. If nothing was written to it, a new one is removed, and an old
// one emptied if the import is complete.
func (l *failureLog) close(complete bool) error {
	if l.file == nil {
		return nil
	}
	var err error
	switch {
	case l.written > 0:
		err = l.out.Close()
	case complete:
		err = l.empty()
	}
	err = errors.Join(err, l.file.Close())
	if l.written == 0 && l.isNew {
		err = errors.Join(err, os.Remove(l.file.Name()))
	}
	return err
}

// countingReader counts the bytes read.
type countingReader struct {
	in io.Reader
	n  int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.in.Read(b)
	c.n += int64(n)
	return n, err
}
