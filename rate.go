package plantstore

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rate is how often something may happen: N times per Per on average, and Burst times
// at once. The zero Rate means no limit.
type Rate struct {
	N, Burst int
	Per      time.Duration // a second, a minute or an hour
}

// maxRate is the largest N and Burst.
const maxRate = 1_000_000

var rateUnits = []struct {
	name string
	per  time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}}

// ParseRate parses a rate such as 200/s, 200/s,burst=400 or 30/m, or off for none.
// Without a burst it is N.
func ParseRate(text string) (Rate, error) {
	if text == "off" {
		return Rate{}, nil
	}
	average, burst, hasBurst := strings.Cut(text, ",burst=")
	n, unit, _ := strings.Cut(average, "/")
	r := Rate{N: rateNumber(n)}
	r.Burst = r.N
	if hasBurst {
		r.Burst = rateNumber(burst)
	}
	for _, u := range rateUnits {
		if u.name == unit {
			r.Per = u.per
		}
	}
	if r.N == 0 || r.Burst == 0 || r.Per == 0 {
		return Rate{}, fmt.Errorf("%q is not a valid rate: use 200/s, 200/s,burst=400, 30/m or off, with numbers from 1 to %d", Shorten(text), maxRate)
	}
	return r, nil
}

// ParseTokenRate parses the rate of a token, which cannot be off: a token without a rate of
// its own has the server's.
func ParseTokenRate(text string) (Rate, error) {
	r, err := ParseRate(text)
	if err != nil || r.IsZero() {
		return Rate{}, fmt.Errorf("%q is not a valid rate of a token: use 200/s, 200/s,burst=400 or 30/m, with numbers from 1 to %d", Shorten(text), maxRate)
	}
	return r, nil
}

// rateNumber returns the number in the text, or 0 if it is not one that a rate may have.
func rateNumber(text string) int {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n > maxRate || text[0] == '0' {
		return 0
	}
	return int(n)
}

// IsZero reports whether the rate is no limit.
func (r Rate) IsZero() bool { return r == Rate{} }

// PerSecond returns the average per second.
func (r Rate) PerSecond() float64 { return float64(r.N) / r.Per.Seconds() }

// Exceeds reports whether the rate allows more than another, on average or at once. None
// exceeds the zero Rate.
func (r Rate) Exceeds(other Rate) bool {
	if other.IsZero() {
		return false
	}
	return r.IsZero() || r.PerSecond() > other.PerSecond() || r.Burst > other.Burst
}

// String is the inverse of [ParseRate].
func (r Rate) String() string {
	for _, u := range rateUnits {
		if u.per != r.Per {
			continue
		}
		text := fmt.Sprintf("%d/%s", r.N, u.name)
		if r.Burst != r.N {
			text += fmt.Sprintf(",burst=%d", r.Burst)
		}
		return text
	}
	return "off"
}

// MarshalText is [Rate.String], for configuration files.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is [ParseRate], for flags.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}
