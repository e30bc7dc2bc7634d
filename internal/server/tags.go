package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strconv"
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
		case "q":
			query.Contains = readSearch(value, "tag", problems)
		case "from":
			query.From = value
		default:
			problems.Add(plantstore.ErrParameter, "unknown parameter %q; allowed: limit, prefix, q, from", name)
		}
	})
	if err != nil {
		return err
	}
	from := query.From
	page, err := inTurn(c, reads, tagUnits, func(ctx context.Context) (plantstore.TagPage, error) { return s.readTags(ctx, query) })
	if err != nil {
		return err
	}
	c.w.Header()["Cache-Control"] = headerNoCache
	if page.Next != "" {
		params.Set("from", nextTags(from, page))
		c.linkNext("/tags", params)
	}
	return writePage(c, page.Tags, tagTexts, wire.AppendTag)
}

func tagTexts(t plantstore.TagCount) (name, tag string) { return "", t.Tag }

// readTags reads a page. If the start of the next one is too long for a URL, a plant has the last tag of the page.
func (s *Server) readTags(ctx context.Context, query plantstore.TagQuery) (page plantstore.TagPage, err error) {
	if at, ok := parseTagPosition(query.From); ok {
		query.From, err = at.start(ctx, s.Store)
	}
	for err == nil {
		page, err = s.Store.Tags(ctx, query)
		if len(page.Next) <= maxTagText || page.Last != "" {
			break
		}
		query.From = page.Next // the tags that were examined have lost their plants
	}
	return page, err
}

// nextTags returns the start of the next page for a URL.
func nextTags(from string, page plantstore.TagPage) string {
	if len(page.Next) <= maxTagText {
		return page.Next
	}
	next := tagPosition{prefix: page.Next[:maxTagText], plant: page.Plant, sum: tagSum(page.Last)}
	for !utf8.ValidString(next.prefix) {
		next.prefix = next.prefix[:len(next.prefix)-1]
	}
	if at, ok := parseTagPosition(from); ok && at.prefix == next.prefix {
		next.page = at.page + 1
	}
	return next.String()
}

// tagPosition stands for a start of a page of tags that is too long for a URL: the page begins after
// the tag of a plant.
type tagPosition struct {
	prefix string // of that tag
	page   uint32 // how many pages before this one have the prefix: clients require that a start follows the one before
	plant  plantstore.ID
	sum    string // of that tag
}

// String returns a text that is longer than the start of any other page, and is at the prefix in
// the order of tags.
func (p tagPosition) String() string {
	return fmt.Sprintf("%s\x00%08x.%d.%s", p.prefix, p.page, p.plant, p.sum)
}

var tagPositionText = regexp.MustCompile(`(?s)^(.*)\x00([0-9a-f]{8})\.(-?[0-9]+)\.([0-9a-f]{16})$`)

func parseTagPosition(from string) (p tagPosition, ok bool) {
	if len(from) <= maxTagText {
		return p, false
	}
	parts := tagPositionText.FindStringSubmatch(from)
	if parts == nil {
		return p, false
	}
	page, badPage := strconv.ParseUint(parts[2], 16, 32)
	plant, badPlant := strconv.ParseInt(parts[3], 10, 64)
	return tagPosition{parts[1], uint32(page), plantstore.ID(plant), parts[4]}, badPage == nil && badPlant == nil
}

// start returns the least text after the tag of the plant. If the plant has another one by now, that
// is the prefix: tags are listed again rather than left out.
func (p tagPosition) start(ctx context.Context, plants plantstore.Plants) (string, error) {
	plant, err := plants.Plant(ctx, p.plant)
	if err != nil && !errors.Is(err, plantstore.ErrNoPlant) {
		return "", err
	}
	if tag, _ := plant.Tag.Text(); err == nil && tagSum(tag) == p.sum {
		return tag + "\x00", nil
	}
	return p.prefix, nil
}

func tagSum(tag string) string {
	sum := sha256.Sum256([]byte(tag))
	return fmt.Sprintf("%x", sum[:8])
}
