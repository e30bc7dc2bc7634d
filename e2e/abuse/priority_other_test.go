//go:build !linux

package abuse

import "testing"

// lowerPriority needs Linux.
func lowerPriority(t *testing.T) (restore func()) {
	t.Log("THE ABUSERS HAVE THE SAME PRIORITY AS THE SERVER: this is not Linux")
	return func() {}
}
