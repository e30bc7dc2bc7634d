package plantstore

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// Matcher reports whether names contain a text, ignoring case. The zero Matcher
// matches every name. It is not safe for concurrent use.
type Matcher struct {
	part   []byte
	folded []byte // scratch
}

// NewMatcher returns a matcher for names that contain part, ignoring case by
// Unicode's simple case folding, so that every store and locale agree.
func NewMatcher(part string) *Matcher {
	return &Matcher{part: fold(nil, part)}
}

// Match reports whether the name contains the matcher's text.
func (m *Matcher) Match(name string) bool {
	if len(m.part) == 0 {
		return true
	}
	m.folded = fold(m.folded[:0], name)
	return bytes.Contains(m.folded, m.part)
}

func fold(dst []byte, s string) []byte {
	for _, r := range s {
		if r < utf8.RuneSelf {
			if 'A' <= r && r <= 'Z' {
				r += 'a' - 'A'
			}
			dst = append(dst, byte(r))
			continue
		}
		dst = utf8.AppendRune(dst, foldRune(r))
	}
	return dst
}

// foldRune maps runes that differ only in case to the same rune: the smallest of
// them, or its lower case if that is ASCII (the Kelvin sign becomes k).
func foldRune(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	if 'A' <= least && least <= 'Z' {
		return least + 'a' - 'A'
	}
	return least
}
