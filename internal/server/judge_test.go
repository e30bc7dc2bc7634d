package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"plantstore"
)

func init() {
	// The judge takes lines for a text. What they hold is for tests to say.
	openapi3filter.RegisterBodyDecoder("application/x-ndjson", openapi3filter.PlainBodyDecoder)
}

// judge holds exchanges against openapi.yaml. It knows nothing of this server:
// the judgement is kin-openapi's.
//
// Its JSON is encoding/json's, and its numbers are float64. So it takes some
// bodies for valid that are not (duplicate names, 9007199254740993.5), and what
// it takes for valid may be refused. The differential test is exact there.
type judge struct {
	base    string
	doc     *openapi3.T
	router  routers.Router
	options *openapi3filter.Options
}

func newJudge(t testing.TB, base *url.URL) *judge {
	t.Helper()
	j, err := commonJudge()
	if err != nil {
		t.Fatal(err)
	}
	j.base = strings.TrimRight(base.Path, "/")
	return &j
}

// commonJudge reads the contract once for all tests.
var commonJudge = sync.OnceValues(func() (judge, error) {
	doc, err := openapi3.NewLoader().LoadFromData(plantstore.OpenAPI)
	if err != nil {
		return judge{}, err
	}
	doc.Servers = nil // the judge finds its way by base
	router, err := legacy.NewRouter(doc)
	return judge{doc: doc, router: router, options: &openapi3filter.Options{
		IncludeResponseStatus: true,
		SkipSettingDefaults:   true,
		AuthenticationFunc:    openapi3filter.AuthenticationFunc(hasBearer),
	}}, err
})

func loadContract(t *testing.T, text []byte) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// hasBearer is the contract's security: what the token is worth is not its matter.
func hasBearer(_ context.Context, in *openapi3filter.AuthenticationInput) error {
	scheme, token, _ := strings.Cut(in.RequestValidationInput.Request.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, in.SecurityScheme.Scheme) || token == "" {
		return errors.New("the request carries no bearer token")
	}
	return nil
}

// exchange is a request with the body that was sent, and the answer.
type exchange struct {
	request *http.Request
	sent    []byte
	reply   reply
}

// check returns what the contract has against the exchange, or nil.
func (j *judge) check(ex exchange) error {
	if len(ex.reply.header.Values("X-Request-Id")) != 1 {
		return errors.New("the answer has no X-Request-Id")
	}
	if ex.request.Method == http.MethodHead && len(ex.reply.body) > 0 {
		return errors.New("the answer to HEAD has a body")
	}
	if ex.request.Method != http.MethodHead && ex.reply.status >= 400 {
		if err := j.checkError(ex.reply); err != nil {
			return err
		}
	}
	input, err := j.input(ex)
	if err != nil {
		return j.checkOutside(ex, err)
	}
	if ex.reply.status < 300 {
		if err := openapi3filter.ValidateRequest(ex.request.Context(), input); err != nil {
			return fmt.Errorf("a request that the contract refuses was accepted: %w", err)
		}
	}
	err = openapi3filter.ValidateResponse(ex.request.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input,
		Status:                 ex.reply.status,
		Header:                 ex.reply.header,
		Body:                   io.NopCloser(bytes.NewReader(ex.reply.body)),
		Options:                j.options,
	})
	if err != nil {
		return fmt.Errorf("the answer is not the contract's: %w", err)
	}
	return nil
}

// input finds the operation of the request.
func (j *judge) input(ex exchange) (*openapi3filter.RequestValidationInput, error) {
	path, mounted := strings.CutPrefix(ex.request.URL.Path, j.base)
	if !mounted {
		return nil, routers.ErrPathNotFound
	}
	r := ex.request.Clone(ex.request.Context())
	r.URL = &url.URL{Path: path, RawQuery: ex.request.URL.RawQuery}
	r.Body, r.GetBody = io.NopCloser(bytes.NewReader(ex.sent)), nil
	if r.Method == http.MethodHead {
		r.Method = http.MethodGet // what it answers to GET, without the body
	}
	route, params, err := j.router.FindRoute(r)
	if err != nil {
		return nil, err
	}
	// The router takes /plants for /plants/{id} without an id.
	if slices.Contains(slices.Collect(maps.Values(params)), "") || strings.Count(path, "/") != strings.Count(route.Path, "/") {
		return nil, routers.ErrPathNotFound
	}
	r.Method = ex.request.Method
	return &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: j.options}, nil
}

// checkOutside judges what is no operation: what stands beside the API and the
// question of a browser may be answered as they like, all else is refused.
func (j *judge) checkOutside(ex exchange, why error) error {
	if ex.reply.status >= 400 || isPreflight(ex.request) {
		return nil
	}
	for _, rt := range routes {
		path := strings.TrimSuffix(rt.path, "{$}")
		tree := strings.HasSuffix(rt.path, "/") && strings.HasPrefix(ex.request.URL.Path, path)
		if !strings.HasPrefix(path, "{base}") && (ex.request.URL.Path == path || tree) {
			return nil
		}
	}
	return fmt.Errorf("what is no operation was answered %d: %w", ex.reply.status, why)
}

// checkError refuses an error that is no Error, wherever it comes from.
func (j *judge) checkError(r reply) error {
	if media := r.header.Values("Content-Type"); len(media) != 1 || media[0] != "application/json" {
		return fmt.Errorf("an error is application/json, this one is %q", media)
	}
	var value any
	if err := json.Unmarshal(r.body, &value); err != nil {
		return fmt.Errorf("an error is JSON: %w", err)
	}
	schema := j.doc.Components.Schemas["Error"].Value
	if err := schema.VisitJSON(value, openapi3.EnableJSONSchema2020()); err != nil {
		return fmt.Errorf("an error is an Error: %w", err)
	}
	members := value.(map[string]any)
	if code := members["error"].(float64); int(code)/100 != r.status {
		return fmt.Errorf("the status is %d and the error %v", r.status, code)
	}
	if len(members) != 2 || members["message"] == "" {
		return fmt.Errorf("an Error has a number, a message and nothing else, this one is %v", members)
	}
	return nil
}

// A judge that lets everything pass would make all other tests worth less.
func TestJudgeRefusesWhatTheContractRefuses(t *testing.T) {
	const plant, failure = `{"name":"Fern"}`, `{"error":40001,"message":"no"}`
	good := exchangeOf("POST", "/v1/plants", `{"id":1,"name":"Fern"}`, 200, plant)
	tests := []struct {
		flaw string
		edit func(ex *exchange)
	}{
		{"201 instead of 200", func(ex *exchange) { ex.reply.status = 201 }},
		{"204 without a body", func(ex *exchange) { ex.reply.status, ex.reply.body = 204, nil }},
		{"an undocumented status", func(ex *exchange) {
			ex.reply.status, ex.reply.body = 409, []byte(`{"error":40901,"message":"no"}`)
		}},
		{"a redirect", func(ex *exchange) { ex.reply.status = 302 }},
		{"a Plant without name", func(ex *exchange) { ex.reply.body = []byte(`{"tag":"fern"}`) }},
		{"a Plant whose tag is null", func(ex *exchange) { ex.reply.body = []byte(`{"name":"Fern","tag":null}`) }},
		{"a Plant that is no JSON", func(ex *exchange) { ex.reply.body = []byte(`{"name":"Fern"`) }},
		{"a Plant that is text", func(ex *exchange) { ex.reply.header.Set("Content-Type", "text/plain") }},
		{"an Error without message", refusal(400, `{"error":40001}`)},
		{"an Error without number", refusal(400, `{"message":"no"}`)},
		{"an Error with an empty message", refusal(400, `{"error":40001,"message":""}`)},
		{"an Error whose number is text", refusal(400, `{"error":"40001","message":"no"}`)},
		{"an Error beyond int32", refusal(400, `{"error":4000100000000,"message":"no"}`)},
		{"an Error of another status", refusal(400, `{"error":41501,"message":"no"}`)},
		{"an Error with more than it has", refusal(400, `{"error":40001,"message":"no","stack":"main.go"}`)},
		{"an error that is text", func(ex *exchange) {
			refusal(400, failure)(ex)
			ex.reply.header.Set("Content-Type", "text/plain")
		}},
		{"no request id", func(ex *exchange) { ex.reply.header.Del("X-Request-Id") }},
		{"a body without id was accepted", func(ex *exchange) { ex.sent = []byte(plant) }},
		{"a body without name was accepted", func(ex *exchange) { ex.sent = []byte(`{"id":1}`) }},
		{"an id that is text was accepted", func(ex *exchange) { ex.sent = []byte(`{"id":"1","name":"Fern"}`) }},
		{"an id beyond int64 was accepted", func(ex *exchange) { ex.sent = []byte(`{"id":1e19,"name":"Fern"}`) }},
		{"a fraction was accepted", func(ex *exchange) { ex.sent = []byte(`{"id":1.5,"name":"Fern"}`) }},
		{"a tag that is null was accepted", func(ex *exchange) { ex.sent = []byte(`{"id":1,"name":"Fern","tag":null}`) }},
		{"an array was accepted", func(ex *exchange) { ex.sent = []byte(`[]`) }},
		{"no body was accepted", func(ex *exchange) { ex.sent = nil }},
		{"another media type was accepted", func(ex *exchange) { ex.request.Header.Set("Content-Type", "text/plain") }},
		{"no token was accepted", func(ex *exchange) { ex.request.Header.Del("Authorization") }},
		{"another scheme was accepted", func(ex *exchange) { ex.request.Header.Set("Authorization", "Basic cGxhbnQ=") }},
		{"a path that is none was answered", func(ex *exchange) { ex.request.URL.Path = "/v1/animals" }},
		{"a path outside the base URL was answered", func(ex *exchange) { ex.request.URL.Path = "/plants" }},
		{"a method that is none was answered", func(ex *exchange) { ex.request.Method = "PATCH" }},
		{"HEAD was answered with a body", func(ex *exchange) { ex.request.Method = "HEAD" }},
	}
	j := newJudge(t, &url.URL{Path: "/v1"})
	for _, ex := range []exchange{good(), exchangeOf("POST", "/v1/plants", `[]`, 400, failure)()} {
		if err := j.check(ex); err != nil {
			t.Fatalf("the judge refuses %d %s: %v", ex.reply.status, ex.reply.body, err)
		}
	}
	for _, tt := range tests {
		ex := good()
		tt.edit(&ex)
		if j.check(ex) == nil {
			t.Errorf("%s: the judge has nothing against it", tt.flaw)
		}
	}
}

// exchangeOf returns a maker of exchanges that the contract allows but for what
// is said here.
func exchangeOf(method, path, sent string, status int, body string) func() exchange {
	return func() exchange {
		return exchange{
			request: &http.Request{
				Method: method, URL: &url.URL{Path: path},
				Header: http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer token"}},
			},
			sent: []byte(sent),
			reply: reply{
				status: status, body: []byte(body),
				header: http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"1"}},
			},
		}
	}
}

func refusal(status int, body string) func(*exchange) {
	return func(ex *exchange) { ex.reply.status, ex.reply.body = status, []byte(body) }
}
