package server

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"plantstore"
	"plantstore/internal/match"
)

// The number of plants on a page.
const (
	defaultLimit = 50
	maxLimit     = 1000
)

// maxWords is how many words a search may have, since every plant is compared with each.
const maxWords = 32

// readTarget reads which plant a request is about, and its conditions.
func readTarget(c *call) (plantstore.ID, *plantstore.Condition, error) {
	id, err := parseID(c.target)
	if err != nil {
		return 0, nil, plantstore.Errorf(plantstore.ErrParameter, "the id in the path %v", err)
	}
	condition, err := readCondition(c.r)
	return id, condition, err
}

// parseID reads an id from a path or a query. Only the canonical decimal form is an
// id, so that a plant has one URL.
func parseID(text string) (plantstore.ID, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return 0, plantstore.Errorf(plantstore.ErrParameter, "must be an integer from -9223372036854775808 to 9223372036854775807, got %q", plantstore.Shorten(text))
	}
	return plantstore.ID(n), nil
}

// readQuery reads the query of a list, strictly: a misspelt parameter must not mean
// all plants.
func readQuery(r *http.Request) (plantstore.Query, url.Values, error) {
	query := plantstore.Query{Limit: defaultLimit}
	params, err := readParams(r, func(name, value string, problems *plantstore.Problems) {
		switch name {
		case "limit":
			query.Limit = readLimit(value, problems)
		case "after":
			if plantstore.Order(r.URL.Query().Get("order")).ByName() {
				query.AfterName = plantstore.NameCursor(value)
				if _, err := query.AfterName.Position(); err != nil {
					problems.Add(plantstore.ErrParameter, `"after" must be what the Link of a page in this order has, got %q`, plantstore.Shorten(value))
				}
				break
			}
			id, err := parseID(value)
			if err != nil {
				problems.Add(plantstore.ErrParameter, `"after" %v`, err)
			}
			query.After = &id
		case "id":
			query.IDs, query.Limit = readIDs(value, problems), plantstore.MaxIDs
		case "order":
			query.Order = plantstore.Order(value)
			if !slices.Contains(plantstore.Orders(), query.Order) {
				problems.Add(plantstore.ErrParameter, `"order" must be %s, got %q`, alternatives(plantstore.Orders()), plantstore.Shorten(value))
			}
		case "tag":
			query.Tags = append(query.Tags, value)
		case "tag_prefix":
			if len(value) > maxTagText {
				problems.Add(plantstore.ErrParameter, `"tag_prefix" must have at most %d bytes, got %d`, maxTagText, len(value))
			}
			query.TagPrefix = &value
		case "untagged":
			query.Untagged = readBool("untagged", value, problems)
		case "details":
			query.Details = readBool("details", value, problems)
		case "count":
			query.Count = readBool("count", value, problems)
		case "q":
			query.Contains = readSearch(value, "name", problems)
		default:
			problems.Add(plantstore.ErrParameter, "unknown parameter %q; allowed: id, order, limit, after, tag, tag_prefix, untagged, q, count, details", name)
		}
	}, "tag")
	if n := len(query.Tags); err == nil && n > plantstore.MaxTags {
		err = plantstore.Errorf(plantstore.ErrParameter, `"tag" must be given at most %d times, got %d`, plantstore.MaxTags, n)
	}
	others := len(params) - 1
	if params.Has("details") {
		others--
	}
	if err == nil && query.IDs != nil && others > 0 {
		err = plantstore.Errorf(plantstore.ErrParameter, `"id" selects plants by itself: leave out the other parameters, except "details"`)
	}
	return query, params, err
}

// readIDs reads ids that are separated by commas, and returns each once, in order.
func readIDs(value string, problems *plantstore.Problems) []plantstore.ID {
	if n := strings.Count(value, ",") + 1; n > plantstore.MaxIDs {
		problems.Add(plantstore.ErrParameter, `"id" must have at most %d ids, got %d`, plantstore.MaxIDs, n)
		return nil
	}
	var ids []plantstore.ID
	for text := range strings.SplitSeq(value, ",") {
		id, err := parseID(text)
		if err != nil {
			problems.Add(plantstore.ErrParameter, `"id" %v`, err)
			return nil
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// alternatives returns the values that a parameter may have.
func alternatives[T ~string](values []T) string {
	text := string(values[0])
	for i, value := range values[1:] {
		if i == len(values)-2 {
			text += " or " + string(value)
		} else {
			text += ", " + string(value)
		}
	}
	return text
}

// readParams calls read with the value of every query parameter, which must be UTF-8, and unique
// unless it is listed as repeatable. A name is shortened, as messages quote it: those that are
// known are not that long.
func readParams(r *http.Request, read func(name, value string, problems *plantstore.Problems), repeatable ...string) (url.Values, error) {
	params, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, plantstore.Errorf(plantstore.ErrParameter, "malformed query: %v", err)
	}
	return params, readValues(params, read, repeatable...)
}

// readValues is readParams for parameters that have been parsed.
func readValues(params url.Values, read func(name, value string, problems *plantstore.Problems), repeatable ...string) error {
	var problems plantstore.Problems
	for _, name := range slices.Sorted(maps.Keys(params)) {
		values := params[name]
		name = plantstore.Shorten(name)
		switch {
		case len(values) != 1 && !slices.Contains(repeatable, name):
			problems.Add(plantstore.ErrParameter, "%q is given %d times: give it once", name, len(values))
		case slices.ContainsFunc(values, func(value string) bool { return !utf8.ValidString(value) }):
			problems.Add(plantstore.ErrParameter, "%q is not UTF-8", name)
		default:
			for _, value := range values {
				read(name, value, &problems)
			}
		}
	}
	return problems.Err()
}

// readBool reads a parameter that is true or false.
func readBool(name, value string, problems *plantstore.Problems) bool {
	if value != "true" && value != "false" {
		problems.Add(plantstore.ErrParameter, "%q must be true or false, got %q", name, plantstore.Shorten(value))
	}
	return value == "true"
}

// readSearch reads the words that something must contain.
func readSearch(value, of string, problems *plantstore.Problems) string {
	switch words := match.Words(value); {
	case value != "" && words == 0:
		problems.Add(plantstore.ErrParameter, `"q" has nothing to search for: give a word of the %s, or leave it out`, of)
	case words > maxWords:
		problems.Add(plantstore.ErrParameter, `"q" must have at most %d words, got %d`, maxWords, words)
	}
	return value
}

// readDetails reads whether a request for one plant asks for details. It ignores other parameters.
func readDetails(r *http.Request) (details bool, err error) {
	if r.URL.RawQuery == "" {
		return false, nil
	}
	values, given := r.URL.Query()["details"]
	if !given {
		return false, nil
	}
	err = readValues(url.Values{"details": values}, func(name, value string, problems *plantstore.Problems) {
		details = readBool(name, value, problems)
	})
	return details, err
}

// readLimit reads the limit of a page, a positive integer of any size, and caps it at maxLimit.
func readLimit(value string, problems *plantstore.Problems) int {
	digits := strings.TrimLeft(value, "0")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		problems.Add(plantstore.ErrParameter, `"limit" must be an integer, 1 or more, got %q`, plantstore.Shorten(value))
		return 0
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return maxLimit // too long for an int
	}
	return min(n, maxLimit)
}

// linkNext sets the Link header to the next page, which the parameters describe.
func (c *call) linkNext(path string, params url.Values) {
	c.w.Header().Set("Link", "<"+c.s.baseURL+path+"?"+params.Encode()+`>; rel="next"`)
}

// readCondition reads If-Match and If-None-Match. It returns nil where there is
// neither.
func readCondition(r *http.Request) (*plantstore.Condition, error) {
	match, noneMatch := r.Header["If-Match"], r.Header["If-None-Match"]
	if match == nil && noneMatch == nil {
		return nil, nil
	}
	var c plantstore.Condition
	var problems plantstore.Problems
	for _, tag := range entityTags("If-Match", match, &problems) {
		// A weak tag never matches in If-Match, but it is still a condition.
		c.Match = append(c.Match, plantstore.ETag(tag))
	}
	for _, tag := range entityTags("If-None-Match", noneMatch, &problems) {
		c.NoneMatch = append(c.NoneMatch, plantstore.ETag(strings.TrimPrefix(tag, "W/")))
	}
	return &c, problems.Err()
}

var entityTag = regexp.MustCompile(`^(\*|(W/)?"[^"]*")`)

// entityTags splits a list of entity tags (RFC 9110, 8.8.3), which may contain
// commas. An empty list is a problem: it would make a write unconditional.
func entityTags(header string, values []string, problems *plantstore.Problems) []string {
	var tags []string
	for _, value := range values {
		rest := strings.TrimLeft(value, " \t,")
		for rest != "" {
			tag := entityTag.FindString(rest)
			if tag == "" {
				problems.Add(plantstore.ErrParameter, "%s must be * or a list of quoted ETags, got %q", header, plantstore.Shorten(value))
				return nil
			}
			tags = append(tags, tag)
			rest = strings.TrimLeft(rest[len(tag):], " \t,")
		}
	}
	if values != nil && tags == nil {
		problems.Add(plantstore.ErrParameter, "%s must be * or a list of quoted ETags, got an empty list", header)
	}
	return tags
}
