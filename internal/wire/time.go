package wire

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// strictTime refuses what time.Parse accepts although it is not in RFC 3339: an hour of one
// digit, a decimal comma, and an offset of a day or more.
var strictTime = regexp.MustCompile(`T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// ParseTime reads a time as RFC 3339 has it. In UTC, its year has four digits, too.
func ParseTime(text string) (time.Time, error) {
	upper := strings.ToUpper(text) // the T and the Z may be lower case
	at, err := time.Parse(time.RFC3339, upper)
	if year := at.UTC().Year(); err != nil || !strictTime.MatchString(upper) || year < 0 || year > 9999 {
		return time.Time{}, fmt.Errorf("%q is not a time as RFC 3339 has it", text)
	}
	return at, nil
}
