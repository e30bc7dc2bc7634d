package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"plantstore"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
)

// wantChanges compares the report of an import with a mode.
func (r reply) wantChanges(t tb, created, replaced, deleted, unchanged, failed int64, lines ...string) {
	t.Helper()
	got := fmt.Sprintf(`{"created":%d,"replaced":%d,"deleted":%d,"unchanged":%d,"failed":%d,`, created, replaced, deleted, unchanged, failed)
	if r.status != 200 || !strings.HasPrefix(string(r.body), got) {
		t.Fatalf("got %d %.300s, want %s", r.status, r.body, got)
	}
	for _, line := range lines {
		if !strings.Contains(string(r.body), line) {
			t.Errorf("got %.500s, want %s in it", r.body, line)
		}
	}
}

type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// The modes do in every format what the requests for one plant do.
func TestImportModes(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		s.Fill(t, plant(1, "one"), plant(2, "two", "b"), plant(3, "three"), plant(4, "four"), plant(5, "five"))
		was := s.stored(t, 1).Version
		s.call(t, "PUT", "/1", `{"name":"new one"}`).wantPlant(t, plant(1, "new one"))
		is, two := s.stored(t, 1).Version, s.stored(t, 2).Version
		table := fmt.Sprintf("if_version,tag,id,name\n%s,,1,lost\n%s,,1,one\n,b,2,two\n,,3,changed\n%s,,7,gone\n,,6,six\n,,x,y\n", was, is, was)
		for _, dry := range []string{"&dry_run=true", "", "&dry_run=true"} {
			replaced, unchanged, created, errors := int64(2), int64(1), int64(1), []string{`"line":2,"error":41201`, `"line":6,"error":41201`, `"line":8,"error":40004`}
			failed := int64(3)
			if s.stored(t, 3).Name == "changed" { // the second dry run comes after the run
				replaced, unchanged, created, failed = 0, 3, 0, 4
				errors = append(errors, `"line":3,"error":41201`)
			}
			s.call(t, "POST", "/import?mode=replace"+dry, table, csv).wantChanges(t, created, replaced, 0, unchanged, failed, errors...)
		}
		s.wantStored(t, plant(1, "one"), plant(2, "two", "b"), plant(3, "changed"), plant(4, "four"), plant(5, "five"), plant(6, "six"))
		lines := fmt.Sprintf(`{"id":1,"if_version":%q}`+"\n"+`{"id":2,"if_version":%q,"name":3}`+"\n"+`{"id":7}`+"\n"+`{"id":3,"name":"x"}`+"\n"+`{"id":8,"if_version":%q}`+"\n"+`{"name":"x"}`+"\n", was, two, two)
		s.call(t, "POST", "/import?mode=delete", lines, ndjson).wantChanges(t, 0, 0, 2, 1, 3, `"line":1,"error":41201`, `"line":5,"error":41201`, `"line":6,"error":40003`)
		s.call(t, "POST", "/import?mode=delete", "id\n4\n4\n", csv).wantChanges(t, 0, 0, 1, 1, 0)
		s.call(t, "POST", "/import?mode=delete", `[{"id":5},{"id":5}]`, array).wantChanges(t, 0, 0, 1, 1, 0)
		s.wantStored(t, plant(1, "one"), plant(6, "six"))
		s.call(t, "POST", "/import?mode=create", fmt.Sprintf(`{"id":9,"name":"a","if_version":%q}`+"\n"+`{"id":9,"name":"a","if_version":""}`, is), ndjson).
			wantChanges(t, 0, 0, 0, 0, 2, `"line":1,"error":40006`, `"line":2,"error":40004`)
		s.call(t, "POST", "/import", fmt.Sprintf(`{"id":9,"name":"a","if_version":%q}`, is), ndjson).wantReport(t, 0, 0, 1, "1:40006")
		s.call(t, "POST", "/import?mode=replace", `[{"id":6,"name":"more"},{"id":10,"name":"ten"}`, array).wantError(t, plantstore.ErrNotJSON, "1 were created, 1 replaced, 0 deleted, 0 unchanged and 0 failed")
		for _, mode := range []string{"", "Replace", "update", "replace&mode=replace"} {
			s.call(t, "POST", "/import?mode="+mode, "", ndjson).wantError(t, plantstore.ErrParameter, `"mode"`)
		}
		s.wantStored(t, plant(1, "one"), plant(6, "more"), plant(10, "ten"))
	})
}

// A dry run says what the run that follows it does, whatever the lines are.
func TestDryRunsAgreeWithTheirRuns(t *testing.T) {
	s := start(t, servertest.Options{Store: storetest.NewModel()})
	anyLine := rapid.Custom(func(t *rapid.T) string {
		line := fmt.Sprintf(`{"id":%d,"name":%q`, rapid.IntRange(1, 6).Draw(t, "id"), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "name"))
		if rapid.Bool().Draw(t, "tagged") {
			line += `,"tag":""`
		}
		if rapid.IntRange(0, 3).Draw(t, "conditional") == 0 {
			versions := []string{"000000000000"}
			for id := range plantstore.ID(6) {
				if p, err := s.Store.Plant(t.Context(), id+1); err == nil {
					versions = append(versions, p.Version.String())
				}
			}
			line += fmt.Sprintf(`,"if_version":%q`, rapid.SampledFrom(versions).Draw(t, "version"))
		}
		return line + rapid.SampledFrom([]string{"}", "}", "}", "}", ""}).Draw(t, "end")
	})
	rapid.Check(t, func(rt *rapid.T) {
		mode := rapid.SampledFrom(plantstore.ImportModes()).Draw(rt, "mode")
		body := strings.Join(rapid.SliceOfN(anyLine, 0, 12).Draw(rt, "lines"), "\n")
		before := s.Plants(t)
		trial := s.call(t, "POST", "/import?dry_run=true&mode="+string(mode), body, ndjson)
		if after := s.Plants(t); !slices.Equal(after, before) {
			rt.Fatalf("the dry run has written: %v after %v", after, before)
		}
		run := s.call(t, "POST", "/import?mode="+string(mode), body, ndjson)
		said, _, _ := strings.Cut(string(trial.body), `,"first":`)
		if trial.status != run.status || said != strings.TrimSuffix(string(run.body), "}\n") {
			rt.Fatalf("the dry run of\n%s\nwas %d %s\nthe run %d %s", body, trial.status, trial.body, run.status, run.body)
		}
	})
}
