package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"plantstore"
	"plantstore/internal/server"
)

func TestTheContractIsValidOpenAPI(t *testing.T) {
	doc := loadContract(t, plantstore.OpenAPI)
	if !doc.IsOpenAPI31OrLater() {
		t.Errorf("the contract is OpenAPI %s", doc.OpenAPI)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRoutesAndOperationsAreTheSame(t *testing.T) {
	var served, documented []string
	for _, r := range server.Routes() {
		if path, ok := strings.CutPrefix(r.Path, "{base}"); ok {
			served = append(served, r.Name+": "+r.Method+" "+path)
		}
	}
	for path, item := range loadContract(t, plantstore.OpenAPI).Paths.Map() {
		for method, operation := range item.Operations() {
			documented = append(documented, operation.OperationID+": "+method+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(documented)
	if !slices.Equal(served, documented) {
		t.Errorf("routes.go has\n%s\nand openapi.yaml has\n%s", strings.Join(served, "\n"), strings.Join(documented, "\n"))
	}
	names := map[string]bool{}
	for _, line := range documented {
		name, _, _ := strings.Cut(line, ":")
		if names[name] {
			t.Errorf("there are two operationIds %s", name)
		}
		names[name] = true
	}
}

func TestEveryScopedOperationSaysWhichScopeItNeeds(t *testing.T) {
	doc := loadContract(t, plantstore.OpenAPI)
	for _, r := range server.Routes() {
		path, ok := strings.CutPrefix(r.Path, "{base}")
		if !ok {
			continue
		}
		operation := doc.Paths.Value(path).GetOperation(r.Method)
		want := "Needs a valid token, and no scope."
		switch len(r.Scopes) {
		case 1:
			want = "Needs the scope `" + string(r.Scopes[0]) + "`."
		case 2:
			want = "Needs the scopes `" + string(r.Scopes[0]) + "` and `" + string(r.Scopes[1]) + "`."
		}
		if !strings.Contains(strings.Join(strings.Fields(operation.Description), " "), want) {
			t.Errorf("%s does not say %q", r.Name, want)
		}
	}
}

func TestTheContractNamesEveryErrorCode(t *testing.T) {
	description := text(t, at(readYAML(t, plantstore.OpenAPI), "components", "schemas", "Error", "properties", "error"), "description")
	var named []string
	for _, number := range regexp.MustCompile(`\b\d{5}\b`).FindAllString(description, -1) {
		if slices.Contains(named, number) {
			t.Errorf("%s is named twice", number)
		}
		named = append(named, number)
	}
	known := errorCodes(t)
	for number, name := range known {
		if !slices.Contains(named, number) {
			t.Errorf("the description of Error.error does not name %s, which is %s", number, name)
		}
	}
	for _, number := range named {
		if known[number] == "" {
			t.Errorf("the description of Error.error names %s, which errors.go does not have", number)
		}
	}
}

// errorCodes returns the name of every Code in errors.go by its number.
func errorCodes(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || fmt.Sprint(spec.Type) != "Code" {
			return true
		}
		for i, value := range spec.Values {
			codes[value.(*ast.BasicLit).Value] = spec.Names[i].Name
		}
		return true
	})
	if len(codes) < 20 {
		t.Fatalf("errors.go has only the codes %v", codes)
	}
	return codes
}

// The golden file is the specified operation, written by hand. A change of it changes
// what the interface has promised, which is not allowed within 1.x.
const goldenFile = "testdata/contract.golden.json"

func TestTheDocumentedOperationIsAsSpecified(t *testing.T) {
	want := readGolden(t)
	got, err := documented(readYAML(t, plantstore.OpenAPI))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differences("", got, want) {
		t.Errorf("openapi.yaml against %s: %s", goldenFile, d)
	}
}

func TestTheGoldenFileNoticesEveryChange(t *testing.T) {
	want := readGolden(t)
	source := string(plantstore.OpenAPI)
	for _, tt := range []struct{ old, new string }{
		{"openapi: 3.1.0", "openapi: 3.1.1"},
		{"  version: 1.0.0", "  version: 1.1.0"},
		{"    name: MIT", "    name: Apache-2.0"},
		{"security:\n  - bearer: []\n", "security: []\n"},
		{"      scheme: bearer", "      scheme: basic"},
		{"      operationId: createPlant\n", "      operationId: createPlant\n      security: []\n"},
		{"      operationId: createPlant\n", "      operationId: createPlant\n      parameters: [{name: dry, in: query, schema: {type: boolean}}]\n"},
		{"        Creates a new plant in the store.", "        Makes a plant."},
		{"        description: The plant to add to the store\n        required: true", "        description: The plant to add to the store\n        required: false"},
		{"        '200':\n          description: 'Plant response: the plant was created'", "        '201':\n          description: 'Plant response: the plant was created'"},
		{"'Plant response: the plant was created'", "'Done'"},
		{"      description: Unexpected error", "      description: Expected error"},
		{"      required: [name]", "      required: [name, tag]"},
		{"          required: [id]", "          required: []"},
		{"      required: [error, message]", "      required: [error]"},
		{"              format: int64\n              description: Ident", "              format: int32\n              description: Ident"},
		{"          format: int32", "          format: int64"},
		{"          description: The name of the plant", "          description: A name"},
		{"          description: Text describing the error", "          description: A text"},
		{"          description: Tag that specifies the type of the plant", "          description: Tag that specifies the type of the plant\n          maxLength: 100"},
		{"              description: Identification number of the plant", "              description: Identification number of the plant\n              minimum: 1"},
		{"        tag:\n          type: string", "        tag:\n          type: [string, 'null']"},
		{"    Plant:\n      type: object", "    Plant:\n      type: object\n      additionalProperties: false"},
	} {
		if strings.Count(source, tt.old) == 0 {
			t.Errorf("openapi.yaml does not contain %q", tt.old)
			continue
		}
		got, err := documented(readYAML(t, []byte(strings.Replace(source, tt.old, tt.new, 1))))
		if err == nil && len(differences("", got, want)) == 0 {
			t.Errorf("%q instead of %q is not noticed", tt.new, tt.old)
		}
	}
}

func readGolden(t *testing.T) (want any) {
	t.Helper()
	golden, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(golden, &want); err != nil {
		t.Fatal(err)
	}
	return want
}

// documented extracts from the contract what the golden file lists: all of it, and
// nothing that may be added within 1.x (examples, further statuses and operations).
func documented(doc map[string]any) (any, error) {
	operation := at(doc, "paths", "/plants", "post")
	if operation == nil {
		return nil, errors.New("there is no POST /plants")
	}
	request, err := contentOf(doc, at(operation, "requestBody"))
	if err != nil {
		return nil, err
	}
	responses := map[string]any{}
	for _, status := range []string{"200", "400"} {
		response, err := resolve(doc, at(operation, "responses", status))
		if err != nil {
			return nil, err
		}
		content, err := contentOf(doc, response)
		if err != nil {
			return nil, fmt.Errorf("status %s: %w", status, err)
		}
		responses[status] = map[string]any{"description": response["description"], "content": content}
	}
	security, overridden := operation["security"]
	if !overridden {
		security = doc["security"]
	}
	purpose, _, _ := strings.Cut(fmt.Sprint(operation["description"]), ".")
	return map[string]any{
		"openapi": doc["openapi"],
		"version": at(doc, "info")["version"],
		"license": at(doc, "info", "license")["name"],
		"authentication": map[string]any{
			"security": security,
			"type":     at(doc, "components", "securitySchemes", "bearer")["type"],
			"scheme":   at(doc, "components", "securitySchemes", "bearer")["scheme"],
		},
		"POST /plants": map[string]any{
			"operationId": operation["operationId"],
			"purpose":     purpose,
			"parameters":  operation["parameters"],
			"request":     map[string]any{"required": at(operation, "requestBody")["required"], "content": request},
			"responses":   responses,
		},
	}, nil
}

// contentOf returns the media types of a request or response, and the fields of each.
func contentOf(doc, body map[string]any) (any, error) {
	content := map[string]any{}
	for media := range at(body, "content") {
		schema := at(body, "content", media, "schema")
		fields := map[string]any{}
		if err := addFields(doc, schema, fields); err != nil {
			return nil, fmt.Errorf("%s: %w", media, err)
		}
		content[media] = map[string]any{"schema": schema["$ref"], "fields": fields}
	}
	return content, nil
}

// addFields adds the fields of an object's schema. It fails on an unknown keyword,
// which may forbid what the specification allows.
func addFields(doc, schema, fields map[string]any) error {
	schema, err := resolve(doc, schema)
	if err != nil {
		return err
	}
	for _, keyword := range slices.Sorted(maps.Keys(schema)) {
		switch keyword {
		case "description", "examples", "title", "required":
		case "type":
			if schema["type"] != "object" {
				return fmt.Errorf("the type is %v", schema["type"])
			}
		case "allOf":
			for i := range schema["allOf"].([]any) {
				if err := addFields(doc, at(schema, "allOf", strconv.Itoa(i)), fields); err != nil {
					return err
				}
			}
		case "properties":
			required, _ := schema["required"].([]any)
			for name := range at(schema, "properties") {
				field := maps.Clone(at(schema, "properties", name))
				field["required"] = slices.Contains(required, any(name))
				// What comes after a colon is not specified.
				field["description"], _, _ = strings.Cut(fmt.Sprint(field["description"]), ":")
				fields[name] = field
			}
		default:
			return fmt.Errorf("the keyword %s: %v", keyword, schema[keyword])
		}
	}
	return nil
}

// resolve follows a reference within the document.
func resolve(doc, node map[string]any) (map[string]any, error) {
	ref, ok := node["$ref"].(string)
	if !ok {
		return node, nil
	}
	path, ok := strings.CutPrefix(ref, "#/")
	target := at(doc, strings.Split(path, "/")...)
	if !ok || target == nil || len(node) != 1 {
		return nil, fmt.Errorf("the reference %v", node)
	}
	return target, nil
}

// readYAML decodes a document into the types of encoding/json.
func readYAML(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var value map[string]any
	if err := yaml.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	value = nil
	if err := json.Unmarshal(again, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// at returns the object at the path, or nil.
func at(node map[string]any, path ...string) map[string]any {
	var value any = node
	for _, step := range path {
		switch container := value.(type) {
		case map[string]any:
			value = container[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(container) {
				return nil
			}
			value = container[i]
		}
	}
	object, _ := value.(map[string]any)
	return object
}

func text(t *testing.T, node map[string]any, name string) string {
	t.Helper()
	value, ok := node[name].(string)
	if !ok {
		t.Fatalf("%s is not a string in %v", name, node)
	}
	return value
}

// differences lists how two JSON values differ.
func differences(path string, got, want any) []string {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s is %v, want an object", path, got)}
		}
		var all []string
		for _, name := range slices.Sorted(maps.Keys(union(got, want))) {
			all = append(all, differences(path+"/"+name, got[name], want[name])...)
		}
		return all
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return []string{fmt.Sprintf("%s is %v, want %v", path, got, want)}
		}
		var all []string
		for i := range want {
			all = append(all, differences(path+"/"+strconv.Itoa(i), got[i], want[i])...)
		}
		return all
	}
	if fmt.Sprintf("%T %v", got, got) != fmt.Sprintf("%T %v", want, want) {
		return []string{fmt.Sprintf("%s is %v, want %v", path, got, want)}
	}
	return nil
}

func union(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
