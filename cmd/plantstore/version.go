package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// version is what `plantstore version` prints; CHANGELOG.md has an entry for each.
const version = "0.1.0"

// interfaceVersion is the version in openapi.yaml.
const interfaceVersion = "1.0.0"

var (
	// releaseCommit is set by the linker in a release.
	releaseCommit string

	// archived is the commit of a source archive: git archive fills it in.
	//go:embed commit.txt
	archived string
)

// revision returns the commit that the binary was built from, or "" if it is not known.
func revision() string {
	if releaseCommit != "" {
		return releaseCommit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	if text := strings.TrimSpace(archived); !strings.HasPrefix(text, "$") {
		return text
	}
	return ""
}

type versionCommand struct {
	JSON bool `name:"json" help:"Print JSON."`
}

func (c versionCommand) Run(std streams) error {
	if c.JSON {
		return json.NewEncoder(std.out).Encode(map[string]string{
			"version": version, "commit": revision(), "interface": interfaceVersion,
			"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
		})
	}
	_, err := fmt.Fprintln(std.out, versionLine())
	return err
}

func versionLine() string {
	at := ""
	if r := revision(); len(r) >= 12 {
		at = " (" + r[:12] + ")"
	}
	return fmt.Sprintf("plantstore %s%s, interface %s, %s %s/%s",
		version, at, interfaceVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
