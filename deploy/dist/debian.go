package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// maintainer is a placeholder until the project has a home.
const maintainer = "The Plantstore authors <plantstore@example.com>"

// settings is the configuration file of the package. dpkg keeps an edited one.
const settings = `# The settings of Plantstore. "plantstore serve --help" lists them all. Restart the service after a change:
#
#   systemctl restart plantstore

addr = "127.0.0.1:8080"
db = "/var/lib/plantstore/plants.db"
`

// writeDebian writes the Debian package.
func (r *release) writeDebian(t target, program string) error {
	dir, err := os.MkdirTemp("", "plantstore-deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	unit, err := r.packagedUnit()
	if err != nil {
		return err
	}
	socket, err := os.ReadFile(filepath.Join(r.source, "deploy/plantstore.socket"))
	if err != nil {
		return err
	}
	licence, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return err
	}
	changes := fmt.Sprintf("plantstore (%s) stable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n",
		r.version, maintainer, r.time.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	info := &nfpm.Info{
		Name: "plantstore", Arch: t.arch, Platform: "linux", Version: r.version, VersionSchema: "semver",
		Section: "database", Priority: "optional", Maintainer: maintainer, License: "MIT", MTime: r.time,
		Description: "store of plants behind an HTTP API\nOne static binary that reports success only once a plant is safely on disk.",
		Overridables: nfpm.Overridables{
			Depends: []string{"passwd"},
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(r.source, "deploy/dist/postinst"),
				PreRemove:   filepath.Join(r.source, "deploy/dist/prerm"),
				PostRemove:  filepath.Join(r.source, "deploy/dist/postrm"),
			},
			Deb: nfpm.Deb{Compression: "gzip"},
		},
	}
	add := func(to string, mode fs.FileMode, kind string, content []byte) error {
		from := filepath.Join(dir, strings.ReplaceAll(to, "/", "_"))
		info.Contents = append(info.Contents, &files.Content{
			Source: from, Destination: to, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.time},
		})
		return os.WriteFile(from, content, 0o600)
	}
	binary, err := os.ReadFile(program)
	err = errors.Join(err,
		add("/usr/bin/plantstore", 0o755, "", binary),
		add("/lib/systemd/system/plantstore.service", 0o644, "", unit),
		add("/lib/systemd/system/plantstore.socket", 0o644, "", socket),
		add("/etc/plantstore/plantstore.toml", 0o640, files.TypeConfigNoReplace, []byte(settings)),
		add("/usr/share/man/man1/plantstore.1.gz", 0o644, "", zipped(r.manual)),
		add("/usr/share/bash-completion/completions/plantstore", 0o644, "", r.shells["bash"]),
		add("/usr/share/zsh/vendor-completions/_plantstore", 0o644, "", r.shells["zsh"]),
		add("/usr/share/fish/vendor_completions.d/plantstore.fish", 0o644, "", r.shells["fish"]),
		add("/usr/share/doc/plantstore/copyright", 0o644, "", licence),
		add("/usr/share/doc/plantstore/changelog.gz", 0o644, "", zipped([]byte(changes))),
	)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := deb.Default.Package(info, &out); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, fmt.Sprintf("plantstore_%s_%s.deb", r.version, t.arch)), out.Bytes(), 0o644)
}

// packagedUnit returns the systemd unit as the package needs it: with its own path of the
// binary, and settings from the configuration file.
func (r *release) packagedUnit() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(r.source, "deploy/plantstore.service"))
	if err != nil {
		return nil, err
	}
	unit := string(text)
	for _, change := range [][2]string{
		{"ExecStart=/usr/local/bin/", "ExecStart=/usr/bin/"},
		{"Environment=PLANTSTORE_DB=/var/lib/plantstore/plants.db", "Environment=PLANTSTORE_CONFIG=/etc/plantstore/plantstore.toml"},
	} {
		if strings.Count(unit, change[0]) != 1 {
			return nil, fmt.Errorf("deploy/plantstore.service does not have %q once", change[0])
		}
		unit = strings.Replace(unit, change[0], change[1], 1)
	}
	return []byte(unit), nil
}

func zipped(text []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = z.Write(text)                                  // to memory
	_ = z.Close()
	return b.Bytes()
}
