package server

import (
	"bytes"
	"errors"
	"math"
	"strconv"
)

var errNotInteger = errors.New("not an integer")

// parseInteger returns the value of a JSON number if it is an integer, whatever
// way it is written: 100, 1e2, 100.0 and 10000e-2 are the same. It is exact, and
// its cost depends on the length of the text, not on the exponent. It fails with
// errNotInteger, or with strconv.ErrRange for an integer outside int64.
func parseInteger(number []byte) (int64, error) {
	digits, negative := bytes.CutPrefix(number, []byte{'-'})
	exponent := int64(0)
	if i := bytes.IndexAny(digits, "eE"); i >= 0 {
		exponent = parseExponent(digits[i+1:])
		digits = digits[:i]
	}
	whole, fraction, _ := bytes.Cut(digits, []byte{'.'})
	whole = bytes.TrimLeft(whole, "0")
	fraction = bytes.TrimRight(fraction, "0")

	// The value is the digits of whole and fraction as one number, times ten to
	// the power of scale.
	scale := exponent - int64(len(fraction))
	all := whole
	if len(fraction) > 0 {
		all = append(append(make([]byte, 0, len(whole)+len(fraction)), whole...), fraction...)
		all = bytes.TrimLeft(all, "0")
	}
	for scale < 0 && len(all) > 0 && all[len(all)-1] == '0' {
		all = all[:len(all)-1]
		scale++
	}
	switch {
	case len(all) == 0:
		return 0, nil
	case scale < 0:
		return 0, errNotInteger
	case int64(len(all))+scale > 19: // the digits of the largest int64
		return 0, strconv.ErrRange
	}
	var n uint64
	for _, d := range all {
		n = n*10 + uint64(d-'0')
	}
	for range scale {
		n *= 10
	}
	if negative {
		if n > 1<<63 {
			return 0, strconv.ErrRange
		}
		return -int64(n), nil
	}
	if n > math.MaxInt64 {
		return 0, strconv.ErrRange
	}
	return int64(n), nil
}

// parseExponent reads an exponent and stops counting where no body could be long
// enough to matter.
func parseExponent(text []byte) int64 {
	const most = 1 << 40
	digits := bytes.TrimLeft(text, "+-")
	n := int64(0)
	for _, d := range digits {
		n = min(n*10+int64(d-'0'), most)
	}
	if text[0] == '-' {
		return -n
	}
	return n
}
