package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The formats of a file of plants.
const (
	formatNDJSON = "ndjson" // one NewPlant a line
	formatJSON   = "json"   // an array of NewPlants
	formatCSV    = "csv"    // a header line, then id, name and tag
)

// pickFormat returns the format that was asked for, or else the one that the
// file's name ends in.
func pickFormat(file, asked string) (string, error) {
	if asked != "" {
		return asked, nil
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
	return "", usage("%s: its name does not say its format: give --format ndjson, json or csv", file)
}

// longestRecord bounds the memory that one record of a file can take. It is far
// above what a server takes.
const longestRecord = 16 << 20

// record is one plant of a file: its JSON in one line, which the server judges,
// and where it stands.
type record struct {
	json []byte
	// source is the record as the file has it, for the file of errors.
	source []byte
	// line is the number of the line where it begins; in a JSON array, of the
	// element.
	line int
	// problem is set where the record cannot be sent at all.
	problem string
}

// recordReader reads the records of a file. The slices of a record are good until
// the next call. It returns io.EOF after the last one.
type recordReader interface {
	next() (record, error)
	// header is what the file of errors begins with.
	header() []byte
}

func newRecordReader(format string, in io.Reader) (recordReader, error) {
	switch format {
	case formatJSON:
		return newArrayReader(in)
	case formatCSV:
		return newCSVReader(in)
	}
	return &lineReader{in: bufio.NewReaderSize(in, 256<<10)}, nil
}

// lineReader reads NDJSON.
type lineReader struct {
	in   *bufio.Reader
	line int
	long []byte
}

func (*lineReader) header() []byte { return nil }

func (l *lineReader) next() (record, error) {
	for {
		text, err := l.read()
		l.line++
		if err != nil && err != io.EOF {
			return record{}, err
		}
		if len(text) > longestRecord {
			return record{line: l.line, problem: fmt.Sprintf("the line is longer than %d bytes", longestRecord)}, nil
		}
		text = bytes.Trim(text, " \t\r\n") // what JSON takes for space
		if len(text) > 0 {
			return record{json: text, source: text, line: l.line}, nil
		}
		if err == io.EOF {
			return record{}, io.EOF
		}
	}
}

// read returns the next line, of which it keeps no more than longestRecord and a
// part.
func (l *lineReader) read() ([]byte, error) {
	part, err := l.in.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return part, err
	}
	l.long = append(l.long[:0], part...)
	for err == bufio.ErrBufferFull {
		part, err = l.in.ReadSlice('\n')
		if len(l.long) <= longestRecord {
			l.long = append(l.long, part...)
		}
	}
	return l.long, err
}

// arrayReader reads a JSON array. It leaves it to the server to judge what is
// wrong with one element, so that the others are not lost.
type arrayReader struct {
	dec   *jsontext.Decoder
	count int
}

func newArrayReader(in io.Reader) (*arrayReader, error) {
	dec := jsontext.NewDecoder(in, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if dec.PeekKind() != '[' {
		return nil, errors.New("the file must be a JSON array of plants; for one plant a line, use --format ndjson")
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	return &arrayReader{dec: dec}, nil
}

func (*arrayReader) header() []byte { return nil }

func (a *arrayReader) next() (record, error) {
	if a.dec.PeekKind() == ']' {
		if _, err := a.dec.ReadToken(); err != nil {
			return record{}, err
		}
		if _, err := a.dec.ReadToken(); err != io.EOF {
			return record{}, errors.New("something follows the JSON array")
		}
		return record{}, io.EOF
	}
	value, err := a.dec.ReadValue()
	if err != nil {
		return record{}, fmt.Errorf("element %d is not JSON: %w", a.count+1, err)
	}
	a.count++
	if err := value.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return record{}, fmt.Errorf("element %d is not JSON: %w", a.count, err)
	}
	return record{json: value, source: value, line: a.count}, nil
}
