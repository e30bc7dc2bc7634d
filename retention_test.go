package plantstore

import (
	"math"
	"testing"
)

func TestTrimTo(t *testing.T) {
	small := []LogSample{{11, 100}, {21, 100}, {31, 100}, {41, 100}} // of the rows 11 to 50
	// The last rows are large, those before them small.
	mixed := []LogSample{{1, 10}, {1001, 10}, {2001, 1000}, {3001, 1000}}
	cases := []struct {
		what           string
		sample         []LogSample
		last, maxBytes int64
		want, bytes    int64
	}{
		{"an empty log", nil, 0, 100, 0, 0},
		{"a log of exactly the limit", small, 50, 4000, 0, 4000},
		{"a log without a limit to speak of", small, 50, math.MaxInt64, 0, 4000},
		{"a row too many", small, 50, 3999, 11, 4000},
		{"half a log", small, 50, 2000, 30, 4000},
		{"between two rows of the sample", small, 50, 2500, 25, 4000},
		{"no room for one row", small, 50, 99, 50, 4000},
		{"a large end", mixed, 4000, 1_500_000, 2500, 2_020_000},
		{"small rows before a large end", mixed, 4000, 2_005_000, 1500, 2_020_000},
		{"every row", []LogSample{{7, 1}, {8, 50}, {9, 2}}, 9, 52, 7, 53},
		{"rows without a size", []LogSample{{1, 0}}, 10, 4, 6, 0},
		{"rows before the sample", []LogSample{{11, 10}}, 20, 100, 0, 100},
	}
	for _, c := range cases {
		if got := TrimTo(c.sample, c.last, c.maxBytes); got != c.want {
			t.Errorf("%s: trimmed up to %d, want %d", c.what, got, c.want)
		}
		if got := LogBytes(c.sample, c.last); got != c.bytes {
			t.Errorf("%s: %d bytes, want %d", c.what, got, c.bytes)
		}
	}
}
