package webhook

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"plantstore"
)

// What is sent is what openapi.yaml says under webhooks: each type with its body and its
// header.
func TestMessagesMatchOpenAPI(t *testing.T) {
	s := run(t, newStore(t))
	e := newEndpoint(t, nil)
	w := s.create(e)
	s.write(plantstore.Create, plantstore.Plant{ID: 1, Name: "Fern", Tag: plantstore.NewTag("shade")})
	s.write(plantstore.Replace, plantstore.Plant{ID: 1, Name: "Moss"})
	s.write(plantstore.Delete, fern(1))
	e.awaitMessages(3)
	if a, err := s.Test(t.Context(), w.ID); err != nil || a.Status != 200 {
		t.Fatalf("got %+v, %v", a, err)
	}
	sent := make(map[string]message)
	for _, m := range e.messages() {
		sent[string(m.Type)] = m
	}

	var doc struct {
		Webhooks map[string]struct {
			Post struct {
				Parameters []struct {
					Ref string `yaml:"$ref"`
				}
			}
		}
	}
	var untyped any
	for _, into := range []any{&doc, &untyped} {
		if err := yaml.Unmarshal(plantstore.OpenAPI, into); err != nil {
			t.Fatal(err)
		}
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource("contract:openapi", untyped); err != nil {
		t.Fatal(err)
	}
	validate := func(what, at string, value any) {
		t.Helper()
		schema, err := compiler.Compile("contract:openapi" + at)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v: %v", what, value, err)
		}
	}
	if len(doc.Webhooks) != len(sent) {
		t.Errorf("openapi.yaml has %d types of messages, %d were sent", len(doc.Webhooks), len(sent))
	}
	for name, m := range sent {
		body, err := jsonschema.UnmarshalJSON(bytes.NewReader(m.Body))
		if err != nil {
			t.Fatal(err)
		}
		validate(name, "#/webhooks/"+name+"/post/requestBody/content/application~1json/schema", body)
		parameters := doc.Webhooks[name].Post.Parameters
		if len(parameters) != 3 {
			t.Errorf("%s has %d parameters", name, len(parameters))
		}
		for _, p := range parameters {
			header := "webhook-" + strings.ToLower(strings.TrimPrefix(p.Ref, "#/components/parameters/Message"))
			if m.Header.Get(header) == "" {
				t.Errorf("%s: there is no %s", name, header)
			}
			value := any(m.Header.Get(header))
			if header == "webhook-timestamp" {
				value = json.Number(m.Header.Get(header))
			}
			validate(name+" "+header, p.Ref+"/schema", value)
		}
	}
}
