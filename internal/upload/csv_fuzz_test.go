package upload

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"io"
	"maps"
	"math/big"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/plantfile"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
	"plantstore/internal/wire"
)

// fileServer is a server for imports and exports of files.
type fileServer struct {
	*servertest.Server
	api *client.Client
}

func newFileServer(f *testing.F) fileServer {
	f.Helper()
	s := servertest.Start(f, servertest.Options{Store: storetest.NewModel()})
	return fileServer{s, s.Client(client.Options{Retries: -1})}
}

// load imports a file as the command does, and returns its counts.
func (s fileServer) load(t *testing.T, format plantfile.Format, text []byte) (created, unchanged, failed int, err error) {
	t.Helper()
	file, err := New(s.api, bytes.NewReader(text), format, plantfile.Options{MaxRecord: 1 << 20})
	if err != nil {
		return 0, 0, 0, err
	}
	err = file.Run(t.Context())
	return int(file.Created), int(file.Unchanged), int(file.Refused), err
}

// medias are the media types of the formats.
var medias = map[plantfile.Format]string{plantfile.CSV: wire.MediaCSV, plantfile.JSON: wire.MediaJSON, plantfile.NDJSON: wire.MediaNDJSON}

// wantSame fails unless the server makes of the whole file what the upload makes of its chunks:
// the same plants, and the same reasons for the same lines.
func (s fileServer) wantSame(t *testing.T, format plantfile.Format, text []byte) {
	t.Helper()
	s.Clear(t)
	var want plantstore.ImportReport
	file, uploadErr := New(s.api, bytes.NewReader(text), format, plantfile.Options{MaxRecord: 1 << 20})
	if uploadErr == nil {
		file.Failed = func(f Failure) error {
			want.Errors = append(want.Errors, plantstore.LineError{Line: int64(f.Line), Err: &plantstore.Error{Message: f.Reason}})
			return nil
		}
		uploadErr = file.Run(t.Context())
		want.Created, want.Unchanged, want.Failed = file.Created, file.Unchanged, file.Refused
	}
	uploaded := s.Plants(t)
	s.Clear(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/plants/import", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", medias[format])
	req.Header.Set("Authorization", "Bearer "+s.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusBadRequest || (res.StatusCode == http.StatusOK) != (uploadErr == nil) {
		t.Fatalf("%q: got %d %s, the upload: %v", text, res.StatusCode, body, uploadErr)
	}
	if got := s.Plants(t); !slices.Equal(got, uploaded) {
		t.Errorf("%q: the store has %+v, and after the upload %+v", text, got, uploaded)
	}
	if uploadErr != nil {
		return
	}
	got, err := wire.DecodeReport(body)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Errors {
		got.Errors[i].Err.Code = 0
	}
	want.Errors = want.Errors[:min(len(want.Errors), plantstore.MaxLineErrors)]
	if g, w := string(wire.EncodeReport(got, false)), string(wire.EncodeReport(want, false)); g != w {
		t.Errorf("%q: got %s, want %s", text, g, w)
	}
}

// FuzzImportArray imports arbitrary bytes as an array.
func FuzzImportArray(f *testing.F) {
	for _, file := range []string{
		"", "\n", " \r\n\t\n", "{}", "[]", " [ ] ", "[1,2]", "[1 2]", "[1,]", "[,1]", "[1", "[", "[1]]", "[1] 2", "[1],", "[[],{}]", "[null,\"\\ud800\"]", "[{\"id\":1,\"name\":\"a\"},{\"id\":2,\"name\":\"b\"}",
		"[{\"id\":1,\"name\":\"\xff\"}]", "[{\"id\":1,\"id\":1.0}]", "[{\"id\":1,\"name\":\"a\"},\n{\"id\":1,\"name\":\"b\"},{\"id\":1.0,\"name\":\"\\u0061\"}]", "\ufeff[]", "[{\"id\":1,\"name\":\"a\"}]x",
	} {
		f.Add([]byte(file))
	}
	s := newFileServer(f)
	f.Fuzz(func(t *testing.T, file []byte) { s.wantSame(t, plantfile.JSON, file) })
}

// cell is a field of a table.
type cell struct {
	text   string
	quoted bool
}

// row is a record of a table, and the line where it begins.
type row struct {
	line  int
	cells []cell
}

// readTable parses a table with the first delimiter that gives its header one id and one name,
// or with that of a line such as sep=; before the header.
func readTable(file string) (rows []row, broken int) {
	file = strings.TrimPrefix(decodeUTF16(file), "\ufeff")
	line, separators := 1, ",;\t"
	first, rest, _ := strings.Cut(file, "\n")
	if named := regexp.MustCompile(`(?i)\A"*sep=([\t!#$%&*,/:;=@\\^|~])"*\z`).FindStringSubmatch(strings.TrimSuffix(first, "\r")); named != nil && strings.Count(first, `"`)%2 == 0 {
		file, line, separators = rest, 2, named[1]
	}
	for i := range len(separators) {
		rows, broken = readRows(file, line, separators[i:i+1])
		if len(rows) > 0 {
			if _, _, _, ok := columns(rows[0]); ok {
				break
			}
		}
	}
	return rows, broken
}

// decodeUTF16 returns the text of a file with a byte order mark of UTF-16 as UTF-8. What is not
// valid becomes a byte that is not valid either.
func decodeUTF16(file string) string {
	var order binary.ByteOrder = binary.LittleEndian
	switch {
	case strings.HasPrefix(file, "\xfe\xff"):
		order = binary.BigEndian
	case !strings.HasPrefix(file, "\xff\xfe"):
		return file
	}
	var units []uint16
	for ; len(file) > 1; file = file[2:] {
		units = append(units, order.Uint16([]byte(file)))
	}
	text := string(utf16.Decode(units[1:]))
	if file != "" {
		text += "\uFFFD"
	}
	return strings.ReplaceAll(text, "\uFFFD", "\xff")
}

// readRows parses RFC 4180, one character after the other. It stops at the first
// record whose quotes are wrong, and returns its line, or 0.
func readRows(file string, line int, separator string) (rows []row, broken int) {
	for file != "" {
		r := row{line: line}
		for end := false; !end; {
			text, rest, quoted, ok := cutCell(file, separator)
			if !ok {
				return rows, r.line
			}
			line += strings.Count(file[:len(file)-len(rest)], "\n")
			end = rest == "" || rest[0] == '\n'
			if end && !quoted {
				text = strings.TrimSuffix(text, "\r")
			}
			r.cells = append(r.cells, cell{text, quoted})
			if rest != "" {
				rest = rest[1:]
			}
			file = rest
			if end {
				line++
			}
		}
		rows = append(rows, r)
	}
	return rows, 0
}

// cutCell cuts off the first field. The rest is empty, or begins with the separator or line
// feed that ends the field.
func cutCell(file, separator string) (text, rest string, quoted, ok bool) {
	if !strings.HasPrefix(file, `"`) {
		end := strings.IndexAny(file, separator+"\n")
		if end < 0 {
			end = len(file)
		}
		return file[:end], file[end:], false, !strings.Contains(file[:end], `"`)
	}
	for i := 1; i < len(file); i++ {
		switch {
		case file[i] != '"':
			text += file[i : i+1]
		case strings.HasPrefix(file[i:], `""`):
			text += `"`
			i++
		default:
			rest = file[i+1:]
			if rest == "\r" || strings.HasPrefix(rest, "\r\n") {
				rest = rest[1:]
			}
			return text, rest, true, rest == "" || rest[0] == separator[0] || rest[0] == '\n'
		}
	}
	return "", "", true, false
}

// columns finds the columns of a header. It is not ok if it has no id or no name, or a
// column twice.
func columns(header row) (id, name, tag int, ok bool) {
	at := map[string]int{"id": -1, "name": -1, "tag": -1}
	ok = true
	for i, c := range header.cells {
		column := strings.ToLower(strings.TrimSpace(c.text))
		if before, known := at[column]; known {
			ok = ok && before < 0
			at[column] = i
		}
	}
	return at["id"], at["name"], at["tag"], ok && at["id"] >= 0 && at["name"] >= 0
}

// jsonNumber has no exponent: spreadsheets write one when they have lost digits.
var jsonNumber = regexp.MustCompile(`\A-?(0|[1-9][0-9]*)(\.[0-9]+)?\z`)

// tablePlan is what the import of a table must do.
type tablePlan struct {
	created, unchanged, failed int
	plants                     map[plantstore.ID]plantstore.Plant
}

func planOf(header row, rows []row) tablePlan {
	plan := tablePlan{plants: map[plantstore.ID]plantstore.Plant{}}
	for _, r := range rows {
		p, ok := plantOf(header, r)
		existing, taken := plan.plants[p.ID]
		switch {
		case len(r.cells) == 1 && r.cells[0] == cell{}: // an empty line
		case !ok || taken && existing != p:
			plan.failed++
		case taken:
			plan.unchanged++
		default:
			plan.created++
			plan.plants[p.ID] = p
		}
	}
	return plan
}

func plantOf(header, r row) (plantstore.Plant, bool) {
	if len(r.cells) != len(header.cells) {
		return plantstore.Plant{}, false
	}
	for _, c := range r.cells {
		if !utf8.ValidString(c.text) {
			return plantstore.Plant{}, false
		}
	}
	id, name, tag, _ := columns(header)
	number := strings.TrimSpace(r.cells[id].text)
	value, ok := new(big.Rat).SetString(number)
	if !ok || !jsonNumber.MatchString(number) || !value.IsInt() || !value.Num().IsInt64() {
		return plantstore.Plant{}, false
	}
	p := plantstore.Plant{ID: plantstore.ID(value.Num().Int64()), Name: r.cells[name].text}
	if tag >= 0 && r.cells[tag] != (cell{}) {
		p.Tag = plantstore.NewTag(r.cells[tag].text)
	}
	return p, true
}

// FuzzImportCSV imports arbitrary bytes as a table. The result is what readTable
// finds, up to the first record whose quotes are wrong, which fails. Exporting it and
// importing that changes nothing.
func FuzzImportCSV(f *testing.F) {
	for _, file := range []string{
		"", "\n", "id", "id,name", "id,name\n", "id,name\r\n1,Oak\r\n", "id,name,tag\n1,Oak,tree\n2,Elm,\n3,Ash,\"\"\n", "\ufeffTag,Name , ID\r\na,Oak,7\r\n", "id,name\n1,\"a\nb\"\n2,c", "id,name\n1,\"a\r\nb\"\r\n2,c\r\n",
		"id,name\n1,\"\"\"\"\n", "id,name\n1,\"a\"\"b\"\n1,\"a\"\"b\"\n1,c\n", "id,name\n\n\n1,a\n\n2,b", "id,name\n1\n1,2,3\n,\n", "id,name\n1,\"open\n2,b\n", "id,name\n1,\"a\"b\n2,c\n", "id,name\n1,a\"b\n2,c\"d\n3,e\n",
		"id,name,tag\n1,5\" pot\n2,6\" pot\n", "id,name\n1,a\"b\"c\n", "id,name\n\"1\",a\n 2 ,b\n1e2,c\n1.0,d\n-0,e\n007,f\n+1,g\n0x1,h\n1e30,i\n1.5,j\n", "id,name\n9223372036854775807,a\n9223372036854775808,b\n-9223372036854775808,c\n",
		"id,name\n1,\xff\n2,\x00\n3,🌱\n", "name,id,id\na,1,2\n", "id,name,\"x\"y\n1,a,b\n", "\"id\",\"na\"\"me\",name\n1,x,y\n", "ID,NAME,TAG,tag\n1,a,b,c\n", "id,name\n1,a\r", "id,name\r1,a\r", "id,name\n1,\"a\"\r\n2,\"b\"\r", "id,name\n1,\"a\"\rb\n",
		"id,name,\n1,a,\n", "id;name\n1;a\n", "\ufeffid;name;tag\r\n1;a,b;\"c;d\"\r\n2;;\"\"\r\n", "id\tname\n1\ta;b\n", "\"id\";\"name\"\n1;\"a\"\n", "SEP=;\r\nid;name\r\n1;a\r\n", "sep=|\nid|name\n1|a\n", "\"sep=\t\"\nid\tname\n1\ta\n", "sep=;\nid,name\n1,a\n", "sep=;", "sep=\"\n", "id,name,id,\tid\tname\na\t1\tb\n",
		"\xff\xfei\x00d\x00;\x00n\x00a\x00m\x00e\x00\n\x001\x00;\x00\x3c\xd8\x31\xdf\n\x002\x00;\x00\x3c\xd8\n\x003\x00", "\xfe\xff\x00i\x00d\x00,\x00n\x00a\x00m\x00e\x00\n\x001\x00,\x00a\x00", "\xff\xfe", "\xff",
		"id,name\n1,=cmd()\n2,#x\n3,'y\n", "\"id\nx\",id,name\n1,2,a\n", "id,name\n\u00a01\u00a0,a\n", "id,name\n1,a,\n2,b\n", "id,name,tag\n1,,\n2,\"\",\n3,,\"\"\n", "\ufeff\ufeffid,name\n1,a\n", "id,name\n \n\t\n\r\n,",
	} {
		f.Add([]byte(file))
	}
	s := newFileServer(f)
	f.Fuzz(func(t *testing.T, file []byte) {
		s.wantSame(t, plantfile.CSV, file)
		s.Clear(t)
		created, unchanged, failed, err := s.load(t, plantfile.CSV, file)
		rows, broken := readTable(string(file))
		if len(rows) == 0 {
			if err == nil {
				t.Fatalf("%q was imported without a header", file)
			}
			return
		}
		if _, _, _, ok := columns(rows[0]); !ok {
			if err == nil {
				t.Fatalf("%q was imported without one id and one name", file)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", file, err)
		}
		want := planOf(rows[0], rows[1:])
		stored := s.Plants(t)
		if broken > 0 {
			wantBroken(t, file, broken, created+unchanged+failed)
			if created < want.created || failed <= want.failed {
				t.Errorf("%q: %d created, %d failed, want %d at least before line %d, which fails", file, created, failed, want.created, broken)
			}
			stored = slices.DeleteFunc(stored, func(p plantstore.Plant) bool { _, known := want.plants[p.ID]; return !known })
		} else if created != want.created || unchanged != want.unchanged || failed != want.failed {
			t.Errorf("%q: %d created, %d unchanged, %d failed, want %+v", file, created, unchanged, failed, want)
		}
		byID := func(a, b plantstore.Plant) int { return cmp.Compare(a.ID, b.ID) }
		if planned := slices.SortedFunc(maps.Values(want.plants), byID); !slices.Equal(stored, planned) {
			t.Errorf("%q: the store has %+v, want %+v", file, stored, planned)
		}
		s.wantRoundTrip(t)
	})
}

// wantBroken fails unless the record at that line fails and all records are counted.
func wantBroken(t *testing.T, file []byte, line, counted int) {
	t.Helper()
	r, err := plantfile.NewReader(bytes.NewReader(file), plantfile.CSV, plantfile.Options{MaxRecord: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	records, fails := 0, false
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		records++
		fails = fails || rec.Line == line && rec.Problem != nil
	}
	if records != counted {
		t.Errorf("%q has %d records, and %d were counted", file, records, counted)
	}
	if !fails {
		t.Errorf("%q: line %d does not fail", file, line)
	}
}

// wantRoundTrip exports everything in every format and imports that into an empty
// store. The plants and their next export must be the same.
func (s fileServer) wantRoundTrip(t *testing.T) {
	t.Helper()
	want := s.Plants(t)
	for _, format := range []plantfile.Format{plantfile.CSV, plantfile.JSON, plantfile.NDJSON} {
		file := s.export(t, format)
		s.Clear(t)
		created, unchanged, failed, err := s.load(t, format, file)
		if err != nil || created != len(want) || unchanged+failed > 0 || !slices.Equal(s.Plants(t), want) {
			t.Fatalf("%q became %d plants, %d unchanged, %d failed, %v; want %+v", file, created, unchanged, failed, err, want)
		}
		if again := s.export(t, format); !bytes.Equal(again, file) {
			t.Errorf("%q became %q", file, again)
		}
	}
}

func (s fileServer) export(t *testing.T, format plantfile.Format) []byte {
	t.Helper()
	var out bytes.Buffer
	w := plantfile.Writer{Layout: format.Layout(false), Out: bufio.NewWriter(&out)}
	for plant, err := range s.api.Export(t.Context(), plantstore.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		record, err := format.Append(nil, plant, false)
		if err == nil {
			err = w.Write(record)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
