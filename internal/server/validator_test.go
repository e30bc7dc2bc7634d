package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
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
	"plantstore/internal/server"
)

func init() {
	// The validator takes NDJSON and CSV for plain text. Tests check the lines.
	openapi3filter.RegisterBodyDecoder("application/x-ndjson", openapi3filter.PlainBodyDecoder)
	openapi3filter.RegisterBodyDecoder("text/csv", openapi3filter.PlainBodyDecoder)
}

// validator validates exchanges against openapi.yaml with kin-openapi.
//
// It decodes with encoding/json and into float64, so it accepts some bodies that are
// not valid (duplicate names, 9007199254740993.5). The tests of package wire are exact
// about these.
type validator struct {
	base    string
	router  routers.Router
	options *openapi3filter.Options
}

func newValidator(t testing.TB, base *url.URL) *validator {
	t.Helper()
	v, err := sharedValidator()
	if err != nil {
		t.Fatal(err)
	}
	v.base = strings.TrimRight(base.Path, "/")
	return &v
}

// sharedValidator reads the contract once for all tests.
var sharedValidator = sync.OnceValues(func() (validator, error) {
	doc, err := openapi3.NewLoader().LoadFromData(plantstore.OpenAPI)
	if err != nil {
		return validator{}, err
	}
	doc.Servers = nil // paths are relative to base
	router, err := legacy.NewRouter(doc)
	return validator{router: router, options: &openapi3filter.Options{
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

// hasBearer is the security scheme of the contract, which does not say what tokens
// there are.
func hasBearer(_ context.Context, in *openapi3filter.AuthenticationInput) error {
	scheme, token, _ := strings.Cut(in.RequestValidationInput.Request.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, in.SecurityScheme.Scheme) || token == "" {
		return errors.New("the request carries no bearer token")
	}
	return nil
}

// exchange is a request, its body, and the response.
type exchange struct {
	request *http.Request
	sent    []byte
	reply   reply
}

// check returns how the exchange violates the contract, or nil.
func (v *validator) check(ex exchange) error {
	if len(ex.reply.header.Values("X-Request-Id")) != 1 {
		return errors.New("the response has no X-Request-Id")
	}
	if ex.request.Method == http.MethodHead && len(ex.reply.body) > 0 {
		return errors.New("the response to HEAD has a body")
	}
	if ex.request.Method != http.MethodHead && ex.reply.status >= 400 {
		if err := v.checkError(ex.reply); err != nil {
			return err
		}
	}
	input, err := v.input(ex)
	if err != nil {
		return v.checkOutside(ex, err)
	}
	if ex.reply.status < 300 {
		if err := openapi3filter.ValidateRequest(ex.request.Context(), input); err != nil {
			return fmt.Errorf("a request that the contract refuses was accepted: %w", err)
		}
	}
	const large = 1 << 20 // takes seconds to validate, and has nothing that others do not have
	if len(ex.reply.body) > large && ex.reply.status < 300 {
		return nil
	}
	options := *v.options
	options.ExcludeResponseBody = ex.reply.status >= 400 // checkError was stricter
	err = openapi3filter.ValidateResponse(ex.request.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input,
		Status:                 ex.reply.status,
		Header:                 ex.reply.header,
		Body:                   io.NopCloser(bytes.NewReader(ex.reply.body)),
		Options:                &options,
	})
	if err != nil {
		return fmt.Errorf("the response violates the contract: %w", err)
	}
	return nil
}

// input finds the operation of the request.
func (v *validator) input(ex exchange) (*openapi3filter.RequestValidationInput, error) {
	path, mounted := strings.CutPrefix(ex.request.URL.Path, v.base)
	if !mounted {
		return nil, routers.ErrPathNotFound
	}
	r := ex.request.Clone(ex.request.Context())
	r.URL = &url.URL{Path: path, RawQuery: ex.request.URL.RawQuery}
	r.Body, r.GetBody = io.NopCloser(bytes.NewReader(ex.sent)), nil
	if r.Method == http.MethodHead {
		r.Method = http.MethodGet // HEAD has the responses of GET
	}
	route, params, err := v.router.FindRoute(r)
	if err != nil {
		return nil, err
	}
	// The router takes /plants for /plants/{id} without an id.
	if slices.Contains(slices.Collect(maps.Values(params)), "") || strings.Count(path, "/") != strings.Count(route.Path, "/") {
		return nil, routers.ErrPathNotFound
	}
	r.Method = ex.request.Method
	return &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: v.options}, nil
}

// checkOutside checks a request that is not an operation of the contract. Only routes
// outside the API and preflight requests may succeed.
func (v *validator) checkOutside(ex exchange, why error) error {
	isPreflight := ex.request.Method == http.MethodOptions && ex.request.Header.Get("Access-Control-Request-Method") != ""
	if ex.reply.status >= 400 || isPreflight {
		return nil
	}
	for _, rt := range server.Routes() {
		path := strings.TrimSuffix(rt.Path, "{$}")
		tree := strings.HasSuffix(rt.Path, "/") && strings.HasPrefix(ex.request.URL.Path, path)
		if !strings.HasPrefix(path, "{base}") && (ex.request.URL.Path == path || tree) {
			return nil
		}
	}
	return fmt.Errorf("a request that is not an operation got %d: %w", ex.reply.status, why)
}

// checkError returns why a response is not an Error, or nil.
func (v *validator) checkError(r reply) error {
	if media := r.header.Values("Content-Type"); len(media) != 1 || media[0] != "application/json" {
		return fmt.Errorf("an error must be application/json, got %q", media)
	}
	var members map[string]any
	if err := json.Unmarshal(r.body, &members); err != nil {
		return fmt.Errorf("an error must be a JSON object: %w", err)
	}
	if code, ok := members["error"].(float64); !ok || code != math.Trunc(code) || int(code)/100 != r.status {
		return fmt.Errorf("the status is %d and the error %v", r.status, members["error"])
	}
	if message, ok := members["message"].(string); !ok || len(members) != 2 || message == "" {
		return fmt.Errorf("an Error has a code, a message and nothing else, got %v", members)
	}
	return nil
}

// A validator that accepted everything would make all other tests meaningless.
func TestValidatorNoticesEveryViolation(t *testing.T) {
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
		{"a Plant that is not JSON", func(ex *exchange) { ex.reply.body = []byte(`{"name":"Fern"`) }},
		{"a Plant that is text", func(ex *exchange) { ex.reply.header.Set("Content-Type", "text/plain") }},
		{"an Error without a message", refusal(400, `{"error":40001}`)},
		{"an Error without a code", refusal(400, `{"message":"no"}`)},
		{"an Error with an empty message", refusal(400, `{"error":40001,"message":""}`)},
		{"an Error whose code is a string", refusal(400, `{"error":"40001","message":"no"}`)},
		{"an Error beyond int32", refusal(400, `{"error":4000100000000,"message":"no"}`)},
		{"an Error with the code of another status", refusal(400, `{"error":41501,"message":"no"}`)},
		{"an Error with another member", refusal(400, `{"error":40001,"message":"no","stack":"main.go"}`)},
		{"an error that is text", func(ex *exchange) {
			refusal(400, failure)(ex)
			ex.reply.header.Set("Content-Type", "text/plain")
		}},
		{"no request id", func(ex *exchange) { ex.reply.header.Del("X-Request-Id") }},
		{"a body without id was accepted", func(ex *exchange) { ex.sent = []byte(plant) }},
		{"a body without name was accepted", func(ex *exchange) { ex.sent = []byte(`{"id":1}`) }},
		{"an id that is a string was accepted", func(ex *exchange) { ex.sent = []byte(`{"id":"1","name":"Fern"}`) }},
		{"an id beyond int64 was accepted", func(ex *exchange) { ex.sent = []byte(`{"id":1e19,"name":"Fern"}`) }},
		{"a fraction was accepted", func(ex *exchange) { ex.sent = []byte(`{"id":1.5,"name":"Fern"}`) }},
		{"a tag that is null was accepted", func(ex *exchange) { ex.sent = []byte(`{"id":1,"name":"Fern","tag":null}`) }},
		{"an array was accepted", func(ex *exchange) { ex.sent = []byte(`[]`) }},
		{"no body was accepted", func(ex *exchange) { ex.sent = nil }},
		{"another media type was accepted", func(ex *exchange) { ex.request.Header.Set("Content-Type", "text/plain") }},
		{"no token was accepted", func(ex *exchange) { ex.request.Header.Del("Authorization") }},
		{"another scheme was accepted", func(ex *exchange) { ex.request.Header.Set("Authorization", "Basic cGxhbnQ=") }},
		{"an unknown path succeeded", func(ex *exchange) { ex.request.URL.Path = "/v1/animals" }},
		{"a path outside the base URL succeeded", func(ex *exchange) { ex.request.URL.Path = "/plants" }},
		{"an unknown method succeeded", func(ex *exchange) { ex.request.Method = "PUT" }},
		{"HEAD got a body", func(ex *exchange) { ex.request.Method = "HEAD" }},
	}
	v := newValidator(t, &url.URL{Path: "/v1"})
	for _, ex := range []exchange{good(), exchangeOf("POST", "/v1/plants", `[]`, 400, failure)()} {
		if err := v.check(ex); err != nil {
			t.Fatalf("the validator refuses %d %s: %v", ex.reply.status, ex.reply.body, err)
		}
	}
	for _, tt := range tests {
		ex := good()
		tt.edit(&ex)
		if v.check(ex) == nil {
			t.Errorf("%s: the validator does not notice", tt.flaw)
		}
	}
}

// exchangeOf returns a function that makes an exchange.
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
