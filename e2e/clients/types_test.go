package clients

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"plantstore"
	"plantstore/e2e/harness"
)

var update = flag.Bool("update", false, "rewrite the generated files")

const typesFile = harness.Root + "/clients/typescript/src/types.ts"

// renamed are the schemas whose names are taken in JavaScript.
var renamed = map[string]string{"Error": "ErrorBody", "Event": "LogEvent"}

func TestTheTypeScriptTypesAreCurrent(t *testing.T) {
	var root yaml.Node
	if err := yaml.Unmarshal(plantstore.OpenAPI, &root); err != nil {
		t.Fatal(err)
	}
	schemas := at(at(root.Content[0], "components"), "schemas")
	var b strings.Builder
	b.WriteString("// Generated from openapi.yaml: go -C e2e test ./clients -run TypesAreCurrent -update\n" +
		"//\n// An id is a bigint, because a number loses integers above 2^53. Other integers are\n" +
		"// numbers. The schemas Error and Event have other names here: those are JavaScript's.\n")
	for i := 0; i < len(schemas.Content); i += 2 {
		name, schema := schemas.Content[i].Value, schemas.Content[i+1]
		fmt.Fprintf(&b, "\n%sexport type %s = %s;\n", comment(schema, ""), typeName(name), typeOf("", schema, ""))
	}
	want := b.String()
	if *update {
		if err := os.WriteFile(typesFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(typesFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("clients/typescript/src/types.ts does not match openapi.yaml: run go -C e2e test ./clients -run TypesAreCurrent -update")
	}
}

// at returns a member of a mapping, or an empty node.
func at(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return &yaml.Node{}
}

func values(n *yaml.Node) []string {
	var all []string
	for _, v := range n.Content {
		all = append(all, v.Value)
	}
	return all
}

func typeName(schema string) string {
	if name, ok := renamed[schema]; ok {
		return name
	}
	return schema
}

// comment returns the description of a schema.
func comment(schema *yaml.Node, indent string) string {
	text := strings.TrimSpace(at(schema, "description").Value)
	switch {
	case text == "":
		return ""
	case strings.Contains(text, "\n"):
		text = strings.ReplaceAll(strings.ReplaceAll(text, "\n", "\n"+indent+" * "), " \n", "\n")
		return indent + "/**\n" + indent + " * " + text + "\n" + indent + " */\n"
	}
	return indent + "/** " + text + " */\n"
}

// typeOf returns the type of a schema, which is that of a property if it has a name.
func typeOf(property string, schema *yaml.Node, indent string) string {
	if ref := at(schema, "$ref").Value; ref != "" {
		return typeName(ref[strings.LastIndexByte(ref, '/')+1:])
	}
	if all := at(schema, "allOf").Content; all != nil {
		var parts []string
		for _, part := range all {
			parts = append(parts, typeOf("", part, indent))
		}
		return strings.Join(parts, " & ")
	}
	if one := at(schema, "oneOf").Content; one != nil {
		var parts []string
		for _, part := range one {
			parts = append(parts, typeOf("", part, indent))
		}
		return strings.Join(parts, " | ")
	}
	if values := append(values(at(schema, "enum")), at(schema, "const").Value); values[0] != "" {
		values = slices.DeleteFunc(values, func(v string) bool { return v == "" })
		return `"` + strings.Join(values, `" | "`) + `"`
	}
	kinds := at(schema, "type")
	if kinds.Kind == yaml.SequenceNode {
		var parts []string
		for _, kind := range kinds.Content {
			parts = append(parts, primitive(property, kind.Value, schema, indent))
		}
		return strings.Join(parts, " | ")
	}
	return primitive(property, kinds.Value, schema, indent)
}

func primitive(property, kind string, schema *yaml.Node, indent string) string {
	switch {
	case kind == "integer" && property == "id":
		return "bigint"
	case kind == "integer" || kind == "number":
		return "number"
	case kind == "array":
		element := typeOf("", at(schema, "items"), indent)
		if strings.ContainsAny(element, "|&") {
			element = "(" + element + ")"
		}
		return element + "[]"
	case kind == "object":
		return objectType(schema, indent)
	case kind == "":
		return "unknown"
	}
	return kind
}

func objectType(schema *yaml.Node, indent string) string {
	required := values(at(schema, "required"))
	inner := indent + "  "
	var b strings.Builder
	b.WriteString("{\n")
	properties := at(schema, "properties").Content
	for i := 0; i < len(properties); i += 2 {
		name, property := properties[i].Value, properties[i+1]
		optional := "?"
		if slices.Contains(required, name) {
			optional = ""
		}
		fmt.Fprintf(&b, "%s%s%s%s: %s;\n", comment(property, inner), inner, name, optional, typeOf(name, property, inner))
	}
	return b.String() + indent + "}"
}
