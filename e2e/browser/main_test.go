// Package browser tests the console and the reference in real browsers: everything in
// Chromium, and the main path in Firefox too.
package browser

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"plantstore/e2e/harness"
)

func TestMain(m *testing.M) {
	// Tests wait for browsers and servers half of the time, so twice as many run at once
	// as there are cores, unless the command line says otherwise.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	flag.Parse()
	os.Exit(harness.Main(m.Run))
}
