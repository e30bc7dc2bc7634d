package server

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"plantstore"
)

// document is openapi.yaml with the real base URL, in both notations.
type document struct{ yaml, json []byte }

// placeholderURL is the server's URL in openapi.yaml.
const placeholderURL = "http://127.0.0.1:8080"

func newDocument(base *url.URL) (document, error) {
	text := bytes.Replace(plantstore.OpenAPI,
		[]byte("url: "+placeholderURL+"\n"), fmt.Appendf(nil, "url: %q\n", base), 1)
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return document{}, fmt.Errorf("read openapi.yaml: %w", err)
	}
	var out bytes.Buffer
	if err := encodeNode(jsontext.NewEncoder(&out, jsontext.WithIndent("  ")), root.Content[0]); err != nil {
		return document{}, fmt.Errorf("write openapi.json: %w", err)
	}
	return document{yaml: text, json: out.Bytes()}, nil
}

// encodeNode writes YAML as JSON and keeps the order of members, which is the
// order in which a reader should meet them.
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
		return fmt.Errorf("line %d: YAML that JSON does not have", n.Line)
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

func (s *Server) openapiYAML(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(s.document.yaml)
	return nil
}

func (s *Server) openapiJSON(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, s.document.json)
}
