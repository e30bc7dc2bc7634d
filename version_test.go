package plantstore_test

import (
	"math"
	"regexp"
	"testing"

	"pgregory.net/rapid"

	"plantstore"
)

func TestVersionsAreShortOpaqueTexts(t *testing.T) {
	opaque := regexp.MustCompile(`^"[0-9a-z]{12,32}"$`)
	number := rapid.Int64Range(0, math.MaxInt64)
	rapid.Check(t, func(t *rapid.T) {
		v := plantstore.Version{Time: number.Draw(t, "time") % (1 << 56), N: number.Draw(t, "n")}
		if text := v.ETag(); !opaque.MatchString(string(text)) {
			t.Fatalf("%+v is %s", v, text)
		}
		if got, err := plantstore.ParseVersion(v.String()); err != nil || got != v {
			t.Fatalf("%s of %+v is read as %+v, %v", v, v, got, err)
		}
	})
	for _, text := range []string{"", "0", "00000000000", "00000000000-1", "0000000000000", "00000000000A", " 00000000000"} {
		if v, err := plantstore.ParseVersion(text); err == nil {
			t.Errorf("%q is read as %+v", text, v)
		}
	}
}
