package wire

import (
	"strconv"
	"strings"

	"plantstore"
)

// HeaderCount carries the number of plants that match a list.
const HeaderCount = "Plantstore-Count"

// unknownCount is the count of a list for which it would be too much work.
const unknownCount = "?"

// FormatCount returns a count for its header. nil is an unknown one.
func FormatCount(c *plantstore.Count) string {
	switch {
	case c == nil:
		return unknownCount
	case c.More:
		return strconv.Itoa(c.Plants) + "+"
	}
	return strconv.Itoa(c.Plants)
}

// ParseCount is the inverse of FormatCount. It reports whether the text is a count.
func ParseCount(text string) (*plantstore.Count, bool) {
	if text == unknownCount {
		return nil, true
	}
	digits, more := strings.CutSuffix(text, "+")
	n, err := strconv.ParseUint(digits, 10, 31)
	return &plantstore.Count{Plants: int(n), More: more}, err == nil
}
