package plantfile

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/encoding/unicode"

	"plantstore"
	"plantstore/internal/wire"
)

// Delimiter separates the fields of CSV. The zero Delimiter stands for that of the header.
type Delimiter byte

// knownDelimiters are those that are recognised from a header.
var knownDelimiters = []Delimiter{',', ';', '\t'}

// UnmarshalText accepts the name of a known delimiter, or a character.
func (d *Delimiter) UnmarshalText(text []byte) error {
	for _, known := range knownDelimiters {
		if string(text) == known.String() {
			*d = known
			return nil
		}
	}
	if !isDelimiter(text) {
		return fmt.Errorf("must be comma, semicolon, tab or a character such as |, got %q", text)
	}
	*d = Delimiter(text[0])
	return nil
}

// isDelimiter reports whether text may separate fields: whether it is a character that is
// neither a quote nor a part of ids.
func isDelimiter(text []byte) bool {
	return len(text) == 1 && strings.IndexByte("\t!#$%&*,/:;=@\\^|~", text[0]) >= 0
}

func (d Delimiter) String() string {
	switch d {
	case ',':
		return "comma"
	case ';':
		return "semicolon"
	case '\t':
		return "tab"
	}
	return strconv.Quote(string(rune(d)))
}

// csvReader reads RFC 4180, and what spreadsheets make of it: other delimiters, a line sep=;
// before the header, and UTF-16 with a byte order mark. encoding/csv does not keep what must
// be kept: a carriage return before a line feed within quotes, and the difference between an
// empty field and a quoted empty one, which is the difference between no tag and the empty tag.
type csvReader struct {
	in           *bufio.Reader
	opts         Options
	delim        Delimiter
	isUTF16      bool
	line         int // where the last record began
	lines        int // line feeds read
	source, json []byte
	fields       []csvField // at most maxColumns
	count        int        // of the fields of the record
	// The columns; all except id may be -1 where there is none.
	id, name, tag, ifVersion int
	columns                  int
	hasReasons               bool     // the first column says why the records of another import failed
	head                     string   // of the file of errors
	ignored                  []string // columns, quoted
	problem                  error    // with the last record
}

// maxColumns is how many columns a header may have: each takes more memory than its separator.
const maxColumns = 1000

// csvField is a field of source, without its quotes.
type csvField struct {
	text   []byte
	quoted bool
}

// Header is the first line of a file of CSV.
const Header = "id,name,tag\n"

// reasonName is the column of a file of errors that says why a record failed. An import
// ignores it, as it ignores the member of that name in JSON.
const reasonName = "error"

func newCSVReader(in io.Reader, opts Options) (*csvReader, error) {
	r := &csvReader{opts: opts, in: bufio.NewReaderSize(in, bufferSize)}
	switch mark, _ := r.in.Peek(3); { // reading returns the error
	case string(mark) == "\uFEFF":
		r.in.Discard(3)
	case bytes.HasPrefix(mark, []byte("\xFF\xFE")), bytes.HasPrefix(mark, []byte("\xFE\xFF")):
		r.isUTF16 = true
		r.in = bufio.NewReaderSize(unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder().Reader(r.in), bufferSize)
	}
	if err := r.read(); err != nil && err != io.EOF {
		return nil, err
	}
	delim := opts.Delimiter
	if sep, ok := separatorLine(r.source); ok {
		delim = cmp.Or(delim, sep)
		if err := r.read(); err != nil && err != io.EOF {
			return nil, err
		}
	}
	if r.problem != nil {
		return nil, notCSV("malformed header: %v", r.problem)
	}
	if err := r.findColumns(delim); err != nil {
		return nil, err
	}
	if !slices.Contains(knownDelimiters, r.delim) {
		r.head = "sep=" + string(rune(r.delim)) + "\n"
	}
	r.head += reasonName + string(rune(r.delim)) + string(r.withoutReason()) + "\n"
	return r, nil
}

// separatorLine returns the delimiter that a line such as sep=; before the header names.
func separatorLine(line []byte) (Delimiter, bool) {
	line = bytes.Trim(line, `"`)
	if len(line) != len("sep=;") || !strings.EqualFold(string(line[:4]), "sep=") || !isDelimiter(line[4:]) {
		return 0, false
	}
	return Delimiter(line[4]), true
}

// findColumns finds the columns of the header, which has been read, with the delimiter, or
// with the first known one that works. If none does, the error is about the one that makes the
// most columns.
func (r *csvReader) findColumns(delim Delimiter) error {
	candidates := []Delimiter{delim}
	if delim == 0 {
		candidates = knownDelimiters
	}
	var best error
	most := 0
	for _, candidate := range candidates {
		r.delim = candidate
		err := r.readHeader()
		if err == nil {
			return nil
		}
		if best == nil || r.columns > most {
			best, most = err, r.columns
		}
	}
	if delim == 0 && most < 2 {
		return notCSV("%v%s", best, r.opts.DelimiterHint)
	}
	return best
}

// readHeader finds the columns of the header with the delimiter.
func (r *csvReader) readHeader() error {
	r.ignored, r.hasReasons, r.columns = nil, false, 0
	r.id, r.name, r.tag, r.ifVersion = -1, -1, -1, -1
	if r.split(); r.problem != nil {
		return notCSV("malformed header: %v", r.problem)
	}
	if r.columns = r.count; r.columns > maxColumns {
		return notCSV("the header has %d columns with the separator %s: at most %d are allowed", r.columns, r.delim, maxColumns)
	}
	columns := map[string]*int{"id": &r.id, "name": &r.name, "tag": &r.tag, "if_version": &r.ifVersion}
	var seen []string
	for i, f := range r.fields {
		name := strings.ToLower(string(bytes.TrimSpace(f.text)))
		seen = append(seen, strconv.Quote(plantstore.Shorten(string(f.text))))
		column := columns[name]
		switch {
		case column != nil && *column >= 0:
			return notCSV("the header names the column %s twice", name)
		case column != nil:
			*column = i
		case i == 0 && name == reasonName:
			r.hasReasons = true
		default:
			r.ignored = append(r.ignored, seen[i])
		}
	}
	if r.id < 0 || r.name < 0 && !r.opts.OnlyID {
		const shown = 10
		if len(seen) > shown {
			seen = append(seen[:shown], "…")
		}
		needed := "columns id and name, and may name tag"
		if r.opts.OnlyID {
			needed = "column id"
		}
		return notCSV("the header must name the %s; with the separator %s it has %s", needed, r.delim, strings.Join(seen, ", "))
	}
	return nil
}

func (r *csvReader) Ignored() []string { return r.ignored }

func (r *csvReader) Failures() Layout { return Layout{First: r.head, Between: "\n", Last: "\n"} }

func (r *csvReader) Next() (Record, error) {
	for {
		if err := r.read(); err != nil {
			return Record{}, err
		}
		if len(r.source) > 0 {
			break
		}
	}
	if r.problem == nil {
		r.split()
	}
	rec := Record{Source: r.withoutReason(), Line: r.line, Problem: r.problem}
	switch {
	case len(r.source) > r.opts.MaxRecord:
		rec.Source = nil
	case rec.Problem != nil:
	case r.count != r.columns:
		rec.Problem = notCSV("the record has %s, but the header has %d", fieldCount(r.count), r.columns)
	case !utf8.Valid(r.source):
		rec.Problem = notCSV("the record is not valid UTF-8")
	case r.isUTF16 && bytes.ContainsRune(r.source, utf8.RuneError):
		rec.Problem = notCSV("the record is not valid UTF-16")
	default:
		r.json = append(r.json[:0], `{"id":`...)
		r.json, rec.Problem = appendID(r.json, bytes.TrimSpace(r.fields[r.id].text))
	}
	if rec.Problem != nil {
		return rec, nil
	}
	name, tag, ifVersion := r.field(r.name).text, r.field(r.tag), r.field(r.ifVersion).text
	// What is stored must fit into a line of NDJSON, so that it can be imported elsewhere.
	if len(r.source) > r.opts.MaxRecord/maxEscape-overhead && len(r.json)+quotedSize(name)+quotedSize(tag.text)+quotedSize(ifVersion)+overhead > r.opts.MaxRecord {
		rec.Problem = tooLong("record", r.opts.MaxRecord)
		return rec, nil
	}
	r.json = appendQuoted(append(r.json, `,"name":`...), name)
	if len(tag.text) > 0 || tag.quoted {
		r.json = appendQuoted(append(r.json, `,"tag":`...), tag.text)
	}
	if len(ifVersion) > 0 {
		r.json = appendQuoted(append(r.json, `,"if_version":`...), ifVersion)
	}
	r.json = append(r.json, '}')
	rec.JSON = r.json
	return rec, nil
}

// field returns the field of a column, or an empty one where there is none.
func (r *csvReader) field(column int) csvField {
	if column < 0 {
		return csvField{}
	}
	return r.fields[column]
}

const (
	// maxEscape is how many bytes of JSON a byte of text can become.
	maxEscape = len(`\u0000`)
	// overhead is how long the names of the members of a plant are.
	overhead = len(`,"name":,"tag":,"if_version":}`)
)

// quotedSize returns how long text is as a string of JSON.
func quotedSize(text []byte) int {
	n := len(text) + len(`""`)
	for _, c := range text {
		switch {
		case c == '"', c == '\\', '\b' <= c && c <= '\r' && c != '\v':
			n += len(`\n`) - 1
		case c < ' ':
			n += maxEscape - 1
		}
	}
	return n
}

// read reads one record into source, without the end of its line.
func (r *csvReader) read() error {
	r.source, r.problem = r.source[:0], nil
	r.line = r.lines + 1
	quoted := false
	for {
		part, err := r.in.ReadSlice('\n')
		if len(r.source) <= r.opts.MaxRecord {
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
		case len(r.source) > r.opts.MaxRecord:
			r.problem = tooLong("record", r.opts.MaxRecord)
		case quoted:
			r.problem = notCSV("unclosed quote")
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
		_, after, ok := r.cutQuoted(r.source)
		if !ok {
			return r.source
		}
		return bytes.TrimPrefix(after, []byte{byte(r.delim)})
	}
	_, after, _ := bytes.Cut(r.source, []byte{byte(r.delim)})
	return after
}

// WithReason makes the reason the first field, where it does no harm even to a record that
// cannot be parsed.
func (r *csvReader) WithReason(source []byte, reason string) []byte {
	record := appendQuotedField(nil, reason)
	if source == nil {
		return record
	}
	return append(append(record, byte(r.delim)), source...)
}

// split splits source into fields. It counts those beyond maxColumns, and does not keep them. The
// text of a quoted field is a copy.
func (r *csvReader) split() {
	r.fields, r.count, r.problem = r.fields[:0], 0, nil
	add := func(f csvField) {
		if r.count++; r.count <= maxColumns {
			r.fields = append(r.fields, f)
		}
	}
	for rest := r.source; ; {
		if len(rest) > 0 && rest[0] == '"' {
			text, after, ok := r.cutQuoted(rest)
			if !ok {
				r.problem = notCSV("unexpected text after a closing quote")
				return
			}
			add(csvField{text, true})
			if len(after) == 0 {
				return
			}
			rest = after[1:]
			continue
		}
		text, after, more := bytes.Cut(rest, []byte{byte(r.delim)})
		if bytes.IndexByte(text, '"') >= 0 {
			// The quote may have joined this line to the next.
			r.problem = notCSV("a quote in an unquoted field: quote the field and double the quote")
			return
		}
		add(csvField{text, false})
		if !more {
			return
		}
		rest = after
	}
}

// cutQuoted cuts off a quoted field, which ends at the end or before a delimiter.
func (r *csvReader) cutQuoted(rest []byte) (text, after []byte, ok bool) {
	for i := 1; i < len(rest); i++ {
		switch {
		case rest[i] != '"':
			text = append(text, rest[i])
		case i+1 < len(rest) && rest[i+1] == '"':
			text = append(text, '"')
			i++
		default:
			after = rest[i+1:]
			return text, after, len(after) == 0 || after[0] == byte(r.delim)
		}
	}
	return nil, nil, false
}

// What spreadsheets make of a number.
var (
	scientific = regexp.MustCompile(`^[+-]?[0-9]+([.,][0-9]+)?[eE][+-]?[0-9]+$`)
	formatted  = regexp.MustCompile(`^[+-]?[0-9][0-9.,'’\p{Zs}]*$`)
)

// appendID appends an id as a JSON number. It returns a problem if a spreadsheet may have
// changed the number. What is no number becomes a string, so that the server says what is
// wrong with it.
func appendID(dst, text []byte) (_ []byte, problem error) {
	number := jsontext.Value(text)
	switch {
	case number.Kind() == '0' && number.IsValid() && !bytes.ContainsAny(text, "eE"):
		return append(dst, text...), nil
	case scientific.Match(text):
		return dst, plantstore.Errorf(plantstore.ErrType, `"id" must be a number in plain digits, got %s: a spreadsheet has lost the others; format the column as text there, and enter the ids again`, plantstore.Shorten(string(text)))
	case formatted.Match(text):
		return dst, plantstore.Errorf(plantstore.ErrType, `"id" must be a number in plain digits, without leading zeros, a plus sign or separators, got %s`, plantstore.Shorten(string(text)))
	}
	return appendQuoted(dst, text), nil
}

// notCSV is an error about the header or a record.
func notCSV(format string, args ...any) error {
	return plantstore.Errorf(plantstore.ErrNotCSV, format, args...)
}

func fieldCount(n int) string {
	if n == 1 {
		return "1 field"
	}
	return fmt.Sprintf("%d fields", n)
}

func appendQuoted(dst, text []byte) []byte {
	dst, err := jsontext.AppendQuote(dst, text)
	if err != nil {
		panic("quote valid UTF-8: " + err.Error())
	}
	return dst
}

// appendCSV appends a plant as a record of CSV, with the end of its line. It is read as the same
// plant.
func appendCSV(dst []byte, p plantstore.StoredPlant, details bool) []byte {
	dst = strconv.AppendInt(dst, int64(p.ID), 10)
	dst = appendField(append(dst, ','), p.Name, false)
	dst = append(dst, ',')
	if tag, ok := p.Tag.Text(); ok {
		dst = appendField(dst, tag, true)
	}
	if details {
		dst = append(append(dst, ','), p.Version.String()...)
		dst = wire.AppendTime(append(dst, ','), p.CreatedAt())
		dst = wire.AppendTime(append(dst, ','), p.Version.Updated())
	}
	return append(dst, '\n')
}

// Neutralised returns the plant with an apostrophe before each text that a spreadsheet
// would run as a formula.
func Neutralised(p plantstore.StoredPlant) plantstore.StoredPlant {
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
	return appendQuotedField(dst, text)
}

func appendQuotedField(dst []byte, text string) []byte {
	dst = append(dst, '"')
	dst = append(dst, strings.ReplaceAll(text, `"`, `""`)...)
	return append(dst, '"')
}
