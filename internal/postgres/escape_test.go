package postgres

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestEscapeIsInjective tries all short texts made of the special characters and an
// ordinary one.
func TestEscapeIsInjective(t *testing.T) {
	texts := []string{""}
	seen := map[string]string{}
	for range 6 {
		var longer []string
		for _, text := range texts {
			for _, c := range []string{"\x00", "\u2400", "\u241b", "a"} {
				longer = append(longer, text+c)
			}
		}
		for _, text := range longer {
			checkEscape(t, text)
			if other, ok := seen[escape(text)]; ok {
				t.Fatalf("%+q and %+q are both stored as %+q", text, other, escape(text))
			}
			seen[escape(text)] = text
		}
		texts = longer
	}
}

func TestOrdinaryTextIsStoredUnchanged(t *testing.T) {
	for _, text := range []string{
		"", "Monstera deliciosa", `C:\plants\0`, `\u0000 %00 &#0;`, "caf\u00e9 \U0001f335", "\u23ff\u2401\u241a\u241c\u2300",
	} {
		if got := escape(text); got != text {
			t.Errorf("%+q is stored as %+q", text, got)
		}
	}
	if got := escape("a\x00b"); got != "a\u2400b" {
		t.Errorf("U+0000 is stored as %+q", got)
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

// checkEscape fails unless PostgreSQL accepts the escaped text and unescape reverses
// it.
func checkEscape(t *testing.T, text string) {
	t.Helper()
	stored := escape(text)
	if got := unescape(stored); got != text {
		t.Fatalf("%+q is stored as %+q and read as %+q", text, stored, got)
	}
	if strings.Contains(stored, "\x00") || !utf8.ValidString(stored) {
		t.Fatalf("%+q is stored as %+q, which PostgreSQL rejects", text, stored)
	}
	if !strings.ContainsFunc(text, func(r rune) bool { return slices.Contains([]rune{0, 0x2400, 0x241b}, r) }) && stored != text {
		t.Fatalf("%+q is stored as %+q", text, stored)
	}
}
