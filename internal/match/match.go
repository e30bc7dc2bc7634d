// Package match decides whether a plant matches a search, for every store and locale alike.
package match

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"plantstore"
)

// Filter returns a function that reports whether the query selects a plant, by its tag and
// its name. The function is not safe for concurrent use.
func Filter(q plantstore.Query) func(plantstore.Plant) bool {
	name := New(q.Contains)
	return func(p plantstore.Plant) bool { return q.SelectsTag(p.Tag) && name.Match(p.Name) }
}

// Matcher reports whether names contain all words of a text, ignoring case and diacritics.
// The zero Matcher matches every name. It is not safe for concurrent use.
type Matcher struct {
	words  [][]byte  // folded
	folded []byte    // scratch
	nfd    norm.Iter // scratch
}

// New returns a matcher for names that contain every word of a text, in any order. White
// space separates words.
func New(text string) *Matcher {
	m := new(Matcher)
	m.words = bytes.Fields(m.fold(nil, text))
	return m
}

// Words returns the words of the text, folded.
func (m *Matcher) Words() [][]byte { return m.words }

// Fold returns a name as it is compared with the words. The slice is valid until the next call of
// a method.
func (m *Matcher) Fold(name string) []byte {
	m.folded = m.fold(m.folded[:0], name)
	return m.folded
}

// Words returns the number of words in a text. White space is no word, and neither are
// diacritics without a letter.
func Words(text string) int { return len(New(text).words) }

// Match reports whether the name contains every word.
func (m *Matcher) Match(name string) bool {
	if len(m.words) == 0 {
		return true
	}
	folded := m.Fold(name)
	for _, word := range m.words {
		if !bytes.Contains(folded, word) {
			return false
		}
	}
	return true
}

// AppendFolded appends a name in the form in which names are compared.
func (m *Matcher) AppendFolded(dst []byte, name string) []byte { return m.fold(dst, name) }

// fold appends s in a form that is equal for texts that differ only in case and diacritics.
func (m *Matcher) fold(dst []byte, s string) []byte {
	for len(s) > 0 {
		n := 0
		for ; n < len(s) && s[n] < utf8.RuneSelf; n++ {
			c := s[n]
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			dst = append(dst, c)
		}
		s = s[n:]
		if s == "" {
			break
		}
		for n = 1; n < len(s) && s[n] >= utf8.RuneSelf; {
			n++
		}
		dst = m.foldUnicode(dst, s[:n])
		s = s[n:]
	}
	return dst
}

// foldUnicode is fold for a text without ASCII. It decomposes letters, drops the diacritics
// of Latin, Greek and Cyrillic ones and folds case by Unicode's simple case folding. Marks
// of other scripts stay, because they distinguish words.
func (m *Matcher) foldUnicode(dst []byte, s string) []byte {
	m.nfd.InitString(norm.NFD, s)
	for !m.nfd.Done() {
		for segment := m.nfd.Next(); len(segment) > 0; {
			r, size := utf8.DecodeRune(segment)
			segment = segment[size:]
			if r < '\u0300' || '\u036f' < r {
				dst = utf8.AppendRune(dst, foldRune(r))
			}
		}
	}
	return dst
}

// european caches least for the letters of Latin, Greek and Cyrillic: Unicode's tables are
// slow.
var european = func() (folded [0x530]rune) {
	for r := range folded {
		folded[r] = least(rune(r))
	}
	return folded
}()

// foldRune maps runes that differ only in case to the same rune.
func foldRune(r rune) rune {
	if int(r) < len(european) {
		return european[r]
	}
	return least(r)
}

// least returns the smallest of the runes that differ only in case, or its lower case if that
// is ASCII (the long s becomes s).
func least(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	if 'A' <= least && least <= 'Z' {
		return least + 'a' - 'A'
	}
	return least
}
