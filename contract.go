package plantstore

import _ "embed"

// OpenAPI is the interface as openapi.yaml describes it: the one source of
// truth for what the service accepts and answers.
//
//go:embed openapi.yaml
var OpenAPI []byte
