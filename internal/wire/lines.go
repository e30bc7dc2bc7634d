package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrLineTooLong says that a line is longer than a [LineReader] allows.
var ErrLineTooLong = errors.New("the line is too long")

// LineReader reads the lines of NDJSON. It keeps at most one line of the allowed
// length in memory.
type LineReader struct {
	in   *bufio.Reader
	max  int
	line int
	text bytes.Buffer
	err  error // what ended the input, once its last line has been returned
}

// NewLineReader returns a reader of the lines in r that allows lines of up to max
// bytes.
func NewLineReader(r io.Reader, max int) *LineReader {
	return &LineReader{in: bufio.NewReaderSize(r, 256<<10), max: max}
}

// Line returns the number of the line that was read last, from 1.
func (r *LineReader) Line() int { return r.line }

// Next returns the next line that is not blank, without the white space around it.
// It is valid until the following call. A line that is too long is skipped, and Next
// returns ErrLineTooLong for it; reading can continue after that. Next returns io.EOF
// after the last line, which need not end in a line feed.
func (r *LineReader) Next() (*bytes.Buffer, error) {
	for r.err == nil {
		r.line++
		r.text.Reset()
		tooLong, err := r.read()
		r.err = err
		switch {
		case err != nil && err != io.EOF:
			return nil, err
		case tooLong:
			return nil, ErrLineTooLong
		}
		if r.trim(); r.text.Len() > 0 {
			return &r.text, nil
		}
	}
	return nil, r.err
}

// trim removes JSON white space from both ends of the line.
func (r *LineReader) trim() {
	const space = " \t\r"
	r.text.Truncate(len(bytes.TrimRight(r.text.Bytes(), space)))
	r.text.Next(r.text.Len() - len(bytes.TrimLeft(r.text.Bytes(), space)))
}

// read reads up to the next line feed. It returns the error that ended the input.
func (r *LineReader) read() (tooLong bool, err error) {
	for {
		part, err := r.in.ReadSlice('\n')
		if err == nil {
			part = part[:len(part)-1] // the line feed
		}
		if tooLong = tooLong || r.text.Len()+len(part) > r.max; !tooLong {
			r.text.Write(part)
		}
		if err != bufio.ErrBufferFull {
			return tooLong, err
		}
	}
}
