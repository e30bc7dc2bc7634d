//go:build !unix

package sqlite

// freeBytes returns -1: how much may still be written is not known.
func freeBytes(string) int64 { return -1 }
