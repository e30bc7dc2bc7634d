package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// eagerFlush are the constants of internal/sqlite, and their values in a build that
// freezes and flushes generations all the time, even if there are few plants.
var eagerFlush = map[string]string{
	"groupSize":      "2",
	"generationSize": "20",
}

// Root is the root of the repository, seen from the folder of a test package.
const Root = "../.."

// Patch replaces a piece of a package's source.
type Patch struct {
	Dir string // of the package, below the root
	Old string // a regular expression that matches once in its files
	New string // what replaces it, with $1 as in [regexp.Regexp.Expand]
}

// Const is a patch that gives a constant another value.
func Const(dir, name, value string) Patch {
	return Patch{dir, `(?m)^([ \t]*(?:const[ \t]+)?` + name + `[ \t]+=).*$`, "$1 " + value}
}

// Build builds the binary with the patches and returns its path.
func Build(t testing.TB, patches ...Patch) string {
	t.Helper()
	built, err := buildPatched(t.TempDir(), patches)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// BuildWithout builds the binary as if these files, given by their absolute paths, did
// not exist.
func BuildWithout(t testing.TB, files ...string) string {
	t.Helper()
	replace := make(map[string]string)
	for _, file := range files {
		replace[file] = ""
	}
	built, err := build(t.TempDir(), replace)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// EachBuild runs a test against the binary under test and against the eager-flush build.
func EachBuild(t *testing.T, test func(t *testing.T, program string)) {
	t.Run("default", func(t *testing.T) { test(t, Binary()) })
	t.Run("eager flush", func(t *testing.T) { test(t, EagerFlush(t)) })
}

// EagerFlush returns the path of the eager-flush build.
func EagerFlush(t testing.TB) string {
	t.Helper()
	built, err := buildEagerFlush()
	if err != nil {
		t.Fatal(err)
	}
	return built
}

var buildEagerFlush = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "plantstore-eager-flush-")
	if err != nil {
		return "", err
	}
	AtExit(func() { os.RemoveAll(dir) })
	var patches []Patch
	for name, value := range eagerFlush {
		patches = append(patches, Const("internal/sqlite", name, value))
	}
	return buildPatched(dir, patches)
})

func buildPatched(dir string, patches []Patch) (string, error) {
	patched := make(map[string]string) // content by path
	for _, p := range patches {
		if err := p.apply(patched); err != nil {
			return "", err
		}
	}
	replace := make(map[string]string)
	for source, content := range patched {
		replace[source] = filepath.Join(dir, fmt.Sprintf("patched%d.go", len(replace)))
		if err := os.WriteFile(replace[source], []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	return build(dir, replace)
}

// apply patches the one file that matches, which may have been patched before.
func (p Patch) apply(patched map[string]string) error {
	dir, err := filepath.Abs(filepath.Join(Root, p.Dir))
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	old, err := regexp.Compile(p.Old)
	if err != nil {
		return err
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, ok := patched[file]
		if !ok {
			source, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			content = string(source)
		}
		if n := len(old.FindAllStringIndex(content, -1)); n > 0 {
			found += n
			patched[file] = old.ReplaceAllString(content, p.New)
		}
	}
	if found != 1 {
		return fmt.Errorf("%q occurs %d times in %s, want once", p.Old, found, p.Dir)
	}
	return nil
}

// build builds the binary into the folder. Files that replace names are replaced by
// others, or by nothing.
func build(dir string, replace map[string]string) (string, error) {
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list, built := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "plantstore")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-overlay", list, "-o", built, "plantstore/cmd/plantstore").CombinedOutput()
	if err != nil {
		return "", errors.Join(fmt.Errorf("build plantstore: %w", err), errors.New(string(out)))
	}
	return built, nil
}
