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
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// maintainer and homepage are placeholders until the project has a home.
const (
	maintainer = "The Plantstore authors <plantstore@example.com>"
	homepage   = "https://plantstore.example.com"
)

// settings is the configuration file of the packages. dpkg and rpm keep an edited one.
const settings = `# The settings of Plantstore. "plantstore serve --help" lists them all. Restart the service after a change:
#
#   systemctl restart plantstore

addr = "127.0.0.1:8080"
db = "/var/lib/plantstore/plants.db"
`

// writePackages writes the packages for Debian's family and for Red Hat's and SUSE's. They
// share their scripts, and almost all of their files.
func (r *release) writePackages(t target, program string) error {
	dir, err := os.MkdirTemp("", "plantstore-packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	contents, err := r.packagedFiles(dir, program)
	if err != nil {
		return err
	}
	info := nfpm.Info{
		Name: "plantstore", Arch: t.arch, Platform: "linux", Version: r.version, VersionSchema: "semver", Release: "1",
		Section: "database", Priority: "optional", Maintainer: maintainer, Homepage: homepage, License: "MIT", MTime: r.time,
		Description: "store of plants behind an HTTP API\nOne static binary that reports success only once a plant is safely on disk.",
		Overridables: nfpm.Overridables{
			Contents: contents,
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(r.source, "deploy/dist/postinst"),
				PreRemove:   filepath.Join(r.source, "deploy/dist/prerm"),
				PostRemove:  filepath.Join(r.source, "deploy/dist/postrm"),
			},
		},
	}
	debian := info
	debian.Release = "" // a package that is not Debian's own has none
	debian.Depends = []string{"passwd", "debconf (>= 0.5) | debconf-2.0"}
	debian.Deb = nfpm.Deb{Compression: "gzip", Scripts: nfpm.DebScripts{Templates: filepath.Join(r.source, "deploy/dist/templates")}}
	redHat := info
	redHat.Depends = []string{"/usr/sbin/useradd"} // its package has another name on SUSE
	redHat.RPM = nfpm.RPM{Compression: "gzip", BuildHost: "localhost"}
	redHat.Changelog = filepath.Join(dir, "changelog.yaml")
	changelog := fmt.Appendf(nil, "- semver: %s\n  date: %s\n  packager: %s\n  changes: [{note: See CHANGELOG.md.}]\n", r.version, r.time.Format(time.RFC3339), maintainer)
	if err := os.WriteFile(redHat.Changelog, changelog, 0o600); err != nil {
		return err
	}
	return errors.Join(
		writePackage(&debian, deb.Default, filepath.Join(r.out, fmt.Sprintf("plantstore_%s_%s.deb", r.version, t.arch))),
		writePackage(&redHat, rpm.DefaultRPM, filepath.Join(r.out, rpm.DefaultRPM.ConventionalFileName(&redHat))),
	)
}

func writePackage(info *nfpm.Info, packager nfpm.PackagerWithExtension, path string) error {
	if err := nfpm.PrepareForPackager(info, strings.TrimPrefix(packager.ConventionalExtension(), ".")); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// packagedFiles returns what the packages install, with the sources in a directory.
func (r *release) packagedFiles(dir, program string) (contents files.Contents, err error) {
	read := func(path string) []byte {
		text, failed := os.ReadFile(path)
		err = errors.Join(err, failed)
		return text
	}
	// add adds a file to the packages of one format, or of both if it is "".
	add := func(format, to string, mode fs.FileMode, kind string, content []byte) {
		from := filepath.Join(dir, strings.ReplaceAll(to, "/", "_"))
		contents = append(contents, &files.Content{
			Source: from, Destination: to, Type: kind, Packager: format,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.time},
		})
		err = errors.Join(err, os.WriteFile(from, content, 0o600))
	}
	add("", "/usr/bin/plantstore", 0o755, "", read(program))
	add("", "/etc/plantstore/plantstore.toml", 0o640, files.TypeConfigNoReplace, []byte(settings))
	for _, name := range []string{"plantstore.service", "plantstore.socket", "plantstore-backup.service", "plantstore-backup.timer"} {
		unit := read(filepath.Join(r.source, "deploy", name))
		if strings.HasSuffix(name, ".service") {
			var failed error
			unit, failed = packagedUnit(unit)
			err = errors.Join(err, failed)
		}
		add("deb", "/lib/systemd/system/"+name, 0o644, "", unit)
		add("rpm", "/usr/lib/systemd/system/"+name, 0o644, "", unit)
	}
	add("deb", "/usr/share/man/man1/plantstore.1.gz", 0o644, "", zipped(r.manual))
	add("rpm", "/usr/share/man/man1/plantstore.1.gz", 0o644, files.TypeRPMDoc, zipped(r.manual))
	add("", "/usr/share/bash-completion/completions/plantstore", 0o644, "", r.shells["bash"])
	add("deb", "/usr/share/zsh/vendor-completions/_plantstore", 0o644, "", r.shells["zsh"])
	add("rpm", "/usr/share/zsh/site-functions/_plantstore", 0o644, "", r.shells["zsh"])
	add("", "/usr/share/fish/vendor_completions.d/plantstore.fish", 0o644, "", r.shells["fish"])
	licence := read(filepath.Join(r.source, "LICENSE"))
	add("deb", "/usr/share/doc/plantstore/copyright", 0o644, "", licence)
	add("rpm", "/usr/share/licenses/plantstore/LICENSE", 0o644, files.TypeRPMLicence, licence)
	add("deb", "/usr/share/doc/plantstore/changelog.gz", 0o644, "", zipped(fmt.Appendf(nil,
		"plantstore (%s) stable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n",
		r.version, maintainer, r.time.Format("Mon, 02 Jan 2006 15:04:05 -0700"))))
	return contents, err
}

// packagedUnit returns a systemd service as the packages need it: with their path of the
// binary, and settings from the configuration file.
func packagedUnit(text []byte) ([]byte, error) {
	unit := string(text)
	for _, change := range [][2]string{
		{"ExecStart=/usr/local/bin/", "ExecStart=/usr/bin/"},
		{"Environment=PLANTSTORE_DB=/var/lib/plantstore/plants.db", "Environment=PLANTSTORE_CONFIG=/etc/plantstore/plantstore.toml"},
	} {
		if strings.Count(unit, change[0]) != 1 {
			return nil, fmt.Errorf("a service in deploy/ does not have %q once", change[0])
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
