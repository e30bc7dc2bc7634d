package plantfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
)

// options have the hint of the command.
var options = Options{
	MaxRecord:     1 << 20,
	DelimiterHint: "; for another separator than comma, semicolon or tab, use --delimiter",
}

// fileCases are in testdata/files.json. The tests of the console read them, too, so that its
// preview shows what the server reads.
type fileCases struct {
	Tables []struct {
		Name, Text string
		Encoding   string   // UTF-8 if empty
		Records    []string // line:json, or line!problem
		Ignored    []string
		Refused    string // why there are no records
	}
}

func readFileCases(t *testing.T) (cases fileCases) {
	t.Helper()
	text, err := os.ReadFile("testdata/files.json")
	if err == nil {
		err = json.Unmarshal(text, &cases)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

var encodings = map[string]encoding.Encoding{
	"":         encoding.Nop,
	"latin1":   charmap.ISO8859_1,
	"utf-16le": unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM),
	"utf-16be": unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM),
}

func TestTablesAreRead(t *testing.T) {
	t.Parallel()
	for _, c := range readFileCases(t).Tables {
		t.Run(c.Name, func(t *testing.T) {
			file, err := encodings[c.Encoding].NewEncoder().String(c.Text)
			if err != nil {
				t.Fatal(err)
			}
			r, err := newCSVReader(bytes.NewReader([]byte(file)), options)
			if err != nil {
				if err.Error() != c.Refused {
					t.Errorf("got %q, want %q", err, c.Refused)
				}
				return
			}
			if c.Refused != "" || !slices.Equal(r.ignored, c.Ignored) {
				t.Errorf("ignored the columns %q, want %q, refused: %q", r.ignored, c.Ignored, c.Refused)
			}
			if got := readRecords(t, r); !slices.Equal(got, c.Records) {
				t.Errorf("got %q\nwant %q", got, c.Records)
			}
		})
	}
}

// readRecords returns the records as line:json, or line!problem.
func readRecords(t *testing.T, r *csvReader) (all []string) {
	t.Helper()
	for {
		rec, err := r.Next()
		switch {
		case err == io.EOF:
			return all
		case err != nil:
			t.Fatal(err)
		case rec.Problem != nil:
			all = append(all, fmt.Sprintf("%d!%s", rec.Line, rec.Problem))
		default:
			all = append(all, fmt.Sprintf("%d:%s", rec.Line, rec.JSON))
		}
	}
}

// A file of failed records is ready to import, whatever its separator.
// A file of separators must not take many times the memory of its text.
func TestFieldsBeyondTheColumnsAreOnlyCounted(t *testing.T) {
	t.Parallel()
	separators := strings.Repeat(",", options.MaxRecord-10)
	_, err := newCSVReader(strings.NewReader("id,name"+separators), options)
	if want := "the header has 1048568 columns with the separator comma: at most 1000 are allowed"; err == nil || err.Error() != want {
		t.Errorf("a wide header: %v, want %s", err, want)
	}
	r, err := newCSVReader(strings.NewReader("id,name\n1"+separators+"\n2,b\n"), options)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := r.Next()
	if want := "the record has 1048567 fields, but the header has 2"; err != nil || rec.Problem == nil || rec.Problem.Error() != want {
		t.Errorf("a wide record: %v, %v, want %s", rec.Problem, err, want)
	}
	if n := cap(r.fields); n > 2000 {
		t.Errorf("there is memory for %d fields", n)
	}
	if rec, err := r.Next(); string(rec.JSON) != `{"id":2,"name":"b"}` || err != nil {
		t.Errorf("the record after it: %+v, %v", rec, err)
	}
}

func TestFailedRecordsNameTheirSeparator(t *testing.T) {
	t.Parallel()
	r, err := newCSVReader(bytes.NewReader([]byte("sep=|\nid|name\n1|\"a|b\"\n")), options)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	again, err := newCSVReader(bytes.NewReader(fmt.Appendf(nil, "%s%s\n", r.Failures().First, r.WithReason(rec.Source, "no"))), options)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := readRecords(t, again), []string{`3:{"id":1,"name":"a|b"}`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
