package plantfile

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"math"

	"plantstore"
	"plantstore/internal/wire"
)

// Records yields plants as records of a format, for a spreadsheet with an apostrophe before what
// it would run as a formula. A record is valid until the next.
func Records(plants iter.Seq2[plantstore.StoredPlant, error], format Format, details, spreadsheet bool) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var record []byte
		for plant, err := range plants {
			if spreadsheet {
				plant = Neutralised(plant)
			}
			if err == nil {
				record, err = format.Append(record[:0], plant, details)
			}
			if !yield(record, err) {
				return
			}
		}
	}
}

// Lines yields the lines of NDJSON as they are. It opens their source when the first is wanted.
func Lines(open func() (io.ReadCloser, error)) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		in, err := open()
		if err != nil {
			yield(nil, err)
			return
		}
		defer in.Close()
		for lines := wire.NewLineReader(in, math.MaxInt); ; {
			line, err := lines.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(line.Bytes(), nil) {
				return
			}
		}
	}
}

// WriteRecords writes a file and returns how many records it has. It calls progress now and then.
func WriteRecords(w io.Writer, layout Layout, records iter.Seq2[[]byte, error], progress func(bytes, records int64)) (int64, error) {
	out := &Writer{Layout: layout, Out: bufio.NewWriterSize(w, 256<<10)}
	for record, err := range records {
		if err != nil {
			return out.Count, errors.Join(err, out.Out.Flush())
		}
		if err := out.Write(record); err != nil {
			return out.Count, err
		}
		if out.Count%10_000 == 0 {
			progress(out.Bytes, out.Count)
		}
	}
	return out.Count, out.Close()
}
