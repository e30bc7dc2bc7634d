package client

import (
	"encoding/json"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"plantstore"
	"plantstore/internal/wire"
	"plantstore/internal/wire/wiretest"
)

// FuzzResponse decodes any body as a page, a plant, a report and an Error. Nothing
// panics, and the plants are those that encoding/json finds.
func FuzzResponse(f *testing.F) {
	for _, body := range []string{
		"", "[]", "{}", "null", "[null]", `[{"id":1,"name":"a"}]`, `[{"id":-9223372036854775808,"name":"\u0000","tag":""},{"id":2,"name":"b","more":[{}]}]`, `[{"id":1e2,"name":"a"}]`, `[{"id":1.0,"name":"a"}]`,
		`[{"id":9223372036854775808,"name":"a"}]`, `[{"id":1,"name":"a","tag":null}]`, `[{"id":1,"name":"a","name":"b"}]`, `[{"id":1}]`, `[{"name":"a"}]`, `[{"ID":1,"name":"a"}]`, `[{"id":1,"name":"a"}`, `[{"id":1,"name":"a"}]]`,
		`{"name":"Oak"}`, `{"name":"Oak","tag":"x"}`, `{"error":40010,"message":"taken"}`, `{"error":40010,"message":"taken","line":3}`, `{"error":4e4,"message":""}`, `{"error":99999999999,"message":""}`, `{"error":40010}`,
		`{"created":1,"unchanged":0,"failed":1,"errors":[{"line":2,"error":40001,"message":"no"}]}`, `{"created":1,"unchanged":0,"failed":0}`, `{"created":1,"created":1,"unchanged":0,"failed":0,"errors":[]}`, "[\"\xff\"]", strings.Repeat("[", 10_001),
	} {
		f.Add([]byte(body), "</plants?after=5>; rel=\"next\"")
	}
	for _, link := range []string{
		"", "<", "<>", ">", "<?after=5>; rel=next", "<?after=x>; rel=\"next\"", "<?after=5>; rel=\"prev\", <?after=6>; REL = \"first  NEXT\"", "<?after=5>;;;rel", "<%zz>; rel=next", "<?after=9223372036854775808>; rel=next", "<:>; rel=next", "\xff<\x00>; rel=next",
	} {
		f.Add([]byte(`[{"id":1,"name":"a"}]`), link)
	}
	f.Fuzz(func(t *testing.T, body []byte, link string) {
		r := &response{status: "200 OK", header: http.Header{"Content-Type": {wire.MediaJSON}, "Link": {link}}, body: body}
		if err := r.err(http.StatusBadRequest); err == nil {
			t.Errorf("%q is not an error", body)
		}
		if report, err := decodeBody(r, wire.DecodeReport); err != nil && report.Errors != nil {
			t.Errorf("%q fails with %v and returns %+v", body, err, report)
		}
		if p, err := r.plant(); err == nil {
			wantPlants(t, append(append([]byte("["), body...), ']'), []plantstore.Plant{p}, false)
		}
		page, err := r.page(new(plantstore.Query))
		if err == nil {
			var plants []plantstore.Plant
			for _, p := range page.Plants {
				plants = append(plants, p.Plant)
			}
			wantPlants(t, body, plants, true)
		}
		if err == nil && page.Next != nil && !strings.Contains(link, "<") {
			t.Errorf("%q links to the page after %d", link, *page.Next)
		}
	})
}

// wantPlants fails unless encoding/json finds the same plants in the body, and each can
// be encoded again.
func wantPlants(t *testing.T, body []byte, got []plantstore.Plant, withID bool) {
	t.Helper()
	var rows []map[string]any
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.UseNumber()
	if err := dec.Decode(&rows); err != nil || len(rows) != len(got) {
		t.Fatalf("%q: got %v, and encoding/json finds %v, %v", body, got, rows, err)
	}
	for i, p := range got {
		tag, tagged := p.Tag.Text()
		_, hasTag := rows[i]["tag"]
		if rows[i]["name"] != p.Name || tagged != hasTag || tagged && rows[i]["tag"] != tag || withID && !isID(rows[i]["id"], p.ID) {
			t.Errorf("%q: got %+v, want %v", body, p, rows[i])
		}
		if _, err := wire.AppendNewPlant(nil, p); err != nil {
			t.Errorf("%q: %v cannot be encoded: %v", body, p, err)
		}
	}
}

// isID reports whether a JSON number is the id. Too costly a number passes.
func isID(number any, id plantstore.ID) bool {
	text, _ := number.(json.Number)
	value, ok := wiretest.Integer(text.String())
	return text != "" && (!ok || value.Cmp(new(big.Rat).SetInt64(int64(id))) == 0)
}

// FuzzLink builds a Link header as a server does, for any URL and query, and finds in
// it where the next page begins.
func FuzzLink(f *testing.F) {
	f.Add("https://plants.example/v1", "a&b=c", "", int64(5))
	f.Add("/a,b;c", "<>;rel=\"prev\"", ">", int64(-1)<<63)
	f.Add("", "\"", ",", int64(1<<63-1))
	f.Add("http://[::1]:80", "after=7", "&after=8#x", int64(0))
	f.Fuzz(func(t *testing.T, base, tag, q string, after int64) {
		target, err := url.Parse(base)
		if err != nil || !utf8.ValidString(tag) || !utf8.ValidString(q) {
			t.Skip("not a valid URL or query")
		}
		id := plantstore.ID(after)
		params, err := queryParams(plantstore.Query{After: &id, Tag: plantstore.NewTag(tag), Contains: q})
		if err != nil {
			t.Fatal(err)
		}
		target.RawQuery, target.Fragment = params.Encode(), ""
		if strings.ContainsAny(target.String(), "<>") {
			t.Skip("not a valid link")
		}
		link := "<" + target.String() + `>; rel="next"`
		for _, values := range [][]string{{link}, {`<x>; rel="prev", ` + link}, {`<x>; rel=prev`, link}, {link + `, <y>; rel="last"`}} {
			found, ok := nextLink(values)
			if !ok || found != target.String() {
				t.Fatalf("nextLink(%q): %q, %t", values, found, ok)
			}
			r := &response{header: http.Header{"Link": values}}
			if got, ok, err := r.next(); err != nil || !ok || got.Get("after") != id.String() {
				t.Errorf("the next page of %q has %v, %v, want it after %d", found, got, err, id)
			}
		}
	})
}
