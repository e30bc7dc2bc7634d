package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"plantstore/internal/testenv"
)

// Root is the root of the repository, seen from the folder of a test package.
const Root = "../.."

// Build is a program that serves a store.
type Build struct{ Name, Program string }

// Builds returns the binary under test and, except for -short, the eager server.
func Builds(t testing.TB) []Build {
	builds := []Build{{"default", Binary()}}
	if !testing.Short() {
		builds = append(builds, Build{"eager", Eager(t)})
	}
	return builds
}

// EachBuild runs a test against each of the builds.
func EachBuild(t *testing.T, test func(t *testing.T, program string)) {
	for _, build := range Builds(t) {
		t.Run(build.Name, func(t *testing.T) { test(t, build.Program) })
	}
}

// Eager returns the path of the program in the folder eager: a server that flushes after a few
// plants, and repeats a delivery that failed at once.
func Eager(t testing.TB) string {
	t.Helper()
	built, err := buildEager()
	if err != nil {
		t.Fatal(err)
	}
	return built
}

var buildEager = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "plantstore-eager-")
	if err != nil {
		return "", err
	}
	AtExit(func() { os.RemoveAll(dir) })
	return testenv.Build("..", dir, "./harness/eager")
})

// Release020 is the commit of release 0.2.0.
const Release020 = "d0b4a18"

// Earlier returns the path of the plantstore of an earlier commit, which it builds for the
// test. Only a checkout without the history, such as a source archive, lacks it.
func Earlier(t testing.TB, commit string) string {
	t.Helper()
	if exec.Command("git", "-C", Root, "cat-file", "-e", commit+"^{commit}").Run() != nil {
		shallow, err := exec.Command("git", "-C", Root, "rev-parse", "--is-shallow-repository").Output()
		if err == nil && strings.TrimSpace(string(shallow)) == "false" {
			t.Fatalf("the repository does not have the commit %s", commit)
		}
		t.Skipf("this is not a clone with its history, and lacks the commit %s", commit)
	}
	dir := t.TempDir()
	built := filepath.Join(dir, "plantstore-"+commit)
	script := fmt.Sprintf("git -C %s archive %s | tar -x -C %s && cd %[3]s && go build -trimpath -buildvcs=false -o %s ./cmd/plantstore", Root, commit, dir, built)
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
	return built
}
