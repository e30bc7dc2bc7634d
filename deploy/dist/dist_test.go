package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const testCommit = "0123456789abcdef0123456789abcdef01234567"

// built is a release for this machine's architecture, made once.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "plantstore-dist-test-")
	if err == nil {
		os.Setenv("SOURCE_DATE_EPOCH", "1700000000")
		built = filepath.Join(dir, "dist")
		err = run([]string{"-out", built, "-commit", testCommit, "-only", "linux/" + runtime.GOARCH})
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// contents returns the files of a directory by name.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		if all[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// A source at another path, without git, gives the same bytes.
func TestReleaseIsReproducible(t *testing.T) {
	source := filepath.Join(t.TempDir(), "elsewhere")
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(source, strings.TrimPrefix(path, "../.."))
		switch {
		case d.IsDir() && slices.Contains([]string{".git", "artifacts", "bin"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(to, 0o777)
		case !d.Type().IsRegular() || strings.Contains(d.Name(), ".db"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o777)
	})
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("PLANTSTORE_TORTURE") == "1" {
		t.Setenv("GOCACHE", t.TempDir()) // compile everything again
	}
	again := filepath.Join(t.TempDir(), "dist")
	if err := run([]string{"-source", source, "-out", again, "-commit", testCommit, "-only", "linux/" + runtime.GOARCH}); err != nil {
		t.Fatal(err)
	}
	first, second := contents(t, built), contents(t, again)
	if len(first) < 5 || len(first) != len(second) {
		t.Fatalf("%d and %d files", len(first), len(second))
	}
	for name, text := range first {
		if !bytes.Equal(text, second[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

func TestChecksumsAreThoseOfTheFiles(t *testing.T) {
	all := contents(t, built)
	for line := range strings.Lines(string(all["SHA256SUMS"])) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if fmt.Sprintf("%x", sha256.Sum256(all[name])) != sum {
			t.Errorf("%s has another checksum", name)
		}
		delete(all, name)
	}
	if len(all) != 1 {
		t.Errorf("%d files have no checksum", len(all)-1)
	}
}

// untar returns the files of a tar archive by name.
func untar(t *testing.T, in io.Reader) (map[string][]byte, map[string]*tar.Header) {
	t.Helper()
	all, headers := map[string][]byte{}, map[string]*tar.Header{}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		headers[h.Name] = h
	}
}

func gunzip(t *testing.T, text []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// only returns the one file of the release whose name ends like this.
func only(t *testing.T, suffix string) []byte {
	t.Helper()
	for name, text := range contents(t, built) {
		if strings.HasSuffix(name, suffix) {
			return text
		}
	}
	t.Fatalf("there is no %s", suffix)
	return nil
}

// install writes a binary and returns its path.
func install(t *testing.T, binary []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plantstore")
	if err := os.WriteFile(path, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func TestArchiveHasAStaticBinaryThatKnowsItsCommit(t *testing.T) {
	all, _ := untar(t, bytes.NewReader(gunzip(t, only(t, ".tar.gz"))))
	byBase := map[string][]byte{}
	for name, text := range all {
		byBase[filepath.Base(name)] = text
	}
	for _, name := range []string{"plantstore.1", "plantstore.bash", "_plantstore", "plantstore.fish", "README.md", "CHANGELOG.md", "LICENSE"} {
		if len(byBase[name]) == 0 {
			t.Errorf("the archive has no %s", name)
		}
	}
	binary, err := elf.NewFile(bytes.NewReader(byBase["plantstore"]))
	if err != nil {
		t.Fatal(err)
	}
	if libraries, err := binary.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("the binary needs %q, %v", libraries, err)
	}
	var got struct{ Version, Commit string }
	if err := json.Unmarshal([]byte(output(t, exec.Command(install(t, byBase["plantstore"]), "version", "--json"))), &got); err != nil || got.Commit != testCommit {
		t.Errorf("the binary is %+v, %v", got, err)
	}
}

func TestPartsHaveTheModules(t *testing.T) {
	var bom struct {
		BomFormat  string
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(only(t, ".cdx.json"), &bom); err != nil || bom.BomFormat != "CycloneDX" {
		t.Fatal(err, bom.BomFormat)
	}
	var names []string
	for _, c := range bom.Components {
		names = append(names, c.Name)
		if c.Version == "" || !strings.HasPrefix(c.PURL, "pkg:golang/"+c.Name+"@") {
			t.Errorf("a part is %+v", c)
		}
	}
	for _, want := range []string{"std", "modernc.org/sqlite", "github.com/jackc/pgx/v5"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not in the list", want)
		}
	}
}

func TestImageIsConsistent(t *testing.T) {
	all, _ := untar(t, bytes.NewReader(only(t, ".oci.tar")))
	read := func(digest string, into any) []byte {
		t.Helper()
		text, ok := all["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")]
		if !ok || fmt.Sprintf("sha256:%x", sha256.Sum256(text)) != digest {
			t.Fatalf("the blob %s is missing or another", digest)
		}
		if into != nil {
			if err := json.Unmarshal(text, into); err != nil {
				t.Fatal(err)
			}
		}
		return text
	}
	var index struct{ Manifests []struct{ Digest string } }
	if err := json.Unmarshal(all["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatal(err, index)
	}
	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	read(index.Manifests[0].Digest, &manifest)
	var config struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
		Config struct {
			User        string
			Healthcheck struct{ Test []string }
		}
	}
	read(manifest.Config.Digest, &config)
	layer := gunzip(t, read(manifest.Layers[0].Digest, nil))
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(layer)); got != config.RootFS.DiffIDs[0] {
		t.Errorf("the layer is %s, the configuration has %s", got, config.RootFS.DiffIDs[0])
	}
	root, headers := untar(t, bytes.NewReader(layer))
	if h := headers["data/"]; h == nil || h.Uid != user || config.Config.User != fmt.Sprintf("%[1]d:%[1]d", user) {
		t.Errorf("the data belongs to %+v, the user is %s", h, config.Config.User)
	}
	if n := bytes.Count(root["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERTIFICATE")); n < 50 {
		t.Errorf("there are %d certificate authorities", n)
	}
	if !slices.Equal(config.Config.Healthcheck.Test, []string{"CMD", "/plantstore", "healthcheck"}) {
		t.Errorf("the health check is %q", config.Config.Healthcheck.Test)
	}
	output(t, exec.Command(install(t, root["plantstore"]), "healthcheck", "--help"))
}

func TestCommitComesFromTheSourceArchive(t *testing.T) {
	for text, ok := range map[string]bool{testCommit + "\n": true, "$Format:%H$\n": false} {
		source := t.TempDir()
		dir := filepath.Join(source, "cmd/plantstore")
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"version.go": "package main\n\nconst version = \"1.2.3\"\n", "commit.txt": text} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		r := &release{source: source}
		if err := r.identify(); (err == nil) != ok || ok && (r.commit != testCommit || r.version != "1.2.3") {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
	}
}

// scratch is a root directory in which dpkg installs packages. The maintainer scripts run
// outside of it, with DPKG_ROOT.
type scratch struct {
	t    *testing.T
	root string
}

func newScratch(t *testing.T) scratch {
	programs := []string{"dpkg", "debconf-communicate"}
	if os.Geteuid() != 0 {
		programs = append(programs, "fakeroot")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err) // .ci/deps fails if all tests must run
		}
	}
	s := scratch{t, t.TempDir()}
	debconf, err := os.ReadFile("/usr/share/debconf/debconf.conf")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"etc/debconf.conf": string(debconf), "var/cache/debconf/.keep": "", "usr/share/debconf/confmodule": "",
		"var/lib/dpkg/status": "", "var/lib/dpkg/info/.keep": "", "var/lib/dpkg/updates/.keep": "",
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n", "etc/shadow": "", "etc/gshadow": "",
		"usr/bin/.keep": "", "usr/share/.keep": "", "lib/systemd/system/.keep": "",
	} {
		path := filepath.Join(s.root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s scratch) dpkg(args ...string) {
	s.t.Helper()
	line := append([]string{
		"dpkg", "--root=" + s.root, "--log=" + filepath.Join(s.root, "dpkg.log"),
		"--force-script-chrootless", "--force-depends", "--force-architecture",
	}, args...)
	if os.Geteuid() != 0 {
		line = append([]string{"fakeroot", "-i", filepath.Join(s.root, "fakeroot"), "-s", filepath.Join(s.root, "fakeroot")}, line...)
		if err := os.WriteFile(filepath.Join(s.root, "fakeroot"), nil, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "DEBIAN_FRONTEND=noninteractive")
	s.t.Log(output(s.t, cmd))
}

// answer answers a question of the package before it is asked.
func (s scratch) answer(question, value string) {
	s.t.Helper()
	cmd := exec.Command("debconf-communicate", "plantstore")
	cmd.Env = append(os.Environ(), "DPKG_ROOT="+s.root, "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdin = strings.NewReader("SET " + question + " " + value + "\n")
	if got := output(s.t, cmd); got != "0 value set\n" {
		s.t.Fatalf("debconf says %q", got)
	}
}

// read returns a file of the scratch root, or "" if there is none.
func (s scratch) read(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.root, name))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return string(text)
}

func (s scratch) wantFiles(there bool, names ...string) {
	s.t.Helper()
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(s.root, name)); (err == nil) != there {
			s.t.Errorf("%s is there: %t, want %t", name, err == nil, there)
		}
	}
}

func TestDebianPackageIsInstalledUpgradedRemovedAndPurged(t *testing.T) {
	s := newScratch(t)
	deb := filepath.Join(t.TempDir(), "plantstore.deb")
	if err := os.WriteFile(deb, only(t, ".deb"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.dpkg("--install", deb)
	program := filepath.Join(s.root, "usr/bin/plantstore")
	s.wantFiles(true, "usr/bin/plantstore", "lib/systemd/system/plantstore.service", "lib/systemd/system/plantstore-backup.timer", "var/backups/plantstore", "usr/share/man/man1/plantstore.1.gz", "etc/plantstore/plantstore.toml")
	if info, err := os.Stat(filepath.Join(s.root, "etc/plantstore/env")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the first token: %v, %v", info, err)
	}
	token := s.read("etc/plantstore/env")
	if !strings.HasPrefix(token, "PLANTSTORE_BOOTSTRAP_TOKEN=") || len(token) < 64 {
		t.Errorf("the first token is %q", token)
	}
	if !strings.Contains(s.read("etc/passwd"), "\nplantstore:x:") {
		t.Errorf("there is no user:\n%s", s.read("etc/passwd"))
	}
	output(t, exec.Command(program, "serve", "--print-config", "--config", filepath.Join(s.root, "etc/plantstore/plantstore.toml")))
	for _, name := range []string{"plantstore.service", "plantstore-backup.service"} {
		if unit := s.read("lib/systemd/system/" + name); !strings.Contains(unit, "ExecStart=/usr/bin/plantstore ") || !strings.Contains(unit, "PLANTSTORE_CONFIG=/etc/plantstore/plantstore.toml") {
			t.Errorf("%s is\n%s", name, unit)
		}
	}

	// The store and edited settings survive an upgrade.
	db := filepath.Join(s.root, "var/lib/plantstore/plants.db")
	if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
		t.Fatal(err)
	}
	output(t, exec.Command(program, "token", "create", "--init", "--db", db, "--name", "kept"))
	store := s.read("var/lib/plantstore/plants.db")
	edited := s.read("etc/plantstore/plantstore.toml") + "max-queue = 99\n"
	if err := os.WriteFile(filepath.Join(s.root, "etc/plantstore/plantstore.toml"), []byte(edited), 0o640); err != nil {
		t.Fatal(err)
	}
	next := &release{source: "../..", out: t.TempDir(), version: "9.9.9", commit: testCommit, shells: map[string][]byte{}}
	small := install(t, []byte("#!/bin/sh\n")) // is compressed and installed sooner
	if err := next.writePackages(target{"linux", runtime.GOARCH}, small); err != nil {
		t.Fatal(err)
	}
	deb = filepath.Join(next.out, "plantstore_9.9.9_"+runtime.GOARCH+".deb")
	s.dpkg("--install", deb)
	if !strings.Contains(s.read("var/lib/dpkg/status"), "Version: 9.9.9") {
		t.Error("the package is not upgraded")
	}
	if s.read("etc/plantstore/plantstore.toml") != edited || s.read("etc/plantstore/env") != token {
		t.Error("the upgrade changed the settings or the token")
	}
	if s.read("var/lib/plantstore/plants.db") != store {
		t.Error("the upgrade changed the store")
	}

	// Removing keeps everything that is not the package's own.
	s.dpkg("--remove", "plantstore")
	s.wantFiles(false, "usr/bin/plantstore", "lib/systemd/system/plantstore.service")
	s.wantFiles(true, "var/lib/plantstore/plants.db", "etc/plantstore/plantstore.toml", "etc/plantstore/env")

	// Purging does not delete the store unless someone says so.
	s.dpkg("--purge", "plantstore")
	s.wantFiles(false, "etc/plantstore/plantstore.toml")
	if store == "" || s.read("var/lib/plantstore/plants.db") != store {
		t.Error("the purge changed the store")
	}
	s.dpkg("--install", deb)
	if s.read("etc/plantstore/env") != token || strings.Count(s.read("etc/passwd"), "plantstore:x:") != 1 {
		t.Errorf("the store was kept, but its first token or its user was not:\n%s", s.read("etc/passwd"))
	}
	s.answer("plantstore/purge-store", "true")
	s.dpkg("--purge", "plantstore")
	s.wantFiles(false, "var/lib/plantstore", "etc/plantstore", "var/backups/plantstore")
	if strings.Contains(s.read("etc/passwd"), "plantstore") {
		t.Error("the user is left over")
	}

	// Backups are kept, and with them the user that can read them.
	s.dpkg("--install", deb)
	if err := os.WriteFile(filepath.Join(s.root, "var/backups/plantstore/plants-20261115T060000Z.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.dpkg("--purge", "plantstore")
	s.wantFiles(true, "var/backups/plantstore/plants-20261115T060000Z.db")
	if !strings.Contains(s.read("etc/passwd"), "\nplantstore:x:") {
		t.Error("the user of the backups is gone")
	}
}

// header is the header of an rpm package: its values by their tags.
type header map[uint32][]string

// Tags of rpm, and the flag of a configuration file that rpm keeps if it was edited.
const (
	tagName, tagArch, tagRequires               = 1000, 1022, 1049
	tagPostInstall, tagPreRemove, tagPostRemove = 1024, 1025, 1026
	tagURL, tagChangelogName, tagChangelogText  = 1020, 1081, 1082
	tagFlags, tagDirIndex, tagBaseName, tagDirs = 1037, 1116, 1117, 1118
	flagConfigNoReplace, flagDoc, flagLicence   = 1<<0 | 1<<4, 1 << 1, 1 << 7
)

// readHeader reads a header at the beginning of text, and returns the rest. It knows the
// types of the tags above: 32-bit numbers and strings.
func readHeader(t *testing.T, text []byte) (header, []byte) {
	t.Helper()
	if !bytes.HasPrefix(text, []byte{0x8e, 0xad, 0xe8, 1}) {
		t.Fatalf("no header of rpm begins with %x", text[:4])
	}
	n, size := binary.BigEndian.Uint32(text[8:]), binary.BigEndian.Uint32(text[12:])
	index, data := text[16:16+16*n], text[16+16*n:][:size]
	h := header{}
	for ; len(index) > 0; index = index[16:] {
		field := func(i int) uint32 { return binary.BigEndian.Uint32(index[4*i:]) }
		tag, kind, at := field(0), field(1), data[field(2):]
		for range field(3) {
			switch kind {
			case 4:
				h[tag] = append(h[tag], fmt.Sprint(binary.BigEndian.Uint32(at)))
				at = at[4:]
			case 6, 8, 9:
				value, rest, _ := bytes.Cut(at, []byte{0})
				h[tag] = append(h[tag], string(value))
				at = rest
			}
		}
	}
	return h, text[16+16*n+size:]
}

// files returns the flags of the package's files by their paths.
func (h header) files(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	for i, name := range h[tagBaseName] {
		dir, err := strconv.Atoi(h[tagDirIndex][i])
		if err != nil {
			t.Fatal(err)
		}
		if all[h[tagDirs][dir]+name], err = strconv.Atoi(h[tagFlags][i]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestRPMHasTheFilesAndScripts(t *testing.T) {
	text := only(t, ".rpm")
	signature, rest := readHeader(t, text[96:])
	if len(signature) == 0 {
		t.Error("the package has no digests")
	}
	rest = rest[(8-(len(text)-len(rest))%8)%8:] // aligned
	h, payload := readHeader(t, rest)
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if !slices.Equal(h[tagName], []string{"plantstore"}) || !slices.Equal(h[tagArch], []string{arch}) || !slices.Contains(h[tagRequires], "/usr/sbin/useradd") {
		t.Errorf("the package is %q for %q and needs %q", h[tagName], h[tagArch], h[tagRequires])
	}
	all := h.files(t)
	for _, name := range []string{
		"/usr/bin/plantstore", "/usr/share/man/man1/plantstore.1.gz", "/usr/lib/systemd/system/plantstore.service",
		"/usr/lib/systemd/system/plantstore-backup.service", "/usr/lib/systemd/system/plantstore-backup.timer", "/usr/share/zsh/site-functions/_plantstore",
	} {
		if _, ok := all[name]; !ok {
			t.Errorf("the package has no %s", name)
		}
	}
	if flags := all["/etc/plantstore/plantstore.toml"]; flags != flagConfigNoReplace {
		t.Errorf("an upgrade would not keep the settings: their flags are %b", flags)
	}
	if man, licence := all["/usr/share/man/man1/plantstore.1.gz"], all["/usr/share/licenses/plantstore/LICENSE"]; man != flagDoc || licence != flagLicence {
		t.Errorf("the flags of the manual are %b, and those of the licence %b", man, licence)
	}
	if len(h[tagURL]) != 1 || len(h[tagChangelogName]) != 1 || len(h[tagChangelogText]) != 1 {
		t.Errorf("the URL is %q, and the changelog %q %q", h[tagURL], h[tagChangelogName], h[tagChangelogText])
	}
	if _, ok := all["/lib/systemd/system/plantstore.service"]; ok {
		t.Error("the package has files of Debian's")
	}
	if len(gunzip(t, payload)) < 10<<20 {
		t.Error("the package has no binary")
	}

	// As rpm runs the scripts: to install, to upgrade, to remove. They change a scratch root.
	s := newScratch(t)
	if err := os.MkdirAll(filepath.Join(s.root, "etc/plantstore"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.root, "etc/plantstore/plantstore.toml"), []byte(settings), 0o640); err != nil {
		t.Fatal(err)
	}
	script := func(tag uint32, argument string) {
		t.Helper()
		cmd := exec.Command("sh", "-c", h[tag][0], "script", argument)
		if os.Geteuid() != 0 {
			cmd = exec.Command("fakeroot", cmd.Args...)
		}
		cmd.Env = append(os.Environ(), "DPKG_ROOT="+s.root, "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
		output(t, cmd)
	}
	script(tagPostInstall, "1")
	token := s.read("etc/plantstore/env")
	if len(token) < 64 || !strings.Contains(s.read("etc/passwd"), "\nplantstore:x:") {
		t.Errorf("the first token is %q, the users are\n%s", token, s.read("etc/passwd"))
	}
	script(tagPostInstall, "2")
	script(tagPreRemove, "0")
	script(tagPostRemove, "0")
	if s.read("etc/plantstore/env") != token {
		t.Error("the first token was changed or removed")
	}
}

func TestUnknownPlatformIsRefused(t *testing.T) {
	out := filepath.Join(t.TempDir(), "dist")
	if err := run([]string{"-out", out, "-only", "linux/vax"}); err == nil || !strings.Contains(err.Error(), "linux/amd64") {
		t.Errorf("linux/vax: %v", err)
	}
}
