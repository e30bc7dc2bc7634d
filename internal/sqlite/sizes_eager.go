//go:build eager

package sqlite

// With the build tag eager, generations are frozen and flushed all the time, even if there
// are few plants: tests that kill a server hit every step of it.
const (
	groupSize      = 2
	generationSize = 20
)
