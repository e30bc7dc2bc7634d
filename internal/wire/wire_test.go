package wire_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"plantstore"
	"plantstore/internal/wire"
)

var failures = rapid.Custom(func(t *rapid.T) *plantstore.Error {
	return &plantstore.Error{
		Code: plantstore.Code(rapid.Int32().Draw(t, "code")), Message: rapid.String().Draw(t, "message"),
	}
})

func TestErrorsSurviveARoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := failures.Draw(t, "error")
		body := wire.EncodeError(want)
		if got, err := wire.DecodeError(body); err != nil || *got != *want {
			t.Fatalf("%s: got %v, %v; want %v", body, got, err, want)
		}
		var members map[string]any
		if err := json.Unmarshal(body, &members); err != nil || len(members) != 2 || members["error"] != float64(want.Code) || members["message"] != want.Message {
			t.Fatalf("%s is %v, %v to encoding/json", body, members, err)
		}
	})
}

func TestReportsSurviveARoundTrip(t *testing.T) {
	lines := rapid.Custom(func(t *rapid.T) plantstore.LineError {
		return plantstore.LineError{Line: rapid.Int64().Draw(t, "line"), Err: failures.Draw(t, "error")}
	})
	rapid.Check(t, func(t *rapid.T) {
		want := plantstore.ImportReport{
			Created: rapid.Int64().Draw(t, "created"), Unchanged: rapid.Int64().Draw(t, "unchanged"), Failed: rapid.Int64().Draw(t, "failed"),
		}
		if n := rapid.IntRange(0, 3).Draw(t, "lines"); n > 0 {
			want.Errors = rapid.SliceOfN(lines, n, n).Draw(t, "errors")
		}
		withMode := rapid.Bool().Draw(t, "with mode")
		if withMode {
			want.Replaced, want.Deleted = rapid.Int64().Draw(t, "replaced"), rapid.Int64().Draw(t, "deleted")
		}
		if rapid.Bool().Draw(t, "dry run") {
			want.First = &plantstore.FirstLines{Created: []int64{want.Created}, Replaced: []int64{}, Deleted: []int64{1}, Unchanged: []int64{}}
		}
		body := wire.EncodeReport(want, withMode)
		if got, err := wire.DecodeReport(body); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: got %v, %v; want %v", body, got, err, want)
		}
	})
}

func TestTagsSurviveARoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := plantstore.TagCount{Tag: rapid.String().Draw(t, "tag"), Plants: rapid.Int().Draw(t, "plants"), More: rapid.Bool().Draw(t, "more")}
		body, err := wire.AppendTag([]byte("["), want)
		if err != nil {
			t.Fatal(err)
		}
		body = append(body, ']')
		if got, err := wire.DecodeTags(body); err != nil || len(got) != 1 || got[0] != want {
			t.Fatalf("%s: got %v, %v; want %v", body, got, err, want)
		}
	})
}

// The contract requires the array, and lists the members in this order.
func TestReportWithoutErrorsHasAnEmptyArray(t *testing.T) {
	const want = `{"created":1,"unchanged":2,"failed":0,"errors":[]}`
	if got := wire.EncodeReport(plantstore.ImportReport{Created: 1, Unchanged: 2}, false); string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A message may quote a request that is not UTF-8. The response has to be.
func TestInvalidUTF8InAMessageIsReplaced(t *testing.T) {
	const want = `{"error":40006,"message":"got ` + "\ufffd" + `"}`
	if got := wire.EncodeError(&plantstore.Error{Code: plantstore.ErrParameter, Message: "got \xff"}); string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEveryMemberOfAResponseIsRequired(t *testing.T) {
	const failure = `{"error":40001,"message":"no"}`
	report := func(line string) string {
		return `{"created":1,"unchanged":2,"failed":3,"errors":[` + line + `]}`
	}
	const line = `{"line":7,"error":40001,"message":"no"}`
	decodeError := func(body string) error { _, err := wire.DecodeError([]byte(body)); return err }
	decodeReport := func(body string) error { _, err := wire.DecodeReport([]byte(body)); return err }
	for _, tt := range []struct {
		decode  func(string) error
		body    string
		members []string
	}{
		{decodeError, failure, []string{`"error":40001,`, `,"message":"no"`}},
		{decodeReport, report(line), []string{`"created":1,`, `"unchanged":2,`, `"failed":3,`, `,"errors":[` + line + `]`, `"line":7,`, `"error":40001,`, `,"message":"no"`}},
	} {
		if err := tt.decode(tt.body); err != nil {
			t.Errorf("%s: %v", tt.body, err)
		}
		for _, member := range tt.members {
			body := strings.Replace(tt.body, member, "", 1)
			if body == tt.body || tt.decode(body) == nil {
				t.Errorf("%s was decoded without %s", body, member)
			}
			name, _, _ := strings.Cut(strings.Trim(member, ","), ":")
			for _, other := range []string{name + `:null`, strings.ToUpper(name) + `:1`, name + `:{}`, name + `:true`} {
				body := strings.Replace(tt.body, strings.Trim(member, ","), other, 1)
				if tt.decode(body) == nil {
					t.Errorf("%s was decoded", body)
				}
			}
		}
	}
}

func TestNumbersOfAResponseStayInTheirRange(t *testing.T) {
	for number, ok := range map[string]bool{
		"40001": true, "2147483647": true, "-2147483648": true, "2147483648": false, "4000100000000": false, "1.5": false, `"40001"`: false,
	} {
		if _, err := wire.DecodeError([]byte(`{"error":` + number + `,"message":""}`)); (err == nil) != ok {
			t.Errorf("the code %s: %v", number, err)
		}
	}
	for number, ok := range map[string]bool{
		"0": true, "9223372036854775807": true, "9007199254740993": true, "9223372036854775808": false, "1.5": false, `"1"`: false,
	} {
		got, err := wire.DecodeReport([]byte(`{"created":` + number + `,"unchanged":0,"failed":0,"errors":[]}`))
		if (err == nil) != ok || ok && fmt.Sprint(got.Created) != number {
			t.Errorf("%s created: got %d, %v", number, got.Created, err)
		}
	}
}

func TestUnknownMembersOfAResponseAreIgnored(t *testing.T) {
	e, err := wire.DecodeError([]byte(` {"more":[{}],"error":40099,"Error":"x","message":"new"} `))
	if err != nil || *e != (plantstore.Error{Code: 40099, Message: "new"}) {
		t.Errorf("got %v, %v", e, err)
	}
	r, err := wire.DecodeReport([]byte(`{"created":1,"unchanged":2,"failed":3,"took":"1s","errors":[{"line":1,"error":40001,"message":"no","column":5}]}`))
	if err != nil || r.Created != 1 || r.Unchanged != 2 || r.Failed != 3 || len(r.Errors) != 1 || r.Errors[0].Line != 1 || r.Errors[0].Err.Code != plantstore.ErrNotJSON {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestResponseThatIsNotStrictJSONIsRefused(t *testing.T) {
	for _, body := range []string{
		"", "null", "[]", `{"error":40001,"message":"no"`, `{"error":40001,"message":"no"} {}`, `{"error":40001,"error":40001,"message":"no"}`,
		"{\"error\":40001,\"message\":\"\xff\"}", `{"error":40001,"message":"\ud800"}`,
	} {
		if e, err := wire.DecodeError([]byte(body)); err == nil {
			t.Errorf("%q: got %v", body, e)
		}
	}
}
