package plantstore_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/testenv"
)

var (
	flagName = regexp.MustCompile(`(?:^|[^-\w])(--[a-z][a-z-]*)`)
	envName  = regexp.MustCompile(`PLANTSTORE_[A-Z_]+`)
	code     = regexp.MustCompile(`\b[45]\d{4}\b`)
	link     = regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	fenced   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	command  = regexp.MustCompile(`(?m)^  ([a-z][a-z ]*[a-z])  `)
	shell    = regexp.MustCompile("(?s)```sh\n.*?```")
)

// notInHelp lists what the documentation names and no help page does: variables of
// the tests, and options of pip.
var notInHelp = []string{"PLANTSTORE_TEST_ALL", "PLANTSTORE_TEST_POOLED", "PLANTSTORE_TEST_LIMITED", "--no-build-isolation", "--no-deps"}

// documents returns the text of every page of the documentation, by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			pages[path] = read(t, path)
		}
	}
	if pages["README.md"] == "" || pages["docs/contract.md"] == "" {
		t.Fatalf("README.md or docs/contract.md is missing: found %q", slices.Sorted(maps.Keys(pages)))
	}
	return pages
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// helper returns a function that returns the help page of a command.
func helper(t *testing.T) func(command ...string) string {
	t.Helper()
	statSources(t)
	binary, err := testenv.Binary(".", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return func(command ...string) string {
		out, err := exec.CommandContext(t.Context(), binary, append(command, "--help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("plantstore %v --help: %v\n%s", command, err, out)
		}
		return string(out)
	}
}

// helpPages returns the help page of every command, by the command's name.
func helpPages(t *testing.T) map[string]string {
	t.Helper()
	help := helper(t)
	pages := map[string]string{"": help()}
	for _, found := range command.FindAllStringSubmatch(pages[""], -1) {
		pages[found[1]] = help(strings.Fields(found[1])...)
	}
	if pages["serve"] == "" || pages["token create"] == "" {
		t.Fatalf("the help pages cannot be parsed: found %q", slices.Sorted(maps.Keys(pages)))
	}
	return pages
}

// names returns the flags and environment variables in a text.
func names(text string) []string {
	found := envName.FindAllString(text, -1)
	for _, match := range flagName.FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestDocumentationNamesOnlyOptionsThatExist(t *testing.T) {
	var known []string
	for _, page := range helpPages(t) {
		known = append(known, names(page)...)
	}
	known = append(known, notInHelp...)
	for path, text := range documents(t) {
		for _, name := range names(text) {
			if !slices.Contains(known, name) {
				t.Errorf("%s names %s, which is not on any help page", path, name)
			}
		}
	}
}

func TestConfigurationPageNamesEveryOptionOfServe(t *testing.T) {
	named := names(read(t, "docs/configuration.md"))
	for _, name := range names(helper(t)("serve")) {
		if !slices.Contains(named, name) {
			t.Errorf("docs/configuration.md does not name %s", name)
		}
	}
}

func TestContractPageListsEveryErrorNumber(t *testing.T) {
	page := code.FindAllString(read(t, "docs/contract.md"), -1)
	contract := code.FindAllString(string(plantstore.OpenAPI), -1)
	for _, n := range contract {
		if !slices.Contains(page, n) {
			t.Errorf("docs/contract.md does not list %s", n)
		}
	}
	for _, n := range page {
		if !slices.Contains(contract, n) {
			t.Errorf("docs/contract.md lists %s, which is not in openapi.yaml", n)
		}
	}
}

func TestLinksBetweenPagesAreValid(t *testing.T) {
	pages := documents(t)
	pages["deploy/README.md"] = read(t, "deploy/README.md")
	for path, text := range pages {
		for _, found := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			file, section := filepath.Join(filepath.Dir(path), found[1]), found[2]
			if found[1] == "" {
				file = path
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", path, err)
			} else if section != "" && !slices.Contains(sections(pages[file]), section) {
				t.Errorf("%s: %s has no section %s", path, file, section)
			}
		}
	}
}

// sections returns the anchors of a page's headings.
func sections(page string) (anchors []string) {
	for _, found := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		anchors = append(anchors, strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-"))
	}
	return anchors
}

// An interactive zsh takes a pasted comment for arguments.
func TestShellBlocksHaveNoComments(t *testing.T) {
	pages := documents(t)
	pages["deploy/README.md"] = read(t, "deploy/README.md")
	for path, text := range pages {
		for _, block := range shell.FindAllString(text, -1) {
			if strings.Contains(block, "#") {
				t.Errorf("%s has a comment in\n%s", path, block)
			}
		}
	}
}

// Whoever follows a walk through the code opens the files that it names.
func TestFilesOfTheArchitectureExist(t *testing.T) {
	named := regexp.MustCompile("`([a-z0-9_/]+\\.(?:go|sql))`").FindAllStringSubmatch(read(t, "docs/architecture.md"), -1)
	if len(named) < 30 {
		t.Fatalf("docs/architecture.md names only %d files", len(named))
	}
	for _, found := range named {
		path := found[1]
		if _, err := os.Stat(path); err == nil {
			continue
		}
		// A walk names a file of internal by its package, or by its name alone after another.
		under, err := filepath.Glob("internal/" + path)
		beside, globErr := filepath.Glob("internal/*/" + path)
		if err != nil || globErr != nil || len(under)+len(beside) == 0 {
			t.Errorf("docs/architecture.md names %s, which does not exist", path)
		}
	}
}
