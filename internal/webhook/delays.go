//go:build !eager

package webhook

import "time"

const (
	attemptTimeout = 15 * time.Second // of one attempt
	firstDelay     = 5 * time.Second  // between the first attempts
	maxDelay       = time.Hour
)
