package postgres

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestEscapeKeepsTheOrder tries all short texts made of the special characters and their
// neighbours.
func TestEscapeKeepsTheOrder(t *testing.T) {
	texts := []string{""}
	for i := 0; i < len(texts) && len(texts[i]) < 5; i++ {
		for _, c := range []string{"\x00", "\x01", "\x02", "a"} {
			texts = append(texts, texts[i]+c)
		}
	}
	slices.Sort(texts)
	for i, text := range texts {
		checkEscape(t, text)
		if i > 0 && escape(texts[i-1]) >= escape(text) {
			t.Fatalf("%+q and %+q are stored as %+q and %+q", texts[i-1], text, escape(texts[i-1]), escape(text))
		}
	}
}

func TestOrdinaryTextIsStoredUnchanged(t *testing.T) {
	for _, text := range []string{
		"", "Monstera deliciosa", `C:\plants\0`, `\u0000 %00 &#0;`, "caf\u00e9 \U0001f335", "\x02\u0100\u0101\u2400\u241b",
	} {
		if got := escape(text); got != text {
			t.Errorf("%+q is stored as %+q", text, got)
		}
	}
	if got := escape("a\x00b"); got != "a\x01\x01b" {
		t.Errorf("U+0000 is stored as %+q", got)
	}
}

func FuzzEscape(f *testing.F) {
	for _, text := range []string{"", "a\x00", "\x01", "\x01\x02", "\x00\x01\x01", "\u0100"} {
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
	if !strings.ContainsAny(text, "\x00\x01") && stored != text {
		t.Fatalf("%+q is stored as %+q", text, stored)
	}
}
