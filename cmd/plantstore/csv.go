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

// csvReader reads RFC 4180. encoding/csv does not keep what must be kept: a carriage
// return before a line feed within quotes, and the difference between an empty field
// and a quoted empty one, which is the difference between no tag and the empty tag.
type csvReader struct {
	in            *bufio.Reader
	line          int // where the last record began
	lines         int // line feeds read
	source, json  []byte
	fields        []csvField
	id, name, tag int // columns; tag is -1 where there is none
	columns       int
	hasReasons    bool // the first column says why the records of another import failed
	head          []byte
	ignored       []string // columns, quoted
	problem       string   // of the last record
}

// csvField is a field of source, without its quotes.
type csvField struct {
	text   []byte
	quoted bool
}

func newCSVReader(in io.Reader) (*csvReader, error) {
	r := &csvReader{in: bufio.NewReaderSize(in, 256<<10), id: -1, name: -1, tag: -1}
	if bom, err := r.in.Peek(3); err == nil && string(bom) == "\uFEFF" {
		r.in.Discard(3)
	}
	if err := r.read(); err != nil && err != io.EOF {
		return nil, err
	}
	if r.problem != "" {
		return nil, fmt.Errorf("malformed header: %s", r.problem)
	}
	columns := map[string]*int{"id": &r.id, "name": &r.name, "tag": &r.tag}
	for i, f := range r.fields {
		name := strings.ToLower(string(bytes.TrimSpace(f.text)))
		column := columns[name]
		switch {
		case column != nil && *column >= 0:
			return nil, fmt.Errorf("the header names the column %s twice", name)
		case column != nil:
			*column = i
		case i == 0 && name == reasonName:
			r.hasReasons = true
		default:
			r.ignored = append(r.ignored, strconv.Quote(plantstore.Shorten(string(f.text))))
		}
	}
	r.columns = len(r.fields)
	r.head = append([]byte(reasonName+","), r.withoutReason()...)
	if r.id < 0 || r.name < 0 {
		return nil, fmt.Errorf("the header must name the columns id and name, and may name tag, got %q", plantstore.Shorten(string(r.source)))
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
	rec := record{source: r.withoutReason(), line: r.line, problem: r.problem}
	switch {
	case len(r.source) > maxRecord:
		rec.source = nil
	case rec.problem != "":
	case len(r.fields) != r.columns:
		rec.problem = fmt.Sprintf("the record has %s, but the header has %d", count(int64(len(r.fields)), "field"), r.columns)
	case !utf8.Valid(r.source):
		rec.problem = "the record is not valid UTF-8"
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
		if len(r.source) <= maxRecord {
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
		case len(r.source) > maxRecord:
			r.problem = fmt.Sprintf("the record is longer than %d bytes", maxRecord)
		case quoted:
			r.problem = "unclosed quote"
		default:
			r.split()
		}
		return nil
	}
}

// withoutReason returns source without its first field, if that is a reason.
func (r *csvReader) withoutReason() []byte {
	if !r.hasReasons {
		return r.source
	}
	if len(r.source) > 0 && r.source[0] == '"' {
		_, after, ok := cutQuoted(r.source)
		if !ok {
			return r.source
		}
		return bytes.TrimPrefix(after, []byte{','})
	}
	_, after, _ := bytes.Cut(r.source, []byte{','})
	return after
}

// addReasonColumn returns a record with its reason as the first field, where it does no
// harm even to a record that cannot be parsed. A nil source is one that was too long to
// keep.
func addReasonColumn(source []byte, reason string) []byte {
	record := appendField(nil, reason, true)
	if source == nil {
		return record
	}
	return append(append(record, ','), source...)
}

// split splits source into fields. The text of a quoted field is a copy.
func (r *csvReader) split() {
	for rest := r.source; ; {
		if len(rest) > 0 && rest[0] == '"' {
			text, after, ok := cutQuoted(rest)
			if !ok {
				r.problem = "unexpected text after a closing quote"
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
			// The quote may have joined this line to the next.
			r.problem = "a quote in an unquoted field: quote the field and double the quote"
			return
		}
		r.fields = append(r.fields, csvField{text, false})
		if !more {
			return
		}
		rest = after
	}
}

// cutQuoted cuts off a quoted field, which ends at the end or before a comma.
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

// appendNumber appends text as a JSON number if it is one, and as a string if not, so
// that the server says what is wrong with it.
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

// appendCSV appends a plant as a record that csvReader reads as the same plant.
func appendCSV(dst []byte, p plantstore.Plant) []byte {
	dst = strconv.AppendInt(dst, int64(p.ID), 10)
	dst = appendField(append(dst, ','), p.Name, false)
	dst = append(dst, ',')
	if tag, ok := p.Tag.Text(); ok {
		dst = appendField(dst, tag, true)
	}
	return append(dst, '\n')
}

// neutralised returns the plant with an apostrophe before each text that a spreadsheet
// would run as a formula.
func neutralised(p plantstore.Plant) plantstore.Plant {
	p.Name = neutralisedText(p.Name)
	if tag, ok := p.Tag.Text(); ok {
		p.Tag = plantstore.NewTag(neutralisedText(tag))
	}
	return p
}

func neutralisedText(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n", rune(text[0])) {
		return "'" + text
	}
	return text
}

// appendField appends a field, quoted where necessary. An optional field that is
// present but empty is quoted.
func appendField(dst []byte, text string, optional bool) []byte {
	if !strings.ContainsAny(text, "\",\r\n") && (text != "" || !optional) {
		return append(dst, text...)
	}
	dst = append(dst, '"')
	dst = append(dst, strings.ReplaceAll(text, `"`, `""`)...)
	return append(dst, '"')
}
