//go:build eager

package webhook

import "time"

// With the build tag eager, failed deliveries are soon repeated, so that tests whose
// receiver fails need not wait.
const (
	attemptTimeout = 2 * time.Second
	firstDelay     = 200 * time.Millisecond
	maxDelay       = time.Second
)
