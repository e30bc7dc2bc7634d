package plantstore

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// Matcher decides whether names have a query's text as a part. The zero Matcher
// matches every name. It is not safe for concurrent use.
type Matcher struct {
	part   []byte
	folded []byte // scratch
}

// NewMatcher returns a matcher for names that have part in them, whatever the
// case of its letters: letters are alike that Unicode's simple case folding makes
// equal, on every store and in every locale.
func NewMatcher(part string) *Matcher {
	return &Matcher{part: fold(nil, part)}
}

// Match reports whether the name has the matcher's text as a part.
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

// foldRune returns the same rune for all that differ in case only: the smallest
// of them, or its lower case where that is ASCII (the Kelvin sign is a k).
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
