package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plantstore"
	"plantstore/internal/server"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
	"plantstore/internal/wire"
)

func TestPlantIsReadByItsID(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		all := []plantstore.Plant{
			plant(math.MinInt64, "least"), plant(-1, "", ""), plant(0, "nul\x00", "\x00"), plant(math.MaxInt64, "🌱", "שלום"),
		}
		s.Fill(t, all...)
		for _, p := range all {
			got := s.call(t, "GET", fmt.Sprintf("/%d", p.ID), "")
			got.wantPlant(t, p)
			got.wantHeader(t, "ETag", string(s.stored(t, p.ID).ETag()))
			s.call(t, "HEAD", fmt.Sprintf("/%d", p.ID), "").wantStatus(t, 200)
		}
		s.call(t, "GET", "/7", "").wantError(t, plantstore.ErrNoPlant, "7")
	})
}

// stored returns a plant as the store has it.
func (s *service) stored(t *testing.T, id plantstore.ID) plantstore.StoredPlant {
	t.Helper()
	p, err := s.Store.Plant(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlantHasOneURL(t *testing.T) {
	s := startDefault(t)
	s.Fill(t, plant(7, "fern"))
	for _, id := range []string{"x", "07", "+7", "7.0", "-0", " 7", "9223372036854775808", "0x7", "import"} {
		for _, method := range []string{"GET", "PUT", "PATCH", "DELETE"} {
			s.call(t, method, "/"+url.PathEscape(id), `{"name":"fern"}`).wantError(t, plantstore.ErrParameter, "integer", id)
		}
	}
	s.call(t, "GET", "/%37", "").wantPlant(t, plant(7, "fern"))
	s.call(t, "GET", "/7/", "").wantError(t, plantstore.ErrNoPath)
	s.call(t, "POST", "/7", `{"name":"fern"}`).wantHeader(t, "Allow", "DELETE, GET, HEAD, PATCH, PUT")
}

// Apart from details, 0.2.0 got a plant whatever the query was.
func TestGetIgnoresOtherParameters(t *testing.T) {
	s := start(t, servertest.Options{}) // a proxy would drop a malformed query
	s.Fill(t, plant(7, "fern"))
	want := s.call(t, "GET", "/7", "")
	for _, query := range []string{"?x=1&x=2", "?x=%zz", "?a;b", "?utm=%ff", "?", "?details=false&x=%zz&a;b"} {
		if got := s.call(t, "GET", "/7"+query, ""); got.status != want.status || string(got.body) != string(want.body) {
			t.Errorf("%s: got %d %s, want %s", query, got.status, got.body, want.body)
		}
	}
	if got := s.call(t, "GET", "/7?x=1&x=2&details=true", ""); got.status != 200 || !strings.Contains(string(got.body), `"created"`) {
		t.Errorf("with details: got %d %s", got.status, got.body)
	}
	for _, query := range []string{"?details=1", "?details=true&details=true", "?details=%ff"} {
		s.call(t, "GET", "/7"+query, "").wantError(t, plantstore.ErrParameter, "details")
	}
}

func TestReplaceCreatesOrReplaces(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		for _, want := range []plantstore.Plant{plant(5, "fern", "green"), plant(5, "fern", ""), plant(5, "moss"), plant(5, "moss")} {
			body, err := json.Marshal(map[string]any{"name": want.Name, "id": 99, "other": []int{}})
			if err != nil {
				t.Fatal(err)
			}
			if text, ok := want.Tag.Text(); ok {
				body = fmt.Appendf(body[:len(body)-1], `,"tag":%q}`, text)
			}
			got := s.call(t, "PUT", "/5", string(body))
			got.wantPlant(t, want)
			got.wantHeader(t, "ETag", string(s.stored(t, want.ID).ETag()))
			s.wantStored(t, want)
		}
		s.call(t, "PUT", "/5", `{"tag":"x"}`).wantError(t, plantstore.ErrMissing, `"name"`)
		s.call(t, "PUT", "/5", `{"name":1}`).wantError(t, plantstore.ErrType, `"name"`)
		s.call(t, "PUT", "/5", `{"name":"x"}`, "Content-Type: text/plain").wantError(t, plantstore.ErrMediaType)
		s.wantStored(t, plant(5, "moss"))
	})
}

func TestPatchChangesWhatItNames(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		const merge = "Content-Type: application/merge-patch+json; charset=utf-8"
		patch := func(body string, header ...string) reply {
			t.Helper()
			return s.call(t, "PATCH", "/5", body, append(header, merge)...)
		}
		patch(`{}`).wantError(t, plantstore.ErrNoPlant, "5")
		patch(`{}`, "If-Match: *").wantError(t, plantstore.ErrPrecondition, "5")
		patch(`{}`, "If-None-Match: *").wantError(t, plantstore.ErrNoPlant, "5")
		s.Fill(t, plant(5, "fern"))
		for _, tt := range []struct {
			body string
			want plantstore.Plant
		}{
			{`{"tag":null}`, plant(5, "fern")},
			{`{"tag":"green"}`, plant(5, "fern", "green")},
			{` { } `, plant(5, "fern", "green")},
			{`{"id":"x","name":"moss","other":null}`, plant(5, "moss", "green")},
			{`{"n\u0061me":"rose","tag":""}`, plant(5, "rose", "")},
			{`{"tag":null,"name":"oak"}`, plant(5, "oak")},
		} {
			got := patch(tt.body, "If-Match: *")
			got.wantPlant(t, tt.want)
			got.wantHeader(t, "ETag", s.call(t, "GET", "/5", "").header.Get("ETag"))
			s.wantStored(t, tt.want)
		}
		if changes, _ := page(t, s.Server, "type=plant.replaced"); len(changes) != 4 {
			t.Errorf("%d events of 4 changes", len(changes))
		}
		for body, code := range map[string]plantstore.Code{
			``: plantstore.ErrNotJSON, `{`: plantstore.ErrNotJSON, `{"name":"a","name":"b"}`: plantstore.ErrNotJSON, `{} x`: plantstore.ErrNotJSON,
			`null`: plantstore.ErrNotObject, `[]`: plantstore.ErrNotObject, `"fern"`: plantstore.ErrNotObject,
			`{"name":null}`: plantstore.ErrType, `{"name":1,"tag":null}`: plantstore.ErrType, `{"tag":false}`: plantstore.ErrType, `{"tag":["a"]}`: plantstore.ErrType,
		} {
			patch(body).wantError(t, code)
		}
		s.call(t, "PATCH", "/5", `{"tag":"x"}`, "Content-Type: application/json-patch+json").wantError(t, plantstore.ErrMediaType, "application/merge-patch+json or application/json")
		is := s.call(t, "GET", "/5", "").header.Get("ETag")
		patch(`{"tag":"x"}`, "If-None-Match: "+is).wantError(t, plantstore.ErrPrecondition)
		patch(`{"tag":"x"}`, `If-Match: "other"`).wantError(t, plantstore.ErrPrecondition)
		patch(`{"tag":"x"}`, "If-Match: abc").wantError(t, plantstore.ErrParameter)
		s.wantStored(t, plant(5, "oak"))
		s.call(t, "PATCH", "/5", `{"tag":"x"}`, "If-Match: "+is).wantPlant(t, plant(5, "oak", "x"))
		patch(`{"tag":"y"}`, "If-Match: "+is).wantError(t, plantstore.ErrPrecondition)
	})
}

// Two clients each patch a member, again and again. Neither loses a change of its own.
func TestConcurrentPatchesDoNotUndoEachOther(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		s.Fill(t, plant(5, "fern"))
		member := func(name string, of func(plantstore.Plant) string) {
			for i := range 30 {
				want := fmt.Sprint(name, i)
				got := s.call(t, "PATCH", "/5", fmt.Sprintf(`{%q:%q}`, name, want))
				var p plantstore.Plant
				if err := json.Unmarshal(got.body, &p); err != nil || of(p) != want {
					t.Errorf("a patch of %s to %s got %d %s", name, want, got.status, got.body)
				}
			}
		}
		var clients sync.WaitGroup
		clients.Go(func() { member("name", func(p plantstore.Plant) string { return p.Name }) })
		clients.Go(func() { member("tag", func(p plantstore.Plant) string { return p.Tag.String() }) })
		clients.Wait()
		s.wantStored(t, plant(5, "name29", "tag29"))
	})
}

func TestPatchedPlantIsNoLargerThanABody(t *testing.T) {
	s := start(t, servertest.Options{MaxBody: 1000})
	name, tag := strings.Repeat("n", 600), strings.Repeat("t", 400)
	s.Fill(t, plant(5, name))
	s.call(t, "PATCH", "/5", fmt.Sprintf(`{"tag":%q}`, tag)).wantPlant(t, plant(5, name, tag))
	s.call(t, "PATCH", "/5", fmt.Sprintf(`{"tag":%q}`, tag+"t")).wantError(t, plantstore.ErrTooLarge, "plant 5 would be larger")
	s.wantStored(t, plant(5, name, tag))
}

func TestDeleteRemoves(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		s.Fill(t, plant(5, "fern"), plant(6, "moss"))
		s.call(t, "DELETE", "/5", "").wantStatus(t, 204)
		s.wantStored(t, plant(6, "moss"))
		s.call(t, "DELETE", "/5", "").wantError(t, plantstore.ErrNoPlant, "5")
		s.create(t, `{"id":5,"name":"new"}`).wantPlant(t, plant(5, "new"))
	})
}

func TestConditionsPreventLostUpdates(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		old, now := plant(5, "old"), plant(5, "now")
		s.Fill(t, old)
		is, was := "", string(s.stored(t, 5).ETag())
		for _, tt := range []struct {
			header string
			get    int
			write  bool // whether it happens
		}{
			{"If-Match: IS", 200, true},
			{"If-Match: *", 200, true},
			{"If-Match: " + was + ` , "a,b", IS`, 200, true},
			{"If-Match: " + was, 412, false},
			{"If-Match: W/IS", 412, false},
			{"If-None-Match: " + was, 200, true},
			{"If-None-Match: IS", 304, false},
			{"If-None-Match: W/IS", 304, false},
			{"If-None-Match: *", 304, false},
			{`If-None-Match: "x", IS`, 304, false},
		} {
			s.call(t, "PUT", "/5", `{"name":"now"}`).wantPlant(t, now)
			is = string(s.stored(t, 5).ETag())
			got := s.call(t, "GET", "/5", "", strings.ReplaceAll(tt.header, "IS", is))
			if got.status != tt.get {
				t.Errorf("GET with %s: %d %s, want %d", tt.header, got.status, got.body, tt.get)
			}
			if tt.get == 412 {
				got.wantError(t, plantstore.ErrPrecondition, "5")
			} else {
				got.wantHeader(t, "ETag", is)
			}
			for method, done := range map[string]int{"PUT": 200, "DELETE": 204} {
				is := string(s.stored(t, 5).ETag())
				got := s.call(t, method, "/5", `{"name":"mine"}`, strings.ReplaceAll(tt.header, "IS", is))
				if !tt.write {
					got.wantError(t, plantstore.ErrPrecondition, "5")
					s.wantStored(t, now)
				} else if got.status != done {
					t.Errorf("%s with %s: %d %s, want %d", method, tt.header, got.status, got.body, done)
				}
				s.call(t, "PUT", "/5", `{"name":"now"}`).wantPlant(t, now)
			}
		}
		s.call(t, "PUT", "/6", `{"name":"x"}`, "If-Match: *").wantError(t, plantstore.ErrPrecondition)
		s.call(t, "PUT", "/6", `{"name":"x"}`, "If-None-Match: *").wantPlant(t, plant(6, "x"))
		s.call(t, "PUT", "/6", `{"name":"x"}`, "If-None-Match: *").wantError(t, plantstore.ErrPrecondition)
		// A condition is a compare-and-set, also for a plant that would stay as it is.
		s.call(t, "PUT", "/6", `{"name":"x"}`, "If-Match: "+was).wantError(t, plantstore.ErrPrecondition)
		for _, bad := range []string{"abc", `"open`, `"a" b`, "W/", `W/"`, "", ",", " , ,"} {
			for _, name := range []string{"If-Match", "If-None-Match"} {
				s.call(t, "GET", "/5", "", name+": "+bad).wantError(t, plantstore.ErrParameter, name)
				s.call(t, "DELETE", "/5", "", name+": "+bad).wantError(t, plantstore.ErrParameter, name)
			}
		}
	})
}

func TestListIsPagedByItsLinks(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		var all, tagged []plantstore.Plant
		for i := range plantstore.ID(23) {
			p := plant(i*i*i-50, fmt.Sprintf("Plant №%d", i))
			if i%3 == 0 {
				p.Tag = plantstore.NewTag("a&b=c ü")
				tagged = append(tagged, p)
			}
			all = append(all, p)
		}
		s.Fill(t, all...)
		s.follow(t, "?limit=5", all, 5)
		s.follow(t, "?limit=23", all, 1)
		s.follow(t, "?limit=1", all, 23)
		s.follow(t, "", all, 1)
		s.follow(t, "?limit=3&tag="+url.QueryEscape("a&b=c ü"), tagged, 3)
		s.follow(t, "?limit=2&q="+url.QueryEscape("pLANT №1")+"&tag="+url.QueryEscape("a&b=c ü"),
			[]plantstore.Plant{tagged[4], tagged[5], tagged[6]}[:2+1], 2)
		backwards := slices.Clone(all)
		slices.Reverse(backwards)
		s.follow(t, "?order=-id&limit=5", backwards, 5)
		s.follow(t, "?order=id&untagged=true&tag=x&limit=10&tag_prefix="+url.QueryEscape("a&b="), all, 3)
		s.follow(t, "?limit=3&tag=x&tag="+url.QueryEscape("a&b=c ü"), tagged, 3)
		s.follow(t, "?limit=3&tag_prefix="+url.QueryEscape("a&b"), tagged, 3)
		s.call(t, "GET", "?order=-id&after=-50", "").wantPlants(t)
		byName := slices.SortedFunc(slices.Values(all), func(a, b plantstore.Plant) int { return strings.Compare(a.Name, b.Name) })
		s.follow(t, "?order=name&limit=5", byName, 5)
		s.call(t, "GET", "?order=name", "", "Accept: application/x-ndjson").wantLines(t, byName...)
		slices.Reverse(byName)
		s.follow(t, "?order=-name&limit=23&count=true", byName, 1)
		s.follow(t, "?order=-name&limit=1&q=1&untagged=true&tag=x", slices.DeleteFunc(slices.Clone(byName), func(p plantstore.Plant) bool {
			return !strings.Contains(p.Name, "1") || p.Tag != (plantstore.Tag{})
		}), 8)
		for query, want := range map[string]string{"": "23", "?limit=1": "23", "?limit=1&after=500": "23", "?tag=x": "0", "?order=-id&limit=1&q=plant&tag_prefix=a": "8"} {
			got := s.call(t, "GET", query+"&count=true", "")
			if query == "" {
				got = s.call(t, "GET", "?count=true", "")
			}
			got.wantHeader(t, "Plantstore-Count", want)
		}
		s.call(t, "GET", "?count=false", "").wantHeader(t, "Plantstore-Count")
		s.call(t, "GET", "?count=true", "", "Accept: text/csv").wantError(t, plantstore.ErrParameter, `"count" cannot be combined with text/csv`)
		s.call(t, "GET", fmt.Sprintf("?after=%d", all[20].ID), "").wantPlants(t, all[21:]...)
		s.call(t, "GET", fmt.Sprintf("?after=%d", int64(math.MaxInt64)), "").wantPlants(t)
		s.call(t, "GET", "?tag=", "").wantPlants(t)
		s.call(t, "GET", "?q=nothing", "").wantPlants(t)
	})
}

// follow reads a list page by page, as its links say.
func (s *service) follow(t *testing.T, query string, want []plantstore.Plant, pages int) {
	t.Helper()
	path := s.plantsPath() + query
	for n := 1; ; n++ {
		got := s.send(t, "GET", path, "", s.withDefaults(nil)...)
		link := got.header.Get("Link")
		var page []json.RawMessage
		if err := json.Unmarshal(got.body, &page); err != nil || len(page) > len(want) {
			t.Fatalf("GET %s: %d %.300s", path, got.status, got.body)
		}
		got.wantPlants(t, want[:len(page)]...)
		want = want[len(page):]
		if link == "" {
			if len(want) > 0 || n != pages {
				t.Fatalf("%s ended after %d pages without %v; want %d pages", query, n, want, pages)
			}
			return
		}
		target, isNext := strings.CutSuffix(link, `>; rel="next"`)
		next, isAbsolute := strings.CutPrefix(target, "<http://"+s.Addr)
		path = next
		if !isNext || !isAbsolute {
			t.Fatalf("the link is %q, want an absolute URL", link)
		}
	}
}

func TestCachesMustRevalidatePlants(t *testing.T) {
	s := startDefault(t)
	s.Fill(t, fern(1))
	const want = "private, no-cache"
	got := s.call(t, "GET", "/1", "")
	got.wantHeader(t, "Cache-Control", want)
	again := s.call(t, "GET", "/1", "", "If-None-Match: "+got.header.Get("ETag"))
	again.wantStatus(t, http.StatusNotModified)
	again.wantHeader(t, "Cache-Control", want)
	s.call(t, "GET", "", "").wantHeader(t, "Cache-Control", want)
	s.call(t, "GET", "", "", "Accept: application/x-ndjson").wantHeader(t, "Cache-Control", want)
}

func TestPlantsAreListedByTheirIDs(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		large := strings.Repeat("x", 1<<20-100)
		var all []plantstore.Plant
		ids := []string{"9223372036854775807", "-9223372036854775808", "7", "7"}
		for id := range plantstore.ID(6) {
			all = append(all, plant(id, large))
			ids = append(ids, id.String())
		}
		all = append(all, plant(7, "small", "a"), plant(math.MaxInt64, "last"))
		s.Fill(t, append(all, plant(8, "other"))...)
		query := "?id=" + strings.Join(ids, ",")
		s.follow(t, query, all, 2)
		s.call(t, "GET", "?id=8", "").wantPlants(t, plant(8, "other"))
		s.call(t, "GET", "?id=9,10", "").wantPlants(t)
		s.call(t, "HEAD", "?id=9,10", "").wantStatus(t, 200)
		got := s.call(t, "GET", query, "", "Accept: application/x-ndjson")
		got.wantLines(t, all...)
		if got.header.Get("Plantstore-Cursor") == "" {
			t.Error("the export has no cursor")
		}
		got = s.call(t, "GET", "?id=7,8,9", "", "Accept: text/csv")
		if want := "id,name,tag\n7,small,a\n8,other,\n"; string(got.body) != want {
			t.Errorf("got %q, want %q", got.body, want)
		}
	})
}

// A thousand of the longest ids fit into a request.
func TestPlantsAreListedByTheirLongestIDs(t *testing.T) {
	s := start(t, servertest.Options{})
	var all []plantstore.Plant
	var ids []string
	for i := range plantstore.ID(1000) {
		all = append(all, plant(math.MinInt64+i, "fern"))
		ids = append(ids, (math.MinInt64 + i).String())
	}
	s.Fill(t, all...)
	s.call(t, "GET", "?id="+url.QueryEscape(strings.Join(ids, ",")), "").wantPlants(t, all...)
}

func TestListIsBounded(t *testing.T) {
	s := startDefault(t)
	var all []plantstore.Plant
	for i := range plantstore.ID(1100) {
		all = append(all, plant(i, "fern"))
	}
	s.Fill(t, all...)
	s.call(t, "GET", "", "").wantPlants(t, all[:50]...)
	for limit, want := range map[string]int{
		"1": 1, "00012": 12, "999": 999, "1000": 1000, "1001": 1000, "9223372036854775807": 1000, "0001000": 1000,
	} {
		s.call(t, "GET", "?limit="+limit, "").wantPlants(t, all[:want]...)
	}
	// The validator's integers end at int64.
	s.list(t, "limit="+strings.Repeat("9", 500), "").wantPlants(t, all[:1000]...)
}

func TestListRefusesUnknownParameters(t *testing.T) {
	s := start(t, servertest.Options{})
	for query, texts := range map[string][]string{
		"limit=0":             {`"limit"`, `"0"`},
		"limit=-1":            {`"limit"`, `"-1"`},
		"limit=x":             {`"limit"`},
		"limit=1.0":           {`"limit"`},
		"limit=":              {`"limit"`},
		"after=x":             {`"after"`},
		"after=":              {`"after"`},
		"after=1e3":           {`"after"`},
		"limt=5":              {`"limt"`, "id, order, limit, after, tag, tag_prefix, untagged, q, count, details"},
		"Limit=5":             {`"Limit"`},
		"order=name+":         {`"order" must be id, -id, name or -name, got "name "`},
		"order=name&after=5":  {`"after" must be what the Link of a page in this order has, got "5"`},
		"order=id&after=5.YQ": {`"after" must be an integer`},
		"order=id&order=id":   {`"order"`, "2 times"},
		"untagged=yes":        {`"untagged" must be true or false, got "yes"`},
		"tag=a&tag=%ff":       {`"tag"`, "UTF-8"},
		"tag_prefix=%ff":      {`"tag_prefix"`, "UTF-8"},
		"tag=%ff":             {`"tag"`, "UTF-8"},
		"q=%zz":               {"query"},
		"q=+":                 {`"q" has nothing to search for`},
		"q=%CC%81":            {`"q" has nothing to search for`}, // a combining acute accent
		"a=1&limit=x&z=1":     {`"a"`, `"limit"`, `"z"`},
		"limit=5;after=1":     {"query"},
		"after=1&after=1":     {`"after"`},
		"cursor=abc&limit=5":  {`"cursor"`},
		"id=":                 {`"id" must be an integer`},
		"id=1,":               {`"id" must be an integer`},
		"id=1,+2":             {`"id" must be an integer`, `" 2"`},
		"id=1&id=2":           {`"id"`, "2 times"},
		"id=1&limit=5":        {`"id" selects plants by itself`},
		"id=1&after=0":        {`"id" selects plants by itself`},
		"id=1&tag=a":          {`"id" selects plants by itself`},
		"id=1&q=a":            {`"id" selects plants by itself`},
		"id=1&order=-id":      {`"id" selects plants by itself`},
		"id=1&untagged=true":  {`"id" selects plants by itself`},

		"tag=a" + strings.Repeat("&tag=a", 32):    {`"tag" must be given at most 32 times, got 33`},
		"tag_prefix=" + strings.Repeat("a", 4097): {`"tag_prefix" must have at most 4096 bytes, got 4097`},

		"id=1" + strings.Repeat(",1", 1000): {`"id" must have at most 1000 ids, got 1001`},

		"q=a" + strings.Repeat("+a", 32): {`"q"`, "at most 32 words, got 33"},
	} {
		s.call(t, "GET", "?"+query, "").wantError(t, plantstore.ErrParameter, texts...)
	}
}

func TestLongValueIsShortened(t *testing.T) {
	s := start(t, servertest.Options{})
	long := strings.Repeat("x", 100)
	for _, path := range []string{"/plants", "/tags", "/events", "/events/histogram"} {
		for query, want := range map[string]string{
			long + "=1":               `unknown parameter "%s…"; allowed: `,
			long + "=1&" + long + "=": `"%s…" is given 2 times`,
			long + "=%ff":             `"%s…" is not UTF-8`,
		} {
			s.send(t, "GET", path+"?"+query, "", "Authorization: Bearer "+s.Token).
				wantError(t, plantstore.ErrParameter, fmt.Sprintf(want, long[:40]))
		}
	}
	for _, url := range []string{"/plants/" + long, "/plants?after=" + long, "/events?id=" + long} {
		s.send(t, "GET", url, "", "Authorization: Bearer "+s.Token).
			wantError(t, plantstore.ErrParameter, `to 9223372036854775807, got "`+long[:40]+`…"`)
	}
	for name, code := range map[string]plantstore.Code{
		"If-Match": plantstore.ErrParameter, "If-None-Match": plantstore.ErrParameter,
		"Content-Type": plantstore.ErrMediaType, "Content-Encoding": plantstore.ErrMediaType,
	} {
		s.call(t, "PUT", "/1", `{"name":"Fern"}`, name+": "+long).wantError(t, code, `"`+long[:40]+`…"`)
	}
	s.send(t, "POST", "/tokens", `{"name":"a","scopes":["`+long+`"]}`, "Authorization: Bearer "+s.Token, "Content-Type: application/json").
		wantError(t, plantstore.ErrParameter, `unknown scope "`+long[:40]+`…"`)
}

func TestExportHasOneLinePerPlant(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		const accept = "Accept: application/x-ndjson"
		if got := s.call(t, "GET", "", "", accept); got.status != 200 || len(got.body) > 0 {
			t.Fatalf("an empty store: %d %q", got.status, got.body)
		}
		s.Fill(t, plant(2, "b\n", "x"), plant(-1, "a", ""), plant(3, "c\x00"))
		got := s.call(t, "GET", "", "", accept)
		got.wantHeader(t, "Content-Type", "application/x-ndjson")
		got.wantHeader(t, "Vary", "Accept-Encoding", "Accept")
		want := `{"id":-1,"name":"a","tag":""}` + "\n" + `{"id":2,"name":"b\n","tag":"x"}` + "\n" + `{"id":3,"name":"c\u0000"}` + "\n"
		if string(got.body) != want {
			t.Errorf("exported %q, want %q", got.body, want)
		}
		if got := s.call(t, "GET", "?after=-1&tag=x", "", accept); strings.Count(string(got.body), "\n") != 1 {
			t.Errorf("filters do not apply: %q", got.body)
		}
		s.call(t, "GET", "?limit=5", "", accept).wantError(t, plantstore.ErrParameter, "limit")
		for value, lines := range map[string]bool{
			"application/json": false,
			"*/*":              false,
			"application/json, application/x-ndjson;q=0.5":   false,
			"application/x-ndjson;q=0":                       false,
			"application/json;q=0.5, application/x-ndjson":   true,
			"text/html, APPLICATION/X-NDJSON; charset=utf-8": true,

			"application/*":                                           false,
			"*/*, application/x-ndjson;q=0.1":                         false,
			"application/x-ndjson;q=0.1, */*;q=0.9":                   false,
			"application/x-ndjson;q=0.5, application/*;q=0.6":         false,
			"text/html, application/x-ndjson;q=0.5":                   true,
			"application/x-ndjson, */*;q=0.1":                         true,
			"application/x-ndjson, */*":                               true,
			"*/*, application/json;q=0.1, application/x-ndjson;q=0.5": true,
			"application/*;q=0.1, */*, application/x-ndjson;q=0.5":    true,
		} {
			if got := s.call(t, "GET", "", "", "Accept: "+value).header.Get("Content-Type") == wire.MediaNDJSON; got != lines {
				t.Errorf("Accept: %s gives lines: %t, want %t", value, got, lines)
			}
		}
	})
}

// Over HTTP/1.0 an aborted response looks like a complete one.
func TestExportNeedsHTTP11(t *testing.T) {
	s := start(t, servertest.Options{})
	c := s.dial(t)
	c.send(t, "GET /plants HTTP/1.0\r\nAccept: application/x-ndjson\r\nAuthorization: Bearer "+s.Token+"\r\n\r\n")
	c.reply(t).wantError(t, plantstore.ErrParameter, "HTTP/1.1")
}

const ndjson = "Content-Type: application/x-ndjson"

func TestLineThatFailsDoesNotStopTheImport(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		s.Fill(t, plant(1, "there"))
		body := strings.Join([]string{
			`{"id":3,"name":"c"}`,
			``,
			`{"id":1,"name":"there"}`,
			`{"id":1,"name":"other"}`,
			"  \t\r",
			`{"id":2,"name":"b","tag":"x"}` + "\r",
			`{"id":2,"name":"b"}`,
			`[1]`,
			`{"id":9223372036854775808,"name":"far"}`,
			`{"name":5}`,
			`{"id":4,"na`,
			`{"id":-5,"name":"last"}`,
		}, "\n")
		want := []string{"4:40010", "7:40010", "8:40002", "9:40005", "10:40004", "11:40001"}
		s.call(t, "POST", "/import", body, ndjson).wantReport(t, 3, 1, 6, want...)
		s.wantStored(t, plant(-5, "last"), plant(1, "there"), plant(2, "b", "x"), plant(3, "c"))
		s.call(t, "POST", "/import", body, ndjson).wantReport(t, 0, 4, 6, want...)
		s.call(t, "POST", "/import", "", ndjson).wantReport(t, 0, 0, 0)
		s.call(t, "POST", "/import", `{"id":1,"name":"there"}`).wantError(t, plantstore.ErrNotObject, "application/x-ndjson")
		s.call(t, "POST", "/import", "1,there", "Content-Type: text/plain").wantError(t, plantstore.ErrMediaType, "application/x-ndjson", "application/json", "text/csv")
	})
}

func TestFirstLineWithAnIDWins(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		body := "{\"id\":9,\"name\":\"first\"}\n{\"id\":1,\"name\":\"x\"}\n{\"id\":9,\"name\":\"second\"}\n"
		s.call(t, "POST", "/import", body, ndjson).wantReport(t, 2, 0, 1, "3:40010")
		s.wantStored(t, plant(1, "x"), plant(9, "first"))
	})
}

func TestImportSkipsALineThatIsTooLong(t *testing.T) {
	s := start(t, servertest.Options{MaxBody: 1000})
	fits := fmt.Sprintf(`{"id":2,"name":%q}`, strings.Repeat("x", 1000-len(`{"id":2,"name":""}`)))
	long := strings.Replace(fits, "x", "xx", 1)
	huge := `{"id":4,"name":"` + strings.Repeat("y", 1<<20)
	body := "{\"id\":1,\"name\":\"a\"}\n" + fits + "\n" + long + "\n" + huge + "\n{\"id\":5,\"name\":\"b\"}\n" + huge
	s.call(t, "POST", "/import", body, ndjson).wantReport(t, 3, 0, 3, "3:41301", "4:41301", "6:41301")
}

func TestImportReportsTheFirstHundredErrors(t *testing.T) {
	s := startDefault(t)
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprintf("%d:40003", i+1))
	}
	s.call(t, "POST", "/import", strings.Repeat("{\"id\":1}\n", 250), ndjson).wantReport(t, 0, 0, 250, want...)
}

// All ids are taken. The lines are not written in their order.
func TestImportReportsTheFirstLinesThatAreRefused(t *testing.T) {
	s := startDefault(t)
	var plants []plantstore.Plant
	var body strings.Builder
	const n = 1000
	for i := range n {
		plants = append(plants, plant(plantstore.ID(i), "there"))
		fmt.Fprintf(&body, "{\"id\":%d,\"name\":\"other\"}\n", n-1-i)
	}
	s.Fill(t, plants...)
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprintf("%d:40010", i+1))
	}
	s.call(t, "POST", "/import", body.String(), ndjson).wantReport(t, 0, 0, n, want...)
}

// The ids are not in order, and one is in two windows.
func TestImportOfSeveralWindows(t *testing.T) {
	s := startDefault(t)
	var body strings.Builder
	const n = server.WindowLines + 1000
	for i := range n {
		fmt.Fprintf(&body, "{\"id\":%d,\"name\":\"%d\"}\n", (i*7919)%n, (i*7919)%n)
	}
	body.WriteString("{\"id\":0,\"name\":\"other\"}\n")
	s.call(t, "POST", "/import", body.String(), ndjson).wantReport(t, n, 0, 1, fmt.Sprintf("%d:40010", n+1))
	stored := s.Plants(t)
	if len(stored) != n {
		t.Errorf("%d plants, want %d", len(stored), n)
	}
	for i, p := range stored {
		if p != plant(plantstore.ID(i), strconv.Itoa(i)) {
			t.Fatalf("plant %d is %v", i, p)
		}
	}
}

// The connection breaks within a line. The lines before may be stored, but not half a
// line, and importing all of them again succeeds.
func TestInterruptedImportCanBeRepeated(t *testing.T) {
	s := start(t, servertest.Options{})
	c := s.dial(t)
	c.send(t, "POST /plants/import HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.Token+"\r\n"+ndjson+"\r\nContent-Length: 1000\r\n\r\n"+
		"{\"id\":1,\"name\":\"a\"}\n{\"id\":2,\"name\":\"half\"}")
	c.closeWrite(t)
	c.reply(t).wantError(t, plantstore.ErrNotJSON, "could not be read")
	for _, p := range s.Plants(t) {
		if p != plant(1, "a") {
			t.Errorf("the store has %v", p)
		}
	}
	s.call(t, "POST", "/import", "{\"id\":1,\"name\":\"a\"}\n{\"id\":2,\"name\":\"half and more\"}\n", ndjson)
	s.wantStored(t, plant(1, "a"), plant(2, "half and more"))
}

// An import may take longer than a request may, as long as enough lines keep coming.
func TestSlowImportIsNotCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := servertest.NewPipes()
		s := start(t, servertest.Options{ReadTimeout: time.Second, Store: storetest.NewModel(), Listener: network})
		s.http.Transport.(*http.Transport).DialContext = network.Dial
		in, out := io.Pipe()
		var client sync.WaitGroup
		defer client.Wait()
		defer in.Close()
		client.Go(func() {
			for i := range 10 {
				fmt.Fprintf(out, "{\"id\":%d,\"name\":\"%0500d\"}\n", i, 0)
				time.Sleep(150 * time.Millisecond) // the client is slow
			}
			out.Close()
		})
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+s.Addr+"/plants/import", in)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {"Bearer " + s.Token}, "Content-Type": {wire.MediaNDJSON}}
		start := time.Now()
		response, err := s.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		s.receive(t, r, []byte("{}"), response).wantReport(t, 10, 0, 0)
		if took := time.Since(start); took <= time.Second {
			t.Errorf("the import took only %v", took)
		}
	})
}

func TestEveryOperationNeedsItsScope(t *testing.T) {
	s := startDefault(t)
	s.Fill(t, plant(1, "a"))
	scopes := map[plantstore.Scope]string{}
	for _, scope := range plantstore.AllScopes() {
		scopes[scope] = s.NewToken(scope)
	}
	for _, r := range server.Routes() {
		if r.Open || strings.HasPrefix(r.Path, "/debug/") {
			continue
		}
		path := strings.NewReplacer("{base}", "", "{id}", "1").Replace(r.Path)
		s.send(t, r.Method, path, "").wantError(t, plantstore.ErrNoToken)
		for scope, secret := range scopes {
			got := s.send(t, r.Method, path, `{"id":1,"name":"a"}`, "Authorization: Bearer "+secret, "Content-Type: application/json")
			allowed := len(r.Scopes) == 0 || slices.Equal(r.Scopes, []plantstore.Scope{scope})
			if refused := got.status == 403; refused == allowed {
				t.Errorf("%s with the scope %s: got %d %s", r.Name, scope, got.status, got.body)
			}
			if len(r.Scopes) == 2 {
				got.wantError(t, plantstore.ErrScope, "needs the scopes "+string(r.Scopes[0])+" and "+string(r.Scopes[1])+", but the token has only "+string(scope))
			}
		}
		if len(r.Scopes) == 2 {
			got := s.send(t, r.Method, path, `{"id":1,"name":"a"}`, "Authorization: Bearer "+s.NewToken(r.Scopes...), "Content-Type: application/json")
			if got.status == 403 {
				t.Errorf("%s with both scopes: got %s", r.Name, got.body)
			}
		}
	}
}
