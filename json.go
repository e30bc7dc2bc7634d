package plantstore

import (
	"bytes"
	"encoding/json"
	"errors"
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
	if err != nil && text[0] == '-' {
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

// UnmarshalJSON is the inverse of MarshalJSON.
func (t *Tag) UnmarshalJSON(value []byte) error {
	if string(value) == "null" {
		*t = Tag{}
		return nil
	}
	text, err := unmarshalText(value)
	if err != nil {
		return err
	}
	*t = NewTag(text)
	return nil
}

// String returns the plant for people to read.
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

// UnmarshalJSON reads a NewPlant as strictly as the service does: id and name are
// required, every field has its type, names are case-sensitive and unique, and
// unknown ones are ignored. It fails with an [*Error].
func (p *Plant) UnmarshalJSON(value []byte) error {
	dec := json.NewDecoder(bytes.NewReader(value))
	if token, err := dec.Token(); err != nil {
		return Errorf(ErrNotJSON, "not JSON: %v", err)
	} else if token != json.Delim('{') {
		return Errorf(ErrNotObject, "not a JSON object: got %s", Shorten(string(value)))
	}
	var plant Plant
	var problems Problems
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		var member json.RawMessage
		if err == nil {
			err = dec.Decode(&member)
		}
		if err != nil {
			return Errorf(ErrNotJSON, "not JSON: %v", err)
		}
		name := key.(string)
		if seen[name] {
			return Errorf(ErrNotJSON, "not JSON: duplicate member %q", Shorten(name))
		}
		seen[name] = true
		switch name {
		case "id":
			problems.Wrap("id", plant.ID.UnmarshalJSON(member))
		case "name":
			plant.Name, err = unmarshalText(member)
			problems.Wrap("name", err)
		case "tag":
			text, err := unmarshalText(member)
			problems.Wrap("tag", err)
			plant.Tag = NewTag(text)
		}
	}
	if !seen["id"] {
		problems.Add(ErrMissing, `"id" is missing: send an integer`)
	}
	if !seen["name"] {
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

// unmarshalText reads a JSON string, and refuses one that encoding/json would
// silently change: invalid UTF-8 and unpaired surrogates become U+FFFD there.
func unmarshalText(value []byte) (text string, err error) {
	if value[0] != '"' {
		return "", Errorf(ErrType, "must be a string, got %s", Shorten(string(value)))
	}
	if err := json.Unmarshal(value, &text); err != nil {
		return "", Errorf(ErrNotJSON, "not JSON: %v", err)
	}
	written := bytes.Count(value, []byte("\uFFFD")) + bytes.Count(bytes.ToLower(value), []byte(`\ufffd`))
	if strings.Count(text, "\uFFFD") > written {
		return "", Errorf(ErrNotJSON, "not valid UTF-8: %q", Shorten(text))
	}
	return text, nil
}
