//go:build unix

package sqlite

import "golang.org/x/sys/unix"

// freeBytes returns how much a process without privileges may still write to the disk
// of a folder, or -1 if that is not known.
func freeBytes(dir string) int64 {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return -1
	}
	return int64(fs.Bavail) * int64(fs.Bsize)
}
