// Package match decides whether a plant matches a search, for every store and locale alike.
package match

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"plantstore"
)

// Filter returns a function that reports whether a plant has the tag and the name that the
// query selects. The function is not safe for concurrent use.
func Filter(q plantstore.Query) func(plantstore.Plant) bool {
	name := New(q.Contains)
	_, tagged := q.Tag.Text()
	return func(p plantstore.Plant) bool {
		return (!tagged || p.Tag == q.Tag) && name.Match(p.Name)
	}
}

// Matcher reports whether names contain a text, ignoring case. The zero Matcher
// matches every name. It is not safe for concurrent use.
type Matcher struct {
	part   []byte
	folded []byte // scratch
}

// New returns a matcher for names that contain part, ignoring case by
// Unicode's simple case folding.
func New(part string) *Matcher {
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
