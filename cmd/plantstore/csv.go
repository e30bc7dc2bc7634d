package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"plantstore"
)

// csvReader reads RFC 4180. It is ours because encoding/csv does not keep what we
// must: a carriage return before a line feed within quotes, and the difference
// between an empty field and one with nothing in its quotes, which is the
// difference between no tag and the empty tag.
type csvReader struct {
	in            *bufio.Reader
	line          int // where the last record began
	lines         int // line feeds read
	source, json  []byte
	fields        []csvField
	id, name, tag int // columns; tag is -1 where there is none
	columns       int
	head          []byte
	problem       string // of the last record
}

// csvField is a part of source, its quotes taken off.
type csvField struct {
	text   []byte
	quoted bool
}

func newCSVReader(in io.Reader) (*csvReader, error) {
	r := &csvReader{in: bufio.NewReaderSize(in, 256<<10), id: -1, name: -1, tag: -1}
	if mark, err := r.in.Peek(3); err == nil && string(mark) == "\uFEFF" {
		r.in.Discard(3)
	}
	if err := r.read(); err != nil && err != io.EOF {
		return nil, err
	}
	if r.problem != "" {
		return nil, fmt.Errorf("the header cannot be read: %s", r.problem)
	}
	for i, f := range r.fields {
		switch strings.ToLower(string(bytes.TrimSpace(f.text))) {
		case "id":
			r.id = i
		case "name":
			r.name = i
		case "tag":
			r.tag = i
		}
	}
	r.columns = len(r.fields)
	r.head = append([]byte(nil), r.source...)
	if r.id < 0 || r.name < 0 {
		return nil, fmt.Errorf("the header must name the columns id and name, and may name tag, got %q", shortText(r.source))
	}
	return r, nil
}

func (r *csvReader) header() []byte { return r.head }

func (r *csvReader) next() (record, error) {
	for {
		if err := r.read(); err != nil {
			return record{}, err
		}
		if len(r.source) > 0 {
			break
		}
	}
	rec := record{source: r.source, line: r.line, problem: r.problem}
	switch {
	case rec.problem != "":
	case len(r.fields) != r.columns:
		rec.problem = fmt.Sprintf("the record has %d fields, and the header has %d", len(r.fields), r.columns)
	case !utf8.Valid(r.source):
		rec.problem = "the record is not UTF-8"
	}
	if rec.problem != "" {
		return rec, nil
	}
	r.json = append(r.json[:0], `{"id":`...)
	r.json = appendNumber(r.json, bytes.TrimSpace(r.fields[r.id].text))
	r.json = appendQuoted(append(r.json, `,"name":`...), r.fields[r.name].text)
	if r.tag >= 0 && (len(r.fields[r.tag].text) > 0 || r.fields[r.tag].quoted) {
		r.json = appendQuoted(append(r.json, `,"tag":`...), r.fields[r.tag].text)
	}
	r.json = append(r.json, '}')
	rec.json = r.json
	return rec, nil
}

// read reads one record into source, without the end of its line, and its fields.
func (r *csvReader) read() error {
	r.source, r.fields, r.problem = r.source[:0], r.fields[:0], ""
	r.line = r.lines + 1
	quoted := false
	for {
		part, err := r.in.ReadSlice('\n')
		if len(r.source) <= longestRecord {
			r.source = append(r.source, part...)
		}
		if bytes.Count(part, []byte{'"'})%2 == 1 {
			quoted = !quoted
		}
		switch {
		case err == nil:
			r.lines++
			if quoted {
				continue
			}
		case err == bufio.ErrBufferFull:
			continue
		case err != io.EOF:
			return err
		case len(r.source) == 0:
			return io.EOF
		}
		r.source = bytes.TrimSuffix(bytes.TrimSuffix(r.source, []byte{'\n'}), []byte{'\r'})
		switch {
		case len(r.source) > longestRecord:
			r.problem = fmt.Sprintf("the record is longer than %d bytes", longestRecord)
		case quoted:
			r.problem = "a quote is not closed"
		default:
			r.split()
		}
		return nil
	}
}

// split cuts source into fields. The text of a quoted field is a copy.
func (r *csvReader) split() {
	for rest := r.source; ; {
		if len(rest) > 0 && rest[0] == '"' {
			text, after, ok := cutQuoted(rest)
			if !ok {
				r.problem = "something stands between a closing quote and the comma"
				return
			}
			r.fields = append(r.fields, csvField{text, true})
			if len(after) == 0 {
				return
			}
			rest = after[1:]
			continue
		}
		text, after, more := bytes.Cut(rest, []byte{','})
		if bytes.IndexByte(text, '"') >= 0 {
			// The line may have been taken for one with the next.
			r.problem = "a quote stands in a field that does not begin with one: put the field in quotes, and the quote twice"
			return
		}
		r.fields = append(r.fields, csvField{text, false})
		if !more {
			return
		}
		rest = after
	}
}

// cutQuoted cuts a quoted field off. What follows is nothing or a comma.
func cutQuoted(rest []byte) (text, after []byte, ok bool) {
	for i := 1; i < len(rest); i++ {
		switch {
		case rest[i] != '"':
			text = append(text, rest[i])
		case i+1 < len(rest) && rest[i+1] == '"':
			text = append(text, '"')
			i++
		default:
			after = rest[i+1:]
			return text, after, len(after) == 0 || after[0] == ','
		}
	}
	return nil, nil, false
}

// appendNumber writes text as a JSON number if it is one, and as a string if not,
// so that the server says what is wrong with it.
func appendNumber(dst, text []byte) []byte {
	if number := jsontext.Value(text); number.Kind() == '0' && number.IsValid() {
		return append(dst, text...)
	}
	return appendQuoted(dst, text)
}

func appendQuoted(dst, text []byte) []byte {
	dst, err := jsontext.AppendQuote(dst, text)
	if err != nil {
		panic("quote valid UTF-8: " + err.Error())
	}
	return dst
}

// appendCSV writes a plant as a record that csvReader reads as the same plant.
func appendCSV(dst []byte, p plantstore.Plant) []byte {
	dst = strconv.AppendInt(dst, int64(p.ID), 10)
	dst = appendField(append(dst, ','), p.Name, false)
	dst = append(dst, ',')
	if tag, ok := p.Tag.Text(); ok {
		dst = appendField(dst, tag, true)
	}
	return append(dst, '\n')
}

// appendField writes a field, in quotes where it needs them. An empty one that is
// not an absent one needs them.
func appendField(dst []byte, text string, optional bool) []byte {
	if !strings.ContainsAny(text, "\",\r\n") && (text != "" || !optional) {
		return append(dst, text...)
	}
	dst = append(dst, '"')
	dst = append(dst, strings.ReplaceAll(text, `"`, `""`)...)
	return append(dst, '"')
}

func shortText(b []byte) string {
	const most = 60
	text := strings.ToValidUTF8(string(b), "\uFFFD")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
