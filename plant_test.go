package plantstore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"plantstore"
	"plantstore/internal/wire"
	"plantstore/internal/wire/wiretest"
)

func plantOf(name string, tag ...string) plantstore.Plant {
	p := plantstore.Plant{Name: name}
	if len(tag) > 0 {
		p.Tag = plantstore.NewTag(tag[0])
	}
	return p
}

func TestTagIsAbsentOrReadsItsText(t *testing.T) {
	if text, ok := (plantstore.Tag{}).Text(); ok || text != "" {
		t.Errorf("the zero tag: got %q, %t", text, ok)
	}
	for _, want := range []string{"", "tropical", "\x00"} {
		if text, ok := plantstore.NewTag(want).Text(); !ok || text != want {
			t.Errorf("NewTag(%q): got %q, %t", want, text, ok)
		}
	}
	if plantOf("fern") == plantOf("fern", "") {
		t.Error("an absent tag equals an empty one")
	}
}

func TestETagsOfDifferentPlantsDiffer(t *testing.T) {
	plants := []plantstore.Plant{
		plantOf(""), plantOf("", ""),
		plantOf("abc"), plantOf("abc", ""), plantOf("ab", "c"), plantOf("a", "bc"), plantOf("", "abc"),
		plantOf("\x00"), plantOf("", "\x00"), plantOf("\x00", ""), plantOf("\x01"), plantOf("", "\x01"),
		plantOf("fern"), plantOf("Fern"), plantOf("fern "), plantOf("fern", "fern"), plantOf("fernfern"),
		plantOf("\u00e9"), plantOf("e\u0301"),
	}
	seen := map[plantstore.ETag]plantstore.Plant{}
	for _, p := range plants {
		if other, ok := seen[p.ETag()]; ok {
			t.Errorf("%+v and %+v have the same ETag", other, p)
		}
		seen[p.ETag()] = p
	}
}

// Replicas of different versions must agree, so the values are fixed. They were
// computed by another program.
func TestETagNeverChanges(t *testing.T) {
	for want, p := range map[plantstore.ETag]plantstore.Plant{
		`"C_k6PXdL1QteDcVoFnkH"`: plantOf("Monstera", "tropical"),
		`"PnB3_S9m1ongzuanz1s3"`: plantOf(""),
		`"KuHBnAy9N45GySep82EZ"`: plantOf("", ""),
	} {
		if got := p.ETag(); got != want {
			t.Errorf("ETag of %+v: got %s, want %s", p, got, want)
		}
	}
}

func TestETagsAreEqualExactlyWhereNameAndTagAre(t *testing.T) {
	// Few letters make equal texts, and texts that are equal when joined, likely.
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00é")), 0, 4, -1)
	plants := rapid.Custom(func(t *rapid.T) plantstore.Plant {
		p := plantstore.Plant{ID: plantstore.ID(rapid.Int64().Draw(t, "id")), Name: text.Draw(t, "name")}
		if rapid.Bool().Draw(t, "tagged") {
			p.Tag = plantstore.NewTag(text.Draw(t, "tag"))
		}
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := plants.Draw(t, "a"), plants.Draw(t, "b")
		same := a.Name == b.Name && a.Tag == b.Tag
		if (a.ETag() == b.ETag()) != same {
			t.Fatalf("%+v has %s, %+v has %s", a, a.ETag(), b, b.ETag())
		}
	})
}

func TestETagsSeparateNameFromTag(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(1, 20, -1).Draw(t, "text")
		seen := map[plantstore.ETag]plantstore.Plant{plantOf(text).ETag(): plantOf(text)}
		for i := range len(text) + 1 {
			p := plantOf(text[:i], text[i:])
			if other, ok := seen[p.ETag()]; ok {
				t.Fatalf("%+v and %+v have the same ETag", other, p)
			}
			seen[p.ETag()] = p
		}
	})
}

func TestETagIsAStrongHTTPETag(t *testing.T) {
	strong := regexp.MustCompile(`^"[\x21\x23-\x7e]+"$`)
	rapid.Check(t, func(t *rapid.T) {
		p := plantOf(rapid.String().Draw(t, "name"), rapid.String().Draw(t, "tag"))
		if got := p.ETag(); !strong.MatchString(string(got)) {
			t.Fatalf("ETag of %+v: %s", p, got)
		}
	})
}

var anyPlant = rapid.Custom(func(t *rapid.T) plantstore.Plant {
	p := plantstore.Plant{ID: plantstore.ID(rapid.Int64().Draw(t, "id")), Name: rapid.String().Draw(t, "name")}
	if rapid.Bool().Draw(t, "tagged") {
		p.Tag = plantstore.NewTag(rapid.String().Draw(t, "tag"))
	}
	return p
})

func TestPlantIsMarshalledAsTheServiceEncodesIt(t *testing.T) {
	type shelf struct {
		First plantstore.Plant
		All   []plantstore.Plant
	}
	o := wiretest.NewOracle(t)
	rapid.Check(t, func(t *rapid.T) {
		want := anyPlant.Draw(t, "plant")
		encoded, err := wire.AppendNewPlant(nil, want)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsAny(encoded, "\r\n") {
			t.Fatalf("%q is more than one line", encoded)
		}
		for name, marshal := range map[string]func(any) ([]byte, error){
			"encoding/json": json.Marshal,
			"json v2":       func(v any) ([]byte, error) { return jsonv2.Marshal(v) },
		} {
			text, err := marshal(want)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for decoder, decode := range map[string]func() (plantstore.Plant, error){
				"wire":          func() (plantstore.Plant, error) { return wire.DecodeNewPlant(bytes.NewBuffer(bytes.Clone(text))) },
				"encoding/json": func() (p plantstore.Plant, err error) { err = json.Unmarshal(text, &p); return p, err },
				"json v2":       func() (p plantstore.Plant, err error) { err = jsonv2.Unmarshal(text, &p); return p, err },
				"unmarshal the service's": func() (p plantstore.Plant, err error) {
					err = json.Unmarshal(encoded, &p)
					return p, err
				},
			} {
				if got, err := decode(); err != nil || got != want {
					t.Fatalf("%s encodes it as %s, and %s decodes that as %v, %v", name, text, decoder, got, err)
				}
			}
			if verdict, got := o.NewPlant(text); verdict != wiretest.Valid || got != want {
				t.Fatalf("%s encodes it as %s, and the oracle's verdict is %v", name, text, verdict)
			}
			nested := shelf{want, []plantstore.Plant{want, want}}
			if text, err = marshal(nested); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var v1, v2 shelf
			if err := errors.Join(json.Unmarshal(text, &v1), jsonv2.Unmarshal(text, &v2)); err != nil || fmt.Sprint(v1) != fmt.Sprint(nested) || fmt.Sprint(v2) != fmt.Sprint(nested) {
				t.Fatalf("%s encodes it as %s: got %v and %v, %v", name, text, v1, v2, err)
			}
		}
	})
}

func TestTagIsAStringOrNull(t *testing.T) {
	for text, want := range map[string]plantstore.Tag{
		`null`: {}, `""`: plantstore.NewTag(""), `"a\u0000\ud83c\udf31"`: plantstore.NewTag("a\x00🌱"), `"\ufffd"`: plantstore.NewTag("\ufffd"),
	} {
		got := plantstore.NewTag("other")
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", text, got, err, want)
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		got = plantstore.Tag{}
		if err := json.Unmarshal(again, &got); err != nil || got != want {
			t.Errorf("%s became %s, and that %q, %v", text, again, got, err)
		}
	}
	for _, text := range []string{`1`, `["a"]`, `{}`, `true`} {
		tag := plantstore.NewTag("other")
		if err := json.Unmarshal([]byte(text), &tag); err == nil || tag != plantstore.NewTag("other") {
			t.Errorf("%s: got %q, %v", text, tag, err)
		}
	}
	type optional struct {
		Tag plantstore.Tag `json:"tag,omitzero"`
	}
	if text, err := json.Marshal([]optional{{}, {plantstore.NewTag("")}}); err != nil || string(text) != `[{},{"tag":""}]` {
		t.Errorf("got %s, %v", text, err)
	}
}

func TestPlantsAndTagsPrintForPeople(t *testing.T) {
	for _, tt := range []struct {
		value fmt.Stringer
		want  string
	}{
		{plantstore.Plant{ID: -1, Name: `a "b"`}, `plant -1 "a \"b\""`},
		{plantstore.Plant{ID: 7, Name: "Oak", Tag: plantstore.NewTag("")}, `plant 7 "Oak" ("")`},
		{plantstore.Plant{ID: 7, Name: "Oak", Tag: plantstore.NewTag("tree\n")}, `plant 7 "Oak" ("tree\n")`},
		{plantstore.NewTag("tree"), "tree"},
		{plantstore.Tag{}, ""},
	} {
		if got := fmt.Sprint(tt.value); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}
