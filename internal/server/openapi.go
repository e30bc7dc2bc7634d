package server

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"plantstore"
)

// document is the OpenAPI document with the real base URL, in both notations.
type document struct{ yaml, json []byte }

// placeholderURL is the server's URL in openapi.yaml, and in the code of openapi.json.
const placeholderURL = "http://127.0.0.1:8080"

func newDocument(base *url.URL) document {
	quoted := fmt.Appendf(nil, "%q", base) // a URL is ASCII, so this is YAML and JSON too
	before, after, _ := bytes.Cut(plantstore.OpenAPIJSON, []byte(`"`+placeholderURL+`"`))
	inCode := []byte(strings.TrimRight(base.String(), "/"))
	return document{
		yaml: bytes.Replace(plantstore.OpenAPI, []byte("url: "+placeholderURL+"\n"), append([]byte("url: "), append(quoted, '\n')...), 1),
		json: slices.Concat(before, quoted, bytes.ReplaceAll(after, []byte(placeholderURL), inCode)),
	}
}

func (s *Server) openapiYAML(c *call) error {
	c.Header().Set("Content-Type", "application/yaml")
	_, _ = c.Write(s.document.yaml)
	return nil
}

func (s *Server) openapiJSON(c *call) error {
	c.Header()["Content-Type"] = headerJSON
	c.Header()["X-Content-Type-Options"] = headerNosniff
	_, _ = c.Write(s.document.json)
	return nil
}
