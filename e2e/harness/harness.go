// Package harness runs the real plantstore binary for the tests in e2e. It builds the
// binary, starts, kills and stops servers, puts them under load, and checks that they
// keep what they have acknowledged. Only tests import it.
//
// PLANTSTORE_TORTURE=1 selects the long form of the tests, and PLANTSTORE_ARTIFACTS names
// the folder for what a test leaves behind.
package harness

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore/internal/testenv"
)

// Token is the first token of every store, with all scopes.
const Token = "e2e-bootstrap-token-0123456789abcdef"

var (
	binary string // the plantstore under test

	atExitMu sync.Mutex
	atExit   []func() // guarded by atExitMu
)

// Main is for a TestMain. It builds the binary, runs the tests, and fails if they leave
// goroutines behind. It returns the exit code.
func Main(run func() int) (code int) {
	dir, err := os.MkdirTemp("", "plantstore-e2e-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	if binary, err = testenv.Binary(Root, dir); err != nil {
		return failed(err)
	}
	if dir := Artifacts(); dir != "" {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return failed(err)
		}
	}
	defer func() {
		for _, f := range slices.Backward(atExit) {
			f()
		}
		http.DefaultClient.CloseIdleConnections()
		if err := testenv.Leaks(); err != nil {
			code = max(code, failed(err))
		}
	}()
	return run()
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// AtExit has f called after the last test, in reverse order.
func AtExit(f func()) {
	atExitMu.Lock()
	defer atExitMu.Unlock()
	atExit = append(atExit, f)
}

// Binary returns the path of the plantstore under test.
func Binary() string { return binary }

// Torture reports whether the long form of the tests is wanted.
func Torture() bool { return os.Getenv("PLANTSTORE_TORTURE") == "1" }

// Times returns how often a test repeats: the second number in the long form, and a quarter
// of the first with -short.
func Times(usual, long int) int {
	switch {
	case Torture():
		return long
	case testing.Short():
		return max(1, usual/4)
	default:
		return usual
	}
}

// Artifacts returns the folder for files that outlive the tests, or "" if there is none.
func Artifacts() string { return os.Getenv("PLANTSTORE_ARTIFACTS") }

// Report logs what a test measured and saves it to the artifacts. No test fails
// because of a measurement.
func Report(t testing.TB, format string, args ...any) {
	t.Helper()
	text := fmt.Sprintf(format, args...)
	t.Log(text)
	if Artifacts() == "" {
		return
	}
	file, err := openTimings()
	if err == nil {
		_, err = fmt.Fprintf(file, "%s: %s\n", t.Name(), text)
	}
	if err != nil {
		t.Error(err)
	}
}

// openTimings creates the file timings-PACKAGE.txt, once.
var openTimings = sync.OnceValues(func() (*os.File, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(Artifacts(), "timings-"+filepath.Base(here)+".txt"))
})

// Parallel runs f n times at once and reports the first few errors.
func Parallel(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	const shown = 5
	var wg sync.WaitGroup
	var failed atomic.Int64
	for i := range n {
		wg.Go(func() {
			if err := f(i); err != nil && failed.Add(1) <= shown {
				t.Errorf("%d of %d: %v", i, n, err)
			}
		})
	}
	wg.Wait()
	if failed := failed.Load(); failed > shown {
		t.Errorf("%d of %d failed", failed, n)
	}
}

// StartPiped starts a program and returns its standard input and output. What it prints as errors
// appears among those of the test.
func StartPiped(t testing.TB, cmd *exec.Cmd) (in io.WriteCloser, out io.Reader) {
	t.Helper()
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err = cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, out
}
