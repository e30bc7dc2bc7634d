package rules

import "testing"

func TestIndexIsWanted(t *testing.T) {
	for _, test := range []struct {
		mode   IndexMode
		plants int64
		exists bool
		want   bool
	}{
		{IndexAuto, 999_999, false, false},
		{IndexAuto, 1_000_000, false, true},
		{IndexAuto, 0, true, true},
		{IndexOn, 0, false, true},
		{IndexOff, 1_000_000, true, false},
	} {
		if got := test.mode.Wants(test.plants, test.exists); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}
