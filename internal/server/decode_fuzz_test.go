package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"math/rand/v2"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"plantstore"
)

// verdict is what the outside judge says of a body.
type verdict int

const (
	undecided verdict = iota // the judge was not asked
	notIJSON                 // no JSON, or none that RFC 7493 allows
	notObject                // JSON, but no object
	invalid                  // an object, but no NewPlant
	valid                    // a NewPlant
)

func (v verdict) String() string {
	return [...]string{"undecided", "not I-JSON", "not an object", "not a NewPlant", "a NewPlant"}[v]
}

// outsider judges bodies without any of our code: encoding/json reads them and
// jsonschema holds them against NewPlant as openapi.yaml has it.
//
// The two readers differ by design in what follows, and in nothing else:
//
//   - encoding/json keeps the last of duplicate names, puts U+FFFD in the place
//     of invalid UTF-8 and of unpaired surrogates, and takes all of them for
//     JSON. RFC 7493 does not, so outsider looks for them itself.
//   - both refuse what is nested deeper than 10,000 levels.
//   - jsonschema would work out what 1e999999999 is. It never gets to see a
//     number that costs more than it says: see [settle].
type outsider struct{ newPlant, plant *jsonschema.Schema }

func newOutsider(t testing.TB) outsider {
	t.Helper()
	var doc any
	if err := yaml.Unmarshal(plantstore.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.RegisterFormat(&jsonschema.Format{Name: "int64", Validate: isInt64})
	compiler.AssertFormat()
	if err := compiler.AddResource("contract:openapi", doc); err != nil {
		t.Fatal(err)
	}
	schema := func(name string) *jsonschema.Schema {
		schema, err := compiler.Compile("contract:openapi#/components/schemas/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return schema
	}
	return outsider{newPlant: schema("NewPlant"), plant: schema("Plant")}
}

// isInt64 is the format int64, which JSON Schema leaves to its users. A number
// that is no integer is the type's concern.
func isInt64(value any) error {
	number, ok := value.(json.Number)
	if !ok {
		return nil
	}
	if r, ok := new(big.Rat).SetString(number.String()); ok && r.IsInt() && !r.Num().IsInt64() {
		return errors.New("outside int64")
	}
	return nil
}

// judge returns the verdict, and the members of an object that is one.
func (o outsider) judge(body []byte) (verdict, map[string]any) {
	value, err := readStrictly(body)
	if err != nil {
		return notIJSON, nil
	}
	members, ok := value.(map[string]any)
	if !ok {
		return notObject, nil
	}
	if number, ok := members["id"].(json.Number); ok {
		if members["id"], ok = settle(number); !ok {
			return undecided, nil
		}
	}
	if o.newPlant.Validate(members) != nil {
		return invalid, nil
	}
	return valid, members
}

// readStrictly reads one JSON value with encoding/json, and refuses what that
// lets pass and RFC 7493 does not.
func readStrictly(body []byte) (any, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the value")
	}
	if hasLoneSurrogate(string(body)) {
		return nil, errors.New("an unpaired surrogate")
	}
	dec = json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	return value, findDuplicate(dec)
}

// hasLoneSurrogate looks for an escaped surrogate without its other half. In JSON
// a backslash stands in strings only.
func hasLoneSurrogate(text string) bool {
	unit := func(s string) uint64 { // the code unit that s begins with, or 0
		if len(s) < 6 || s[:2] != `\u` {
			return 0
		}
		n, _ := strconv.ParseUint(s[2:6], 16, 16)
		return n
	}
	high := func(n uint64) bool { return 0xd800 <= n && n < 0xdc00 }
	low := func(n uint64) bool { return 0xdc00 <= n && n < 0xe000 }
	for i := strings.IndexByte(text, '\\'); i >= 0 && i < len(text); {
		switch n := unit(text[i:]); {
		case high(n) && low(unit(text[i+6:])):
			i += 12
		case high(n) || low(n):
			return true
		default:
			i += 2
		}
		next := strings.IndexByte(text[i:], '\\')
		if next < 0 {
			return false
		}
		i += next
	}
	return false
}

// findDuplicate reads a value, and fails if an object in it has a name twice.
func findDuplicate(dec *json.Decoder) error {
	var open []map[string]bool // the names of each object, nil for an array
	name := false              // whether a name comes next
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if name && token != json.Delim('}') {
			seen := open[len(open)-1]
			if seen[token.(string)] {
				return fmt.Errorf("%q twice", token)
			}
			seen[token.(string)] = true
			name = false
			continue
		}
		switch token {
		case json.Delim('{'):
			open = append(open, map[string]bool{})
		case json.Delim('['):
			open = append(open, nil)
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		name = len(open) > 0 && open[len(open)-1] != nil
	}
}

var jsonNumber = regexp.MustCompile(`^(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$`)

// settle puts another number in the place of one that outside judges must not
// see, of the same kind: 0 for zero, 1e30 for an integer that is far too large,
// and 0.5 for what is no integer. It gives up where the digits are so many that
// they may outweigh the exponent.
func settle(number json.Number) (json.Number, bool) {
	const most = 5000 // digits, and the exponent, that a judge can work out
	parts := jsonNumber.FindStringSubmatch(number.String())
	digits, exponent := parts[2]+parts[3], parts[4]
	n, err := strconv.ParseInt(exponent, 10, 64)
	switch {
	case len(digits) > most-20:
		return "", false
	case exponent == "" || err == nil && -most <= n && n <= most:
		return number, true
	case strings.Trim(digits, "0") == "":
		return "0", true
	case strings.HasPrefix(exponent, "-"):
		return "0.5", true
	}
	return "1e30", true
}

// decode is our decoder, on a copy of the body that is overwritten afterwards, as
// a buffer of the pool is.
func decode(body []byte) (plantstore.Plant, error) {
	buffer := bytes.Clone(body)
	plant, err := decodePlant(bytes.NewBuffer(buffer), newPlantFields)
	for i := range buffer {
		buffer[i] = 'x'
	}
	return plant, err
}

// verdictOf translates our answer into the outsider's words.
func verdictOf(err error) (verdict, error) {
	code, _ := errors.AsType[plantstore.Code](err)
	switch {
	case err == nil:
		return valid, nil
	case code == plantstore.ErrNotJSON:
		return notIJSON, nil
	case code == plantstore.ErrNotObject:
		return notObject, nil
	case code == plantstore.ErrMissing, code == plantstore.ErrType, code == plantstore.ErrRange:
		return invalid, nil
	}
	return undecided, fmt.Errorf("no decoder fails with %w", err)
}

// difference says where our decoder and the outsider differ about the body, and
// whether what we would answer holds what we read.
func (o outsider) difference(body []byte) error {
	theirs, members := o.judge(body)
	plant, refusal := decode(body)
	ours, err := verdictOf(refusal)
	if err != nil {
		return err
	}
	if theirs == undecided {
		return nil
	}
	if ours != theirs {
		return fmt.Errorf("we take it for %v (%v), the outside judge for %v", ours, refusal, theirs)
	}
	if ours != valid {
		return nil
	}
	id, _ := new(big.Rat).SetString(members["id"].(json.Number).String())
	if int64(plant.ID) != id.Num().Int64() {
		return fmt.Errorf("we read the id %d, the outside judge %s", plant.ID, id)
	}
	return sameText(plant, members)
}

// sameText compares the plant's name and tag with the members, as we read them
// and as we would answer them.
func sameText(plant plantstore.Plant, members map[string]any) error {
	answer := httptest.NewRecorder()
	if err := writePlant(answer, plant); err != nil {
		return err
	}
	again, err := readStrictly(answer.Body.Bytes())
	if err != nil {
		return fmt.Errorf("we would answer %q: %w", answer.Body, err)
	}
	text, tagged := plant.Tag.Text()
	_, wanted := members["tag"]
	want := map[string]any{"name": members["name"]}
	if wanted {
		want["tag"] = members["tag"]
	}
	switch {
	case plant.Name != members["name"]:
		return fmt.Errorf("we read the name %q, the outside judge %q", plant.Name, members["name"])
	case tagged != wanted || tagged && text != members["tag"]:
		return fmt.Errorf("we read the tag %q, %v, the outside judge %q, %v", text, tagged, members["tag"], wanted)
	case !reflect.DeepEqual(again, any(want)):
		return fmt.Errorf("we would answer %q, want %q", again, want)
	}
	return nil
}

// awkward are bodies that the table lacks: what only the size of a buffer, the
// depth of a value or the length of a number can break.
func awkward() []string {
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	var all []string
	for _, length := range []int{62, 63, 64, 65, 510, 512, 514, 4094, 4096, 4098} {
		// The end of the name, of an escape and of a rune at each place near the end
		// of a buffer.
		all = append(all, `{"id":1,"name":"`+strings.Repeat("x", length-17)+`"}`,
			`{"name":"`+strings.Repeat("x", length-9)+`\ud83c\udf31","id":1}`,
			`{"name":"`+strings.Repeat("x", length-10)+`🌱","id":1,"tag":"\u0000"}`,
			strings.Repeat(" ", length)+`{"id":1,"name":"x"}`+strings.Repeat("\n", length))
	}
	for _, levels := range []int{9_998, 9_999, 10_000, 10_001} {
		all = append(all, `{"id":1,"name":"x","more":`+nested(levels)+`}`, nested(levels), strings.Repeat("[", levels))
	}
	for _, digits := range []int{17, 18, 19, 20, 400, 4000} {
		zeros := strings.Repeat("0", digits)
		for _, number := range []string{
			"1" + zeros, "1" + zeros + "e-" + strconv.Itoa(digits), "0." + zeros + "1e" + strconv.Itoa(digits+1), "-0." + zeros, "1." + zeros, "1." + zeros + "1",
			"9223372036854775807." + zeros, "9223372036854775808" + zeros + "e-" + strconv.Itoa(digits), "-9223372036854775808" + zeros + "E-0" + strconv.Itoa(digits), "1e-" + zeros, "1e+" + zeros + "5",
		} {
			all = append(all, withID(number))
		}
	}
	var members strings.Builder
	for i := range 300 {
		fmt.Fprintf(&members, `"m%d":%d,`, i, i)
	}
	return append(all, "{"+members.String()+`"id":1,"name":"x"}`, "{"+members.String()+`"m299":0,"id":1,"name":"x"}`,
		`{"ID":1,"Id":2,"NAME":"x","id":3,"name":"y"}`, `{"\u006eame":"a","id":1}`, `{"\u006eame":"a","name":"b","id":1}`, `{"ta\u0067":null,"name":"b","id":1}`,
		`{"id":1,"name":"x"}{"id":1,"name":"x"}`, "\ufeff"+`{"id":1,"name":"x"}`, `{"id":1,"name":"x"}`+"\x00", "\x1e"+`{"id":1,"name":"x"}`+"\n", `{"":{"":{"":1}},"id":1,"name":""}`)
}

func FuzzDecodeNewPlant(f *testing.F) {
	for _, tt := range bodies {
		f.Add([]byte(tt.body))
	}
	for _, body := range awkward() {
		f.Add([]byte(body))
	}
	o := newOutsider(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		if err := o.difference(body); err != nil {
			t.Errorf("%q: %v", body, err)
		}
	})
}

// FuzzDecodePlant does the same for the body of a replace, in which an id is a
// member like any other.
func FuzzDecodePlant(f *testing.F) {
	for _, tt := range bodies {
		f.Add([]byte(tt.body))
	}
	for _, body := range awkward() {
		f.Add([]byte(strings.Replace(body, `"id":1,`, "", 1)))
	}
	o := newOutsider(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		theirs, members := o.judgePlant(body)
		plant, refusal := decodePlant(bytes.NewBuffer(bytes.Clone(body)), plantFields)
		ours, err := verdictOf(refusal)
		if err == nil && ours != theirs {
			err = fmt.Errorf("we take it for %v (%v), the outside judge for %v", ours, refusal, theirs)
		}
		if err == nil && ours == valid {
			err = sameText(plant, members)
		}
		if err != nil || plant.ID != 0 {
			t.Errorf("%q: %v, with the id %d", body, err, plant.ID)
		}
	})
}

// judgePlant is judge for a Plant, whose fields are no numbers: the others are
// none of the schema's business.
func (o outsider) judgePlant(body []byte) (verdict, map[string]any) {
	value, err := readStrictly(body)
	if err != nil {
		return notIJSON, nil
	}
	members, ok := value.(map[string]any)
	if !ok {
		return notObject, nil
	}
	maps.DeleteFunc(members, func(name string, _ any) bool { return name != "name" && name != "tag" })
	if o.plant.Validate(members) != nil {
		return invalid, nil
	}
	return valid, members
}

// The fuzzer's work in small, so that every run of the tests does some of it.
func TestDecoderAgreesWithTheOutsideJudgeOnMutatedBodies(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	o := newOutsider(t)
	verdicts := map[verdict]int{}
	for range 10_000 {
		body := mutated(random)
		if err := o.difference(body); err != nil {
			t.Errorf("%q (seed %d): %v", body, seed, err)
		}
		v, _ := o.judge(body)
		verdicts[v]++
	}
	for _, v := range []verdict{notIJSON, notObject, invalid, valid} {
		if verdicts[v] < 10 {
			t.Errorf("only %d of the bodies are %v", verdicts[v], v)
		}
	}
}

// mutated returns one of the bodies with a few pieces of it changed.
func mutated(random *rand.Rand) []byte {
	pick := func() []byte { return []byte(bodies[random.IntN(len(bodies))].body) }
	pieces := []string{
		`{`, `}`, `[`, `]`, `:`, `,`, `"`, `\`, `\u`, `\ud83c`, `\udf31`, `\u0000`, `\\`, `e`, `E-`, `.`, `-`, `0`, `1`, `9`, ` `, "\n", "\x00", "\xff", "é",
		`null`, `true`, `"id"`, `"name"`, `"tag"`, `"\u0069d"`, `"id":1,`, `,"name":"x"`, `"tag":"",`, `9223372036854775807`, `e99999`, `{"id":1,"name":"x"}`,
	}
	body := pick()
	for range random.IntN(4) {
		from := random.IntN(len(body) + 1)
		to := min(from+random.IntN(4), len(body))
		piece := []byte(pieces[random.IntN(len(pieces))])
		switch random.IntN(5) {
		case 0:
			to = from
		case 1:
			piece = nil
		case 2:
			piece = pick()
		case 3:
			piece = bytes.Clone(body[from:to])
			to = from
		}
		body = slices.Replace(body, from, to, piece...)
	}
	return body
}

func TestDecoderTakesEveryBodyForWhatItIs(t *testing.T) {
	distinct := map[string]bool{}
	for _, tt := range bodies {
		distinct[tt.body] = true
		got, err := decode([]byte(tt.body))
		if code, _ := errors.AsType[plantstore.Code](err); code != tt.code || got != tt.want {
			t.Errorf("%.200q: got %.200q, %v; want %.200q, %v", tt.body, fmt.Sprint(got), err, fmt.Sprint(tt.want), tt.code)
		}
	}
	if len(distinct) < 200 {
		t.Errorf("there are %d bodies, want 200 at least", len(distinct))
	}
}

// The outside judge must not agree with everything either.
func TestOutsideJudgeKnowsTheVerdictOfEveryBody(t *testing.T) {
	o := newOutsider(t)
	for _, tt := range bodies {
		want, err := verdictOf(nil)
		if tt.code != 0 {
			want, err = verdictOf(tt.code)
		}
		if got, _ := o.judge([]byte(tt.body)); got != want || err != nil {
			t.Errorf("%.200q: got %v, want %v", tt.body, got, want)
		}
	}
}

func FuzzParseInteger(f *testing.F) {
	for _, tt := range bodies {
		if number, ok := strings.CutPrefix(tt.body, `{"id":`); ok {
			number, _, _ = strings.Cut(number, ",")
			f.Add(number)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !jsonNumber.MatchString(text) {
			return
		}
		got, err := parseInteger([]byte(text))
		settled, ok := settle(json.Number(text))
		if !ok {
			return
		}
		want, _ := new(big.Rat).SetString(settled.String())
		switch {
		case !want.IsInt():
			if !errors.Is(err, errNotInteger) {
				t.Errorf("%s: got %d, %v; want %v", text, got, err, errNotInteger)
			}
		case !want.Num().IsInt64():
			if !errors.Is(err, strconv.ErrRange) {
				t.Errorf("%s: got %d, %v; want %v", text, got, err, strconv.ErrRange)
			}
		case err != nil || got != want.Num().Int64():
			t.Errorf("%s: got %d, %v; want %s", text, got, err, want)
		}
	})
}
