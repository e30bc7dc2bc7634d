package plantstore_test

import (
	"errors"
	"testing"
	"time"

	"plantstore"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]plantstore.Rate{
		"off":                     {},
		"200/s":                   {N: 200, Burst: 200, Per: time.Second},
		"200/s,burst=400":         {N: 200, Burst: 400, Per: time.Second},
		"30/m":                    {N: 30, Burst: 30, Per: time.Minute},
		"1/h,burst=2":             {N: 1, Burst: 2, Per: time.Hour},
		"1000000/s,burst=1000000": {N: 1_000_000, Burst: 1_000_000, Per: time.Second},
		"20/s,burst=1":            {N: 20, Burst: 1, Per: time.Second},
		"200/s,burst=200":         {N: 200, Burst: 200, Per: time.Second},
	} {
		got, err := plantstore.ParseRate(text)
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
		again, err := plantstore.ParseRate(got.String())
		if err != nil || again != got {
			t.Errorf("%q: its text %q is parsed as %+v, %v", text, got.String(), again, err)
		}
		if got.IsZero() != (text == "off") {
			t.Errorf("%q: IsZero is %v", text, got.IsZero())
		}
	}
	for _, text := range []string{
		"", "200", "200/", "/s", "0/s", "-1/s", "+1/s", "01/s", "1.5/s", "1/d", "1/S", "1/s,", "1/s,burst=", "1/s,burst=0", "1/s,burst=-1",
		"1/s,burst=1,burst=1", "1000001/s", "1/s,burst=1000001", "99999999999999999999/s", " 1/s", "1/s ", "Off", "1/s/s",
	} {
		if got, err := plantstore.ParseRate(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
	if got := (plantstore.Rate{N: 30, Burst: 30, Per: time.Minute}).PerSecond(); got != 0.5 {
		t.Errorf("30/m is %v per second", got)
	}
}

func TestRateExceeds(t *testing.T) {
	for _, c := range []struct {
		rate, other string
		want        bool
	}{
		{"off", "off", false},
		{"1000/s", "off", false},
		{"off", "1000000/s", true},
		{"10/s", "10/s", false},
		{"600/m,burst=10", "10/s", false},
		{"10/s", "600/m", false},
		{"601/m,burst=1", "10/s", true},
		{"1/s,burst=11", "10/s", true},
		{"1/h,burst=10", "10/s", false},
		{"36001/h,burst=1", "10/s", true},
	} {
		var r, other plantstore.Rate
		if err := errors.Join(r.UnmarshalText([]byte(c.rate)), other.UnmarshalText([]byte(c.other))); err != nil {
			t.Fatal(err)
		}
		if got := r.Exceeds(other); got != c.want {
			t.Errorf("%s exceeds %s: %t, want %t", c.rate, c.other, got, c.want)
		}
	}
}
