package plantstore_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
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
		t.Error("openapi.json does not match openapi.yaml: run go test -run TestOpenAPIJSONIsCurrent -update .")
	}
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
