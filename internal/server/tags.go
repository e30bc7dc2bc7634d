package server

import (
	"context"
	"unicode/utf8"

	"plantstore"
	"plantstore/internal/wire"
)

const (
	// defaultTagLimit is the number of tags on a page.
	defaultTagLimit = 100
	// maxTagText is how long the prefix, and the start of the next page, may be in a URL,
	// in bytes: both fit into a header, even if each byte takes three.
	maxTagText = 4 << 10
)

func (s *Server) listTags(c *call) error {
	query := plantstore.TagQuery{Limit: defaultTagLimit}
	params, err := readParams(c.r, func(name, value string, problems *plantstore.Problems) {
		switch name {
		case "limit":
			query.Limit = readLimit(value, problems)
		case "prefix":
			if len(value) > maxTagText {
				problems.Add(plantstore.ErrParameter, `"prefix" must have at most %d bytes, got %d`, maxTagText, len(value))
			}
			query.Prefix = value
		case "from":
			query.From = value
		default:
			problems.Add(plantstore.ErrParameter, "unknown parameter %q; allowed: limit, prefix, from", name)
		}
	})
	if err != nil {
		return err
	}
	page, err := inTurn(c, reads, tagUnits, func(ctx context.Context) (plantstore.TagPage, error) { return s.Store.Tags(ctx, query) })
	if err != nil {
		return err
	}
	c.Header()["Cache-Control"] = headerNoCache
	if from := shortStart(page.Next); from != "" {
		params.Set("from", from)
		c.linkNext("/tags", params)
	}
	return writePage(c, page.Tags, tagTexts, wire.AppendTag)
}

func tagTexts(t plantstore.TagCount) (name, tag string) { return "", t.Tag }

// shortStart returns the start of the next page if it fits into a URL, or else the least
// text after everything that begins like it: of tags that differ so late, only those
// before are listed.
func shortStart(next string) string {
	if len(next) <= maxTagText {
		return next
	}
	start := next[:maxTagText]
	for !utf8.RuneStart(next[len(start)]) {
		start = start[:len(start)-1]
	}
	for start != "" {
		last, size := utf8.DecodeLastRuneInString(start)
		start = start[:len(start)-size]
		switch {
		case last == 0xd7ff: // surrogates follow, which are not characters
			return start + "\ue000"
		case last < utf8.MaxRune:
			return start + string(last+1)
		}
	}
	return ""
}
