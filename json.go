package plantstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// String returns the id in decimal.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalJSON returns the id as a JSON integer.
func (id ID) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, int64(id), 10), nil
}

// UnmarshalJSON reads a JSON number that is an integer, however it is written:
// 100, 1e2, 100.0 and 10000e-2 are the same id. It is exact: a number never passes
// through a float64. It fails with an [*Error], ErrType or ErrRange, whose message
// begins with "must".
func (id *ID) UnmarshalJSON(value []byte) error {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		n, err = parseInteger(value)
	}
	switch {
	case errors.Is(err, strconv.ErrRange):
		return Errorf(ErrRange, "must be from -9223372036854775808 to 9223372036854775807, got %s", Shorten(string(value)))
	case err != nil:
		return Errorf(ErrType, "must be an integer, got %s", Shorten(string(value)))
	}
	*id = ID(n)
	return nil
}

// parseInteger returns the value of a JSON number that is an integer. Its cost
// depends on the length of the text, not on the exponent. It fails with
// strconv.ErrSyntax, or with strconv.ErrRange for an integer outside int64.
func parseInteger(number []byte) (int64, error) {
	digits, negative := bytes.CutPrefix(number, []byte("-"))
	if len(digits) == 0 || digits[0] < '0' || digits[0] > '9' {
		return 0, strconv.ErrSyntax
	}
	scale := int64(0) // the power of ten by which the digits are multiplied
	if i := bytes.IndexAny(digits, "eE"); i >= 0 {
		scale = parseExponent(digits[i+1:])
		digits = digits[:i]
	}
	whole, fraction, _ := bytes.Cut(digits, []byte("."))
	scale -= int64(len(fraction))
	digits = bytes.TrimLeft(bytes.Join([][]byte{whole, fraction}, nil), "0")
	significant := bytes.TrimRight(digits, "0")
	scale += int64(len(digits) - len(significant))
	switch {
	case len(significant) == 0:
		return 0, nil
	case scale < 0:
		return 0, strconv.ErrSyntax
	case int64(len(significant))+scale > 19: // the digits of the largest int64
		return 0, strconv.ErrRange
	}
	text := string(significant) + strings.Repeat("0", int(scale))
	if negative {
		text = "-" + text
	}
	return strconv.ParseInt(text, 10, 64)
}

// parseExponent reads an exponent. One too large to parse is far beyond what any
// number of digits could make up for.
func parseExponent(text []byte) int64 {
	const huge = 1 << 40
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil && bytes.HasPrefix(text, []byte("-")) {
		return -huge
	}
	if err != nil {
		return huge
	}
	return max(-huge, min(n, huge))
}

// String returns the tag's text, or "" for an absent tag.
func (t Tag) String() string { return t.text }

// MarshalJSON returns the tag as a JSON string, or null for an absent one.
func (t Tag) MarshalJSON() ([]byte, error) {
	if !t.present {
		return []byte("null"), nil
	}
	return marshalText(t.text)
}

// UnmarshalJSON is the inverse of MarshalJSON. It fails with an [*Error].
func (t *Tag) UnmarshalJSON(value []byte) error {
	if string(value) == "null" {
		*t = Tag{}
		return nil
	}
	if err := checkStrict(value); err != nil {
		return err
	}
	text, err := unmarshalText(value)
	if err != nil {
		return err
	}
	*t = NewTag(text)
	return nil
}

// String returns a description of the plant for display.
func (p Plant) String() string {
	text := "plant " + p.ID.String() + " " + strconv.Quote(p.Name)
	if p.Tag.present {
		text += " (" + strconv.Quote(p.Tag.text) + ")"
	}
	return text
}

// MarshalJSON returns the plant as the interface's NewPlant: with its id, and
// without a tag where that is absent. Text that is not valid UTF-8 is an error.
func (p Plant) MarshalJSON() ([]byte, error) {
	name, err := marshalText(p.Name)
	if err != nil {
		return nil, err
	}
	b := strconv.AppendInt([]byte(`{"id":`), int64(p.ID), 10)
	b = append(append(b, `,"name":`...), name...)
	if p.Tag.present {
		tag, err := marshalText(p.Tag.text)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"tag":`...), tag...)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads a NewPlant exactly as the service does: id and name are
// required, every field has its type, names are case-sensitive and unique, unknown
// ones are ignored, and text is valid Unicode. It fails with an [*Error]. Text that is
// not JSON at all never gets here from encoding/json, which fails with an error of its
// own.
func (p *Plant) UnmarshalJSON(value []byte) error {
	if err := checkStrict(value); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	if token, _ := dec.Token(); token != json.Delim('{') {
		return Errorf(ErrNotObject, "not a JSON object: got %s", Shorten(string(value)))
	}
	var plant Plant
	var problems Problems
	hasID, hasName := false, false
	for dec.More() {
		// Nothing fails here: checkStrict has read all of it.
		name, _ := dec.Token()
		var member json.RawMessage
		_ = dec.Decode(&member)
		switch name {
		case "id":
			hasID = true
			problems.Wrap("id", plant.ID.UnmarshalJSON(member))
		case "name":
			hasName = true
			text, err := unmarshalText(member)
			problems.Wrap("name", err)
			plant.Name = text
		case "tag":
			text, err := unmarshalText(member)
			problems.Wrap("tag", err)
			plant.Tag = NewTag(text)
		}
	}
	if !hasID {
		problems.Add(ErrMissing, `"id" is missing: send an integer`)
	}
	if !hasName {
		problems.Add(ErrMissing, `"name" is missing: send a string`)
	}
	if err := problems.Err(); err != nil {
		return err
	}
	*p = plant
	return nil
}

func marshalText(text string) ([]byte, error) {
	if !utf8.ValidString(text) {
		return nil, Errorf(ErrNotJSON, "not valid UTF-8: %q", Shorten(text))
	}
	return json.Marshal(text)
}

// unmarshalText reads a JSON string that checkStrict has accepted.
func unmarshalText(value []byte) (text string, err error) {
	if err := json.Unmarshal(value, &text); err != nil || value[0] != '"' {
		return "", Errorf(ErrType, "must be a string, got %s", Shorten(string(value)))
	}
	return text, nil
}

// checkStrict refuses with ErrNotJSON what is not I-JSON (RFC 7493). encoding/json
// accepts invalid UTF-8 and unpaired surrogates, which it replaces by U+FFFD, and
// duplicate names.
func checkStrict(value []byte) error {
	err := json.Unmarshal(value, new(json.RawMessage))
	if err == nil && (!utf8.Valid(value) || !pairedEscapes.Match(value)) {
		err = errors.New("invalid Unicode text")
	}
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(value))
		dec.UseNumber()
		err = checkNames(dec)
	}
	if err != nil {
		return Errorf(ErrNotJSON, "not JSON: %v", err)
	}
	return nil
}

// pairedEscapes matches a JSON text in which every escaped surrogate is part of a pair.
var pairedEscapes = regexp.MustCompile(`(?is)^(?:[^\\]|\\[^u]|\\u(?:[^d]...|d[0-7]..|d[89ab]..\\ud[c-f]..))*$`)

// checkNames reads a value and fails if an object in it has a name twice.
func checkNames(dec *json.Decoder) error {
	token, err := dec.Token()
	open, nested := token.(json.Delim)
	if err != nil || !nested {
		return err
	}
	seen := map[json.Token]bool{}
	for dec.More() {
		if open == '{' {
			name, err := dec.Token()
			if err != nil {
				return err
			}
			if seen[name] {
				return fmt.Errorf("duplicate member %q", Shorten(fmt.Sprint(name)))
			}
			seen[name] = true
		}
		if err := checkNames(dec); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}
