// Package testenv is what the tests of several packages need to know about their
// environment: which programs are missing, where the binary under test is, whether
// goroutines are left over, and how long to wait. Only tests import it.
//
// These environment variables are set by make test and make e2e. A package that is
// tested with plain go test needs none of them.
//
//   - PLANTSTORE_TEST_ALL=1, or CI=true, fails a test whose requirements are missing
//     instead of skipping it.
//   - PLANTSTORE_TEST_MISSING names a file to which every test that is skipped for that
//     reason adds a line.
//   - PLANTSTORE_TEST_BIN names the folder of the plantstore that was built for this run.
//   - PLANTSTORE_TEST_POOLED=1 runs tests of internal/server on two servers whose PostgreSQL
//     is behind a PgBouncer that is killed and restarted all the time.
//   - PLANTSTORE_TEST_LIMITED=1 runs them on two servers whose role in PostgreSQL may have no
//     more than eight connections.
package testenv

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Missing skips a test because something is not installed, or fails it if all tests must
// run. All tests that need it say the same.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("PLANTSTORE_TEST_ALL") == "1" || os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	if list := os.Getenv("PLANTSTORE_TEST_MISSING"); list != "" {
		if err := appendLine(list, what); err != nil {
			t.Error(err)
		}
	}
	t.Skip(what)
}

func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// Pooled reports whether PostgreSQL is to be reached through a pooler.
func Pooled() bool { return os.Getenv("PLANTSTORE_TEST_POOLED") == "1" }

// TwoServers reports whether tests are to run on two servers that share a database.
func TwoServers() bool { return Pooled() || os.Getenv("PLANTSTORE_TEST_LIMITED") == "1" }

// NeedsProgram calls [Missing] if a program is not installed, and returns its path.
func NeedsProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, name+" is not installed")
	}
	return path
}

// NeedsTools calls [Missing] if the tools that only npm has are not installed below the
// root of the repository.
func NeedsTools(t testing.TB, root string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, "e2e/tools/node_modules/.package-lock.json")); err != nil {
		Missing(t, "the npm packages of e2e/tools are not installed")
	}
}

// Binary returns the path of the plantstore under test. It builds it from the root of the
// repository into the folder, unless the whole run has it already.
func Binary(root, dir string) (string, error) {
	if built := os.Getenv("PLANTSTORE_TEST_BIN"); built != "" {
		return filepath.Join(built, "plantstore"), nil
	}
	return Build(root, dir, "./cmd/plantstore")
}

// Build builds a program of a module into the folder and returns its path.
func Build(module, dir, pkg string) (string, error) {
	program := filepath.Join(dir, path.Base(pkg))
	out, err := exec.Command("go", "-C", module, "build", "-buildvcs=false", "-o", program, pkg).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return program, nil
}

// Timeout ends a wait for what happens soon, even on a machine that is busy or pauses now
// and then. A test that waits longer fails, and says what it waited for.
const Timeout = 2 * time.Minute

// Eventually calls check until it returns nil, less and less often. If that does not happen in
// time, the test fails with its last error.
func Eventually(t testing.TB, check func() error) {
	t.Helper()
	deadline := time.Now().Add(Timeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %v", Timeout, err)
		}
		time.Sleep(pause)
	}
}

// WaitFor waits until a condition holds. If that does not happen in time, the test fails and
// names what it waited for.
func WaitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Eventually(t, func() error {
		if !holds() {
			return fmt.Errorf("still waiting for %s", what)
		}
		return nil
	})
}

// leakTimeout is how long goroutines may take to end, on a busy machine too.
const leakTimeout = 30 * time.Second

// Leaks returns an error if goroutines are left over, and still are after a while.
func Leaks(options ...goleak.Option) (err error) {
	for deadline := time.Now().Add(leakTimeout); ; {
		if err = goleak.Find(options...); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// CountConnections counts the connections to an address of this machine, until the test ends.
func CountConnections(t testing.TB) (addr string, count *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	count = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			c.Close()
		}
	}()
	return l.Addr().String(), count
}
