package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"plantstore"
)

// longestLine is the limit of the lines that are fuzzed, so that one can be longer.
const longestLine = 200

// importPlan is what an import must do, as a reader without any of our code sees
// it: lines are cut at line feeds, judged by the outsider, and applied one by one.
type importPlan struct {
	created, unchanged int
	failed             []failedLine
	plants             map[plantstore.ID]plantstore.Plant
}

type failedLine struct {
	line  int
	codes []plantstore.Code // any of them
}

func (o outsider) plan(body []byte) importPlan {
	plan := importPlan{plants: map[plantstore.ID]plantstore.Plant{}}
	for i, line := range bytes.Split(body, []byte("\n")) {
		fail := func(codes ...plantstore.Code) { plan.failed = append(plan.failed, failedLine{i + 1, codes}) }
		if len(line) > longestLine {
			fail(plantstore.ErrTooLarge)
			continue
		}
		if len(bytes.Trim(line, " \t\r")) == 0 {
			continue
		}
		verdict, members := o.judge(line)
		switch verdict {
		case notIJSON:
			fail(plantstore.ErrNotJSON)
		case notObject:
			fail(plantstore.ErrNotObject)
		case invalid:
			fail(plantstore.ErrMissing, plantstore.ErrType, plantstore.ErrRange)
		case valid:
			plant := plantOf(members)
			there, taken := plan.plants[plant.ID]
			switch {
			case !taken:
				plan.plants[plant.ID] = plant
				plan.created++
			case there == plant:
				plan.unchanged++
			default:
				fail(plantstore.ErrIDTaken)
			}
		}
	}
	return plan
}

// plantOf makes a plant of the members of a NewPlant.
func plantOf(members map[string]any) plantstore.Plant {
	id, _ := new(big.Rat).SetString(members["id"].(json.Number).String())
	p := plant(plantstore.ID(id.Num().Int64()), members["name"].(string))
	if tag, ok := members["tag"].(string); ok {
		p.Tag = plantstore.NewTag(tag)
	}
	return p
}

// FuzzImport imports any bytes. What is created, counted and refused, line by
// line, is what the outsider's plan says, and the store holds just that.
func FuzzImport(f *testing.F) {
	const oak, elm = `{"id":1,"name":"Oak"}`, `{"id":2,"name":"Elm","tag":"tree"}`
	for _, body := range []string{
		"", "\n", "\r\n", "\n\n\n", " \t\r\n", oak, oak + "\n", oak + "\n" + elm, oak + "\r\n" + elm + "\r\n", "\n" + oak + "\n\n" + elm + "\n\n",
		oak + "\n" + oak, oak + "\n" + `{"id":1,"name":"Ash"}` + "\n" + oak, `{"id":3,"name":"c"}` + "\n" + elm + "\n" + oak, `{"id":3,"name":"c"}` + "\n" + oak + "\n" + elm + "\n" + `{"id":1,"name":"Ash"}` + "\n" + `{"id":3,"name":"c"}`,
		oak + elm, oak + " " + elm, oak + "\x00\n" + elm,
		"\ufeff" + oak, oak + "\n{", oak + "\n{\n" + elm, oak + "\r" + elm, oak + "\u2028" + elm, oak + "\u0085" + elm, "\u0085\n" + oak, "\u00a0\n" + elm, "\v\n" + elm, "\f",
		"{\n\"id\":1,\"name\":\"Oak\"}", "[" + oak + "]", "[" + oak + ",\n" + elm + "]", "null\ntrue\n0\n\"\"\n[]\n{}", `{"id":1e2,"name":"x"}` + "\n" + `{"id":100,"name":"x"}`,
		`{"id":9223372036854775808,"name":"x"}` + "\n" + `{"id":-9223372036854775808,"name":"\u0000"}`, `{"id":1,"name":"\ud800"}` + "\n" + `{"id":1,"id":1,"name":"x"}`,
		"{\"id\":1,\"name\":\"\xff\"}\n" + oak, `{"id":5,"name":"` + strings.Repeat("x", longestLine-18) + `"}`, `{"id":5,"name":"` + strings.Repeat("x", longestLine-17) + `"}`,
		`{"id":5,"name":"` + strings.Repeat("x", longestLine-17) + `"}` + "\n" + oak, `{"id":5,"name":"` + strings.Repeat("x", longestLine-18) + `"}` + "\n" + oak,
		`{"id":5,"name":"` + strings.Repeat("x", longestLine-18) + `"}` + "\r\n" + oak, strings.Repeat(" ", longestLine+1) + "\n" + oak, strings.Repeat(" ", longestLine+1),
		strings.Repeat("{\n", 150), strings.Repeat(oak+"\n", 50), "\n" + strings.Repeat("x", 3*longestLine) + "\n" + elm,
	} {
		f.Add([]byte(body))
	}
	o := newOutsider(f)
	s := start(f, setup{store: fuzzStore(), maxBody: longestLine})
	f.Fuzz(func(t *testing.T, body []byte) {
		s.clear(t)
		want := o.plan(body)
		got := s.call(t, "POST", "/import", string(body), ndjson)
		var report struct {
			Created, Unchanged, Failed int
			Errors                     []struct {
				Line    int
				Error   plantstore.Code
				Message string
			}
		}
		if err := json.Unmarshal(got.body, &report); err != nil || got.status != 200 {
			t.Fatalf("%q was answered %d %q: %v", body, got.status, got.body, err)
		}
		if report.Created != want.created || report.Unchanged != want.unchanged || report.Failed != len(want.failed) {
			t.Errorf("%q was answered %s, want %d created, %d unchanged and %v failed", body, got.body, want.created, want.unchanged, want.failed)
		}
		first := want.failed[:min(len(want.failed), 100)]
		if len(report.Errors) != len(first) {
			t.Fatalf("%q was answered %s, want the errors %v", body, got.body, first)
		}
		for i, e := range report.Errors {
			if e.Line != first[i].line || !slices.Contains(first[i].codes, e.Error) || e.Message == "" {
				t.Errorf("%q has the error %v, want %v", body, e, first[i])
			}
		}
		s.wantStored(t, slices.SortedFunc(maps.Values(want.plants), byID)...)
		s.forgetLog(t)
	})
}

func byID(a, b plantstore.Plant) int { return cmp.Compare(a.ID, b.ID) }

// FuzzWireFormat writes any plant as an export and a listing do, and reads it back
// as an import and an outsider do: nothing of it may change, and an export is one
// line a plant.
func FuzzWireFormat(f *testing.F) {
	for _, text := range []string{"", "a", `"`, `\`, "\n", "\r\n", "\u2028\u2029", "\x00", "\x1f", "\x7f", "</script>", "🌱", "שלום", "\ufffd", "\ufeff", "\U0010ffff", "\\u0000"} {
		f.Add(int64(1)<<53+1, text, text, true)
		f.Add(int64(-1)<<63, text, "", false)
	}
	o := newOutsider(f)
	f.Fuzz(func(t *testing.T, id int64, name, tag string, tagged bool) {
		want := plant(plantstore.ID(id), strings.ToValidUTF8(name, ""))
		if tagged {
			want.Tag = plantstore.NewTag(strings.ToValidUTF8(tag, ""))
		}
		line := appendNewPlant(nil, want)
		if bytes.ContainsAny(line, "\r\n") {
			t.Errorf("%+v is more than a line: %q", want, line)
		}
		if got, err := decode(line); err != nil || got != want {
			t.Errorf("%+v became %q, and that %+v, %v", want, line, got, err)
		}
		if verdict, members := o.judge(line); verdict != valid || plantOf(members) != want {
			t.Errorf("%+v became %q, which is %v to the outsider: %v", want, line, verdict, fmt.Sprint(members))
		}
	})
}
