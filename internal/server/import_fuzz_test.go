package server_test

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/servertest"
	"plantstore/internal/wire/wiretest"
)

// maxLine is the limit of a line, low enough for the fuzzer to exceed it.
const maxLine = 200

// importPlan is what an import must do. It is made without the code under test: lines
// are split at line feeds, decided by the oracle, and applied one by one.
type importPlan struct {
	created, unchanged int
	failed             []failedLine
	plants             map[plantstore.ID]plantstore.Plant
}

type failedLine struct {
	line  int
	codes []plantstore.Code // one of them
}

func planImport(o wiretest.Oracle, body []byte) importPlan {
	plan := importPlan{plants: map[plantstore.ID]plantstore.Plant{}}
	for i, line := range bytes.Split(body, []byte("\n")) {
		fail := func(codes ...plantstore.Code) { plan.failed = append(plan.failed, failedLine{i + 1, codes}) }
		if len(line) > maxLine {
			fail(plantstore.ErrTooLarge)
			continue
		}
		if len(bytes.Trim(line, " \t\r")) == 0 {
			continue
		}
		verdict, plant := o.NewPlant(line)
		switch verdict {
		case wiretest.NotIJSON:
			fail(plantstore.ErrNotJSON)
		case wiretest.NotObject:
			fail(plantstore.ErrNotObject)
		case wiretest.Invalid:
			fail(plantstore.ErrMissing, plantstore.ErrType, plantstore.ErrRange)
		case wiretest.Valid:
			existing, taken := plan.plants[plant.ID]
			switch {
			case !taken:
				plan.plants[plant.ID] = plant
				plan.created++
			case existing == plant:
				plan.unchanged++
			default:
				fail(plantstore.ErrIDTaken)
			}
		}
	}
	return plan
}

// FuzzImport imports any bytes. The report and the store are exactly as planned.
func FuzzImport(f *testing.F) {
	const oak, elm = `{"id":1,"name":"Oak"}`, `{"id":2,"name":"Elm","tag":"tree"}`
	for _, body := range []string{
		"", "\n", "\r\n", "\n\n\n", " \t\r\n", oak, oak + "\n", oak + "\n" + elm, oak + "\r\n" + elm + "\r\n", "\n" + oak + "\n\n" + elm + "\n\n",
		oak + "\n" + oak, oak + "\n" + `{"id":1,"name":"Ash"}` + "\n" + oak, `{"id":3,"name":"c"}` + "\n" + elm + "\n" + oak, `{"id":3,"name":"c"}` + "\n" + oak + "\n" + elm + "\n" + `{"id":1,"name":"Ash"}` + "\n" + `{"id":3,"name":"c"}`,
		oak + elm, oak + " " + elm, oak + "\x00\n" + elm,
		"\ufeff" + oak, oak + "\n{", oak + "\n{\n" + elm, oak + "\r" + elm, oak + "\u2028" + elm, oak + "\u0085" + elm, "\u0085\n" + oak, "\u00a0\n" + elm, "\v\n" + elm, "\f",
		"{\n\"id\":1,\"name\":\"Oak\"}", "[" + oak + "]", "[" + oak + ",\n" + elm + "]", "null\ntrue\n0\n\"\"\n[]\n{}", `{"id":1e2,"name":"x"}` + "\n" + `{"id":100,"name":"x"}`,
		`{"id":9223372036854775808,"name":"x"}` + "\n" + `{"id":-9223372036854775808,"name":"\u0000"}`, `{"id":1,"name":"\ud800"}` + "\n" + `{"id":1,"id":1,"name":"x"}`,
		"{\"id\":1,\"name\":\"\xff\"}\n" + oak, `{"id":5,"name":"` + strings.Repeat("x", maxLine-18) + `"}`, `{"id":5,"name":"` + strings.Repeat("x", maxLine-17) + `"}`,
		`{"id":5,"name":"` + strings.Repeat("x", maxLine-17) + `"}` + "\n" + oak, `{"id":5,"name":"` + strings.Repeat("x", maxLine-18) + `"}` + "\n" + oak,
		`{"id":5,"name":"` + strings.Repeat("x", maxLine-18) + `"}` + "\r\n" + oak, strings.Repeat(" ", maxLine+1) + "\n" + oak, strings.Repeat(" ", maxLine+1),
		strings.Repeat("{\n", 150), strings.Repeat(oak+"\n", 50), "\n" + strings.Repeat("x", 3*maxLine) + "\n" + elm,
	} {
		f.Add([]byte(body))
	}
	o := wiretest.NewOracle(f)
	s := start(f, servertest.Options{Store: fuzzStore(), MaxBody: maxLine})
	f.Fuzz(func(t *testing.T, body []byte) {
		s.Clear(t)
		want := planImport(o, body)
		got := s.call(t, "POST", "/import", string(body), ndjson)
		report := got.report(t)
		if report.Created != want.created || report.Unchanged != want.unchanged || report.Failed != len(want.failed) {
			t.Errorf("%q: got %s, want %d created, %d unchanged and %v failed", body, got.body, want.created, want.unchanged, want.failed)
		}
		first := want.failed[:min(len(want.failed), 100)]
		if len(report.Errors) != len(first) {
			t.Fatalf("%q: got %s, want the errors %v", body, got.body, first)
		}
		for i, e := range report.Errors {
			if e.Line != first[i].line || !slices.Contains(first[i].codes, e.Error) || e.Message == "" {
				t.Errorf("%q has the error %v, want %v", body, e, first[i])
			}
		}
		s.wantStored(t, slices.SortedFunc(maps.Values(want.plants), byID)...)
		s.Log.Reset()
	})
}

func byID(a, b plantstore.Plant) int { return cmp.Compare(a.ID, b.ID) }
