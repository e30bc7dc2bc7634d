// Command dist builds everything of a release into a directory: archives with the binary
// for each platform, packages for Debian and Red Hat and a container image for each Linux
// architecture, SBOMs, and checksums. The same source, version and commit give the same bytes.
//
// It is a module of its own, so that the server does not depend on what it needs.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// target is a platform.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

var targets = []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}, {"windows", "amd64"}}

// release is what is built.
type release struct {
	source  string // the root of the repository
	out     string
	version string
	commit  string
	time    time.Time // of every file
	manual  []byte
	shells  map[string][]byte // completions, by shell
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("dist", flag.ExitOnError)
	source := flags.String("source", "../..", "the root of the repository")
	out := flags.String("out", "../../dist", "the directory to write; it is emptied first")
	commit := flags.String("commit", "", "the commit; default: git's, or that of the source archive")
	only := flags.String("only", "", "one platform, such as linux/amd64; default: all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	selected := slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return *only != "" && *only != t.String() })
	if len(selected) == 0 {
		return fmt.Errorf("-only %s: the platforms are %v", *only, targets)
	}
	r := &release{source: *source, out: *out, commit: *commit}
	if err := r.identify(); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o777)); err != nil {
		return err
	}
	if err := r.describe(); err != nil {
		return err
	}
	for _, t := range selected {
		if err := r.build(t); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	return r.writeChecksums()
}

// identify finds out the version, the commit and the time of the release.
func (r *release) identify() error {
	text, err := os.ReadFile(filepath.Join(r.source, "cmd/plantstore/version.go"))
	if err != nil {
		return err
	}
	found := regexp.MustCompile(`(?m)^const version = "(.+)"$`).FindSubmatch(text)
	if found == nil {
		return errors.New("cmd/plantstore/version.go has no version")
	}
	r.version = string(found[1])
	r.time = time.Unix(0, 0)
	if at, err := r.git("log", "-1", "--format=%ct"); err == nil {
		seconds, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return err
		}
		r.time = time.Unix(seconds, 0)
	}
	if at := os.Getenv("SOURCE_DATE_EPOCH"); at != "" {
		seconds, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		r.time = time.Unix(seconds, 0)
	}
	r.time = r.time.UTC()
	if r.commit != "" {
		return nil
	}
	if r.commit, err = r.git("rev-parse", "HEAD"); err == nil {
		return nil
	}
	archived, err := os.ReadFile(filepath.Join(r.source, "cmd/plantstore/commit.txt"))
	if err != nil {
		return err
	}
	if r.commit = strings.TrimSpace(string(archived)); strings.HasPrefix(r.commit, "$") {
		return errors.New("the commit is not known: use -commit")
	}
	return nil
}

// git runs git on the source, which must be a repository of its own.
func (r *release) git(args ...string) (string, error) {
	if _, err := os.Stat(filepath.Join(r.source, ".git")); err != nil {
		return "", err
	}
	out, err := exec.Command("git", append([]string{"-C", r.source}, args...)...).Output()
	return strings.TrimSpace(string(out)), err
}

// describe lets the binary describe itself: its manual page and completions.
func (r *release) describe() error {
	dir, err := os.MkdirTemp("", "plantstore-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "plantstore")
	if err := r.compile(program); err != nil {
		return err
	}
	r.shells = map[string][]byte{}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if r.shells[shell], err = exec.Command(program, "completion", shell).Output(); err != nil {
			return fmt.Errorf("completion %s: %w", shell, err)
		}
	}
	if r.manual, err = exec.Command(program, "manual").Output(); err != nil {
		return fmt.Errorf("manual: %w", err)
	}
	return nil
}

// compile builds the binary for the platform in the environment. Nothing of this machine
// gets into it.
func (r *release) compile(program string, env ...string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= -X main.releaseCommit="+r.commit, "-o", program, "./cmd/plantstore")
	cmd.Dir, cmd.Stderr = r.source, os.Stderr
	cmd.Env = append(os.Environ(), append([]string{"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOWORK=off"}, env...)...)
	return cmd.Run()
}

// build makes everything for one platform.
func (r *release) build(t target) error {
	dir, err := os.MkdirTemp("", "plantstore-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	name := "plantstore"
	if t.os == "windows" {
		name += ".exe"
	}
	program := filepath.Join(dir, name)
	if err := r.compile(program, "GOOS="+t.os, "GOARCH="+t.arch); err != nil {
		return err
	}
	base := filepath.Join(r.out, fmt.Sprintf("plantstore_%s_%s_%s", r.version, t.os, t.arch))
	if err := errors.Join(r.writeArchive(base, t, program), r.writeParts(base+".cdx.json", program)); err != nil {
		return err
	}
	if t.os != "linux" {
		return nil
	}
	return errors.Join(r.writePackages(t, program), r.writeImage(base+".oci.tar", t, program))
}

// writeChecksums writes SHA256SUMS, in the format of sha256sum.
func (r *release) writeChecksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines []string
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(text), entry.Name()))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
