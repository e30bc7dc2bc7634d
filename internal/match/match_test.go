package match_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

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
	{"a b", "a  b", true},
	{"Monstera deliciosa", "deliciosa monstera", true},
	{"Monstera deliciosa", "\t DELI\u2003mon\n", true},
	{"Monstera deliciosa", "monstera monst", true},
	{"Monstera deliciosa", "monstera vera", false},
	{"Monstera deliciosa", "vera monstera", false},
	{"Monstera deliciosa", "monsteradeliciosa", false},
	{"Monsteradeliciosa", "deliciosa monstera", true},
	{"a\u00a0b", "b a", true},
	{"[`{@", "{`[", false},
	{"@[`{", "`{", true},
	{"@", "`", false},

	{"\u212aiwi", "kiwi", true},          // the Kelvin sign is a k
	{"kiwi", "\u212aIWI", true},          //
	{"KIWI", "\u212a", true},             //
	{"\u017falvia", "SALVIA", true},      // the long s is an s
	{"salvia", "\u017f", true},           //
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
	{"\U0001f335 cactus", "🌵 CAC", true}, //

	// Diacritics, composed and decomposed.
	{"Ñandubay", "nandubay", true},
	{"nandubay", "ÑANDUBAY", true},
	{"n\u0303andu", "\u00f1andu", true},
	{"\u00f1andu", "n\u0303andu", true},
	{"Tiếng Việt", "viet TIENG", true},
	{"\u212bngstr\u00f6m", "angstrom", true},
	{"Άνθος", "ανθοσ", true},
	{"ᾳ", "α", true}, // and its iota is one
	{"ёлка", "елка", true},
	{"\u0130ris", "iris", true}, // the dot of the Turkish capital I
	{"a\u0301\u0302\u0303b", "ab", true},
	{"rose", "r\u0301\u0301ose", true},
	{"rose mary", "rose \u0301", true}, // not a word
	{"\u0301", "\u0301", true},
	{"fern", "\u0301", true},

	// Marks of other scripts are letters' own.
	{"が", "が", true},
	{"か\u3099", "が", true},
	{"か", "が", false},
	{"किताब", "कताब", false},
	{"קָמָץ", "קמץ", false},
	{"한글", "한\u1100\u1173\u11af", true},

	// Letters that are not a letter and a mark stay as they are. Simple folding maps one
	// letter to one letter, and does not support Turkish.
	{"Øre", "ore", false},
	{"łąka", "laka", false},
	{"straße", "strasse", false},
	{"ﬁcus", "ficus", false},
	{"ısırgan", "isirgan", false},
	{"ISIRGAN", "ısırgan", false},
	{"\u0131", "\u0131", true},
	{"ΐ", "ΐ", true}, // U+0390 and U+1FD3
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

func TestWordsAreCounted(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, " ": 0, "\t\u00a0\u3000\n": 0, "\u0301": 0, "\u0301 \u0345": 0, "a": 1, " a\u0301 ": 1, "a b  a": 3, "\x00": 1, "\u3099": 1,
	} {
		if got := match.Words(text); got != want {
			t.Errorf("%+q: got %d words, want %d", text, got, want)
		}
	}
}

// manyMarks matches marks that norm would break into several groups, each in an order of its
// own (Stream-Safe Text Format).
var manyMarks = regexp.MustCompile(`\p{M}{10}`)

// FuzzMatch compares the matcher with its definition.
func FuzzMatch(f *testing.F) {
	for _, tt := range matchTests {
		f.Add(tt.name, tt.part)
	}
	f.Fuzz(func(t *testing.T, name, part string) {
		if !utf8.ValidString(name) || !utf8.ValidString(part) {
			t.Skip("not valid in a plant")
		}
		if manyMarks.MatchString(name) || manyMarks.MatchString(part) {
			t.Skip("not text")
		}
		want := true
		for _, word := range strings.Fields(withoutDiacritics(part)) {
			want = want && foldedWindow(withoutDiacritics(name), word)
		}
		if got := match.New(part).Match(name); got != want {
			t.Errorf("%+q in %+q: got %t, want %t", part, name, got, want)
		}
	})
}

// withoutDiacritics decomposes a text and removes the diacritics.
func withoutDiacritics(text string) string {
	return regexp.MustCompile(`[\x{300}-\x{36f}]`).ReplaceAllString(norm.NFD.String(text), "")
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
