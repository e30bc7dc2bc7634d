package plantstore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"plantstore"
)

var update = flag.Bool("update", false, "rewrite the generated files")

func TestInterfaceVersionIsThatOfTheDocument(t *testing.T) {
	if !strings.Contains(string(plantstore.OpenAPI), "\n  version: "+plantstore.InterfaceVersion+"\n") {
		t.Errorf("openapi.yaml does not have the version %s", plantstore.InterfaceVersion)
	}
}

func TestOpenAPIJSONIsCurrent(t *testing.T) {
	var root yaml.Node
	if err := yaml.Unmarshal(plantstore.OpenAPI, &root); err != nil {
		t.Fatal(err)
	}
	addSamples(t, root.Content[0])
	var want bytes.Buffer
	if err := encodeNode(jsontext.NewEncoder(&want, jsontext.WithIndent("  ")), root.Content[0]); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("openapi.json", want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(plantstore.OpenAPIJSON, want.Bytes()) {
		t.Error("openapi.json does not match openapi.yaml and docs/clients.md: run go test -run TestOpenAPIJSONIsCurrent -update .")
	}
}

// TestEveryRequestHasAnExample checks what can be tried out in the reference: bodies, and ids
// in paths.
func TestEveryRequestHasAnExample(t *testing.T) {
	var document any
	if err := json.Unmarshal(plantstore.OpenAPIJSON, &document); err != nil {
		t.Fatal(err)
	}
	var check func(at string, value any)
	check = func(at string, value any) {
		switch value := value.(type) {
		case []any:
			for i, element := range value {
				check(fmt.Sprint(at, "/", i), element)
			}
		case map[string]any:
			if value["in"] == "path" && value["example"] == nil {
				t.Errorf("%s has no example", at)
			}
			if body, ok := value["requestBody"].(map[string]any); ok {
				for kind, content := range body["content"].(map[string]any) {
					if content.(map[string]any)["examples"] == nil {
						t.Errorf("%s has no example of a request with %s", at, kind)
					}
				}
			}
			for name, member := range value {
				check(at+"/"+name, member)
			}
		case string:
			if strings.Contains(value, "https://") && !strings.Contains(value, ".invalid/") && strings.Contains(at, "/examples/") {
				t.Errorf("%s has a URL that could be live: %s", at, value)
			}
		}
	}
	check("", document)
}

func TestOpenAPIHasEveryScope(t *testing.T) {
	var document struct {
		Components struct {
			Schemas struct {
				Scope struct{ Enum []plantstore.Scope }
			}
		}
	}
	if err := json.Unmarshal(plantstore.OpenAPIJSON, &document); err != nil {
		t.Fatal(err)
	}
	if got := document.Components.Schemas.Scope.Enum; !slices.Equal(got, plantstore.AllScopes()) {
		t.Errorf("got the scopes %q, want %q", got, plantstore.AllScopes())
	}
}

// sample is a member of x-codeSamples.
type sample struct {
	Lang   string `yaml:"lang"`
	Source string `yaml:"source"`
}

// addSamples adds to every operation its code from docs/clients.md, where a comment has the name
// of the operation. What connects to the server comes first, so that each is complete.
func addSamples(t *testing.T, document *yaml.Node) {
	t.Helper()
	text, err := os.ReadFile("docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]map[string]string{} // by operation and language
	for _, part := range strings.Split(string(text), "\n<!-- ")[1:] {
		name, code, _ := strings.Cut(part, " -->\n")
		code, _, _ = strings.Cut(code, "\n## ")
		blocks[name] = map[string]string{}
		for _, block := range regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```").FindAllStringSubmatch(code, -1) {
			blocks[name][block[1]] += block[2]
		}
	}
	paths := member(document, "paths")
	for i := 1; i < len(paths.Content); i += 2 {
		for j := 1; j < len(paths.Content[i].Content); j += 2 {
			operation := paths.Content[i].Content[j]
			id := member(operation, "operationId")
			if id == nil {
				continue // the parameters of a path
			}
			var samples []sample
			for _, language := range []string{"sh", "go", "ts", "python"} {
				if blocks[id.Value][language] == "" {
					t.Errorf("docs/clients.md has no code in %s under <!-- %s -->", language, id.Value)
				}
				samples = append(samples, sample{language, blocks["connect"][language] + "\n" + blocks[id.Value][language]})
			}
			var key, value yaml.Node
			if err := errors.Join(key.Encode("x-codeSamples"), value.Encode(samples)); err != nil {
				t.Fatal(err)
			}
			operation.Content = append(operation.Content, &key, &value)
		}
	}
}

// member returns the value of a member, or nil if a mapping does not have it.
func member(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// encodeNode writes YAML as JSON and keeps the order of members, for the reader.
func encodeNode(enc *jsontext.Encoder, n *yaml.Node) error {
	begin, end := jsontext.BeginArray, jsontext.EndArray
	switch n.Kind {
	case yaml.MappingNode:
		begin, end = jsontext.BeginObject, jsontext.EndObject
	case yaml.SequenceNode:
	case yaml.ScalarNode:
		if n.Tag == "!!str" {
			return enc.WriteToken(jsontext.String(n.Value))
		}
		return enc.WriteValue(jsontext.Value(n.Value))
	default:
		return fmt.Errorf("line %d: YAML that JSON cannot express", n.Line)
	}
	if err := enc.WriteToken(begin); err != nil {
		return err
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			// A status such as 200 is a number in YAML and a name in JSON.
			if err := enc.WriteToken(jsontext.String(child.Value)); err != nil {
				return err
			}
			continue
		}
		if err := encodeNode(enc, child); err != nil {
			return err
		}
	}
	return enc.WriteToken(end)
}
