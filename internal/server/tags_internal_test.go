package server

import (
	"strings"
	"testing"
)

func TestShortStart(t *testing.T) {
	x := strings.Repeat("x", maxTagText-4)
	for next, want := range map[string]string{
		"":                                       "",
		"tree":                                   "tree",
		x + "xxxx":                               x + "xxxx",
		x + "xxxxx":                              x + "xxxy",
		x + "xx\u00e4x":                          x + "xx\u00e5",
		x + "xxx\u00e4":                          x + "xxy",
		x + "x\ud7ffx":                           x + "x\ue000",
		x + "\U0010ffffx":                        x[1:] + "y",
		strings.Repeat("\U0010ffff", maxTagText): "",
	} {
		if got := shortStart(next); got != want {
			t.Errorf("%q: got %q, want %q", next[max(0, len(next)-20):], got[max(0, len(got)-20):], want[max(0, len(want)-20):])
		}
	}
}
