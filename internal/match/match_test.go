package match_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"plantstore/internal/match"
)

var matchTests = []struct {
	name, part string
	want       bool
}{
	{"Monstera", "", true},
	{"", "", true},
	{"", "a", false},
	{"Monstera", "monstera", true},
	{"Monstera", "MONSTERA", true},
	{"Monstera", "nster", true},
	{"Monstera", "Mons", true},
	{"Monstera", "RA", true},
	{"Monstera", "Monsteras", false},
	{"Monstera", "mnstr", false},
	{"aaab", "AAB", true},
	{"a\x00b", "\x00B", true},
	{"ab", "a\x00b", false},
	{"a b", "a  b", false},
	{"[`{@", "{`[", false},
	{"@[`{", "`{", true},
	{"@", "`", false},

	{"\u212aiwi", "kiwi", true},          // the Kelvin sign is a k
	{"kiwi", "\u212aIWI", true},          //
	{"KIWI", "\u212a", true},             //
	{"\u017falvia", "SALVIA", true},      // the long s is an s
	{"salvia", "\u017f", true},           //
	{"\u212bngstr\u00f6m", "å", true},    // the Ångström sign is an å
	{"ὈΔΥΣΣΕΎΣ", "ὀδυσσεύς", true},       // the final sigma is a sigma
	{"ὀδυσσεύς", "ύσ", true},             //
	{"ς", "Σ", true},                     //
	{"\u00b5", "\u03bc", true},           // the micro sign is a mu
	{"\u01c5", "\u01c4", true},           // title case
	{"\u01c5", "\u01c6", true},           //
	{"straße", "STRA\u1e9eE", true},      // the capital sharp s
	{"ЁЛКА", "ёлка", true},               //
	{"\U00010400", "\U00010428", true},   // outside the basic plane
	{"\u13a0", "\uab70", true},           // Cherokee, where the capital is the smaller
	{"\u03b8", "\u03f4", true},           // three thetas
	{"\u03d1", "\u03f4", true},           //
	{"\ufffd", "\ufffd", true},           //
	{"\u0391\u0392", "\u03b1β", true},    //
	{"a\u0345", "A\u03b9", true},         // the combining iota is an iota
	{"\U0001f335 cactus", "🌵 CAC", true}, //

	// Simple folding maps one letter to one letter, and does not support Turkish.
	{"straße", "strasse", false},
	{"ﬁcus", "ficus", false},
	{"ısırgan", "isirgan", false},
	{"ISIRGAN", "ısırgan", false},
	{"\u0130ris", "iris", false},
	{"\u0130ris", "ıris", false},
	{"\u0130ris", "\u0130RIS", true},
	{"\u0131", "\u0131", true},
	{"e\u0301", "\u00e9", false}, // nor does it compose
	{"\u00e9", "e", false},
	{"ΐ", "ΐ", true}, // but these two are alike: U+0390 and U+1FD3
}

func TestMatch(t *testing.T) {
	for _, tt := range matchTests {
		if got := match.New(tt.part).Match(tt.name); got != tt.want {
			t.Errorf("%+q in %+q: got %t, want %t", tt.part, tt.name, got, tt.want)
		}
	}
}

func TestZeroMatcherMatchesEveryName(t *testing.T) {
	for _, name := range []string{"", "fern", "\x00"} {
		if !new(match.Matcher).Match(name) {
			t.Errorf("the zero Matcher does not match %q", name)
		}
	}
}

func TestMatcherForgetsTheNameBefore(t *testing.T) {
	m := match.New("fern")
	for _, tt := range []struct {
		name string
		want bool
	}{
		{"a tree fern", true},
		{"fe", false},
		{"", false},
		{"rn", false},
		{"FERN", true},
	} {
		if got := m.Match(tt.name); got != tt.want {
			t.Errorf("fern in %q: got %t, want %t", tt.name, got, tt.want)
		}
	}
}

func FuzzMatch(f *testing.F) {
	for _, tt := range matchTests {
		f.Add(tt.name, tt.part)
	}
	f.Fuzz(func(t *testing.T, name, part string) {
		if !utf8.ValidString(name) || !utf8.ValidString(part) {
			t.Skip("not valid in a plant")
		}
		if got, want := match.New(part).Match(name), foldedWindow(name, part); got != want {
			t.Errorf("%+q in %+q: got %t, want %t", part, name, got, want)
		}
	})
}

// foldedWindow compares the part with every stretch of the name that has as many
// runes, which is all that simple folding can make equal.
func foldedWindow(name, part string) bool {
	runes, n := []rune(name), utf8.RuneCountInString(part)
	for start := 0; start+n <= len(runes); start++ {
		if strings.EqualFold(string(runes[start:start+n]), part) {
			return true
		}
	}
	return false
}
