package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore/internal/wire"
)

// The formats of a file of plants.
const (
	formatNDJSON = "ndjson" // one NewPlant per line
	formatJSON   = "json"   // an array of NewPlants
	formatCSV    = "csv"    // a header line with id, name and tag, then a plant per line
)

// pickFormat returns the format that was requested, or else that of the file name's
// extension.
func pickFormat(file, requested string) (string, error) {
	if requested != "" {
		return requested, nil
	}
	switch strings.ToLower(filepath.Ext(file)) {
	case ".ndjson", ".jsonl":
		return formatNDJSON, nil
	case ".json":
		return formatJSON, nil
	case ".csv":
		return formatCSV, nil
	}
	if file == "-" {
		return formatNDJSON, nil
	}
	return "", usage("%s: the format is not clear from the name: use --format ndjson, json or csv", file)
}

// layout is what is around the records of a file: before the first, between two, after the
// last, and in place of none.
type layout struct{ first, between, last, none string }

var layouts = map[string]layout{
	formatNDJSON: {"", "\n", "\n", ""},
	formatJSON:   {"[\n", ",\n", "\n]\n", "[]\n"},
	formatCSV:    {"id,name,tag\n", "", "", "id,name,tag\n"}, // a record ends its line
}

// recordWriter writes records to a buffer. Only close writes what is after the last, so that a
// part never looks like the whole.
type recordWriter struct {
	layout
	out interface {
		io.Writer
		Flush() error
	}
	count, bytes int64
}

func (w *recordWriter) write(record []byte) error {
	lead := w.between
	if w.count == 0 {
		lead = w.first
	}
	w.count++
	w.bytes += int64(len(lead) + len(record))
	io.WriteString(w.out, lead) // Write returns the error
	_, err := w.out.Write(record)
	return err
}

func (w *recordWriter) close() error {
	end := w.last
	if w.count == 0 {
		end = w.none
	}
	io.WriteString(w.out, end) // Flush returns the error
	return w.out.Flush()
}

// maxRecord bounds the memory for one record of a file. It is far above what a server
// accepts.
const maxRecord = 16 << 20

// record is one plant of a file: its JSON on one line, which the server validates, and
// where it comes from.
type record struct {
	json []byte
	// source is the record as it is in the file, for the file of errors, if that is not
	// the JSON.
	source []byte
	// line is the number of the line where it begins; in a JSON array, of the
	// element.
	line int
	// problem is set if the record cannot be sent at all.
	problem string
}

// recordReader reads the records of a file. The slices of a record are valid until the
// next call. It returns io.EOF after the last one.
type recordReader interface {
	next() (record, error)
	// failures is the layout of the file of errors.
	failures() layout
	// withReason returns a record as it is in the file of errors, with the reason why it
	// failed. A nil source is one that was too long to keep.
	withReason(source []byte, reason string) []byte
}

// newRecordReader reads the beginning of a file. The delimiter is that of CSV, or zero for the
// one of the header.
func newRecordReader(format string, delim delimiter, in io.Reader) (recordReader, error) {
	switch format {
	case formatJSON:
		return newArrayReader(in)
	case formatCSV:
		return newCSVReader(in, delim)
	}
	return &lineReader{lines: wire.NewLineReader(in, maxRecord)}, nil
}

// jsonRecords is what NDJSON and a JSON array have in common.
type jsonRecords struct{}

// lineReader reads NDJSON.
type lineReader struct {
	jsonRecords
	lines *wire.LineReader
}

func (*lineReader) failures() layout { return layouts[formatNDJSON] }

func (l *lineReader) next() (record, error) {
	text, err := l.lines.Next()
	if errors.Is(err, wire.ErrLineTooLong) {
		return record{line: l.lines.Line(), problem: fmt.Sprintf("the line is longer than %d bytes", maxRecord)}, nil
	}
	if err != nil {
		return record{}, err
	}
	return record{json: text.Bytes(), line: l.lines.Line()}, nil
}

// arrayReader reads a JSON array. The server says what is wrong with an element, so
// that the others are not lost.
type arrayReader struct {
	jsonRecords
	dec   *jsontext.Decoder
	count int
}

func newArrayReader(in io.Reader) (*arrayReader, error) {
	dec := jsontext.NewDecoder(in, looseJSON)
	if dec.PeekKind() != '[' {
		return nil, errors.New("the file must be a JSON array of plants; for one plant per line, use --format ndjson")
	}
	dec.ReadToken() // is the bracket
	return &arrayReader{dec: dec}, nil
}

func (*arrayReader) failures() layout { return layouts[formatJSON] }

func (a *arrayReader) next() (record, error) {
	if a.dec.PeekKind() == ']' {
		if _, err := a.dec.ReadToken(); err != nil {
			return record{}, err
		}
		if _, err := a.dec.ReadToken(); err != io.EOF {
			return record{}, errors.New("unexpected data after the JSON array")
		}
		return record{}, io.EOF
	}
	a.count++
	value, err := a.dec.ReadValue()
	if err == nil {
		err = value.Compact(looseJSON)
	}
	if err != nil {
		return record{}, fmt.Errorf("element %d is not JSON: %w", a.count, err)
	}
	return record{json: value, line: a.count}, nil
}

// withReason returns the record as an object that begins with the reason, in place of an
// earlier one. What is not an object becomes the member "source".
func (jsonRecords) withReason(source []byte, reason string) []byte {
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
