package postgres

import "strings"

// PostgreSQL's text refuses U+0000. It is kept as U+2400, the symbol for it, and
// where that symbol is meant itself, U+241B, the symbol for escape, stands before
// it, as it does before itself. So different texts stay different, and all that
// has none of the three is kept as it is.
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

// symbols is how both symbols begin in UTF-8. Most texts have neither, and to see
// that is much faster than to replace nothing.
const symbols = "\xe2\x90"

// escape returns the text as it is kept.
func escape(text string) string {
	if strings.IndexByte(text, 0) < 0 && !strings.Contains(text, symbols) {
		return text
	}
	return escapes.Replace(text)
}

// unescape is the inverse of [escape].
func unescape(kept string) string {
	if !strings.Contains(kept, symbols) {
		return kept
	}
	return unescapes.Replace(kept)
}
