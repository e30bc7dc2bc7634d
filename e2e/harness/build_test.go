package harness

import (
	"maps"
	"regexp"
	"slices"
	"testing"
)

func TestPatchNeedsExactlyOneMatch(t *testing.T) {
	const dir = "internal/sqlite"
	patched := make(map[string]string)
	for name, value := range eagerFlush {
		if err := Const(dir, name, value).apply(patched); err != nil {
			t.Fatal(err)
		}
		changed := regexp.MustCompile(name + ` += ` + value + "\n")
		if !slices.ContainsFunc(slices.Collect(maps.Values(patched)), changed.MatchString) {
			t.Errorf("%s does not have the value %s", name, value)
		}
	}
	for _, p := range []Patch{
		Const(dir, "noSuchConstant", "1"),
		Const(dir, "oupSize", "1"), // not even as a part
		{Dir: dir, Old: "func ", New: "func "},
	} {
		if err := p.apply(make(map[string]string)); err == nil {
			t.Errorf("%q was applied", p.Old)
		}
	}
}
