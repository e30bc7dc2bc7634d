//go:build !linux

package e2e

import "testing"

// setApart lets this process have the processor only when no other wants it, where
// the system knows such a thing.
func setApart(t *testing.T) (restore func()) {
	t.Log("THE ABUSERS ARE NOT SET APART: this needs Linux")
	return func() {}
}
