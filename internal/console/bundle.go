package console

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// The modules of web/ import and export in these forms only.
var (
	imports = regexp.MustCompile(`(?m)^import \{([^}]*)\} from '\./([a-z]+)\.js';$`)
	exports = regexp.MustCompile(`(?m)^export ((?:async )?function\*?|const|class) ([$\w]+|\{[ ,$\w]+\})`)
	foreign = regexp.MustCompile(`(?m)^(?:import|export)\b.*`)
)

// bundle is a script of several modules: together they compress to four fifths of what they do one by
// one, and a browser need not ask for each.
type bundle struct {
	bytes.Buffer
	names []string        // of its modules, each after those that it imports
	known map[string]bool // the modules of this and of earlier scripts
}

// add appends the modules that a module imports, unless they are known. It returns the code of the
// module itself, which refers to others as $ and their name, and what it exports.
func (b *bundle) add(name string) (code []byte, exported []string, err error) {
	source, err := web.ReadFile("web/" + name + ".js")
	if err != nil {
		return nil, nil, err
	}
	code = compact(source)
	for _, m := range imports.FindAllSubmatch(code, -1) {
		other := string(m[2])
		if b.known[other] {
			continue
		}
		b.known[other] = true
		body, members, err := b.add(other)
		if err != nil {
			return nil, nil, err
		}
		b.names = append(b.names, "$"+other)
		fmt.Fprintf(b, "const $%s = (() => {\n%sreturn { %s };\n})();\n", other, body, strings.Join(members, ", "))
	}
	code = imports.ReplaceAllFunc(code, func(line []byte) []byte {
		m := imports.FindSubmatch(line)
		return fmt.Appendf(nil, "const {%s} = $%s;", bytes.ReplaceAll(m[1], []byte(" as "), []byte(": ")), m[2])
	})
	for _, m := range exports.FindAllSubmatch(code, -1) {
		exported = append(exported, strings.Trim(string(m[2]), "{ }"))
	}
	code = exports.ReplaceAll(code, []byte("$1 $2"))
	if line := foreign.Find(code); line != nil {
		return nil, nil, fmt.Errorf("%s.js: a module cannot be bundled with the line %s", name, line)
	}
	return code, exported, nil
}

// scripts returns the scripts of both pages, and the one with the modules that they share.
func scripts() (files, error) {
	shared := &bundle{known: map[string]bool{}}
	docs, _, err := shared.add("docs")
	if err != nil {
		return nil, err
	}
	names := strings.Join(shared.names, ", ")
	own := &bundle{known: shared.known}
	console, _, err := own.add("console")
	if err != nil {
		return nil, err
	}
	theirs := []byte("import { " + names + " } from './shared.js';\n")
	var all files
	for _, script := range []struct {
		name  string
		parts [][]byte
	}{
		{"shared.js", [][]byte{shared.Bytes(), []byte("export { " + names + " };\n")}},
		{"docs.js", [][]byte{theirs, docs}},
		{"console.js", [][]byte{theirs, own.Bytes(), console}},
	} {
		body := bytes.Join(script.parts, nil)
		all = append(all, file{script.name, body, zip(body)})
	}
	return all, nil
}
