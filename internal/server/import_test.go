package server_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/server"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
	"plantstore/internal/wire"
)

const (
	csv   = "Content-Type: text/csv"
	array = "Content-Type: application/json"
)

func TestImportOfATable(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		s.Fill(t, plant(1, "there"))
		body := strings.Join([]string{
			"\ufeffName;x;ID;Tag\r",
			`"two` + "\n" + `lines";;3;""` + "\r",
			"there;;1;",
			"other;;1;",
			"",
			"b;;2;x",
			"b;;2",
			`"b"c;;2;`,
			"far;;9223372036854775808;",
			"round;;1,23E+05;",
			"none;;;",
			"last;;-5;",
		}, "\n")
		want := []string{"5:40010", "8:40008", "9:40008", "10:40005", "11:40004", "12:40004"}
		s.call(t, "POST", "/import", body, csv).wantReport(t, 3, 1, 6, want...)
		s.wantStored(t, plant(-5, "last"), plant(1, "there"), plant(2, "b", "x"), plant(3, "two\nlines", ""))
		s.call(t, "POST", "/import", body, csv+"; charset=utf-8").wantReport(t, 0, 4, 6, want...)
		s.call(t, "POST", "/import", "sep=|\nid|name\n6|a,b\n", "Content-Type: Text/CSV").wantReport(t, 1, 0, 0)
		s.call(t, "POST", "/import", "\xff\xfei\x00d\x00,\x00n\x00a\x00m\x00e\x00\n\x007\x00,\x00\xd6\x00", csv).wantReport(t, 1, 0, 0)
		s.call(t, "POST", "/import", "id,name\n", csv).wantReport(t, 0, 0, 0)
		for body, why := range map[string]string{
			"":                  "the header must name the columns id and name",
			"id|name\n1|a\n":    `in a line such as sep=| before the header`,
			"id,name,id\n1,a,1": "the header names the column id twice",
			`"id`:               "malformed header: unclosed quote",
		} {
			s.call(t, "POST", "/import", body, csv).wantError(t, plantstore.ErrNotCSV, why)
		}
	})
}

func TestImportOfAnArray(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		s.Fill(t, plant(1, "there"))
		body := `[{"id":3,"name":"c"}, {"id":1,
			"name":"there"},{"id":1,"name":"other"},5,{"id":2,"id":2,"name":"b"},{"id":2}]`
		want := []string{"3:40010", "4:40002", "5:40001", "6:40003"}
		s.call(t, "POST", "/import", body, array).wantReport(t, 1, 1, 4, want...)
		s.wantStored(t, plant(1, "there"), plant(3, "c"))
		s.call(t, "POST", "/import", " [ ] ", array).wantReport(t, 0, 0, 0)
		s.call(t, "POST", "/import", "", array).wantError(t, plantstore.ErrNotObject, "must be a JSON array")
	})
}

// What came before the break is handled, and counted.
func TestArrayThatBreaksOffSaysHowMuchWasHandled(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		s.Fill(t, plant(1, "there"))
		for i, end := range []string{`,{"id"`, ``, `,nul,{"id":9,"name":"x"}]`, `] 7`, ` {"id":9,"name":"x"}]`, `,]`} {
			body := fmt.Sprintf(`[{"id":1,"name":"there"},{"id":%d,"name":"new"},{"name":"none"}%s`, 10+i, end)
			s.call(t, "POST", "/import", body, array).wantError(t, plantstore.ErrNotJSON, "before that, 1 were created, 1 unchanged and 1 failed")
		}
		if got := len(s.Plants(t)); got != 7 {
			t.Errorf("%d plants, want 7", got)
		}
	})
}

// The end of an array that breaks off must not hide that the store failed: what the message would
// count is not known.
func TestFailedWriteIsNotHiddenByABrokenFile(t *testing.T) {
	t.Parallel()
	store := &faultyStore{Model: storetest.NewModel(), onApply: func() error { return errors.New("disk") }}
	s := start(t, servertest.Options{Store: store})
	for _, end := range []string{`,nul]`, `] 7`} {
		s.call(t, "POST", "/import", `[{"id":1,"name":"a"}`+end, array).wantError(t, plantstore.ErrUnavailable)
	}
}

func TestImportSkipsARecordThatIsTooLong(t *testing.T) {
	s := start(t, servertest.Options{MaxBody: 1000})
	long := strings.Repeat("x", 2000)
	s.call(t, "POST", "/import", "id,name\n1,"+long+"\n2,b\n3,"+strings.Repeat("\x00", 200)+"\n", csv).wantReport(t, 1, 0, 2, "2:41301", "4:41301")
	got := s.call(t, "POST", "/import", `[{"id":1,"name":"`+long+`"},{"id":3,"name":"`+strings.Repeat(long, 100)+`"},{"id":2,"name":"b"}]`, array)
	got.wantReport(t, 0, 1, 2, "1:41301", "2:41301")
	if want := "longer than the limit of 1000 bytes"; !strings.Contains(string(got.body), want) {
		t.Errorf("got %s, want %q in it", got.body, want)
	}
}

// A dry run says what an import would do, whether its lines are in one window or several.
func TestDryRunReportsWhatTheImportThenDoes(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		there := []plantstore.Plant{plant(1, "there"), plant(2, "taken", "")}
		s.Fill(t, there...)
		var lines strings.Builder
		line := func(id int, name string) { fmt.Fprintf(&lines, "%d,%s\n", id, name) }
		line(1, "there")
		line(2, "taken") // without a tag
		line(3, "twice")
		line(3, "twice")
		line(3, "differs")
		const n = server.WindowLines + 500
		for id := range n {
			line(10+id, "new")
		}
		line(10, "new")
		line(10+n-1, "other")
		line(3, "twice")
		line(3, "differs")
		table := "id,name\n" + lines.String() + "x,none\n"
		want := []string{"3:40010", "6:40010", fmt.Sprint(n+8) + ":40010", fmt.Sprint(n+10) + ":40010", fmt.Sprint(n+11) + ":40004"}
		trial := s.call(t, "POST", "/import?dry_run=true", table, csv)
		trial.wantReport(t, n+1, 4, 5, want...)
		first := fmt.Sprintf(`"first":{"created":[4,7,8,9,10],"replaced":[],"deleted":[],"unchanged":[2,5,%d,%d]}`, n+7, n+9)
		if !strings.Contains(string(trial.body), first) {
			t.Errorf("the dry run has no %s", first)
		}
		s.wantStored(t, there...)
		s.call(t, "POST", "/import?dry_run=false", table, csv).wantReport(t, n+1, 4, 5, want...)
		s.call(t, "POST", "/import?dry_run=true", table, csv).wantReport(t, 0, n+5, 5, want...)
		s.call(t, "POST", "/import?dry_run=true", `[{"id":-1,"name":"a"}`, array).wantError(t, plantstore.ErrNotJSON, "before that, 1 were created")
		if got := len(s.Plants(t)); got != n+3 {
			t.Errorf("%d plants, want %d", got, n+3)
		}
		if s.Handler == nil { // two servers
			return
		}
		if used := s.Handler.Used("imports"); used != 0 {
			t.Errorf("%d bytes are still taken for imports", used)
		}
	})
}

// A misspelt parameter must not write.
func TestImportRefusesUnknownParameters(t *testing.T) {
	s := start(t, servertest.Options{}) // a proxy would drop a malformed query
	for _, query := range []string{"?dryrun=true", "?dry_run", "?dry_run=1", "?dry_run=TRUE", "?dry_run=true&dry_run=false", "?x", "?%zz"} {
		s.call(t, "POST", "/import"+query, `{"id":1,"name":"a"}`, ndjson).wantError(t, plantstore.ErrParameter, "")
	}
	s.wantStored(t)
}

func TestImportOfATableInSeveralWindows(t *testing.T) {
	s := startDefault(t)
	const n = server.WindowLines + 1000
	var table, elements strings.Builder
	table.WriteString("id,name\n")
	elements.WriteString("[null")
	for id := range n {
		fmt.Fprintf(&table, "%d,%[1]d\n", id)
		fmt.Fprintf(&elements, ",{\"id\":%d,\"name\":\"%[1]d\"}", id)
	}
	s.call(t, "POST", "/import", table.String()+"0,other\n", csv).wantReport(t, n, 0, 1, fmt.Sprintf("%d:40010", n+2))
	s.call(t, "POST", "/import", elements.String()+"]", array).wantReport(t, 0, n, 1, "1:40002")
}

// An array or a table that the client stops sending is too slow, not malformed.
func TestTricklingFileIsNotMalformed(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{ReadTimeout: 200 * time.Millisecond})
	for media, body := range map[string]string{csv: "id,name\n1,a", array: `[{"id":1`} {
		c := s.dial(t)
		c.send(t, "POST /plants/import HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.Token+"\r\n"+media+"\r\nContent-Length: 1000\r\n\r\n"+body)
		c.reply(t).wantError(t, plantstore.ErrTimeout, "in time")
	}
}

func TestExportAsATable(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		const accept = "Accept: text/csv"
		got := s.call(t, "GET", "", "", accept)
		got.wantHeader(t, "Content-Type", "text/csv; charset=utf-8")
		if string(got.body) != "id,name,tag\n" {
			t.Errorf("an empty store: %q", got.body)
		}
		s.Fill(t, plant(2, "b\n", "x"), plant(-1, `a"`, ""), plant(3, "c,\x00"))
		got = s.call(t, "GET", "", "", accept)
		if want := "id,name,tag\n-1,\"a\"\"\",\"\"\n2,\"b\n\",x\n3,\"c,\x00\",\n"; string(got.body) != want {
			t.Errorf("exported %q, want %q", got.body, want)
		}
		if got.header.Get(wire.HeaderCursor) == "" {
			t.Error("the export has no cursor")
		}
		s.call(t, "POST", "/import", string(got.body), csv).wantReport(t, 0, 3, 0)
		if got := s.call(t, "GET", "?after=-1&tag=x", "", accept); strings.Count(string(got.body), "\n") != 3 {
			t.Errorf("filters do not apply: %q", got.body)
		}
		s.call(t, "GET", "?limit=5", "", accept).wantError(t, plantstore.ErrParameter, `"limit" cannot be combined with text/csv`)
		head := s.call(t, "HEAD", "", "", accept)
		head.wantHeader(t, "Content-Type", "text/csv; charset=utf-8")
		for value, want := range map[string]string{
			"text/csv, */*":                        "text/csv; charset=utf-8",
			"text/csv;q=0.5, application/json":     "application/json",
			"text/*":                               "application/json",
			"text/csv;q=0.5, application/x-ndjson": "application/x-ndjson",
		} {
			s.call(t, "GET", "", "", "Accept: "+value).wantHeader(t, "Content-Type", want)
		}
	})
}
