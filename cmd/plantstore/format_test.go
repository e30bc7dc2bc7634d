package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"plantstore"
	"plantstore/internal/wire"
)

// readAll reads all records of a file in one format.
func readAll(t testing.TB, format, file string) []record {
	t.Helper()
	r, err := newRecordReader(format, 0, strings.NewReader(file))
	if err != nil {
		t.Fatalf("read %q as %s: %v", file, format, err)
	}
	var records []record
	for {
		rec, err := r.next()
		if err == io.EOF {
			return records
		}
		if err != nil {
			t.Fatalf("read %q as %s: %v", file, format, err)
		}
		records = append(records, record{bytes.Clone(rec.json), bytes.Clone(rec.source), rec.line, rec.problem})
	}
}

func TestRecordsAreReadInEveryFormat(t *testing.T) {
	type want struct {
		line          int
		json, problem string
	}
	for _, test := range []struct {
		name, format, file string
		want               []want
	}{
		{"lines", formatNDJSON, "{\"id\":1}\n\n  {\"id\":2}\r\n{\"id\":3", []want{
			{1, `{"id":1}`, ""}, {3, `{"id":2}`, ""}, {4, `{"id":3`, ""},
		}},
		{"an empty file of lines", formatNDJSON, "", nil},
		{"an array", formatJSON, " [ {\"id\": 1, \"name\": \"a b\"},\n 5 ,[ ] ] \n", []want{
			{1, `{"id":1,"name":"a b"}`, ""}, {2, `5`, ""}, {3, `[]`, ""},
		}},
		{"an array whose elements only the server validates", formatJSON, `[{"id":1,"id":2},{"id":9007199254740993.0}]`, []want{
			{1, `{"id":1,"id":2}`, ""}, {2, `{"id":9007199254740993.0}`, ""},
		}},
		{"an empty array", formatJSON, "[]", nil},
		{"a table", formatCSV, "id,name,tag\n1,Oak,tree\n-2, Elm ,\n", []want{
			{2, `{"id":1,"name":"Oak","tag":"tree"}`, ""}, {3, `{"id":-2,"name":" Elm "}`, ""},
		}},
		{"a table from a spreadsheet", formatCSV, "\uFEFFTag;x,Name , ID\r\na,Oak,7\r\n", []want{
			{2, `{"id":7,"name":"Oak"}`, ""},
		}},
		{"quotes", formatCSV, "id,name,tag\n1,\"a,\"\"b\"\"\r\nc\",\"\"\n2,,\"x\"\n", []want{
			{2, `{"id":1,"name":"a,\"b\"\r\nc","tag":""}`, ""}, {4, `{"id":2,"name":"","tag":"x"}`, ""},
		}},
		{"a table with semicolons", formatCSV, "\uFEFFid;name;tag;Preis\r\n1;\"Ölbaum; groß\";a,b;1,50\r\n", []want{
			{2, `{"id":1,"name":"Ölbaum; groß","tag":"a,b"}`, ""},
		}},
		{"a table with tabs", formatCSV, "id\tname\n1\tOak, red; old\n", []want{{2, `{"id":1,"name":"Oak, red; old"}`, ""}}},
		{"a table that names its separator", formatCSV, "sep=|\r\nid|name\r\n1|a,b;c\r\n", []want{{3, `{"id":1,"name":"a,b;c"}`, ""}}},
		{"a table in UTF-16", formatCSV, "\xff\xfei\x00d\x00\t\x00n\x00a\x00m\x00e\x00\r\x00\n\x001\x00\t\x00\x3c\xd8\x31\xdf\r\x00\n\x002\x00\t\x00\x3c\xd8\n\x00", []want{
			{2, `{"id":1,"name":"🌱"}`, ""}, {3, "", "the record is not valid UTF-16"},
		}},
		{"a table in big-endian UTF-16", formatCSV, "\xfe\xff\x00i\x00d\x00;\x00n\x00a\x00m\x00e\x00\n\x001\x00;\x00a", []want{{2, `{"id":1,"name":"a"}`, ""}}},
		{"an id that is no number is left to the server", formatCSV, "id,name\nsix,a\n1.0,b\n,c\n", []want{
			{2, `{"id":"six","name":"a"}`, ""},
			{3, `{"id":1.0,"name":"b"}`, ""},
			{4, `{"id":"","name":"c"}`, ""},
		}},
		{"ids that a spreadsheet has changed", formatCSV, "id;name\n1.23457E+15;a\n1,23457E+15;b\n1e2;c\n0034;d\n+33;e\n1\u00a0234;f\n1.234.567;g\n1,5;h\n", []want{
			{2, "", lostDigits("1.23457E+15")},
			{3, "", lostDigits("1,23457E+15")},
			{4, "", lostDigits("1e2")},
			{5, "", notPlain("0034")},
			{6, "", notPlain("+33")},
			{7, "", notPlain("1\u00a0234")},
			{8, "", notPlain("1.234.567")},
			{9, "", notPlain("1,5")},
		}},
		{"records that cannot be sent", formatCSV, "id,name\n1\n2,\"a\"b\n3,\xff\n4,ok\n5,\"open\n6,in it", []want{
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
				got = append(got, want{rec.line, string(rec.json), rec.problem})
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
	for _, test := range []struct{ format, file, want string }{
		{formatJSON, `{"id":1}`, "must be a JSON array"},
		{formatJSON, ``, "must be a JSON array"},
		{formatCSV, "a,b\n1,2\n", `must name the columns id and name, and may name tag; with the separator comma it has "a", "b"`},
		{formatCSV, "a;b;c,d\n1;2;3\n", `with the separator semicolon it has "a", "b", "c,d"`},
		{formatCSV, "sep=|\na|b\n1|2\n", `with the separator "|" it has "a", "b"`},
		{formatCSV, "id|name\n1|2\n", `with the separator comma it has "id|name"; for another separator than comma, semicolon or tab, use --delimiter`},
		{formatCSV, "", "must name the columns id and name"},
		{formatCSV, "\"id\"x;name\n", "malformed header: "},
		{formatCSV, "id,name,name\n1,a,b\n", "the header names the column name twice"},
		{formatCSV, "error,ID, id ,name\n,1,2,a\n", "the header names the column id twice"},
		{formatCSV, "tag,id,name,Tag\na,1,b,c\n", "the header names the column tag twice"},
	} {
		if _, err := newRecordReader(test.format, 0, strings.NewReader(test.file)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %q: got %v, want %q in it", test.format, test.file, err, test.want)
		}
	}
	for _, file := range []string{`[{"id":1},`, `[{"id":1}] 5`, `[{"id":1} {"id":2}]`} {
		r, err := newRecordReader(formatJSON, 0, strings.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.next(); err != nil {
			t.Errorf("%q: the first element: %v", file, err)
		}
		if _, err := r.next(); err == nil || err == io.EOF {
			t.Errorf("%q: got %v for a broken array", file, err)
		}
	}
}

func TestTooLongRecordIsSkipped(t *testing.T) {
	long := strings.Repeat("x", maxRecord+1)
	for format, file := range map[string]string{
		formatNDJSON: long + "\n{\"id\":2}\n",
		formatCSV:    "id,name\n1," + long + "\n2,b\n",
	} {
		records := readAll(t, format, file)
		if len(records) != 2 || !strings.Contains(records[0].problem, "longer than") || records[1].problem != "" {
			t.Errorf("%s: got %d records, the first with the problem %q", format, len(records), records[0].problem)
		}
	}
}

func TestFormatIsPickedByFileName(t *testing.T) {
	for _, test := range []struct{ file, asked, want string }{
		{"a.csv", "", formatCSV},
		{"a.JSON", "", formatJSON},
		{"a.ndjson", "", formatNDJSON},
		{"a.jsonl", "", formatNDJSON},
		{"-", "", formatNDJSON},
		{"a.csv", formatJSON, formatJSON},
		{"plants", formatCSV, formatCSV},
	} {
		if got, err := pickFormat(test.file, test.asked); err != nil || got != test.want {
			t.Errorf("pickFormat(%q, %q) = %q, %v, want %q", test.file, test.asked, got, err, test.want)
		}
	}
	if _, err := pickFormat("plants", ""); err == nil {
		t.Error("a name without an extension is accepted")
	}
}

func TestFormulasAreNeutralised(t *testing.T) {
	for text, want := range map[string]string{
		"=1": "'=1", "+1": "'+1", "-1": "'-1", "@a": "'@a", "\ta": "'\ta", "\ra": "'\ra", "\na": "'\na",
		"": "", "a=1": "a=1", "'=1": "'=1", "日": "日",
	} {
		got := neutralised(plantstore.Plant{Name: text, Tag: plantstore.NewTag(text)})
		if want := (plantstore.Plant{Name: want, Tag: plantstore.NewTag(want)}); got != want {
			t.Errorf("%q became %v, want %v", text, got, want)
		}
	}
	if got := neutralised(plantstore.Plant{}); got != (plantstore.Plant{}) {
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
		file := appendCSV([]byte("id,name,tag\n"), want)
		file = appendCSV(file, plantstore.Plant{ID: 5, Name: "next"})
		records := readAll(t, formatCSV, string(file))
		if len(records) != 2 || records[0].problem != "" {
			t.Fatalf("%q: %d records, problem %q", file, len(records), records[0].problem)
		}
		got, err := wire.DecodeNewPlant(bytes.NewBuffer(bytes.Clone(records[0].json)))
		if err != nil || got != want {
			t.Errorf("%q became %q, which is %v, %v; want %v", file, records[0].json, got, err, want)
		}
	})
}
