//go:build !unix

package sqlite

import (
	"io/fs"
	"os"
)

// freeBytes returns -1: how much may still be written is not known.
func freeBytes(string) int64 { return -1 }

// links returns 1: how many names a file has is not known.
func links(fs.FileInfo) uint64 { return 1 }

// A file is not locked: that of its name is.
func lockFile(*os.File) (bool, error) { return true, nil }
func isLocked(*os.File) bool          { return false }
