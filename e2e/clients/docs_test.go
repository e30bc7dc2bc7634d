package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/e2e/harness"
)

// blocks returns the code of one language on a page, for a server.
func blocks(t testing.TB, page, language string, server *harness.Server) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root, page))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, block := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		b.WriteString(block[1] + "\n")
	}
	if b.Len() == 0 {
		t.Fatalf("%s has no block in %s", page, language)
	}
	return strings.ReplaceAll(b.String(), "http://127.0.0.1:8080", server.API)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// runDocs runs the code of a language and returns its output.
func runDocs(t *testing.T, page, language string) string {
	server := harness.Start(t)
	code := blocks(t, page, language, server)
	dir, env := t.TempDir(), []string{"PLANTSTORE_TOKEN=" + token}
	switch language {
	case "sh":
		return run(t, dir, env, need(t, "bash"), "-euo", "pipefail", "-c", code)
	case "python":
		return run(t, dir, append(env, pythonPath(t)), need(t, "python3"), "-c", code)
	case "ts":
		// The examples are JavaScript, too.
		client := filepath.Dir(strings.TrimPrefix(typescriptClient(t), "PLANTSTORE_CLIENT="))
		installed := filepath.Join(dir, "node_modules", "plantstore")
		write(t, filepath.Join(dir, "main.mjs"), code)
		if err := os.CopyFS(filepath.Join(installed, "dist"), os.DirFS(client)); err != nil {
			t.Fatal(err)
		}
		manifest, err := os.ReadFile(filepath.Join(typescriptDir, "package.json"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(installed, "package.json"), string(manifest))
		return run(t, dir, env, need(t, "node"), "main.mjs")
	}
	return run(t, dir, env, buildGo(t, dir, code))
}

func TestTheLanguagesPageRuns(t *testing.T) {
	const program = "taken: \"id\" 9007199254740993 is taken by another plant: choose another id\n" +
		"3 created\n9007199254740993 Monstera deliciosa\nexported 1\nexported 2\nexported 3\nexported 9007199254740993\n" +
		"plant.created 9007199254740993\n"
	for _, language := range []string{"go", "ts", "python"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if got := runDocs(t, "docs/clients.md", language); got != program {
				t.Errorf("got\n%swant\n%s", got, program)
			}
		})
	}
	t.Run("sh", func(t *testing.T) {
		t.Parallel()
		need(t, "curl")
		got := runDocs(t, "docs/clients.md", "sh")
		for _, want := range []string{
			`{"name":"Monstera"}`, `{"error":40010,`, `{"name":"Monstera deliciosa","tag":"tropical"}`, `"created":3`,
			`[{"id":9007199254740993,"name":"Monstera deliciosa","tag":"tropical"}]`, `{"id":3,"name":"Oak"}`, `"type":"plant.created"`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("got\n%s\nwant %s in it", got, want)
			}
		}
		if strings.Count(got, `"error":4`) != 1 {
			t.Errorf("got\n%s\nwant one error", got)
		}
	})
}

func TestTheQuickStartsRun(t *testing.T) {
	const taken = "40010 \"id\" 1 is taken by another plant: choose another id\n"
	for _, test := range []struct{ page, language, want string }{
		{"clients/python/README.md", "python", taken + "1 Monstera deliciosa\n100 created\nplant.created 1\n"},
		{"clients/typescript/README.md", "ts", taken + "1n Monstera deliciosa\n2 created\nplant.created 1n\n"},
	} {
		t.Run(test.language, func(t *testing.T) {
			t.Parallel()
			if got := runDocs(t, test.page, test.language); got != test.want {
				t.Errorf("got\n%swant\n%s", got, test.want)
			}
		})
	}
}
