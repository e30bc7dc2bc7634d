package plantfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"plantstore"
	"plantstore/internal/wire"
)

// readAll reads all records of a file in one format.
func readAll(t testing.TB, format Format, file string) []Record {
	t.Helper()
	r, err := NewReader(strings.NewReader(file), format, options)
	if err != nil {
		t.Fatalf("read %q as %s: %v", plantstore.Shorten(file), format, err)
	}
	var records []Record
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return records
		}
		if err != nil {
			t.Fatalf("read %q as %s: %v", plantstore.Shorten(file), format, err)
		}
		records = append(records, Record{bytes.Clone(rec.JSON), bytes.Clone(rec.Source), rec.Line, rec.Problem})
	}
}

func TestRecordsAreReadInEveryFormat(t *testing.T) {
	type want struct {
		line          int
		json, problem string
	}
	for _, test := range []struct {
		name   string
		format Format
		file   string
		want   []want
	}{
		{"lines", NDJSON, "{\"id\":1}\n\n  {\"id\":2}\r\n{\"id\":3", []want{
			{1, `{"id":1}`, ""}, {3, `{"id":2}`, ""}, {4, `{"id":3`, ""},
		}},
		{"an empty file of lines", NDJSON, "", nil},
		{"an array", JSON, " [ {\"id\": 1, \"name\": \"a b\"},\n 5 ,[ ] ] \n", []want{
			{1, `{"id":1,"name":"a b"}`, ""}, {2, `5`, ""}, {3, `[]`, ""},
		}},
		{"an array whose elements only the server validates", JSON, `[{"id":1,"id":2},{"id":9007199254740993.0}]`, []want{
			{1, `{"id":1,"id":2}`, ""}, {2, `{"id":9007199254740993.0}`, ""},
		}},
		{"an empty array", JSON, "[]", nil},
		{"a table", CSV, "id,name,tag\n1,Oak,tree\n-2, Elm ,\n", []want{
			{2, `{"id":1,"name":"Oak","tag":"tree"}`, ""}, {3, `{"id":-2,"name":" Elm "}`, ""},
		}},
		{"a table from a spreadsheet", CSV, "\uFEFFTag;x,Name , ID\r\na,Oak,7\r\n", []want{
			{2, `{"id":7,"name":"Oak"}`, ""},
		}},
		{"quotes", CSV, "id,name,tag\n1,\"a,\"\"b\"\"\r\nc\",\"\"\n2,,\"x\"\n", []want{
			{2, `{"id":1,"name":"a,\"b\"\r\nc","tag":""}`, ""}, {4, `{"id":2,"name":"","tag":"x"}`, ""},
		}},
		{"a table with semicolons", CSV, "\uFEFFid;name;tag;Preis\r\n1;\"Ölbaum; groß\";a,b;1,50\r\n", []want{
			{2, `{"id":1,"name":"Ölbaum; groß","tag":"a,b"}`, ""},
		}},
		{"a table with tabs", CSV, "id\tname\n1\tOak, red; old\n", []want{{2, `{"id":1,"name":"Oak, red; old"}`, ""}}},
		{"a table that names its separator", CSV, "sep=|\r\nid|name\r\n1|a,b;c\r\n", []want{{3, `{"id":1,"name":"a,b;c"}`, ""}}},
		{"a table in UTF-16", CSV, "\xff\xfei\x00d\x00\t\x00n\x00a\x00m\x00e\x00\r\x00\n\x001\x00\t\x00\x3c\xd8\x31\xdf\r\x00\n\x002\x00\t\x00\x3c\xd8\n\x00", []want{
			{2, `{"id":1,"name":"🌱"}`, ""}, {3, "", "the record is not valid UTF-16"},
		}},
		{"a table in big-endian UTF-16", CSV, "\xfe\xff\x00i\x00d\x00;\x00n\x00a\x00m\x00e\x00\n\x001\x00;\x00a", []want{{2, `{"id":1,"name":"a"}`, ""}}},
		{"an id that is no number is left to the server", CSV, "id,name\nsix,a\n1.0,b\n,c\n", []want{
			{2, `{"id":"six","name":"a"}`, ""},
			{3, `{"id":1.0,"name":"b"}`, ""},
			{4, `{"id":"","name":"c"}`, ""},
		}},
		{"ids that a spreadsheet has changed", CSV, "id;name\n1.23457E+15;a\n1,23457E+15;b\n1e2;c\n0034;d\n+33;e\n1\u00a0234;f\n1.234.567;g\n1,5;h\n", []want{
			{2, "", lostDigits("1.23457E+15")},
			{3, "", lostDigits("1,23457E+15")},
			{4, "", lostDigits("1e2")},
			{5, "", notPlain("0034")},
			{6, "", notPlain("+33")},
			{7, "", notPlain("1\u00a0234")},
			{8, "", notPlain("1.234.567")},
			{9, "", notPlain("1,5")},
		}},
		{"records that cannot be sent", CSV, "id,name\n1\n2,\"a\"b\n3,\xff\n4,ok\n5,\"open\n6,in it", []want{
			{2, "", "the record has 1 field, but the header has 2"},
			{3, "", "unexpected text after a closing quote"},
			{4, "", "the record is not valid UTF-8"},
			{5, `{"id":4,"name":"ok"}`, ""},
			{6, "", "unclosed quote"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []want
			for _, rec := range readAll(t, test.format, test.file) {
				problem := ""
				if rec.Problem != nil {
					problem = rec.Problem.Error()
				}
				got = append(got, want{rec.Line, string(rec.JSON), problem})
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func lostDigits(id string) string {
	return `"id" must be a number in plain digits, got ` + id + `: a spreadsheet has lost the others; format the column as text there, and enter the ids again`
}

func notPlain(id string) string {
	return `"id" must be a number in plain digits, without leading zeros, a plus sign or separators, got ` + id
}

func TestFileInAnotherFormatIsRefused(t *testing.T) {
	for _, test := range []struct {
		format     Format
		file, want string
	}{
		{JSON, `{"id":1}`, "must be a JSON array"},
		{JSON, ``, "must be a JSON array"},
		{CSV, "a,b\n1,2\n", `must name the columns id and name, and may name tag; with the separator comma it has "a", "b"`},
		{CSV, "a;b;c,d\n1;2;3\n", `with the separator semicolon it has "a", "b", "c,d"`},
		{CSV, "sep=|\na|b\n1|2\n", `with the separator "|" it has "a", "b"`},
		{CSV, "id|name\n1|2\n", `with the separator comma it has "id|name"; for another separator than comma, semicolon or tab, use --delimiter`},
		{CSV, "", "must name the columns id and name"},
		{CSV, "\"id\"x;name\n", "malformed header: "},
		{CSV, "id,name,name\n1,a,b\n", "the header names the column name twice"},
		{CSV, "error,ID, id ,name\n,1,2,a\n", "the header names the column id twice"},
		{CSV, "tag,id,name,Tag\na,1,b,c\n", "the header names the column tag twice"},
	} {
		if _, err := NewReader(strings.NewReader(test.file), test.format, options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %q: got %v, want %q in it", test.format, test.file, err, test.want)
		}
	}
	for _, file := range []string{`[{"id":1},`, `[{"id":1}] 5`, `[{"id":1} {"id":2}]`} {
		r, err := NewReader(strings.NewReader(file), JSON, options)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(); err != nil {
			t.Errorf("%q: the first element: %v", file, err)
		}
		if _, err := r.Next(); err == nil || err == io.EOF {
			t.Errorf("%q: got %v for a broken array", file, err)
		}
	}
}

func TestTooLongRecordIsSkipped(t *testing.T) {
	long := strings.Repeat("x", options.MaxRecord+1)
	for _, test := range []struct {
		format Format
		file   string
	}{
		{NDJSON, long + "\n{\"id\":2}\n"},
		{CSV, "id,name\n1," + long + "\n2,b\n"},
		{CSV, "id,name\n1," + strings.Repeat("\x00", options.MaxRecord/6) + "\n2,b\n"},
		{CSV, "id,name,tag\n1," + long[:options.MaxRecord-12] + ",x\n2,b,\n"},
		{JSON, `["` + long + `",{"id":2}]`},
		{JSON, "[ \n" + `{"id":1,"a":[{}, {"b":"\"]}"}],"name":"` + long + `\\" , "c":[ ] }` + "\n , " + `{"id":2}]`},
		{JSON, "[" + strings.Repeat("1", options.MaxRecord+1) + "\t,{\"id\":2}]"},
		{JSON, `["` + long[:options.MaxRecord-1] + `",{"id":2}]`},
	} {
		records := readAll(t, test.format, test.file)
		if len(records) != 2 || !errors.Is(records[0].Problem, plantstore.ErrTooLarge) || records[1].Problem != nil || records[1].Line != records[0].Line+1 {
			t.Errorf("%s: got %d records, the first with the problem %q", test.format, len(records), records[0].Problem)
		}
	}
	if records := readAll(t, CSV, "id,name\n1,"+strings.Repeat("\x00", options.MaxRecord/6-10)+"\n"); len(records) != 1 || records[0].Problem != nil {
		t.Errorf("a record of the greatest length has the problem %q", records[0].Problem)
	}
	if records := readAll(t, JSON, `["`+long[:options.MaxRecord-2]+`"]`); len(records) != 1 || records[0].Problem != nil {
		t.Errorf("an element of the greatest length has the problem %q", records[0].Problem)
	}
}

// What follows an element that is too long is read as strictly as ever.
func TestArrayBreaksAfterATooLongElement(t *testing.T) {
	long := `["` + strings.Repeat("x", options.MaxRecord+1)
	for _, rest := range []string{``, `"`, `",`, `" 5]`, `".5]`, `"]]`} {
		r, err := NewReader(strings.NewReader(long+rest), JSON, options)
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, plantstore.ErrNotJSON) {
			t.Errorf("%q: got %v", rest, err)
		}
	}
}

// A file that cannot be read is not called malformed.
func TestReadErrorIsPassedOn(t *testing.T) {
	for _, format := range []Format{NDJSON, JSON, CSV} {
		for _, file := range []string{"", "[", "[ {", "id,name\n", "id,name\n1,", "[1]"} {
			want := errors.New("lost")
			r, err := NewReader(io.MultiReader(strings.NewReader(file), iotest.ErrReader(want)), format, options)
			for err == nil {
				_, err = r.Next()
			}
			if err != want && (format != JSON || file[0] == '[') {
				t.Errorf("%s %q: got %v", format, file, err)
			}
		}
	}
}

func TestFormulasAreNeutralised(t *testing.T) {
	for text, want := range map[string]string{
		"=1": "'=1", "+1": "'+1", "-1": "'-1", "@a": "'@a", "\ta": "'\ta", "\ra": "'\ra", "\na": "'\na",
		"": "", "a=1": "a=1", "'=1": "'=1", "日": "日",
	} {
		got := Neutralised(plantstore.StoredPlant{Plant: plantstore.Plant{Name: text, Tag: plantstore.NewTag(text)}}).Plant
		if want := (plantstore.Plant{Name: want, Tag: plantstore.NewTag(want)}); got != want {
			t.Errorf("%q became %v, want %v", text, got, want)
		}
	}
	if got := Neutralised(plantstore.StoredPlant{}); got != (plantstore.StoredPlant{}) {
		t.Errorf("an absent tag became %v", got)
	}
}

// FuzzCSV writes a plant as a record and reads it back. Nothing may change, and an
// absent tag must not become an empty one.
func FuzzCSV(f *testing.F) {
	for _, text := range []string{"", "a", `"`, `""`, ",", "\n", "\r\n", "\r", " a ", "\x00", "🌱", "שלום", "\u2028", "#", "="} {
		f.Add(int64(1), text, text, true)
		f.Add(int64(-9223372036854775808), text, "", false)
	}
	f.Fuzz(func(t *testing.T, id int64, name, tag string, tagged bool) {
		if !utf8.ValidString(name) || !utf8.ValidString(tag) {
			t.Skip("not a valid plant")
		}
		want := plantstore.Plant{ID: plantstore.ID(id), Name: name}
		if tagged {
			want.Tag = plantstore.NewTag(tag)
		}
		file := appendCSV([]byte(Header), plantstore.StoredPlant{Plant: want}, false)
		file = appendCSV(file, plantstore.StoredPlant{Plant: plantstore.Plant{ID: 5, Name: "next"}}, false)
		records := readAll(t, CSV, string(file))
		if len(records) != 2 || records[0].Problem != nil {
			t.Fatalf("%q: %d records, problem %q", file, len(records), records[0].Problem)
		}
		got, err := wire.DecodeNewPlant(bytes.NewBuffer(bytes.Clone(records[0].JSON)))
		if err != nil || got != want {
			t.Errorf("%q became %q, which is %v, %v; want %v", file, records[0].JSON, got, err, want)
		}
	})
}

// FuzzRecords reads arbitrary bytes as NDJSON and as a JSON array. The records are the
// lines, and the elements that encoding/json finds. If that finds no array, reading
// ends in an error.
func FuzzRecords(f *testing.F) {
	for _, file := range []string{
		"", "\n", " \r\n\t\n", "{}", "{}\n", "a\r\nb\n\n c ", "\u00a0\n\u0085x\n", "\v\f", "x\ry", "[]", " [ ] ", "[1,2]", "[1,\n2\n]\n", "[1 2]", "[1,]", "[,1]", "[1", "[", "[1]]", "[1] 2", "[1],", "{}[", "[[],{}]", "[null,\"\\ud800\"]",
		"[\"\xff\"]", "[{\"id\":1,\"id\":1.0}]", "[1e400, -0]", "[\"\\u0000\"]", "\ufeff[]", "[\"\n\"]", "[01]", "[nul]", "[\"" + strings.Repeat("x", 5000) + "\"]", strings.Repeat("[", 50) + strings.Repeat("]", 50),
	} {
		f.Add([]byte(file))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		var want []string
		for i, line := range strings.Split(string(file), "\n") {
			if line = strings.Trim(line, " \t\r"); line != "" {
				want = append(want, fmt.Sprint(i+1, " ", strconv.Quote(line)))
			}
		}
		var got []string
		for _, r := range readAll(t, NDJSON, string(file)) {
			got = append(got, fmt.Sprint(r.Line, " ", strconv.Quote(string(r.JSON))))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q has the lines %v, want %v", file, got, want)
		}
		checkArray(t, file)
	})
}

func checkArray(t *testing.T, file []byte) {
	t.Helper()
	var want []json.RawMessage
	whole := json.Unmarshal(file, &want) == nil && want != nil
	var got []string
	r, err := NewReader(bytes.NewReader(file), JSON, options)
	for err == nil {
		var rec Record
		if rec, err = r.Next(); err == nil {
			got = append(got, string(rec.JSON))
		}
	}
	if (err == io.EOF) != whole {
		t.Fatalf("%q is an array to encoding/json: %t, and to the command: %v", file, whole, err)
	}
	if !whole {
		return
	}
	for i, element := range want {
		var compact bytes.Buffer
		if err := json.Compact(&compact, element); err != nil || i >= len(got) || got[i] != compact.String() {
			t.Fatalf("%q has the elements %q, want %q as number %d: %v", file, got, element, i+1, err)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%q has %d elements, want %d", file, len(got), len(want))
	}
}

func TestReasonIsAddedToWhateverFailed(t *testing.T) {
	for _, test := range []struct{ source, want string }{
		{`{"id":1}`, `{"error":"why","id":1}`},
		{`{}`, `{"error":"why"}`},
		{` { "id" : 1 , "error":"before", "x":{"error":2} } `, `{"error":"why","id":1,"x":{"error":2}}`},
		{`{"error":1e999,"source":[5],"error":null}`, `{"error":"why","source":[5]}`},
		{`null`, `{"error":"why","source":null}`},
		{`{"id":1.0e5,"name":"\u0041\/"}`, `{"error":"why","id":1.0e5,"name":"\u0041\/"}`},
		{`{"id":1,"id":2}`, `{"error":"why","id":1,"id":2}`},
		{"{\"name\":\"\xff\"}", "{\"error\":\"why\",\"name\":\"\xff\"}"},
		{`[1, 2]`, `{"error":"why","source":[1,2]}`},
		{`{"id":1} x`, `{"error":"why","source":"{\"id\":1} x"}`},
		{`{"id":1`, `{"error":"why","source":"{\"id\":1"}`},
		{"a\xffb", `{"error":"why","source":"a` + "\uFFFD" + `b"}`},
	} {
		if got := (jsonRecords{}).WithReason([]byte(test.source), "why"); string(got) != test.want {
			t.Errorf("%q became %q, want %q", test.source, got, test.want)
		}
	}
	if got, want := string((jsonRecords{}).WithReason(nil, "why")), `{"error":"why"}`; got != want {
		t.Errorf("a record that was too long became %q, want %q", got, want)
	}
}
