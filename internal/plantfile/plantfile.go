// Package plantfile reads and writes files of plants: CSV, a JSON array, and NDJSON. It takes
// and gives one record at a time, in bounded memory.
package plantfile

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore"
	"plantstore/internal/wire"
)

// Format is a format of a file of plants.
type Format string

// The formats.
const (
	NDJSON Format = "ndjson" // one NewPlant per line
	JSON   Format = "json"   // an array of NewPlants
	CSV    Format = "csv"    // a header line with id, name and tag, then a plant per line
)

// FormatOf returns the format that the extension of a file's name stands for, or "".
func FormatOf(name string) Format {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".ndjson", ".jsonl":
		return NDJSON
	case ".json":
		return JSON
	case ".csv":
		return CSV
	}
	return ""
}

// Noun is what a [Record.Line] counts.
func (f Format) Noun() string {
	if f == JSON {
		return "element"
	}
	return "line"
}

// Layout is the text around the records of a file: before the first, between two, after the last,
// and instead of records if there are none.
type Layout struct{ First, Between, Last, None string }

// Layout returns the layout of a file of the format, with details or without.
func (f Format) Layout(details bool) Layout {
	switch f {
	case JSON:
		return Layout{"[\n", ",\n", "\n]\n", "[]\n"}
	case CSV:
		header := Header
		if details {
			header = strings.TrimSuffix(Header, "\n") + ",version,created,updated\n"
		}
		return Layout{First: header, None: header} // a record ends its line
	}
	return Layout{Between: "\n", Last: "\n"}
}

// Append appends a plant as a record of the format, with details or without. It fails with
// ErrNotJSON if a text is not valid UTF-8.
func (f Format) Append(dst []byte, p plantstore.StoredPlant, details bool) ([]byte, error) {
	switch {
	case f == CSV:
		return appendCSV(dst, p, details), nil
	case details:
		return wire.AppendStored(dst, p)
	}
	return wire.AppendNewPlant(dst, p.Plant)
}

// Writer writes records to a buffer.
type Writer struct {
	Layout
	Out interface {
		io.Writer
		Flush() error
	}
	Count, Bytes int64 // written
}

// Write writes the next record.
func (w *Writer) Write(record []byte) error {
	lead := w.Between
	if w.Count == 0 {
		lead = w.First
	}
	w.Count++
	w.Bytes += int64(len(lead) + len(record))
	io.WriteString(w.Out, lead) // Write returns the error
	_, err := w.Out.Write(record)
	return err
}

// Close writes what comes after the last record and flushes the buffer. Without it, a part
// never looks like the whole.
func (w *Writer) Close() error {
	end := w.Last
	if w.Count == 0 {
		end = w.None
	}
	io.WriteString(w.Out, end) // Flush returns the error
	return w.Out.Flush()
}

// Record is one plant of a file: its JSON, which may not be a valid plant, and where it comes
// from.
type Record struct {
	// JSON is on one line.
	JSON []byte
	// Source is the record as it is in the file, if that is not the JSON, or nil if it is too
	// long to keep.
	Source []byte
	// Line is the number of the line where it begins; in a JSON array, of the element.
	Line int
	// Problem is why the record has no JSON.
	Problem error
}

// Plant returns the plant, or only its id, and the version that it must have in the store, or
// what is wrong with it.
func (r Record) Plant(onlyID bool) (p plantstore.Plant, ifVersion string, err error) {
	if r.Problem != nil {
		return p, "", r.Problem
	}
	return wire.DecodeLine(bytes.NewBuffer(r.JSON), onlyID)
}

// Reader reads the records of a file.
type Reader interface {
	// Next returns the next record, which is valid until the following call, or io.EOF
	// after the last. After any other error nothing can be read.
	Next() (Record, error)
	// Ignored returns the columns that are not used, quoted.
	Ignored() []string
	// Failures is the layout of a file of records that failed.
	Failures() Layout
	// WithReason returns a record as it is in the file of failures, with the reason why it
	// failed. A nil source is one that was too long to keep.
	WithReason(source []byte, reason string) []byte
}

// Options say how to read a file.
type Options struct {
	// MaxRecord is how long a record may be. A longer one has a problem.
	MaxRecord int
	// Delimiter is that of CSV.
	Delimiter Delimiter
	// OnlyID says that nothing else of a plant is needed.
	OnlyID bool
	// DelimiterHint and LinesHint say what to do about a header that has another delimiter
	// than the known ones, and about a file that is not an array.
	DelimiterHint, LinesHint string
}

// NewReader reads the beginning of a file.
func NewReader(in io.Reader, format Format, opts Options) (Reader, error) {
	switch format {
	case JSON:
		return newArrayReader(in, opts)
	case CSV:
		return newCSVReader(in, opts)
	}
	return &lineReader{max: opts.MaxRecord, lines: wire.NewLineReader(in, opts.MaxRecord)}, nil
}

// bufferSize is how much of a file is read at a time.
const bufferSize = 256 << 10

// tooLong is the problem with a record that is longer than max bytes.
func tooLong(noun string, max int) error {
	return plantstore.Errorf(plantstore.ErrTooLarge, "the %s is longer than %d bytes", noun, max)
}

// jsonRecords has the methods that readers of NDJSON and of a JSON array share.
type jsonRecords struct{}

func (jsonRecords) Ignored() []string { return nil }

// lineReader reads NDJSON.
type lineReader struct {
	jsonRecords
	max   int
	lines *wire.LineReader
}

func (*lineReader) Failures() Layout { return NDJSON.Layout(false) }

func (l *lineReader) Next() (Record, error) {
	text, err := l.lines.Next()
	if errors.Is(err, wire.ErrLineTooLong) {
		return Record{Line: l.lines.Line(), Problem: tooLong("line", l.max)}, nil
	}
	if err != nil {
		return Record{}, err
	}
	return Record{JSON: text.Bytes(), Line: l.lines.Line()}, nil
}

// WithReason returns the record as an object that begins with the reason, in place of an
// earlier one. What is not an object becomes the member "source".
func (jsonRecords) WithReason(source []byte, reason string) []byte {
	var failed struct {
		Reason  jsontext.Value `json:"error"`
		Source  jsontext.Value `json:"source,omitzero"`
		Members jsontext.Value `json:",embed"`
	}
	var err error
	switch value := jsontext.Value(source); {
	case source == nil:
	case !value.IsValid(looseJSON):
		failed.Source = appendQuoted(nil, bytes.ToValidUTF8(source, []byte("\uFFFD")))
	case value.Kind() != '{':
		failed.Source = value
	default:
		err = json.Unmarshal(value, &failed, looseJSON)
	}
	failed.Reason = appendQuoted(nil, bytes.ToValidUTF8([]byte(reason), []byte("\uFFFD")))
	object, encodeErr := json.Marshal(failed, looseJSON, jsontext.PreserveRawStrings(true))
	if err := errors.Join(err, encodeErr); err != nil {
		panic("add a reason to valid JSON: " + err.Error())
	}
	return object
}

// looseJSON reads what only the server refuses.
var looseJSON = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
