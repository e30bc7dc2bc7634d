package wire

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// strictTime refuses texts that time.Parse accepts although RFC 3339 does not: an hour of
// one digit, a decimal comma, and an offset of a day or more.
var strictTime = regexp.MustCompile(`T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// AppendTime appends the time of a plant, in UTC, unless it is the zero time.
func AppendTime(dst []byte, at time.Time) []byte {
	if at.IsZero() {
		return dst
	}
	return at.AppendFormat(dst, "2006-01-02T15:04:05.000000Z")
}

// ParseTime reads a time in the format of RFC 3339. Its year in UTC has four digits, too.
func ParseTime(text string) (time.Time, error) {
	upper := strings.ToUpper(text) // RFC 3339 allows a lower-case T and Z
	at, err := time.Parse(time.RFC3339, upper)
	if year := at.UTC().Year(); err != nil || !strictTime.MatchString(upper) || year < 0 || year > 9999 {
		return time.Time{}, fmt.Errorf("%q is not an RFC 3339 time", text)
	}
	return at, nil
}
