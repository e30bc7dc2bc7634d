package server_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"plantstore"
	"plantstore/internal/match"
	"plantstore/internal/servertest"
	"plantstore/internal/wire"
)

// testPlants have ids, names and tags that are hard for a list.
var testPlants = []plantstore.Plant{
	plant(-9223372036854775808, "first"), plant(-9223372036854775807, "", ""), plant(-1, "Kelvin \u212a", "k"),
	plant(0, "straße", "STRASSE"), plant(1, "Monstera", "tropical"), plant(2, "monstera deliciosa", "tropical"), plant(3, "a&b=c;d+e%20f", "a&b=c;d+e%20f"),
	plant(10, "\x00", "\x00"), plant(11, "<>;rel=\"next\"", "<>;rel=\"next\""), plant(100, "שלום 🌱", "🌱"), plant(101, "\ufffd", "\ufffd"),
	plant(9007199254740993, "beyond 2^53", "tropical"), plant(9223372036854775806, "MONSTERA", ""), plant(9223372036854775807, "last", "tropical"),
}

// expectation is what a list must return: the plants of a query, or an error that
// contains each of these texts.
type expectation struct {
	query plantstore.Query
	bad   []string
}

// expect parses a query as docs/contract.md describes it.
func expect(raw string) expectation {
	want := expectation{query: plantstore.Query{Limit: 50}}
	values := map[string][]string{}
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, good := unescape(name)
		value, goodValue := unescape(value)
		if !good || !goodValue || strings.Contains(pair, ";") {
			return expectation{bad: []string{"malformed query"}}
		}
		values[name] = append(values[name], value)
	}
	if byName := slices.ContainsFunc(values["order"], func(order string) bool { return plantstore.Order(order).ByName() }); byName && values["after"] != nil {
		return expectation{bad: []string{`"after"`}} // none of the fuzzer's cursors is valid, but for unlikely ones
	}
	for name, all := range values {
		most := 1
		if name == "tag" {
			most = 32
		}
		if len(all) > most || slices.ContainsFunc(all, func(value string) bool { return !utf8.ValidString(value) || !want.set(name, value) }) {
			want.bad = append(want.bad, strconv.Quote(plantstore.Shorten(name)))
		}
	}
	if want.bad == nil && want.query.IDs != nil && len(values) > 1 {
		want.bad = []string{`"id"`}
	}
	return want
}

var positive = regexp.MustCompile(`\A0*[1-9][0-9]*\z`)

// set sets a parameter of the query. It reports whether that is a valid one.
func (e *expectation) set(name, value string) bool {
	switch name {
	case "limit":
		e.query.Limit = 1000
		if n, err := strconv.Atoi(value); err == nil {
			e.query.Limit = min(n, 1000)
		}
		return positive.MatchString(value)
	case "after":
		n, err := strconv.ParseInt(value, 10, 64)
		e.query.After = (*plantstore.ID)(&n)
		return err == nil && strconv.FormatInt(n, 10) == value
	case "id":
		e.query.Limit = 1000
		ids := strings.Split(value, ",")
		for _, text := range ids {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || strconv.FormatInt(n, 10) != text {
				return false
			}
			e.query.IDs = append(e.query.IDs, plantstore.ID(n))
		}
		return len(ids) <= 1000
	case "order":
		e.query.Order = plantstore.Order(value)
		return slices.Contains([]string{"id", "-id", "name", "-name"}, value)
	case "tag":
		e.query.Tags = append(e.query.Tags, value)
		return true
	case "tag_prefix":
		e.query.TagPrefix = &value
		return len(value) <= 4096
	case "untagged":
		e.query.Untagged = value == "true"
		return value == "true" || value == "false"
	case "count":
		e.query.Count = value == "true"
		return value == "true" || value == "false"
	case "q":
		e.query.Contains = value
		return searchable(value)
	}
	return false
}

// searchable reports whether a text is empty, or has from 1 to 32 words.
func searchable(q string) bool {
	words := match.Words(q)
	return q == "" || 0 < words && words <= 32
}

// unescape decodes a part of a query (application/x-www-form-urlencoded).
func unescape(text string) (string, bool) {
	var out []byte
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '+':
			out = append(out, ' ')
		case text[i] != '%':
			out = append(out, text[i])
		default:
			n, err := strconv.ParseUint(text[min(i+1, len(text)):min(i+3, len(text))], 16, 8)
			if err != nil || i+3 > len(text) {
				return "", false
			}
			out = append(out, byte(n))
			i += 2
		}
	}
	return string(out), true
}

// matching returns the plants that match the query, regardless of its limit.
func (e *expectation) matching(plants []plantstore.Plant) []plantstore.Plant {
	q, name := &e.query, match.New(e.query.Contains)
	var found []plantstore.Plant
	for _, p := range plants {
		text, tagged := p.Tag.Text()
		selected := q.Tags == nil && q.TagPrefix == nil && !q.Untagged ||
			tagged && (slices.Contains(q.Tags, text) || q.TagPrefix != nil && strings.HasPrefix(text, *q.TagPrefix)) || !tagged && q.Untagged
		if (q.IDs == nil || slices.Contains(q.IDs, p.ID)) && selected && name.Match(p.Name) {
			found = append(found, p)
		}
	}
	if q.Order.ByName() {
		fold := func(p plantstore.Plant) string { return string(name.AppendFolded(nil, p.Name)) }
		slices.SortFunc(found, func(a, b plantstore.Plant) int {
			return cmp.Or(strings.Compare(fold(a), fold(b)), strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
		})
	}
	if q.Order.Descending() {
		slices.Reverse(found)
	}
	return slices.DeleteFunc(found, func(p plantstore.Plant) bool {
		return q.After != nil && (q.Order == "-id" && p.ID >= *q.After || q.Order != "-id" && p.ID <= *q.After)
	})
}

// wireSafe escapes what a request line cannot contain.
func wireSafe(raw string) string {
	var out strings.Builder
	for _, c := range []byte(raw) {
		if c <= ' ' || c == 0x7f {
			fmt.Fprintf(&out, "%%%02X", c)
			continue
		}
		out.WriteByte(c)
	}
	return out.String()
}

// list sends a list request with exactly this query. The integers of the validator end
// at int64, so it does not see a limit beyond that.
func (s *service) list(t *testing.T, raw, accept string) reply {
	t.Helper()
	target := &url.URL{Scheme: "http", Host: s.Addr, Path: "/plants", RawQuery: raw}
	header := http.Header{"Authorization": {"Bearer " + s.Token}, "Accept": {accept}}
	r := (&http.Request{Method: "GET", URL: target, Header: header}).WithContext(t.Context())
	response, err := s.http.Do(r)
	if err != nil {
		t.Fatalf("GET /plants?%s: %v", raw, err)
	}
	if limit, err := strconv.ParseUint(target.Query().Get("limit"), 10, 63); err != nil && limit > 0 {
		r.URL = &url.URL{Path: "/plants"}
	}
	return s.receive(t, r, nil, response)
}

var listSeeds = []string{
	"", "&", "=", "&&=&", "?", "#", "limit=1", "limit=5&after=1", "limit=0", "limit=-1", "limit=+1", "limit=%2B1", "limit=01", "limit=1e1", "limit=1.0", "limit=0x1", "limit=1_0",
	"limit=", "limit", "limit=1&limit=1", "limit=1000", "limit=1001", "limit=9223372036854775807", "limit=9223372036854775808", "limit=99999999999999999999999999",
	"limit=%31", "l%69mit=2", "limit=٣", "limit=1%00", "limit= 1", "limit=1;after=1", "Limit=1", "limt=1", "limit[]=1", "LIMIT=1&limit=1",
	"after=0", "after=-0", "after=+0", "after=00", "after=-1", "after=1", "after=9223372036854775807", "after=9223372036854775808", "after=-9223372036854775808",
	"after=-9223372036854775809", "after=", "after=1e3", "after=x&after=y", "after=%2d1", "after=9223372036854775806&limit=1",
	"tag=tropical", "tag=tropical&limit=1", "tag=", "tag", "tag=%00", "tag=%F0%9F%8C%B1", "tag=\xf0\x9f\x8c\xb1", "tag=%ff", "tag=\xff", "tag=%ED%A0%80", "tag=%", "tag=%f", "tag=%zz", "tag=%%41",
	"tag=a%26b%3Dc%3Bd%2Be%2520f", "tag=a&b=c;d+e%20f", "tag=%3C%3E%3Brel%3D%22next%22", "tag=<>;rel=\"next\"", "tag==", "tag=k=", "tag=k&=", "tag=TROPICAL", "tag=%EF%BF%BD",
	"q=monstera", "q=MONSTERA&limit=1", "q=", "q=%E2%84%AA", "q=K", "q=ß", "q=SS", "q=%00", "q=+", "q=%20", "q=%2B", "q=%C3", "q=a&q=b", "q=monstera&tag=tropical&limit=1&after=1",
	"cursor=1", "%00=1", "\xff=1", "q=%EF%BF%BD", "limit=1&tag=tropical&q=o&after=-5&x=1&y=2&limit=3", "access_token=x", "tag=" + "a%20", "a\"b=1", "%22limit%22=1",
	"id=1", "id=2,1,2", "id=-9223372036854775808,9223372036854775807,5", "id=", "id=,1", "id=1,", "id=01", "id=1&limit=5", "id=1&id=2", "id=9223372036854775808", "id=1%2C2", "id=x&tag=y",
	"order=name", "order=-name", "order=name&limit=3&tag=tropical&q=m", "order=-name&untagged=true&count=true&limit=2", "order=name&after=1", "order=name&id=1",
	"order=id", "order=-id", "order=-id&after=1&limit=2", "order=-id&after=-9223372036854775808", "order=", "order=ID", "order=id&order=-id", "order=-id&id=1", "order=%2Did&tag=tropical",
	"tag=k&tag=", "tag=k&tag=k&tag=tropical&order=-id", "tag=k&tag=%ff", "tag=k" + strings.Repeat("&tag=k", 31), "tag=k" + strings.Repeat("&tag=k", 32), "tag=a&id=1",
	"tag_prefix=t", "tag_prefix=", "tag_prefix=%00&tag=k", "tag_prefix=%F4%8F%BF%BF", "tag_prefix=t&q=DELI", "tag_prefix=%ff", "tag_prefix=a&tag_prefix=b", "tag_prefix=a%26b&limit=1",
	"untagged=true", "untagged=false", "untagged=", "untagged=1", "untagged=true&tag=k&tag_prefix=tr&q=m&order=-id&limit=1", "untagged=true&untagged=true", "untagged=true&id=5",
	"count=true", "count=true&limit=1&after=5", "count=false", "count=1", "count=true&id=1", "count=true&q=MONSTERA&order=-id&after=3", "count=true&tag=no&limit=1",
	"limit=1#limit=2", "q=%u0041", "q=%E0%80%80", "q=a%0Ab", "q=a%0D%0Ab", "q=deliciosa+MONST%C3%89RA", "q=%CC%81", "q=%C3%BC",
}

// FuzzListQuery lists and exports with any query. The response is exactly the plants
// that expect finds, or 40006 with a message that names each bad parameter. The same
// request again has the same response.
func FuzzListQuery(f *testing.F) {
	for i, raw := range listSeeds {
		f.Add(raw, i%3 == 0)
	}
	s := start(f, servertest.Options{Store: fuzzStore()})
	f.Fuzz(func(t *testing.T, raw string, lines bool) {
		s.restore(t)
		raw = wireSafe(raw[:min(len(raw), 8<<10)])
		accept := wire.MediaJSON
		if lines {
			accept = wire.MediaNDJSON
		}
		got, again := s.list(t, raw, accept), s.list(t, raw, accept)
		if got.status != again.status || !bytes.Equal(got.body, again.body) || got.header.Get("Link") != again.header.Get("Link") {
			t.Errorf("%q: got %d %q, and then %d %q", raw, got.status, got.body, again.status, again.body)
		}
		want := expect(raw)
		if lines && len(want.bad) == 0 && strings.Contains(raw, "=") && slices.Contains(names(raw), "limit") {
			want.bad = []string{`"limit" cannot be combined`}
		}
		if lines && len(want.bad) == 0 && want.query.Count {
			want.bad = []string{`"count" cannot be combined`}
		}
		if len(want.bad) > 0 {
			got.wantError(t, plantstore.ErrParameter, want.bad...)
			return
		}
		found := want.matching(testPlants)
		if want.query.Count {
			all := want
			all.query.After = nil
			got.wantHeader(t, "Plantstore-Count", strconv.Itoa(len(all.matching(testPlants))))
		}
		if lines {
			got.wantLines(t, found...)
			return
		}
		got.wantPlants(t, found[:min(len(found), want.query.Limit)]...)
		// A search may find out only on the next page that nothing more matches.
		more, linked := len(found) > want.query.Limit, got.header.Get("Link") != ""
		if scan := want.query.Contains != "" || want.query.Untagged; more && !linked || linked && !more && !scan {
			t.Errorf("%q: %d plants match, and the Link of the first page is %q", raw, len(found), got.header.Get("Link"))
		}
		s.Log.Reset()
	})
}

// names returns the names of a query's parameters.
func names(raw string) []string {
	var all []string
	for pair := range strings.SplitSeq(raw, "&") {
		name, _, _ := strings.Cut(pair, "=")
		name, _ = unescape(name)
		all = append(all, name)
	}
	return all
}

// linkTarget matches a Link header (RFC 8288) with one link to a URI (RFC 3986), and
// with rel="next" as its only parameter.
var linkTarget = regexp.MustCompile(`\A<((?:[A-Za-z0-9._~:/?@!$&'()*+,;=\[\]-]|%[0-9A-Fa-f]{2})+)>; rel="next"\z`)

// FuzzPages follows the links of a list, for any plants, filters, limits and base URLs.
// The pages together are exactly what matches, each but the last is full, and each link
// is below the base URL.
func FuzzPages(f *testing.F) {
	f.Add("", "Monstera\nmonstera\nOak", "a", "", uint64(1), int64(1), uint16(0))
	f.Add("/v1", "a\nb\nc\nd\ne\nf\ng\nh", "a&b=c;d+e%20f", "", uint64(1)<<60, int64(-1<<63), uint16(0))
	f.Add("/my%20shop/", "\x00\n\n\u212a\nk", "\x00", "K", uint64(1)<<63, int64(1<<62), uint16(1))
	f.Add("/a%2Fb/%7Bid%7D", "x\nX\nxx", "🌱", "x", uint64(7), int64(-7), uint16(1))
	f.Add("/a,b;c'(d)!*$&=@:~", "<\n>\n\"", "<>;rel=\"next\"", "", ^uint64(0), int64(0), uint16(1))
	f.Add("/ü/%ff/[x]", "ß\nSS\nſ\ns", "", "S", uint64(3), int64(1<<63-9), uint16(3))
	f.Add("/plants", "a\nb", "plants", "", uint64(0), int64(9), uint16(1000))
	f.Add("/%", "a\nb\nc", "%", "%", uint64(1), int64(9), uint16(0))
	f.Add("/a//b", "a\nb\nc", "", "", uint64(1), int64(9), uint16(1))
	f.Add("/a/../b", "a\nb\nc", "", "", uint64(1), int64(9), uint16(1))
	f.Add("/docs", "a\nb\nc", "", "", uint64(1), int64(9), uint16(1))
	f.Add("/assets", "a\nb\nc", "", "", uint64(1), int64(9), uint16(1))
	s := start(f, servertest.Options{Store: fuzzStore()})
	f.Fuzz(func(t *testing.T, basePath, texts, tag, q string, step uint64, first int64, limit uint16) {
		base, err := url.Parse("https://plants.example" + basePath)
		if err != nil || base.Host != "plants.example" || base.RawQuery != "" || base.Fragment != "" {
			t.Skip("serve refuses such a base URL")
		}
		base.Path, base.RawPath = strings.TrimRight(base.Path, "/"), strings.TrimRight(base.RawPath, "/")
		if base.Path != "" && path.Clean(base.Path) != base.Path {
			t.Skip("serve refuses such a base URL")
		}
		if !utf8.ValidString(texts) || !utf8.ValidString(tag) || !utf8.ValidString(q) || !searchable(q) || len(tag)+len(q) > 2000 {
			t.Skip("not a valid query")
		}
		plants := plantsOf(texts, tag, step, first)
		s.Clear(t)
		s.Fill(t, plants...)
		walk := walk{handler: s.At(base), base: base.String(), token: s.Token}
		for _, filter := range []plantstore.Tag{{}, plantstore.NewTag(tag)} {
			want := expectation{query: plantstore.Query{Contains: q, Limit: 1 + int(limit)%7}}
			params := url.Values{"limit": {strconv.Itoa(want.query.Limit)}}
			if q != "" {
				params.Set("q", q)
			}
			if text, ok := filter.Text(); ok {
				want.query.Tags = []string{text}
				params.Set("tag", text)
			}
			walk.run(t, base.EscapedPath()+"/plants?"+params.Encode(), want.matching(plants), want.query.Limit, q != "")
		}
		s.Log.Reset()
	})
}

// plantsOf returns a plant for each line of texts, in order of id. The ids are step
// apart and wrap around at the end of int64.
func plantsOf(texts, tag string, step uint64, first int64) []plantstore.Plant {
	distinct := map[plantstore.ID]plantstore.Plant{}
	for i, name := range strings.Split(texts, "\n") {
		p := plant(plantstore.ID(first+int64(uint64(i)*step)), name)
		if i%3 > 0 {
			p.Tag = plantstore.NewTag(tag)
		}
		if len(distinct) < 40 {
			distinct[p.ID] = p
		}
	}
	return slices.SortedFunc(maps.Values(distinct), byID)
}

// walk is a client that finds the next page only by its link.
type walk struct {
	handler http.Handler
	base    string
	token   string
}

func (w walk) run(t *testing.T, target string, want []plantstore.Plant, limit int, searches bool) {
	t.Helper()
	for range len(want) + 2 {
		r := httptest.NewRequest("GET", target, nil)
		r.Header.Set("Authorization", "Bearer "+w.token)
		recorder := httptest.NewRecorder()
		w.handler.ServeHTTP(recorder, r)
		got := reply{status: recorder.Code, header: recorder.Header(), body: recorder.Body.Bytes()}
		page := want[:min(limit, len(want))]
		got.wantPlants(t, page...)
		want = want[len(page):]
		links := got.header.Values("Link")
		// A search may find out only on the next page that nothing more matches.
		if len(links) == 0 && len(want) == 0 {
			return
		}
		if len(links) != 1 || len(want) == 0 && !searches {
			t.Fatalf("%s has the links %q, with %d plants to come", target, links, len(want))
		}
		target = w.follow(t, links[0])
	}
	t.Fatalf("the pages do not end: the next one is %s", target)
}

// follow returns the path and query of a link, which must be below the base URL.
func (w walk) follow(t *testing.T, link string) string {
	t.Helper()
	parts := linkTarget.FindStringSubmatch(link)
	if parts == nil {
		t.Fatalf("the link %q is not as RFC 8288 wants it", link)
	}
	next, err := url.Parse(parts[1])
	if err != nil || !next.IsAbs() || next.Host == "" {
		t.Fatalf("the link %q is not absolute: %v", link, err)
	}
	if query, below := strings.CutPrefix(parts[1], w.base+"/plants?"); !below || query != next.RawQuery {
		t.Fatalf("the link %q is not below %s", link, w.base)
	}
	return next.RequestURI()
}
