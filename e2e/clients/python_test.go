package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"plantstore/e2e/harness"
)

const pythonDir = harness.Root + "/clients/python"

// run runs a program in a folder, which must succeed, and returns its output.
func run(t testing.TB, dir string, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func TestThePythonClientIsTyped(t *testing.T) {
	t.Parallel()
	run(t, pythonDir, nil, need(t, "mypy"), "--cache-dir", t.TempDir(), "src")
}

// TestThePythonWheelCanBeInstalled builds a wheel and installs it into an empty
// environment, without downloads.
func TestThePythonWheelCanBeInstalled(t *testing.T) {
	t.Parallel()
	python := need(t, "python3")
	source, dir := filepath.Join(t.TempDir(), "python"), t.TempDir()
	if err := os.CopyFS(source, os.DirFS(pythonDir)); err != nil { // the build leaves files behind
		t.Fatal(err)
	}
	run(t, source, nil, python, "-c", `from setuptools import build_meta; build_meta.build_wheel("dist")`)
	run(t, dir, nil, python, "-m", "venv", "env")
	wheels, err := filepath.Glob(filepath.Join(source, "dist", "*.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("the build made %q, want one wheel", wheels)
	}
	installed := filepath.Join(dir, "env", "bin", "python")
	run(t, dir, nil, installed, "-m", "pip", "install", "--quiet", "--no-index", wheels[0])
	server := harness.Start(t)
	got := run(t, dir, []string{"URL=" + server.API, "TOKEN=" + token}, installed, "-c", `
import os, plantstore
with plantstore.Client(os.environ["URL"], os.environ["TOKEN"]) as store:
    store.create(plantstore.Plant(2**53 + 1, "Monstera"))
    print(store.get(2**53 + 1).id, os.path.exists(os.path.dirname(plantstore.__file__) + "/py.typed"))
`)
	if want := "9007199254740993 True\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
