package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
)

// component is a part of the binary, in CycloneDX.
type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

// writeParts lists the modules that are in the binary, as CycloneDX. The list comes from
// the binary itself.
func (r *release) writeParts(path, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	parts := []component{newComponent("library", "std", info.GoVersion)}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		parts = append(parts, newComponent("library", module.Path, module.Version))
	}
	text, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata": map[string]any{
			"timestamp": r.time.Format("2006-01-02T15:04:05Z"),
			"component": newComponent("application", "plantstore", r.version),
		},
		"components": parts,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func newComponent(kind, path, version string) component {
	purl := "pkg:golang/" + path + "@" + version
	return component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}
