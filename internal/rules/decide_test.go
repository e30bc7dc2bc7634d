package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/rules"
)

var (
	fern = stored(1, plantstore.Plant{ID: 1, Name: "fern", Tag: plantstore.NewTag("green")})
	moss = stored(2, plantstore.Plant{ID: 1, Name: "moss"})
	oak  = stored(3, plantstore.Plant{ID: 1, Name: "oak"})
)

func stored(n int64, p plantstore.Plant) plantstore.StoredPlant {
	return plantstore.StoredPlant{Plant: p, Version: plantstore.Version{Time: 1, N: n}, Created: 1}
}

// conditions are the columns of the tables below.
var conditions = []struct {
	name string
	cond *plantstore.Condition
}{
	{"nil", nil},
	{"empty", &plantstore.Condition{}},
	{"match *", match(plantstore.AnyETag)},
	{"match fern", match(fern.ETag())},
	{"match moss", match(moss.ETag())},
	{"match oak", match(oak.ETag())},
	{"match oak, moss", match(oak.ETag(), moss.ETag())},
	{"none match *", noneMatch(plantstore.AnyETag)},
	{"none match fern", noneMatch(fern.ETag())},
	{"none match moss", noneMatch(moss.ETag())},
	{"none match oak", noneMatch(oak.ETag())},
	{"none match oak, moss", noneMatch(oak.ETag(), moss.ETag())},
	{"match *, none match moss", &plantstore.Condition{
		Match: []plantstore.ETag{plantstore.AnyETag}, NoneMatch: []plantstore.ETag{moss.ETag()},
	}},
	{"match moss, none match *", &plantstore.Condition{
		Match: []plantstore.ETag{moss.ETag()}, NoneMatch: []plantstore.ETag{plantstore.AnyETag},
	}},
}

func match(tags ...plantstore.ETag) *plantstore.Condition {
	return &plantstore.Condition{Match: tags}
}

func noneMatch(tags ...plantstore.ETag) *plantstore.Condition {
	return &plantstore.Condition{NoneMatch: tags}
}

func TestConditionHolds(t *testing.T) {
	tests := []struct {
		name    string
		current *plantstore.StoredPlant
		want    string // one word a condition
	}{
		{
			"nothing", nil,
			//           Match                    NoneMatch              both
			// nil empty *   fern moss oak o+m    *   fern moss oak o+m  *+m m+*
			"  yes yes   no  no   no   no  no     yes yes  yes  yes yes  no  no",
		},
		{
			"fern", &fern,
			"  yes yes   yes yes  no   no  no     no  no   yes  yes yes  yes no",
		},
		{
			"moss", &moss,
			"  yes yes   yes no   yes  no  yes    no  yes  no   yes no   no  no",
		},
	}
	for _, tt := range tests {
		for i, want := range words(t, tt.want) {
			c := conditions[i]
			if got := c.cond.Holds(tt.current); got != (want == "yes") {
				t.Errorf("condition %q where there is %s: got %t, want %s", c.name, tt.name, got, want)
			}
		}
	}
}

// Every write is of fern, so fern is a repetition and moss is a different plant.
func TestDecide(t *testing.T) {
	tests := []struct {
		op      plantstore.Op
		current *plantstore.StoredPlant
		want    string // one word a condition
	}{
		{
			plantstore.Create, nil,
			//              Match                          NoneMatch                      both
			// nil   empty  *     fern  moss  oak   o+m    *     fern  moss  oak   o+m    *+m  m+*
			"  new   new    pre   pre   pre   pre   pre    new   new   new   new   new    pre  pre",
		},
		{
			plantstore.Create, &fern,
			"  same  same   same  same  pre   pre   pre    pre   pre   same  same  same   same pre",
		},
		{
			plantstore.Create, &moss,
			"  taken taken  taken pre   taken pre   taken  pre   taken pre   taken pre    pre  pre",
		},
		{
			plantstore.Replace, nil,
			"  new   new    pre   pre   pre   pre   pre    new   new   new   new   new    pre  pre",
		},
		{
			plantstore.Replace, &fern,
			"  same  same   same  same  pre   pre   pre    pre   pre   same  same  same   same pre",
		},
		{
			plantstore.Replace, &moss,
			"  other other  other pre   other pre   other  pre   other pre   other pre    pre  pre",
		},
		{
			plantstore.Delete, nil,
			"  none  none   none  none  none  none  none   none  none  none  none  none   none none",
		},
		{
			plantstore.Delete, &fern,
			"  del   del    del   del   pre   pre   pre    pre   pre   del   del   del    del  pre",
		},
		{
			plantstore.Delete, &moss,
			"  del   del    del   pre   del   pre   del    pre   del   pre   del   pre    pre  pre",
		},
	}
	results := map[string]plantstore.Result{
		"new":   {Outcome: plantstore.Created},
		"same":  {Outcome: plantstore.Unchanged},
		"other": {Outcome: plantstore.Replaced},
		"del":   {Outcome: plantstore.Deleted},
		"pre":   {Err: plantstore.ErrPrecondition},
		"taken": {Err: plantstore.ErrIDTaken},
		"none":  {Err: plantstore.ErrNoPlant},
	}
	ops := []string{plantstore.Create: "create", plantstore.Replace: "replace", plantstore.Delete: "delete"}
	for _, tt := range tests {
		for i, want := range words(t, tt.want) {
			w := plantstore.Write{Op: tt.op, Plant: fern.Plant, If: conditions[i].cond}
			expected := results[want]
			if want == "same" {
				expected.Version = tt.current.Version
			}
			if got := decide(&w, tt.current); got != expected {
				t.Errorf("%s fern where there is %s, condition %q: got %v, want %s",
					ops[tt.op], show(tt.current), conditions[i].name, got, want)
			}
		}
	}
}

func TestPatchChangesWhatItNames(t *testing.T) {
	name, tag := "oak", plantstore.NewTag("green")
	for _, tt := range []struct {
		patch   plantstore.PlantPatch
		current plantstore.StoredPlant
		want    plantstore.Plant
		outcome plantstore.Outcome
	}{
		{plantstore.PlantPatch{}, fern, fern.Plant, plantstore.Unchanged},
		{plantstore.PlantPatch{Name: &name}, fern, plantstore.Plant{ID: 1, Name: "oak", Tag: fern.Tag}, plantstore.Replaced},
		{plantstore.PlantPatch{Name: &name}, moss, oak.Plant, plantstore.Replaced},
		{plantstore.PlantPatch{Name: &name}, oak, oak.Plant, plantstore.Unchanged},
		{plantstore.PlantPatch{Tag: &tag}, fern, fern.Plant, plantstore.Unchanged},
		{plantstore.PlantPatch{Tag: &tag}, moss, plantstore.Plant{ID: 1, Name: "moss", Tag: tag}, plantstore.Replaced},
		{plantstore.PlantPatch{Tag: new(plantstore.Tag)}, fern, plantstore.Plant{ID: 1, Name: "fern"}, plantstore.Replaced},
		{plantstore.PlantPatch{Name: &name, Tag: new(plantstore.Tag)}, fern, oak.Plant, plantstore.Replaced},
	} {
		w := tt.patch.Write(1)
		if got := decide(&w, &tt.current); got.Err != nil || got.Outcome != tt.outcome || *got.Patched != tt.want {
			t.Errorf("%v becomes %+v, want %d %v", tt.current, got, tt.outcome, tt.want)
		}
	}
	for _, c := range conditions {
		w := plantstore.PlantPatch{Name: &name}.Write(1)
		w.If = c.cond
		for _, current := range []*plantstore.StoredPlant{nil, &fern, &moss} {
			got, want := decide(&w, current).Err, error(nil)
			switch {
			case !c.cond.Holds(current):
				want = plantstore.ErrPrecondition
			case current == nil:
				want = plantstore.ErrNoPlant
			}
			if got != want {
				t.Errorf("condition %q where there is %s: got %v, want %v", c.name, show(current), got, want)
			}
		}
	}
}

func TestDeleteUsesOnlyTheID(t *testing.T) {
	for _, p := range []plantstore.Plant{fern.Plant, moss.Plant, {ID: 1}} {
		w := plantstore.Write{Op: plantstore.Delete, Plant: p}
		if got := decide(&w, &oak); got != (plantstore.Result{Outcome: plantstore.Deleted}) {
			t.Errorf("delete %s where there is oak: got %v", p, got)
		}
	}
}

func TestDecideTellsAbsentTagsFromEmptyOnes(t *testing.T) {
	absent := plantstore.Plant{ID: 1, Name: "fern"}
	empty := plantstore.Plant{ID: 1, Name: "fern", Tag: plantstore.NewTag("")}
	w := plantstore.Write{Op: plantstore.Create, Plant: absent}
	if got := decide(&w, &plantstore.StoredPlant{Plant: empty}); got.Err != plantstore.ErrIDTaken {
		t.Errorf("create without a tag where the tag is empty: got %v", got)
	}
	w = plantstore.Write{Op: plantstore.Replace, Plant: empty}
	if got := decide(&w, &plantstore.StoredPlant{Plant: absent}); got != (plantstore.Result{Outcome: plantstore.Replaced}) {
		t.Errorf("replace with an empty tag where there is none: got %v", got)
	}
}

// words splits a row of a table into one word for each of the conditions.
func words(t *testing.T, row string) []string {
	t.Helper()
	fields := strings.Fields(row)
	if len(fields) != len(conditions) {
		t.Fatalf("row %q has %d columns, want %d", row, len(fields), len(conditions))
	}
	return fields
}

func show(p *plantstore.StoredPlant) string {
	if p == nil {
		return "nothing"
	}
	return fmt.Sprintf("%q", p.Name)
}

func decide(w *plantstore.Write, current *plantstore.StoredPlant) plantstore.Result {
	return rules.Decide(w, current, plantstore.Version{}).Result
}
