package postgres

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestEscapeKeepsTextsApart tries all short texts of the characters that count
// and of one that does not.
func TestEscapeKeepsTextsApart(t *testing.T) {
	texts := []string{""}
	kept := map[string]string{}
	for range 6 {
		var longer []string
		for _, text := range texts {
			for _, c := range []string{"\x00", "\u2400", "\u241b", "a"} {
				longer = append(longer, text+c)
			}
		}
		for _, text := range longer {
			checkEscape(t, text)
			if other, taken := kept[escape(text)]; taken {
				t.Fatalf("%+q and %+q are both kept as %+q", text, other, escape(text))
			}
			kept[escape(text)] = text
		}
		texts = longer
	}
}

func TestOrdinaryTextIsKeptAsItIs(t *testing.T) {
	for _, text := range []string{
		"", "Monstera deliciosa", `C:\plants\0`, `\u0000 %00 &#0;`, "caf\u00e9 \U0001f335", "\u23ff\u2401\u241a\u241c\u2300",
	} {
		if got := escape(text); got != text {
			t.Errorf("%+q is kept as %+q", text, got)
		}
	}
	if got := escape("a\x00b"); got != "a\u2400b" {
		t.Errorf("U+0000 is kept as %+q", got)
	}
}

func FuzzEscape(f *testing.F) {
	for _, text := range []string{"", "a\x00", "\u2400", "\u241b\u2400", "\u241b\u241b\x00", "\xe2\x90", "\xe2\x90\x80\xe2\x90"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if utf8.ValidString(text) {
			checkEscape(t, text)
		}
	})
}

// checkEscape fails unless the text comes back, which makes escape injective, and
// PostgreSQL takes what is kept of it.
func checkEscape(t *testing.T, text string) {
	t.Helper()
	kept := escape(text)
	if got := unescape(kept); got != text {
		t.Fatalf("%+q is kept as %+q and comes back as %+q", text, kept, got)
	}
	if strings.Contains(kept, "\x00") || !utf8.ValidString(kept) {
		t.Fatalf("%+q is kept as %+q, which PostgreSQL refuses", text, kept)
	}
	if !strings.ContainsFunc(text, func(r rune) bool { return slices.Contains([]rune{0, 0x2400, 0x241b}, r) }) && kept != text {
		t.Fatalf("%+q is kept as %+q", text, kept)
	}
}
