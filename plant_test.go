package plantstore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
