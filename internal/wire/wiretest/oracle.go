package wiretest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"plantstore"
)

// Verdict is what an [Oracle] says about a body.
type Verdict int

const (
	Undecided Verdict = iota // deciding would cost too much
	NotIJSON                 // not JSON, or not as RFC 7493 restricts it
	NotObject                // a JSON value other than an object
	Invalid                  // an object that the schema refuses
	Valid                    // an object that the schema accepts
)

func (v Verdict) String() string {
	return [...]string{"undecided", "not I-JSON", "not an object", "invalid", "valid"}[v]
}

// VerdictOf returns the verdict that an error of a decoder stands for.
func VerdictOf(err error) (Verdict, error) {
	if err == nil {
		return Valid, nil
	}
	switch code, _ := errors.AsType[plantstore.Code](err); code {
	case plantstore.ErrNotJSON:
		return NotIJSON, nil
	case plantstore.ErrNotObject:
		return NotObject, nil
	case plantstore.ErrMissing, plantstore.ErrType, plantstore.ErrRange:
		return Invalid, nil
	}
	return Undecided, fmt.Errorf("no decoder should fail with %w", err)
}

// Oracle decides about bodies without the code under test: encoding/json decodes
// them, and jsonschema validates them against the schemas in openapi.yaml.
//
// encoding/json accepts duplicate names, invalid UTF-8 and unpaired surrogates, and
// RFC 7493 does not, so the oracle looks for them itself. Both refuse what is nested
// deeper than 10,000 levels. jsonschema would compute 1e999999999, so it is given a
// smaller number instead: see [Integer].
type Oracle struct{ newPlant, plant *jsonschema.Schema }

// NewOracle returns an oracle for the schemas of openapi.yaml.
func NewOracle(t testing.TB) Oracle {
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
	return Oracle{newPlant: schema("NewPlant"), plant: schema("Plant")}
}

// isInt64 is the format int64, which JSON Schema leaves to its users. Whether a
// number is an integer is decided by the type.
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

// NewPlant decides whether a body is a NewPlant, and returns the plant if so.
func (o Oracle) NewPlant(body []byte) (Verdict, plantstore.Plant) {
	members, verdict := readObject(body)
	if verdict != Valid {
		return verdict, plantstore.Plant{}
	}
	if number, ok := members["id"].(json.Number); ok {
		if members["id"], ok = simplify(number); !ok {
			return Undecided, plantstore.Plant{}
		}
	}
	if o.newPlant.Validate(members) != nil {
		return Invalid, plantstore.Plant{}
	}
	plant := plantOf(members)
	id, _ := new(big.Rat).SetString(members["id"].(json.Number).String())
	plant.ID = plantstore.ID(id.Num().Int64())
	return Valid, plant
}

// Plant decides whether a body is a Plant, and returns it if so. An id is a member
// like any other.
func (o Oracle) Plant(body []byte) (Verdict, plantstore.Plant) {
	members, verdict := readObject(body)
	if verdict != Valid {
		return verdict, plantstore.Plant{}
	}
	maps.DeleteFunc(members, func(name string, _ any) bool { return name != "name" && name != "tag" })
	if o.plant.Validate(members) != nil {
		return Invalid, plantstore.Plant{}
	}
	return Valid, plantOf(members)
}

func plantOf(members map[string]any) plantstore.Plant {
	plant := plantstore.Plant{Name: members["name"].(string)}
	if tag, ok := members["tag"].(string); ok {
		plant.Tag = plantstore.NewTag(tag)
	}
	return plant
}

func readObject(body []byte) (map[string]any, Verdict) {
	value, err := readStrictly(body)
	if err != nil {
		return nil, NotIJSON
	}
	members, ok := value.(map[string]any)
	if !ok {
		return nil, NotObject
	}
	return members, Valid
}

// readStrictly decodes one JSON value with encoding/json, and refuses what that
// accepts and RFC 7493 does not.
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
		return nil, errors.New("data after the value")
	}
	if hasUnpairedSurrogate(string(body)) {
		return nil, errors.New("an unpaired surrogate")
	}
	dec = json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	return value, findDuplicate(dec)
}

// hasUnpairedSurrogate looks for an escaped surrogate without its other half. In JSON
// a backslash is always part of a string.
func hasUnpairedSurrogate(text string) bool {
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
	var open []map[string]bool // the names of each open object, nil for an array
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
				return fmt.Errorf("duplicate name %q", token)
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

// Integer reads a JSON number. It reports false for any other text and for a number
// that costs too much. Of a number with a huge exponent it returns another one of the
// same kind: zero, an integer outside int64, or not an integer.
func Integer(text string) (*big.Rat, bool) {
	if !jsonNumber.MatchString(text) {
		return nil, false
	}
	number, ok := simplify(json.Number(text))
	if !ok {
		return nil, false
	}
	return new(big.Rat).SetString(number.String())
}

// simplify replaces a number whose exponent is huge: by 0, by 1e30 for an integer, or
// by 0.5. It reports false where the digits are so many that they may outweigh the
// exponent.
func simplify(number json.Number) (json.Number, bool) {
	const limit = 5000 // of digits and of the exponent
	parts := jsonNumber.FindStringSubmatch(number.String())
	digits, exponent := parts[2]+parts[3], parts[4]
	n, err := strconv.ParseInt(exponent, 10, 64)
	switch {
	case len(digits) > limit-20:
		return "", false
	case exponent == "" || err == nil && -limit <= n && n <= limit:
		return number, true
	case strings.Trim(digits, "0") == "":
		return "0", true
	case strings.HasPrefix(exponent, "-"):
		return "0.5", true
	}
	return "1e30", true
}
