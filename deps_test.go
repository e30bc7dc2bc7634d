package plantstore_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layers lists the packages by layer, lowest first. A package may import only lower
// layers. Add every new package here.
var layers = [][]string{
	{"plantstore"},
	{
		"plantstore/internal/wire",
		"plantstore/internal/wire/wiretest",
		"plantstore/internal/memtable",
		"plantstore/internal/match",
		"plantstore/internal/backoff",
		"plantstore/internal/testenv",
	},
	{"plantstore/internal/rules", "plantstore/internal/plantfile"},
	{
		"plantstore/client",
		"plantstore/internal/auth",
		"plantstore/internal/commit",
		"plantstore/internal/httpd",
		"plantstore/internal/sqlite",
		"plantstore/internal/postgres",
		"plantstore/internal/postgres/pgtest",
		"plantstore/internal/storetest",
		"plantstore/internal/cli",
		"plantstore/internal/tracing",
		"plantstore/internal/webhook",
	},
	{"plantstore/internal/server", "plantstore/internal/console", "plantstore/internal/upload", "plantstore/internal/mirror", "plantstore/internal/history"},
	{"plantstore/internal/app"},
	{"plantstore/internal/servertest", "plantstore/cmd/plantstore", "plantstore/examples/receiver"},
	{"plantstore/deploy"},
}

// wired lists the packages that only the given ones may import: everything is wired in
// internal/app, for the command and the tests, which open the store. Test helpers are for
// tests only.
var wired = map[string][]string{
	"plantstore/internal/sqlite":          {"plantstore/internal/app", "plantstore/cmd/plantstore", "plantstore/internal/servertest"},
	"plantstore/internal/postgres":        {"plantstore/internal/app", "plantstore/cmd/plantstore", "plantstore/internal/servertest"},
	"plantstore/internal/httpd":           {"plantstore/internal/app"},
	"plantstore/internal/app":             {"plantstore/cmd/plantstore", "plantstore/internal/servertest"},
	"plantstore/internal/storetest":       {},
	"plantstore/internal/wire/wiretest":   {},
	"plantstore/internal/testenv":         {"plantstore/internal/postgres/pgtest", "plantstore/internal/servertest"},
	"plantstore/internal/postgres/pgtest": {"plantstore/internal/servertest"},
	"plantstore/internal/servertest":      {},
	"plantstore/cmd/plantstore":           {},
}

// drivers says which store a database driver belongs to.
var drivers = map[string]string{
	"zombiezen.com/go/sqlite": "plantstore/internal/sqlite",
	"modernc.org":             "plantstore/internal/sqlite",
	"github.com/jackc":        "plantstore/internal/postgres",
}

// listed is what go list prints about a package. Imports excludes those of tests.
type listed struct {
	ImportPath string
	Name       string
	Standard   bool
	Imports    []string
}

func listPackages(t *testing.T, args ...string) []listed {
	t.Helper()
	statSources(t)
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Name,Standard,Imports"}, args...)...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s: %v\n%s", cmd, err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	var packages []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := dec.Decode(&p)
		if err == io.EOF {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// statSources stats every source file. go list reads them in another process, which
// the test cache does not see: without this, a cached result would outlive a change.
func statSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, _ fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case file == ".git":
			return filepath.SkipDir
		case filepath.Ext(file) != ".go":
			return nil
		}
		_, err = os.Stat(file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// layerOf returns the index of a package's layer, or -1 if it is not listed.
func layerOf(importPath string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, importPath) })
}

func isOurs(importPath string) bool {
	return importPath == "plantstore" || strings.HasPrefix(importPath, "plantstore/")
}

func isUnder(importPath, root string) bool {
	return importPath == root || strings.HasPrefix(importPath, root+"/")
}

func TestRootNeedsTheStandardLibraryOnly(t *testing.T) {
	for _, p := range listPackages(t, "-deps", ".") {
		if !p.Standard && p.ImportPath != "plantstore" {
			t.Errorf("plantstore depends on %s", p.ImportPath)
		}
	}
}

// TestClientNeedsLittle pins what a program gets with the client, its go.sum included: none of
// what only the server needs.
func TestClientNeedsLittle(t *testing.T) {
	ours := []string{"plantstore", "plantstore/client", "plantstore/internal/wire", "plantstore/internal/backoff"}
	for _, p := range listPackages(t, "-deps", "./client") {
		if !p.Standard && !slices.Contains(ours, p.ImportPath) && !isUnder(p.ImportPath, "github.com/go-json-experiment/json") {
			t.Errorf("plantstore/client depends on %s", p.ImportPath)
		}
	}
}

func TestPackagesImportOnlyLowerLayers(t *testing.T) {
	for _, p := range listPackages(t, "./...") {
		own := layerOf(p.ImportPath)
		if own < 0 {
			t.Errorf("%s is not in layers: add it", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			if !isOurs(imported) {
				continue
			}
			if layerOf(imported) >= own {
				t.Errorf("%s imports %s, which is not in a lower layer", p.ImportPath, imported)
			}
			if only, ok := wired[imported]; ok && !slices.Contains(only, p.ImportPath) {
				t.Errorf("%s imports %s, which only %q may", p.ImportPath, imported, only)
			}
		}
	}
}

func TestDriversStayInTheirStore(t *testing.T) {
	for _, p := range listPackages(t, "./...") {
		for _, imported := range p.Imports {
			for driver, store := range drivers {
				if isUnder(imported, driver) && !isUnder(p.ImportPath, store) {
					t.Errorf("%s imports %s, which belongs to %q", p.ImportPath, imported, store)
				}
			}
		}
	}
}

func TestNoPackageHasAVagueName(t *testing.T) {
	vague := []string{"utils", "util", "models", "common", "helpers", "config", "errors"}
	for _, p := range listPackages(t, "./...") {
		if slices.Contains(vague, p.Name) || slices.Contains(vague, path.Base(p.ImportPath)) {
			t.Errorf("%s: the name does not say what the package provides", p.ImportPath)
		}
	}
}
