package server

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"plantstore"
)

// documents are the OpenAPI document with the real base URL, in both notations.
type documents struct{ yaml, json document }

// document is one of them. It is compressed once, when the first client wants that.
type document struct {
	text   []byte
	zipped func() []byte
}

func newDocument(text []byte) document {
	return document{text, sync.OnceValue(func() []byte {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, _ = z.Write(text) // to memory
		_ = z.Close()
		return out.Bytes()
	})}
}

// placeholderURL is the server's URL in openapi.yaml, and in the code of openapi.json.
const placeholderURL = "http://127.0.0.1:8080"

func newDocuments(base *url.URL) documents {
	quoted := fmt.Appendf(nil, "%q", base) // a URL is ASCII, so this is YAML and JSON too
	before, after, _ := bytes.Cut(plantstore.OpenAPIJSON, []byte(`"`+placeholderURL+`"`))
	inCode := []byte(strings.TrimRight(base.String(), "/"))
	return documents{
		yaml: newDocument(bytes.Replace(plantstore.OpenAPI, []byte("url: "+placeholderURL+"\n"), append([]byte("url: "), append(quoted, '\n')...), 1)),
		json: newDocument(slices.Concat(before, quoted, bytes.ReplaceAll(after, []byte(placeholderURL), inCode))),
	}
}

func (s *Server) openapiYAML(c *call) error {
	c.w.Header().Set("Content-Type", "application/yaml")
	return s.documents.yaml.write(c)
}

func (s *Server) openapiJSON(c *call) error {
	c.w.Header()["Content-Type"] = headerJSON
	c.w.Header()["X-Content-Type-Options"] = headerNosniff
	return s.documents.json.write(c)
}

func (d document) write(c *call) error {
	c.w.Header().Add("Vary", "Accept-Encoding")
	body := d.text
	if acceptsGzip(c.r) {
		c.w.Header()["Content-Encoding"] = headerGzip
		body = d.zipped()
	}
	_, _ = c.w.Write(body)
	return nil
}
