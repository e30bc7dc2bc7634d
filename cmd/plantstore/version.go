package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"plantstore"
	"plantstore/internal/postgres"
	"plantstore/internal/sqlite"
)

// version is the release that this becomes or is; CHANGELOG.md has an entry for each.
const version = "0.3.0"

// interfaceVersion is the version in openapi.yaml.
const interfaceVersion = "1.0.0"

var (
	// releaseCommit is set by the linker in a release.
	releaseCommit string

	// archived is the commit of a source archive: git archive fills it in.
	//go:embed commit.txt
	archived string
)

// buildVersion returns the version, marked if this is not the build of a release.
func buildVersion() string {
	if releaseCommit == "" {
		return version + "-dev"
	}
	return version
}

// revision returns the commit that the binary was built from, or "" if it is not known, and
// whether the source had uncommitted changes.
func revision() (commit string, modified bool) {
	if releaseCommit != "" {
		return releaseCommit, false
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				commit = s.Value
			case "vcs.modified":
				modified = s.Value == "true"
			}
		}
	}
	if text := strings.TrimSpace(archived); commit == "" && !strings.HasPrefix(text, "$") {
		commit = text
	}
	return commit, modified
}

type versionCommand struct {
	JSON bool `name:"json" help:"Print JSON."`
}

func (c versionCommand) Run(std streams) error {
	commit, modified := revision()
	if c.JSON {
		return json.NewEncoder(std.out).Encode(map[string]any{
			"version": buildVersion(), "commit": commit, "modified": modified, "interface": interfaceVersion,
			"schemas": map[string]int{plantstore.StoreSQLite: sqlite.Schema(), plantstore.StorePostgres: postgres.Schema()},
			"go":      runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
		})
	}
	at := "unknown commit"
	if commit != "" {
		at = "commit " + commit[:min(12, len(commit))]
	}
	if modified {
		at += ", modified"
	}
	_, err := fmt.Fprintf(std.out, "plantstore %s (%s), interface %s, schema %d (SQLite) or %d (PostgreSQL), %s %s/%s\n",
		buildVersion(), at, interfaceVersion, sqlite.Schema(), postgres.Schema(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
