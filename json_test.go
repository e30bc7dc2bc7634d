package plantstore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"plantstore"
	"plantstore/internal/wire"
	"plantstore/internal/wire/wiretest"
)

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

// checkUnmarshal compares UnmarshalJSON with the service's decoder.
func checkUnmarshal(body []byte) error {
	want, refused := wire.DecodeNewPlant(bytes.NewBuffer(bytes.Clone(body)))
	var got plantstore.Plant
	err := got.UnmarshalJSON(body)
	code, _ := errors.AsType[plantstore.Code](err)
	if wantCode, _ := errors.AsType[plantstore.Code](refused); code != wantCode || got != want || (err == nil) != (refused == nil) {
		return fmt.Errorf("UnmarshalJSON gives %v, %d (%v); the service %v, %d (%v)", got, code, err, want, wantCode, refused)
	}
	return nil
}

func TestPlantIsUnmarshalledAsTheServiceDecodesIt(t *testing.T) {
	for _, body := range wiretest.Bodies {
		if err := checkUnmarshal([]byte(body.Text)); err != nil {
			t.Errorf("%.200q: %v", body.Text, err)
		}
	}
	for _, body := range wiretest.EdgeCases() {
		if err := checkUnmarshal([]byte(body)); err != nil {
			t.Errorf("%.200q: %v", body, err)
		}
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 10_000 {
		body := wiretest.Mutate(random)
		if err := checkUnmarshal(body); err != nil {
			t.Errorf("%q (seed %d): %v", body, seed, err)
		}
	}
}

// Bad syntax is found by the JSON packages themselves, so it has no code.
func TestUnmarshalFailsWithTheCodeOfTheService(t *testing.T) {
	for _, body := range wiretest.Bodies {
		for name, unmarshal := range map[string]func([]byte, any) error{
			"encoding/json": json.Unmarshal,
			"json v2":       func(b []byte, v any) error { return jsonv2.Unmarshal(b, v) },
		} {
			var got plantstore.Plant
			err := unmarshal([]byte(body.Text), &got)
			switch {
			case body.Code == 0:
				if err != nil || got != body.Plant {
					t.Errorf("%s: %.200q: got %v, %v; want %v", name, body.Text, got, err, body.Plant)
				}
			case err == nil, body.Code != plantstore.ErrNotJSON && !errors.Is(err, body.Code):
				t.Errorf("%s: %.200q: got %v, want the code %d", name, body.Text, err, body.Code)
			}
		}
	}
}

func TestFailedUnmarshalChangesNothing(t *testing.T) {
	oak := plantstore.Plant{ID: 1, Name: "Oak", Tag: plantstore.NewTag("tree")}
	p := oak
	for _, body := range []string{`{"id":2,"name":"Elm","tag":1}`, `{"id":2}`, `[]`, `{"id":2,"name":"Elm"`} {
		if err := p.UnmarshalJSON([]byte(body)); err == nil || p != oak {
			t.Errorf("%s: got %v, %v", body, p, err)
		}
	}
}

func TestInvalidUTF8IsNotMarshalled(t *testing.T) {
	for _, value := range []any{plantOf("a\xff"), plantOf("", "\xff"), plantstore.NewTag("\xff")} {
		if text, err := json.Marshal(value); !errors.Is(err, plantstore.ErrNotJSON) {
			t.Errorf("%#v: got %s, %v; want ErrNotJSON", value, text, err)
		}
	}
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
	for text, want := range map[string]plantstore.Code{
		`1`: plantstore.ErrType, `["a"]`: plantstore.ErrType, `{}`: plantstore.ErrType, `true`: plantstore.ErrType,
		`"\ud800"`: plantstore.ErrNotJSON, "\"\xff\"": plantstore.ErrNotJSON, `"\\ufffd\udc00"`: plantstore.ErrNotJSON, ``: plantstore.ErrNotJSON, `"a`: plantstore.ErrNotJSON,
	} {
		var tag plantstore.Tag
		if err := tag.UnmarshalJSON([]byte(text)); !errors.Is(err, want) || tag != (plantstore.Tag{}) {
			t.Errorf("%q: got %q, %v; want %v", text, tag, err, want)
		}
	}
	type optional struct {
		Tag plantstore.Tag `json:"tag,omitzero"`
	}
	if text, err := json.Marshal([]optional{{}, {plantstore.NewTag("")}}); err != nil || string(text) != `[{},{"tag":""}]` {
		t.Errorf("got %s, %v", text, err)
	}
}

// FuzzID reads any text as an id, and compares the result with big.Rat's. Nothing
// panics, even if the text is not JSON.
func FuzzID(f *testing.F) {
	for _, body := range wiretest.Bodies {
		if number, ok := strings.CutPrefix(body.Text, `{"id":`); ok {
			number, _, _ = strings.Cut(number, ",")
			f.Add(number)
		}
	}
	for _, text := range []string{"", "-", "1e", "1e-", "1e+", ".", "1.", "e", "-e", "null", `"1"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got plantstore.ID
		err := got.UnmarshalJSON([]byte(text))
		want, ok := wiretest.Integer(text)
		switch {
		case !ok:
		case !want.IsInt():
			if !errors.Is(err, plantstore.ErrType) || got != 0 {
				t.Errorf("%s: got %d, %v; want %v", text, got, err, plantstore.ErrType)
			}
		case !want.Num().IsInt64():
			if !errors.Is(err, plantstore.ErrRange) || got != 0 {
				t.Errorf("%s: got %d, %v; want %v", text, got, err, plantstore.ErrRange)
			}
		case err != nil || int64(got) != want.Num().Int64():
			t.Errorf("%s: got %d, %v; want %s", text, got, err, want)
		}
	})
}

func TestIDIsMarshalledInDecimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := plantstore.ID(rapid.Int64().Draw(t, "id"))
		text, err := json.Marshal(id)
		if want := fmt.Sprintf("%d", int64(id)); err != nil || string(text) != want || id.String() != want {
			t.Fatalf("got %s, %v and %s; want %s", text, err, id, want)
		}
	})
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
