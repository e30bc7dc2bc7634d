package plantstore

import (
	"strconv"
	"strings"
	"time"
)

// StoredPlant is a plant as a store has it. Version and Created may be zero where nobody has
// asked for them.
type StoredPlant struct {
	Plant
	Version Version
	// Created is the time of the event that created the plant, in Unix microseconds, or 0 if
	// a release before 0.3.0 created it.
	Created int64
}

// CreatedAt returns Created as a time in UTC, or the zero time if it is not known.
func (p StoredPlant) CreatedAt() time.Time { return timeOf(p.Created) }

// ETag returns the entity tag of the plant's version.
func (p StoredPlant) ETag() ETag { return p.Version.ETag() }

// Version is the version of a plant: each change gives it another one, even if it makes the
// plant what it was before. The zero Version is that of every plant that has not changed since
// a release before 0.3.0.
type Version struct {
	// Time is the time of the event that made the version, in Unix microseconds.
	Time int64
	// N distinguishes the events with the same time.
	N int64
}

// timeDigits is how many digits the time in the text of a version has.
const timeDigits = 11

// String returns the version as 12 to 24 digits and lower-case letters.
func (v Version) String() string {
	at := strconv.FormatInt(v.Time, 36)
	return strings.Repeat("0", max(0, timeDigits-len(at))) + at + strconv.FormatInt(v.N, 36)
}

// ETag returns the entity tag of the version.
func (v Version) ETag() ETag { return ETag(`"` + v.String() + `"`) }

// Updated returns the time of the event that made the version, in UTC, or the zero time if
// that is not known.
func (v Version) Updated() time.Time { return timeOf(v.Time) }

// ParseVersion returns the version with this text, or ErrParameter.
func ParseVersion(text string) (Version, error) {
	if len(text) > timeDigits {
		at, badTime := strconv.ParseInt(text[:timeDigits], 36, 64)
		n, badN := strconv.ParseInt(text[timeDigits:], 36, 64)
		if v := (Version{at, n}); badTime == nil && badN == nil && n >= 0 && v.String() == text {
			return v, nil
		}
	}
	return Version{}, Errorf(ErrParameter, "not a version of a plant: %q", Shorten(text))
}

func timeOf(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMicro(at).UTC()
}

// ETag is the entity tag of a plant, which is its version in the quotes that HTTP requires.
type ETag string

// AnyETag matches every plant that exists, like * in If-Match.
const AnyETag ETag = "*"
