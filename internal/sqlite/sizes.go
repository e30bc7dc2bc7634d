//go:build !eager

package sqlite

const (
	// groupSize is how many writes are decided, and appended to the log, at a time.
	groupSize = 32

	// generationSize is how many rows of the log a generation has when it is frozen. The
	// more it has, the fewer pages its flush touches per row, and the longer a server takes
	// to read the log when it starts.
	generationSize = 1 << 19
)
