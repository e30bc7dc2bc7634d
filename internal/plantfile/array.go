package plantfile

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"plantstore"
)

// arrayReader reads a JSON array. An element need only be JSON, so that the others are not
// lost with one that is not a plant.
type arrayReader struct {
	jsonRecords
	in    *elementReader
	dec   *jsontext.Decoder
	count int
}

func newArrayReader(in io.Reader, opts Options) (*arrayReader, error) {
	a := &arrayReader{in: &elementReader{in: bufio.NewReaderSize(in, bufferSize), max: opts.MaxRecord}}
	a.dec = jsontext.NewDecoder(a.in, looseJSON)
	a.in.begin(a.dec)
	switch kind := a.dec.PeekKind(); {
	case a.in.err != nil:
		return nil, a.in.err
	case kind != '[':
		return nil, plantstore.Errorf(plantstore.ErrNotObject, "the file must be a JSON array of plants%s", opts.LinesHint)
	}
	a.dec.ReadToken() // is the bracket
	return a, nil
}

func (*arrayReader) Failures() Layout { return JSON.Layout(false) }

func (a *arrayReader) Next() (Record, error) {
	a.in.begin(a.dec)
	if a.dec.PeekKind() == ']' {
		return Record{}, a.end()
	}
	a.count++
	value, err := a.dec.ReadValue()
	if errors.Is(err, errElementTooLong) {
		err = a.skip()
		return Record{Line: a.count, Problem: tooLong("element", a.in.max)}, err
	}
	if err == nil && len(value) > a.in.max {
		return Record{Line: a.count, Problem: tooLong("element", a.in.max)}, nil
	}
	if err == nil {
		err = value.Compact(looseJSON)
	}
	if err != nil {
		return Record{}, a.broken(err)
	}
	return Record{JSON: value, Line: a.count}, nil
}

// end reads the bracket after the last element, and returns io.EOF if nothing follows it.
func (a *arrayReader) end() error {
	_, err := a.dec.ReadToken()
	if err == nil {
		_, err = a.dec.ReadToken()
		if err == io.EOF {
			return err
		}
		err = errors.New("unexpected data after the JSON array")
	}
	if a.in.err != nil {
		return a.in.err
	}
	return plantstore.Errorf(plantstore.ErrNotJSON, "%v", err)
}

// broken is why the array cannot be read any further.
func (a *arrayReader) broken(err error) error {
	if a.in.err != nil {
		return a.in.err
	}
	return plantstore.Errorf(plantstore.ErrNotJSON, "element %d is not JSON: %v", a.count, err)
}

// skip reads to the end of an element that is too long, and has the decoder go on with the
// array as if that had been an empty string.
func (a *arrayReader) skip() error {
	a.in.before = slices.Concat(a.dec.UnreadBuffer(), a.in.before)
	var value valueScanner
	chunk := make([]byte, 64<<10)
	for {
		a.in.left = len(chunk)
		n, err := a.in.Read(chunk)
		if end := value.end(chunk[:n]); end >= 0 {
			a.in.before = slices.Concat([]byte(`[""`), chunk[end:n], a.in.before)
			break
		}
		if err != nil {
			return a.broken(io.ErrUnexpectedEOF)
		}
	}
	a.dec.Reset(a.in, looseJSON)
	a.in.begin(a.dec)
	a.dec.ReadToken() // is the bracket
	a.dec.ReadToken() // is the string
	return nil
}

// valueScanner finds the end of a JSON value.
type valueScanner struct {
	depth                    int
	started, quoted, escaped bool
}

// end returns where the value ends in the next part of a text, or -1. White space and a comma
// may come before the value.
func (s *valueScanner) end(part []byte) int {
	for i, c := range part {
		between := bytes.IndexByte([]byte(", \t\r\n"), c) >= 0
		switch {
		case s.escaped:
			s.escaped = false
			continue
		case s.quoted && c == '\\':
			s.escaped = true
		case s.quoted && c != '"':
			continue
		case c == '"':
			s.started, s.quoted = true, !s.quoted
			if !s.quoted && s.depth == 0 {
				return i + 1
			}
		case c == '{', c == '[':
			s.depth++
		case s.depth == 0 && (c == '}' || c == ']' || s.started && between):
			return i
		case c == '}', c == ']':
			if s.depth--; s.depth == 0 {
				return i + 1
			}
		case !between:
			s.started = true
		}
	}
	return -1
}

// errElementTooLong says that an element is longer than an elementReader allows.
var errElementTooLong = errors.New("the element is too long")

// elementReader limits how much is read for an element.
type elementReader struct {
	in     io.Reader
	before []byte // read before in
	max    int
	left   int
	err    error // of in, except io.EOF
}

// begin allows the decoder to read the next element.
func (r *elementReader) begin(dec *jsontext.Decoder) {
	const readAhead = 64 << 10
	r.left = r.max + readAhead - len(dec.UnreadBuffer())
}

func (r *elementReader) Read(b []byte) (int, error) {
	if r.left <= 0 {
		return 0, errElementTooLong
	}
	b = b[:min(len(b), r.left)]
	n := copy(b, r.before)
	r.before = r.before[n:]
	var err error
	if n == 0 {
		if n, err = r.in.Read(b); err != nil && err != io.EOF {
			r.err = err
		}
	}
	r.left -= n
	return n, err
}
