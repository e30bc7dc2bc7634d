package postgres

import "strings"

// PostgreSQL's type text rejects U+0000. It is stored as U+2400, the symbol for it.
// A U+2400 that stands for itself is stored with U+241B, the symbol for escape, in
// front of it, and so is U+241B. That way different texts stay different, and a
// text that contains none of the three is stored as it is.
var (
	escapes = strings.NewReplacer(
		"\x00", "\u2400",
		"\u2400", "\u241b\u2400",
		"\u241b", "\u241b\u241b",
	)
	unescapes = strings.NewReplacer(
		"\u241b\u2400", "\u2400",
		"\u241b\u241b", "\u241b",
		"\u2400", "\x00",
	)
)

// symbols is how both symbols begin in UTF-8. Most texts contain neither, and
// checking for it is much faster than replacing nothing.
const symbols = "\xe2\x90"

// escape returns the text as it is stored.
func escape(text string) string {
	if strings.IndexByte(text, 0) < 0 && !strings.Contains(text, symbols) {
		return text
	}
	return escapes.Replace(text)
}

// unescape is the inverse of [escape].
func unescape(stored string) string {
	if !strings.Contains(stored, symbols) {
		return stored
	}
	return unescapes.Replace(stored)
}
