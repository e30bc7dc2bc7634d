package plantstore

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// ID is the identification number of a plant, chosen by the client. Every int64 is
// a valid ID, including zero and negative numbers.
type ID int64

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
