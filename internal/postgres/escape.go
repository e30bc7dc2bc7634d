package postgres

import "strings"

// PostgreSQL's type text rejects U+0000. It is stored as U+0001 U+0001, and U+0001 as U+0001
// U+0002. That way different texts stay different and in the same order, that of their
// bytes, and a text that contains neither is stored as it is.
var (
	escapes   = strings.NewReplacer("\x00", "\x01\x01", "\x01", "\x01\x02")
	unescapes = strings.NewReplacer("\x01\x01", "\x00", "\x01\x02", "\x01")
)

// escape returns the text as it is stored.
func escape(text string) string {
	// Most texts contain neither, and checking for it is much faster than replacing nothing.
	if strings.IndexByte(text, 0) < 0 && strings.IndexByte(text, 1) < 0 {
		return text
	}
	return escapes.Replace(text)
}

// unescape is the inverse of [escape].
func unescape(stored string) string {
	if strings.IndexByte(stored, 1) < 0 {
		return stored
	}
	return unescapes.Replace(stored)
}
