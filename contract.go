package plantstore

import _ "embed"

// InterfaceVersion is the version of the interface, in openapi.yaml.
const InterfaceVersion = "1.0.0"

// OpenAPI is the interface as openapi.yaml describes it: the one source of truth
// for what the service accepts and returns.
//
//go:embed openapi.yaml
var OpenAPI []byte

// OpenAPIJSON is the same document as JSON, generated from openapi.yaml by
// go test -run TestOpenAPIJSONIsCurrent -update .
//
//go:embed openapi.json
var OpenAPIJSON []byte
