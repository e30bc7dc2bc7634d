// Package upload sends a file of plants to a server, in chunks that can be sent again, and keeps
// account of what the server has acknowledged.
package upload

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/plantfile"
)

// Upload is a file on its way to a server. The functions must be set before Run, and what is
// acknowledged may be read after it.
type Upload struct {
	// Records are those of the file.
	Records plantfile.Reader
	// Failed is called for every record that failed and whose reason is known, in the order of
	// the file.
	Failed func(Failure) error
	// Progress is called with how many bytes of the file have been sent, and how many records
	// have been acknowledged.
	Progress func(bytes, records int64)
	// WithSources says that every reason is wanted, and the record as it is in the file. A
	// server reports only the first reasons, so some lines may be sent again.
	WithSources bool
	// Mode is what is done with the records. Empty means that they are created.
	Mode plantstore.ImportMode

	// The numbers of records that the server has acknowledged.
	Created, Replaced, Deleted, Unchanged, Refused int64

	api     *client.Client
	counted *countingReader
	// unconfirmed is the chunk whose outcome is not known, and sendErr why
	// the last request failed.
	unconfirmed *chunk
	sendErr     error
}

// Failure is a record that was not imported. Its source is nil if it was too long to keep.
type Failure struct {
	Line   int
	Reason string
	Source []byte
}

// New reads the beginning of a file.
func New(api *client.Client, in io.Reader, format plantfile.Format, opts plantfile.Options) (*Upload, error) {
	counted := &countingReader{in: in}
	records, err := plantfile.NewReader(counted, format, opts)
	if err != nil {
		return nil, err
	}
	return &Upload{
		Records:  records,
		Failed:   func(Failure) error { return nil },
		Progress: func(int64, int64) {},
		api:      api,
		counted:  counted,
	}, nil
}

// A chunk of a file is sent as one request, which can be retried.
const (
	chunkRecords = 200_000
	chunkBytes   = 16 << 20
)

// chunkRecords is how many records a chunk has. Lines that replace or delete a version cannot be
// sent again to ask for reasons, so a chunk has no more than a server gives reasons for.
func (u *Upload) chunkRecords() int {
	if u.WithSources && u.Mode != "" && u.Mode != plantstore.ImportCreate {
		return plantstore.MaxLineErrors
	}
	return chunkRecords
}

// chunk is a part of a file: its records as NDJSON, and where they come from.
type chunk struct {
	body     []byte
	lines    []chunkLine
	rejected []Failure // records that cannot be sent
	read     int64     // bytes of the file up to the end of the chunk
	err      error     // why no chunk follows; io.EOF at the end of the file
}

type chunkLine struct {
	start  int
	number int    // in the file
	source []byte // nil if it is sent as it is in the file, or if there is no file of errors
}

// Total is how many records the server has acknowledged.
func (u *Upload) Total() int64 {
	return u.Created + u.Replaced + u.Deleted + u.Unchanged + u.Refused
}

// Unknown returns the first and the last line of which it is not known whether their plants were
// created, if there are any.
func (u *Upload) Unknown() (from, to int, ok bool) {
	if u.unconfirmed == nil {
		return 0, 0, false
	}
	lines := u.unconfirmed.lines
	return lines[0].number, lines[len(lines)-1].number, true
}

// SendErr is why the last request failed, or nil.
func (u *Upload) SendErr() error { return u.sendErr }

// Run sends the file, one chunk while it reads the next. A Read that blocks may outlast
// an error.
func (u *Upload) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	chunks := make(chan *chunk)
	go func() {
		for more := true; more; {
			ch := u.readChunk()
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
			if err := u.send(ctx, ch); err != nil {
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

func (u *Upload) readChunk() *chunk {
	ch := &chunk{}
	for len(ch.lines)+len(ch.rejected) < u.chunkRecords() && len(ch.body) < chunkBytes {
		var rec plantfile.Record
		if rec, ch.err = u.Records.Next(); ch.err != nil {
			break
		}
		if rec.Problem != nil {
			ch.rejected = append(ch.rejected, Failure{rec.Line, rec.Problem.Error(), bytes.Clone(rec.Source)})
			continue
		}
		line := chunkLine{start: len(ch.body), number: rec.Line}
		if u.WithSources {
			line.source = bytes.Clone(rec.Source)
		}
		ch.lines = append(ch.lines, line)
		ch.body = append(append(ch.body, rec.JSON...), '\n')
	}
	ch.read = u.counted.n
	return ch
}

func (u *Upload) send(ctx context.Context, ch *chunk) error {
	var report plantstore.ImportReport
	if len(ch.lines) > 0 {
		var err error
		u.unconfirmed = ch
		report, err = u.sendLines(ctx, ch, 0, len(ch.lines))
		if err == nil || u.IsRefused() {
			u.unconfirmed = nil
		}
		if err != nil {
			return err
		}
	}
	u.add(report)
	u.Refused += int64(len(ch.rejected))
	u.Progress(ch.read, u.Total())
	failed, err := u.reasons(ctx, ch, 0, len(ch.lines), report)
	failed = append(failed, ch.rejected...)
	slices.SortFunc(failed, func(a, b Failure) int { return cmp.Compare(a.Line, b.Line) })
	for _, f := range failed {
		if err := u.Failed(f); err != nil {
			return err
		}
	}
	return err
}

func (u *Upload) add(report plantstore.ImportReport) {
	u.Created += report.Created
	u.Replaced += report.Replaced
	u.Deleted += report.Deleted
	u.Unchanged += report.Unchanged
	u.Refused += report.Failed
}

func (u *Upload) sendLines(ctx context.Context, ch *chunk, first, last int) (plantstore.ImportReport, error) {
	text := ch.text(first, last)
	opts := client.ImportOptions{Mode: u.Mode, Versions: bytes.Contains(text, []byte(`"if_version"`))}
	report, err := u.api.ImportFile(ctx, bytes.NewReader(text), opts)
	u.sendErr = err
	return report, err
}

// Try sends the whole file in one request that writes nothing, and counts what would happen.
func (u *Upload) Try(ctx context.Context) error {
	ch := &chunk{}
	in, out := io.Pipe()
	go func() {
		var err error
		for err == nil {
			var rec plantfile.Record
			if rec, err = u.Records.Next(); err != nil {
				break
			}
			if rec.Problem != nil {
				ch.rejected = append(ch.rejected, Failure{Line: rec.Line, Reason: rec.Problem.Error()})
				continue
			}
			ch.lines = append(ch.lines, chunkLine{number: rec.Line})
			_, err = out.Write(append(rec.JSON, '\n'))
		}
		out.CloseWithError(err)
	}()
	report, err := u.api.ImportFile(ctx, in, client.ImportOptions{Mode: u.Mode, DryRun: true})
	in.CloseWithError(context.Canceled)
	if err != nil {
		return err
	}
	u.add(report)
	u.Refused += int64(len(ch.rejected))
	failed, err := u.reasons(ctx, ch, 0, len(ch.lines), report)
	failed = append(failed, ch.rejected...)
	slices.SortFunc(failed, func(a, b Failure) int { return cmp.Compare(a.Line, b.Line) })
	for _, f := range failed {
		err = errors.Join(err, u.Failed(f))
	}
	return err
}

// reasons returns the lines from first up to last that failed, by the report on them. A
// server reports only the first of them; if there are more and all are wanted, each
// half is sent again, which is safe.
func (u *Upload) reasons(ctx context.Context, ch *chunk, first, last int, report plantstore.ImportReport) ([]Failure, error) {
	var failed []Failure
	if u.WithSources && report.Failed > int64(len(report.Errors)) {
		middle := (first + last) / 2
		if middle == first {
			return []Failure{{ch.lines[first].number, "the server gave no reason", ch.source(first)}}, nil
		}
		for _, half := range [][2]int{{first, middle}, {middle, last}} {
			report, err := u.sendLines(ctx, ch, half[0], half[1])
			if err != nil {
				return failed, err
			}
			more, err := u.reasons(ctx, ch, half[0], half[1], report)
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
		f := Failure{Line: ch.lines[at].number, Reason: e.Err.Message}
		if u.WithSources {
			f.Source = ch.source(at)
		}
		failed = append(failed, f)
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

// IsRefused reports whether the server refused the last request. It has then imported none of
// its lines, except in an earlier attempt that was lost.
func (u *Upload) IsRefused() bool {
	refusal, ok := errors.AsType[*plantstore.Error](u.sendErr)
	if !ok {
		return false
	}
	// A request that is too slow is refused when some of its lines may have been
	// imported.
	status := int(refusal.Code) / 100
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout
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
